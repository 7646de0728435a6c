/* Operators at once on small arrays, as once.c says; and whether whole numbers without axes may overflow. */
#include "core.h"

/* Tell whether an operand is a whole number of ours without axes, which NumPy is given as an array. Its own scalars
   warn themselves. */
static inline bool is_whole_number(PyObject *item, PyObject *taken)
{
    return PyArray_CheckExact(taken) && PyArray_NDIM((PyArrayObject *)taken) == 0 && PyTypeNum_ISINTEGER(PyArray_TYPE((PyArrayObject *)taken))
        && is_ours(item);
}

/* Tell whether arithmetic on operands may be on whole numbers without axes: NumPy's scalars warn where they
   overflow, and its arrays do not; the hook tells them apart. */
static bool may_overflow(binaryfunc run, PyObject *left, PyObject *right, PyObject *const *taken)
{
    bool computes = run == PyNumber_Add || run == PyNumber_Subtract || run == PyNumber_Multiply
        || run == PyNumber_InPlaceAdd || run == PyNumber_InPlaceSubtract || run == PyNumber_InPlaceMultiply;
    return computes && (is_whole_number(left, taken[0]) || is_whole_number(right, taken[1]));
}

/* Read a whole number: Python's, or an array's without axes, of so many bits (Python's takes the other's dtype). */
static bool whole_number(PyObject *item, long long *value, int *bits, bool *natural)
{
    if (PyLong_CheckExact(item)) {
        int beyond;
        *value = PyLong_AsLongLongAndOverflow(item, &beyond);
        return beyond == 0;
    }
    PyArrayObject *array = (PyArrayObject *)item;
    if (!PyArray_CheckExact(item) || PyArray_NDIM(array) != 0 || !PyTypeNum_ISINTEGER(PyArray_TYPE(array)) || !PyArray_ISBEHAVED_RO(array)) {
        return false;
    }
    int size = (int)PyArray_ITEMSIZE(array);
    bool plus = PyTypeNum_ISUNSIGNED(PyArray_TYPE(array));
    const void *data = PyArray_DATA(array);
    if (size == 1) *value = plus ? (long long)*(const npy_uint8 *)data : *(const npy_int8 *)data;
    else if (size == 2) *value = plus ? (long long)*(const npy_uint16 *)data : *(const npy_int16 *)data;
    else if (size == 4) *value = plus ? (long long)*(const npy_uint32 *)data : *(const npy_int32 *)data;
    else *value = *(const npy_int64 *)data; /* of 2^63 and more: negative, which a natural one must not be */
    *bits = 8 * size < *bits ? 8 * size : *bits;
    *natural = *natural || plus;
    return true;
}

/* Tell whether two operands are whole numbers so small that their sum, difference and product are of any dtype
   that has both: of half its bits. */
static bool cannot_overflow(PyObject *const *both)
{
    long long values[2];
    int bits = 64;
    bool natural = false;
    if (!whole_number(both[0], &values[0], &bits, &natural) || !whole_number(both[1], &values[1], &bits, &natural)) {
        return false;
    }
    long long limit = 1LL << (bits / 2 - 1);
    return values[0] < limit && values[1] < limit && (natural ? values[1] >= 0 && values[0] >= values[1] : values[0] > -limit && values[1] > -limit);
}

/* Of so few elements none is counted where it was called, and none has a floor of its own. */
enum { FEW = COUNTED - 1 };

/* Return, borrowed, the ndarray with axes and of few elements that is the whole of an array, at hand; else NULL. */
static inline PyArrayObject *few_of(PyObject *item, npy_intp *size)
{
    PyObject *made = made_of(item);
    if (made == NULL && is_ours(item) && ((Array *)item)->window == Py_None && Py_IS_TYPE(((Array *)item)->storage, &StorageType)) {
        Value *value = (Value *)((Storage *)((Array *)item)->storage)->value;
        Data *data = is_value((PyObject *)value) && !is_pending(value) ? (Data *)value->data : NULL;
        made = is_data((PyObject *)data) && data->layout == value->layout && value->offset == 0 ? data->array : NULL;
    }
    if (made == NULL || !PyArray_CheckExact(made) || PyArray_NDIM((PyArrayObject *)made) == 0) {
        return NULL;
    }
    PyArrayObject *array = (PyArrayObject *)made;
    *size = 1;
    for (int i = 0; i < PyArray_NDIM(array) && *size <= FEW; i++) {
        *size *= PyArray_DIM(array, i);
    }
    return *size <= FEW ? array : NULL;
}

static inline bool is_number(PyObject *item) { return PyFloat_CheckExact(item) || PyLong_CheckExact(item); }

static inline bool of_one_shape(PyArrayObject *one, PyArrayObject *other)
{
    bool same = PyArray_NDIM(one) == PyArray_NDIM(other);
    for (int i = 0; same && i < PyArray_NDIM(one); i++) {
        same = PyArray_DIM(one, i) == PyArray_DIM(other, i);
    }
    return same;
}

/* Find, borrowed, what NumPy takes for what loops over small arrays compute with most: two of few elements and of one
   shape, or one and a number of Python's. What is asked of others is known of these. */
static bool few_alike(PyObject *left, PyObject *right, Py_ssize_t least, PyObject **both)
{
    npy_intp size = 0, other = 0;
    PyArrayObject *one = few_of(left, &size), *two = few_of(right, &other);
    bool alike = one != NULL && two != NULL ? of_one_shape(one, two) : (one != NULL && is_number(right)) || (two != NULL && is_number(left));
    size = size > other ? size : other;
    both[0] = one == NULL ? left : (PyObject *)one;
    both[1] = two == NULL ? right : (PyObject *)two;
    return alike && size < least && (floors->kept == 0 || size < floors->kept);
}

/* Return what NumPy's operator gives of such. */
PyObject *once_few(binaryfunc run, PyObject *left, PyObject *right, Py_ssize_t least)
{
    PyObject *both[2];
    if (!few_alike(left, right, least, both) || run == PyNumber_MatrixMultiply || !may_do_below(least)) {
        return NULL;
    }
    floors->passed = 0;
    Py_INCREF(both[0]);
    Py_INCREF(both[1]);
    PyObject *result = taken_over(run(both[0], both[1]), least);
    Py_DECREF(both[0]);
    Py_DECREF(both[1]);
    return result;
}

PyObject *once_binary(binaryfunc run, PyObject *left, PyObject *right, Py_ssize_t least)
{
    if (!may_do_below(least)) {
        return NULL;
    }
    bool product = run == PyNumber_MatrixMultiply;
    npy_intp most = product ? paced_product(left, right, least) : least;
    PyObject *both[2] = {product ? operand(left, most) : operand_as_made(left, most), NULL};
    both[1] = both[0] == NULL ? NULL : product ? operand(right, most) : operand_as_made(right, most);
    bool small = both[1] != NULL && !outgrow(both, 2, most, product ? PRODUCT : BROADCAST)
        && (!may_overflow(run, left, right, both) || cannot_overflow(both));
    SiteWork work = small ? begin_work(both, 2, least, product) : (SiteWork){0};
    PyObject *result = small ? taken_over(run(both[0], both[1]), least) : NULL;
    end_work(work);
    Py_XDECREF(both[0]);
    Py_XDECREF(both[1]);
    return result;
}

PyObject *once_unary(unaryfunc run, PyObject *array, Py_ssize_t least)
{
    if (!may_do_below(least)) {
        return NULL;
    }
    PyObject *one = operand_as_made(array, least), *zero = NULL;
    bool small = one != NULL;
    if (small && (run == PyNumber_Negative || run == PyNumber_Absolute) && is_whole_number(array, one)) {
        zero = PyLong_FromLong(0);
        PyObject *both[2] = {run == PyNumber_Negative ? zero : one, run == PyNumber_Negative ? one : zero};
        small = zero != NULL && cannot_overflow(both); /* as what is taken from nothing, or as it is */
        Py_XDECREF(zero);
    }
    SiteWork work = small ? begin_work(&one, 1, least, false) : (SiteWork){0};
    PyObject *result = small ? taken_over(run(one), least) : NULL;
    end_work(work);
    Py_XDECREF(one);
    return result;
}

/* Tell whether an operation in place on a whole number without axes leaves it its dtype, and cannot overflow. */
static bool stays_in_place(PyObject *target, PyObject *item)
{
    PyObject *both[2] = {target, item};
    bool same = PyLong_CheckExact(item)
        || (PyArray_CheckExact(item) && PyArray_TYPE((PyArrayObject *)item) == PyArray_TYPE((PyArrayObject *)target));
    return same && cannot_overflow(both);
}

/* Tell whether an operation in place may give a target without axes another dtype: where it stands for a scalar, it
   becomes it. */
static bool may_change(PyObject *target, PyObject *item)
{
    if (PyArray_NDIM((PyArrayObject *)target) != 0 || PyLong_Check(item) || PyFloat_CheckExact(item) || PyComplex_CheckExact(item)) {
        return false;
    }
    return !PyArray_CheckExact(item) || PyArray_TYPE((PyArrayObject *)item) != PyArray_TYPE((PyArrayObject *)target);
}

/* Tell whether what NumPy makes of a scalar of its own and an item in an operation in place is of the scalar's type. */
static bool stays_scalar(binaryfunc run, PyObject *scalar, PyObject *item)
{
    bool computes = run == PyNumber_InPlaceAdd || run == PyNumber_InPlaceSubtract || run == PyNumber_InPlaceMultiply;
    if (!PyArray_IsScalar(scalar, Floating) && !((PyArray_IsScalar(scalar, Integer) || PyArray_IsScalar(scalar, ComplexFloating)) && computes)) {
        return false;
    }
    return Py_IS_TYPE(item, Py_TYPE(scalar)) || PyLong_CheckExact(item) || (PyFloat_CheckExact(item) && !PyArray_IsScalar(scalar, Integer));
}

/* Do an operation in place on an array that is a scalar NumPy made. NULL without an error: it is not, or becomes
   another's type. */
static PyObject *scalar_in_place(binaryfunc run, Array *array, PyObject *item)
{
    PyObject *made = made_of((PyObject *)array);
    if (made == NULL || !stays_scalar(run, made, item)) {
        return NULL;
    }
    Py_INCREF(made);
    PyObject *result = run(made, item);
    if (result != NULL && Py_TYPE(result) == Py_TYPE(made) && made_of((PyObject *)array) == made) { /* warnings run any code */
        Py_SETREF(array->made, result);
        result = Py_NewRef((PyObject *)array);
    } else if (result == NULL && (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError)) && !is_interrupt()) {
        PyErr_Clear(); /* the hook words it */
    } else {
        Py_CLEAR(result);
    }
    Py_DECREF(made);
    return result;
}

PyObject *once_in_place(binaryfunc run, PyObject *array, PyObject *other)
{
    Py_ssize_t least;
    if (!is_ours(array) || !may_do(&least)) {
        return NULL;
    }
    if (made_of(array) != NULL && !PyArray_CheckExact(made_of(array)) && least > 1) {
        PyObject *item = operand_as_made(other, least), *result = item == NULL ? NULL : scalar_in_place(run, (Array *)array, item);
        Py_XDECREF(item);
        if (result != NULL || PyErr_Occurred()) {
            return result;
        }
    }
    PyObject *few[2];
    bool bare = few_alike(array, other, least, few) && few[0] != array;
    bool quick = run == PyNumber_InPlaceAdd || run == PyNumber_InPlaceSubtract || run == PyNumber_InPlaceMultiply;
    npy_intp most = !bare && quick ? paced_in_place(array, other, least) : least;
    Writing writing = {NULL, NULL, 0, NULL};
    PyObject *item = bare ? Py_NewRef(few[1]) : operand_as_made(other, most), *target = item == NULL ? NULL : bytes_to_write((Array *)array, most, &writing);
    PyObject *both[2] = {target, target};
    bool small = target != NULL && (bare || (!may_change(target, item) && (!may_overflow(run, array, array, both) || stays_in_place(target, item))));
    SiteWork work = small && !bare ? begin_work(&target, 1, least, false) : (SiteWork){0};
    PyObject *result = small ? run(target, item) : NULL;
    end_work(work);
    end_writing(&writing);
    if (result != NULL) {
        Py_SETREF(result, Py_NewRef(array));
    } else if (small && PyArray_NDIM((PyArrayObject *)target) == 0
               && (PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_TypeError)) && !is_interrupt()) {
        PyErr_Clear(); /* the hook says whether it stands for a scalar, which takes any result */
    }
    Py_XDECREF(target);
    Py_XDECREF(item);
    return result;
}
