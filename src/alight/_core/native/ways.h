/* A kernel bound to sizes, and on how many threads it runs; ways.c decides, launcher.c runs it. */
#ifndef ALIGHT_WAYS_H
#define ALIGHT_WAYS_H

#include "kernel.h"
#include "threads.h"

#define BALANCED 4       /* parts for each thread: who comes late or is interrupted leaves 1/4 of its share to others */
#define COUNTS 9         /* numbers of threads that are tried: 2, 4, ... 256, or all */

typedef void (*Combine)(char *slots, int64_t parts, int64_t *dims, int64_t *strides, void **addresses);

typedef struct {
    Kernel kernel;
    Combine combine;      /* NULL: parts write their own share of the results */
    int rank, operands, inputs, axis, unlocked;
    int absorbing;        /* the first byte of a partial reduction that nothing changes any more; -1: there is none */
    int64_t *dims;        /* rank of them, then what else the kernel wants */
    int64_t *strides;
    int64_t *partial_strides;
    int extra;
    int64_t unit, units;  /* indices that stay together, and how many such runs there are */
    int64_t cells, slot;  /* results of a reduction, and the bytes of its state: each part has one for every result */
    _Atomic double alone_seconds; /* of a run on one thread; 0: not known */
    /* On 2, 4, ... or all threads; with those awake, and where some had to be woken. */
    _Atomic double together_seconds[2][COUNTS];
    _Atomic uint32_t together_runs[2][COUNTS];
    _Atomic uint32_t alone_runs, turns, last_parts;
    _Atomic uint32_t again;         /* the turn at which what was given up is tried again */
    _Atomic uint32_t woken, wasted; /* the last run woke somebody; how often that was for nothing, of late */
} Plan;

/* How a run is shared: on how many threads, and the place of that number in what is kept of a plan. */
typedef struct {
    int threads, count;
    int asleep;   /* somebody has to be woken */
    double seconds;
} Way;

void learn(_Atomic double *seconds, double sample);
/* What is seen where none is given: the clock, and who sleeps. */
typedef struct {
    double now;
    int asleep;
} Scene;

Way way_of(Plan *plan, double alone, int most, const Scene *scene);
/* A run on one thread begins: tell which one it is, and whether it is worth timing; then what it took. */
uint32_t begin_alone(Plan *plan, int *timed);
void note_alone(Plan *plan, uint32_t before, double seconds);
void note_together(Plan *plan, Way way, double seconds);
void keep_on(Plan *plan, double wake);
void run_ended(double now);
PyObject *foresee(PyObject *module, PyObject *args);

#endif
