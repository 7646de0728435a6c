/* Bytes at hand: of arrays of ours that lie on the host, computed, where NumPy can take them at once. */
#include "core.h"

/* Tell whether a layout stays within so many bytes from an offset. */
static bool lies_within(Layout *layout, npy_intp offset, npy_intp nbytes)
{
    npy_intp low = offset, high = offset + layout->itemsize;
    for (npy_intp i = 0; i < layout->ndim; i++) {
        npy_intp reach = (layout->numbers[i] - 1) * layout->numbers[layout->ndim + i];
        *(reach < 0 ? &low : &high) += reach;
    }
    return layout->size == 0 || (low >= 0 && high <= nbytes);
}

/* Tell whether several elements lie in one place, of whose writing NumPy may have to warn. */
static bool overlaps_itself(Layout *layout)
{
    for (npy_intp i = 0; i < layout->ndim; i++) {
        if (layout->numbers[layout->ndim + i] == 0 && layout->numbers[i] > 1) {
            return true;
        }
    }
    return false;
}

/* Where the elements of an array lie: as an ndarray does, or from an address in it on. */
typedef struct {
    PyObject *owner;
    Layout *layout; /* NULL: the ndarray's */
    char *data;
} Place;

/* Tell whether nobody but its array has what NumPy made. */
static bool is_alone(PyObject *made) { return Py_REFCNT(made) == 1 && PyArray_ISWRITEABLE((PyArrayObject *)made); }

/* Meet an array of so many elements that is large while all work waits, once; then it is to be looked at anew: the
   collector may have run, and finalizers of the program's. */
static bool meets_large(npy_intp size)
{
    bool met = floors->kept > 0 && size >= floors->kept && !floors->met;
    if (met) {
        meet_large();
    }
    return met;
}

/* Find where the elements of an array of fewer than ``least`` lie, if they are at hand. */
static bool find_place(Array *array, npy_intp least, bool write, Place *place)
{
    PyObject *made = made_of((PyObject *)array);
    place->layout = NULL;
    if (made != NULL && PyArray_CheckExact(made) && (!write || is_alone(made))) {
        npy_intp size = PyArray_SIZE((PyArrayObject *)made);
        if (size >= least) {
            return false;
        }
        if (meets_large(size)) {
            return find_place(array, least, write, place);
        }
        place->owner = Py_NewRef(made);
        return true;
    }
    Layout *layout = window_of(array);
    Storage *storage = (Storage *)array->storage;
    if (layout == NULL || layout->size >= least || !is_value(storage->value)) {
        return false;
    }
    if (meets_large(layout->size)) {
        return find_place(array, least, write, place);
    }
    Value *value = (Value *)storage->value;
    bool whole = array->window == Py_None;
    if (is_pending(value) || !is_layout(value->layout)) {
        return false;
    }
    if (value->data == Py_None) {
        bool constant = whole && !write && value->attrs != NULL && PyArray_CheckExact(value->attrs);
        place->owner = constant ? Py_NewRef(value->attrs) : NULL;
        return constant;
    }
    Data *data = (Data *)value->data;
    if (!is_data(value->data) || data->array == NULL || !PyArray_CheckExact(data->array)) {
        return false;
    }
    PyArrayObject *owner = (PyArrayObject *)data->array;
    if (write
        && (overlaps_itself(layout) || (!whole && !((View *)array->window)->writeable) || data->remote != Py_None
            || storage->lease != Py_None || !PyArray_ISWRITEABLE(owner) || !may_write(storage)
            /* of the caller's memory nothing is deferred in a body that was given up */
            || (data->foreign ? !outright() : Py_REFCNT(value) > 1 || Py_REFCNT(data) > 1))) {
        return false;
    }
    npy_intp offset = value->offset + (whole ? 0 : ((View *)array->window)->offset);
    if (data->layout != (PyObject *)layout || offset != 0) {
        if (layout->size == 0 && offset > PyArray_NBYTES(owner)) { /* of no rows of three columns, the second */
            offset = PyArray_NBYTES(owner);
        }
        if (!lies_within(layout, offset, PyArray_NBYTES(owner))) {
            return false;
        }
        place->layout = (Layout *)Py_NewRef(layout);
        place->data = PyArray_BYTES(owner) + offset;
    }
    place->owner = Py_NewRef(data->array);
    return true;
}

/* Return the ndarray over a place, which is let go of. */
static PyObject *laid_over(Place *place)
{
    Layout *layout = place->layout;
    PyObject *owner = place->owner;
    if (layout == NULL) {
        return owner;
    }
    PyObject *result = PyArray_NewFromDescr(
        &PyArray_Type, (PyArray_Descr *)Py_NewRef(layout->dtype), (int)layout->ndim, layout->numbers,
        layout->numbers + layout->ndim, place->data, PyArray_FLAGS((PyArrayObject *)owner) & NPY_ARRAY_WRITEABLE, NULL);
    Py_DECREF(layout);
    if (result == NULL) {
        Py_DECREF(owner);
    } else if (PyArray_SetBaseObject((PyArrayObject *)result, owner) < 0) {
        Py_CLEAR(result);
    }
    return result;
}

static PyObject *bytes_of(Array *array, npy_intp least, bool write)
{
    Place place;
    return find_place(array, least, write, &place) ? laid_over(&place) : NULL;
}

static void leave(Place *place)
{
    Py_XDECREF(place->layout);
    Py_DECREF(place->owner);
}

static inline PyArray_Descr *dtype_of(Place *place)
{
    return place->layout != NULL ? (PyArray_Descr *)place->layout->dtype : PyArray_DESCR((PyArrayObject *)place->owner);
}

/* Return where the element lies that a key of integers picks, as many as there are axes; NULL: nowhere. */
static char *element_of(Place *place, PyObject *key)
{
    PyArrayObject *owner = (PyArrayObject *)place->owner;
    bool whole = place->layout == NULL;
    npy_intp ndim = whole ? PyArray_NDIM(owner) : place->layout->ndim;
    const npy_intp *shape = whole ? PyArray_DIMS(owner) : place->layout->numbers;
    const npy_intp *strides = whole ? PyArray_STRIDES(owner) : shape + ndim;
    char *data = whole ? PyArray_BYTES(owner) : place->data;
    PyObject *const *parts = PyTuple_CheckExact(key) ? &PyTuple_GET_ITEM(key, 0) : &key;
    for (npy_intp i = 0; i < ndim; i++) {
        npy_intp index = index_of(parts[i], shape[i]);
        if (index < 0) {
            return NULL;
        }
        data += index * strides[i];
    }
    return data;
}

/* Return an ndarray over the bytes of an array of ours of fewer elements than ``least``, where they are at hand, to
   be read. NULL, without an error unless memory is out, where not. */
PyObject *bytes_at_hand(Array *array, npy_intp least) { return bytes_of(array, least, false); }

/* The same to be written, which only the case is where nobody needs the old ones: in one's turn, which the caller
   ends (end_writing). */
PyObject *bytes_to_write(Array *array, npy_intp least, Writing *writing)
{
    PyObject *bytes = bytes_of(array, least, true);
    if (bytes == NULL) {
        *writing = (Writing){NULL, NULL, 0, NULL};
    } else {
        begin_writing(writing, array);
    }
    return bytes;
}

/* Return the element that a key of integers picks, as NumPy gives it; NULL, without an error unless there is one:
   it is not at hand, or not there. */
PyObject *element_at_hand(Array *array, PyObject *key)
{
    Place place;
    if (!find_place(array, NPY_MAX_INTP, false, &place)) {
        return NULL;
    }
    PyArray_Descr *dtype = dtype_of(&place);
    char *data = is_native(dtype) ? element_of(&place, key) : NULL;
    PyObject *element = data == NULL ? NULL : PyArray_Scalar(data, dtype, place.owner);
    leave(&place);
    return element;
}

/* Set that element. 1: done; 0: the hook must; -1: an error. */
int set_element_at_hand(Array *array, PyObject *key, PyObject *item)
{
    Place place;
    if (!find_place(array, NPY_MAX_INTP, true, &place)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    char *data = element_of(&place, key);
    int done = 0;
    if (data != NULL) {
        Writing writing;
        begin_writing(&writing, array);
        done = PyArray_Pack(dtype_of(&place), data, item) < 0 ? -1 : 1;
        end_writing(&writing);
    }
    leave(&place);
    return done;
}

/* The same of an array that is what NumPy made and nothing else: who has a view of that is found out by its references
   once there is to be a storage. */
static PyObject *export_made(Array *array, PyObject *made)
{
    if (!PyArray_CheckExact(made)) {
        PyObject *whole = PyArray_FromScalar(made, NULL);
        if (whole == NULL || array->made != made) { /* the collector may have run code that gave it a storage */
            Py_XDECREF(whole);
            return NULL;
        }
        array->made = whole;
        Py_DECREF(made);
        made = whole;
    }
    bool empty = PyArray_SIZE((PyArrayObject *)made) == 0; /* the hook refuses those as indices */
    return is_alone(made) && !empty ? PyArray_View((PyArrayObject *)made, NULL, NULL) : NULL;
}

/* Return an ndarray that shares the memory of an array, as `export` (storage_io) does, where that lies on the host
   and nobody but the array needs what is there; NULL where not, without an error unless memory is out. */
PyObject *export_at_hand(Array *array)
{
    PyObject *made = floors->traced ? NULL : made_of((PyObject *)array), *shared = made == NULL ? NULL : export_made(array, made);
    if (shared != NULL || PyErr_Occurred()) {
        return shared;
    }
    Storage *storage = floors->traced ? NULL : (Storage *)storage_of(array);
    Layout *layout = window_of(array);
    if (storage == NULL || layout == NULL || layout->size == 0 || !is_value(storage->value) || storage->lease != Py_None || !may_write(storage)
        || (array->window != Py_None && !((View *)array->window)->writeable)) {
        return NULL;
    }
    Value *value = (Value *)storage->value;
    Data *data = is_pending(value) ? NULL : (Data *)value->data;
    if (!is_data((PyObject *)data) || data->foreign || data->remote != Py_None || data->writing
        || (!data->shared && (Py_REFCNT(value) > 1 || Py_REFCNT(data) > 1))) {
        return NULL;
    }
    PyObject *found = bytes_of(array, NPY_MAX_INTP, false);
    if (found == NULL || !PyArray_ISWRITEABLE((PyArrayObject *)found)) {
        Py_XDECREF(found);
        return NULL;
    }
    data->shared = true;
    if (found == data->array) {
        Py_SETREF(found, PyArray_View((PyArrayObject *)found, NULL, NULL));
        data->shared = true; /* whoever looked before it was there has taken it back */
    }
    return found;
}

PyObject *exported(PyObject *module, PyObject *array)
{
    if (!expect_type(array, &ArrayType, "array")) {
        return NULL;
    }
    PyObject *found = export_at_hand((Array *)array);
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_NotImplemented);
}

PyObject *at_hand(PyObject *module, PyObject *array)
{
    if (!expect_type(array, &ArrayType, "array")) {
        return NULL;
    }
    PyObject *found = floors->traced && !outright() ? NULL : bytes_at_hand((Array *)array, NPY_MAX_INTP);
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}
