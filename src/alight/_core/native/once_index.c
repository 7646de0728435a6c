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

npy_intp index_of(PyObject *part, npy_intp length)
{
    npy_intp index = PyLong_CheckExact(part) ? PyLong_AsSsize_t(part) : PyNumber_AsSsize_t(part, NULL);
    if (index == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return -1;
    }
    index += index < 0 ? length : 0;
    return index < length ? index : -1;
}

/* What a key picks, as NumPy says it of an ndarray. */
typedef struct {
    npy_intp ndim, offset, shape[NPY_MAXDIMS], strides[NPY_MAXDIMS];
} Picked;

static inline void keep_axis(Picked *picked, npy_intp length, npy_intp stride)
{
    picked->shape[picked->ndim] = length;
    picked->strides[picked->ndim++] = stride;
}

/* Find what a basic key picks of a layout. False: NumPy knows, of what is empty, and what it refuses. */
static bool pick(Layout *whole, PyObject *key, Picked *picked)
{
    bool several = PyTuple_CheckExact(key);
    PyObject *const *parts = several ? &PyTuple_GET_ITEM(key, 0) : &key;
    npy_intp count = several ? PyTuple_GET_SIZE(key) : 1, axis = 0, taken = 0;
    const npy_intp *shape = whole->numbers, *strides = shape + whole->ndim;
    bool open = false;
    picked->ndim = picked->offset = 0;
    for (npy_intp i = 0; i < count; i++) {
        taken += parts[i] != Py_None && parts[i] != Py_Ellipsis;
    }
    if (taken > whole->ndim || whole->ndim + count - taken > NPY_MAXDIMS) {
        return false;
    }
    for (npy_intp i = 0; i < count; i++) {
        PyObject *part = parts[i];
        if (part == Py_None) {
            keep_axis(picked, 1, 0);
        } else if (part == Py_Ellipsis) {
            if (open) {
                return false;
            }
            open = true;
            for (npy_intp last = axis + whole->ndim - taken; axis < last; axis++) {
                keep_axis(picked, shape[axis], strides[axis]);
            }
        } else if (PySlice_Check(part)) {
            Py_ssize_t start, stop, step;
            if (PySlice_Unpack(part, &start, &stop, &step) < 0) {
                PyErr_Clear();
                return false;
            }
            npy_intp length = PySlice_AdjustIndices(shape[axis], &start, &stop, step);
            if (length == 0) {
                return false;
            }
            keep_axis(picked, length, strides[axis] * step);
            picked->offset += strides[axis++] * start;
        } else {
            npy_intp index = index_of(part, shape[axis]);
            if (index < 0) {
                return false;
            }
            picked->offset += strides[axis++] * index;
        }
    }
    for (; axis < whole->ndim; axis++) {
        keep_axis(picked, shape[axis], strides[axis]);
    }
    return true;
}

/* Tell whether an item is the very window of an array that a key picks, which it is to be set to: as after
   ``a[1:] += b``. */
static bool is_there(Array *self, Layout *layout, PyObject *key, PyObject *item)
{
    Array *other = (Array *)item;
    bool within = is_ours(item) && other->storage == self->storage && other->window != NULL && Py_IS_TYPE(other->window, &ViewType);
    View *outer = self->window == Py_None ? NULL : (View *)self->window, *window = within ? (View *)other->window : NULL;
    Picked found, *picked = &found;
    if (!within || !window->writeable || !is_layout(window->layout) || (outer != NULL && !outer->writeable) || !pick(layout, key, picked)) {
        return false;
    }
    Layout *from = (Layout *)window->layout;
    bool same = from->dtype == layout->dtype && from->ndim == picked->ndim
        && window->offset == picked->offset + (outer == NULL ? 0 : outer->offset);
    for (npy_intp i = 0; same && i < picked->ndim; i++) {
        same = from->numbers[i] == picked->shape[i] && from->numbers[picked->ndim + i] == picked->strides[i];
    }
    return same;
}

/* Tell whether a key may pick so many elements. */
static bool picks_many(Layout *layout, PyObject *key, npy_intp least)
{
    Picked picked;
    return !pick(layout, key, &picked) || PyArray_MultiplyList(picked.shape, (int)picked.ndim) >= least;
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

static PyObject *view_at(Array *self, Layout *parent, PyObject *key, int kind)
{
    Picked picked;
    if (pick(parent, key, &picked)) {
        PyObject *layout = layout_find((PyArray_Descr *)parent->dtype, picked.ndim, picked.shape, picked.strides);
        return layout == NULL ? NULL : view_from((PyTypeObject *)hooks->array, self, layout, picked.offset);
    }
    PyObject *probe = layout_probe(parent, NULL), *whole = kind == BASIC ? Py_NewRef(key) : open_ended(key);
    PyObject *window = probe == NULL || whole == NULL ? NULL : PyObject_GetItem(probe, whole);
    PyObject *result = window != NULL && PyArray_CheckExact(window) ? view_over((PyTypeObject *)hooks->array, self, window, probe) : NULL;
    Py_XDECREF(whole);
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

/* Find what a key asks for, and the layout that it picks of; NULL where that is not needed: of FANCY keys, of elements
   of what NumPy made, and of all of that where it is of fewer elements than ``few``. */
static Layout *layout_to_pick(PyObject *array, PyObject *key, npy_intp few, int *kind)
{
    PyObject *made = made_of(array);
    bool bare = made != NULL && PyArray_CheckExact(made);
    Layout *layout = !bare && is_ours(array) ? window_of((Array *)array) : NULL;
    *kind = bare ? kind_of(key, PyArray_NDIM((PyArrayObject *)made)) : layout == NULL ? FANCY : kind_of(key, layout->ndim);
    bool needed = bare && (*kind == BASIC || *kind == INTEGERS) && PyArray_SIZE((PyArrayObject *)made) >= few;
    if (needed && (layout = window_of((Array *)array)) == NULL) {
        *kind = FANCY; /* memory is out: the hook says so */
    }
    return layout;
}

PyObject *once_getitem(PyObject *array, PyObject *key)
{
    Array *self = (Array *)array;
    bool given_up = outright();
    if (!given_up && floors->traced > 0 && PyErr_Occurred()) {
        return NULL;
    }
    int kind;
    Layout *layout = layout_to_pick(array, key, 0, &kind);
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
        return once_gather(array, key);
    }
    if (floors->traced && !plain) {
        return NULL;
    }
    PyObject *element = element_at_hand(self, key);
    if (element != NULL || PyErr_Occurred()) {
        return element == NULL || floors->scalars || plain ? element : array_made_of((PyTypeObject *)hooks->array, element);
    }
    PyObject *whole = floors->scalars || plain ? bytes_at_hand(self, NPY_MAX_INTP) : NULL; /* of another dtype, or too far */
    element = whole == NULL ? NULL : PyObject_GetItem(whole, key);
    Py_XDECREF(whole);
    return element;
}

/* 1: done; 0: the hook must; -1: an error. */
int once_setitem(PyObject *array, PyObject *key, PyObject *item)
{
    Py_ssize_t least;
    Array *self = (Array *)array;
    int kind;
    if (!may_do(&least)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    Layout *layout = layout_to_pick(array, key, least, &kind);
    if (kind == FANCY) {
        return once_scatter(array, key, item);
    }
    if (kind != ELEMENT && layout != NULL && is_there(self, layout, key, item)) {
        return 1;
    }
    if (kind == ELEMENT ? least <= 1 : layout != NULL && layout->size >= least && picks_many(layout, key, least)) {
        return 0;
    }
    Writing writing = {NULL, NULL, 0, NULL};
    PyObject *value = operand_as_made(item, least), *target = NULL;
    int done = value != NULL && kind == ELEMENT ? set_element_at_hand(self, key, value) : 0;
    if (value != NULL && kind != ELEMENT && (target = bytes_to_write(self, NPY_MAX_INTP, &writing)) != NULL) {
        done = PyObject_SetItem(target, key, value) < 0 ? -1 : 1;
        end_writing(&writing);
        Py_DECREF(target);
    }
    Py_XDECREF(value);
    return PyErr_Occurred() ? -1 : done;
}
