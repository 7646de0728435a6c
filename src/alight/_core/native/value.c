/* Values, storages, and the list of storages whose version is pending. */
#include "core.h"

static long long next_seq;
/* What a value's reference count is when only a caller's name holds it and it is passed to a C function:
   interpreters differ, so it is measured at import. */
Py_ssize_t sole_references;

/* Return a value recorded under an error state; takes over the reference to its operands, also on failure. */
Value *value_new(PyObject *op, PyObject *operands, PyObject *layout, PyObject *errstate)
{
    Value *self = operands == NULL ? NULL : PyObject_GC_New(Value, &ValueType);
    if (self == NULL) {
        Py_XDECREF(operands);
        return NULL;
    }
    self->weakrefs = self->site = self->code = NULL;
    self->op = Py_NewRef(op);
    self->operands = operands;
    self->attrs = Py_NewRef(empty_tuple);
    self->layout = Py_NewRef(layout);
    self->data = Py_NewRef(Py_None);
    self->errstate = Py_XNewRef(errstate);
    self->error = Py_NewRef(Py_None);
    self->instruction = 0;
    self->offset = self->number = 0;
    self->mark = 0;
    self->seq = next_seq++;
    PyObject_GC_Track(self);
    return self;
}

static PyObject *value_call(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    static const char *const names[] = {"op", "operands", "attrs", "layout", "site", NULL};
    PyObject *taken[5] = {NULL, NULL, NULL, NULL, Py_None};
    if (!take_arguments("Value", names, 4, args, nargsf, kwnames, taken)
        || !expect_type(taken[1], &PyTuple_Type, "operands")
        || !expect_type(taken[3], &LayoutType, "layout")) {
        return NULL;
    }
    PyObject *errstate;
    if (!errors_may_wait(&errstate)) {
        return NULL;
    }
    if (errstate != NULL) {
        Py_INCREF(errstate);
    } else if (PyContextVar_Get(numpy_errstate, NULL, &errstate) < 0) {
        return NULL;
    }
    Value *self = value_new(taken[0], Py_NewRef(taken[1]), taken[3], errstate);
    Py_XDECREF(errstate);
    if (self != NULL) {
        Py_SETREF(self->attrs, Py_NewRef(taken[2]));
        self->site = Py_NewRef(taken[4]);
    }
    return (PyObject *)self;
}

static int value_clear(Value *self)
{
    Py_CLEAR(self->op);
    Py_CLEAR(self->operands);
    Py_CLEAR(self->attrs);
    Py_CLEAR(self->layout);
    Py_CLEAR(self->data);
    Py_CLEAR(self->errstate);
    Py_CLEAR(self->error);
    Py_CLEAR(self->site);
    Py_CLEAR(self->code);
    return 0;
}

static void value_dealloc(Value *self)
{
    PyObject_GC_UnTrack(self);
    /* A chain of pending values can be as long as a program. */
    Py_TRASHCAN_BEGIN(self, value_dealloc)
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    value_clear(self);
    Py_TYPE(self)->tp_free(self);
    Py_TRASHCAN_END
}

static int value_traverse(Value *self, visitproc visit, void *arg)
{
    Py_VISIT(self->op);
    Py_VISIT(self->operands);
    Py_VISIT(self->attrs);
    Py_VISIT(self->layout);
    Py_VISIT(self->data);
    Py_VISIT(self->errstate);
    Py_VISIT(self->error);
    Py_VISIT(self->site);
    Py_VISIT(self->code);
    return 0;
}

static PyObject *value_site(Value *self, void *closure)
{
    if (self->site == NULL && self->code != NULL) {
        PyObject *site = Py_BuildValue("Oi", self->code, self->instruction);
        if (site == NULL) {
            return NULL;
        }
        Py_XSETREF(self->site, site);
        Py_CLEAR(self->code);
    }
    return Py_NewRef(self->site == NULL ? Py_None : self->site);
}

static int value_set_site(Value *self, PyObject *site, void *closure)
{
    Py_XSETREF(self->site, Py_XNewRef(site));
    Py_CLEAR(self->code);
    return 0;
}

static PyObject *value_repr(Value *self)
{
    PyObject *name;
    if (is_pending(self)) {
        name = PyObject_GetAttrString(self->op, "name");
    } else {
        bool has_data = self->data != NULL && self->data != Py_None;
        name = PyUnicode_FromString(has_data ? "data" : "constant");
    }
    if (name == NULL) {
        return NULL;
    }
    PyObject *layout = self->layout == NULL ? Py_None : self->layout;
    PyObject *text = PyUnicode_FromFormat("<Value %lld %S %R>", self->seq, name, layout);
    Py_DECREF(name);
    return text;
}

/* Make a value concrete; takes over the reference to its data. Nothing can come in between: who sees that it is no
   longer pending sees where its bytes are, and an interrupted program finds it as it was, or bound. */
void value_bind(Value *self, PyObject *data, Py_ssize_t offset)
{
    PyObject *old[] = {self->data, self->op, self->attrs, self->operands, self->error /* of a time before */};
    self->data = data;
    self->offset = offset;
    self->op = Py_NewRef(Py_None);
    self->attrs = Py_NewRef(empty_tuple);
    self->operands = Py_NewRef(empty_tuple);
    self->error = Py_NewRef(Py_None);
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++) Py_XDECREF(old[i]); /* this may run other code */
}

/* The data and offset that a call is given first; NULL with an error. */
static PyObject *place_given(PyObject *args, Py_ssize_t least, Py_ssize_t *offset)
{
    if (PyTuple_GET_SIZE(args) < least || !expect_type(PyTuple_GET_ITEM(args, 0), &DataType, "data")) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "%zd arguments, and at least %zd are needed", PyTuple_GET_SIZE(args), least);
        return NULL;
    }
    *offset = PyNumber_AsSsize_t(PyTuple_GET_ITEM(args, 1), PyExc_OverflowError);
    return *offset == -1 && PyErr_Occurred() ? NULL : PyTuple_GET_ITEM(args, 0);
}

static PyObject *value_bind_method(Value *self, PyObject *args)
{
    Py_ssize_t offset;
    PyObject *data = place_given(args, 2, &offset);
    if (data == NULL) return NULL;
    value_bind(self, Py_NewRef(data), offset);
    Py_RETURN_NONE;
}

static PyObject *value_bind_written(Value *self, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t offset;
    PyObject *data = place_given(args, 3, &offset);
    PyObject *rest = data == NULL ? NULL : PyTuple_GetSlice(args, 3, PyTuple_GET_SIZE(args));
    PyObject *made = rest == NULL ? NULL : PyObject_Call(PyTuple_GET_ITEM(args, 2), rest, kwargs);
    if (made != NULL) value_bind(self, Py_NewRef(data), offset);
    Py_XDECREF(rest);
    return made;
}

static PyMethodDef value_methods[] = {
    {"bind", (PyCFunction)value_bind_method, METH_VARARGS,
     "Make the value concrete: these bytes, from this offset on."},
    {"bind_written", (PyCFunction)(void (*)(void))value_bind_written, METH_VARARGS | METH_KEYWORDS,
     "Call a function that writes into these bytes, and bind the value to them if it returns: between its end and the\n"
     "binding nothing can interrupt, so that what has been written in place is not written twice."},
    {NULL},
};

static PyMemberDef value_members[] = {
    MEMBER(Value, op),
    MEMBER(Value, operands),
    MEMBER(Value, attrs),
    MEMBER(Value, layout),
    MEMBER(Value, data),
    MEMBER(Value, errstate),
    MEMBER(Value, error),
    {"offset", T_PYSSIZET, offsetof(Value, offset), 0, NULL},
    {"seq", T_LONGLONG, offsetof(Value, seq), 0, NULL},
    {NULL},
};

static PyGetSetDef value_properties[] = {
    {"site", (getter)value_site, (setter)value_set_site,
     "Where in the program the value was recorded: code and instruction.", NULL},
    {NULL},
};

PyTypeObject ValueType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Value",
    .tp_doc = "One immutable result: pending (op and operands) or concrete (data and offset).",
    .tp_basicsize = sizeof(Value),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_vectorcall = value_call,
    .tp_dealloc = (destructor)value_dealloc,
    .tp_traverse = (traverseproc)value_traverse,
    .tp_clear = (inquiry)value_clear,
    .tp_weaklistoffset = offsetof(Value, weakrefs),
    .tp_repr = (reprfunc)value_repr,
    .tp_members = value_members,
    .tp_getset = value_properties,
    .tp_methods = value_methods,
};

PyObject *sole(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"value", "held", "data_held", NULL};
    PyObject *taken[3] = {NULL, NULL, NULL};
    if (!take_arguments("sole", names, 2, args, nargs, kwnames, taken)
        || !expect_type(taken[0], &ValueType, "value")) {
        return NULL;
    }
    Py_ssize_t held = PyNumber_AsSsize_t(taken[1], PyExc_OverflowError), data_held = 0;
    if (taken[2] != NULL) {
        data_held = PyNumber_AsSsize_t(taken[2], PyExc_OverflowError);
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    PyObject *value = taken[0], *data = ((Value *)value)->data;
    return PyBool_FromLong(is_data(data) && Py_REFCNT(value) <= sole_references + held && Py_REFCNT(data) <= 1 + data_held);
}

PyObject *reference_count(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return nargs == 1 ? PyLong_FromSsize_t(Py_REFCNT(args[0])) : PyLong_FromLong(0);
}

/* Storages enter at the newest end when their version is pending; they leave when they die, or when
   somebody asks for the pending ones and finds them settled. */
static Storage pending_end = {.older = &pending_end, .newer = &pending_end};

static void unlink_storage(Storage *self)
{
    if (self->older != NULL) {
        self->older->newer = self->newer;
        self->newer->older = self->older;
        self->older = self->newer = NULL;
    }
}

static void link_if_pending(Storage *self, Value *value)
{
    if (self->older == NULL && is_pending(value)) {
        self->older = pending_end.older;
        self->newer = &pending_end;
        self->older->newer = pending_end.older = self;
    }
}

PyObject *storage_new(Value *value)
{
    Storage *self = PyObject_GC_New(Storage, &StorageType);
    if (self == NULL) {
        return NULL;
    }
    self->weakrefs = NULL;
    self->value = Py_NewRef((PyObject *)value);
    self->lease = Py_NewRef(Py_None);
    self->members = Py_NewRef(empty_tuple);
    self->older = self->newer = NULL;
    self->writer = 0;
    self->depth = self->process = 0;
    self->open = NULL;
    link_if_pending(self, value);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PyObject *storage_call(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    static const char *const names[] = {"value", NULL};
    PyObject *taken[1];
    if (!take_arguments("Storage", names, 1, args, nargsf, kwnames, taken)
        || !expect_type(taken[0], &ValueType, "value")) {
        return NULL;
    }
    return storage_new((Value *)taken[0]);
}

static int storage_clear(Storage *self)
{
    Py_CLEAR(self->value);
    Py_CLEAR(self->lease);
    Py_CLEAR(self->members);
    Py_XDECREF(closed(self));
    return 0;
}

static void storage_dealloc(Storage *self)
{
    unlink_storage(self);
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    storage_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static int storage_traverse(Storage *self, visitproc visit, void *arg)
{
    Py_VISIT(self->value);
    Py_VISIT(self->lease);
    Py_VISIT(self->members);
    Py_VISIT(self->open);
    return 0;
}

static PyObject *storage_rebind(Storage *self, PyObject *value)
{
    if (!expect_type(value, &ValueType, "value") || !wait_for_turn(self)) {
        return NULL;
    }
    PyObject *old = self->value;
    self->value = Py_NewRef(value);
    link_if_pending(self, (Value *)value);
    let_go(self);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *storage_replace(Storage *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !Py_IS_TYPE(args[0], &ValueType) || !Py_IS_TYPE(args[1], &ValueType)) {
        PyErr_SetString(PyExc_TypeError, "replace() takes the version that is there, and the next one");
        return NULL;
    }
    if (!wait_for_turn(self)) return NULL;
    PyObject *old = self->value, *data = ((Value *)args[0])->data;
    if (old != args[0] || (!is_pending((Value *)old) && is_data(data) && ((Data *)data)->shared && !data_is_private((Data *)data))) {
        let_go(self);
        Py_RETURN_FALSE;
    }
    self->value = Py_NewRef(args[1]);
    link_if_pending(self, (Value *)args[1]);
    let_go(self);
    Py_DECREF(old);
    Py_RETURN_TRUE;
}

static PyMemberDef storage_members[] = {
    MEMBER(Storage, value),
    MEMBER(Storage, lease),
    MEMBER(Storage, members),
    {NULL},
};

static PyMethodDef storage_methods[] = {
    {"rebind", (PyCFunction)storage_rebind, METH_O, "Make ``value`` the current version, whatever that is now."},
    {"replace", (PyCFunction)(void (*)(void))storage_replace, METH_FASTCALL,
     "Make a value that was made of ``old`` the current version, and return True; False, with nothing done, where\n"
     "another thread has written since, or others were given its memory."},
    {"open", storage_open, METH_NOARGS, "Note, in one's turn, that the current bytes are written from now on."},
    {NULL},
};

PyTypeObject StorageType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Storage",
    .tp_doc = "The current version of some memory. ``lease`` is what is known of it while ``jit`` has it from "
              "its caller; ``members`` are the caller's ndarrays in it, each with a reference to the array for it.",
    .tp_basicsize = sizeof(Storage),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_vectorcall = storage_call,
    .tp_dealloc = (destructor)storage_dealloc,
    .tp_traverse = (traverseproc)storage_traverse,
    .tp_clear = (inquiry)storage_clear,
    .tp_weaklistoffset = offsetof(Storage, weakrefs),
    .tp_members = storage_members,
    .tp_methods = storage_methods,
};

Storage *next_pending(Storage *after)
{
    Storage *storage = after == NULL ? pending_end.newer : after->newer;
    while (storage != &pending_end && !(is_value(storage->value) && is_pending((Value *)storage->value))) {
        Storage *newer = storage->newer;
        unlink_storage(storage);
        storage = newer;
    }
    return storage == &pending_end ? NULL : storage;
}

PyObject *pending_storages(PyObject *module, PyObject *unused)
{
    PyObject *found = PyList_New(0);
    if (found == NULL) {
        return NULL;
    }
    /* Nothing in this loop runs other code: appending allocates no object that the collector counts. */
    for (Storage *storage = next_pending(NULL); storage != NULL; storage = next_pending(storage)) {
        if (PyList_Append(found, (PyObject *)storage) < 0) {
            Py_DECREF(found);
            return NULL;
        }
    }
    return found;
}
