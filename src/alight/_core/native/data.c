/* The bytes of one version, and the pool that host memory for results comes from. */
#include "core.h"

static void pool_give(Pool *pool, PyArrayObject *owner);

static Data *data_new(PyTypeObject *type, PyObject *layout, PyObject *array, PyObject *owner, bool foreign)
{
    Data *self = PyObject_GC_New(Data, type);
    if (self == NULL) {
        return NULL;
    }
    self->weakrefs = self->raw = self->pool = NULL;
    self->layout = Py_NewRef(layout);
    self->array = Py_NewRef(array);
    self->owner = Py_NewRef(owner != Py_None ? owner : array);
    self->remote = Py_NewRef(Py_None);
    self->nbytes = ((Layout *)layout)->nbytes;
    self->foreign = self->shared = foreign;
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

static void data_dealloc(Data *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    Pool *pool = (Pool *)self->pool;
    if (pool != NULL && Py_IS_TYPE(pool, &PoolType) && self->owner != NULL && PyArray_Check(self->owner)
        && !seen_outside(self)) {
        Py_CLEAR(self->array);
        Py_CLEAR(self->raw);
        pool_give(pool, (PyArrayObject *)self->owner);
    }
    Py_XDECREF(self->layout);
    Py_XDECREF(self->array);
    Py_XDECREF(self->raw);
    Py_XDECREF(self->owner);
    Py_XDECREF(self->remote);
    Py_XDECREF(self->pool);
    Py_TYPE(self)->tp_free(self);
}

static int data_traverse(Data *self, visitproc visit, void *arg)
{
    Py_VISIT(self->layout);
    Py_VISIT(self->array);
    Py_VISIT(self->raw);
    Py_VISIT(self->owner);
    Py_VISIT(self->remote);
    Py_VISIT(self->pool);
    return 0;
}

static int data_clear(Data *self)
{
    /* Only what a cycle can go through. The memory stays, to be given back to its pool at the end. */
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

static PyObject *data_exported(Data *self, void *closure)
{
    if (self->shared && !self->foreign && !seen_outside(self)) {
        self->shared = false;
    }
    return PyBool_FromLong(self->shared);
}

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
    {NULL},
};

static PyMemberDef pooled_members[] = {
    MEMBER(Data, pool),
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

PyTypeObject PooledDataType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.PooledData",
    .tp_doc = "Data whose host memory goes back to its pool when the last reference to it goes.",
    .tp_basicsize = sizeof(Data),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_base = &DataType,
    .tp_vectorcall = data_call,
    .tp_dealloc = (destructor)data_dealloc,
    .tp_traverse = (traverseproc)data_traverse,
    .tp_clear = (inquiry)data_clear,
    .tp_members = pooled_members,
};

/* glibc aligns large blocks to 16 bytes past a page; vector loads and cache lines want 64. */
enum { ALIGNMENT = 64 };

static PyObject *pool_call(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    static const char *const names[] = {"capacity", NULL};
    PyObject *taken[1];
    if (!take_arguments("Pool", names, 1, args, nargsf, kwnames, taken)) {
        return NULL;
    }
    Py_ssize_t capacity = PyNumber_AsSsize_t(taken[0], NULL);
    if (capacity == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Pool *self = PyObject_GC_New(Pool, &PoolType);
    if (self == NULL) {
        return NULL;
    }
    self->capacity = capacity;
    self->held = 0;
    self->free = PyDict_New();
    PyObject_GC_Track(self);
    if (self->free == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int pool_traverse(Pool *self, visitproc visit, void *arg)
{
    Py_VISIT(self->free);
    return 0;
}

static int pool_clear_fields(Pool *self)
{
    Py_CLEAR(self->free);
    return 0;
}

static void pool_dealloc(Pool *self)
{
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->free);
    Py_TYPE(self)->tp_free(self);
}

/* Return kept memory of ``size`` bytes, or fresh memory. */
static PyObject *pool_take(Pool *self, npy_intp size)
{
    PyObject *key = PyLong_FromSsize_t(size);
    if (key == NULL) {
        return NULL;
    }
    PyObject *kept = self->free == NULL ? NULL : PyDict_GetItemWithError(self->free, key);
    Py_DECREF(key);
    if (kept != NULL && PyList_Check(kept) && PyList_GET_SIZE(kept) > 0) {
        Py_ssize_t last = PyList_GET_SIZE(kept) - 1;
        PyObject *owner = Py_NewRef(PyList_GET_ITEM(kept, last));
        if (PyList_SetSlice(kept, last, last + 1, NULL) < 0) {
            Py_DECREF(owner);
            return NULL;
        }
        self->held -= size;
        return owner;
    }
    return PyErr_Occurred() ? NULL : PyArray_EMPTY(1, &size, NPY_UINT8, 0);
}

static PyObject *pool_data(Pool *self, PyObject *object)
{
    if (!expect_type(object, &LayoutType, "layout")) {
        return NULL;
    }
    Layout *layout = (Layout *)object;
    PyArray_Descr *dtype = (PyArray_Descr *)layout->dtype;
    if (layout->nbytes > NPY_MAX_INTP - ALIGNMENT) {
        return PyErr_NoMemory();
    }
    if (PyDataType_REFCHK(dtype)) {
        PyErr_SetString(PyExc_TypeError, "cannot construct object arrays from buffer");
        return NULL;
    }
    PyObject *owner = pool_take(self, layout->nbytes + ALIGNMENT);
    if (owner == NULL) {
        return NULL;
    }
    char *bytes = PyArray_BYTES((PyArrayObject *)owner);
    npy_intp start = (npy_intp)(-(size_t)bytes & (ALIGNMENT - 1));
    PyObject *array = NULL;
    Data *data = NULL;
    if (!layout->dense && !PyArray_CheckStrides((int)layout->itemsize, (int)layout->ndim, layout->nbytes + ALIGNMENT, start,
                                                layout->numbers, layout->numbers + layout->ndim)) {
        PyErr_SetString(PyExc_ValueError, "strides is incompatible with shape of requested array and size of buffer");
    } else {
        array = PyArray_NewFromDescr(
            &PyArray_Type, (PyArray_Descr *)Py_NewRef((PyObject *)dtype), (int)layout->ndim, layout->numbers,
            layout->numbers + layout->ndim, bytes + start, NPY_ARRAY_WRITEABLE, NULL);
    }
    if (array != NULL && PyArray_SetBaseObject((PyArrayObject *)array, Py_NewRef(owner)) == 0) {
        data = data_new(&PooledDataType, object, array, owner, false);
    }
    if (data != NULL) {
        data->pool = Py_NewRef((PyObject *)self);
    }
    Py_XDECREF(array);
    Py_DECREF(owner);
    return (PyObject *)data;
}

#if PY_VERSION_HEX >= 0x030C0000
#define SAVE_ERROR PyObject *saved = PyErr_GetRaisedException();
#define RESTORE_ERROR PyErr_SetRaisedException(saved);
#else
#define SAVE_ERROR PyObject *saved[3]; PyErr_Fetch(&saved[0], &saved[1], &saved[2]);
#define RESTORE_ERROR PyErr_Restore(saved[0], saved[1], saved[2]);
#endif

static void pool_give(Pool *self, PyArrayObject *owner)
{
    npy_intp size = PyArray_NBYTES(owner);
    if (self->free == NULL || size > self->capacity) {
        return;
    }
    SAVE_ERROR
    PyObject *key = PyLong_FromSsize_t(size), *fresh = NULL, *kept = NULL;
    if (key != NULL && size > self->capacity - self->held) {
        kept = PyDict_GetItemWithError(self->free, key);
        if (kept != NULL && PyList_Check(kept) && PyList_GET_SIZE(kept) > 0) {
            Py_CLEAR(key); /* full of this very size */
        } else {
            PyDict_Clear(self->free); /* full of sizes of an earlier phase: this is what is used now */
            self->held = 0;
        }
        kept = NULL;
    }
    if (key != NULL && (kept = PyDict_GetItemWithError(self->free, key)) == NULL && (fresh = PyList_New(0)) != NULL) {
        /* Making the list can have run the collector, and this function from it: theirs stays then. */
        kept = PyDict_SetDefault(self->free, key, fresh);
    }
    if (kept != NULL && PyList_Check(kept) && PyList_Append(kept, (PyObject *)owner) == 0) {
        self->held += size;
    }
    Py_XDECREF(key);
    Py_XDECREF(fresh);
    RESTORE_ERROR  /* and forget ours: with no memory for a list entry, the block is freed */
}

static PyObject *pool_give_method(Pool *self, PyObject *owner)
{
    if (!expect_type(owner, &PyArray_Type, "owner")) {
        return NULL;
    }
    pool_give(self, (PyArrayObject *)owner);
    Py_RETURN_NONE;
}

static PyObject *pool_clear_method(Pool *self, PyObject *unused)
{
    if (self->free != NULL) {
        self->held = 0;
        PyDict_Clear(self->free);
    }
    Py_RETURN_NONE;
}

static PyMemberDef pool_members[] = {
    READ_ONLY(Pool, "free", free),
    {"capacity", T_PYSSIZET, offsetof(Pool, capacity), 0, NULL},
    {"held", T_PYSSIZET, offsetof(Pool, held), 0, NULL},
    {NULL},
};

static PyMethodDef pool_methods[] = {
    {"data", (PyCFunction)pool_data, METH_O,
     "Return uninitialised host memory for a dense layout, 64-byte aligned, given back when it dies."},
    {"give", (PyCFunction)pool_give_method, METH_O,
     "Keep memory that nobody else holds for the next request of its size."},
    {"clear", (PyCFunction)pool_clear_method, METH_NOARGS, "Drop all kept memory."},
    {NULL},
};

PyTypeObject PoolType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Pool",
    .tp_doc = "Host memory for results. Fresh pages cost as much as the arithmetic, so freed blocks are kept.",
    .tp_basicsize = sizeof(Pool),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_vectorcall = pool_call,
    .tp_dealloc = (destructor)pool_dealloc,
    .tp_traverse = (traverseproc)pool_traverse,
    .tp_clear = (inquiry)pool_clear_fields,
    .tp_members = pool_members,
    .tp_methods = pool_methods,
};
