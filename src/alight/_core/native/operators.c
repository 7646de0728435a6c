/* Operators of arrays: they record, the fast way here, every other way through the hooks. */
#include "core.h"

typedef struct {
    PyObject *op, *same, *weak;  /* the op's own memos; NULL where it has none */
    PyObject *pace;              /* its row of the table of paces */
} Operator;

enum {
    ADD, SUBTRACT, MULTIPLY, DIVIDE, FLOOR_DIVIDE, REMAINDER, DIVMOD, POWER, LEFT_SHIFT, RIGHT_SHIFT,
    BITWISE_AND, BITWISE_OR, BITWISE_XOR, MATMUL, EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL,
    NEGATIVE, POSITIVE, ABSOLUTE, INVERT, OPERATORS
};
static const char *const operator_names[OPERATORS] = {
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "divmod", "power", "left_shift",
    "right_shift", "bitwise_and", "bitwise_or", "bitwise_xor", "matmul", "equal", "not_equal", "less", "less_equal",
    "greater", "greater_equal", "negative", "positive", "absolute", "invert",
};
static Operator operators[OPERATORS];
PyObject *operators_by_name;

/* Return, borrowed, the value of an array that is the whole of its storage, with a layout, and with no bytes
   that others may see; else NULL. */
static inline Value *whole_value(PyObject *object)
{
    Array *array = (Array *)object;
    if (array->window != Py_None || storage_of(array) == NULL || !Py_IS_TYPE(array->storage, &StorageType)) {
        return NULL;
    }
    Value *value = (Value *)((Storage *)array->storage)->value;
    if (!is_value((PyObject *)value) || !is_layout(value->layout)) {
        return NULL;
    }
    PyObject *data = value->data;
    return data == Py_None || (is_data(data) && !((Data *)data)->shared) ? value : NULL;
}

/* Find the error state an op is recorded under now; false where it may not be, and with an error set. */
static inline bool may_record(PyObject **state) { return errors_may_wait(state) && *state != NULL; }

/* Tell whether an op on a value is recorded though it has fewer elements than a floor: what is pending always is. */
static inline bool goes_on(Value *value, npy_intp least) { return is_pending(value) && least != OUTRIGHT; }

static inline PyObject *pair(PyObject *first, PyObject *second)
{
    PyObject *tuple = PyTuple_New(2);
    if (tuple != NULL) {
        PyTuple_SET_ITEM(tuple, 0, Py_NewRef(first));
        PyTuple_SET_ITEM(tuple, 1, Py_NewRef(second));
    }
    return tuple;
}

/* Return an array of a new value of one operand or, where ``second`` is not NULL, of two, which the caller holds.
   ``elements`` count as pending. */
static PyObject *record(PyTypeObject *type, PyObject *op, PyObject *first, PyObject *second, PyObject *out, PyObject *state, npy_intp elements)
{
    /* Counting can flush, and that runs any code, as the collector does: what is borrowed here is held meanwhile. */
    Py_INCREF(op);
    Py_INCREF(out);
    Py_INCREF(state);
    PyObject *result = NULL, *operands = second == NULL ? PyTuple_Pack(1, first) : pair(first, second);
    Value *value = NULL;
    if (operands != NULL && count_recorded(elements)) {
        value = value_new(op, operands, out, state);
    } else {
        Py_XDECREF(operands);
    }
    if (value != NULL) {
        PyFrameObject *frame = PyEval_GetFrame();
        if (frame != NULL) {
            value->code = (PyObject *)PyFrame_GetCode(frame);
            value->instruction = PyFrame_GetLasti(frame);
        }
        result = array_new(type, value);
        Py_DECREF(value);
    }
    Py_DECREF(op);
    Py_DECREF(out);
    Py_DECREF(state);
    return result;
}

/* A fast way returns its result, NULL with an error, or NULL without one: then the hook is asked. */

/* Record an op on whole values of one layout: one, or two where ``right`` is not NULL. */
static PyObject *record_whole(Operator *operator, PyTypeObject *type, Value *left, Value *right, npy_intp least)
{
    npy_intp elements = ((Layout *)left->layout)->size;
    bool few = elements < least && !goes_on(left, least) && (right == NULL || !goes_on(right, least));
    PyObject *out = operator->same == NULL || few ? NULL : PyDict_GetItemWithError(operator->same, left->layout);
    PyObject *state, *result = NULL;
    if (!is_layout(out)) {
        return NULL;
    }
    Py_INCREF(left);
    Py_XINCREF(right);
    Py_INCREF(out);
    if (may_record(&state)) {
        result = record(type, operator->op, (PyObject *)left, (PyObject *)right, out, state, elements);
    }
    Py_DECREF(left);
    Py_XDECREF(right);
    Py_DECREF(out);
    return result;
}

static PyObject *record_same(Operator *operator, PyTypeObject *type, Value *left, Value *right, npy_intp least)
{
    bool same = left != NULL && right != NULL && left->layout == right->layout;
    return same ? record_whole(operator, type, left, right, least) : NULL;
}

static PyObject *record_unary(Operator *operator, PyTypeObject *type, Value *value, npy_intp least)
{
    return value == NULL ? NULL : record_whole(operator, type, value, NULL, least);
}

static inline bool is_weak(PyObject *object) { return PyFloat_CheckExact(object) || PyLong_CheckExact(object); }

/* Return a value of a Python scalar in a 0-d layout's dtype. */
static PyObject *constant(PyObject *scalar, PyObject *layout, PyObject *state)
{
    PyArray_Descr *dtype = (PyArray_Descr *)Py_NewRef(((Layout *)layout)->dtype);
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, dtype, 0, NULL, NULL, NULL, 0, NULL);
    if (array == NULL) {
        return NULL;
    }
    Value *value = NULL;
    if (PyArray_Pack(PyArray_DESCR((PyArrayObject *)array), PyArray_BYTES((PyArrayObject *)array), scalar) == 0) {
        value = value_new(Py_None, Py_NewRef(empty_tuple), layout, state);
    }
    if (value != NULL) {
        Py_SETREF(value->attrs, Py_NewRef(array));
    }
    Py_DECREF(array);
    return (PyObject *)value;
}

/* Record an op on a whole value, which the caller holds, and a scalar; ``reverse``: that is the left operand. */
static PyObject *record_scalar(Operator *operator, PyTypeObject *type, Value *value, PyObject *scalar, bool reverse)
{
    PyObject *kind = (PyObject *)Py_TYPE(scalar), *state, *result = NULL;
    PyObject *key = reverse ? pair(kind, value->layout) : pair(value->layout, kind);
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(operator->weak, key);
    Py_XDECREF(key);
    if (found == NULL || !PyTuple_CheckExact(found) || PyTuple_GET_SIZE(found) != 2
        || !is_layout(PyTuple_GET_ITEM(found, 0)) || !is_layout(PyTuple_GET_ITEM(found, 1))) {
        return NULL;
    }
    npy_intp elements = ((Layout *)value->layout)->size;
    Py_INCREF(found);
    if (may_record(&state)) {
        Py_INCREF(state);
        PyObject *other = constant(scalar, PyTuple_GET_ITEM(found, 1), state);
        if (other != NULL) {
            PyObject *left = reverse ? other : (PyObject *)value, *right = reverse ? (PyObject *)value : other;
            result = record(type, operator->op, left, right, PyTuple_GET_ITEM(found, 0), state, elements);
            Py_DECREF(other);
        } else if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();  /* the hook knows which ops can take an integer that does not fit */
        }
        Py_DECREF(state);
    }
    Py_DECREF(found);
    return result;
}

static PyObject *record_weak(Operator *operator, PyObject *array, PyObject *scalar, bool reverse, npy_intp least)
{
    Value *value = whole_value(array);
    if (value == NULL || (((Layout *)value->layout)->size < least && !goes_on(value, least)) || operator->weak == NULL || PyDict_GET_SIZE(operator->weak) == 0) {
        return NULL;
    }
    Py_INCREF(value);
    PyObject *result = record_scalar(operator, Py_TYPE(array), value, scalar, reverse);
    Py_DECREF(value);
    return result;
}

/* What NumPy's own operator calls on ndarrays: it looks at exponents, and compares what has no loop. */
static PyObject *numpy_power(PyObject *left, PyObject *right)
{
    PyArrayObject *base = PyArray_CheckExact(left) ? (PyArrayObject *)left : NULL;
    if (base != NULL && PyArray_NDIM(base) == 0 && PyArray_ISBOOL(base)) {
        return NULL; /* the hook says whether it stands for a scalar, whose square is of another type */
    }
    return PyNumber_Power(left, right, Py_None);
}
static PyObject *numpy_in_place_power(PyObject *left, PyObject *right) { return PyNumber_InPlacePower(left, right, Py_None); }
#define COMPARISON(name, how) \
    static PyObject *numpy_##name(PyObject *left, PyObject *right) { return PyObject_RichCompare(left, right, how); }
COMPARISON(equal, Py_EQ)
COMPARISON(not_equal, Py_NE)
COMPARISON(less, Py_LT)
COMPARISON(less_equal, Py_LE)
COMPARISON(greater, Py_GT)
COMPARISON(greater_equal, Py_GE)

static const binaryfunc numpy_binary[NEGATIVE] = {
    PyNumber_Add, PyNumber_Subtract, PyNumber_Multiply, PyNumber_TrueDivide, PyNumber_FloorDivide, PyNumber_Remainder,
    PyNumber_Divmod, numpy_power, PyNumber_Lshift, PyNumber_Rshift, PyNumber_And, PyNumber_Or, PyNumber_Xor,
    PyNumber_MatrixMultiply, numpy_equal, numpy_not_equal, numpy_less, numpy_less_equal, numpy_greater, numpy_greater_equal,
};
static const unaryfunc numpy_unary[OPERATORS - NEGATIVE] = {
    PyNumber_Negative, PyNumber_Positive, PyNumber_Absolute, PyNumber_Invert,
};
static const binaryfunc numpy_in_place[EQUAL] = {
    PyNumber_InPlaceAdd, PyNumber_InPlaceSubtract, PyNumber_InPlaceMultiply, PyNumber_InPlaceTrueDivide,
    PyNumber_InPlaceFloorDivide, PyNumber_InPlaceRemainder, NULL, numpy_in_place_power, PyNumber_InPlaceLshift,
    PyNumber_InPlaceRshift, PyNumber_InPlaceAnd, PyNumber_InPlaceOr, PyNumber_InPlaceXor, PyNumber_InPlaceMatrixMultiply,
};

PyObject *ask_array_hook(PyObject *hook, const char *name, PyObject *op, PyObject *left, PyObject *right)
{
    if (hook == NULL || op == NULL) {
        PyErr_Format(hook == NULL ? PyExc_AttributeError : PyExc_KeyError, "%s", name);
        return NULL;
    }
    PyObject *stack[4] = {NULL, op, left, right};
    Py_INCREF(hook);
    Py_INCREF(op);
    PyObject *result = PyObject_Vectorcall(hook, stack + 1, (right == NULL ? 2 : 3) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_DECREF(op);
    Py_DECREF(hook);
    return result;
}

/* Return the row of an op; NumPy's operator calls others for some powers. */
static PyObject *pace_of(Operator *operator, PyObject *right)
{
    static const struct { double exponent; const char *name; } quick[] = {{2.0, "square"}, {0.5, "sqrt"}, {-1.0, "reciprocal"}, {1.0, "positive"}};
    if (operator != &operators[POWER] || !is_weak(right) || floors->paces == NULL || !PyDict_CheckExact(floors->paces)) {
        return operator->pace;
    }
    double exponent = PyFloat_CheckExact(right) ? PyFloat_AS_DOUBLE(right) : PyLong_AsDouble(right);
    PyErr_Clear(); /* too large for any */
    for (size_t i = 0; i < sizeof(quick) / sizeof(quick[0]); i++) {
        if (exponent == quick[i].exponent) {
            return PyDict_GetItemString(floors->paces, quick[i].name);
        }
    }
    return operator->pace;
}

static PyObject *binary(int index, PyObject *left, PyObject *right)
{
    Operator *operator = &operators[index];
    PyObject *result = NULL;
    Py_ssize_t least;
    if (!floor_in_force(&least)) {
        return NULL;
    }
    if ((result = once_few(numpy_binary[index], left, right, least)) != NULL || PyErr_Occurred()) {
        return result;
    }
    PyObject *items[2] = {left, right};
    least = op_floor(pace_of(operator, right), items, 2, site_floor(least));
    /* What NumPy has just made is mostly small; who asks for its storage makes one. */
    bool fresh = made_of(left) != NULL || made_of(right) != NULL;
    if (fresh && ((result = once_binary(numpy_binary[index], left, right, least)) != NULL || PyErr_Occurred())) {
        return result;
    }
    if (fresh) { /* which runs any code: what is borrowed below stays what it is */
        if (made_of(left) != NULL) storage_of((Array *)left);
        if (made_of(right) != NULL) storage_of((Array *)right);
    }
    if (Py_TYPE(left) == Py_TYPE(right)) {
        result = record_same(operator, Py_TYPE(left), whole_value(left), whole_value(right), least);
    } else if (is_weak(right)) {
        result = record_weak(operator, left, right, false, least);
    } else if (is_weak(left)) {
        result = record_weak(operator, right, left, true, least);
    }
    if (result != NULL || PyErr_Occurred()
        || (!fresh && ((result = once_binary(numpy_binary[index], left, right, least)) != NULL || PyErr_Occurred()))) {
        return result;
    }
    return ask_array_hook(hooks->binary, operator->op == NULL ? operator_names[index] : "binary", operator->op, left, right);
}

static PyObject *unary(int index, PyObject *array)
{
    Operator *operator = &operators[index];
    PyObject *result = NULL;
    Py_ssize_t least;
    if (!floor_in_force(&least)) {
        return NULL;
    }
    least = op_floor(operator->pace, &array, 1, site_floor(least));
    bool fresh = made_of(array) != NULL;
    if (fresh && ((result = once_unary(numpy_unary[index - NEGATIVE], array, least)) != NULL || PyErr_Occurred())) {
        return result;
    }
    result = record_unary(operator, Py_TYPE(array), whole_value(array), least);
    if (result != NULL || PyErr_Occurred()
        || (!fresh && ((result = once_unary(numpy_unary[index - NEGATIVE], array, least)) != NULL || PyErr_Occurred()))) {
        return result;
    }
    return ask_array_hook(hooks->unary, operator->op == NULL ? operator_names[index] : "unary", operator->op, array, NULL);
}

static PyObject *in_place(int index, PyObject *array, PyObject *other)
{
    Operator *operator = &operators[index];
    PyObject *result = once_in_place(numpy_in_place[index], array, other);
    if (result != NULL || PyErr_Occurred()) {
        return result;
    }
    return ask_array_hook(hooks->in_place, operator->op == NULL ? operator_names[index] : "in_place", operator->op, array, other);
}

#define IN_PLACE(slot, index) \
    static PyObject *array_in_place_##slot(PyObject *array, PyObject *other) { return in_place(index, array, other); }
#define BINARY(slot, index) \
    static PyObject *array_##slot(PyObject *left, PyObject *right) { return binary(index, left, right); }
#define UNARY(slot, index) \
    static PyObject *array_##slot(PyObject *array) { return unary(index, array); }

BINARY(add, ADD)
BINARY(subtract, SUBTRACT)
BINARY(multiply, MULTIPLY)
BINARY(true_divide, DIVIDE)
BINARY(floor_divide, FLOOR_DIVIDE)
BINARY(remainder, REMAINDER)
BINARY(divmod, DIVMOD)
BINARY(lshift, LEFT_SHIFT)
BINARY(rshift, RIGHT_SHIFT)
BINARY(and, BITWISE_AND)
BINARY(or, BITWISE_OR)
BINARY(xor, BITWISE_XOR)
BINARY(matmul, MATMUL)
UNARY(negative, NEGATIVE)
UNARY(positive, POSITIVE)
UNARY(absolute, ABSOLUTE)
UNARY(invert, INVERT)

IN_PLACE(add, ADD)
IN_PLACE(subtract, SUBTRACT)
IN_PLACE(multiply, MULTIPLY)
IN_PLACE(true_divide, DIVIDE)
IN_PLACE(floor_divide, FLOOR_DIVIDE)
IN_PLACE(remainder, REMAINDER)
IN_PLACE(lshift, LEFT_SHIFT)
IN_PLACE(rshift, RIGHT_SHIFT)
IN_PLACE(and, BITWISE_AND)
IN_PLACE(or, BITWISE_OR)
IN_PLACE(xor, BITWISE_XOR)
IN_PLACE(matmul, MATMUL)

static PyObject *array_in_place_power(PyObject *array, PyObject *other, PyObject *modulus)
{
    if (modulus != Py_None) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    return in_place(POWER, array, other);
}

static PyObject *array_power(PyObject *left, PyObject *right, PyObject *modulus)
{
    /* With a modulus the arguments need not be arrays at all; NumPy has no such power. */
    if (modulus != Py_None) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    return binary(POWER, left, right);
}

PyNumberMethods array_number = {
    .nb_add = array_add,
    .nb_subtract = array_subtract,
    .nb_multiply = array_multiply,
    .nb_true_divide = array_true_divide,
    .nb_floor_divide = array_floor_divide,
    .nb_remainder = array_remainder,
    .nb_divmod = array_divmod,
    .nb_power = array_power,
    .nb_lshift = array_lshift,
    .nb_rshift = array_rshift,
    .nb_and = array_and,
    .nb_or = array_or,
    .nb_xor = array_xor,
    .nb_matrix_multiply = array_matmul,
    .nb_negative = array_negative,
    .nb_positive = array_positive,
    .nb_absolute = array_absolute,
    .nb_invert = array_invert,
    .nb_inplace_add = array_in_place_add,
    .nb_inplace_subtract = array_in_place_subtract,
    .nb_inplace_multiply = array_in_place_multiply,
    .nb_inplace_true_divide = array_in_place_true_divide,
    .nb_inplace_floor_divide = array_in_place_floor_divide,
    .nb_inplace_remainder = array_in_place_remainder,
    .nb_inplace_power = array_in_place_power,
    .nb_inplace_lshift = array_in_place_lshift,
    .nb_inplace_rshift = array_in_place_rshift,
    .nb_inplace_and = array_in_place_and,
    .nb_inplace_or = array_in_place_or,
    .nb_inplace_xor = array_in_place_xor,
    .nb_inplace_matrix_multiply = array_in_place_matmul,
};

PyObject *array_compare(PyObject *left, PyObject *right, int how)
{
    static const int index[] = {
        [Py_LT] = LESS, [Py_LE] = LESS_EQUAL, [Py_EQ] = EQUAL, [Py_NE] = NOT_EQUAL, [Py_GT] = GREATER, [Py_GE] = GREATER_EQUAL,
    };
    return binary(index[how], left, right);
}

PyObject *set_operators(PyObject *module, PyObject *table)
{
    for (int i = 0; i < OPERATORS; i++) {
        PyObject *name = PyUnicode_FromString(operator_names[i]);
        PyObject *op = name == NULL ? NULL : PyObject_GetItem(table, name);
        bool set = op != NULL && PyDict_SetItem(operators_by_name, name, op) == 0;
        PyObject *pace = set && floors->paces != NULL && PyDict_CheckExact(floors->paces) ? PyDict_GetItem(floors->paces, name) : NULL;
        Py_XDECREF(name);
        if (!set) {
            Py_XDECREF(op);
            return NULL;
        }
        Py_XSETREF(operators[i].pace, Py_XNewRef(pace));
        PyObject **memos[] = {&operators[i].same, &operators[i].weak};
        static const char *const names[] = {"same", "weak"};
        for (int k = 0; k < 2; k++) {
            PyObject *memo = PyObject_GetAttrString(op, names[k]);
            PyErr_Clear();
            if (memo != NULL && !PyDict_CheckExact(memo)) {
                Py_CLEAR(memo);
            }
            Py_XSETREF(*memos[k], memo);
        }
        Py_XSETREF(operators[i].op, op);
    }
    Py_RETURN_NONE;
}
