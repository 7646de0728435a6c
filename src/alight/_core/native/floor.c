/* What recording looks at: the hooks, the floor, and the policy in force. */
#include "core.h"

Hooks *hooks;
Floor *floors;
PyObject *policy_in_force;

/* The last policy seen and its floor. A policy never changes, but its floor rests on the measured one. */
static PyObject *known_policy;
static Py_ssize_t known_least;

/* Find the result elements below which an op on concrete operands is left to NumPy. */
bool floor_in_force(Py_ssize_t *least)
{
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

static PyObject *floor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Floor *self = (Floor *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->record_floor = -1;
        self->automatic = 1;
        self->budget = 1LL << 62;
    }
    return (PyObject *)self;
}

static PyMemberDef floor_members[] = {
    {"budget", T_LONGLONG, offsetof(Floor, budget), 0, NULL},
    {"pending", T_LONGLONG, offsetof(Floor, pending), 0, NULL},
    {"scalars", T_BOOL, offsetof(Floor, scalars), 0, NULL},
    {NULL},
};

static PyGetSetDef floor_properties[] = {
    {"record_floor", (getter)floor_get, (setter)floor_set,
     "Result elements below which an op on concrete operands is left to NumPy; -1: not known yet.",
     (void *)offsetof(Floor, record_floor)},
    {"auto", (getter)floor_get, (setter)floor_set, "What the measured profile says of the floor.",
     (void *)offsetof(Floor, automatic)},
    {NULL},
};

PyTypeObject FloorType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Floor",
    .tp_doc = "What recording looks at before it records.",
    .tp_basicsize = sizeof(Floor),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = floor_new,
    .tp_members = floor_members,
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
    Py_VISIT(self->flush);
    return 0;
}

static int hooks_clear(Hooks *self)
{
    Py_CLEAR(self->appears);
    Py_CLEAR(self->array);
    Py_CLEAR(self->binary);
    Py_CLEAR(self->unary);
    Py_CLEAR(self->flush);
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
    MEMBER(Hooks, flush),
    {NULL},
};

PyTypeObject HooksType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Hooks",
    .tp_doc = "What the core calls when its fast way does not apply; ``array`` fills these in.",
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
