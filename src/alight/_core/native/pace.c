/* The floor of an op. The floor in force is in seconds of NumPy's, told as elements of additions that it does in them;
   a row of the table (paces.py) says for each type how many of an op's elements count as one of those. */
#include "core.h"
#include <math.h>

/* Of rows shorter than this the number costs NumPy as much as the elements. */
enum { LONG_ROW = 64 };

/* Return the elements below which a layout's work is NumPy's, of which it does ``pace`` times as much as of additions:
   doubles, one for each type, of whole arrays, and then those along an axis. */
typedef enum { WHOLE, AXIS, BLOCKS } Block;

Priced priced;

/* Note what NumPy is predicted to take for an op, which its site keeps if it is NumPy's (sites.c). */
static void price(PyObject *row, npy_intp floor_elements, npy_intp least)
{
    Py_XSETREF(priced.row, Py_NewRef(row));
    priced.each = floors->addition * ((double)least / (double)floor_elements);
}

static npy_intp paced_type(PyObject *pace, int number, npy_intp least, Block block)
{
    Py_ssize_t known = pace != NULL && PyByteArray_CheckExact(pace) ? PyByteArray_GET_SIZE(pace) / (BLOCKS * (Py_ssize_t)sizeof(double)) : 0;
    if (number < 0 || number >= known) {
        return least;
    }
    double elements = ((const double *)PyByteArray_AS_STRING(pace))[number + block * known] * (double)least;
    return elements >= (double)NPY_MAX_INTP ? NPY_MAX_INTP : elements >= 1.0 ? (npy_intp)elements : least;
}

static npy_intp paced(PyObject *pace, Layout *layout, npy_intp least, Block block)
{
    npy_intp found = paced_type(pace, ((PyArray_Descr *)layout->dtype)->type_num, least, block);
    if (pace != NULL) price(pace, found, least);
    return found < least ? least : found;
}

/* The elements and the type of the largest array among operands. */
typedef struct {
    npy_intp elements;
    int number;
} Largest;

/* Find it; of none where one is pending, with which an op is recorded in any case. */
static inline Largest largest_of(PyObject *const *items, Py_ssize_t count)
{
    Largest largest = {0, -1};
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = items[i];
        if (is_ours(item)) {
            Array *array = (Array *)item;
            if (array->storage == NULL) {
                item = array->made;
            } else {
                Layout *layout = window_of(array);
                Value *value = layout == NULL ? NULL : (Value *)((Storage *)array->storage)->value;
                if (layout == NULL || !is_value((PyObject *)value) || is_pending(value)) {
                    return (Largest){0, -1};
                }
                largest = layout->size > largest.elements ? (Largest){layout->size, ((PyArray_Descr *)layout->dtype)->type_num} : largest;
                continue;
            }
        }
        if (item != NULL && PyArray_CheckExact(item)) {
            PyArrayObject *array = (PyArrayObject *)item;
            npy_intp elements = PyArray_NDIM(array) == 1 ? PyArray_DIM(array, 0) : PyArray_SIZE(array);
            largest = elements > largest.elements ? (Largest){elements, PyArray_TYPE(array)} : largest;
        }
    }
    return largest;
}

/* Tell whether the floor in force is the measured one, or its site's, which an op's own takes the place of. */
static inline bool is_measured(npy_intp least) { return least == floors->automatic || least == floors->passed; }

static npy_intp floor_of(PyObject *row, Largest largest, npy_intp least)
{
    npy_intp found = paced_type(row, largest.number, floors->automatic, WHOLE);
    price(row, found, floors->automatic);
    found = found < COUNTED ? COUNTED : found;
    found = found <= left_in_vain ? left_in_vain + 1 : found;
    if (!is_measured(least) || (floors->passed > 0 && floors->passed < found)) {
        return least; /* it was given; or its site is open, or has won with fewer */
    }
    floors->passed = found == floors->automatic ? 0 : found;
    return found;
}

/* Return the elements below which an op on these operands is NumPy's, by its row and by the type of the largest of
   them; the hooks go by it (Floor.here). */
npy_intp op_floor(PyObject *row, PyObject *const *items, Py_ssize_t count, npy_intp least)
{
    if (least <= COUNTED || row == NULL || row == Py_None) {
        return least;
    }
    Largest largest = largest_of(items, count);
    return largest.elements < COUNTED ? least : floor_of(row, largest, least);
}

/* The same of a ufunc of NumPy's. */
npy_intp ufunc_floor(PyObject *ufunc, PyObject *const *args, Py_ssize_t nargs, npy_intp least)
{
    if (least <= COUNTED || floors->paces == NULL || !PyDict_CheckExact(floors->paces)) {
        return least;
    }
    Largest largest = largest_of(args, nargs);
    PyObject *row = largest.elements < COUNTED ? NULL : PyDict_GetItemWithError(floors->paces, ufunc);
    return row == NULL ? least : floor_of(row, largest, least);
}

/* Return the layout of an array that a floor leaves to ours: the floor that was measured, for one that was given
   is what its user wants. */
static Layout *beyond(PyObject *array, npy_intp least)
{
    PyObject *made = made_of(array);
    bool small = made != NULL && (!PyArray_CheckExact(made) || PyArray_SIZE((PyArrayObject *)made) < least);
    Layout *layout = least == floors->automatic && !small && is_ours(array) ? window_of((Array *)array) : NULL;
    return layout != NULL && layout->size >= least && layout->dense ? layout : NULL;
}

/* Have the hooks go by a ufunc's floor, where no fast way has asked for it; false with an error set. */
bool floor_passed(PyObject *ufunc, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t least;
    if (!floor_in_force(&least)) {
        return false;
    }
    ufunc_floor(ufunc, args, nargs, site_floor(least));
    return !PyErr_Occurred();
}

/* The same of a reduction of an array, that was given so many arguments more. */
npy_intp paced_reduction(PyObject *pace, PyObject *array, Py_ssize_t more, npy_intp least)
{
    Layout *layout = pace == Py_None ? NULL : beyond(array, least);
    if (layout == NULL) {
        return more == 0 ? op_floor(pace, &array, 1, least) : least;
    }
    npy_intp whole = paced(pace, layout, least, WHOLE);
    if (whole == NPY_MAX_INTP) { /* it reads a diagonal */
        return layout->ndim == 2 && more == 0 ? whole : least;
    }
    if (more == 0) {
        return whole;
    }
    bool rows = more < PY_SSIZE_T_MAX && layout->c_contiguous_object == Py_True && layout->ndim > 0 && layout->numbers[layout->ndim - 1] >= LONG_ROW;
    return rows ? paced(pace, layout, least, AXIS) : least;
}

/* Return what is known by a name of the table, or NULL. */
static PyObject *pace_of(const char *name)
{
    PyObject *found = floors->paces != NULL && PyDict_CheckExact(floors->paces) ? PyDict_GetItemString(floors->paces, name) : NULL;
    return found;
}

/* Return the layout of an array, borrowed, where it is dense and of a dtype. */
static Layout *dense_of(PyObject *array, PyObject *dtype)
{
    Layout *found = is_ours(array) ? window_of((Array *)array) : NULL;
    return found != NULL && found->dense && found->dtype == dtype ? found : NULL;
}

/* Give an array a storage. That runs any code, so it is done before anything is borrowed. */
static void stored(PyObject *array)
{
    if (made_of(array) != NULL) storage_of((Array *)array);
}

/* The same of a product with a vector. */
npy_intp paced_product(PyObject *left, PyObject *right, npy_intp least)
{
    PyObject *large = beyond(left, least) != NULL ? left : beyond(right, least) != NULL ? right : NULL;
    if (large == NULL) {
        return least;
    }
    PyObject *other = large == left ? right : left;
    stored(other);
    Layout *layout = beyond(large, least), *beside = layout == NULL ? NULL : dense_of(other, layout->dtype);
    bool vector = beside != NULL && ((layout->ndim <= 2 && beside->ndim == 1) || (layout->ndim == 1 && beside->ndim == 2));
    return vector ? paced(pace_of("dot"), layout, least, WHOLE) : least;
}

/* The same of an operation in place on an array, with a number or with an array of its dtype. */
npy_intp paced_in_place(PyObject *array, PyObject *other, npy_intp least)
{
    bool large = beyond(array, least) != NULL;
    if (large) stored(other);
    Layout *layout = large ? beyond(array, least) : NULL;
    if (layout == NULL) {
        return least;
    }
    if (PyFloat_CheckExact(other) || PyLong_CheckExact(other)) {
        return paced(pace_of("in place, a number"), layout, least, WHOLE);
    }
    return dense_of(other, layout->dtype) != NULL ? paced(pace_of("in place"), layout, least, WHOLE) : least;
}

/* Return the elements below which a reduction of an array, by its name, is NumPy's under this floor. */
PyObject *floor_paced(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t more = nargs == 4 ? PyNumber_AsSsize_t(args[2], NULL) : -1, least = more < 0 ? -1 : PyNumber_AsSsize_t(args[3], NULL);
    if (nargs != 4 || PyErr_Occurred()) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "paced() takes a name, an array, a number of arguments more, and a floor");
        return NULL;
    }
    PyObject *pace = floors->paces != NULL && PyDict_CheckExact(floors->paces) ? PyDict_GetItemWithError(floors->paces, args[0]) : NULL;
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_XINCREF(pace);
    npy_intp found = pace == NULL ? least : paced_reduction(pace, args[1], more, least);
    Py_XDECREF(pace);
    return PyLong_FromSsize_t(found);
}
