/* A window on a storage. */
#include "core.h"

PyObject *view_new(PyObject *layout, Py_ssize_t offset, bool writeable)
{
    View *self = PyObject_New(View, &ViewType);
    if (self != NULL) {
        self->layout = Py_NewRef(layout);
        self->offset = offset;
        self->writeable = writeable;
    }
    return (PyObject *)self;
}

static PyObject *view_call(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    static const char *const names[] = {"layout", "offset", "writeable", NULL};
    PyObject *taken[3] = {NULL, NULL, Py_True};
    if (!take_arguments("View", names, 2, args, nargsf, kwnames, taken)) {
        return NULL;
    }
    if (!expect_type(taken[0], &LayoutType, "layout")) {
        return NULL;
    }
    Py_ssize_t offset = PyNumber_AsSsize_t(taken[1], PyExc_OverflowError);
    if (offset == -1 && PyErr_Occurred()) {
        return NULL;
    }
    int writeable = PyObject_IsTrue(taken[2]);
    return writeable < 0 ? NULL : view_new(taken[0], offset, writeable);
}

static void view_dealloc(View *self)
{
    Py_XDECREF(self->layout);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *view_compare(PyObject *left, PyObject *right, int how)
{
    if (how != Py_EQ && how != Py_NE) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    bool equal = Py_IS_TYPE(left, &ViewType) && Py_IS_TYPE(right, &ViewType);
    if (equal) {
        View *a = (View *)left, *b = (View *)right;
        equal = a->layout == b->layout && a->offset == b->offset && a->writeable == b->writeable;
    }
    return PyBool_FromLong(equal == (how == Py_EQ));
}

static Py_hash_t view_hash(View *self)
{
    /* Objects lie 16 bytes apart, so the low bits of an address say nothing. */
    Py_hash_t hash = (Py_hash_t)(((size_t)self->layout >> 4) ^ ((size_t)self->offset * (size_t)1099511628211u));
    return hash == -1 ? -2 : hash;
}

static PyObject *view_repr(View *self)
{
    return PyUnicode_FromFormat("View(%R, offset=%zd)", self->layout, self->offset);
}

static PyMemberDef view_members[] = {
    READ_ONLY(View, "layout", layout),
    {"offset", T_PYSSIZET, offsetof(View, offset), 0, NULL},
    {"writeable", T_BOOL, offsetof(View, writeable), 0, NULL},
    {NULL},
};

PyTypeObject ViewType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.View",
    .tp_doc = "A window on a storage: a layout, the byte it starts at, and whether it may be written.",
    .tp_basicsize = sizeof(View),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_vectorcall = view_call,
    .tp_dealloc = (destructor)view_dealloc,
    .tp_richcompare = view_compare,
    .tp_hash = (hashfunc)view_hash,
    .tp_repr = (reprfunc)view_repr,
    .tp_members = view_members,
};

/* Return the view of an array that has a layout, which is taken over, from so many bytes in it on. */
PyObject *view_from(PyTypeObject *type, Array *self, PyObject *layout, npy_intp offset)
{
    layout_keep(layout);
    View *outer = Py_IS_TYPE(self->window, &ViewType) ? (View *)self->window : NULL;
    PyObject *view = view_new(layout, offset + (outer == NULL ? 0 : outer->offset), outer == NULL || outer->writeable);
    PyObject *result = view == NULL ? NULL : array_over(type, storage_of(self), view);
    Py_XDECREF(view);
    Py_DECREF(layout);
    return result;
}

/* Return the view of an array that an ndarray made from its layout's probe says. */
PyObject *view_over(PyTypeObject *type, Array *self, PyObject *window, PyObject *probe)
{
    if (window != probe && PyArray_BASE((PyArrayObject *)window) != probe) {
        PyErr_SetString(PyExc_RuntimeError, "NumPy made a copy of an array where a view was asked for");
        return NULL;
    }
    npy_intp offset = PyArray_BYTES((PyArrayObject *)window) - PyArray_BYTES((PyArrayObject *)probe);
    PyObject *layout = layout_of(NULL, window);
    return layout == NULL ? NULL : view_from(type, self, layout, offset);
}

PyObject *view_of(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"cls", "array", "window", "probe", NULL};
    PyObject *taken[4];
    if (!take_arguments("view_of", names, 4, args, nargs, kwnames, taken) || !expect_type(taken[0], &PyType_Type, "cls")
        || !expect_type(taken[1], &ArrayType, "array") || !expect_type(taken[2], &PyArray_Type, "window")
        || !expect_type(taken[3], &PyArray_Type, "probe")) {
        return NULL;
    }
    if (!PyType_IsSubtype((PyTypeObject *)taken[0], &ArrayType) || window_of((Array *)taken[1]) == NULL) {
        PyErr_SetString(PyExc_TypeError, "view_of() takes a class of arrays and an array that has a layout");
        return NULL;
    }
    return view_over((PyTypeObject *)taken[0], (Array *)taken[1], taken[2], taken[3]);
}
