/* NumPy's functions and methods, called at once on small arrays; as in once.c, NULL without an error: the function
   of ours is to be asked. */
#include "core.h"

static PyObject *numpy_matmul;

bool calls_ready(void)
{
    PyObject *umath = PyImport_ImportModule("numpy._core.umath");
    numpy_matmul = umath == NULL ? NULL : PyObject_GetAttrString(umath, "matmul");
    Py_XDECREF(umath);
    return numpy_matmul != NULL;
}

enum { MOST = 8, LISTED = 32, DEEP = NPY_MAXDIMS }; /* arguments; arrays in a list; lists in lists */

/* Tell whether two matrices of few elements, rows by columns, are a large one. */
static bool product_outgrows(PyObject *one, PyObject *other, npy_intp least)
{
    PyArrayObject *a = (PyArrayObject *)one, *b = (PyArrayObject *)other;
    if (!PyArray_CheckExact(one) || !PyArray_CheckExact(other) || PyArray_NDIM(a) < 2 || PyArray_NDIM(b) < 2) {
        return false;
    }
    npy_intp summed = PyArray_DIM(a, PyArray_NDIM(a) - 1);
    return summed > 0 && summed == PyArray_DIM(b, PyArray_NDIM(b) - 2)
        && PyArray_SIZE(b) / summed >= (least + PyArray_SIZE(a) / summed - 1) / (PyArray_SIZE(a) / summed);
}

/* Tell whether operands that are small themselves make a large result, broadcast against each other, as a product of
   matrices, or either way: ours sees what becomes of it. */
bool outgrow(PyObject *const *items, Py_ssize_t count, npy_intp least, Growth growth)
{
    npy_intp most = 1, elements = 1;
    int axes = 0, arrays = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyArray_CheckExact(items[i]) && PyArray_NDIM((PyArrayObject *)items[i]) > 0) {
            PyArrayObject *array = (PyArrayObject *)items[i];
            npy_intp few = PyArray_SIZE(array);
            if (few == 0) {
                return false; /* and no length of any is 0 below */
            }
            most = most < least ? most * few : most; /* both are less than `least`, or it is enough */
            axes = PyArray_NDIM(array) > axes ? PyArray_NDIM(array) : axes;
            arrays++;
        }
    }
    if (arrays < 2 || most < least) {
        return false;
    }
    if (growth != BROADCAST && count == 2 && product_outgrows(items[0], items[1], least)) {
        return true;
    }
    if (growth == PRODUCT) {
        return false;
    }
    for (int k = 1; k <= axes; k++) {
        npy_intp length = 1;
        for (Py_ssize_t i = 0; i < count; i++) {
            PyArrayObject *array = PyArray_CheckExact(items[i]) ? (PyArrayObject *)items[i] : NULL;
            npy_intp own = array != NULL && k <= PyArray_NDIM(array) ? PyArray_DIM(array, PyArray_NDIM(array) - k) : 1;
            if (own != length && own != 1 && length != 1) {
                return false; /* NumPy says so */
            }
            length = own > length ? own : length;
        }
        if (elements >= least) {
            continue; /* it is enough, unless the shapes do not fit */
        }
        elements *= length;
    }
    return elements >= least;
}

static inline bool is_list(PyObject *item) { return PyTuple_CheckExact(item) || PyList_CheckExact(item); }

/* Tell whether an argument is plain data: numbers, words, dtypes, and lists of them, of less than ``left`` items. */
bool is_plain_data(PyObject *item, npy_intp *left, int depth)
{
    if (is_list(item)) {
        Py_ssize_t count = PySequence_Fast_GET_SIZE(item);
        *left -= count;
        for (Py_ssize_t i = 0; *left > 0 && depth < DEEP && i < count; i++) {
            if (!is_plain_data(PySequence_Fast_GET_ITEM(item, i), left, depth + 1)) {
                return false;
            }
        }
        return *left > 0 && depth < DEEP;
    }
    return PyFloat_CheckExact(item) || PyLong_CheckExact(item) || PyBool_Check(item) || PyComplex_CheckExact(item)
        || item == Py_None || PyUnicode_CheckExact(item) || PyArray_DescrCheck(item) || PyType_Check(item)
        || PyArray_IsScalar(item, Number) || PyArray_IsScalar(item, Bool);
}

static bool is_named(PyObject *name, const char *word) { return PyUnicode_CompareWithASCIIString(name, word) == 0; }

/* Return what a ufunc gives of small operands, of those that it reads by ``where`` too, or writes into its ``out``. */
PyObject *once_call(PyObject *function, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *plain[MOST], *read[MOST], *out = NULL, **place = NULL, *result = NULL;
    Py_ssize_t least, reads = 0, named = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames), count = 0;
    if (nargs + named > MOST || !may_do(&least)) {
        return NULL;
    }
    bool product = function == numpy_matmul;
    npy_intp most = !product ? ufunc_floor(function, args, nargs, least) : nargs == 2 && named == 0 ? paced_product(args[0], args[1], least) : least;
    for (; count < nargs + named; count++) {
        PyObject *item = args[count], *name = count < nargs ? NULL : PyTuple_GET_ITEM(kwnames, count - nargs);
        npy_intp left = MOST;
        if (name == NULL || is_named(name, "where")) {
            plain[count] = operand(item, most);
            read[reads++] = plain[count];
        } else if (is_named(name, "out")) {
            plain[count] = is_ours(item) ? Py_NewRef(item) : NULL; /* until what is read is known */
            place = &plain[count];
            out = item;
        } else {
            bool says = is_named(name, "dtype") || is_named(name, "casting");
            plain[count] = says && is_plain_data(item, &left, 0) ? Py_NewRef(item) : NULL;
        }
        if (plain[count] == NULL) {
            break;
        }
    }
    bool small = count == nargs + named && !outgrow(read, reads, most, product ? PRODUCT : BROADCAST);
    Writing writing = {NULL, NULL, 0, NULL};
    PyObject *target = small && out != NULL ? bytes_to_write((Array *)out, most, &writing) : NULL;
    small = small && (out == NULL ? !PyErr_Occurred() : target != NULL);
    if (target != NULL) {
        Py_SETREF(*place, target);
    }
    SiteWork work = small ? begin_work(read, reads, least, product) : (SiteWork){0};
    if (small) {
        result = PyObject_Vectorcall(function, plain, nargs, kwnames);
    }
    if (target != NULL) {
        end_writing(&writing);
        if (result != NULL) {
            Py_SETREF(result, Py_NewRef(out));
        }
    } else {
        result = taken_over(result, least);
    }
    end_work(work);
    while (count > 0) {
        Py_DECREF(plain[--count]);
    }
    return result;
}

/* Return an argument that is read as NumPy takes it: an array, plain data, or a few of them in a list. */
static PyObject *taken_in(PyObject *item, npy_intp least)
{
    npy_intp left = least;
    if (is_ours(item)) {
        return operand(item, least);
    }
    if (is_plain_data(item, &left, 0)) {
        return Py_NewRef(item);
    }
    if (!is_list(item)) {
        return operand(item, least);
    }
    Py_ssize_t count = PySequence_Fast_GET_SIZE(item);
    PyObject *plain = count > LISTED ? NULL : PyTuple_New(count);
    for (Py_ssize_t i = 0; plain != NULL && i < count; i++) {
        PyObject *one = operand(PySequence_Fast_GET_ITEM(item, i), least);
        if (one == NULL) {
            Py_CLEAR(plain);
        } else {
            PyTuple_SET_ITEM(plain, i, one);
        }
    }
    return plain;
}

/* Tell whether an array is a view of memory that nobody but it holds. */
static bool rests_alone(PyArrayObject *array)
{
    PyArrayObject *base = (PyArrayObject *)PyArray_BASE(array);
    return base != NULL && PyArray_CheckExact(base) && Py_REFCNT(base) == 1 && PyArray_BASE(base) == NULL
        && PyArray_CHKFLAGS(base, NPY_ARRAY_OWNDATA) && PyArray_ISWRITEABLE(array)
        && strides_are_dense(PyArray_NDIM(array), PyArray_DIMS(array), PyArray_STRIDES(array), PyArray_ITEMSIZE(array));
}

/* Tell whether what NumPy made is nobody else's: it rests on no memory of what it was made of. */
static bool is_own(PyObject *made)
{
    if (is_several(made)) {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(made); i++) {
            if (!is_own(PySequence_Fast_GET_ITEM(made, i))) {
                return false;
            }
        }
        return true;
    }
    if (PyArray_CheckExact(made)) {
        PyArrayObject *array = (PyArrayObject *)made;
        bool whole = PyArray_BASE(array) == NULL && PyArray_CHKFLAGS(array, NPY_ARRAY_OWNDATA);
        return Py_REFCNT(made) == 1 && (whole || rests_alone(array));
    }
    return is_scalar(made) || PyBool_Check(made) || PyLong_CheckExact(made) || PyFloat_CheckExact(made) || PyUnicode_CheckExact(made)
        || made == Py_None;
}

static bool is_without_axes(PyObject *item) { return PyArray_CheckExact(item) && PyArray_NDIM((PyArrayObject *)item) == 0; }

/* Drop an error that says which arguments NumPy takes: ours may take more (``descending``), and has its own name. */
static void leave_to_ours(PyObject *made)
{
    if (made == NULL && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_TypeError) && !is_interrupt()) {
        PyErr_Clear();
    }
}

/* Return what a function of NumPy's made, which may rest on its arguments, as ours; consumes it. */
static PyObject *resting(PyObject *function, PyObject *made, PyObject *const *args, PyObject *const *plain, Py_ssize_t nargs)
{
    PyObject *result = NULL, *hook = hooks->taken == NULL ? NULL : Py_NewRef(hooks->taken);
    for (Py_ssize_t i = 0; result == NULL && i < nargs; i++) {
        if (made == plain[i] && is_ours(args[i])) {
            result = Py_NewRef(args[i]);
        }
    }
    if (result == NULL && hook != NULL) {
        PyObject *given = PyTuple_New(nargs), *stood = PyTuple_New(nargs);
        for (Py_ssize_t i = 0; given != NULL && stood != NULL && i < nargs; i++) {
            PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
            PyTuple_SET_ITEM(stood, i, Py_NewRef(plain[i]));
        }
        if (given != NULL && stood != NULL) {
            result = PyObject_CallFunctionObjArgs(hook, made, given, stood, Py_IS_TYPE(function, &PyMethodDescr_Type) ? Py_True : Py_False, NULL);
        }
        Py_XDECREF(given);
        Py_XDECREF(stood);
    }
    if (result == Py_NotImplemented) {
        Py_CLEAR(result);
    }
    Py_XDECREF(hook);
    Py_DECREF(made);
    return result;
}

/* Return how many arguments a reduction was given beside its array; more than any has where one is not of those that
   leave NumPy as quick. */
static Py_ssize_t others(Py_ssize_t nargs, PyObject *kwnames)
{
    Py_ssize_t named = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        if (!is_named(name, "axis") && !is_named(name, "keepdims")) {
            return PY_SSIZE_T_MAX;
        }
    }
    return nargs > 2 ? PY_SSIZE_T_MAX : nargs - 1 + named;
}

/* Return what a function of NumPy's gives that reads arrays in its first arguments, so many, and has nothing to
   write into. */
PyObject *once_function(PyObject *function, Py_ssize_t operands, PyObject *pace, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *plain[MOST], *result = NULL;
    Py_ssize_t least, most, done = 0, named = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames), count = nargs + named;
    if (count > MOST || !may_do(&least)) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < named; i++) {
        if (is_named(PyTuple_GET_ITEM(kwnames, i), "device")) {
            return NULL; /* alight's own words say that there is but one */
        }
    }
    most = pace == Py_None || nargs == 0 ? least : operands == 1 ? paced_reduction(pace, args[0], others(nargs, kwnames), least)
        : count == 2 && named == 0 ? paced_product(args[0], args[1], least) : least;
    for (; done < count; done++) {
        npy_intp left = least;
        PyObject *item = args[done];
        bool read = done < operands && done < nargs;
        plain[done] = read ? taken_in(item, most) : is_plain_data(item, &left, 0) ? Py_NewRef(item) : NULL;
        if (plain[done] == NULL) {
            break;
        }
    }
    bool small = done == count && !outgrow(plain, nargs < operands ? nargs : operands, most, EITHER);
    bool product = operands == 2 && pace != Py_None;
    SiteWork work = small ? begin_work(plain, done, least, product) : (SiteWork){0};
    PyObject *made = small ? PyObject_Vectorcall(function, plain, nargs, kwnames) : NULL;
    end_work(work);
    leave_to_ours(made);
    /* of what has no axes, the hook knows whether it is an array or stands for a scalar */
    bool either = made != NULL && is_without_axes(made) && nargs > 0 && is_ours(args[0]) && is_without_axes(plain[0]);
    if (made != NULL && !either && is_own(made)) {
        result = taken_over(made, least);
    } else if (made != NULL) {
        result = resting(function, made, args, plain, nargs);
    }
    while (done > 0) {
        Py_DECREF(plain[--done]);
    }
    return result;
}

/* Return a key of which a part is an array, as NumPy takes it. ``arrays`` counts those. */
static PyObject *taken_key(PyObject *key, npy_intp least, int *arrays)
{
    npy_intp left = least;
    if (PyTuple_CheckExact(key)) {
        PyObject *plain = PyTuple_New(PyTuple_GET_SIZE(key));
        for (Py_ssize_t i = 0; plain != NULL && i < PyTuple_GET_SIZE(key); i++) {
            PyObject *part = PyTuple_CheckExact(PyTuple_GET_ITEM(key, i)) ? NULL : taken_key(PyTuple_GET_ITEM(key, i), least, arrays);
            if (part == NULL) {
                Py_CLEAR(plain);
            } else {
                PyTuple_SET_ITEM(plain, i, part);
            }
        }
        return plain;
    }
    if (PySlice_Check(key)) {
        PySliceObject *slice = (PySliceObject *)key;
        bool ends = is_plain_data(slice->start, &left, DEEP) && is_plain_data(slice->stop, &left, DEEP) && is_plain_data(slice->step, &left, DEEP);
        return ends ? Py_NewRef(key) : NULL;
    }
    if (key == Py_Ellipsis || key == Py_None || PyLong_CheckExact(key)) {
        return Py_NewRef(key);
    }
    *arrays += 1;
    if (PyList_CheckExact(key)) {
        return is_plain_data(key, &left, 0) ? Py_NewRef(key) : NULL;
    }
    PyObject *array = is_ours(key) || PyArray_CheckExact(key) ? operand(key, least) : NULL;
    if (array != NULL && (!PyArray_CheckExact(array) || PyArray_NDIM((PyArrayObject *)array) == 0)) {
        Py_CLEAR(array); /* alight takes those for integers */
    }
    return array;
}

/* Return the elements that a key picks of which a part is an array. */
PyObject *once_gather(PyObject *array, PyObject *key)
{
    Py_ssize_t least;
    int arrays = 0;
    if (!is_ours(array) || !may_do(&least)) {
        return NULL;
    }
    PyObject *plain = taken_key(key, least, &arrays), *result = NULL;
    PyObject *whole = plain == NULL || arrays == 0 ? NULL : bytes_at_hand((Array *)array, NPY_MAX_INTP);
    if (whole != NULL && is_native(PyArray_DESCR((PyArrayObject *)whole))) {
        result = taken_over(PyObject_GetItem(whole, plain), least);
    }
    Py_XDECREF(whole);
    Py_XDECREF(plain);
    return result;
}

/* Set those elements. 1: done; 0: the hook must; -1: an error. */
int once_scatter(PyObject *array, PyObject *key, PyObject *item)
{
    Py_ssize_t least;
    int arrays = 0, done = 0;
    if (!is_ours(array) || !may_do(&least)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *plain = taken_key(key, least, &arrays), *value = plain == NULL || arrays == 0 ? NULL : operand(item, least);
    Writing writing = {NULL, NULL, 0, NULL};
    PyObject *target = value == NULL ? NULL : bytes_to_write((Array *)array, least, &writing);
    if (target != NULL && is_native(PyArray_DESCR((PyArrayObject *)target))) {
        done = PyObject_SetItem(target, plain, value) < 0 ? -1 : 1;
    }
    end_writing(&writing);
    Py_XDECREF(target);
    Py_XDECREF(value);
    Py_XDECREF(plain);
    return PyErr_Occurred() ? -1 : done;
}

/* Return what a method of NumPy's gives that changes an array, args[0], in place. */
PyObject *once_change(PyObject *function, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *plain[MOST], *result = NULL;
    Py_ssize_t least, count = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    if (nargs < 1 || count > MOST || !is_ours(args[0]) || !may_do(&least)) {
        return NULL;
    }
    for (Py_ssize_t i = 1; i < count; i++) {
        npy_intp left = least;
        if (!is_plain_data(args[i], &left, 0)) {
            return NULL;
        }
        plain[i] = args[i];
    }
    Writing writing;
    plain[0] = bytes_to_write((Array *)args[0], least, &writing);
    if (plain[0] != NULL) {
        result = PyObject_Vectorcall(function, plain, nargs, kwnames);
        end_writing(&writing);
        leave_to_ours(result);
        Py_DECREF(plain[0]);
    }
    return result;
}

/* Return what a function gives of an array, args[0], that it reads, as it is: Python's number of one, and items. */
PyObject *once_ask(PyObject *function, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *plain[MOST], *result = NULL, *made = nargs > 0 ? made_of(args[0]) : NULL;
    bool of_number = PyType_Check(function);
    if (nargs < 1 || nargs > MOST || !is_ours(args[0]) || (of_number && nargs > 1) || (floors->traced && !outright())) {
        return NULL;
    }
    for (Py_ssize_t i = 1; i < nargs; i++) {
        npy_intp left = MOST;
        if (!is_plain_data(args[i], &left, 0)) {
            return NULL;
        }
        plain[i] = args[i];
    }
    plain[0] = of_number && made != NULL && !PyArray_CheckExact(made) ? Py_NewRef(made) : bytes_at_hand((Array *)args[0], NPY_MAX_INTP);
    bool axes = plain[0] != NULL && of_number && PyArray_CheckExact(plain[0]) && PyArray_NDIM((PyArrayObject *)plain[0]) > 0;
    bool imaginary = plain[0] != NULL && of_number && (PyArray_IsScalar(plain[0], ComplexFloating) ||
        (PyArray_CheckExact(plain[0]) && PyArray_ISCOMPLEX((PyArrayObject *)plain[0])));
    if (plain[0] != NULL && !axes && !imaginary) { /* of those NumPy warns, or they are refused */
        result = PyObject_Vectorcall(function, plain, nargs, NULL);
        if (result == NULL && !is_interrupt()) {
            PyErr_Clear(); /* ours meets it again, and words it */
        }
    }
    Py_XDECREF(plain[0]);
    return result;
}

/* Return the view that a function of NumPy's makes of an array, args[0], which it copies where it is not in C order. */
PyObject *once_view(PyObject *function, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *plain[MOST], *result = NULL;
    Layout *layout = nargs > 0 && nargs <= MOST && is_ours(args[0]) ? window_of((Array *)args[0]) : NULL;
    if (layout == NULL || layout->c_contiguous_object != Py_True) {
        return NULL;
    }
    for (Py_ssize_t i = 1; i < nargs; i++) {
        npy_intp left = MOST * DEEP;
        if (!is_plain_data(args[i], &left, 0)) {
            return NULL;
        }
        plain[i] = args[i];
    }
    Py_INCREF(layout);
    PyArrayObject *probe = (PyArrayObject *)layout_probe(layout, NULL);
    plain[0] = (PyObject *)probe;
    PyArrayObject *made = probe == NULL ? NULL : (PyArrayObject *)PyObject_Vectorcall(function, plain, nargs, NULL);
    if (made == NULL && probe != NULL && !is_interrupt()) {
        PyErr_Clear(); /* ours meets it again, with its frames where a setting keeps them */
    }
    if (made == probe) {
        result = made == NULL ? NULL : Py_NewRef(args[0]);
    } else if (made != NULL && PyArray_CheckExact(made) && PyArray_ISWRITEABLE(made) == PyArray_ISWRITEABLE(probe)
               && (PyArray_BASE(made) == (PyObject *)probe || PyArray_BASE(made) == PyArray_BASE(probe))) {
        result = view_over(Py_TYPE(args[0]), (Array *)args[0], (PyObject *)made, (PyObject *)probe);
    }
    Py_XDECREF(made);
    Py_XDECREF(probe);
    Py_DECREF(layout);
    return result;
}
