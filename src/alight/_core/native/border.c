/* The border: where values leave the program's own code for the code of packages.

   The program's files are compiled with calls, stores and returns that go by an object of this type
   (jit/border_rewrite.py). It is true while an Array lives; while none does it calls straight on. No frame
   stands between the program and what it calls: Python code is asked before the call and after it. */
#include "core.h"

long long live_arrays; /* Arrays that were made and not freed */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *weakrefs, *judge, *describe, *enter, *leave, *give, *installed;
    /* What was judged: by file or module of a function, by class of what is called, by class that is called; and what
       was told of objects, by their class. */
    PyObject *by_origin, *by_class, *by_made, *by_kind;
    PyObject *waiting; /* frames of the program that wait for a package's C code, and for how many calls */
    Py_ssize_t out; /* containers whose Arrays are exchanged for now */
    PyObject *inside; /* gives what runs in a function's place while `jit` records */
    PyObject *stand_ins; /* what is called in the place of packages' functions that are ops */
} Border;

enum { UNKNOWN, STRAIGHT, FOREIGN, PASSES_ON, NOT_KEPT = 8 };

#define MOST_KEPT 4096 /* a program may make classes for ever: then all is judged anew */

/* Tell whether a class is told apart from others by what it is, and no code of a class of its own is asked. */
static bool is_kept_by(PyTypeObject *kind)
{
    return Py_TYPE(kind)->tp_hash == PyType_Type.tp_hash && Py_TYPE(kind)->tp_richcompare == PyType_Type.tp_richcompare;
}

static int judged(Border *self, PyObject *known, PyObject *key, PyObject *item)
{
    if (key != NULL && !(PyType_Check(key) ? is_kept_by((PyTypeObject *)key) : PyUnicode_CheckExact(key))) key = NULL;
    if (key != NULL) {
        PyObject *found = PyDict_GetItemWithError(known, key);
        if (found != NULL) return (int)PyLong_AsLong(found);
        if (PyErr_Occurred()) PyErr_Clear();
    }
    PyObject *answer = PyObject_CallOneArg(self->judge, item);
    if (answer == NULL) return -1;
    int verdict = (int)PyLong_AsLong(answer);
    if (key != NULL && !(verdict & NOT_KEPT)) {
        if (PyDict_GET_SIZE(known) >= MOST_KEPT) PyDict_Clear(known);
        if (PyDict_SetItem(known, key, answer) < 0) PyErr_Clear();
    }
    Py_DECREF(answer);
    return verdict & ~NOT_KEPT;
}

/* Tell whose code runs when something is called. */
static int verdict_of(Border *self, PyObject *callee)
{
    if (PyMethod_Check(callee)) callee = PyMethod_GET_FUNCTION(callee);
    if (PyFunction_Check(callee)) {
        PyObject *file = ((PyCodeObject *)PyFunction_GET_CODE(callee))->co_filename;
        bool made = PyUnicode_GET_LENGTH(file) > 0 && PyUnicode_READ_CHAR(file, 0) == '<';
        return judged(self, self->by_origin, made ? PyFunction_GET_MODULE(callee) : file, callee);
    }
    if (PyCFunction_Check(callee)) {
        PyObject *owner = PyCFunction_GET_SELF(callee);
        if (owner == NULL || PyModule_Check(owner) || PyType_Check(owner)) {
            PyObject *module = ((PyCFunctionObject *)callee)->m_module;
            return judged(self, self->by_origin, owner != NULL && PyType_Check(owner) ? NULL : module, callee);
        }
        if (PyList_CheckExact(owner) || PyDict_CheckExact(owner) || PyUnicode_CheckExact(owner)) return STRAIGHT;
        return judged(self, self->by_class, (PyObject *)Py_TYPE(owner), callee);
    }
    if (PyType_Check(callee)) return judged(self, self->by_made, callee, callee);
    return judged(self, self->by_class, (PyObject *)Py_TYPE(callee), callee);
}

/* Tell what is known of objects of a class: of bits below. */
static int described(Border *self, PyTypeObject *kind)
{
    bool kept = is_kept_by(kind);
    PyObject *found = kept ? PyDict_GetItemWithError(self->by_kind, (PyObject *)kind) : NULL;
    if (found != NULL) return (int)PyLong_AsLong(found);
    PyObject *answer = PyObject_CallOneArg(self->describe, (PyObject *)kind);
    if (answer == NULL) return -1;
    int told = (int)PyLong_AsLong(answer);
    if (kept && PyDict_GET_SIZE(self->by_kind) >= MOST_KEPT) PyDict_Clear(self->by_kind);
    if (kept && PyDict_SetItem(self->by_kind, (PyObject *)kind, answer) < 0) PyErr_Clear();
    Py_DECREF(answer);
    return told;
}

/* What `describe` tells: objects of a package's class, or of one made of it; of a class whose objects hold nothing that
   is exchanged; of one whose objects hold what their attributes are. */
enum { A_PACKAGES = 1, HOLDS_NOTHING = 2, BY_ATTRIBUTES = 4 };

/* Tell whether nothing can be in an object that has to be exchanged. */
static bool is_closed(PyObject *item)
{
    return item == Py_None || PyBool_Check(item) || PyLong_CheckExact(item) || PyFloat_CheckExact(item)
           || PyUnicode_CheckExact(item) || PyBytes_CheckExact(item) || PyComplex_CheckExact(item)
           || (PyArray_CheckExact(item) && PyArray_TYPE((PyArrayObject *)item) != NPY_OBJECT)
           || PySlice_Check(item) || PyFunction_Check(item);
}

/* Tell whether a key or an operand is an Array, or a container that may have one. */
static bool may_hold(PyObject *item)
{
    return PyObject_TypeCheck(item, &ArrayType) || PyTuple_CheckExact(item) || PyList_CheckExact(item) || PyDict_CheckExact(item)
           || PySlice_Check(item);
}

/* Objects that are looked into before Python code is asked, which meets each once. */
#define MOST_LOOKED_INTO 256

static bool holds_none(Border *self, PyObject *item, int *looks);

static bool all_hold_none(Border *self, PyObject *const *items, Py_ssize_t count, int *looks)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (!holds_none(self, items[i], looks)) return false;
    return true;
}

/* What is in a container is held while it is looked at: the collector may run then, and what it calls. */
static bool within_holds_none(Border *self, PyObject *item, int *looks)
{
    if (self->out > 0 && PyArray_CheckExact(item)) return false; /* another call may have put it there */
    if (is_closed(item)) return true;
    Py_INCREF(item);
    bool empty = holds_none(self, item, looks);
    Py_DECREF(item);
    return empty;
}

static bool items_hold_none(Border *self, PyObject *items, int *looks)
{
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++)
        if (!within_holds_none(self, PySequence_Fast_GET_ITEM(items, i), looks)) return false;
    return true;
}

static bool values_hold_none(Border *self, PyObject *dict, int *looks)
{
    PyObject *key, *value;
    Py_ssize_t place = 0;
    while (PyDict_Next(dict, &place, &key, &value))
        if (!within_holds_none(self, value, looks)) return false;
    return true;
}

/* Tell whether nothing that has to be exchanged can be reached from an object; no: it may be. No code of Python's runs
   while items are looked at, but where a class is met first: then it is not told of. */
static bool holds_none(Border *self, PyObject *item, int *looks)
{
    if (is_closed(item)) return true;
    if (--*looks < 0) return false;
    if (PyTuple_CheckExact(item) || PyList_CheckExact(item)) return items_hold_none(self, item, looks);
    if (PyDict_CheckExact(item)) return values_hold_none(self, item, looks);
    PyObject *known = is_kept_by(Py_TYPE(item)) ? PyDict_GetItemWithError(self->by_kind, (PyObject *)Py_TYPE(item)) : NULL;
    int told = known == NULL ? 0 : (int)PyLong_AsLong(known);
    if (known == NULL && PyErr_Occurred()) PyErr_Clear();
    if (told & HOLDS_NOTHING) return true;
    if (!(told & BY_ATTRIBUTES)) return false;
    PyObject *kept = PyObject_GenericGetDict(item, NULL);
    if (kept == NULL) PyErr_Clear();
    bool empty = kept != NULL && PyDict_Check(kept) && values_hold_none(self, kept, looks);
    Py_XDECREF(kept);
    return empty;
}

/* Have the classes of what is handed over told of, that are met first. */
static int tell_of(Border *self, PyObject *const *items, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (!is_closed(items[i]) && described(self, Py_TYPE(items[i])) < 0) return -1;
    return 0;
}

/* Tell whether something that is passed on will call a package's code. */
static int names_foreign(Border *self, PyObject *const *items, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (is_ours(items[i]) || !PyCallable_Check(items[i])) continue;
        int verdict = verdict_of(self, items[i]);
        if (verdict < 0 || verdict == FOREIGN) return verdict < 0 ? -1 : 1;
    }
    return 0;
}

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
            if (PyArray_CheckExact(part) || (!is_closed(part) && !has_no_ndarray(part, looks))) return false;
        }
        return true;
    }
    return is_closed(item) || PyArray_CheckScalar(item);
}

/* Return what a call gave as the program is to have it, after what was exchanged for it is back. */
static PyObject *left(Border *self, PyObject *result, PyObject *state)
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
    if (tell_of(self, args, nargs + named) < 0 || tell_of(self, &owner, 1) < 0) {
        Py_DECREF(state);
        return NULL;
    }
    bool bare = !passes_on && all_hold_none(self, args, nargs + named, &looks) && holds_none(self, owner, &looks);
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
    result = left(self, result, state);
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
        int verdict = verdict_of(self, callee);
        if (verdict == PASSES_ON) {
            int foreign = names_foreign(self, args, nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames)));
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
        verdict = judged(self, self->by_origin, code->co_filename, (PyObject *)code);
        Py_DECREF(code);
    }
    Py_DECREF(back);
    return verdict < 0 ? -1 : verdict == FOREIGN;
}

static PyObject *border_give(PyObject *object, PyObject *value)
{
    Border *self = (Border *)object;
    if (live_arrays == 0 || is_closed(value)) return Py_NewRef(value);
    if (!PyObject_TypeCheck(value, &ArrayType) && !PyTuple_Check(value) && !PyList_Check(value) && !PyDict_Check(value))
        return Py_NewRef(value);
    int foreign = asked_from_outside(self);
    if (foreign < 0) return NULL;
    return foreign ? PyObject_CallOneArg(self->give, value) : Py_NewRef(value);
}

/* Return what is to be stored in a place of an object: its own for one of the program. */
static PyObject *stored(Border *self, PyObject *value, PyObject *place, const char *by)
{
    if (live_arrays == 0 || is_closed(value) || PyList_CheckExact(place) || PyDict_CheckExact(place) || is_ours(place)
        || PyArray_CheckExact(place))
        return Py_NewRef(value);
    PyObject *method = PyObject_GetAttrString((PyObject *)Py_TYPE(place), by);
    if (method == NULL) {
        PyErr_Clear(); /* the store itself says so */
        return Py_NewRef(value);
    }
    int verdict = verdict_of(self, method);
    Py_DECREF(method);
    if (verdict != FOREIGN && strcmp(by, "__setattr__") == 0) { /* object's own: then whose class it is */
        PyObject *module = PyObject_GetAttrString((PyObject *)Py_TYPE(place), "__module__");
        if (module == NULL) return NULL;
        verdict = judged(self, self->by_origin, module, module);
        Py_DECREF(module);
    }
    if (verdict < 0) return NULL;
    return verdict == FOREIGN ? PyObject_CallOneArg(self->give, value) : Py_NewRef(value);
}

static PyObject *raised(PyObject *base, PyObject *power) { return PyNumber_Power(base, power, Py_None); }

static PyObject *raised_in_place(PyObject *base, PyObject *power) { return PyNumber_InPlacePower(base, power, Py_None); }

static PyObject *has(PyObject *holder, PyObject *item)
{
    int found = PySequence_Contains(holder, item);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

static PyObject *without(PyObject *holder, PyObject *key)
{
    return PyObject_DelItem(holder, key) < 0 ? NULL : Py_NewRef(Py_None);
}

#define COMPARED(name, how) \
    static PyObject *name(PyObject *one, PyObject *other) { return PyObject_RichCompare(one, other, how); }
COMPARED(is_less, Py_LT)
COMPARED(is_less_or_equal, Py_LE)
COMPARED(is_equal, Py_EQ)
COMPARED(is_unequal, Py_NE)
COMPARED(is_more, Py_GT)
COMPARED(is_more_or_equal, Py_GE)

static PyObject *is_itself(PyObject *one, PyObject *other) { return PyBool_FromLong(one == other); }

/* In the order of OPERATORS of jit/border.py. */
static const binaryfunc operators[] = {
    PyNumber_Add, PyNumber_Subtract, PyNumber_Multiply, PyNumber_TrueDivide, PyNumber_FloorDivide, PyNumber_Remainder,
    raised, PyNumber_MatrixMultiply, PyNumber_Lshift, PyNumber_Rshift, PyNumber_And, PyNumber_Or, PyNumber_Xor,
    is_less, is_less_or_equal, is_equal, is_unequal, is_more, is_more_or_equal, is_itself, PyNumber_Divmod,
    PyNumber_InPlaceAdd, PyNumber_InPlaceSubtract, PyNumber_InPlaceMultiply, PyNumber_InPlaceTrueDivide,
    PyNumber_InPlaceFloorDivide, PyNumber_InPlaceRemainder, raised_in_place, PyNumber_InPlaceMatrixMultiply,
    PyNumber_InPlaceLshift, PyNumber_InPlaceRshift, PyNumber_InPlaceAnd, PyNumber_InPlaceOr, PyNumber_InPlaceXor,
    has, PyObject_GetItem, without,
};
enum { OPERATOR_COUNT = sizeof operators / sizeof *operators, IN_PLACE = 21, OF_HOLDERS = 34 };

/* Tell whether two objects are one to the program: a package's attributes and containers have the ndarray of an Array. */
static PyObject *is_one(Border *self, PyObject *one, PyObject *other)
{
    bool ours = PyObject_TypeCheck(one, &ArrayType), theirs = PyObject_TypeCheck(other, &ArrayType);
    PyObject *array = ours ? one : other, *kept = ours ? other : one;
    if (ours == theirs || !PyArray_CheckExact(kept)) return is_itself(one, other);
    PyObject *back = left(self, Py_NewRef(kept), Py_None), *found = back == NULL ? NULL : is_itself(back, array);
    Py_XDECREF(back);
    return found;
}

/* Do an operation on two operands: where one is a package's it is given the ndarrays of the other. */
static PyObject *border_operate(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    Border *self = (Border *)object;
    Py_ssize_t which = nargs == 3 ? PyLong_AsSsize_t(args[0]) : -1;
    if (which < 0 || which >= OPERATOR_COUNT) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "an operator's number and two operands are taken");
        return NULL;
    }
    PyObject *one = args[1], *other = args[2], *result = NULL;
    if (operators[which] == is_itself) return is_one(self, one, other);
    /* Of what is changed or looked into only an Array is another thing to a package. */
    bool gives_one = which < IN_PLACE ? may_hold(one) : which < OF_HOLDERS && PyObject_TypeCheck(one, &ArrayType);
    bool gives_other = may_hold(other);
    if (live_arrays == 0 || !(gives_one || gives_other)) return operators[which](one, other);
    int first = gives_other ? described(self, Py_TYPE(one)) : 0, second = gives_one ? described(self, Py_TYPE(other)) : 0;
    if (first < 0 || second < 0) return NULL;
    gives_one = gives_one && second & A_PACKAGES;
    gives_other = gives_other && first & A_PACKAGES;
    if (!(gives_one || gives_other)) return operators[which](one, other);
    one = gives_one ? PyObject_CallOneArg(self->give, one) : Py_NewRef(one);
    other = one != NULL && gives_other ? PyObject_CallOneArg(self->give, other) : Py_NewRef(other);
    if (one != NULL && other != NULL) result = operators[which](one, other);
    Py_XDECREF(one);
    Py_XDECREF(other);
    return left(self, result, Py_None);
}

static PyObject *border_set_item(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    Border *self = (Border *)object;
    if (nargs != 3) return PyErr_Format(PyExc_TypeError, "a value, a container and a key are taken, not %zd", nargs);
    PyObject *value = stored(self, args[0], args[1], "__setitem__"), *key = NULL;
    if (value == NULL) return NULL;
    int foreign = live_arrays > 0 && may_hold(args[2]) ? described(self, Py_TYPE(args[1])) : 0;
    if (foreign >= 0) key = foreign & A_PACKAGES ? PyObject_CallOneArg(self->give, args[2]) : Py_NewRef(args[2]);
    int done = key == NULL ? -1 : PyObject_SetItem(args[1], key, value);
    Py_DECREF(value);
    Py_XDECREF(key);
    if (done < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *border_set_attribute(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3) return PyErr_Format(PyExc_TypeError, "a value, an object and a name are taken, not %zd", nargs);
    PyObject *value = stored((Border *)self, args[0], args[1], "__setattr__");
    int done = value == NULL ? -1 : PyObject_SetAttr(args[1], args[2], value);
    Py_XDECREF(value);
    if (done < 0) return NULL;
    Py_RETURN_NONE;
}

/* Exchange an item of a list or a dict, unless another thread has stored something else there. */
static PyObject *border_swap(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4) return PyErr_Format(PyExc_TypeError, "a holder, a place, an old and a new item are taken, not %zd", nargs);
    PyObject *holder = args[0], *place = args[1];
    if (PyDict_Check(holder)) {
        PyObject *found = PyDict_GetItemWithError(holder, place);
        if (found == NULL && PyErr_Occurred()) return NULL;
        if (found == args[2] && PyDict_SetItem(holder, place, args[3]) < 0) return NULL;
    } else if (PyList_Check(holder)) {
        Py_ssize_t at = PyLong_AsSsize_t(place);
        if (at == -1 && PyErr_Occurred()) return NULL;
        bool same = at >= 0 && at < PyList_GET_SIZE(holder) && PyList_GET_ITEM(holder, at) == args[2];
        if (same && PyList_SetItem(holder, at, Py_NewRef(args[3])) < 0) return NULL;
    } else {
        return PyErr_Format(PyExc_TypeError, "items of lists and dicts are exchanged, not of %s", Py_TYPE(holder)->tp_name);
    }
    Py_RETURN_NONE;
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
