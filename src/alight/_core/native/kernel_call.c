/* Generated kernels run on recorded values, and their results bound, without the Python between. */
#include "core.h"

#include <stdint.h>
#include <string.h>

#include "clock.h"
#include "flags.h"
#include "kernel.h"

typedef struct {
    PyObject_HEAD
    Kernel kernel;
    int64_t *dims, *strides;
    PyObject *keep, *layouts;
    PyObject *errstate;   /* the state that ``watched`` is about; NULL: none yet */
    char watched, unlocked, in_place; /* in_place: the last run wrote over an operand */
    Py_ssize_t inputs, outputs, nodes, *numbers; /* of values: the inputs', the outputs', the nodes' */
    Py_ssize_t into, over;                       /* which output may take the memory of which input; -1: none */
} KernelCall;

static int kernel_call_clear(KernelCall *self)
{
    Py_CLEAR(self->errstate); /* first: without it nothing runs any more */
    Py_CLEAR(self->keep);
    return 0;
}

static int kernel_call_traverse(KernelCall *self, visitproc visit, void *arg)
{
    Py_VISIT(self->keep);
    Py_VISIT(self->errstate);
    Py_VISIT(self->layouts);
    return 0;
}

static void kernel_call_dealloc(KernelCall *self)
{
    PyObject_GC_UnTrack(self);
    kernel_call_clear(self);
    Py_XDECREF(self->layouts);
    PyMem_Free(self->numbers);
    Py_TYPE(self)->tp_free(self);
}

static bool read_numbers(PyObject *tuple, Py_ssize_t *numbers)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        numbers[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i));
        if (numbers[i] < 0) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "values are numbered from 0");
            return false;
        }
    }
    return true;
}

static PyObject *kernel_call_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"entry", "keep", "inputs", "outputs", "nodes", "layouts", "elements", "over", NULL};
    Py_ssize_t into = -1, over = -1;
    unsigned long long kernel, dims, strides;
    PyObject *keep, *inputs, *outputs, *nodes, *layouts;
    long long elements;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "(KKK)OO!O!O!O!L|(nn):KernelCall", names, &kernel, &dims, &strides, &keep,
                                     &PyTuple_Type, &inputs, &PyTuple_Type, &outputs, &PyTuple_Type, &nodes,
                                     &PyTuple_Type, &layouts, &elements, &into, &over))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(layouts); i++)
        if (!expect_type(PyTuple_GET_ITEM(layouts, i), &LayoutType, "layout")) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(inputs) + PyTuple_GET_SIZE(outputs);
    if (count > OPERANDS || PyTuple_GET_SIZE(layouts) != PyTuple_GET_SIZE(outputs)) {
        PyErr_Format(PyExc_ValueError, "%zd operands, of at most %d, with %zd layouts for %zd results", count, OPERANDS,
                     PyTuple_GET_SIZE(layouts), PyTuple_GET_SIZE(outputs));
        return NULL;
    }
    if (into >= PyTuple_GET_SIZE(outputs) || over >= PyTuple_GET_SIZE(inputs)) {
        PyErr_Format(PyExc_ValueError, "no output %zd that could take the place of input %zd", into, over);
        return NULL;
    }
    KernelCall *self = (KernelCall *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->into = over < 0 ? -1 : into;
    self->over = over;
    self->kernel = (Kernel)(uintptr_t)kernel;
    self->dims = (int64_t *)(uintptr_t)dims;
    self->strides = (int64_t *)(uintptr_t)strides;
    self->keep = Py_NewRef(keep);
    self->layouts = Py_NewRef(layouts);
    self->inputs = PyTuple_GET_SIZE(inputs);
    self->outputs = PyTuple_GET_SIZE(outputs);
    self->nodes = PyTuple_GET_SIZE(nodes);
    self->unlocked = elements >= UNLOCKED;
    self->numbers = PyMem_Calloc((size_t)(count + self->nodes) + 1, sizeof(Py_ssize_t));
    if (self->numbers == NULL) PyErr_NoMemory();
    if (self->numbers == NULL || !read_numbers(inputs, self->numbers) ||
        !read_numbers(outputs, self->numbers + self->inputs) || !read_numbers(nodes, self->numbers + count)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* The array with a concrete value's bytes and their address, NULL where the host has none. */
static PyObject *bytes_of(Value *value, void **address)
{
    if (value == NULL || is_pending(value)) return NULL;
    bool constant = !is_data(value->data);
    PyObject *array = constant ? value->attrs : ((Data *)value->data)->array;
    if (array == NULL || !PyArray_Check(array)) return NULL;
    *address = PyArray_BYTES((PyArrayObject *)array) + (constant ? 0 : value->offset);
    return array;
}

/* The data of the operand whose memory a result may take, as a new reference; NULL where others may need it. */
static PyObject *data_to_take(KernelCall *self, PyObject *values)
{
    Py_ssize_t inputs = self->inputs, count = inputs + self->outputs;
    if (self->into < 0) return NULL;
    PyObject *value = (PyObject *)value_at(values, self->numbers[self->over]);
    if (value == NULL || is_pending((Value *)value) || !is_data(((Value *)value)->data)) return NULL;
    Data *data = (Data *)((Value *)value)->data;
    if (((Value *)value)->offset != 0 || data->layout != PyTuple_GET_ITEM(self->layouts, self->into)) return NULL;
    if (data->remote != NULL && data->remote != Py_None) return NULL;
    if (Py_REFCNT(data) != 1 || data->weakrefs != NULL || !data_is_own(data)) return NULL;
    const Py_ssize_t *outputs = self->numbers + inputs, *nodes = self->numbers + count;
    Py_ssize_t uses = uses_below((Value *)value, values, nodes, self->nodes, outputs, self->outputs, NULL);
    if (uses == -1) PyErr_Clear(); /* no memory to look: it is not taken */
    return uses >= 0 && Py_REFCNT(value) == 1 + uses /* and the list */ ? Py_NewRef((PyObject *)data) : NULL;
}

static PyObject *kernel_call_run(KernelCall *self, PyObject *values)
{
    void *addresses[OPERANDS];
    PyObject *held[OPERANDS], *result = NULL, *took = NULL;
    Py_ssize_t inputs = self->inputs, count = inputs + self->outputs, taken = 0;
    if (!expect_type(values, &PyList_Type, "values")) return NULL;
    if (self->errstate == NULL) Py_RETURN_NONE;
    for (Py_ssize_t i = 0; i < self->nodes; i++) {
        Value *value = value_at(values, self->numbers[count + i]);
        if (value != NULL && value->errstate != self->errstate) Py_RETURN_NONE;
    }
    for (Py_ssize_t i = inputs; i < count; i++) {
        Value *value = value_at(values, self->numbers[i]);
        if (value == NULL || !is_pending(value) || value->layout != PyTuple_GET_ITEM(self->layouts, i - inputs)) Py_RETURN_NONE;
    }
    PyObject *own = data_to_take(self, values);
    for (; taken < inputs; taken++) {
        PyObject *array = bytes_of(value_at(values, self->numbers[taken]), &addresses[taken]);
        if (array == NULL) goto done;
        held[taken] = Py_NewRef(array);
    }
    for (; taken < count; taken++) {
        held[taken] = own != NULL && taken - inputs == self->into
            ? Py_NewRef(own) : fresh_data(NULL, PyTuple_GET_ITEM(self->layouts, taken - inputs));
        if (held[taken] == NULL) goto done;
        addresses[taken] = PyArray_DATA((PyArrayObject *)((Data *)held[taken])->array);
    }
    /* Nothing may fail once the kernel has run: an operand may be gone then. */
    took = PyFloat_FromDouble(0.0);
    if (took == NULL) goto done;
    double began = now_seconds();
    int heard = run_watched(self->kernel, addresses, self->dims, self->strides, self->watched, self->unlocked);
    double seconds = now_seconds() - began;
    if (heard) {
        clear_flags();
        if (own == NULL) goto done;
        seconds = seconds > 0 ? -seconds : -1e-9; /* the operands are gone: it cannot be left to others */
    }
    ((PyFloatObject *)took)->ob_fval = seconds; /* nobody else has seen it */
    result = Py_NewRef(took);
    self->in_place = own != NULL;
    for (Py_ssize_t i = inputs; i < count; i++)
        value_bind(value_at(values, self->numbers[i]), Py_NewRef(held[i]), 0);
done:
    Py_XDECREF(took);
    Py_XDECREF(own);
    while (taken > 0) Py_DECREF(held[--taken]);
    if (result == NULL && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError)) PyErr_Clear(); /* who else runs it makes room */
    if (result == NULL && !PyErr_Occurred()) Py_RETURN_NONE;
    return result;
}

static PyObject *kernel_call_watch(KernelCall *self, PyObject *const *args, Py_ssize_t nargs)
{
    int watched = nargs == 2 ? PyObject_IsTrue(args[1]) : -1;
    if (watched < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "watch_flags() takes a state and whether to watch");
        return NULL;
    }
    self->watched = (char)watched;
    Py_XSETREF(self->errstate, Py_NewRef(args[0]));
    Py_RETURN_NONE;
}

static PyMethodDef kernel_call_methods[] = {
    {"run", (PyCFunction)kernel_call_run, METH_O,
     "Run the kernel on the values of a list, bind its results, and return the seconds; None, with nothing done,\n"
     "where that takes more than this knows. Where the result of ``over`` took the memory of its operand and the\n"
     "kernel has something to warn of, they are negative."},
    {"watch_flags", (PyCFunction)(void (*)(void))kernel_call_watch, METH_FASTCALL,
     "Serve values recorded under this error state, and leave to others what it has to warn of where ``watched``."},
    {NULL},
};

static PyMemberDef kernel_call_members[] = {
    {"in_place", T_BOOL, offsetof(KernelCall, in_place), READONLY, "Whether the last run wrote over an operand."},
    {NULL},
};

PyTypeObject KernelCallType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.KernelCall",
    .tp_doc = "A generated kernel of the host that runs straight on recorded values.",
    .tp_basicsize = sizeof(KernelCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_dealloc = (destructor)kernel_call_dealloc,
    .tp_traverse = (traverseproc)kernel_call_traverse,
    .tp_clear = (inquiry)kernel_call_clear,
    .tp_members = kernel_call_members,
    .tp_methods = kernel_call_methods,
    .tp_new = kernel_call_new,
};
