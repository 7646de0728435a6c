/* Operators and stores at the border: where one operand, or the place, is a package's. */
#include "border.h"

/* Return what is to be stored in a place of an object: its own for one of the program. */
static PyObject *stored(Border *self, PyObject *value, PyObject *place, const char *by)
{
    if (live_arrays == 0 || border_is_closed(value) || PyList_CheckExact(place) || PyDict_CheckExact(place) || is_ours(place)
        || PyArray_CheckExact(place))
        return Py_NewRef(value);
    PyObject *method = PyObject_GetAttrString((PyObject *)Py_TYPE(place), by);
    if (method == NULL) {
        PyErr_Clear(); /* the store itself says so */
        return Py_NewRef(value);
    }
    int verdict = border_verdict(self, method);
    Py_DECREF(method);
    if (verdict != FOREIGN && strcmp(by, "__setattr__") == 0) { /* object's own: then whose class it is */
        PyObject *module = PyObject_GetAttrString((PyObject *)Py_TYPE(place), "__module__");
        if (module == NULL) return NULL;
        verdict = border_judged(self, self->by_origin, module, module);
        Py_DECREF(module);
    }
    if (verdict < 0) return NULL;
    return verdict == FOREIGN ? PyObject_CallOneArg(self->give, value) : Py_NewRef(value);
}

static PyObject *raised(PyObject *base, PyObject *power) { return PyNumber_Power(base, power, Py_None); }

static PyObject *raised_in_place(PyObject *base, PyObject *power) { return PyNumber_InPlacePower(base, power, Py_None); }

static PyObject *has(PyObject *holder, PyObject *item)
{
    int found = PySequence_Contains(holder, item);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

static PyObject *without(PyObject *holder, PyObject *key)
{
    return PyObject_DelItem(holder, key) < 0 ? NULL : Py_NewRef(Py_None);
}

#define COMPARED(name, how) \
    static PyObject *name(PyObject *one, PyObject *other) { return PyObject_RichCompare(one, other, how); }
COMPARED(is_less, Py_LT)
COMPARED(is_less_or_equal, Py_LE)
COMPARED(is_equal, Py_EQ)
COMPARED(is_unequal, Py_NE)
COMPARED(is_more, Py_GT)
COMPARED(is_more_or_equal, Py_GE)

static PyObject *is_itself(PyObject *one, PyObject *other) { return PyBool_FromLong(one == other); }

/* In the order of OPERATORS of jit/border.py. */
static const binaryfunc operators[] = {
    PyNumber_Add, PyNumber_Subtract, PyNumber_Multiply, PyNumber_TrueDivide, PyNumber_FloorDivide, PyNumber_Remainder,
    raised, PyNumber_MatrixMultiply, PyNumber_Lshift, PyNumber_Rshift, PyNumber_And, PyNumber_Or, PyNumber_Xor,
    is_less, is_less_or_equal, is_equal, is_unequal, is_more, is_more_or_equal, is_itself, PyNumber_Divmod,
    PyNumber_InPlaceAdd, PyNumber_InPlaceSubtract, PyNumber_InPlaceMultiply, PyNumber_InPlaceTrueDivide,
    PyNumber_InPlaceFloorDivide, PyNumber_InPlaceRemainder, raised_in_place, PyNumber_InPlaceMatrixMultiply,
    PyNumber_InPlaceLshift, PyNumber_InPlaceRshift, PyNumber_InPlaceAnd, PyNumber_InPlaceOr, PyNumber_InPlaceXor,
    has, PyObject_GetItem, without,
};
enum { OPERATOR_COUNT = sizeof operators / sizeof *operators, IN_PLACE = 21, OF_HOLDERS = 34 };

/* Tell whether two objects are one to the program: a package's attributes and containers have the ndarray of an Array. */
static PyObject *is_one(Border *self, PyObject *one, PyObject *other)
{
    bool ours = PyObject_TypeCheck(one, &ArrayType), theirs = PyObject_TypeCheck(other, &ArrayType);
    PyObject *array = ours ? one : other, *kept = ours ? other : one;
    if (ours == theirs || !PyArray_CheckExact(kept)) return is_itself(one, other);
    PyObject *back = border_left(self, Py_NewRef(kept), Py_None), *found = back == NULL ? NULL : is_itself(back, array);
    Py_XDECREF(back);
    return found;
}

/* Do an operation on two operands: where one is a package's it is given the ndarrays of the other. */
PyObject *border_operate(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    Border *self = (Border *)object;
    Py_ssize_t which = nargs == 3 ? PyLong_AsSsize_t(args[0]) : -1;
    if (which < 0 || which >= OPERATOR_COUNT) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "an operator's number and two operands are taken");
        return NULL;
    }
    PyObject *one = args[1], *other = args[2], *result = NULL;
    if (operators[which] == is_itself) return is_one(self, one, other);
    /* Of what is changed or looked into only an Array is another thing to a package. */
    bool gives_one = which < IN_PLACE ? border_may_hold(one) : which < OF_HOLDERS && PyObject_TypeCheck(one, &ArrayType);
    bool gives_other = border_may_hold(other);
    if (live_arrays == 0 || !(gives_one || gives_other)) return operators[which](one, other);
    int first = gives_other ? border_described(self, Py_TYPE(one)) : 0, second = gives_one ? border_described(self, Py_TYPE(other)) : 0;
    if (first < 0 || second < 0) return NULL;
    gives_one = gives_one && second & A_PACKAGES;
    gives_other = gives_other && first & A_PACKAGES;
    if (!(gives_one || gives_other)) return operators[which](one, other);
    one = gives_one ? PyObject_CallOneArg(self->give, one) : Py_NewRef(one);
    other = one != NULL && gives_other ? PyObject_CallOneArg(self->give, other) : Py_NewRef(other);
    if (one != NULL && other != NULL) result = operators[which](one, other);
    Py_XDECREF(one);
    Py_XDECREF(other);
    return border_left(self, result, Py_None);
}

PyObject *border_set_item(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    Border *self = (Border *)object;
    if (nargs != 3) return PyErr_Format(PyExc_TypeError, "a value, a container and a key are taken, not %zd", nargs);
    PyObject *value = stored(self, args[0], args[1], "__setitem__"), *key = NULL;
    if (value == NULL) return NULL;
    int foreign = live_arrays > 0 && border_may_hold(args[2]) ? border_described(self, Py_TYPE(args[1])) : 0;
    if (foreign >= 0) key = foreign & A_PACKAGES ? PyObject_CallOneArg(self->give, args[2]) : Py_NewRef(args[2]);
    int done = key == NULL ? -1 : PyObject_SetItem(args[1], key, value);
    Py_DECREF(value);
    Py_XDECREF(key);
    if (done < 0) return NULL;
    Py_RETURN_NONE;
}

PyObject *border_set_attribute(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3) return PyErr_Format(PyExc_TypeError, "a value, an object and a name are taken, not %zd", nargs);
    PyObject *value = stored((Border *)self, args[0], args[1], "__setattr__");
    int done = value == NULL ? -1 : PyObject_SetAttr(args[1], args[2], value);
    Py_XDECREF(value);
    if (done < 0) return NULL;
    Py_RETURN_NONE;
}

/* Exchange an item of a list or a dict, unless another thread has stored something else there. */
PyObject *border_swap(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4) return PyErr_Format(PyExc_TypeError, "a holder, a place, an old and a new item are taken, not %zd", nargs);
    PyObject *holder = args[0], *place = args[1];
    if (PyDict_Check(holder)) {
        PyObject *found = PyDict_GetItemWithError(holder, place);
        if (found == NULL && PyErr_Occurred()) return NULL;
        if (found == args[2] && PyDict_SetItem(holder, place, args[3]) < 0) return NULL;
    } else if (PyList_Check(holder)) {
        Py_ssize_t at = PyLong_AsSsize_t(place);
        if (at == -1 && PyErr_Occurred()) return NULL;
        bool same = at >= 0 && at < PyList_GET_SIZE(holder) && PyList_GET_ITEM(holder, at) == args[2];
        if (same && PyList_SetItem(holder, at, Py_NewRef(args[3])) < 0) return NULL;
    } else {
        return PyErr_Format(PyExc_TypeError, "items of lists and dicts are exchanged, not of %s", Py_TYPE(holder)->tp_name);
    }
    Py_RETURN_NONE;
}
