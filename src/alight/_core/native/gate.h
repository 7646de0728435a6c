/* The gate of code of the program's own, and where what it computes from is found. */
#ifndef ALIGHT_GATE_H
#define ALIGHT_GATE_H

#include "guard.h"

/* Where a gate finds what its code is given beside its arguments. */
typedef enum {
    ARGUMENTS,  /* nowhere: they are all */
    ATTRIBUTES, /* of the first argument, which is not given itself */
    CELLS,      /* of a function that is its last argument, which is not given itself */
    NAMES,      /* of the module: it stands before statements, and is called with nothing */
    LOCALS,     /* nowhere: they are variables of the function whose statements it stands before */
} Source;

enum { INPUTS = 64 }; /* as ENTRIES: code of more has no gate (jit/gates.py asks for it by MOST_INPUTS) */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *weakrefs;
    PyObject *origin;    /* where the code is found that has no gate */
    Source source;
    PyObject *inputs;    /* a tuple of what attributes or names are called */
    PyObject *answers;   /* the guard that answers calls; NULL: none does yet */
    PyObject *names;     /* the globals that it answers for, which it holds */
    PyObject *roles;     /* of each input: () anything, (type,) of this very type, (None, object) this very object */
    PyObject *numbers;   /* the function that computes the numbers of what is stored, from all inputs; NULL: none */
    PyObject *stored;    /* the names of what is stored (LOCALS: its place in the answer): such numbers, then the guard's results behind its first */
    PyObject *left_by;   /* what tells of an error what was stored before */
    int count, picked[INPUTS]; /* the inputs that the guard gets; count -1: all */
    long long left;      /* calls that pass before one is looked at */
    long long passed;    /* of those */
    double seconds;      /* that NumPy is predicted to have taken for all calls */
    int operations;      /* that stand in the body */
    int numpys, vain;    /* calls one after another that were NumPy's; that nobody answered */
    unsigned long failed; /* the thread in which what ran in the statements' place has raised */
} Gate;

/* gate_inputs.c: the inputs of a call, each held; -1: they cannot be had without the program's own code, -2: an error */
Py_ssize_t gate_inputs(Gate *self, PyObject *const *args, Py_ssize_t count, PyObject **inputs);
bool fits_roles(Gate *self, PyObject *const *inputs, Py_ssize_t count);
/* Return what statements of a function assign, in the order of its variables there. */
PyObject *gate_assigned(PyObject *stored, PyObject *numbers, PyObject *results);
/* Store what was computed, the results from a place on behind the numbers; -1 for an error. */
int gate_store(Gate *self, PyObject *stored, PyObject *holder, PyObject *numbers, PyObject *results, Py_ssize_t from);

#endif
