/* Entries of the call guard: do their guards hold, and what is done where they do. */
#include "guard.h"

#include "clock.h"
#include "flags.h"
#include "ranges.h"

/* ---------------------------------------------------------------- guards that hold, and launches */

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

/* Tell whether a number has so many bits. */
static inline int has_bits(unsigned long long number, int bits)
{
    int found = 0;
    for (; number != 0; number >>= 1) found++;
    return found == bits;
}

/* The same of an argument: an integer, or an ndarray by its elements. */
static int sized(const Example *example, PyObject *item)
{
    if (example->descr == NULL) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(item, &overflow);
        return !overflow && has_bits(number < 0 ? 0ULL - (unsigned long long)number : (unsigned long long)number, example->bits);
    }
    PyArrayObject *array = (PyArrayObject *)item;
    return has_bits((unsigned long long)PyArray_SIZE(array), example->bits) && PyArray_ISALIGNED(array)
        && PyArray_EquivTypes(PyArray_DESCR(array), example->descr);
}

static inline int like(const Example *example, PyObject *item)
{
    if (Py_TYPE(item) != example->kind) return 0;
    if (example->bits >= 0) return sized(example, item);
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

int masks_known;

/* What NumPy does about errors in a state, as bits, if its masks are where they were found; -1: it is no such state. */
int errors_mask(PyObject *state)
{
    if (state == NULL || !PyCapsule_IsValid(state, STATE_CAPSULE)) return -1;
    return *(int *)PyCapsule_GetPointer(state, STATE_CAPSULE);
}

/* Two of NumPy's error states that do the same. Every block makes a new one. */
static int same_errors(PyObject *state, PyObject *other)
{
    int mask = masks_known ? errors_mask(state) : -1;
    return mask >= 0 && mask == errors_mask(other);
}

int entry_matches(Entry *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != self->count || !self->open) return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const Example *example = &self->examples[i];
        int fits = like(example, args[i]);
        if (fits != 1) return fits;
        if (example->same >= 0 && args[example->same] != args[i]) return 0;
    }
    for (Py_ssize_t i = 0; i < self->found_count; i++) {
        const Found *found = &self->found[i];
        PyObject *value;
        if (found->name == NULL) {
            if (PyCell_GET(found->place) != found->expected) return 0;
            continue;
        }
        if (found->part != 0) {
            value = *(PyObject **)((char *)found->place + found->part);
            if ((value == NULL ? Py_None : value) != found->expected) return 0;
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
        int same = value == context->expected || same_errors(value, context->expected);
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

/* Call a function of NumPy's on arrays over the operands; returns -1 for an error. */
static int run_call(const Call *call, void **operands)
{
    PyObject *arrays[OPERANDS], *token = NULL, *result = NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(call->like), made = 0;
    for (; made < count; made++) {
        PyArrayObject *like = (PyArrayObject *)PyTuple_GET_ITEM(call->like, made);
        int flags = made + 1 == count ? NPY_ARRAY_WRITEABLE : 0;
#ifdef ALIGHT_CHECK_RANGES
        check_range("a call of NumPy's", (int)made, operands[made], PyArray_NDIM(like), (const int64_t *)PyArray_DIMS(like),
                    (const int64_t *)PyArray_STRIDES(like), (int64_t)PyArray_ITEMSIZE(like));
#endif
        Py_INCREF(PyArray_DESCR(like));
        arrays[made] = PyArray_NewFromDescr(&PyArray_Type, PyArray_DESCR(like), PyArray_NDIM(like), PyArray_DIMS(like),
                                            PyArray_STRIDES(like), operands[made], flags, NULL);
        if (arrays[made] == NULL) goto done;
    }
    result = PyObject_CallNoArgs(call->before);
    if (result == NULL) goto done;
    Py_DECREF(result);
    result = NULL;
    token = PyContextVar_Set(call->variable, call->value);
    if (token == NULL) goto done;
    result = PyObject_Vectorcall(call->function, arrays, (size_t)count, NULL);
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    if (PyContextVar_Reset(call->variable, token) < 0) {
        Py_CLEAR(result);
        Py_XDECREF(kind);
        Py_XDECREF(error);
        Py_XDECREF(trace);
    } else {
        PyErr_Restore(kind, error, trace);
    }
done:
    while (made > 0) Py_DECREF(arrays[--made]);
    Py_XDECREF(token);
    if (result == NULL) return -1;
    Py_DECREF(result);
    return 0;
}

/* Run one kernel; returns the floating-point flags that it raised, where they are watched, -1 for an error. */
static int run_step(const Entry *self, const Step *step, void **operands)
{
    int watched = self->watched;
    if (step->kernel != NULL)
        return run_watched(step->kernel, operands, step->dims, step->strides, watched, self->unlocked) & watched;
    if (watched) clear_flags();
    if (run_call(&step->call, operands) < 0) return -1;
    return watched ? raised_flags() & watched : 0;
}

/* Tell whether there is nothing to tell of what kernels raised; -1 for an error. */
static int nothing_to_tell(const Entry *self, int heard, PyObject *const *args)
{
    PyObject *given[1 + OPERANDS];
    if (self->already_shown == NULL || self->count > OPERANDS) return 0;
    given[0] = PyLong_FromLong(categories_of(heard));
    if (given[0] == NULL) return -1;
    memcpy(&given[1], args, (size_t)self->count * sizeof(PyObject *));
    PyObject *said = PyObject_Vectorcall(self->already_shown, given, 1 + (size_t)self->count, NULL);
    Py_DECREF(given[0]);
    int answer = said == NULL ? -1 : PyObject_IsTrue(said);
    Py_XDECREF(said);
    return answer;
}

static PyObject *launch(Entry *self, PyObject *const *args)
{
    char *addresses[OPERANDS];
    void *operands[OPERANDS];
    PyObject *made[OPERANDS], *result = NULL;
    Py_ssize_t inputs = self->input_count, done = 0;
    for (Py_ssize_t i = 0; i < inputs; i++) {
        int position = self->positions[i];
        char *base = position < 0 ? (char *)0 : (char *)PyArray_DATA((PyArrayObject *)args[position]);
        addresses[i] = (char *)((intptr_t)base + self->offsets[i]);
    }
    for (Py_ssize_t k = 0; k < self->step_count; k++) {
        const Step *step = &self->steps[k];
        for (; done < step->made; done++) {
            Output *output = &self->outputs[done];
            Py_INCREF(output->descr);
            made[done] = fresh_ndarray(output->descr, output->ndim, output->shape, NULL, output->fortran);
            if (made[done] == NULL) goto finished;
            addresses[inputs + done] = PyArray_BYTES((PyArrayObject *)made[done]);
        }
        for (Py_ssize_t i = 0; i < step->count; i++) operands[i] = addresses[step->places[i]] + step->offsets[i];
        int heard = run_step(self, step, operands);
        if (heard < 0) goto finished;
        if (heard) {
            clear_flags();
            int nothing_new = nothing_to_tell(self, heard, args);
            if (nothing_new == 0) result = not_here();
            if (nothing_new <= 0) goto finished;
        }
        for (Py_ssize_t i = 0; i < done && self->step_count > 1; i++)
            if (self->outputs[i].last == k) Py_CLEAR(made[i]);
    }
    for (Py_ssize_t i = 0; i < done; i++)
        if (self->outputs[i].scalar && (made[i] = PyArray_Return((PyArrayObject *)made[i])) == NULL) goto finished;
    if (self->form == 0) {
        result = Py_NewRef(made[self->results[0]]);
        goto finished;
    }
    result = self->form == 1 ? PyTuple_New(self->result_count) : PyList_New(self->result_count);
    for (Py_ssize_t i = 0; result != NULL && i < self->result_count; i++) {
        PyObject *item = Py_NewRef(made[self->results[i]]);
        if (self->form == 1) PyTuple_SET_ITEM(result, i, item);
        else PyList_SET_ITEM(result, i, item);
    }
finished:
    while (done > 0) Py_XDECREF(made[--done]);
    return result;
}

static PyObject *answer(Entry *self, PyObject *const *args, Py_ssize_t count)
{
    if (self->call != NULL) return PyObject_Vectorcall(self->call, args, (size_t)count, NULL);
    return launch(self, args);
}

PyObject *entry_run(Entry *self, PyObject *const *args, Py_ssize_t count)
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
    self->open = 0; /* first: what goes may run code, which finds no match any more */
    for (Py_ssize_t i = 0; i < self->count; i++) Py_CLEAR(self->examples[i].item);
    for (Py_ssize_t i = 0; i < self->found_count; i++) {
        Py_CLEAR(self->found[i].expected);
        Py_CLEAR(self->found[i].place);
    }
    Py_CLEAR(self->call);
    Py_CLEAR(self->already_shown);
    for (Py_ssize_t i = 0; i < self->step_count; i++) {
        Call *call = &self->steps[i].call;
        Py_CLEAR(self->steps[i].keep);
        Py_CLEAR(call->function);
        Py_CLEAR(call->like);
        Py_CLEAR(call->before);
        Py_CLEAR(call->variable);
        Py_CLEAR(call->value);
    }
    return 0;
}

static int entry_traverse(Entry *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_VISIT(self->examples[i].kind);
        Py_VISIT(self->examples[i].item);
    }
    for (Py_ssize_t i = 0; i < self->found_count; i++) {
        Py_VISIT(self->found[i].place);
        Py_VISIT(self->found[i].expected);
    }
    for (Py_ssize_t i = 0; i < self->context_count; i++) {
        Py_VISIT(self->contexts[i].variable);
        Py_VISIT(self->contexts[i].fallback);
        Py_VISIT(self->contexts[i].expected);
    }
    Py_VISIT(self->absent);
    Py_VISIT(self->call);
    Py_VISIT(self->already_shown);
    for (Py_ssize_t i = 0; i < self->step_count; i++) {
        Call *call = &self->steps[i].call;
        Py_VISIT(self->steps[i].keep);
        Py_VISIT(call->function);
        Py_VISIT(call->like);
        Py_VISIT(call->before);
        Py_VISIT(call->variable);
        Py_VISIT(call->value);
    }
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
    for (Py_ssize_t i = 0; i < self->step_count; i++) {
        PyMem_Free(self->steps[i].places);
        PyMem_Free(self->steps[i].offsets);
    }
    Py_XDECREF(self->absent);
    PyMem_Free(self->steps);
    PyMem_Free(self->examples);
    PyMem_Free(self->found);
    PyMem_Free(self->contexts);
    PyMem_Free(self->positions);
    PyMem_Free(self->offsets);
    PyMem_Free(self->outputs);
    PyMem_Free(self->results);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* ---------------------------------------------------------------- the type */

static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"pattern", "lookups", "absent", "contexts", "call", "left", "kernels", "inputs", "outputs",
                            "results", "scalars", "form", "watched", "already_shown", "looks", NULL};
    PyObject *pattern, *lookups, *absent, *contexts, *call = Py_None, *form = Py_None, *already_shown = Py_None;
    PyObject *kernels = NULL, *inputs = NULL, *outputs = NULL, *results = NULL, *scalars = NULL;
    int watched = 0, looks = 0;
    long long left = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO|OLOOOOOOiOp:Entry", names, &pattern, &lookups, &absent,
                                     &contexts, &call, &left, &kernels, &inputs, &outputs, &results,
                                     &scalars, &form, &watched, &already_shown, &looks))
        return NULL;
    Entry *self = (Entry *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->absent = Py_NewRef(absent);
    self->left = left;
    self->looks = looks;
    self->watched = flags_of(watched);
    if (already_shown != Py_None) self->already_shown = Py_NewRef(already_shown);
    self->open = 1;
    if (read_pattern(self, pattern) < 0 || read_found(self, lookups) < 0 ||
        read_contexts(self, contexts) < 0) goto failed;
    if (call != Py_None) {
        self->call = Py_NewRef(call);
    } else if (kernels == NULL || inputs == NULL || outputs == NULL || results == NULL || scalars == NULL) {
        PyErr_SetString(PyExc_TypeError, "an entry needs a function to call, or kernels with their operands");
        goto failed;
    } else if (read_kernels(self, kernels, inputs, outputs, results, scalars, form) < 0) {
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

static PyMemberDef entry_members[] = {
    {"left", T_LONGLONG, offsetof(Entry, left), 0, "How many calls more it answers; -1: all of them."},
    {NULL},
};

PyTypeObject EntryType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Entry",
    .tp_basicsize = sizeof(Entry),
    .tp_dealloc = (destructor)entry_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Guards, and what to do where they hold: launch kernels, or call a function.",
    .tp_traverse = (traverseproc)entry_traverse,
    .tp_clear = (inquiry)entry_clear,
    .tp_weaklistoffset = offsetof(Entry, weakrefs),
    .tp_methods = entry_methods,
    .tp_members = entry_members,
    .tp_new = entry_new,
};
