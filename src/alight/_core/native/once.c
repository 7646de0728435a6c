/* Small work on bytes that are at hand: NumPy does it at once, and nothing in Python stands between.
   Every function here returns its result, NULL with an error, or NULL without one: then the hook is asked,
   which does the same, or records. */
#include "core.h"

/* NumPy's warnings name the line that called. A call out of alight's or NumPy's own Python files is therefore
   left to the hooks, which look for the user's line. */
enum { KNOWN = 64 };
static PyObject *known_code[KNOWN]; /* code found to be the user's, by address */

static bool called_by_user(void)
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

/* Find the elements below which work is NumPy's. False where none is, or with an error set. While a thread is
   traced, what is read must be told. */
bool may_do(Py_ssize_t *least)
{
    return floor_in_force(least) && (floors->traced == 0 || *least == OUTRIGHT) && *least > 0 && called_by_user();
}

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

static PyObject *bytes_of(Array *array, npy_intp least, bool write)
{
    Layout *layout = window_of(array);
    Storage *storage = (Storage *)array->storage;
    if (layout == NULL || layout->size >= least || !is_value(storage->value)) {
        return NULL;
    }
    Value *value = (Value *)storage->value;
    bool whole = array->window == Py_None;
    if (is_pending(value) || !is_layout(value->layout)) {
        return NULL;
    }
    if (value->data == Py_None) {
        bool constant = whole && !write && value->attrs != NULL && PyArray_CheckExact(value->attrs);
        return constant ? Py_NewRef(value->attrs) : NULL;
    }
    Data *data = (Data *)value->data;
    if (!is_data(value->data) || data->array == NULL || !PyArray_CheckExact(data->array)) {
        return NULL;
    }
    PyArrayObject *owner = (PyArrayObject *)data->array;
    if (write
        && (overlaps_itself(layout) || (!whole && !((View *)array->window)->writeable) || data->remote != Py_None
            || storage->lease != Py_None || !PyArray_ISWRITEABLE(owner) || !may_write(storage)
            /* of the caller's memory nothing is deferred in a body that was given up */
            || (data->foreign ? !outright() : Py_REFCNT(value) > 1 || Py_REFCNT(data) > 1))) {
        return NULL;
    }
    npy_intp offset = value->offset + (whole ? 0 : ((View *)array->window)->offset);
    if (data->layout == (PyObject *)layout && offset == 0) {
        return Py_NewRef(data->array);
    }
    if (layout->size == 0 && offset > PyArray_NBYTES(owner)) { /* of no rows of three columns, the second */
        offset = PyArray_NBYTES(owner);
    }
    if (!lies_within(layout, offset, PyArray_NBYTES(owner))) {
        return NULL;
    }
    PyObject *result = PyArray_NewFromDescr(
        &PyArray_Type, (PyArray_Descr *)Py_NewRef(layout->dtype), (int)layout->ndim, layout->numbers,
        layout->numbers + layout->ndim, PyArray_BYTES(owner) + offset, PyArray_FLAGS(owner) & NPY_ARRAY_WRITEABLE, NULL);
    if (result != NULL && PyArray_SetBaseObject((PyArrayObject *)result, Py_NewRef(data->array)) < 0) {
        Py_CLEAR(result);
    }
    return result;
}

/* Return an ndarray over the bytes of an array of ours of fewer elements than ``least``, where they are at hand, to
   be read. NULL, without an error unless memory is out, where not. */
PyObject *bytes_at_hand(Array *array, npy_intp least) { return bytes_of(array, least, false); }

/* The same to be written, which only the case is where nobody needs the old ones: in one's turn, which the caller
   ends (end_turn). */
PyObject *bytes_to_write(Array *array, npy_intp least, Storage **turn)
{
    PyObject *bytes = bytes_of(array, least, true);
    *turn = NULL;
    if (bytes != NULL) {
        Storage *storage = *turn = (Storage *)Py_NewRef(array->storage);
        begin_write(storage);
        if (storage->open == NULL) { /* NumPy may let other threads run: what they copy meanwhile is not kept */
            storage->open = Py_NewRef(((Value *)storage->value)->data);
            ((Data *)storage->open)->writing++;
        }
    }
    return bytes;
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

/* The dtypes that alight computes with. */
bool is_native(PyArray_Descr *dtype)
{
    int number = dtype->type_num;
    bool computed = PyTypeNum_ISBOOL(number) || PyTypeNum_ISINTEGER(number) || PyTypeNum_ISFLOAT(number) || PyTypeNum_ISCOMPLEX(number);
    return computed && number != NPY_LONGDOUBLE && number != NPY_CLONGDOUBLE && PyArray_ISNBO(dtype->byteorder);
}

/* Return a value that takes over a fresh ndarray: dense, with memory of its own. */
static Value *value_over(PyObject *array)
{
    PyObject *layout = layout_of(NULL, array), *errstate = NULL;
    Value *value = NULL;
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
        && strides_are_dense(PyArray_NDIM(array), PyArray_DIMS(array), PyArray_STRIDES(array), PyArray_ITEMSIZE(array));
}

PyObject *take_over(PyObject *module, PyObject *array)
{
    if (!is_fresh(array)) {
        Py_RETURN_NONE;
    }
    return (PyObject *)value_over(array);
}

/* Return a fresh ndarray as an array of ours; consumes it. */
static PyObject *adopted(PyObject *array)
{
    Value *value = value_over(array);
    PyObject *result = value == NULL ? NULL : array_new((PyTypeObject *)hooks->array, value);
    Py_XDECREF(value);
    Py_DECREF(array);
    return result;
}

/* Return a NumPy scalar as an array of ours; consumes it. NULL without an error: its dtype is not alight's. */
static PyObject *scalar_adopted(PyObject *scalar)
{
    PyObject *array = PyArray_FromScalar(scalar, NULL);
    Py_DECREF(scalar);
    if (array == NULL || !is_native(PyArray_DESCR((PyArrayObject *)array))) {
        Py_XDECREF(array);
        return NULL;
    }
    return adopted(array);
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

/* Tell whether an operand is a whole number of ours without axes. */
static bool is_whole_number(PyObject *item)
{
    Layout *layout = is_ours(item) ? window_of((Array *)item) : NULL;
    return layout != NULL && layout->ndim == 0 && PyTypeNum_ISINTEGER(((PyArray_Descr *)layout->dtype)->type_num);
}

/* Tell whether arithmetic on operands may be on whole numbers without axes: NumPy's scalars warn where they
   overflow, and its arrays do not; the hook tells them apart. */
static bool may_overflow(binaryfunc run, PyObject *left, PyObject *right)
{
    bool computes = run == PyNumber_Add || run == PyNumber_Subtract || run == PyNumber_Multiply
        || run == PyNumber_InPlaceAdd || run == PyNumber_InPlaceSubtract || run == PyNumber_InPlaceMultiply;
    return computes && (is_whole_number(left) || is_whole_number(right));
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

PyObject *once_binary(binaryfunc run, PyObject *left, PyObject *right)
{
    Py_ssize_t least;
    if (!may_do(&least)) {
        return NULL;
    }
    PyObject *both[2] = {operand(left, least), NULL};
    both[1] = both[0] == NULL ? NULL : operand(right, least);
    bool small = both[1] != NULL && !outgrow(both, 2, least, run == PyNumber_MatrixMultiply)
        && (!may_overflow(run, left, right) || cannot_overflow(both));
    PyObject *result = small ? taken_over(run(both[0], both[1]), least) : NULL;
    Py_XDECREF(both[0]);
    Py_XDECREF(both[1]);
    return result;
}

PyObject *once_unary(unaryfunc run, PyObject *array)
{
    Py_ssize_t least;
    if (!may_do(&least)) {
        return NULL;
    }
    PyObject *one = operand(array, least), *zero = NULL;
    bool small = one != NULL;
    if (small && (run == PyNumber_Negative || run == PyNumber_Absolute) && is_whole_number(array)) {
        zero = PyLong_FromLong(0);
        PyObject *both[2] = {run == PyNumber_Negative ? zero : one, run == PyNumber_Negative ? one : zero};
        small = zero != NULL && cannot_overflow(both); /* as what is taken from nothing, or as it is */
        Py_XDECREF(zero);
    }
    PyObject *result = small ? taken_over(run(one), least) : NULL;
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

PyObject *once_in_place(binaryfunc run, PyObject *array, PyObject *other)
{
    Py_ssize_t least;
    if (!is_ours(array) || !may_do(&least)) {
        return NULL;
    }
    Storage *turn = NULL;
    PyObject *item = operand(other, least), *target = item == NULL ? NULL : bytes_to_write((Array *)array, least, &turn);
    bool small = target != NULL && (!may_overflow(run, array, array) || stays_in_place(target, item));
    PyObject *result = small ? run(target, item) : NULL;
    end_turn(turn);
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

/* Return the view of an array that an ndarray made from its layout's probe says. */
PyObject *view_over(PyTypeObject *type, Array *self, PyObject *window, PyObject *probe)
{
    if (window != probe && PyArray_BASE((PyArrayObject *)window) != probe) {
        PyErr_SetString(PyExc_RuntimeError, "NumPy made a copy of an array where a view was asked for");
        return NULL;
    }
    View *outer = self->window == Py_None ? NULL : (View *)self->window;
    npy_intp offset = PyArray_BYTES((PyArrayObject *)window) - PyArray_BYTES((PyArrayObject *)probe);
    PyObject *layout = layout_of(NULL, window);
    PyObject *view = layout == NULL ? NULL
                                    : view_new(layout, offset + (outer == NULL ? 0 : outer->offset), outer == NULL || outer->writeable);
    PyObject *result = view == NULL ? NULL : array_over(type, self->storage, view);
    Py_XDECREF(view);
    Py_XDECREF(layout);
    return result;
}

static PyObject *view_at(Array *self, Layout *parent, PyObject *key, int kind)
{
    PyObject *probe = PyObject_GetAttrString((PyObject *)parent, "probe");
    PyObject *window = probe == NULL ? NULL : picked(probe, key, kind);
    PyObject *result = window == NULL ? NULL : view_over((PyTypeObject *)hooks->array, self, window, probe);
    Py_XDECREF(window);
    Py_XDECREF(probe);
    return result;
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

PyObject *at_hand(PyObject *module, PyObject *array)
{
    if (!expect_type(array, &ArrayType, "array")) {
        return NULL;
    }
    PyObject *found = floors->traced && !outright() ? NULL : bytes_at_hand((Array *)array, NPY_MAX_INTP);
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_None);
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
    Layout *layout = is_ours(array) ? window_of(self) : NULL;
    int kind = layout == NULL ? FANCY : kind_of(key, layout->ndim);
    bool plain = kind != FANCY && outright();
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
    PyObject *target = NULL, *value = operand(item, least);
    if (value != NULL) {
        target = bytes_to_write(self, NPY_MAX_INTP, &turn);
    }
    if (target != NULL && layout->size >= least && kind != ELEMENT) {
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
