/* What recording looks at: the hooks, the floor, and the policy in force. */
#include "core.h"
#include "clock.h"
#include <limits.h>
#include <math.h>

Hooks *hooks;
Floor *floors;
PyObject *policy_in_force;

/* The last policy seen and its floor. A policy never changes, but its floor rests on the measured one. */
static PyObject *known_policy;
static Py_ssize_t known_least;

static void end_wait(Floor *self)
{
    if (self->kept > 0) {
        self->record_floor = self->kept;
        self->kept = 0;
        Py_CLEAR(known_policy);
    }
}

/* Tell whether all work is left to NumPy for a while; once that is over, work is recorded again. */
static bool still_waits(Floor *self)
{
    if (self->kept > 0 && self->begins < INFINITY && now_seconds() >= self->begins) { /* the clock costs as much as an op */
        end_wait(self);
    }
    return self->kept > 0;
}

/* Find the result elements below which an op on concrete operands is left to NumPy. */
bool floor_in_force(Py_ssize_t *least)
{
    still_waits(floors);
    PyObject *policy;
    if (PyContextVar_Get(policy_in_force, NULL, &policy) < 0) {
        return false;
    }
    if (policy == NULL || policy == Py_None) {
        Py_XDECREF(policy);
        *least = floors->record_floor;
        return true;
    }
    if (policy != known_policy) {
        PyObject *number = PyObject_GetAttrString(policy, "record_floor");
        Py_ssize_t found = number == NULL ? -1 : PyNumber_AsSsize_t(number, NULL);
        Py_XDECREF(number);
        if (found == -1 && PyErr_Occurred()) {
            Py_DECREF(policy);
            return false;
        }
        known_least = found;
        Py_XSETREF(known_policy, Py_NewRef(policy));
    }
    Py_DECREF(policy);
    *least = known_least;
    return true;
}

/* While all work waits, NumPy does what is at hand: note that an array was among it that is alight's, once. The hook
   has a thread begin, and runs nothing of Python's itself, which a signal's handler could end: its caller is amid an
   op. Where no thread begins, nothing waits any more. */
void meet_large(void)
{
    if (floors->met) {
        return;
    }
    floors->met = 1;
    PyObject *hook = Py_XNewRef(hooks->large), *begun = hook == NULL ? Py_NewRef(Py_None) : PyObject_CallNoArgs(hook);
    Py_XDECREF(hook);
    if (begun == NULL) {
        PyErr_Clear();
        end_wait(floors);
    }
    Py_XDECREF(begun);
}

/* Tell whether this thread runs a body that was given up. False, too, with an error set: a policy says its floor in
   Python, where a signal's handler may raise. */
bool outright(void)
{
    Py_ssize_t least;
    return floors->traced > 0 && floor_in_force(&least) && least == OUTRIGHT;
}

/* Find the elements from which on a new array is alight's, where an op on concrete operands is left to NumPy
   below ``least``: fewer while all work waits, and of whatever op it comes. */
npy_intp array_floor(Py_ssize_t least)
{
    if (floors->passed > 0 && least == floors->passed) {
        return floors->automatic;
    }
    return floors->kept > 0 && least == floors->record_floor ? floors->kept : least;
}

static PyObject *floor_get(Floor *self, void *field)
{
    return PyLong_FromSsize_t(*(Py_ssize_t *)((char *)self + (size_t)field));
}

static int floor_set(Floor *self, PyObject *number, void *field)
{
    if (number == NULL) {
        PyErr_SetString(PyExc_TypeError, "a floor cannot be deleted. Fix: set it to a number of elements.");
        return -1;
    }
    Py_ssize_t elements = PyNumber_AsSsize_t(number, NULL);
    if (elements == -1 && PyErr_Occurred()) {
        return -1;
    }
    *(Py_ssize_t *)((char *)self + (size_t)field) = elements;
    Py_CLEAR(known_policy);
    return 0;
}

/* Whether this thread records a jitted call: small results wait as all others do, under `alight run`, too. */
static _Thread_local bool records;

bool small_are_numpys(void) { return (floors->scalars && !records) || outright(); }

static PyObject *floor_get_records(Floor *self, void *unused) { return PyBool_FromLong(records); }

static int floor_set_records(Floor *self, PyObject *given, void *unused)
{
    int found = given == NULL ? -1 : PyObject_IsTrue(given);
    if (found < 0) {
        if (given == NULL) PyErr_SetString(PyExc_AttributeError, "records cannot be deleted");
        return -1;
    }
    records = found;
    return 0;
}

static PyObject *floor_get_scalars(Floor *self, void *unused)
{
    bool found = small_are_numpys();
    return PyErr_Occurred() ? NULL : PyBool_FromLong(found);
}

static int floor_set_scalars(Floor *self, PyObject *given, void *unused)
{
    int scalars = given == NULL ? -1 : PyObject_IsTrue(given);
    if (scalars < 0) {
        if (given == NULL) PyErr_SetString(PyExc_AttributeError, "scalars cannot be deleted");
        return -1;
    }
    self->scalars = (char)scalars;
    return 0;
}

static PyObject *floor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Floor *self = (Floor *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->record_floor = -1;
        self->automatic = 1;
        self->budget = self->limit = 1LL << 62;
        self->anchor = Py_NewRef(Py_None);
        self->paces = PyDict_New();
    }
    return (PyObject *)self;
}

static void floor_dealloc(Floor *self)
{
    Py_XDECREF(self->anchor);
    Py_XDECREF(self->paces);
    Py_TYPE(self)->tp_free(self);
}

/* A plan takes 0.1 ms an op at most (the design's 100 values in 10 ms): on trial, so many may wait that theirs costs no
   more than a trial may lose (sites.c: 5 % of 0.1 s). */
enum { TRIED_OPS = 50 };

/* The ops past which a flush is due. */
static long long limit_of(Floor *self) { return self->judging > 0 && self->limit > TRIED_OPS ? TRIED_OPS : self->limit; }

static PyObject *floor_get_limit(Floor *self, void *unused) { return PyLong_FromLongLong(limit_of(self)); }

static int floor_set_limit(Floor *self, PyObject *given, void *unused)
{
    long long limit = given == NULL ? -1 : PyLong_AsLongLong(given);
    if (given == NULL) PyErr_SetString(PyExc_TypeError, "limit cannot be deleted");
    if (PyErr_Occurred()) {
        return -1;
    }
    self->limit = limit;
    return 0;
}

static int due(Floor *self, PyObject *site)
{
    long long limit = limit_of(self);
    if (limit < self->limit && self->count >= limit) {
        return 1; /* on trial */
    }
    if (self->anchor == NULL || self->anchor == Py_None) {
        Py_XSETREF(self->anchor, Py_NewRef(site));
        return 0;
    }
    int returned = PyObject_RichCompareBool(self->anchor, site, Py_EQ);
    /* Divided, not multiplied: a limit that none is reaches too far. */
    if (returned == 0 && self->count % 2 == 0 && self->count / 2 == limit) {
        Py_XSETREF(self->anchor, Py_NewRef(site)); /* the old one is of a loop that is over */
        return 0;
    }
    if (returned != 0 || self->pending > self->budget) {
        return returned < 0 ? -1 : 1;
    }
    if (self->count / 16 >= limit) {
        Py_XSETREF(self->anchor, Py_NewRef(site));
        return 1;
    }
    return 0;
}

static PyObject *floor_due(Floor *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "due() takes a code object and an instruction");
        return NULL;
    }
    PyObject *site = PyTuple_Pack(2, args[0], args[1]);
    int flush = site == NULL ? -1 : due(self, site);
    Py_XDECREF(site);
    return flush < 0 ? NULL : PyBool_FromLong(flush);
}

/* Count one op about to be recorded; where a flush is due, do it first. */
bool count_recorded(npy_intp elements)
{
    floors->count++;
    /* Elements of arrays that are broadcast are more than there can be memory for. */
    floors->pending = floors->pending > LLONG_MAX - elements ? LLONG_MAX : floors->pending + elements;
    bool enough = floors->count >= limit_of(floors) || floors->pending > floors->budget;
    PyFrameObject *frame = enough ? PyEval_GetFrame() : NULL;
    if (frame == NULL) {
        return true;
    }
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    PyObject *site = Py_BuildValue("Oi", code, PyFrame_GetLasti(frame));
    Py_DECREF(code);
    int flush = site == NULL ? -1 : due(floors, site);
    Py_XDECREF(site);
    if (flush <= 0) {
        return flush == 0;
    }
    if (hooks->flush == NULL) {
        PyErr_SetString(PyExc_AttributeError, "flush");
        return false;
    }
    PyObject *hook = Py_NewRef(hooks->flush), *nothing = PyObject_CallNoArgs(hook);
    Py_DECREF(hook);
    Py_XDECREF(nothing);
    return nothing != NULL;
}

static PyObject *floor_wait(Floor *self, PyObject *seconds)
{
    double given = PyFloat_AsDouble(seconds);
    if (given == -1.0 && PyErr_Occurred()) {
        return NULL;
    }
    if (given > 0.0 && self->record_floor > 0) {
        if (self->kept == 0) {
            self->kept = self->record_floor;
            self->record_floor = PY_SSIZE_T_MAX;
        }
        self->begins = now_seconds() + given;
        self->met = 0;
    } else {
        end_wait(self);
    }
    Py_RETURN_NONE;
}

/* Tell whether the floor is known, or nobody needs to know: a policy names the floors of all classes of ops. */
static bool is_known(Floor *self)
{
    PyObject *policy, *given = NULL;
    if (self->record_floor >= 0) {
        return true;
    }
    if (PyContextVar_Get(policy_in_force, NULL, &policy) < 0) {
        return false;
    }
    if (policy != NULL && policy != Py_None) {
        given = PyObject_GetAttrString(policy, "floor_given");
    }
    bool known = given != NULL && PyObject_IsTrue(given) > 0;
    Py_XDECREF(given);
    Py_XDECREF(policy);
    return known;
}

static PyObject *floor_here(Floor *self, PyObject *nothing)
{
    Py_ssize_t least;
    if (!is_known(self)) {
        PyObject *hook = PyErr_Occurred() ? NULL : Py_XNewRef(hooks->settle);
        PyObject *settled = hook == NULL ? NULL : PyObject_CallNoArgs(hook);
        Py_XDECREF(hook);
        if (settled == NULL) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_AttributeError, "settle");
            }
            return NULL;
        }
        Py_DECREF(settled);
    }
    if (!floor_in_force(&least)) {
        return NULL;
    }
    return PyLong_FromSsize_t(least == self->automatic && self->passed > 0 ? self->passed : least);
}

static PyObject *floor_waits(Floor *self, PyObject *nothing)
{
    return PyBool_FromLong(still_waits(self));
}

static PyMemberDef floor_members[] = {
    MEMBER(Floor, anchor),
    MEMBER(Floor, paces),
    {"count", T_LONGLONG, offsetof(Floor, count), 0, NULL},
    {"budget", T_LONGLONG, offsetof(Floor, budget), 0, NULL},
    {"pending", T_LONGLONG, offsetof(Floor, pending), 0, NULL},
    {"addition", T_DOUBLE, offsetof(Floor, addition), 0, NULL},
    {"traced", T_LONGLONG, offsetof(Floor, traced), 0, NULL},
    {"rehearses", T_BOOL, offsetof(Floor, rehearses), READONLY, NULL},
    {"judging", T_PYSSIZET, offsetof(Floor, judging), READONLY, NULL},
    {NULL},
};

static PyGetSetDef floor_properties[] = {
    {"scalars", (getter)floor_get_scalars, (setter)floor_set_scalars,
     "Whether small results are NumPy's own: under `alight run`, and in a body that was given up.", NULL},
    {"records", (getter)floor_get_records, (setter)floor_set_records,
     "Whether this thread records a jitted call, where small results wait as all others do.", NULL},
    {"limit", (getter)floor_get_limit, (setter)floor_set_limit, "Ops past which a flush is due; fewer while sites are on trial.", NULL},
    {"record_floor", (getter)floor_get, (setter)floor_set,
     "Result elements below which an op on concrete operands is left to NumPy; -n: not known yet, and "
     "not asked for by new arrays of less than n elements.",
     (void *)offsetof(Floor, record_floor)},
    {"kept", (getter)floor_get, NULL,
     "While all work waits: the elements from which on a new array is alight's; else 0.",
     (void *)offsetof(Floor, kept)},
    {"auto", (getter)floor_get, (setter)floor_set, "What the measured profile says of the floor.",
     (void *)offsetof(Floor, automatic)},
    {NULL},
};

static PyMethodDef floor_methods[] = {
    {"due", (PyCFunction)(void (*)(void))floor_due, METH_FASTCALL,
     "Tell whether everything pending should be evaluated before an op of this site is recorded."},
    {"wait", (PyCFunction)floor_wait, METH_O,
     "Leave ops on concrete operands to NumPy, however large, for so many seconds from now on; arrays that were to "
     "be alight's go on to be. 0: no longer."},
    {"here", (PyCFunction)floor_here, METH_NOARGS,
     "Return the result elements below which an op on concrete operands is left to NumPy at once, under the policy in "
     "force; the hook ``settle`` is called where they are not known yet."},
    {"paced", (PyCFunction)(void (*)(void))floor_paced, METH_FASTCALL,
     "Return the elements below which a reduction, by its name, of an array with so many arguments more is NumPy's\n"
     "under this floor."},
    {"expected", (PyCFunction)(void (*)(void))floor_expected, METH_FASTCALL,
     "Return the seconds that NumPy took at the sites of a request's values, of which the first so many are inputs; 0.0 "
     "where no site of theirs is to be judged."},
    {"took", (PyCFunction)(void (*)(void))floor_took, METH_FASTCALL,
     "Note what that request took and its steps, what kernels are to take at least, and whether NumPy stood in for "
     "them; tell whether its sites have lost."},
    {"planned", (PyCFunction)(void (*)(void))floor_planned, METH_FASTCALL,
     "Note of a request's values, of which the first so many are inputs, whether its plan leaves all to NumPy."},
    {"replan", (PyCFunction)floor_replan, METH_NOARGS, "Have all sites recorded again whose requests were in vain."},
    {"shut", (PyCFunction)floor_shut, METH_O, "Leave the sites that have lost to NumPy; true: keep them, judged."},
    {"sites", (PyCFunction)floor_sites, METH_NOARGS,
     "Return code, instruction, runs in NumPy, elements of the latest, seconds, state, row of the table of paces and "
     "predicted seconds of each site."},
    {"forget_sites", (PyCFunction)floor_forget, METH_NOARGS, "Forget what is known of call sites."},
    {"waits", (PyCFunction)floor_waits, METH_NOARGS, "Tell whether all work is left to NumPy for a while."},
    {NULL},
};

PyTypeObject FloorType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Floor",
    .tp_doc = "What recording looks at: when to leave work to NumPy, and when enough is pending.",
    .tp_basicsize = sizeof(Floor),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = floor_new,
    .tp_dealloc = (destructor)floor_dealloc,
    .tp_members = floor_members,
    .tp_methods = floor_methods,
    .tp_getset = floor_properties,
};

static PyObject *hooks_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Hooks *self = (Hooks *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->appears = Py_NewRef(Py_None);
    }
    return (PyObject *)self;
}

static int hooks_traverse(Hooks *self, visitproc visit, void *arg)
{
    Py_VISIT(self->appears);
    Py_VISIT(self->array);
    Py_VISIT(self->binary);
    Py_VISIT(self->unary);
    Py_VISIT(self->in_place);
    Py_VISIT(self->getitem);
    Py_VISIT(self->setitem);
    Py_VISIT(self->ufunc);
    Py_VISIT(self->at_once);
    Py_VISIT(self->wrap);
    Py_VISIT(self->taken);
    Py_VISIT(self->inside);
    Py_VISIT(self->flush);
    Py_VISIT(self->settle);
    Py_VISIT(self->large);
    Py_VISIT(self->errstate);
    return 0;
}

static int hooks_clear(Hooks *self)
{
    Py_CLEAR(self->appears);
    Py_CLEAR(self->array);
    Py_CLEAR(self->binary);
    Py_CLEAR(self->unary);
    Py_CLEAR(self->in_place);
    Py_CLEAR(self->getitem);
    Py_CLEAR(self->setitem);
    Py_CLEAR(self->ufunc);
    Py_CLEAR(self->at_once);
    Py_CLEAR(self->wrap);
    Py_CLEAR(self->taken);
    Py_CLEAR(self->inside);
    Py_CLEAR(self->flush);
    Py_CLEAR(self->settle);
    Py_CLEAR(self->large);
    Py_CLEAR(self->errstate);
    return 0;
}

static void hooks_dealloc(Hooks *self)
{
    PyObject_GC_UnTrack(self);
    hooks_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyMemberDef hooks_members[] = {
    MEMBER(Hooks, appears),
    MEMBER(Hooks, array),
    MEMBER(Hooks, binary),
    MEMBER(Hooks, unary),
    MEMBER(Hooks, in_place),
    MEMBER(Hooks, getitem),
    MEMBER(Hooks, setitem),
    MEMBER(Hooks, ufunc),
    MEMBER(Hooks, at_once),
    MEMBER(Hooks, wrap),
    MEMBER(Hooks, taken),
    MEMBER(Hooks, inside),
    MEMBER(Hooks, flush),
    MEMBER(Hooks, settle),
    MEMBER(Hooks, large),
    MEMBER(Hooks, errstate),
    {NULL},
};

PyTypeObject HooksType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Hooks",
    .tp_doc = "What the core calls when its fast way does not apply; ``record.array`` fills these in.",
    .tp_basicsize = sizeof(Hooks),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = hooks_new,
    .tp_dealloc = (destructor)hooks_dealloc,
    .tp_traverse = (traverseproc)hooks_traverse,
    .tp_clear = (inquiry)hooks_clear,
    .tp_members = hooks_members,
};

bool floor_ready(void)
{
    hooks = (Hooks *)PyObject_CallNoArgs((PyObject *)&HooksType);
    floors = (Floor *)PyObject_CallNoArgs((PyObject *)&FloorType);
    policy_in_force = PyContextVar_New("alight.policy", Py_None);
    return hooks != NULL && floors != NULL && policy_in_force != NULL;
}
