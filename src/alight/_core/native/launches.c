/* Launches of one plan that are ready: a run puts down where its arrays lie and calls the driver. */
#include "device.h"

#include <string.h>

typedef int (*LaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
typedef int (*CurrentContext)(void **); /* and what takes it from the thread's stack of contexts */
typedef int (*PushContext)(void *);
typedef int (*LaunchGraph)(void *, void *);

#define GRAPHS 8 /* as graph_replay.py keeps */

typedef struct {
    void *function, **parameters;
    unsigned blocks, threads;
} Kernel;

typedef struct {
    Py_ssize_t place; /* of what it looks at, in the table */
    int64_t offset;
} Window;

typedef struct {
    uint64_t *addresses; /* what the table must be like */
    void *graph;
} Graph;

struct Launches {
    PyObject_HEAD
    Stock *stock;
    LaunchKernel launch;
    LaunchGraph launch_graph;
    CurrentContext current, pop;
    PushContext push;
    void *context, *stream;
    PyObject *keep, *shelves, *inner; /* inner: a tuple of buffers, or None: they must be had first */
    uint64_t *table;                  /* what is given, windows, what is made, what else is */
    Py_ssize_t given, windows, made, places, kernels;
    int64_t *offsets;
    Window *window;
    Py_ssize_t *nbytes;
    Kernel *kernel;
    Graph graphs[GRAPHS];
    int graph_count;
    char single;                      /* kernels are launched one by one; else only graphs are */
    char busy;                        /* a run is going on: one in its midst is for others, which keep the table as it is */
    unsigned long long runs;
};

Py_ssize_t launches_read(Launches *self) { return self->given; }
Py_ssize_t launches_made(Launches *self) { return self->made; }

static int launches_clear(Launches *self)
{
    Py_CLEAR(self->inner);
    Py_CLEAR(self->keep);
    return 0;
}

static int launches_traverse(Launches *self, visitproc visit, void *arg)
{
    Py_VISIT(self->inner);
    Py_VISIT(self->keep);
    Py_VISIT(self->shelves);
    return 0;
}

static void launches_dealloc(Launches *self)
{
    PyObject_GC_UnTrack(self);
    launches_clear(self);
    Py_XDECREF((PyObject *)self->stock);
    Py_XDECREF(self->shelves);
    PyMem_Free(self->offsets);
    PyMem_Free(self->window);
    PyMem_Free(self->nbytes);
    PyMem_Free(self->kernel);
    while (self->graph_count > 0) PyMem_Free(self->graphs[--self->graph_count].addresses);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Read the numbers of each item of a tuple by a format; false with an error set. */
static bool read_parts(Launches *self, PyObject *offsets, PyObject *windows, PyObject *nbytes, PyObject *kernels)
{
    self->given = PyTuple_GET_SIZE(offsets);
    self->windows = PyTuple_GET_SIZE(windows);
    self->made = PyTuple_GET_SIZE(self->shelves);
    self->kernels = PyTuple_GET_SIZE(kernels);
    self->offsets = PyMem_Calloc((size_t)self->given + 1, sizeof(int64_t));
    self->window = PyMem_Calloc((size_t)self->windows + 1, sizeof(Window));
    self->nbytes = PyMem_Calloc((size_t)self->made + 1, sizeof(Py_ssize_t));
    self->kernel = PyMem_Calloc((size_t)self->kernels + 1, sizeof(Kernel));
    if (self->offsets == NULL || self->window == NULL || self->nbytes == NULL || self->kernel == NULL) {
        PyErr_NoMemory();
        return false;
    }
    if (PyTuple_GET_SIZE(nbytes) != self->made || self->given + self->windows + self->made > self->places) {
        PyErr_Format(PyExc_ValueError, "%zd sizes for %zd results, in a table of %zd places for %zd", PyTuple_GET_SIZE(nbytes),
                     self->made, self->places, self->given + self->windows + self->made);
        return false;
    }
    for (Py_ssize_t i = 0; i < self->given; i++) self->offsets[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(offsets, i));
    for (Py_ssize_t i = 0; i < self->made; i++) {
        self->nbytes[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(nbytes, i));
        if (!expect_type(PyTuple_GET_ITEM(self->shelves, i), &ShelfType, "shelf")) return false;
    }
    for (Py_ssize_t i = 0; i < self->windows; i++) {
        long long offset;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(windows, i), "nL", &self->window[i].place, &offset)) return false;
        self->window[i].offset = offset;
        if (self->window[i].place < 0 || self->window[i].place >= self->places) {
            PyErr_Format(PyExc_ValueError, "a window on place %zd of %zd", self->window[i].place, self->places);
            return false;
        }
    }
    for (Py_ssize_t i = 0; i < self->kernels; i++) {
        unsigned long long function, parameters;
        Kernel *kernel = &self->kernel[i];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(kernels, i), "KIIK", &function, &kernel->blocks, &kernel->threads, &parameters))
            return false;
        kernel->function = (void *)(uintptr_t)function;
        kernel->parameters = (void **)(uintptr_t)parameters;
    }
    return !PyErr_Occurred();
}

static PyObject *launches_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stock", "driver", "stream", "table", "offsets", "windows", "shelves", "nbytes", "kernels", "keep", NULL};
    PyObject *stock, *offsets, *windows, *shelves, *nbytes, *kernels, *keep;
    unsigned long long launch, graph, current, push, pop, context, stream, table;
    Py_ssize_t places;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!(KKKKKK)K(Kn)O!O!O!O!O!O:Launches", names, &StockType, &stock, &launch,
                                     &graph, &current, &push, &pop, &context, &stream, &table, &places, &PyTuple_Type, &offsets, &PyTuple_Type,
                                     &windows, &PyTuple_Type, &shelves, &PyTuple_Type, &nbytes, &PyTuple_Type, &kernels, &keep))
        return NULL;
    Launches *self = (Launches *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->stock = (Stock *)Py_NewRef(stock);
    self->launch = (LaunchKernel)(uintptr_t)launch;
    self->launch_graph = (LaunchGraph)(uintptr_t)graph;
    self->current = (CurrentContext)(uintptr_t)current;
    self->push = (PushContext)(uintptr_t)push;
    self->pop = (CurrentContext)(uintptr_t)pop;
    self->context = (void *)(uintptr_t)context;
    self->stream = (void *)(uintptr_t)stream;
    self->table = (uint64_t *)(uintptr_t)table;
    self->places = places;
    self->shelves = Py_NewRef(shelves);
    self->keep = Py_NewRef(keep);
    self->inner = Py_NewRef(Py_None);
    if (!read_parts(self, offsets, windows, nbytes, kernels)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* Give back what was taken, so that whoever takes next gets each where it was. */
static void give_back(DeviceBuffer **made, Py_ssize_t count)
{
    while (count-- > 0) Py_CLEAR(made[count]);
}

/* Take memory for what is made: false where a shelf has none. */
static bool take_made(Launches *self, DeviceBuffer **made)
{
    for (Py_ssize_t i = 0; i < self->made; i++) {
        made[i] = shelf_take((Shelf *)PyTuple_GET_ITEM(self->shelves, i), self->nbytes[i]);
        if (made[i] == NULL) {
            give_back(made, i);
            return false;
        }
    }
    return true;
}

/* The graph of what the table holds, NULL where there is none. */
static void *graph_here(const Launches *self)
{
    for (int i = 0; i < self->graph_count; i++)
        if (memcmp(self->graphs[i].addresses, self->table, (size_t)self->places * sizeof(uint64_t)) == 0) return self->graphs[i].graph;
    return NULL;
}

/* Launch what the table holds, as a graph where one is given, else kernel by kernel: the driver's status. */
static int launched(const Launches *self, void *graph)
{
    void *context = NULL;
    int failed = 0;
    Py_BEGIN_ALLOW_THREADS
    bool away = self->current(&context) || context != self->context; /* the thread's own work is on another device */
    if (away) failed = self->push(self->context);
    bool pushed = away && !failed;
    if (graph != NULL && !failed) failed = self->launch_graph(graph, self->stream);
    for (Py_ssize_t i = 0; graph == NULL && i < self->kernels && !failed; i++) {
        const Kernel *kernel = &self->kernel[i];
        failed = self->launch(kernel->function, kernel->blocks, 1, 1, kernel->threads, 1, 1, 0, self->stream, kernel->parameters, NULL);
    }
    if (pushed) self->pop(&context);
    Py_END_ALLOW_THREADS
    return failed;
}

int launches_go(Launches *self, DeviceBuffer *const *given, DeviceBuffer **made)
{
    PyObject *inner = self->inner;
    if (self->busy || !self->stock->open || inner == NULL || !PyTuple_CheckExact(inner)) return 0;
    Py_ssize_t first = self->given + self->windows, last = first + self->made;
    if (last + PyTuple_GET_SIZE(inner) != self->places) return 0;
    if (!take_made(self, made)) return PyErr_Occurred() ? -1 : 0;
    uint64_t *table = self->table;
    for (Py_ssize_t i = 0; i < self->given; i++) table[i] = given[i]->address + (uint64_t)self->offsets[i];
    for (Py_ssize_t i = 0; i < self->made; i++) table[first + i] = made[i]->address;
    for (Py_ssize_t i = last; i < self->places; i++)
        table[i] = ((DeviceBuffer *)PyTuple_GET_ITEM(inner, i - last))->address;
    for (Py_ssize_t i = 0; i < self->windows; i++)
        table[self->given + i] = table[self->window[i].place] + (uint64_t)self->window[i].offset;
    void *graph = self->single ? NULL : graph_here(self);
    if (graph == NULL && !self->single) {
        give_back(made, self->made);
        return 0;
    }
    self->busy = 1;
    Py_INCREF(inner); /* who is short of memory may have it let go of meanwhile */
    int failed = launched(self, graph);
    self->busy = 0;
    Py_DECREF(inner);
    if (!failed) {
        self->runs++;
        return 1;
    }
    give_back(made, self->made);
    return 0; /* who else launches it is told what is wrong */
}

static PyObject *launches_inner(Launches *self, void *closure) { return Py_NewRef(self->inner == NULL ? Py_None : self->inner); }

static int launches_set_inner(Launches *self, PyObject *inner, void *closure)
{
    if (inner == NULL || (inner != Py_None && !PyTuple_CheckExact(inner))) {
        PyErr_SetString(PyExc_TypeError, "inner buffers come in a tuple, or None");
        return -1;
    }
    for (Py_ssize_t i = 0; inner != Py_None && i < PyTuple_GET_SIZE(inner); i++)
        if (!expect_type(PyTuple_GET_ITEM(inner, i), &DeviceBufferType, "inner")) return -1;
    Py_XSETREF(self->inner, Py_NewRef(inner));
    return 0;
}

static PyObject *launches_drop(Launches *self, PyObject *given)
{
    unsigned long long graph = PyLong_AsUnsignedLongLongMask(given);
    if (graph == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
    for (int i = 0; i < self->graph_count; i++) {
        if (self->graphs[i].graph != (void *)(uintptr_t)graph) continue;
        PyMem_Free(self->graphs[i].addresses);
        self->graphs[i] = self->graphs[--self->graph_count];
        break;
    }
    Py_RETURN_NONE;
}

static PyObject *launches_keep(Launches *self, PyObject *args)
{
    PyObject *addresses;
    unsigned long long graph;
    if (!PyArg_ParseTuple(args, "O!K:keep", &PyTuple_Type, &addresses, &graph)) return NULL;
    if (PyTuple_GET_SIZE(addresses) != self->places || self->graph_count == GRAPHS) {
        PyErr_Format(PyExc_ValueError, "a graph of %zd addresses beside %d, for %zd places and at most %d graphs",
                     PyTuple_GET_SIZE(addresses), self->graph_count, self->places, GRAPHS);
        return NULL;
    }
    uint64_t *own = PyMem_Calloc((size_t)self->places + 1, sizeof(uint64_t));
    if (own == NULL) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < self->places; i++) own[i] = PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(addresses, i));
    if (PyErr_Occurred()) {
        PyMem_Free(own);
        return NULL;
    }
    self->graphs[self->graph_count].addresses = own;
    self->graphs[self->graph_count++].graph = (void *)(uintptr_t)graph;
    Py_RETURN_NONE;
}

static PyObject *launches_launch(Launches *self, PyObject *given)
{
    unsigned long long graph = PyLong_AsUnsignedLongLongMask(given);
    if (graph == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
    return PyLong_FromLong(launched(self, (void *)(uintptr_t)graph));
}

static PyMethodDef launches_methods[] = {
    {"launch", (PyCFunction)launches_launch, METH_O, "Launch a graph, or with 0 each kernel, for what the table holds; return the driver's status, 0 for success."},
    {"keep", (PyCFunction)launches_keep, METH_VARARGS, "Launch this graph where the table holds these addresses."},
    {"drop", (PyCFunction)launches_drop, METH_O, "Launch this graph no more; one that is not kept is no error."},
    {NULL},
};

static PyMemberDef launches_members[] = {
    {"single", T_BOOL, offsetof(Launches, single), 0, NULL},
    {"busy", T_BOOL, offsetof(Launches, busy), 0, NULL},
    {"runs", T_ULONGLONG, offsetof(Launches, runs), READONLY, NULL},
    {NULL},
};

static PyGetSetDef launches_properties[] = {
    {"inner", (getter)launches_inner, (setter)launches_set_inner, "The buffers of what is no result; None: they must be had first.", NULL},
    {NULL},
};

PyTypeObject LaunchesType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Launches",
    .tp_doc = "Launches of one plan that are ready.",
    .tp_basicsize = sizeof(Launches),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_dealloc = (destructor)launches_dealloc,
    .tp_traverse = (traverseproc)launches_traverse,
    .tp_clear = (inquiry)launches_clear,
    .tp_methods = launches_methods,
    .tp_members = launches_members,
    .tp_getset = launches_properties,
    .tp_new = launches_new,
};
