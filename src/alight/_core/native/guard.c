/* The call guard: what stands between a call of a jitted function and a kernel that is already there. */
#include "guard.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Entry *entries[ENTRIES];
    Entry *running;      /* begun last and not over: it makes room for none; of other threads maybe, it is compared alone */
    int count;
} Guard;

static PyObject *missed, *wrapped; /* "miss", "__wrapped__" */

_Thread_local int guards_running;

enum { PLACES = 16 }; /* arguments, where some are given by name */

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

/* Put all arguments in their places by the names of the function's parameters; returns how many there are, -1 where
   keywords leave out a parameter before them, or name what is none. */
static Py_ssize_t by_position(Guard *self, PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **placed)
{
    Py_ssize_t named = PyTuple_GET_SIZE(names), all = count + named;
    PyObject *function = all > PLACES ? NULL : PyObject_GetAttr((PyObject *)self, wrapped);
    if (function == NULL) {
        PyErr_Clear();
        return -1;
    }
    PyCodeObject *code = PyFunction_Check(function) ? (PyCodeObject *)PyFunction_GET_CODE(function) : NULL;
    if (code == NULL || count < code->co_posonlyargcount || all > code->co_argcount) {
        Py_DECREF(function);
        return -1;
    }
    memcpy(placed, args, (size_t)count * sizeof(PyObject *));
    Py_ssize_t found = 0;
    for (Py_ssize_t place = count; place < all; place++) {
        PyObject *name = PyTuple_GET_ITEM(code->co_localsplusnames, place); /* parameters come first */
        for (Py_ssize_t i = 0; i < named; i++) {
            PyObject *other = PyTuple_GET_ITEM(names, i);
            if (name == other || PyUnicode_Compare(name, other) == 0) {
                placed[place] = args[count + i];
                found++;
                break;
            }
        }
    }
    Py_DECREF(function);
    return found == named ? all : -1;
}

/* Where an entry is now; -1 where it is gone. */
static int place_of(const Guard *self, const Entry *entry)
{
    int i = self->count - 1;
    while (i >= 0 && self->entries[i] != entry) i--;
    return i;
}

/* Make an entry the first to be tried, where it still is among them. */
static void to_front(Guard *self, Entry *entry)
{
    int i = place_of(self, entry);
    if (i <= 0) return;
    memmove(&self->entries[1], &self->entries[0], (size_t)i * sizeof(Entry *));
    self->entries[0] = entry;
}

/* Return what the first entry gives whose guards hold, and tell which that is; NULL where there is none, or with an
   error. A function that looks at the arguments itself and has no answer leaves them to the entries behind it. */
static PyObject *answered(Guard *self, PyObject *const *args, Py_ssize_t count, Entry **by)
{
    for (int i = 0; i < self->count; i++) {
        Entry *entry = self->entries[i];
        Py_INCREF(entry); /* a comparison, or what it calls, may run Python code that drops it from the guard */
        int fits = entry_matches(entry, args, count);
        if (fits <= 0) {
            Py_DECREF(entry);
            if (fits < 0) return NULL;
            continue;
        }
        Entry *outer = self->running;
        self->running = entry;
        PyObject *result = entry_run(entry, args, count);
        self->running = outer;
        int looks = entry->looks, passed = result == Py_NotImplemented;
        if (passed && looks) {
            int here = place_of(self, entry); /* its run may have moved it, or the entries before it */
            i = here >= 0 ? here : i - 1;
        } else if (self->entries[0] != entry) {
            to_front(self, entry);
        }
        if (!passed && by != NULL) *by = entry; /* held until the caller has looked */
        else Py_DECREF(entry);
        if (!passed) return result;
        Py_DECREF(result);
        if (!looks) return NULL;
    }
    return NULL;
}

static PyObject *guard_vectorcall(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names)
{
    Guard *self = (Guard *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(flags), given = count;
    PyObject *placed[PLACES], *const *all = args;
    if (names != NULL && PyTuple_GET_SIZE(names) > 0 && self->count > 0) {
        given = by_position(self, args, count, names, placed);
        all = placed;
    }
    guards_running++;
    PyObject *result = given < 0 ? NULL : answered(self, all, given, NULL);
    if (result == NULL && !PyErr_Occurred()) result = miss(self, args, count, names);
    guards_running--;
    return result;
}

/* Answer a call as the guard does; ``numpys`` tells whether the function was called as it is, as it was for the
   ``passed`` calls before that did not come here. */
PyObject *guard_answer(PyObject *guard, PyObject *const *args, Py_ssize_t count, long long passed, bool *numpys)
{
    Guard *self = (Guard *)guard;
    Entry *by = NULL;
    guards_running++;
    PyObject *result = answered(self, args, count, &by);
    if (by != NULL) {
        *numpys = by->call != NULL && !by->looks;
        if (*numpys && by->left > 0) by->left = by->left > passed ? by->left - passed : 0;
        Py_DECREF(by);
    }
    if (result == NULL && !PyErr_Occurred()) result = miss(self, args, count, NULL);
    guards_running--;
    return result;
}

static PyObject *guard_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    if (kwargs == NULL || PyDict_GET_SIZE(kwargs) == 0)
        return guard_vectorcall(self, PySequence_Fast_ITEMS(args), (size_t)PyTuple_GET_SIZE(args), NULL);
    Py_ssize_t count = PyTuple_GET_SIZE(args), named = PyDict_GET_SIZE(kwargs), at = 0, i = 0;
    PyObject *given[PLACES], *names = count + named > PLACES ? NULL : PyTuple_New(named), *name, *item;
    if (names == NULL)
        return PyErr_Occurred() ? NULL : PyObject_CallMethodObjArgs(self, missed, args, kwargs, NULL);
    memcpy(given, PySequence_Fast_ITEMS(args), (size_t)count * sizeof(PyObject *));
    for (; PyDict_Next(kwargs, &at, &name, &item); i++) {
        PyTuple_SET_ITEM(names, i, Py_NewRef(name));
        given[count + i] = Py_NewRef(item); /* the caller's dict can change meanwhile */
    }
    PyObject *result = guard_vectorcall(self, given, (size_t)count, names);
    for (i = 0; i < named; i++) Py_DECREF(given[count + i]);
    Py_DECREF(names);
    return result;
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
    if (last != NULL && last == self->running) {
        last = self->entries[ENTRIES - 2];
        self->entries[ENTRIES - 2] = self->running;
    }
    memmove(&self->entries[1], &self->entries[0], (size_t)kept * sizeof(Entry *));
    self->entries[0] = (Entry *)Py_NewRef(entry);
    self->count = kept + 1;
    Py_XDECREF(last);
    Py_RETURN_NONE;
}

static PyObject *guard_holds(Guard *self, PyObject *entry)
{
    for (int i = 0; i < self->count; i++)
        if ((PyObject *)self->entries[i] == entry) Py_RETURN_TRUE;
    Py_RETURN_FALSE;
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
    PyErr_SetString(PyExc_NotImplementedError, "miss: a subclass answers the call that no entry does");
    return NULL;
}

static PyMethodDef guard_methods[] = {
    {"insert", (PyCFunction)guard_insert, METH_O,
     "Make an entry the first to be tried; that used longest ago goes where there are too many."},
    {"holds", (PyCFunction)guard_holds, METH_O, "Tell whether an entry is among those that are tried."},
    {"remove", (PyCFunction)guard_remove, METH_O, "Drop an entry; one that is not there is no error."},
    {"clear", (PyCFunction)guard_clear_method, METH_NOARGS, "Drop every entry."},
    {"miss", guard_miss, METH_VARARGS, "Return the result where no entry's guards hold."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject GuardType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.CallGuard",
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

bool is_guard(PyObject *object) { return PyObject_TypeCheck(object, &GuardType); }

static PyObject *know_masks(PyObject *Py_UNUSED(self), PyObject *known)
{
    int known_now = PyObject_IsTrue(known);
    if (known_now < 0) return NULL;
    masks_known = known_now;
    Py_RETURN_NONE;
}

static PyObject *errors_mask_of(PyObject *Py_UNUSED(self), PyObject *state) { return PyLong_FromLong(errors_mask(state)); }

static PyMethodDef guard_functions[] = {
    {"errors_mask", errors_mask_of, METH_O, "Return what NumPy does about errors in a state, as bits; -1: it is no such state."},
    {"know_masks", know_masks, METH_O, "Say whether error states begin with their masks (alight/_core/guard.py)."},
    {NULL, NULL, 0, NULL},
};

bool guard_ready(PyObject *module)
{
    missed = PyUnicode_InternFromString("miss");
    wrapped = PyUnicode_InternFromString("__wrapped__");
    return missed != NULL && wrapped != NULL && PyType_Ready(&EntryType) == 0 && PyType_Ready(&GuardType) == 0
        && PyModule_AddFunctions(module, guard_functions) == 0 && gates_ready(module)
        && PyModule_AddIntConstant(module, "ENTRIES", ENTRIES) == 0
        && PyModule_AddObjectRef(module, "Entry", (PyObject *)&EntryType) == 0
        && PyModule_AddObjectRef(module, "CallGuard", (PyObject *)&GuardType) == 0;
}
