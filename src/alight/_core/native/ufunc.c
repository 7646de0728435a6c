/* What a ufunc of the array namespace is called by. */
#include "core.h"
#include <numpy/ufuncobject.h>

typedef struct {
    PyObject_HEAD
    PyObject *numpy;
} UfuncBase;

static PyObject *ufunc_call(UfuncBase *self, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t named = kwargs == NULL ? 0 : PyDict_GET_SIZE(kwargs);
    static PyObject *name;
    if (name == NULL && (name = PyUnicode_InternFromString("out")) == NULL) {
        return NULL;
    }
    PyObject *out = named == 1 ? PyDict_GetItemWithError(kwargs, name) : NULL;
    if ((named == 0 || out != NULL) && self->numpy != NULL && hooks->at_once != NULL
        && PyDict_Check(hooks->at_once) && PyDict_GetItemWithError(hooks->at_once, self->numpy) != NULL
        && ((PyUFuncObject *)self->numpy)->nin == PyTuple_GET_SIZE(args)) {
        PyObject *result = once_into(self->numpy, &PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args), out);
        if (result != NULL) {
            return result;
        }
    }
    PyObject *call = PyErr_Occurred() ? NULL : PyObject_GetAttrString((PyObject *)self, "_call");
    PyObject *result = call == NULL ? NULL : PyObject_Call(call, args, kwargs);
    Py_XDECREF(call);
    return result;
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

PyTypeObject UfuncBaseType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.UfuncBase",
    .tp_doc = "What a ufunc of the array namespace is called by: ``_numpy`` at once, or ``_call``.",
    .tp_basicsize = sizeof(UfuncBase),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)ufunc_dealloc,
    .tp_traverse = (traverseproc)ufunc_traverse,
    .tp_clear = (inquiry)ufunc_clear,
    .tp_call = (ternaryfunc)ufunc_call,
    .tp_members = ufunc_members,
};
