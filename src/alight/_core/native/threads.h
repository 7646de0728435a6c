/* Threads that run the parts of one job together; threads.c says how, launcher.c and pool_jobs.c what for, ways.c how
   many. */
#ifndef ALIGHT_THREADS_H
#define ALIGHT_THREADS_H

#include <stdatomic.h>
#include <stdint.h>

#include "clock.h"

#define MOST_THREADS 256

typedef void (*Work)(void *context, uint32_t part);

void relax(void);

int threads_wanted(void);        /* the caller's included */
int claim_pool(void);            /* 0 where somebody has the pool, who then works alone */
void release_pool(void);
/* Offer parts to the workers that are awake; called by who has the pool, as all that follows. */
void publish(Work work, void *context, uint32_t parts, int threads);
void wake_workers(void);         /* those of this job that sleep */
void keep_awake(double seconds); /* have those that spin, or wake now, go on for so long */
void stay_awake(double seconds); /* have all spin for so long after each job, if waking takes less */
double awake_seconds(void);
int take_part(void);             /* run one part here; 0 where none is left */
uint32_t take_parts(void);       /* run them here until none is left; returns how many */
uint32_t parts_left(void);
void await_parts(uint32_t parts); /* until every part that was taken is done */
int asleep_among(int threads);   /* whether one of so many, or of all that are wanted, sleeps or does not exist */

/* What it takes to share work with so many threads that spin, and that sleep. */
double join_seconds(int threads);
double wake_seconds(int threads);

PyObject *round_trip(PyObject *module, PyObject *args);
PyObject *copy(PyObject *module, PyObject *args);
extern PyMethodDef thread_functions[];
void forget_workers(void);

#endif
