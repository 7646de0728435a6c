/* The border: where values leave the program's own code for the code of packages.

   The program's files are compiled with calls, stores and returns that go by an object of this type
   (jit/border_rewrite.py). It is true while an Array lives; while none does it calls straight on. No frame
   stands between the program and what it calls: Python code is asked before the call and after it. */
#include "border.h"

long long live_arrays; /* Arrays that were made and not freed */

#if PY_VERSION_HEX >= 0x030C0000
#define SAVE_ERROR PyObject *saved = PyErr_GetRaisedException();
#define RESTORE_ERROR PyErr_SetRaisedException(saved);
#define DROP_ERROR Py_XDECREF(saved);
#else
#define SAVE_ERROR PyObject *saved[3]; PyErr_Fetch(&saved[0], &saved[1], &saved[2]);
#define RESTORE_ERROR PyErr_Restore(saved[0], saved[1], saved[2]);
#define DROP_ERROR Py_XDECREF(saved[0]); Py_XDECREF(saved[1]); Py_XDECREF(saved[2]);
#endif

/* Tell whether a result holds no ndarray that may have been an Array's. */
static bool has_no_ndarray(PyObject *item, int *looks)
{
    if (PyArray_CheckExact(item) || --*looks < 0) return false;
    if (PyTuple_CheckExact(item) || PyList_CheckExact(item)) {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(item); i++) {
            PyObject *part = PySequence_Fast_GET_ITEM(item, i);
            if (PyArray_CheckExact(part) || (!border_is_closed(part) && !has_no_ndarray(part, looks))) return false;
        }
        return true;
    }
    return border_is_closed(item) || PyArray_CheckScalar(item);
}

/* Return what a call gave as the program is to have it, after what was exchanged for it is back. */
PyObject *border_left(Border *self, PyObject *result, PyObject *state)
{
    if (state == Py_None) {
        if (result == NULL) return NULL;
        int looks = MOST_LOOKED_INTO;
        bool holder = PyTuple_CheckExact(result) || PyList_CheckExact(result) || PyDict_CheckExact(result);
        if (holder ? has_no_ndarray(result, &looks) : !PyArray_CheckExact(result)) return result;
    }
    if (result != NULL) {
        PyObject *shown = PyObject_CallFunctionObjArgs(self->leave, result, state, NULL);
        Py_DECREF(result);
        return shown;
    }
    SAVE_ERROR
    PyObject *done = PyObject_CallFunctionObjArgs(self->leave, Py_NotImplemented, state, NULL);
    if (done == NULL && !is_interrupt()) PyErr_Clear(); /* the program's error matters more */
    Py_XDECREF(done);
    if (PyErr_Occurred()) { /* an interrupt, which has come meanwhile */
        DROP_ERROR
        return NULL;
    }
    RESTORE_ERROR
    return NULL;
}

/* Note that a frame of the program waits for one call of C code more, or less. Kept by the frame, not on the stack of C:
   where a greenlet is switched away from the call goes on waiting. */
static int count_waiting(Border *self, PyObject *frame, long more)
{
    PyObject *found = PyDict_GetItemWithError(self->waiting, frame);
    if (found == NULL && PyErr_Occurred()) return -1;
    more += found == NULL ? 0 : PyLong_AsLong(found);
    if (more <= 0) return found == NULL ? 0 : PyDict_DelItem(self->waiting, frame);
    PyObject *count = PyLong_FromLong(more);
    int done = count == NULL ? -1 : PyDict_SetItem(self->waiting, frame, count);
    Py_XDECREF(count);
    return done;
}

static PyObject *call_outside(Border *self, PyObject *callee, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, bool passes_on)
{
    Py_ssize_t named = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    PyObject *state = Py_NewRef(Py_None), *positional = NULL, *keywords = NULL, *result;
    PyObject *owner = PyMethod_Check(callee) ? PyMethod_GET_SELF(callee) : callee;
    int looks = MOST_LOOKED_INTO;
    if (border_tell_of(self, args, nargs + named) < 0 || border_tell_of(self, &owner, 1) < 0) {
        Py_DECREF(state);
        return NULL;
    }
    bool bare = !passes_on && border_all_hold_none(self, args, nargs + named, &looks) && border_holds_none(self, owner, &looks);
    if (!bare) {
        PyObject *given = PyTuple_New(nargs), *names = named ? PyDict_New() : Py_NewRef(Py_None), *entered = NULL;
        if (given != NULL && names != NULL) {
            for (Py_ssize_t i = 0; i < nargs; i++) PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
            bool kept = true;
            for (Py_ssize_t i = 0; kept && i < named; i++)
                kept = PyDict_SetItem(names, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) == 0;
            if (kept) entered = PyObject_CallFunctionObjArgs(self->enter, callee, given, names, passes_on ? Py_True : Py_False, NULL);
        }
        Py_XDECREF(given);
        Py_XDECREF(names);
        if (entered == NULL) {
            Py_DECREF(state);
            return NULL;
        }
        if (entered != Py_None) {
            positional = Py_NewRef(PyTuple_GET_ITEM(entered, 0));
            keywords = PyTuple_GET_ITEM(entered, 1) == Py_None ? NULL : Py_NewRef(PyTuple_GET_ITEM(entered, 1));
            Py_SETREF(state, Py_NewRef(PyTuple_GET_ITEM(entered, 2)));
        }
        Py_DECREF(entered);
    }
    /* Of a function in Python the frame tells whose it is. */
    bool in_c = !PyFunction_Check(PyMethod_Check(callee) ? PyMethod_GET_FUNCTION(callee) : callee);
    PyObject *frame = in_c ? Py_XNewRef((PyObject *)PyEval_GetFrame()) : NULL;
    if (frame != NULL && count_waiting(self, frame, 1) < 0) {
        result = NULL;
    } else if (positional != NULL) {
        result = PyObject_Call(callee, positional, keywords);
    } else {
        result = PyObject_Vectorcall(callee, args, nargs, kwnames);
    }
    if (frame != NULL) {
        SAVE_ERROR
        if (count_waiting(self, frame, -1) < 0) PyErr_Clear(); /* no memory: it is taken to wait on */
        RESTORE_ERROR
        Py_DECREF(frame);
    }
    result = border_left(self, result, state);
    Py_XDECREF(positional); /* held until then: containers are counted that are held anew */
    Py_XDECREF(keywords);
    Py_DECREF(state);
    return result;
}

/* Call what is not a function of the program while `jit` records: with the functions that it is given as they run
   there, if all that it does with them is to call them. */
static PyObject *call_with_insides(Border *self, PyObject *callee, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    Py_ssize_t count = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames)), changed = 0;
    bool any = false;
    for (Py_ssize_t i = 0; i < count; i++) any = any || PyFunction_Check(args[i]);
    if (!any) return PyObject_Vectorcall(callee, args, nargs, kwnames);
    PyObject *given = PyTuple_New(count), *result = NULL;
    if (given == NULL) return NULL;
    for (; changed < count; changed++) {
        PyObject *item = args[changed];
        item = PyFunction_Check(item) ? PyObject_CallFunctionObjArgs(self->inside, item, callee, NULL) : Py_NewRef(item);
        if (item == NULL) break;
        PyTuple_SET_ITEM(given, changed, item);
    }
    if (changed == count) result = PyObject_Vectorcall(callee, &PyTuple_GET_ITEM(given, 0), nargs, kwnames);
    Py_DECREF(given);
    return result;
}

/* Make an object of the program's own class as `type` does, its `__init__` run as it runs while `jit` records. NULL
   without an error: there is none of the program's, or the class is made otherwise. */
static PyObject *made_inside(Border *self, PyTypeObject *kind, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (Py_TYPE(kind)->tp_call != PyType_Type.tp_call || kind == &PyType_Type || kind->tp_new == NULL) return NULL;
    PyObject *init = PyObject_GetAttrString((PyObject *)kind, "__init__");
    if (init == NULL) return NULL;
    PyObject *twin = PyFunction_Check(init) ? PyObject_CallOneArg(self->inside, init) : Py_NewRef(init);
    bool same = twin == init;
    Py_DECREF(init);
    if (twin == NULL || same) {
        Py_XDECREF(twin);
        return NULL;
    }
    Py_ssize_t named = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    PyObject *made = NULL, *given = PyTuple_New(nargs), *names = named ? PyDict_New() : NULL, *with_it = NULL;
    if (given == NULL || (named && names == NULL)) goto end;
    for (Py_ssize_t i = 0; i < nargs; i++) PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; i < named; i++)
        if (PyDict_SetItem(names, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) < 0) goto end;
    made = kind->tp_new(kind, given, names);
    if (made == NULL || !PyObject_TypeCheck(made, kind)) goto end;
    with_it = PyTuple_New(nargs + 1);
    PyObject *answer = NULL;
    if (with_it != NULL) {
        PyTuple_SET_ITEM(with_it, 0, Py_NewRef(made));
        for (Py_ssize_t i = 0; i < nargs; i++) PyTuple_SET_ITEM(with_it, i + 1, Py_NewRef(args[i]));
        /* What `__new__` made may be of another class that has its own. */
        if (Py_TYPE(made) == kind) {
            answer = PyObject_Call(twin, with_it, names);
        } else {
            answer = Py_TYPE(made)->tp_init(made, given, names) < 0 ? NULL : Py_NewRef(Py_None);
        }
    }
    if (answer != NULL && answer != Py_None)
        PyErr_Format(PyExc_TypeError, "__init__() should return None, not '%.200s'", Py_TYPE(answer)->tp_name);
    Py_XDECREF(answer);
    if (PyErr_Occurred()) Py_CLEAR(made);
end:
    Py_XDECREF(with_it);
    Py_XDECREF(given);
    Py_XDECREF(names);
    Py_DECREF(twin);
    return made;
}

/* Call the program's own function as it runs while `jit` records. */
static PyObject *call_inside(Border *self, PyObject *callee, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *function = PyMethod_Check(callee) ? PyMethod_GET_FUNCTION(callee) : callee;
    if (!PyMethod_Check(callee) && !PyFunction_Check(callee)) {
        PyObject *name = PyUnicode_InternFromString("__call__");
        if (name == NULL) return NULL;
        PyObject *called = _PyType_Lookup(Py_TYPE(callee), name);
        Py_DECREF(name);
        if (called != NULL && PyFunction_Check(called)) { /* of its class, or of a class's own class */
            PyObject *method = PyMethod_New(called, callee);
            PyObject *result = method == NULL ? NULL : call_inside(self, method, args, nargs, kwnames);
            Py_XDECREF(method);
            return result;
        }
        if (PyType_Check(callee)) {
            PyObject *made = made_inside(self, (PyTypeObject *)callee, args, nargs, kwnames);
            if (made != NULL || PyErr_Occurred()) return made;
        }
    }
    if (!PyFunction_Check(function)) return call_with_insides(self, callee, args, nargs, kwnames);
    PyObject *twin = PyObject_CallOneArg(self->inside, function), *result;
    if (twin == function) {
        Py_DECREF(twin);
        return call_with_insides(self, callee, args, nargs, kwnames);
    }
    if (twin != NULL && function != callee) {
        Py_SETREF(twin, PyMethod_New(twin, PyMethod_GET_SELF(callee)));
    }
    if (twin == NULL) return NULL;
    result = PyObject_Vectorcall(twin, args, nargs, kwnames);
    Py_DECREF(twin);
    return result;
}

static PyObject *border_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Border *self = (Border *)object;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf) - 1;
    if (nargs < 0) {
        PyErr_SetString(PyExc_TypeError, "a border is told what to call");
        return NULL;
    }
    PyObject *callee = args[0];
    args++;
    if (live_arrays > 0) {
        int verdict = border_verdict(self, callee);
        if (verdict == PASSES_ON) {
            int foreign = border_names_foreign(self, args, nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames)));
            verdict = foreign < 0 ? -1 : foreign ? FOREIGN + 16 : STRAIGHT;
        }
        if (verdict < 0) return NULL;
        if (verdict == FOREIGN && PyFunction_Check(callee)) {
            PyObject *ours = self->stand_ins == NULL ? NULL : PyDict_GetItemWithError(self->stand_ins, callee);
            if (ours != NULL) return PyObject_Vectorcall(ours, args, nargs, kwnames);
            if (PyErr_Occurred()) return NULL;
        }
        if (verdict != STRAIGHT) return call_outside(self, callee, args, nargs, kwnames, verdict > 16);
        if (floors->traced > 0 && self->inside != NULL && self->inside != Py_None) {
            return call_inside(self, callee, args, nargs, kwnames);
        }
    }
    return PyObject_Vectorcall(callee, args, nargs, kwnames);
}

/* Tell whether the frame that waits for the running one is a package's, or waits for a package's code. */
static int asked_from_outside(Border *self)
{
    PyFrameObject *frame = PyEval_GetFrame(), *back = frame == NULL ? NULL : PyFrame_GetBack(frame);
    if (back == NULL) return 0;
    int waits = PyDict_GET_SIZE(self->waiting) > 0 ? PyDict_Contains(self->waiting, (PyObject *)back) : 0;
    int verdict = waits > 0 ? FOREIGN : waits;
    if (verdict == UNKNOWN) {
        PyCodeObject *code = PyFrame_GetCode(back);
        verdict = border_judged(self, self->by_origin, code->co_filename, (PyObject *)code);
        Py_DECREF(code);
    }
    Py_DECREF(back);
    return verdict < 0 ? -1 : verdict == FOREIGN;
}

static PyObject *border_give(PyObject *object, PyObject *value)
{
    Border *self = (Border *)object;
    if (live_arrays == 0 || border_is_closed(value)) return Py_NewRef(value);
    if (!PyObject_TypeCheck(value, &ArrayType) && !PyTuple_Check(value) && !PyList_Check(value) && !PyDict_Check(value))
        return Py_NewRef(value);
    int foreign = asked_from_outside(self);
    if (foreign < 0) return NULL;
    return foreign ? PyObject_CallOneArg(self->give, value) : Py_NewRef(value);
}

static int border_true(PyObject *self) { return live_arrays > 0; }

static PyObject *border_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"judge", "describe", "enter", "leave", "give", "installed", NULL};
    PyObject *judge, *describe, *enter, *leave, *give, *installed;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOOO", names, &judge, &describe, &enter, &leave, &give, &installed))
        return NULL;
    Border *self = (Border *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->vectorcall = border_call;
    self->judge = Py_NewRef(judge);
    self->describe = Py_NewRef(describe);
    self->enter = Py_NewRef(enter);
    self->leave = Py_NewRef(leave);
    self->give = Py_NewRef(give);
    self->installed = Py_NewRef(installed);
    self->by_origin = PyDict_New();
    self->by_class = PyDict_New();
    self->by_made = PyDict_New();
    self->by_kind = PyDict_New();
    self->waiting = PyDict_New();
    if (self->waiting == NULL || self->by_origin == NULL || self->by_class == NULL || self->by_made == NULL || self->by_kind == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int border_traverse(Border *self, visitproc visit, void *arg)
{
    Py_VISIT(self->judge);
    Py_VISIT(self->describe);
    Py_VISIT(self->enter);
    Py_VISIT(self->leave);
    Py_VISIT(self->give);
    Py_VISIT(self->installed);
    Py_VISIT(self->by_origin);
    Py_VISIT(self->by_class);
    Py_VISIT(self->by_made);
    Py_VISIT(self->by_kind);
    Py_VISIT(self->waiting);
    Py_VISIT(self->inside);
    Py_VISIT(self->stand_ins);
    return 0;
}

static void border_dealloc(Border *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) PyObject_ClearWeakRefs((PyObject *)self);
    Py_XDECREF(self->judge);
    Py_XDECREF(self->describe);
    Py_XDECREF(self->enter);
    Py_XDECREF(self->leave);
    Py_XDECREF(self->give);
    Py_XDECREF(self->installed);
    Py_XDECREF(self->by_origin);
    Py_XDECREF(self->by_class);
    Py_XDECREF(self->by_made);
    Py_XDECREF(self->by_kind);
    Py_XDECREF(self->waiting);
    Py_XDECREF(self->inside);
    Py_XDECREF(self->stand_ins);
    Py_TYPE(self)->tp_free(self);
}

/* Code that names it is pickled by value and runs elsewhere. */
static PyObject *border_reduce(PyObject *self, PyObject *unused) { return Py_BuildValue("O()", ((Border *)self)->installed); }

static PyObject *border_forget(Border *self, PyObject *unused)
{
    PyDict_Clear(self->by_origin);
    PyDict_Clear(self->by_class);
    PyDict_Clear(self->by_made);
    PyDict_Clear(self->by_kind);
    Py_RETURN_NONE;
}

static PyMethodDef border_methods[] = {
    {"give", border_give, METH_O, "Return what is returned or yielded, as who asked for it may have it."},
    {"set_item", (PyCFunction)(void (*)(void))border_set_item, METH_FASTCALL, "Store a value in a container under a key."},
    {"set_attribute", (PyCFunction)(void (*)(void))border_set_attribute, METH_FASTCALL, "Store a value in an object under a name."},
    {"swap", (PyCFunction)(void (*)(void))border_swap, METH_FASTCALL, "Exchange an item of a list or a dict for another, where it still is."},
    {"operate", (PyCFunction)(void (*)(void))border_operate, METH_FASTCALL, "Do an operation on two operands, by its number."},
    {"forget", (PyCFunction)(void (*)(void))border_forget, METH_NOARGS, "Judge anew whose code is whose."},
    {"__reduce__", border_reduce, METH_NOARGS, "Return what gives it in another process."},
    {NULL},
};

static PyObject *border_slice(PyObject *self, void *closure) { return Py_NewRef((PyObject *)&PySlice_Type); }

static PyGetSetDef border_properties[] = {
    {"slice", border_slice, NULL, "The class of slices, whatever the program has under that name.", NULL},
    {NULL},
};

static PyMemberDef border_members[] = {
    {"out", T_PYSSIZET, offsetof(Border, out), 0, "How many containers have ndarrays in place of their Arrays for now."},
    {"stand_ins", T_OBJECT, offsetof(Border, stand_ins), 0, "A dict: what is called in the place of packages' functions."},
    {"inside", T_OBJECT, offsetof(Border, inside), 0, "What gives the function that runs in a function's place while `jit` records."},
    {NULL},
};

static PyNumberMethods border_number = {.nb_bool = border_true};

PyTypeObject BorderType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Border",
    .tp_doc = "Calls, stores and returns of the program's code; true while an Array lives.",
    .tp_basicsize = sizeof(Border),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = border_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Border, vectorcall),
    .tp_dealloc = (destructor)border_dealloc,
    .tp_traverse = (traverseproc)border_traverse,
    .tp_weaklistoffset = offsetof(Border, weakrefs),
    .tp_as_number = &border_number,
    .tp_methods = border_methods,
    .tp_getset = border_properties,
    .tp_members = border_members,
};
