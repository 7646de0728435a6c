/* Subscripts at once, as once.c says: views of arrays, elements, and small windows written. */
#include "core.h"

/* What a key asks for: FANCY may copy, ELEMENT and INTEGERS are integers only, as many as axes and fewer. */
enum { FANCY, BASIC, INTEGERS, ELEMENT };

static bool is_end(PyObject *end) { return end == Py_None || PyLong_CheckExact(end); }

static int kind_of(PyObject *key, npy_intp ndim)
{
    PyObject *const *parts = &key;
    Py_ssize_t count = 1;
    if (PyTuple_CheckExact(key)) {
        parts = &PyTuple_GET_ITEM(key, 0);
        count = PyTuple_GET_SIZE(key);
    }
    bool integers = true;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *part = parts[i];
        if (PySlice_Check(part)) {
            PySliceObject *slice = (PySliceObject *)part;
            if (!is_end(slice->start) || !is_end(slice->stop) || !is_end(slice->step)) {
                return FANCY;
            }
            integers = false;
        } else if (part == Py_None || part == Py_Ellipsis) {
            integers = false;
        } else if (!PyLong_CheckExact(part) && !PyArray_IsScalar(part, Integer)) {
            return FANCY;
        }
    }
    if (!integers) {
        return BASIC;
    }
    return count == ndim ? ELEMENT : count < ndim ? INTEGERS : FANCY; /* too many: NumPy words it */
}

/* Return the key with an ellipsis at its end: then NumPy gives a view where it would read. */
static PyObject *open_ended(PyObject *key)
{
    if (!PyTuple_CheckExact(key)) {
        return PyTuple_Pack(2, key, Py_Ellipsis);
    }
    Py_ssize_t count = PyTuple_GET_SIZE(key);
    PyObject *longer = PyTuple_New(count + 1);
    for (Py_ssize_t i = 0; longer != NULL && i <= count; i++) {
        PyTuple_SET_ITEM(longer, i, Py_NewRef(i < count ? PyTuple_GET_ITEM(key, i) : Py_Ellipsis));
    }
    return longer;
}

/* Return what a basic key picks of an ndarray, as an ndarray. */
static PyObject *picked(PyObject *array, PyObject *key, int kind)
{
    PyObject *whole = kind == BASIC ? Py_NewRef(key) : open_ended(key);
    PyObject *window = whole == NULL ? NULL : PyObject_GetItem(array, whole);
    Py_XDECREF(whole);
    if (window != NULL && !PyArray_CheckExact(window)) {
        Py_CLEAR(window);
    }
    return window;
}

static PyObject *view_at(Array *self, Layout *parent, PyObject *key, int kind)
{
    PyObject *probe = layout_probe(parent, NULL);
    PyObject *window = probe == NULL ? NULL : picked(probe, key, kind);
    PyObject *result = window == NULL ? NULL : view_over((PyTypeObject *)hooks->array, self, window, probe);
    Py_XDECREF(window);
    Py_XDECREF(probe);
    return result;
}

/* Return NumPy's own view in a body that was given up: of the caller's memory, once it has all that was written.
   NULL without an error: the hook knows. */
static PyObject *plain_view(Array *self, PyObject *key)
{
    Value *value = (Value *)((Storage *)self->storage)->value;
    bool lent = is_value((PyObject *)value) && is_data(value->data) && ((Data *)value->data)->foreign;
    if (!lent || ((Storage *)self->storage)->lease != Py_None || (self->window != Py_None && !((View *)self->window)->writeable)) {
        return NULL;
    }
    PyObject *whole = bytes_at_hand(self, NPY_MAX_INTP);
    PyObject *view = whole == NULL ? NULL : PyObject_GetItem(whole, key);
    Py_XDECREF(whole);
    return view;
}

PyObject *once_getitem(PyObject *array, PyObject *key)
{
    Array *self = (Array *)array;
    bool given_up = outright();
    if (!given_up && floors->traced > 0 && PyErr_Occurred()) {
        return NULL;
    }
    Layout *layout = is_ours(array) ? window_of(self) : NULL;
    int kind = layout == NULL ? FANCY : kind_of(key, layout->ndim);
    bool plain = kind != FANCY && given_up;
    if (plain && kind != ELEMENT) {
        return plain_view(self, key);
    }
    if (kind == BASIC || kind == INTEGERS) {
        Py_INCREF(layout);
        PyObject *view = view_at(self, layout, key, kind);
        Py_DECREF(layout);
        return view;
    }
    if (kind == FANCY) {
        return layout == NULL ? NULL : once_gather(array, key);
    }
    if (floors->traced && !plain) {
        return NULL;
    }
    PyObject *whole = bytes_at_hand(self, NPY_MAX_INTP), *element = NULL;
    if (whole != NULL && (floors->scalars || plain)) {
        element = PyObject_GetItem(whole, key);
    } else if (whole != NULL && is_native(PyArray_DESCR((PyArrayObject *)whole))) {
        element = PyObject_GetItem(whole, key);
        element = element == NULL ? NULL : scalar_adopted(element);
    }
    Py_XDECREF(whole);
    return element;
}

/* 1: done; 0: the hook must; -1: an error. */
int once_setitem(PyObject *array, PyObject *key, PyObject *item)
{
    Py_ssize_t least;
    Array *self = (Array *)array;
    Layout *layout = is_ours(array) ? window_of(self) : NULL;
    int kind = layout == NULL ? FANCY : kind_of(key, layout->ndim);
    if (kind == FANCY) {
        return layout == NULL ? 0 : once_scatter(array, key, item);
    }
    if (!may_do(&least)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    Storage *turn = NULL;
    PyObject *target = NULL, *value = operand_as_made(item, least);
    if (value != NULL) {
        target = bytes_to_write(self, NPY_MAX_INTP, &turn);
    }
    if (target != NULL && kind != ELEMENT && PyArray_SIZE((PyArrayObject *)target) >= least) {
        PyObject *window = picked(target, key, kind);
        if (window == NULL || PyArray_SIZE((PyArrayObject *)window) >= least) {
            Py_CLEAR(target);
        }
        Py_XDECREF(window);
    }
    int done = 0;
    if (target != NULL && (kind != ELEMENT || least > 1)) {
        done = PyObject_SetItem(target, key, value) < 0 ? -1 : 1;
    }
    end_turn(turn);
    Py_XDECREF(target);
    Py_XDECREF(value);
    return PyErr_Occurred() ? -1 : done;
}
