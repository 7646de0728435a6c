/* Small work on bytes that are at hand: NumPy does it at once, and nothing in Python stands between.
   Every function here, in once_arithmetic.c, once_index.c and once_call.c returns its result, NULL with an error, or NULL without one: then the hook is asked,
   which does the same, or records. */
#include "core.h"

/* NumPy's warnings name the line that called. A call out of alight's or NumPy's own Python files is therefore
   left to the hooks, which look for the user's line. */
enum { KNOWN = 64 };
static PyObject *known_code[KNOWN]; /* code found to be the user's, by address */

bool called_by_user(void)
{
    PyFrameObject *frame = PyEval_GetFrame();
    if (frame == NULL || hooks->inside == NULL || !PyTuple_CheckExact(hooks->inside)) {
        return false;
    }
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    PyObject **known = &known_code[((size_t)code >> 5) % KNOWN];
    bool users = *known == code;
    if (!users) {
        users = true;
        for (Py_ssize_t i = 0; users && i < PyTuple_GET_SIZE(hooks->inside); i++) {
            PyObject *prefix = PyTuple_GET_ITEM(hooks->inside, i), *path = ((PyCodeObject *)code)->co_filename;
            users = PyUnicode_Check(prefix) && PyUnicode_Tailmatch(path, prefix, 0, PY_SSIZE_T_MAX, -1) == 0;
        }
        if (users) {
            Py_XSETREF(*known, Py_NewRef(code));
        }
    }
    Py_DECREF(code);
    return users;
}

/* Tell whether work of fewer elements than a floor is done at once. While a thread is traced, what is read must be
   told. */
bool may_do_below(Py_ssize_t least) { return (floors->traced == 0 || least == OUTRIGHT) && least > 0 && called_by_user(); }

/* Find the elements below which work is NumPy's. False where none is, or with an error set. */
bool may_do(Py_ssize_t *least)
{
    if (!floor_in_force(least) || !may_do_below(*least)) {
        return false;
    }
    *least = site_floor(*least);
    return true;
}

/* Return an operand as NumPy takes it. */
PyObject *operand(PyObject *item, npy_intp least)
{
    if (is_ours(item)) {
        return bytes_at_hand((Array *)item, least);
    }
    bool plain = PyFloat_CheckExact(item) || PyLong_CheckExact(item) || PyBool_Check(item) || PyComplex_CheckExact(item)
        || (PyArray_CheckExact(item) && PyArray_SIZE((PyArrayObject *)item) < least)
        || PyArray_IsScalar(item, Number) || PyArray_IsScalar(item, Bool);
    return plain ? Py_NewRef(item) : NULL;
}

/* The same, of a scalar that NumPy made that scalar: where NumPy takes either. */
PyObject *operand_as_made(PyObject *item, npy_intp least)
{
    PyObject *made = made_of(item);
    return made != NULL && !PyArray_CheckExact(made) && least > 1 ? Py_NewRef(made) : operand(item, least);
}

/* The dtypes that alight computes with. */
bool is_native(PyArray_Descr *dtype)
{
    int number = dtype->type_num;
    bool computed = PyTypeNum_ISBOOL(number) || PyTypeNum_ISINTEGER(number) || PyTypeNum_ISFLOAT(number) || PyTypeNum_ISCOMPLEX(number);
    return computed && number != NPY_LONGDOUBLE && number != NPY_CLONGDOUBLE && PyArray_ISNBO(dtype->byteorder);
}

/* Return a value that takes over a fresh ndarray: dense, with memory of its own. */
Value *fresh_value(PyObject *array)
{
    PyObject *layout = layout_of(NULL, array), *errstate = NULL;
    Value *value = NULL;
    if (layout != NULL) {
        layout_keep(layout);
    }
    if (layout != NULL && PyContextVar_Get(numpy_errstate, NULL, &errstate) == 0) {
        value = value_new(Py_None, Py_NewRef(empty_tuple), layout, errstate);
        PyObject *data = value == NULL ? NULL : data_of(layout, array);
        if (data != NULL) {
            Py_SETREF(value->data, data);
        } else {
            Py_CLEAR(value);
        }
    }
    Py_XDECREF(errstate);
    Py_XDECREF(layout);
    return value;
}

bool is_fresh(PyObject *object)
{
    PyArrayObject *array = (PyArrayObject *)object;
    return PyArray_CheckExact(object) && PyArray_BASE(array) == NULL
        && ((PyArray_IS_C_CONTIGUOUS(array) && PyArray_SIZE(array) > 0) || strides_are_dense(PyArray_NDIM(array), PyArray_DIMS(array), PyArray_STRIDES(array), PyArray_ITEMSIZE(array)));
}

PyObject *take_over(PyObject *module, PyObject *array)
{
    if (!is_fresh(array)) {
        Py_RETURN_NONE;
    }
    return (PyObject *)fresh_value(array);
}

/* Return a fresh ndarray as an array of ours; consumes it. */
static PyObject *adopted(PyObject *array) { return array_made_of((PyTypeObject *)hooks->array, array); }

/* Tell whether an object is a scalar of NumPy's of a dtype that alight computes with. */
static bool is_native_scalar(PyObject *object)
{
    PyTypeObject *const types[] = {
        &PyDoubleArrType_Type, &PyBoolArrType_Type, &PyLongArrType_Type, &PyFloatArrType_Type, &PyIntArrType_Type,
        &PyCDoubleArrType_Type, &PyLongLongArrType_Type, &PyULongArrType_Type, &PyUIntArrType_Type, &PyULongLongArrType_Type,
        &PyByteArrType_Type, &PyUByteArrType_Type, &PyShortArrType_Type, &PyUShortArrType_Type, &PyHalfArrType_Type,
        &PyCFloatArrType_Type,
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (Py_IS_TYPE(object, types[i])) {
            return true;
        }
    }
    return false;
}

/* Return a NumPy scalar as an array of ours; consumes it. NULL without an error: its dtype is not alight's. */
PyObject *scalar_adopted(PyObject *scalar)
{
    if (!is_native_scalar(scalar)) {
        Py_DECREF(scalar);
        return NULL;
    }
    return array_made_of((PyTypeObject *)hooks->array, scalar);
}

PyObject *fresh_array(PyObject *module, PyObject *made)
{
    PyObject *found = NULL;
    if (!floors->traced && !floors->scalars) {
        if (is_scalar(made)) {
            found = scalar_adopted(Py_NewRef(made));
        } else if (is_fresh(made) && is_native(PyArray_DESCR((PyArrayObject *)made))) {
            found = adopted(Py_NewRef(made));
        }
    }
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

/* Tell whether NumPy made several things: a tuple, one with names, or a list. */
bool is_several(PyObject *made)
{
    return PyTuple_CheckExact(made) || PyList_CheckExact(made)
        || (PyTuple_Check(made) && PyObject_HasAttrString((PyObject *)Py_TYPE(made), "_fields"));
}

/* Return what NumPy made as what the front door promises; consumes it. */
PyObject *taken_over(PyObject *made, npy_intp least)
{
    if (made == NULL) {
        return NULL;
    }
    least = array_floor(least);
    bool plain = floors->scalars || least == OUTRIGHT;
    if (!PyArray_CheckExact(made) && is_native_scalar(made)) {
        return plain ? made : array_made_of((PyTypeObject *)hooks->array, made);
    }
    if (PyArray_CheckExact(made)) {
        PyArrayObject *array = (PyArrayObject *)made;
        if (!is_native(PyArray_DESCR(array)) || (plain && PyArray_SIZE(array) < least)) {
            return made;
        }
        if (is_fresh(made) && PyArray_NDIM(array) > 0) { /* the hook keeps those without axes from scalars */
            return adopted(made);
        }
    } else if (is_scalar(made)) {
        return plain || PyArray_IsScalar(made, LongDouble) || PyArray_IsScalar(made, CLongDouble)
            ? made
            : scalar_adopted(made);
    } else if (is_several(made)) {
        Py_ssize_t count = PySequence_Fast_GET_SIZE(made);
        PyObject *results = PyTuple_New(count);
        for (Py_ssize_t i = 0; results != NULL && i < count; i++) {
            PyObject *item = taken_over(Py_NewRef(PySequence_Fast_GET_ITEM(made, i)), least);
            if (item == NULL) {
                Py_CLEAR(results);
            } else {
                PyTuple_SET_ITEM(results, i, item);
            }
        }
        if (results != NULL && PyList_CheckExact(made)) {
            Py_SETREF(results, PySequence_List(results));
        } else if (results != NULL && !PyTuple_CheckExact(made)) {
            Py_SETREF(results, PyObject_CallObject((PyObject *)Py_TYPE(made), results));
        }
        Py_DECREF(made);
        return results;
    }
    PyObject *hook = hooks->wrap == NULL ? NULL : Py_NewRef(hooks->wrap);
    PyObject *result = hook == NULL ? NULL : PyObject_CallOneArg(hook, made);
    Py_XDECREF(hook);
    Py_DECREF(made);
    return result;
}
