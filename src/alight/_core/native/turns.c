/* Turns: one thread at a time writes at once into a storage, or makes another version of it current.

   A write that is recorded makes a new version of the one that is there and makes it current in one step
   (`replace`), so needs no turn; but it waits for who writes at once, into the bytes of the version that is
   there: a version made of that in the meantime would not have what is written. The interpreter's lock guards
   the fields here; it is let go only to wait. */
#include "core.h"

#include <stdint.h>
#include <stdlib.h>
#ifndef _WIN32
#include <pthread.h>
#endif

typedef struct Waiter {
    struct Waiter *next;
    Storage *storage;         /* NULL: it has the turn now, or need not wait for it any more */
    unsigned long thread;
    PyThread_type_lock lock;
} Waiter;

static Waiter *waiters; /* who came first is first */
static Writing *bare;   /* what is under way into arrays that have no storage */
/* A forked child has of its parent's threads the one that forked: turns that the others had are over. */
static unsigned int process;
static unsigned long survivor;

#ifndef _WIN32
static void forget_in_child(void)
{
    process++;
    survivor = PyThread_get_thread_ident();
    waiters = NULL;
    bare = NULL;
}
#endif

bool turns_ready(void)
{
#ifndef _WIN32
    return pthread_atfork(NULL, NULL, forget_in_child) == 0 || (PyErr_NoMemory(), false);
#else
    return true;
#endif
}

/* Tell whether who took the turn last does not exist in this process. */
static bool is_over(Storage *self) { return self->process != process && self->writer != survivor; }

/* Tell whether no other thread has the turn. */
bool may_write(Storage *self)
{
    return self->writer == 0 || self->writer == PyThread_get_thread_ident() || is_over(self);
}

/* Take back what was opened to be written. */
PyObject *closed(Storage *self)
{
    PyObject *open = self->open;
    self->open = NULL;
    if (open != NULL) ((Data *)open)->writing--;
    return open;
}

static void begin_write_of(Storage *self, unsigned long thread)
{
    PyObject *open = NULL;
    if (is_over(self)) {
        self->depth = 0;
        open = closed(self);
    }
    self->process = process;
    self->writer = thread;
    self->depth++;
    Py_XDECREF(open);
}

/* Take the turn, which no other thread has. */
static void begin_write(Storage *self) { begin_write_of(self, PyThread_get_thread_ident()); }

/* Give the turn, which nobody has any more, to the thread that has waited longest: who has just had it may want it
   again and again. All that the thread has waiting go on: a signal's handler may wait above what it interrupted. */
static void hand_over(Storage *self)
{
    self->writer = 0;
    for (Waiter *waiter = waiters; waiter != NULL; waiter = waiter->next) {
        if (waiter->storage != self || (self->writer != 0 && waiter->thread != self->writer)) continue;
        self->writer = waiter->thread;
        self->process = process;
        waiter->storage = NULL;
        PyThread_release_lock(waiter->lock);
    }
}

static void end_write(Storage *self)
{
    if (self->depth == 0 || --self->depth > 0) return;
    PyObject *open = closed(self);
    hand_over(self);
    Py_XDECREF(open);
}

/* Have the turn of a storage whose current bytes are at hand. */
static void have(Writing *self, Storage *storage)
{
    self->storage = (Storage *)Py_NewRef((PyObject *)storage);
    begin_write_of(storage, self->thread);
    if (storage->open == NULL) { /* NumPy may let other threads run: what they copy meanwhile is not kept */
        storage->open = Py_NewRef(((Value *)storage->value)->data);
        ((Data *)storage->open)->writing++;
    }
}

/* Begin to write into an array whose bytes are at hand to be written. */
void begin_writing(Writing *self, Array *array)
{
    *self = (Writing){NULL, NULL, PyThread_get_thread_ident(), NULL};
    if (array->storage != NULL) {
        have(self, (Storage *)array->storage);
    } else {
        self->made = array->made;
        self->next = bare;
        bare = self;
    }
}

void join_writing(Storage *storage, PyObject *made)
{
    for (Writing *one = bare; one != NULL; one = one->next) {
        if (one->made == made && one->storage == NULL) {
            have(one, storage);
        }
    }
}

void end_writing(Writing *self)
{
    for (Writing **place = &bare; self->made != NULL && *place != NULL; place = &(*place)->next) {
        if (*place == self) {
            *place = self->next;
            break;
        }
    }
    if (self->storage != NULL) {
        end_write(self->storage);
        Py_DECREF((PyObject *)self->storage);
    }
}

static Waiter *joined(Storage *self)
{
    Waiter *own = PyMem_RawMalloc(sizeof *own), **end = &waiters; /* not on a stack, which may end before it */
    PyThread_type_lock lock = own == NULL ? NULL : PyThread_allocate_lock();
    if (lock == NULL) {
        PyMem_RawFree(own);
        PyErr_NoMemory();
        return NULL;
    }
    PyThread_acquire_lock(lock, WAIT_LOCK);
    *own = (Waiter){NULL, self, PyThread_get_thread_ident(), lock};
    while (*end != NULL) end = &(*end)->next;
    return *end = own;
}

static void leave(Waiter *own)
{
    for (Waiter **place = &waiters; *place != NULL; place = &(*place)->next) {
        if (*place == own) {
            *place = own->next;
            break;
        }
    }
    PyThread_acquire_lock(own->lock, NOWAIT_LOCK); /* who was woken while a handler ran has it not */
    PyThread_release_lock(own->lock);
    PyThread_free_lock(own->lock);
    PyMem_RawFree(own);
}

/* Return when no other thread has the turn, which this one was given, if there was one: it takes it, or lets it
   go (`let_go`), and no other thread runs in between. False with the error of what interrupted that. */
bool wait_for_turn(Storage *self)
{
    bool going = true;
    Py_INCREF(self);
    while (going && !may_write(self)) { /* a signal's handler may have used what was given */
        Waiter *own = joined(self);
        unsigned int here = process;
        going = own != NULL;
        while (going && own->storage != NULL && process == here) {
            Py_BEGIN_ALLOW_THREADS
            PyThread_acquire_lock_timed(own->lock, -1, 1);
            Py_END_ALLOW_THREADS
            going = PyErr_CheckSignals() == 0;
        }
        if (own != NULL) leave(own);
    }
    if (!going) let_go(self);
    Py_DECREF(self);
    return going;
}

/* Let a turn go that was waited for and is not taken. */
void let_go(Storage *self)
{
    if (self->writer != 0 && self->depth == 0 && may_write(self)) hand_over(self);
}

typedef struct {
    PyObject_VAR_HEAD
    Py_ssize_t had;           /* of so many, from the first on */
    Storage *storages[];      /* by address, each once: so that two threads never wait for each other */
} Turn;

static int by_address(const void *left, const void *right)
{
    uintptr_t a = (uintptr_t)*(Storage *const *)left, b = (uintptr_t)*(Storage *const *)right;
    return (a > b) - (a < b);
}

static PyObject *turn_call(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    for (Py_ssize_t i = 0; i < count; i++)
        if (!expect_type(args[i], &StorageType, "storage")) return NULL;
    Turn *self = PyObject_NewVar(Turn, &TurnType, count);
    if (self == NULL) return NULL;
    self->had = 0;
    for (Py_ssize_t i = 0; i < count; i++) self->storages[i] = (Storage *)Py_NewRef(args[i]);
    qsort(self->storages, (size_t)count, sizeof(Storage *), by_address);
    return (PyObject *)self;
}

static void turn_end(Turn *self)
{
    while (self->had > 0) end_write(self->storages[--self->had]);
}

static void turn_dealloc(Turn *self)
{
    turn_end(self);
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) Py_DECREF(self->storages[i]);
    PyObject_Free(self);
}

static PyObject *turn_enter(Turn *self, PyObject *unused)
{
    for (; self->had < Py_SIZE(self); self->had++) {
        if (!wait_for_turn(self->storages[self->had])) {
            turn_end(self);
            return NULL;
        }
        begin_write(self->storages[self->had]);
    }
    Py_RETURN_NONE;
}

static PyObject *turn_exit(Turn *self, PyObject *args)
{
    turn_end(self);
    Py_RETURN_NONE;
}

static PyMethodDef turn_methods[] = {
    {"__enter__", (PyCFunction)turn_enter, METH_NOARGS, "Wait until no other thread has it."},
    {"__exit__", (PyCFunction)turn_exit, METH_VARARGS, "End it."},
    {NULL},
};

PyTypeObject TurnType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Turn",
    .tp_doc = "The turn to write at once into storages: until it ends no other thread does, or makes another version\n"
              "of one of them current.",
    .tp_basicsize = sizeof(Turn),
    .tp_itemsize = sizeof(Storage *),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_vectorcall = turn_call,
    .tp_dealloc = (destructor)turn_dealloc,
    .tp_methods = turn_methods,
};

PyObject *storage_open(PyObject *object, PyObject *unused)
{
    Storage *self = (Storage *)object;
    PyObject *data = is_value(self->value) ? ((Value *)self->value)->data : NULL;
    if (self->depth == 0 || !may_write(self) || !is_data(data)) {
        PyErr_SetString(PyExc_RuntimeError, "bytes are opened in one's turn to write them");
        return NULL;
    }
    PyObject *open = self->open;
    self->open = Py_NewRef(data);
    ((Data *)data)->writing++;
    if (open != NULL) ((Data *)open)->writing--;
    Py_XDECREF(open);
    Py_RETURN_NONE;
}
