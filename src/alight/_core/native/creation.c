/* A creation function whose large results are adopted: what `alight run` puts where NumPy's own stood. */
#include "core.h"

typedef PyObject *(*Direct)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *weakrefs, *dict, *function, *settle, *convert, *fills, *writing;
    Direct direct; /* the C function behind ``function``, where it takes a vector and names; else NULL */
} Creation;

/* Return what NumPy's generators draw that are given no arrays, behind so many arguments of their own. NULL without an
   error: nothing was drawn. */
PyObject *once_draw(PyObject *function, Py_ssize_t own, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    enum { LISTED = 256 }; /* numbers in lists: of more the hook looks through them as quickly */
    Py_ssize_t least, count = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    npy_intp left = LISTED;
    if (nargs < own || !may_do(&least)) {
        return NULL;
    }
    for (Py_ssize_t i = own; i < count; i++) {
        if (!is_plain_data(args[i], &left, 0)) {
            return NULL;
        }
    }
    PyObject *made = PyObject_Vectorcall(function, args, nargs, kwnames), *hook = hooks->taken;
    if (made == NULL || !PyArray_CheckExact(made)) {
        return made;
    }
    if (PyArray_NDIM((PyArrayObject *)made) == 0) {
        return PyArray_Return((PyArrayObject *)made);
    }
    if (is_fresh(made) || hook == NULL) {
        return taken_over(made, least);
    }
    Py_INCREF(hook);
    PyObject *result = PyObject_CallFunctionObjArgs(hook, made, empty_tuple, empty_tuple, Py_False, NULL);
    Py_DECREF(hook);
    Py_DECREF(made);
    return result;
}

/* Find the elements from which on a new array is large. Before the floor is known, those from which on it is
   asked for. */
static bool large_from(Py_ssize_t *least)
{
    bool found = floor_in_force(least);
    *least = found && *least < 0 ? -*least : array_floor(*least);
    return found;
}

/* Read a shape, a length or a tuple of them, of fewer elements than ``least``. False: NumPy must be asked, and
   no error is set. */
static bool small_shape(PyObject *given, npy_intp least, int *ndim, npy_intp *shape, npy_intp *size)
{
    PyObject *const *lengths = &given;
    Py_ssize_t count = 1;
    if (PyTuple_CheckExact(given)) {
        lengths = &PyTuple_GET_ITEM(given, 0);
        count = PyTuple_GET_SIZE(given);
    }
    if (count > NPY_MAXDIMS) {
        return false;
    }
    *size = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        int overflow;
        long long length = PyLong_CheckExact(lengths[i]) ? PyLong_AsLongLongAndOverflow(lengths[i], &overflow) : -1;
        if (length < 0 || length > INT_MAX || *size > INT_MAX) {
            return false; /* wrong, or a product that may not fit */
        }
        shape[i] = (npy_intp)length;
        *size *= (npy_intp)length;
    }
    *ndim = (int)count;
    return *size < least;
}

/* Return what ``np.ones(shape)`` and ``np.full(shape, number)`` give for small shapes: NumPy's are Python
   functions, which cost three times what they do. NULL with no error: NumPy must be asked. */
static PyObject *filled(Creation *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    Py_ssize_t least;
    PyObject *number = self->fills;
    if (number == Py_Ellipsis) {
        number = nargs == 2 ? args[1] : NULL;
    } else if (nargs != 1) {
        number = NULL;
    }
    npy_intp shape[NPY_MAXDIMS], size;
    int ndim;
    if (number == NULL || kwnames != NULL || !large_from(&least)
        || !small_shape(args[0], least, &ndim, shape, &size)) {
        return NULL;
    }
    if (PyFloat_CheckExact(number)) {
        double value = PyFloat_AS_DOUBLE(number);
        PyObject *result = PyArray_EMPTY(ndim, shape, NPY_DOUBLE, 0);
        double *items = result == NULL ? NULL : PyArray_DATA((PyArrayObject *)result);
        for (npy_intp i = 0; items != NULL && i < size; i++) {
            items[i] = value;
        }
        return result;
    }
    int overflow = 1;
    long long value = PyLong_CheckExact(number) ? PyLong_AsLongLongAndOverflow(number, &overflow) : 0;
    if (overflow) {
        return NULL;
    }
    PyObject *result = PyArray_EMPTY(ndim, shape, NPY_INT64, 0);
    int64_t *items = result == NULL ? NULL : PyArray_DATA((PyArrayObject *)result);
    for (npy_intp i = 0; items != NULL && i < size; i++) {
        items[i] = (int64_t)value;
    }
    return result;
}

/* Whether one of the arguments is an array of ours. */
static bool any_of_ours(PyObject *const *args, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyObject_TypeCheck(args[i], &ArrayType)) {
            return true;
        }
    }
    return false;
}

static PyObject *creation_run(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Creation *self = (Creation *)object;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf), least;
    PyObject *result = NULL;
    if (self->convert != Py_None && nargs > 0 && PyObject_TypeCheck(args[0], &ArrayType)) {
        return PyObject_Vectorcall(self->convert, args, nargsf, kwnames);
    }
    Py_ssize_t given = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    if (self->writing != Py_None && any_of_ours(args, given)) {
        return PyObject_Vectorcall(self->writing, args, nargsf, kwnames);
    }
    if (self->fills != Py_None && ((result = filled(self, args, nargs, kwnames)) != NULL || PyErr_Occurred())) {
        return result;
    }
    result = self->direct != NULL ? self->direct(PyCFunction_GET_SELF(self->function), args, nargs, kwnames)
                                  : PyObject_Vectorcall(self->function, args, nargsf, kwnames);
    if (result == NULL || !PyArray_CheckExact(result) || Py_REFCNT(result) != 1) {
        return result;
    }
    if (!large_from(&least)) {
        Py_DECREF(result);
        return NULL;
    }
    if (PyArray_SIZE((PyArrayObject *)result) < least) {
        return result;
    }
    PyObject *settled = PyObject_CallOneArg(self->settle, result);
    Py_DECREF(result);
    return settled;
}

static PyObject *creation_call(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    static const char *const names[] = {"function", "settle", "convert", "fills", "writing", NULL};
    PyObject *taken[5] = {NULL, NULL, Py_None, Py_None, Py_None};
    if (!take_arguments("Creation", names, 2, args, nargsf, kwnames, taken)) {
        return NULL;
    }
    PyObject *functools = PyImport_ImportModule("functools");
    PyObject *dict = functools == NULL ? NULL : PyDict_New();
    Creation *self = dict == NULL ? NULL : PyObject_GC_New(Creation, &CreationType);
    if (self == NULL) {
        Py_XDECREF(dict);
        Py_XDECREF(functools);
        return NULL;
    }
    self->vectorcall = creation_run;
    self->weakrefs = NULL;
    self->dict = dict;
    self->function = Py_NewRef(taken[0]);
    self->settle = Py_NewRef(taken[1]);
    self->convert = Py_NewRef(taken[2]);
    self->fills = Py_NewRef(taken[3]);
    self->writing = Py_NewRef(taken[4]);
    self->direct = NULL;
    if (PyCFunction_CheckExact(taken[0]) && PyCFunction_GET_FLAGS(taken[0]) == (METH_FASTCALL | METH_KEYWORDS)) {
        self->direct = (Direct)(void (*)(void))PyCFunction_GET_FUNCTION(taken[0]);
    }
    PyObject_GC_Track(self);
    PyObject *dressed = PyObject_CallMethod(functools, "update_wrapper", "OO", self, taken[0]);
    Py_DECREF(functools);
    Py_DECREF(self);
    return dressed;
}

static int creation_traverse(Creation *self, visitproc visit, void *arg)
{
    Py_VISIT(self->dict);
    Py_VISIT(self->function);
    Py_VISIT(self->settle);
    Py_VISIT(self->convert);
    Py_VISIT(self->fills);
    Py_VISIT(self->writing);
    return 0;
}

static int creation_clear(Creation *self)
{
    /* The functions are called without a look, so they stay; a cycle goes through the dict or is broken
       by the functions' own clearing. */
    Py_CLEAR(self->dict);
    return 0;
}

static void creation_dealloc(Creation *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    Py_XDECREF(self->dict);
    Py_XDECREF(self->function);
    Py_XDECREF(self->settle);
    Py_XDECREF(self->convert);
    Py_XDECREF(self->fills);
    Py_XDECREF(self->writing);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *creation_repr(Creation *self) { return PyObject_Repr(self->function); }

static PyObject *creation_reduce(PyObject *self, PyObject *unused)
{
    /* As functions do it: found again by module and name. */
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyObject *creation_bind(PyObject *object, PyObject *instance, PyObject *owner)
{
    /* Among the functions wrapped are ones that become methods in a class body and ones that do not. */
    PyObject *function = ((Creation *)object)->function;
    if (instance == NULL || instance == Py_None || Py_TYPE(function)->tp_descr_get == NULL) {
        return Py_NewRef(object);
    }
    return PyMethod_New(object, instance);
}

static PyMethodDef creation_methods[] = {
    {"__reduce__", creation_reduce, METH_NOARGS, "Return the name under which the module of the function has it."},
    {NULL},
};

static PyGetSetDef creation_properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL},
};

PyTypeObject CreationType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Creation",
    .tp_basicsize = sizeof(Creation),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall = creation_call,
    .tp_vectorcall_offset = offsetof(Creation, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = (destructor)creation_dealloc,
    .tp_traverse = (traverseproc)creation_traverse,
    .tp_clear = (inquiry)creation_clear,
    .tp_weaklistoffset = offsetof(Creation, weakrefs),
    .tp_dictoffset = offsetof(Creation, dict),
    .tp_repr = (reprfunc)creation_repr,
    .tp_descr_get = creation_bind,
    .tp_methods = creation_methods,
    .tp_getset = creation_properties,
};
