/* How much NumPy does in the time of an addition. The floor counts elements of additions; what NumPy is quicker at
   stays its own in larger arrays. */
#include "core.h"
#include <math.h>

/* Of rows shorter than this the number costs NumPy as much as the elements. */
enum { LONG_ROW = 64 };

/* Return the elements below which a layout's work is NumPy's, of which it does ``pace`` times as much as of additions:
   doubles, one for each type, of whole arrays, and then those along an axis. */
static npy_intp paced(PyObject *pace, Layout *layout, npy_intp least, bool axis)
{
    Py_ssize_t number = ((PyArray_Descr *)layout->dtype)->type_num;
    Py_ssize_t known = pace != NULL && PyBytes_CheckExact(pace) ? PyBytes_GET_SIZE(pace) / (2 * (Py_ssize_t)sizeof(double)) : 0;
    if (number < 0 || number >= known) {
        return least;
    }
    double elements = ((const double *)PyBytes_AS_STRING(pace))[number + (axis ? known : 0)] * (double)least;
    return elements <= (double)least ? least : elements >= (double)NPY_MAX_INTP ? NPY_MAX_INTP : (npy_intp)elements;
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

/* The same of a reduction of an array, that was given so many arguments more. */
npy_intp paced_reduction(PyObject *pace, PyObject *array, Py_ssize_t more, npy_intp least)
{
    Layout *layout = pace == Py_None ? NULL : beyond(array, least);
    if (layout == NULL) {
        return least;
    }
    npy_intp whole = paced(pace, layout, least, false);
    if (whole == NPY_MAX_INTP) { /* it reads a diagonal */
        return layout->ndim == 2 && more == 0 ? whole : least;
    }
    if (more == 0) {
        return whole;
    }
    bool rows = more < PY_SSIZE_T_MAX && layout->c_contiguous_object == Py_True && layout->ndim > 0 && layout->numbers[layout->ndim - 1] >= LONG_ROW;
    return rows ? paced(pace, layout, least, true) : least;
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
    return vector ? paced(pace_of("dot"), layout, least, false) : least;
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
        return paced(pace_of("in place, a number"), layout, least, false);
    }
    return dense_of(other, layout->dtype) != NULL ? paced(pace_of("in place"), layout, least, false) : least;
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
