/* Launchers: kernels bound to sizes, split among as many threads as are predicted to end soonest. */
#include "core.h"
#include "ranges.h"
#include "ways.h"

#ifndef _WIN32
#include <pthread.h>
#endif
#include <stdlib.h>
#include <string.h>

#define MOST_AXES 32     /* of a kernel that is split; NumPy's limit is 64, and merged axes are few */
#define MOST_EXTRA 36    /* numbers behind the dims: what a part is told, and a step for each of 32 inputs */
#define NEAR_BYTES 16384 /* of states of parts that fit the caller's stack */
#define EXPLORED 64      /* parts for each thread before a kernel was timed: the first must be short */

/* ---------------------------------------------------------------- plans */

typedef struct {
    const Plan *plan;
    void **addresses;
    char *slots;
    uint32_t parts;
    int shift;            /* of a reduction: units to a part, as a power of two */
    _Atomic int decided;
} Run;

static void run_part(void *context, uint32_t part)
{
    Run *run = context;
    const Plan *plan = run->plan;
    int64_t dims[MOST_AXES + MOST_EXTRA];
    void *addresses[OPERANDS];
    memcpy(dims, plan->dims, (size_t)(plan->rank + plan->extra) * sizeof(int64_t));
    if (plan->combine == NULL) {
        int64_t whole = plan->dims[plan->axis];
        int64_t start = plan->units * part / run->parts * plan->unit;
        int64_t stop = plan->units * (part + 1) / run->parts * plan->unit;
        if (stop > whole) stop = whole;
        dims[plan->axis] = stop - start;
        for (int i = 0; i < plan->operands; i++)
            addresses[i] = (char *)run->addresses[i] + start * plan->strides[i * plan->rank + plan->axis];
        if (plan->extra == 4) dims[plan->rank + 3] = start; /* what goes round the end has to know where it is */
        plan->kernel(addresses, dims, plan->strides);
        return;
    }
    int outputs = plan->operands - plan->inputs;
    char *slots = run->slots + (size_t)part * (size_t)plan->cells * (size_t)(outputs * plan->slot);
    if (plan->absorbing >= 0 && atomic_load_explicit(&run->decided, memory_order_relaxed)) {
        *slots = (char)plan->absorbing;
        return;
    }
    int64_t *range = dims + plan->rank, count = range[1];
    range[0] = (int64_t)part * (plan->unit << run->shift);
    range[1] = range[0] + (plan->unit << run->shift);
    if (range[1] > count) range[1] = count;
    range[2] = 1;
    memcpy(addresses, run->addresses, (size_t)plan->inputs * sizeof(void *));
    for (int i = 0; i < outputs; i++) addresses[plan->inputs + i] = slots + (size_t)(i * plan->slot);
    plan->kernel(addresses, dims, plan->partial_strides);
    if (plan->absorbing >= 0 && *slots == (char)plan->absorbing)
        atomic_store_explicit(&run->decided, 1, memory_order_relaxed);
}

static void run_alone(Plan *plan, void **addresses)
{
    int timed;
    uint32_t before = begin_alone(plan, &timed);
    atomic_store_explicit(&plan->last_parts, 1, memory_order_relaxed);
    double began = timed ? now_seconds() : 0;
    plan->kernel(addresses, plan->dims, plan->strides);
    if (timed) note_alone(plan, before, now_seconds() - began);
}

static void run_together(Plan *plan, void **addresses, Way way, uint32_t parts, int known)
{
    _Alignas(64) char local[NEAR_BYTES];
    Run run = {.plan = plan, .addresses = addresses, .slots = local, .parts = parts};
    if (plan->combine != NULL) {
        while ((plan->units >> run.shift) + ((plan->units & (((int64_t)1 << run.shift) - 1)) != 0) > (int64_t)parts)
            run.shift++;
        run.parts = parts = (uint32_t)((plan->units + ((int64_t)1 << run.shift) - 1) >> run.shift);
        size_t bytes = (size_t)parts * (size_t)(plan->cells * (plan->operands - plan->inputs) * plan->slot);
        if (bytes > sizeof local && (run.slots = malloc(bytes)) == NULL) {
            release_pool();
            run_alone(plan, addresses);
            return;
        }
    }
    double wake = wake_seconds(way.threads), began = now_seconds(), start = began, seconds = 0;
    uint32_t mine = 0;
    publish(run_part, &run, parts, way.threads);
    if (known) {
        if (way.asleep) {
            wake_workers();
            keep_on(plan, wake);
            start = now_seconds();
        }
        mine = take_parts();
        seconds = now_seconds() - start;
    } else {
        int woken = 0;
        while (take_part()) {
            mine++;
            seconds = now_seconds() - began;
            if (!woken && seconds / mine * parts_left() * (way.threads - 1) > wake * way.threads && asleep_among(way.threads)) {
                wake_workers();
                woken = 1;
            }
        }
    }
    await_parts(parts);
    release_pool();
    if (plan->combine != NULL) {
        plan->combine(run.slots, parts, plan->dims, plan->strides, addresses);
        if (run.slots != local) free(run.slots);
    }
    /* Until it ran on one thread: at the pace at which the caller did its parts, the first ones on cold memory. */
    if (mine > 0 && !atomic_load_explicit(&plan->alone_runs, memory_order_relaxed))
        learn(&plan->alone_seconds, seconds / mine * parts);
    double ended = now_seconds();
    run_ended(ended);
    if (known) note_together(plan, way, ended - began);
    atomic_store_explicit(&plan->last_parts, parts, memory_order_relaxed);
}

#ifdef ALIGHT_CHECK_RANGES
static void check_ranges(const Plan *plan, void *const *addresses)
{
    for (int i = 0; i < plan->operands; i++) /* bytes of an element are not known here: its first is looked at */
        check_range("a kernel", i, addresses[i], plan->rank, plan->dims, plan->strides + i * plan->rank, 1);
}
#endif

/* Run a kernel, on several threads where that is predicted to end sooner. */
static void run_plan(void **addresses, int64_t *opaque, int64_t *Py_UNUSED(strides))
{
    Plan *plan = (Plan *)(void *)opaque;
#ifdef ALIGHT_CHECK_RANGES
    check_ranges(plan, addresses);
#endif
    int most = threads_wanted();
    if (plan->units < 2 || most < 2) {
        plan->kernel(addresses, plan->dims, plan->strides);
        return;
    }
    /* What stops early takes now this long, now that: such a reduction begins alone every time. */
    double alone = plan->absorbing >= 0 ? 0 : atomic_load_explicit(&plan->alone_seconds, memory_order_relaxed);
    if (most > plan->units) most = (int)plan->units;
    Way way = {.threads = most};
    double parts = (double)most * EXPLORED;
    if (alone > 0) {
        way = way_of(plan, alone, most, NULL);
        if (way.threads < 2) {
            run_alone(plan, addresses);
            return;
        }
        double join = join_seconds(2), wake = wake_seconds(2), part = alone / (BALANCED * way.threads);
        if (part > wake) part = wake;
        if (part < join) part = join; /* nothing is cut off that is done sooner than handed over */
        if (part < 1e-9) part = 1e-9; /* the caller's floating-point flags are its own: nothing here may raise any */
        parts = alone / part;
        if (parts > 1 << 20) parts = 1 << 20;
        /* Shares of one length, or the longest would be waited for. */
        parts = (double)(((int64_t)parts + way.threads - 1) / way.threads * way.threads);
    }
    if (parts > (double)plan->units) parts = (double)plan->units;
    if (!claim_pool()) {
        run_alone(plan, addresses);
        return;
    }
    run_together(plan, addresses, way, (uint32_t)parts, alone > 0);
}

/* ---------------------------------------------------------------- Launcher */

typedef struct {
    PyObject_HEAD
    Plan plan;
    PyObject *keep;
} Launcher;

/* Numbers of a sequence as C memory with some room behind; NULL on an error. */
static int64_t *numbers(PyObject *sequence, Py_ssize_t *count, Py_ssize_t room)
{
    PyObject *fast = PySequence_Fast(sequence, "a sequence of whole numbers is needed");
    if (fast == NULL) return NULL;
    *count = PySequence_Fast_GET_SIZE(fast);
    int64_t *result = PyMem_Calloc((size_t)(*count + room + 1), sizeof(int64_t));
    if (result == NULL) PyErr_NoMemory();
    for (Py_ssize_t i = 0; result != NULL && i < *count; i++) {
        result[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast, i));
        if (result[i] == -1 && PyErr_Occurred()) {
            PyMem_Free(result);
            result = NULL;
        }
    }
    Py_DECREF(fast);
    return result;
}

static int set_partial(Plan *plan, int kept)
{
    size_t size = (size_t)plan->operands * (size_t)plan->rank;
    plan->partial_strides = PyMem_Calloc(size + 1, sizeof(int64_t));
    if (plan->partial_strides == NULL) return -1;
    memcpy(plan->partial_strides, plan->strides, size * sizeof(int64_t));
    plan->cells = 1;
    int outputs = plan->operands - plan->inputs;
    for (int axis = kept - 1; axis >= 0; axis--) {
        for (int i = plan->inputs; i < plan->operands; i++)
            plan->partial_strides[i * plan->rank + axis] = plan->cells * outputs * plan->slot;
        plan->cells *= plan->dims[axis];
    }
    return 0;
}

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"kernel", "dims", "strides", "inputs", "outputs", "keep", "axis", "unit", "elements",
                            "combine", "kept", "extra", "slot", "absorbing", NULL};
    unsigned long long kernel, combine = 0;
    PyObject *dims, *strides, *keep;
    int inputs, outputs, axis = -1, kept = 0, absorbing = -1;
    long long unit = 0, elements = 0, slot = 0;
    PyObject *extra = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KOOiiO|iLLKiOLi:Launcher", names, &kernel, &dims, &strides, &inputs,
                                     &outputs, &keep, &axis, &unit, &elements, &combine, &kept, &extra, &slot, &absorbing))
        return NULL;
    Launcher *self = (Launcher *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    Plan *plan = &self->plan;
    Py_ssize_t rank = 0, steps = 0, more = 0;
    self->keep = Py_NewRef(keep);
    plan->kernel = (Kernel)(uintptr_t)kernel;
    plan->inputs = inputs;
    plan->operands = inputs + outputs;
    plan->axis = axis;
    plan->absorbing = absorbing;
    plan->slot = slot;
    plan->unlocked = elements >= UNLOCKED;
    int64_t *others = NULL;
    if (extra != NULL && (others = numbers(extra, &more, 0)) == NULL) goto failed;
    if ((plan->dims = numbers(dims, &rank, more)) == NULL) goto failed;
    if ((plan->strides = numbers(strides, &steps, 0)) == NULL) goto failed;
    if (others != NULL) memcpy(plan->dims + rank, others, (size_t)more * sizeof(int64_t));
    plan->rank = (int)rank;
    plan->extra = (int)more;
    if (steps != rank * plan->operands || axis >= rank || kept > rank || (combine && more < 3) || more > MOST_EXTRA) {
        PyErr_Format(PyExc_ValueError, "%zd strides do not go with %zd axes of %d operands", steps, rank, plan->operands);
        goto failed;
    }
    PyMem_Free(others);
    others = NULL;
    if (unit > 0 && rank <= MOST_AXES && plan->operands <= OPERANDS && (axis >= 0 || combine)) {
        int64_t whole = combine ? plan->dims[rank + 1] : plan->dims[axis];
        plan->unit = unit;
        plan->units = (whole + unit - 1) / unit;
        plan->combine = (Combine)(uintptr_t)combine;
        if (combine && set_partial(plan, kept) < 0) { PyErr_NoMemory(); goto failed; }
    }
    return (PyObject *)self;
failed:
    PyMem_Free(others);
    Py_DECREF(self);
    return NULL;
}

static void launcher_dealloc(Launcher *self)
{
    PyMem_Free(self->plan.dims);
    PyMem_Free(self->plan.strides);
    PyMem_Free(self->plan.partial_strides);
    Py_XDECREF(self->keep);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *launcher_call(Launcher *self, PyObject *args, PyObject *kwargs)
{
    void *local[OPERANDS], **addresses = local;
    Plan *plan = &self->plan;
    if (PyTuple_GET_SIZE(args) != 1 || (kwargs != NULL && PyDict_GET_SIZE(kwargs) != 0)) {
        PyErr_SetString(PyExc_TypeError, "a launcher takes the addresses of its operands, in one sequence");
        return NULL;
    }
    PyObject *fast = PySequence_Fast(PyTuple_GET_ITEM(args, 0), "addresses come in a sequence");
    if (fast == NULL) return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
    if (count != plan->operands) {
        PyErr_Format(PyExc_ValueError, "%zd addresses for %d operands", count, plan->operands);
        Py_DECREF(fast);
        return NULL;
    }
    if (count > OPERANDS && (addresses = PyMem_Malloc((size_t)count * sizeof(void *))) == NULL) {
        Py_DECREF(fast);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        addresses[i] = PyLong_AsVoidPtr(PySequence_Fast_GET_ITEM(fast, i));
        if (addresses[i] == NULL && PyErr_Occurred()) break;
    }
    Py_DECREF(fast);
    if (!PyErr_Occurred()) {
        if (plan->unlocked) {
            Py_BEGIN_ALLOW_THREADS
            run_plan(addresses, (int64_t *)(void *)plan, NULL);
            Py_END_ALLOW_THREADS
        } else {
            run_plan(addresses, (int64_t *)(void *)plan, NULL);
        }
    }
    if (addresses != local) PyMem_Free(addresses);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyObject *launcher_entry(Launcher *self, void *Py_UNUSED(closure))
{
    return Py_BuildValue("KKK", (unsigned long long)(uintptr_t)run_plan, (unsigned long long)(uintptr_t)&self->plan, 0ULL);
}

static PyObject *launcher_parts(Launcher *self, void *Py_UNUSED(closure))
{
    uint32_t parts = atomic_load(&self->plan.last_parts);
    return PyLong_FromUnsignedLong(parts ? parts : 1);
}

static PyObject *launcher_seconds(Launcher *self, void *Py_UNUSED(closure))
{
    return PyFloat_FromDouble(atomic_load(&self->plan.alone_seconds));
}

static PyGetSetDef launcher_fields[] = {
    {"entry", (getter)launcher_entry, NULL, "What runs it from C: a function's address and its last two arguments.", NULL},
    {"parts", (getter)launcher_parts, NULL, "Parts of the last run.", NULL},
    {"seconds", (getter)launcher_seconds, NULL, "What a run on one thread takes; 0 where that is not known.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject LauncherType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Launcher",
    .tp_basicsize = sizeof(Launcher),
    .tp_dealloc = (destructor)launcher_dealloc,
    .tp_call = (ternaryfunc)launcher_call,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A kernel bound to sizes and strides, called with the addresses of its operands.",
    .tp_getset = launcher_fields,
    .tp_new = launcher_new,
};

/* ---------------------------------------------------------------- the module */

bool threads_ready(PyObject *module)
{
#ifndef _WIN32
    pthread_atfork(NULL, NULL, forget_workers);
#endif
    return PyType_Ready(&LauncherType) == 0 && PyModule_AddFunctions(module, thread_functions) == 0
        && PyModule_AddObjectRef(module, "Launcher", (PyObject *)&LauncherType) == 0;
}
