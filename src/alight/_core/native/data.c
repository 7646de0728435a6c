/* The bytes of one version. */
#include "core.h"

static Data *data_new(PyTypeObject *type, PyObject *layout, PyObject *array, PyObject *owner, bool foreign)
{
    Data *self = PyObject_GC_New(Data, type);
    if (self == NULL) {
        return NULL;
    }
    self->weakrefs = self->raw = NULL;
    self->layout = Py_NewRef(layout);
    self->array = Py_NewRef(array);
    self->owner = Py_NewRef(owner != Py_None ? owner : array);
    self->remote = Py_NewRef(Py_None);
    self->nbytes = ((Layout *)layout)->nbytes;
    self->foreign = self->shared = foreign;
    self->fixed = self->writing = false;
    PyObject_GC_Track(self);
    return self;
}

PyObject *data_of(PyObject *layout, PyObject *array) { return (PyObject *)data_new(&DataType, layout, array, Py_None, false); }

static PyObject *data_call(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    static const char *const names[] = {"layout", "array", "owner", "foreign", NULL};
    PyObject *taken[4] = {NULL, Py_None, Py_None, Py_False};
    if (!take_arguments("Data", names, 1, args, nargsf, kwnames, taken)
        || !expect_type(taken[0], &LayoutType, "layout")
        || (taken[1] != Py_None && !expect_type(taken[1], &PyArray_Type, "array"))) {
        return NULL;
    }
    int foreign = PyObject_IsTrue(taken[3]);
    if (foreign < 0) {
        return NULL;
    }
    return (PyObject *)data_new((PyTypeObject *)type, taken[0], taken[1], taken[2], foreign);
}

static bool seen_outside(Data *self)
{
    PyObject *owner = self->owner, *array = self->array, *raw = self->raw;
    if (owner == NULL || owner == Py_None) {
        return false;
    }
    /* Ours: the field, array (it is the owner, or rests on it), and raw, which rests on it. */
    if (Py_REFCNT(owner) > 2 + (raw != NULL)) {
        return true;
    }
    return (array != owner && (array == NULL || Py_REFCNT(array) > 1)) || (raw != NULL && Py_REFCNT(raw) > 1);
}

bool data_is_own(Data *self) { return !self->foreign && !self->shared && !seen_outside(self); }

static void data_dealloc(Data *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    Py_XDECREF(self->layout);
    Py_XDECREF(self->array);
    Py_XDECREF(self->raw);
    Py_XDECREF(self->owner);
    Py_XDECREF(self->remote);
    Py_TYPE(self)->tp_free(self);
}

static int data_traverse(Data *self, visitproc visit, void *arg)
{
    Py_VISIT(self->layout);
    Py_VISIT(self->array);
    Py_VISIT(self->raw);
    Py_VISIT(self->owner);
    Py_VISIT(self->remote);
    return 0;
}

static int data_clear(Data *self)
{
    /* Only what a cycle can go through. */
    Py_CLEAR(self->remote);
    return 0;
}

static PyArrayObject *host_copy(Data *self)
{
    if (self->array == NULL || !PyArray_Check(self->array)) {
        PyErr_SetString(PyExc_AssertionError, "no host copy");
        return NULL;
    }
    return (PyArrayObject *)self->array;
}

static PyObject *data_raw(Data *self, void *closure)
{
    PyArrayObject *array = host_copy(self);
    if (array == NULL) {
        return NULL;
    }
    if (self->raw != NULL && PyArray_DATA((PyArrayObject *)self->raw) == PyArray_DATA(array)) {
        return Py_NewRef(self->raw);
    }
    npy_intp nbytes = PyArray_NBYTES(array);
    if (nbytes && !strides_are_dense(PyArray_NDIM(array), PyArray_DIMS(array), PyArray_STRIDES(array), PyArray_ITEMSIZE(array))) {
        PyErr_SetString(PyExc_ValueError, "the host copy is not dense. Fix: copy the array before it becomes data.");
        return NULL;
    }
    PyObject *raw = PyArray_NewFromDescr(
        &PyArray_Type, PyArray_DescrFromType(NPY_UINT8), 1, &nbytes, NULL, PyArray_DATA(array),
        PyArray_FLAGS(array) & NPY_ARRAY_WRITEABLE, NULL);
    if (raw == NULL) {
        return NULL;
    }
    if (PyArray_SetBaseObject((PyArrayObject *)raw, Py_NewRef((PyObject *)array)) < 0) {
        Py_DECREF(raw);
        return NULL;
    }
    Py_XSETREF(self->raw, raw);
    return Py_NewRef(raw);
}

static PyObject *data_address(Data *self, void *closure)
{
    PyArrayObject *array = host_copy(self);
    return array == NULL ? NULL : PyLong_FromVoidPtr(PyArray_DATA(array));
}

bool data_is_private(Data *self)
{
    if (self->shared && !self->foreign && !seen_outside(self)) {
        self->shared = false;
    }
    return !self->shared;
}

static PyObject *data_exported(Data *self, void *closure) { return PyBool_FromLong(!data_is_private(self)); }

static PyObject *data_seen_outside(Data *self, PyObject *unused)
{
    return PyBool_FromLong(seen_outside(self));
}

static PyMemberDef data_members[] = {
    MEMBER(Data, layout),
    MEMBER(Data, array),
    MEMBER(Data, owner),
    MEMBER(Data, remote),
    {"nbytes", T_PYSSIZET, offsetof(Data, nbytes), 0, NULL},
    {"foreign", T_BOOL, offsetof(Data, foreign), 0, NULL},
    {"shared", T_BOOL, offsetof(Data, shared), 0, NULL},
    {"fixed", T_BOOL, offsetof(Data, fixed), 0, NULL},
    {"writing", T_BOOL, offsetof(Data, writing), READONLY, "Whether the host writes into it at once just now."},
    {NULL},
};

static PyGetSetDef data_properties[] = {
    {"raw", (getter)data_raw, NULL, "Return the host copy as a 1-d uint8 array over the same memory.", NULL},
    {"address", (getter)data_address, NULL, "Return the address of the host copy.", NULL},
    {"exported", (getter)data_exported, NULL,
     "Tell whether anyone outside can see the host memory: an ndarray, a buffer, a DLPack capsule.", NULL},
    {NULL},
};

static PyMethodDef data_methods[] = {
    {"seen_outside", (PyCFunction)data_seen_outside, METH_NOARGS,
     "Tell whether references to the host memory exist beyond those held here."},
    {NULL},
};

PyTypeObject DataType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Data",
    .tp_doc = "The bytes of one version: on the host, in other memory spaces, or both.",
    .tp_basicsize = sizeof(Data),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_vectorcall = data_call,
    .tp_dealloc = (destructor)data_dealloc,
    .tp_traverse = (traverseproc)data_traverse,
    .tp_clear = (inquiry)data_clear,
    .tp_weaklistoffset = offsetof(Data, weakrefs),
    .tp_members = data_members,
    .tp_getset = data_properties,
    .tp_methods = data_methods,
};
