/* What the rooms of the border share: the object, whose code is whose, and what its methods are. */
#ifndef ALIGHT_BORDER_H
#define ALIGHT_BORDER_H
#include "core.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *weakrefs, *judge, *describe, *enter, *leave, *give, *installed;
    /* What was judged: by file or module of a function, by class of what is called, by class that is called; and what
       was told of objects, by their class. */
    PyObject *by_origin, *by_class, *by_made, *by_kind;
    PyObject *waiting; /* frames of the program that wait for a package's C code, and for how many calls */
    Py_ssize_t out; /* containers whose Arrays are exchanged for now */
    PyObject *inside; /* gives what runs in a function's place while `jit` records */
    PyObject *stand_ins; /* what is called in the place of packages' functions that are ops */
} Border;

enum { UNKNOWN, STRAIGHT, FOREIGN, PASSES_ON, NOT_KEPT = 8 };

#define MOST_KEPT 4096 /* a program may make classes for ever: then all is judged anew */

/* What `describe` tells: objects of a package's class, or of one made of it; of a class whose objects hold nothing that
   is exchanged; of one whose objects hold what their attributes are. */
enum { A_PACKAGES = 1, HOLDS_NOTHING = 2, BY_ATTRIBUTES = 4 };

/* Objects that are looked into before Python code is asked, which meets each once. */
#define MOST_LOOKED_INTO 256

/* border_verdicts.c */
int border_judged(Border *self, PyObject *known, PyObject *key, PyObject *item);
int border_verdict(Border *self, PyObject *callee);
int border_described(Border *self, PyTypeObject *kind);
bool border_is_closed(PyObject *item);
bool border_may_hold(PyObject *item);
bool border_all_hold_none(Border *self, PyObject *const *items, Py_ssize_t count, int *looks);
bool border_holds_none(Border *self, PyObject *item, int *looks);
int border_tell_of(Border *self, PyObject *const *items, Py_ssize_t count);
int border_names_foreign(Border *self, PyObject *const *items, Py_ssize_t count);

/* border.c */
PyObject *border_left(Border *self, PyObject *result, PyObject *state);

/* border_operators.c */
PyObject *border_operate(PyObject *object, PyObject *const *args, Py_ssize_t nargs);
PyObject *border_set_item(PyObject *object, PyObject *const *args, Py_ssize_t nargs);
PyObject *border_set_attribute(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *border_swap(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

#endif
