/* The call guard in C; what it means is written in alight/_core/guard.py, its twin. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__) || defined(_M_X64)
#include <xmmintrin.h>
#else
#include <fenv.h>
#endif

#include "buffers.h"

#ifdef _WIN32
#include <windows.h>
#else
#include <time.h>
#endif

#define ENTRIES 8        /* as in the twin */
#define SAMPLED 16       /* as in the twin */
#define OPERANDS 64      /* a kernel's inputs and outputs that fit the stack; more go by the slow way */
#define UNLOCKED 32768   /* elements: giving up the GIL and taking it back costs some 0.1 us, a kernel this long 10 us */

typedef void (*kernel_function)(void **, int64_t *, int64_t *);

static FreshArray fresh_array;

/* ---------------------------------------------------------------- clock and flags */

static double now_seconds(void)
{
#ifdef _WIN32
    LARGE_INTEGER count, frequency;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&frequency);
    return (double)count.QuadPart / (double)frequency.QuadPart;
#else
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
#endif
}

/* Generated code computes in vector registers, whose flags are read ten times faster alone than with
   those of the old unit beside them. */
#if defined(__SSE2__) || defined(_M_X64)
#define WATCHED (_MM_EXCEPT_INVALID | _MM_EXCEPT_DIV_ZERO | _MM_EXCEPT_OVERFLOW)
static void clear_flags(void) { _mm_setcsr(_mm_getcsr() & ~(unsigned)_MM_EXCEPT_MASK); }
static int raised_flags(void) { return (int)(_mm_getcsr() & WATCHED); }
#else
static void clear_flags(void) { feclearexcept(FE_ALL_EXCEPT); }
static int raised_flags(void) { return fetestexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW); }
#endif

/* ---------------------------------------------------------------- entries */

typedef struct {
    PyTypeObject *kind;
    PyObject *item;      /* an example ndarray, a value that must be the same, or NULL */
    PyArray_Descr *descr;
    int writeable;
    int twin;            /* the first argument that must be this very ndarray, or -1 */
} Example;

typedef struct {
    PyObject *place, *name, *expected; /* name NULL: place is a cell */
} Found;

typedef struct {
    PyObject *variable, *fallback, *expected;
} Context;

typedef struct {
    PyArray_Descr *descr;
    int ndim, fortran, scalar;
    npy_intp *shape;
} Output;

typedef struct {
    PyObject_HEAD
    int open;            /* cleared by the collector: matches nothing any more */
    Py_ssize_t count, found_count, context_count, input_count, output_count, result_count;
    Example *examples;
    Found *found;
    Context *contexts;
    PyObject *absent;
    PyObject *call;
    long long left;
    kernel_function kernel;
    int64_t *dims, *strides;
    PyObject *keep;
    int *positions;
    intptr_t *offsets;
    Output *outputs;
    int *results;
    int form;            /* 0 one, 1 tuple, 2 list */
    int watched, unlocked;
    unsigned long long calls, sampled;
    double seconds;
    PyObject *weakrefs;
} Entry;

static int same_bits(PyObject *item, PyObject *other)
{
    PyTypeObject *kind = Py_TYPE(other);
    if (item == other && !PyArray_IsScalar(other, Generic)) return 1;
    if (kind == &PyFloat_Type)
        return memcmp(&((PyFloatObject *)item)->ob_fval, &((PyFloatObject *)other)->ob_fval, sizeof(double)) == 0;
    if (kind == &PyComplex_Type)
        return memcmp(&((PyComplexObject *)item)->cval, &((PyComplexObject *)other)->cval, sizeof(Py_complex)) == 0;
    if (kind == &PyLong_Type || kind == &PyUnicode_Type || kind == &PyBytes_Type)
        return PyObject_RichCompareBool(item, other, Py_EQ);
    if (kind == &PyBool_Type || other == Py_None) return item == other;
    if (PyArray_IsScalar(other, Double))
        return memcmp(&PyArrayScalar_VAL(item, Double), &PyArrayScalar_VAL(other, Double), sizeof(npy_double)) == 0;
    if (PyArray_IsScalar(other, Float))
        return memcmp(&PyArrayScalar_VAL(item, Float), &PyArrayScalar_VAL(other, Float), sizeof(npy_float)) == 0;
    if (PyArray_IsScalar(other, Integer)) return PyObject_RichCompareBool(item, other, Py_EQ);
    return 0;
}

static inline int like(const Example *example, PyObject *item)
{
    if (Py_TYPE(item) != example->kind) return 0;
    if (example->descr != NULL) {
        PyArrayObject *array = (PyArrayObject *)item, *own = (PyArrayObject *)example->item;
        int ndim = PyArray_NDIM(own);
        if (PyArray_DESCR(array) != example->descr &&
            !PyArray_EquivTypes(PyArray_DESCR(array), example->descr)) return 0;
        if (PyArray_NDIM(array) != ndim) return 0;
        for (int i = 0; i < ndim; i++)
            if (PyArray_DIM(array, i) != PyArray_DIM(own, i) ||
                PyArray_STRIDE(array, i) != PyArray_STRIDE(own, i)) return 0;
        int flags = PyArray_FLAGS(array);
        return (flags & NPY_ARRAY_ALIGNED) && ((flags & NPY_ARRAY_WRITEABLE) != 0) == example->writeable;
    }
    return example->item == NULL || same_bits(item, example->item);
}

/* 1: every guard holds; 0: not; -1: an error */
static int entry_matches(Entry *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != self->count || !self->open) return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const Example *example = &self->examples[i];
        int fits = like(example, args[i]);
        if (fits != 1) return fits;
        if (example->twin >= 0 && args[example->twin] != args[i]) return 0;
    }
    for (Py_ssize_t i = 0; i < self->found_count; i++) {
        const Found *found = &self->found[i];
        PyObject *value;
        if (found->name == NULL) {
            if (PyCell_GET(found->place) != found->expected) return 0;
            continue;
        }
        value = PyDict_GetItemWithError(found->place, found->name);
        if (value == NULL) {
            if (PyErr_Occurred()) return -1;
            value = self->absent;
        }
        if (value != found->expected) return 0;
    }
    for (Py_ssize_t i = 0; i < self->context_count; i++) {
        const Context *context = &self->contexts[i];
        PyObject *value = NULL;
        if (PyContextVar_Get(context->variable, context->fallback, &value) < 0) return -1;
        int same = value == context->expected;
        Py_XDECREF(value);
        if (!same) return 0;
    }
    return 1;
}

static PyObject *not_here(void)
{
    Py_INCREF(Py_NotImplemented);
    return Py_NotImplemented;
}

static PyObject *launch(Entry *self, PyObject *const *args)
{
    void *addresses[OPERANDS];
    PyObject *made[OPERANDS];
    Py_ssize_t inputs = self->input_count, outputs = self->output_count, done = 0;
    for (Py_ssize_t i = 0; i < inputs; i++) {
        int position = self->positions[i];
        char *base = position < 0 ? (char *)0 : (char *)PyArray_DATA((PyArrayObject *)args[position]);
        addresses[i] = (void *)((intptr_t)base + self->offsets[i]);
    }
    for (; done < outputs; done++) {
        Output *output = &self->outputs[done];
        Py_INCREF(output->descr);
        made[done] = fresh_array(output->descr, output->ndim, output->shape, NULL, output->fortran);
        if (made[done] == NULL) goto failed;
        addresses[inputs + done] = PyArray_DATA((PyArrayObject *)made[done]);
    }
    int heard = 0;
    if (self->unlocked) {
        kernel_function kernel = self->kernel;
        int64_t *dims = self->dims, *strides = self->strides;
        int watched = self->watched;
        Py_BEGIN_ALLOW_THREADS
        if (watched) clear_flags();
        kernel(addresses, dims, strides);
        if (watched) heard = raised_flags();
        Py_END_ALLOW_THREADS
    } else {
        if (self->watched) clear_flags();
        self->kernel(addresses, self->dims, self->strides);
        if (self->watched) heard = raised_flags();
    }
    if (heard) {
        clear_flags();
        while (done > 0) Py_DECREF(made[--done]);
        return not_here();
    }
    for (Py_ssize_t i = 0; i < outputs; i++)
        if (self->outputs[i].scalar && (made[i] = PyArray_Return((PyArrayObject *)made[i])) == NULL) goto failed;
    if (self->form == 0) {
        PyObject *only = Py_NewRef(made[self->results[0]]);
        while (done > 0) Py_DECREF(made[--done]);
        return only;
    }
    PyObject *result = self->form == 1 ? PyTuple_New(self->result_count) : PyList_New(self->result_count);
    if (result == NULL) goto failed;
    for (Py_ssize_t i = 0; i < self->result_count; i++) {
        PyObject *item = Py_NewRef(made[self->results[i]]);
        if (self->form == 1) PyTuple_SET_ITEM(result, i, item);
        else PyList_SET_ITEM(result, i, item);
    }
    while (done > 0) Py_DECREF(made[--done]);
    return result;
failed:
    while (done > 0) Py_XDECREF(made[--done]);
    return NULL;
}

static PyObject *answer(Entry *self, PyObject *const *args, Py_ssize_t count)
{
    if (self->call != NULL) return PyObject_Vectorcall(self->call, args, (size_t)count, NULL);
    return launch(self, args);
}

static PyObject *entry_run(Entry *self, PyObject *const *args, Py_ssize_t count)
{
    if (self->left == 0) return not_here();
    if (self->left > 0) self->left--;
    PyObject *result;
    self->calls++;
    if (self->calls % SAMPLED == 1) {
        double began = now_seconds();
        result = answer(self, args, count);
        self->seconds += now_seconds() - began;
        self->sampled++;
    } else {
        result = answer(self, args, count);
    }
    if (result == Py_NotImplemented && self->call == NULL) self->calls--;
    return result;
}

static int entry_clear(Entry *self)
{
    for (Py_ssize_t i = 0; i < self->count; i++) Py_CLEAR(self->examples[i].item);
    for (Py_ssize_t i = 0; i < self->found_count; i++) {
        Py_CLEAR(self->found[i].expected);
        Py_CLEAR(self->found[i].place);
    }
    Py_CLEAR(self->call);
    Py_CLEAR(self->keep);
    self->open = 0;
    return 0;
}

static int entry_traverse(Entry *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; i < self->count; i++) Py_VISIT(self->examples[i].item);
    for (Py_ssize_t i = 0; i < self->found_count; i++) {
        Py_VISIT(self->found[i].place);
        Py_VISIT(self->found[i].expected);
    }
    Py_VISIT(self->call);
    Py_VISIT(self->keep);
    return 0;
}

static void entry_dealloc(Entry *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) PyObject_ClearWeakRefs((PyObject *)self);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_XDECREF(self->examples[i].kind);
        Py_XDECREF(self->examples[i].descr);
    }
    for (Py_ssize_t i = 0; i < self->found_count; i++) Py_XDECREF(self->found[i].name);
    for (Py_ssize_t i = 0; i < self->context_count; i++) {
        Py_XDECREF(self->contexts[i].variable);
        Py_XDECREF(self->contexts[i].fallback);
        Py_XDECREF(self->contexts[i].expected);
    }
    for (Py_ssize_t i = 0; i < self->output_count; i++) {
        Py_XDECREF(self->outputs[i].descr);
        PyMem_Free(self->outputs[i].shape);
    }
    entry_clear(self);
    Py_XDECREF(self->absent);
    PyMem_Free(self->examples);
    PyMem_Free(self->found);
    PyMem_Free(self->contexts);
    PyMem_Free(self->positions);
    PyMem_Free(self->offsets);
    PyMem_Free(self->outputs);
    PyMem_Free(self->results);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* A zeroed array for each item of a sequence; the caller owns *fast. Returns 0 on an error. */
static void *room(PyObject *sequence, size_t size, PyObject **fast, Py_ssize_t *count)
{
    *fast = PySequence_Fast(sequence, "a sequence is needed");
    if (*fast == NULL) return NULL;
    *count = PySequence_Fast_GET_SIZE(*fast);
    void *memory = PyMem_Calloc((size_t)*count + 1, size);
    if (memory == NULL) PyErr_NoMemory();
    return memory;
}

/* Tell whether an item is a tuple that can be taken apart; if not, an error is set. */
static int is_tuple(PyObject *item, const char *meaning)
{
    if (PyTuple_Check(item)) return 1;
    PyErr_SetString(PyExc_TypeError, meaning);
    return 0;
}

static int read_pattern(Entry *self, PyObject *pattern, int values)
{
    PyObject *fast = NULL;
    Py_ssize_t count = 0;
    self->examples = room(pattern, sizeof(Example), &fast, &count);
    if (self->examples == NULL) { Py_XDECREF(fast); return -1; }
    self->count = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(fast, i);
        Example *example = &self->examples[i];
        example->kind = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(item));
        example->twin = -1;
        if (PyArray_CheckExact(item)) {
            PyArrayObject *array = (PyArrayObject *)item;
            example->descr = PyArray_DESCR(array);
            Py_INCREF(example->descr);
            example->writeable = (PyArray_FLAGS(array) & NPY_ARRAY_WRITEABLE) != 0;
            for (Py_ssize_t j = 0; j < i; j++)
                if (PySequence_Fast_GET_ITEM(fast, j) == item) { example->twin = (int)j; break; }
            /* The shape and strides alone, over memory of one element: the entry must not keep data alive. */
            Py_INCREF(example->descr);
            PyObject *one = PyArray_Zeros(0, NULL, example->descr, 0);
            if (one == NULL) { Py_DECREF(fast); return -1; }
            Py_INCREF(example->descr);
            example->item = PyArray_NewFromDescr(&PyArray_Type, example->descr, PyArray_NDIM(array),
                                                 PyArray_DIMS(array), PyArray_STRIDES(array),
                                                 PyArray_DATA((PyArrayObject *)one), 0, NULL);
            if (example->item == NULL) { Py_DECREF(one); Py_DECREF(fast); return -1; }
            if (PyArray_SetBaseObject((PyArrayObject *)example->item, one) < 0) { Py_DECREF(fast); return -1; }
        } else if (values) {
            example->item = Py_NewRef(item);
        }
    }
    Py_DECREF(fast);
    return 0;
}

static int read_found(Entry *self, PyObject *lookups)
{
    PyObject *fast = NULL;
    Py_ssize_t count = 0;
    self->found = room(lookups, sizeof(Found), &fast, &count);
    if (self->found == NULL) { Py_XDECREF(fast); return -1; }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *place, *name, *expected;
        PyObject *item = PySequence_Fast_GET_ITEM(fast, i);
        if (!is_tuple(item, "a lookup is (dict, name, object) or (cell, None, object)") ||
            !PyArg_ParseTuple(item, "OOO", &place, &name, &expected)) {
            Py_DECREF(fast);
            return -1;
        }
        if (name == Py_None ? !PyCell_Check(place) : !PyDict_Check(place)) {
            PyErr_SetString(PyExc_TypeError, "a lookup is (dict, name, object) or (cell, None, object)");
            Py_DECREF(fast);
            return -1;
        }
        Found *found = &self->found[i];
        found->place = Py_NewRef(place);
        found->name = name == Py_None ? NULL : Py_NewRef(name);
        found->expected = Py_NewRef(expected);
        self->found_count = i + 1;
    }
    Py_DECREF(fast);
    return 0;
}

static int read_contexts(Entry *self, PyObject *contexts)
{
    PyObject *fast = NULL;
    Py_ssize_t count = 0;
    self->contexts = room(contexts, sizeof(Context), &fast, &count);
    if (self->contexts == NULL) { Py_XDECREF(fast); return -1; }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *variable, *fallback, *expected;
        PyObject *item = PySequence_Fast_GET_ITEM(fast, i);
        if (!is_tuple(item, "a context is (variable, default, object)") ||
            !PyArg_ParseTuple(item, "OOO", &variable, &fallback, &expected) ||
            !PyContextVar_CheckExact(variable)) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a context is (variable, default, object)");
            Py_DECREF(fast);
            return -1;
        }
        self->contexts[i].variable = Py_NewRef(variable);
        self->contexts[i].fallback = Py_NewRef(fallback);
        self->contexts[i].expected = Py_NewRef(expected);
        self->context_count = i + 1;
    }
    Py_DECREF(fast);
    return 0;
}

static int read_kernel(Entry *self, PyObject *kernel, PyObject *inputs, PyObject *outputs, PyObject *results,
                       PyObject *scalars, PyObject *form)
{
    unsigned long long entry, dims, strides;
    PyObject *keep, *fast = NULL, *flags = NULL;
    Py_ssize_t count = 0;
    npy_intp largest = 0;
    if (!is_tuple(kernel, "a kernel is (address, dims, strides, keep)") ||
        !PyArg_ParseTuple(kernel, "KKKO", &entry, &dims, &strides, &keep)) return -1;
    self->kernel = (kernel_function)(uintptr_t)entry;
    self->dims = (int64_t *)(uintptr_t)dims;
    self->strides = (int64_t *)(uintptr_t)strides;
    self->keep = Py_NewRef(keep);
    self->form = form == Py_None ? 0 : form == (PyObject *)&PyTuple_Type ? 1 : 2;

    self->positions = room(inputs, sizeof(int), &fast, &count);
    self->offsets = PyMem_Calloc((size_t)count + 1, sizeof(intptr_t));
    if (self->positions == NULL || self->offsets == NULL) { Py_XDECREF(fast); return -1; }
    self->input_count = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        int position;
        long long offset;
        PyObject *item = PySequence_Fast_GET_ITEM(fast, i);
        if (!is_tuple(item, "an input is (position, offset) or (-1, address)") ||
            !PyArg_ParseTuple(item, "iL", &position, &offset)) {
            Py_DECREF(fast);
            return -1;
        }
        if (position >= self->count || (position >= 0 && self->examples[position].descr == NULL)) {
            PyErr_SetString(PyExc_ValueError, "a kernel's input is not the position of an ndarray");
            Py_DECREF(fast);
            return -1;
        }
        self->positions[i] = position;
        self->offsets[i] = (intptr_t)offset;
        if (position >= 0) {
            npy_intp size = PyArray_SIZE((PyArrayObject *)self->examples[position].item);
            if (size > largest) largest = size;
        }
    }
    Py_CLEAR(fast);

    self->outputs = room(outputs, sizeof(Output), &fast, &count);
    if (self->outputs == NULL) { Py_XDECREF(fast); return -1; }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(fast, i);
        if (!PyArray_CheckExact(item)) {
            PyErr_SetString(PyExc_TypeError, "outputs are ndarrays to make results like");
            Py_DECREF(fast);
            return -1;
        }
        PyArrayObject *array = (PyArrayObject *)item;
        Output *output = &self->outputs[i];
        output->ndim = PyArray_NDIM(array);
        output->shape = PyMem_Calloc((size_t)output->ndim + 1, sizeof(npy_intp));
        if (output->shape == NULL) { Py_DECREF(fast); PyErr_NoMemory(); return -1; }
        memcpy(output->shape, PyArray_DIMS(array), (size_t)output->ndim * sizeof(npy_intp));
        output->fortran = !PyArray_IS_C_CONTIGUOUS(array);
        output->descr = PyArray_DESCR(array);
        Py_INCREF(output->descr);
        self->output_count = i + 1;
        if (PyArray_SIZE(array) > largest) largest = PyArray_SIZE(array);
    }
    Py_CLEAR(fast);
    self->unlocked = largest >= UNLOCKED;
    if (self->input_count + self->output_count > OPERANDS) {
        PyErr_Format(PyExc_ValueError, "a kernel of %zd operands; the guard takes %d",
                     self->input_count + self->output_count, OPERANDS);
        return -1;
    }

    self->results = room(results, sizeof(int), &fast, &count);
    if (self->results == NULL) { Py_XDECREF(fast); return -1; }
    self->result_count = count;
    flags = PySequence_Fast(scalars, "scalars is a sequence");
    if (flags == NULL || PySequence_Fast_GET_SIZE(flags) != count || (self->form == 0 && count != 1)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "results and scalars do not go together");
        Py_DECREF(fast);
        Py_XDECREF(flags);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        long number = PyLong_AsLong(PySequence_Fast_GET_ITEM(fast, i));
        if (number < 0 || number >= self->output_count) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a result is not an output's position");
            Py_DECREF(fast);
            Py_DECREF(flags);
            return -1;
        }
        self->results[i] = (int)number;
        self->outputs[number].scalar = PyObject_IsTrue(PySequence_Fast_GET_ITEM(flags, i));
    }
    Py_DECREF(fast);
    Py_DECREF(flags);
    return 0;
}

static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"pattern", "lookups", "absent", "contexts", "values", "call", "left", "kernel", "inputs",
                            "outputs", "results", "scalars", "form", "watched", NULL};
    PyObject *pattern, *lookups, *absent, *contexts, *call = Py_None, *kernel = Py_None, *form = Py_None;
    PyObject *inputs = NULL, *outputs = NULL, *results = NULL, *scalars = NULL;
    int values = 1, watched = 0;
    long long left = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO|pOLOOOOOOp:Entry", names, &pattern, &lookups, &absent,
                                     &contexts, &values, &call, &left, &kernel, &inputs, &outputs, &results,
                                     &scalars, &form, &watched))
        return NULL;
    Entry *self = (Entry *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->absent = Py_NewRef(absent);
    self->left = left;
    self->watched = watched;
    self->open = 1;
    if (read_pattern(self, pattern, values) < 0 || read_found(self, lookups) < 0 ||
        read_contexts(self, contexts) < 0) goto failed;
    if (call != Py_None) {
        self->call = Py_NewRef(call);
    } else if (kernel == Py_None || inputs == NULL || outputs == NULL || results == NULL || scalars == NULL) {
        PyErr_SetString(PyExc_TypeError, "an entry needs a function to call, or a kernel with its operands");
        goto failed;
    } else if (read_kernel(self, kernel, inputs, outputs, results, scalars, form) < 0) {
        goto failed;
    }
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static PyObject *entry_matches_method(Entry *self, PyObject *args)
{
    if (!PyTuple_Check(args)) { PyErr_SetString(PyExc_TypeError, "arguments come in a tuple"); return NULL; }
    int fits = entry_matches(self, PySequence_Fast_ITEMS(args), PyTuple_GET_SIZE(args));
    return fits < 0 ? NULL : PyBool_FromLong(fits);
}

static PyObject *entry_run_method(Entry *self, PyObject *args)
{
    if (!PyTuple_Check(args) || PyTuple_GET_SIZE(args) != self->count) {
        PyErr_SetString(PyExc_TypeError, "arguments come in a tuple that the entry matches");
        return NULL;
    }
    return entry_run(self, PySequence_Fast_ITEMS(args), PyTuple_GET_SIZE(args));
}

static PyObject *entry_take(Entry *self, PyObject *Py_UNUSED(ignored))
{
    unsigned long long calls = self->calls;
    double seconds = self->sampled ? self->seconds / (double)self->sampled * (double)calls : 0.0;
    self->calls = self->sampled = 0;
    self->seconds = 0.0;
    return Py_BuildValue("Kd", calls, seconds);
}

static PyMethodDef entry_methods[] = {
    {"matches", (PyCFunction)entry_matches_method, METH_O, "Tell whether every guard holds for these arguments."},
    {"run", (PyCFunction)entry_run_method, METH_O,
     "Return the results, or NotImplemented where they must be had in another way."},
    {"take", (PyCFunction)entry_take, METH_NOARGS,
     "Return the calls since the last time and their seconds, estimated from those that were timed."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject EntryType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._guard.Entry",
    .tp_basicsize = sizeof(Entry),
    .tp_dealloc = (destructor)entry_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Guards, and what to do where they hold: launch one kernel, or call a function.",
    .tp_traverse = (traverseproc)entry_traverse,
    .tp_clear = (inquiry)entry_clear,
    .tp_weaklistoffset = offsetof(Entry, weakrefs),
    .tp_methods = entry_methods,
    .tp_new = entry_new,
};

/* ---------------------------------------------------------------- guards */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Entry *entries[ENTRIES];
    int count;
} Guard;

static PyObject *missed; /* "miss" */

static PyObject *miss(Guard *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *given = PyTuple_New(count), *keywords = PyDict_New(), *result = NULL;
    if (given == NULL || keywords == NULL) goto done;
    for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++)
        if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), args[count + i]) < 0) goto done;
    result = PyObject_CallMethodObjArgs((PyObject *)self, missed, given, keywords, NULL);
done:
    Py_XDECREF(given);
    Py_XDECREF(keywords);
    return result;
}

static PyObject *guard_vectorcall(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names)
{
    Guard *self = (Guard *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (names == NULL || PyTuple_GET_SIZE(names) == 0) {
        for (int i = 0; i < self->count; i++) {
            Entry *entry = self->entries[i];
            int fits = entry_matches(entry, args, count);
            if (fits < 0) return NULL;
            if (!fits) continue;
            Py_INCREF(entry); /* what it calls may drop it from the guard */
            PyObject *result = entry_run(entry, args, count);
            Py_DECREF(entry);
            if (result != Py_NotImplemented) return result;
            Py_DECREF(result);
            break;
        }
    }
    return miss(self, args, count, names);
}

static PyObject *guard_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    if (kwargs == NULL || PyDict_GET_SIZE(kwargs) == 0)
        return guard_vectorcall(self, PySequence_Fast_ITEMS(args), (size_t)PyTuple_GET_SIZE(args), NULL);
    return PyObject_CallMethodObjArgs(self, missed, args, kwargs, NULL);
}

static PyObject *guard_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    Guard *self = (Guard *)type->tp_alloc(type, 0);
    if (self != NULL) self->vectorcall = guard_vectorcall;
    return (PyObject *)self;
}

static int guard_init(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    return 0;
}

static int guard_clear(Guard *self)
{
    int count = self->count;
    self->count = 0;
    for (int i = 0; i < count; i++) Py_CLEAR(self->entries[i]);
    return 0;
}

static int guard_traverse(Guard *self, visitproc visit, void *arg)
{
    for (int i = 0; i < self->count; i++) Py_VISIT(self->entries[i]);
    return 0;
}

static void guard_dealloc(Guard *self)
{
    PyObject_GC_UnTrack(self);
    guard_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *guard_insert(Guard *self, PyObject *entry)
{
    if (!PyObject_TypeCheck(entry, &EntryType)) {
        PyErr_Format(PyExc_TypeError, "an Entry is needed, not %R", entry);
        return NULL;
    }
    Entry *last = self->count == ENTRIES ? self->entries[ENTRIES - 1] : NULL;
    int kept = last != NULL ? ENTRIES - 1 : self->count;
    memmove(&self->entries[1], &self->entries[0], (size_t)kept * sizeof(Entry *));
    self->entries[0] = (Entry *)Py_NewRef(entry);
    self->count = kept + 1;
    Py_XDECREF(last);
    Py_RETURN_NONE;
}

static PyObject *guard_remove(Guard *self, PyObject *entry)
{
    for (int i = 0; i < self->count; i++) {
        if ((PyObject *)self->entries[i] != entry) continue;
        self->count--;
        memmove(&self->entries[i], &self->entries[i + 1], (size_t)(self->count - i) * sizeof(Entry *));
        Py_DECREF(entry);
        break;
    }
    Py_RETURN_NONE;
}

static PyObject *guard_clear_method(Guard *self, PyObject *Py_UNUSED(ignored))
{
    guard_clear(self);
    Py_RETURN_NONE;
}

static PyObject *guard_miss(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(args))
{
    PyErr_SetNone(PyExc_NotImplementedError);
    return NULL;
}

static PyMethodDef guard_methods[] = {
    {"insert", (PyCFunction)guard_insert, METH_O,
     "Make an entry the first to be tried; the last one goes where there are too many."},
    {"remove", (PyCFunction)guard_remove, METH_O, "Drop an entry; one that is not there is no error."},
    {"clear", (PyCFunction)guard_clear_method, METH_NOARGS, "Drop every entry."},
    {"miss", guard_miss, METH_VARARGS, "Return the result where no entry's guards hold."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject GuardType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._guard.CallGuard",
    .tp_basicsize = sizeof(Guard),
    .tp_dealloc = (destructor)guard_dealloc,
    .tp_vectorcall_offset = offsetof(Guard, vectorcall),
    .tp_call = guard_call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "A callable that answers from its entries, and calls miss(args, kwargs) where none does.",
    .tp_traverse = (traverseproc)guard_traverse,
    .tp_clear = (inquiry)guard_clear,
    .tp_methods = guard_methods,
    .tp_init = guard_init,
    .tp_new = guard_new,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "alight._core._guard",
    .m_doc = "The call guard in C; alight._core.guard is its twin.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__guard(void)
{
    import_array();
    PyObject *native = PyImport_ImportModule("alight._core._native");
    PyObject *buffers = native == NULL ? NULL : PyObject_GetAttrString(native, "buffers");
    fresh_array = buffers == NULL ? NULL : (FreshArray)PyCapsule_GetPointer(buffers, BUFFERS_CAPSULE);
    Py_XDECREF(buffers);
    Py_XDECREF(native);
    if (fresh_array == NULL) return NULL;
    if (PyType_Ready(&EntryType) < 0 || PyType_Ready(&GuardType) < 0) return NULL;
    missed = PyUnicode_InternFromString("miss");
    PyObject *made = PyModule_Create(&module);
    if (made == NULL || missed == NULL) return NULL;
    if (PyModule_AddObjectRef(made, "Entry", (PyObject *)&EntryType) < 0 ||
        PyModule_AddObjectRef(made, "CallGuard", (PyObject *)&GuardType) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
