/* A function or method of ours as programs have it: what it raises goes by ``erred`` on its way out, and the
   frame of the function is among those that this can take out of the traceback. */
#include "core.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *weakrefs, *dict, *function, *erred;
    PyObject *pace; /* how much of it NumPy does in the time of an addition (pace.c) */
    /* NumPy's own: called of small arrays, giving the view that a call is, and in place; what only reads one; or
       what draws, of no arrays */
    PyObject *once, *view, *change, *ask, *draw;
    PyObject *first; /* given an array alone, it may give NotImplemented */
    Py_ssize_t operands;   /* how many of its first arguments ``once`` reads as arrays */
} Public;

/* Show the error that is set to ``erred``; it goes on with the traceback that it has then. */
static PyObject *show_error(PyObject *erred)
{
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    PyErr_NormalizeException(&kind, &error, &trace);
    if (trace != NULL) {
        PyException_SetTraceback(error, trace);
    }
    PyObject *done = PyObject_CallOneArg(erred, error);
    if (done == NULL && is_interrupt()) {
        Py_DECREF(kind);
        Py_DECREF(error);
        Py_XDECREF(trace);
        return NULL;
    }
    PyErr_Clear(); /* the error matters more than how it looks */
    Py_XDECREF(done);
    Py_XDECREF(trace);
    PyErr_Restore(kind, error, PyException_GetTraceback(error));
    return NULL;
}

static PyObject *public_run(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Public *self = (Public *)object;
    if (self->once != Py_None || self->view != Py_None || self->change != Py_None || self->ask != Py_None || self->draw != Py_None) {
        Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
        PyObject *found = NULL;
        if (self->once != Py_None) {
            found = once_function(self->once, self->operands, self->pace, args, nargs, kwnames);
        } else if (self->draw != Py_None) {
            found = once_draw(self->draw, self->operands, args, nargs, kwnames);
        } else if (self->change != Py_None) {
            found = once_change(self->change, args, nargs, kwnames);
        } else if (kwnames == NULL) {
            found = self->ask != Py_None ? once_ask(self->ask, args, nargs) : once_view(self->view, args, nargs);
        }
        if (found != NULL) {
            return found;
        }
        if (PyErr_Occurred()) {
            return show_error(self->erred);
        }
    }
    PyObject *result = Py_NotImplemented;
    if (self->first != Py_None && kwnames == NULL && PyVectorcall_NARGS(nargsf) == 1) {
        result = PyObject_CallOneArg(self->first, args[0]);
    } else {
        Py_INCREF(result);
    }
    if (result == Py_NotImplemented) {
        Py_SETREF(result, PyObject_Vectorcall(self->function, args, nargsf, kwnames));
    }
    return result != NULL ? result : show_error(self->erred);
}

static PyObject *public_call(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    static const char *const names[] = {"function", "erred", "once", "view", "change", "operands", "pace", "ask", "first", "draw", NULL};
    PyObject *taken[10] = {NULL, NULL, Py_None, Py_None, Py_None, NULL, Py_None, Py_None, Py_None, Py_None};
    if (!take_arguments("Public", names, 2, args, nargsf, kwnames, taken)) {
        return NULL;
    }
    Py_ssize_t operands = taken[5] == NULL ? 1 : PyLong_AsSsize_t(taken[5]);
    if (operands == -1 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *functools = PyImport_ImportModule("functools");
    PyObject *dict = functools == NULL ? NULL : PyDict_New();
    Public *self = dict == NULL ? NULL : PyObject_GC_New(Public, &PublicType);
    if (self == NULL) {
        Py_XDECREF(dict);
        Py_XDECREF(functools);
        return NULL;
    }
    self->vectorcall = public_run;
    self->weakrefs = NULL;
    self->dict = dict;
    self->function = Py_NewRef(taken[0]);
    self->erred = Py_NewRef(taken[1]);
    self->once = Py_NewRef(taken[2]);
    self->view = Py_NewRef(taken[3]);
    self->change = Py_NewRef(taken[4]);
    self->operands = operands;
    self->pace = Py_NewRef(taken[6]);
    self->ask = Py_NewRef(taken[7]);
    self->first = Py_NewRef(taken[8]);
    self->draw = Py_NewRef(taken[9]);
    PyObject_GC_Track(self);
    PyObject *dressed = PyObject_CallMethod(functools, "update_wrapper", "OO", self, taken[0]);
    Py_DECREF(functools);
    Py_DECREF(self);
    return dressed;
}

static int public_traverse(Public *self, visitproc visit, void *arg)
{
    Py_VISIT(self->dict);
    Py_VISIT(self->function);
    Py_VISIT(self->erred);
    Py_VISIT(self->once);
    Py_VISIT(self->view);
    Py_VISIT(self->change);
    Py_VISIT(self->pace);
    Py_VISIT(self->ask);
    Py_VISIT(self->first);
    Py_VISIT(self->draw);
    return 0;
}

static int public_clear(Public *self)
{
    /* As in creation.c: what is called without a look stays. */
    Py_CLEAR(self->dict);
    return 0;
}

static void public_dealloc(Public *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    Py_XDECREF(self->dict);
    Py_XDECREF(self->function);
    Py_XDECREF(self->erred);
    Py_XDECREF(self->once);
    Py_XDECREF(self->view);
    Py_XDECREF(self->change);
    Py_XDECREF(self->pace);
    Py_XDECREF(self->ask);
    Py_XDECREF(self->first);
    Py_XDECREF(self->draw);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *public_repr(Public *self) { return PyObject_Repr(self->function); }

static PyObject *public_reduce(PyObject *self, PyObject *unused) { return PyObject_GetAttrString(self, "__qualname__"); }

static PyObject *public_bind(PyObject *object, PyObject *instance, PyObject *owner)
{
    return instance == NULL || instance == Py_None ? Py_NewRef(object) : PyMethod_New(object, instance);
}

static PyMethodDef public_methods[] = {
    {"__reduce__", public_reduce, METH_NOARGS, "Return the name under which the module of the function has it."},
    {NULL},
};

static PyGetSetDef public_properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL},
};

PyTypeObject PublicType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Public",
    .tp_basicsize = sizeof(Public),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall = public_call,
    .tp_vectorcall_offset = offsetof(Public, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = (destructor)public_dealloc,
    .tp_traverse = (traverseproc)public_traverse,
    .tp_clear = (inquiry)public_clear,
    .tp_weaklistoffset = offsetof(Public, weakrefs),
    .tp_dictoffset = offsetof(Public, dict),
    .tp_repr = (reprfunc)public_repr,
    .tp_descr_get = public_bind,
    .tp_methods = public_methods,
    .tp_getset = public_properties,
};
