/* The items of an array, one by one, and how many there are. */
#include "core.h"

typedef struct {
    PyObject_HEAD
    PyObject *array;
    Py_ssize_t index;
} Items;

/* Find how many items an array has now; -1: it has no axes, or no layout. */
static npy_intp count_of(PyObject *array)
{
    PyObject *made = made_of(array);
    if (made != NULL) {
        PyArrayObject *plain = (PyArrayObject *)made;
        return PyArray_CheckExact(made) && PyArray_NDIM(plain) > 0 ? PyArray_DIM(plain, 0) : -1;
    }
    Layout *layout = window_of((Array *)array);
    return layout != NULL && layout->ndim > 0 ? layout->numbers[0] : -1;
}

static PyObject *items_next(Items *self)
{
    PyObject *array = Py_XNewRef(self->array), *item = NULL; /* another thread may come to the end meanwhile */
    if (array == NULL) {
        return NULL;
    }
    if (self->index < count_of(array)) { /* of as many as there are when their turn comes */
        PyObject *index = PyLong_FromSsize_t(self->index++);
        item = index == NULL ? NULL : PyObject_GetItem(array, index);
        Py_XDECREF(index);
    }
    if (item == NULL) {
        Py_CLEAR(self->array); /* as a generator ends that raised */
    }
    Py_DECREF(array);
    return item;
}

static int items_traverse(Items *self, visitproc visit, void *arg)
{
    Py_VISIT(self->array);
    return 0;
}

static int items_clear(Items *self)
{
    Py_CLEAR(self->array);
    return 0;
}

static void items_dealloc(Items *self)
{
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->array);
    Py_TYPE(self)->tp_free(self);
}

PyTypeObject ItemsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Items",
    .tp_doc = "The items of an array, one by one.",
    .tp_basicsize = sizeof(Items),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_dealloc = (destructor)items_dealloc,
    .tp_traverse = (traverseproc)items_traverse,
    .tp_clear = (inquiry)items_clear,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = (iternextfunc)items_next,
};

PyObject *items_of(PyObject *module, PyObject *array)
{
    if (!expect_type(array, &ArrayType, "array")) {
        return NULL;
    }
    bool plain = small_are_numpys() || count_of(array) < 0;
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (plain) {
        Py_RETURN_NOTIMPLEMENTED; /* an array of scalars gives NumPy's, and one without axes is refused */
    }
    Items *self = PyObject_GC_New(Items, &ItemsType);
    if (self != NULL) {
        self->array = Py_NewRef(array);
        self->index = 0;
        PyObject_GC_Track(self);
    }
    return (PyObject *)self;
}

PyObject *items_count(PyObject *module, PyObject *array)
{
    if (!expect_type(array, &ArrayType, "array")) {
        return NULL;
    }
    npy_intp count = count_of(array);
    if (count < 0) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    return PyLong_FromSsize_t(count);
}
