/* The call guard: entries and who tries them. */
#ifndef ALIGHT_GUARD_H
#define ALIGHT_GUARD_H

#include "core.h"
#include "kernel.h"

#include <numpy/arrayscalars.h>

#include <stdint.h>
#include <string.h>

#define ENTRIES 64       /* as the kinds of call that jit keeps apart by exact shapes; one that does not hold takes 4 ns */
#define SAMPLED 16       /* of so many calls one is timed: reading the clock twice costs as much as a small kernel */

typedef struct {
    PyTypeObject *kind;
    PyObject *item;      /* an example ndarray, a value that must be the same, or NULL */
    PyArray_Descr *descr;
    int bits;            /* of an integer, or of an ndarray's number of elements; -1: the example says all */
    int writeable;
    int same;            /* the first argument that must be this very ndarray, or -1 */
} Example;

typedef struct {
    PyObject *place, *name, *expected; /* name NULL: place is a cell */
    size_t part;                       /* where a function keeps what it has under that name; 0: place is none */
} Found;

typedef struct {
    PyObject *variable, *fallback, *expected;
} Context;

typedef struct {
    PyArray_Descr *descr;
    int ndim, fortran, scalar;
    Py_ssize_t last;     /* the step after which nobody needs it; -1: it is a result */
    npy_intp *shape;
} Output;

/* A function of NumPy's in a kernel's place (Call in _core/guard.py). */
typedef struct {
    PyObject *function, *like, *before, *variable, *value; /* like: a tuple of ndarrays, one for each operand */
} Call;

/* One kernel. Its operands are places among the entry's inputs and outputs, and bytes from their first. */
typedef struct {
    Kernel kernel;       /* NULL: it is a call */
    int64_t *dims, *strides;
    Call call;
    PyObject *keep;
    Py_ssize_t count, made; /* operands, and outputs that are there once it has run */
    int *places;
    intptr_t *offsets;
} Step;

typedef struct {
    PyObject_HEAD
    int open;            /* cleared by the collector: matches nothing any more */
    Py_ssize_t count, found_count, context_count, input_count, output_count, result_count, step_count;
    Example *examples;
    Found *found;
    Context *contexts;
    PyObject *absent;
    PyObject *call, *already_shown;
    long long left;
    int looks;           /* what is called looks at the arguments, and may leave them to other entries */
    Step *steps;
    int *positions;
    intptr_t *offsets;
    Output *outputs;
    int *results;
    int form;            /* 0 one, 1 tuple, 2 list */
    int watched, unlocked;
    unsigned long long calls, sampled;
    double seconds;
    PyObject *weakrefs;
} Entry;

/* What NumPy calls its error states, and whether the first of what they hold was found to be their mask. */
#define STATE_CAPSULE "numpy.ufunc.extobj"
extern int masks_known;
int errors_mask(PyObject *state);

extern PyTypeObject EntryType;

/* entry.c: 1 where every guard holds, 0 where not, -1 for an error */
int entry_matches(Entry *self, PyObject *const *args, Py_ssize_t count);
PyObject *entry_run(Entry *self, PyObject *const *args, Py_ssize_t count);

/* guard.c */
PyObject *guard_answer(PyObject *guard, PyObject *const *args, Py_ssize_t count, long long passed, bool *numpys);
bool is_guard(PyObject *object);
extern _Thread_local int guards_running; /* calls of guards that this thread is in: what they run runs as it is written */

/* gate.c: its names, put into the module */
bool gates_ready(PyObject *module);

/* entry_read.c: what Python says an entry is; -1 for an error */
int read_pattern(Entry *self, PyObject *pattern);
int read_found(Entry *self, PyObject *lookups);
int read_contexts(Entry *self, PyObject *contexts);
int read_kernels(Entry *self, PyObject *kernels, PyObject *inputs, PyObject *outputs, PyObject *results,
                 PyObject *scalars, PyObject *form);

#endif
