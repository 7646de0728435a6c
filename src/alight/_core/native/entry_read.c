/* Entries of the call guard: what Python says one is, taken apart once. */
#include "guard.h"

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

/* What stands for all of so many bits: (dtype, bits) for ndarrays, by their elements, and (int, bits). */
static int read_sized(Example *example, PyObject *item)
{
    PyObject *kind;
    if (!PyArg_ParseTuple(item, "Oi", &kind, &example->bits)) return -1;
    if (kind == (PyObject *)&PyLong_Type) {
        example->kind = (PyTypeObject *)Py_NewRef(kind);
    } else if (PyArray_DescrCheck(kind)) {
        example->kind = (PyTypeObject *)Py_NewRef((PyObject *)&PyArray_Type);
        example->descr = (PyArray_Descr *)Py_NewRef(kind);
    } else {
        PyErr_SetString(PyExc_TypeError, "what has a number of bits is int, or a dtype");
        return -1;
    }
    return 0;
}

int read_pattern(Entry *self, PyObject *pattern)
{
    PyObject *fast = NULL;
    Py_ssize_t count = 0;
    self->examples = room(pattern, sizeof(Example), &fast, &count);
    if (self->examples == NULL) { Py_XDECREF(fast); return -1; }
    self->count = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(fast, i);
        Example *example = &self->examples[i];
        example->same = example->bits = -1;
        if (PyTuple_CheckExact(item)) {
            if (read_sized(example, item) < 0) { Py_DECREF(fast); return -1; }
            continue;
        }
        PyObject *kind = PyType_Check(item) ? item : (PyObject *)Py_TYPE(item);
        example->kind = (PyTypeObject *)Py_NewRef(kind);
        if (PyArray_CheckExact(item)) {
            PyArrayObject *array = (PyArrayObject *)item;
            example->descr = PyArray_DESCR(array);
            Py_INCREF(example->descr);
            example->writeable = (PyArray_FLAGS(array) & NPY_ARRAY_WRITEABLE) != 0;
            for (Py_ssize_t j = 0; j < i; j++)
                if (PySequence_Fast_GET_ITEM(fast, j) == item) { example->same = (int)j; break; }
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
        } else if (kind != item) {
            example->item = Py_NewRef(item);
        }
    }
    Py_DECREF(fast);
    return 0;
}

static const char LOOKUP[] = "a lookup is (dict, name, object), (cell, None, object) or (function, name, object)";

/* Where a function keeps its part of this name; 0: it has none that can be looked up. */
static size_t part_of(PyObject *name)
{
    if (!PyUnicode_Check(name)) return 0;
    if (PyUnicode_CompareWithASCIIString(name, "__code__") == 0) return offsetof(PyFunctionObject, func_code);
    if (PyUnicode_CompareWithASCIIString(name, "__defaults__") == 0) return offsetof(PyFunctionObject, func_defaults);
    if (PyUnicode_CompareWithASCIIString(name, "__kwdefaults__") == 0) return offsetof(PyFunctionObject, func_kwdefaults);
    return 0;
}

int read_found(Entry *self, PyObject *lookups)
{
    PyObject *fast = NULL;
    Py_ssize_t count = 0;
    self->found = room(lookups, sizeof(Found), &fast, &count);
    if (self->found == NULL) { Py_XDECREF(fast); return -1; }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *place, *name, *expected;
        PyObject *item = PySequence_Fast_GET_ITEM(fast, i);
        if (!is_tuple(item, LOOKUP) ||
            !PyArg_ParseTuple(item, "OOO", &place, &name, &expected)) {
            Py_DECREF(fast);
            return -1;
        }
        size_t part = PyFunction_Check(place) ? part_of(name) : 0;
        if (name == Py_None ? !PyCell_Check(place) : !PyDict_Check(place) && part == 0) {
            PyErr_SetString(PyExc_TypeError, LOOKUP);
            Py_DECREF(fast);
            return -1;
        }
        Found *found = &self->found[i];
        found->place = Py_NewRef(place);
        found->name = name == Py_None ? NULL : Py_NewRef(name);
        found->expected = Py_NewRef(expected);
        found->part = part;
        self->found_count = i + 1;
    }
    Py_DECREF(fast);
    return 0;
}

int read_contexts(Entry *self, PyObject *contexts)
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

/* What a kernel is: an address, or a Call. */
static int read_kernel(Step *step, PyObject *kernel)
{
    if (!PyTuple_Check(kernel)) {
        unsigned long long address = PyLong_AsUnsignedLongLong(kernel);
        if (address == 0) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a kernel at address 0");
            return -1;
        }
        step->kernel = (Kernel)(uintptr_t)address;
        return 0;
    }
    Call call;
    if (!PyArg_ParseTuple(kernel, "OO!O(O!O)", &call.function, &PyTuple_Type, &call.like, &call.before,
                          &PyContextVar_Type, &call.variable, &call.value))
        return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(call.like); i++)
        if (!PyArray_CheckExact(PyTuple_GET_ITEM(call.like, i))) {
            PyErr_SetString(PyExc_TypeError, "operands of a call are like ndarrays");
            return -1;
        }
    Py_INCREF(call.function);
    Py_INCREF(call.like);
    Py_INCREF(call.before);
    Py_INCREF(call.variable);
    Py_INCREF(call.value);
    step->call = call;
    return 0;
}

/* Each a tuple (address or Call, dims, strides, keep, outputs that are there once it has run, operands). */
static int read_steps(Entry *self, PyObject *kernels)
{
    const char *meaning = "a kernel is (address or Call, dims, strides, keep, made, ((place, offset), ...))";
    PyObject *fast = NULL, *operands = NULL;
    Py_ssize_t count = 0, places = self->input_count + self->output_count, made = 0;
    self->steps = room(kernels, sizeof(Step), &fast, &count);
    if (self->steps == NULL) goto failed;
    for (Py_ssize_t k = 0; k < count; k++) {
        unsigned long long dims, strides;
        PyObject *item = PySequence_Fast_GET_ITEM(fast, k), *kernel, *keep, *given;
        Step *step = &self->steps[k];
        if (!is_tuple(item, meaning) || !PyArg_ParseTuple(item, "OKKOnO", &kernel, &dims, &strides, &keep, &step->made, &given))
            goto failed;
        step->dims = (int64_t *)(uintptr_t)dims;
        step->strides = (int64_t *)(uintptr_t)strides;
        step->keep = Py_NewRef(keep);
        self->step_count = k + 1;
        if (read_kernel(step, kernel) < 0) goto failed;
        step->places = room(given, sizeof(int), &operands, &step->count);
        step->offsets = PyMem_Calloc((size_t)step->count + 1, sizeof(intptr_t));
        if (step->places == NULL || step->offsets == NULL) goto failed;
        if (step->made < made || step->made > self->output_count || step->count > OPERANDS) {
            PyErr_SetString(PyExc_ValueError, "kernels make the outputs in their order, each of few operands");
            goto failed;
        }
        if (step->kernel == NULL && step->count != PyTuple_GET_SIZE(step->call.like)) {
            PyErr_SetString(PyExc_ValueError, "a call in a kernel's place has an array for each operand");
            goto failed;
        }
        made = step->made;
        for (Py_ssize_t i = 0; i < step->count; i++) {
            long long offset;
            item = PySequence_Fast_GET_ITEM(operands, i);
            if (!is_tuple(item, meaning) || !PyArg_ParseTuple(item, "iL", &step->places[i], &offset)) goto failed;
            step->offsets[i] = (intptr_t)offset;
            Py_ssize_t output = step->places[i] - self->input_count;
            if (step->places[i] < 0 || step->places[i] >= places || output >= made) {
                PyErr_SetString(PyExc_ValueError, "a kernel's operand is an input, or made by it or by one before");
                goto failed;
            }
            if (output >= 0) self->outputs[output].last = k;
        }
        Py_CLEAR(operands);
    }
    if (count == 0 || made != self->output_count) {
        PyErr_SetString(PyExc_ValueError, "there are outputs that no kernel makes");
        goto failed;
    }
    Py_DECREF(fast);
    return 0;
failed:
    Py_XDECREF(operands);
    Py_XDECREF(fast);
    return -1;
}

int read_kernels(Entry *self, PyObject *kernels, PyObject *inputs, PyObject *outputs, PyObject *results,
                 PyObject *scalars, PyObject *form)
{
    PyObject *fast = NULL, *flags = NULL;
    Py_ssize_t count = 0;
    npy_intp largest = 0;
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
        if (position >= self->count
            || (position >= 0 && (self->examples[position].descr == NULL || self->examples[position].bits >= 0))) {
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
        PyErr_Format(PyExc_ValueError, "kernels of %zd operands; the guard takes %d",
                     self->input_count + self->output_count, OPERANDS);
        return -1;
    }
    if (read_steps(self, kernels) < 0) return -1;

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
        self->outputs[number].last = -1;
    }
    Py_DECREF(fast);
    Py_DECREF(flags);
    return 0;
}
