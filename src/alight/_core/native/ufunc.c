/* What a ufunc of the array namespace is called by. */
#include "core.h"
#include <numpy/ufuncobject.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *numpy;
} UfuncBase;

static PyObject *ufunc_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    UfuncBase *self = (UfuncBase *)object;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    if (self->numpy != NULL && hooks->at_once != NULL && PyDict_Check(hooks->at_once)
        && PyDict_GetItemWithError(hooks->at_once, self->numpy) != NULL && ((PyUFuncObject *)self->numpy)->nin == nargs) {
        PyObject *result = once_call(self->numpy, args, nargs, kwnames);
        if (result != NULL) {
            return result;
        }
    }
    bool ready = !PyErr_Occurred() && (kwnames == NULL || self->numpy == NULL || floor_passed(self->numpy, args, nargs));
    PyObject *call = ready ? PyObject_GetAttrString(object, "_call") : NULL;
    PyObject *result = call == NULL ? NULL : PyObject_Vectorcall(call, args, nargs, kwnames);
    Py_XDECREF(call);
    return result;
}

static PyObject *ufunc_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    UfuncBase *self = (UfuncBase *)PyType_GenericNew(type, args, kwargs);
    if (self != NULL) {
        self->vectorcall = ufunc_call;
    }
    return (PyObject *)self;
}

/* Have a class made in Python called so as well, unless it has a way of its own: Python before 3.12 does not. */
static PyObject *ufunc_init_subclass(PyObject *type, PyObject *Py_UNUSED(none))
{
    if (((PyTypeObject *)type)->tp_call == PyVectorcall_Call) {
        ((PyTypeObject *)type)->tp_vectorcall_offset = offsetof(UfuncBase, vectorcall);
        ((PyTypeObject *)type)->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    }
    Py_RETURN_NONE;
}

/* A ufunc made of a bound method can be an attribute of that method's object. */
static int ufunc_traverse(UfuncBase *self, visitproc visit, void *arg)
{
    Py_VISIT(self->numpy);
    return 0;
}

static int ufunc_clear(UfuncBase *self)
{
    Py_CLEAR(self->numpy);
    return 0;
}

static void ufunc_dealloc(UfuncBase *self)
{
    PyObject_GC_UnTrack(self);
    ufunc_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyMemberDef ufunc_members[] = {
    {"_numpy", T_OBJECT_EX, offsetof(UfuncBase, numpy), 0, NULL},
    {NULL},
};

static PyMethodDef ufunc_methods[] = {
    {"__init_subclass__", ufunc_init_subclass, METH_NOARGS | METH_CLASS, "Have the class called as quickly."},
    {NULL},
};

PyTypeObject UfuncBaseType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.UfuncBase",
    .tp_doc = "What a ufunc of the array namespace is called by: ``_numpy`` at once, or ``_call``.",
    .tp_basicsize = sizeof(UfuncBase),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = ufunc_new,
    .tp_vectorcall_offset = offsetof(UfuncBase, vectorcall),
    .tp_dealloc = (destructor)ufunc_dealloc,
    .tp_traverse = (traverseproc)ufunc_traverse,
    .tp_clear = (inquiry)ufunc_clear,
    .tp_call = PyVectorcall_Call,
    .tp_members = ufunc_members,
    .tp_methods = ufunc_methods,
};
