/* The gate of a function of the program's own: `alight run` compiles one into the beginning of its body.

   if -gate:
       try:
           answer = gate(every argument, by position)
           if answer is not gate: return answer
           del answer
       except +gate: pass

   The body goes on below in the same frame wherever the gate gives itself back, so a function that nothing is
   gained for runs as it is written; it costs what -gate does. */
#include "guard.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *weakrefs;
    PyObject *origin;    /* where the code is found that has no gate */
    PyObject *answers;   /* the guard that answers calls; NULL: none does yet */
    PyObject *names;     /* the globals that it answers for, which it holds */
    long long left;      /* calls that pass before one is looked at */
    long long passed;    /* of those */
    double seconds;      /* that NumPy is predicted to have taken for all calls */
    int operations;      /* that stand in the body */
    int numpys, vain;    /* calls one after another that were NumPy's; that nobody answered */
} Gate;

static PyObject *take, *given_arrays; /* what finds a guard for a function; "on_arrays" */
static double worth_seconds = 1e300;

/* What NumPy takes for an op on few elements, and for an element of an operand at least (jit/specialization.py). */
#define OPERATION_SECONDS 7e-7
#define ELEMENT_SECONDS 5e-10

#define LEAST_PASSED 2          /* calls before the first look: a function that is called twice is not called again and again */
#define MOST_PASSED (1 << 20)   /* where no arrays were given: half a million calls take 20 ms at the quickest */
#define UNTIL_SURE 8            /* calls of NumPy's one after another, after which most of those to come are not looked at … */
#define NOT_LOOKED_AT 15        /* … but for one of sixteen: a look takes 0.2 µs, and may be 20 ns a call */

/* Tell whether somebody watches this thread line by line, or call by call. */
static bool is_watched(void)
{
    PyThreadState *state = PyThreadState_Get();
    return state->c_tracefunc != NULL || state->c_profilefunc != NULL;
}

#if PY_VERSION_HEX >= 0x030C0000
/* Tell whether a tool of sys.monitoring is in use. */
static int has_tools(void)
{
    static PyObject *ask;
    if (ask == NULL) {
        PyObject *monitoring = PySys_GetObject("monitoring"); /* borrowed */
        ask = monitoring == NULL ? NULL : PyObject_GetAttrString(monitoring, "get_tool");
        if (ask == NULL) return PyErr_Occurred() ? -1 : 0;
    }
    for (long id = 0; id < 6; id++) {
        PyObject *number = PyLong_FromLong(id), *tool = number == NULL ? NULL : PyObject_CallOneArg(ask, number);
        Py_XDECREF(number);
        if (tool == NULL) return -1;
        Py_DECREF(tool);
        if (tool != Py_None) return 1;
    }
    return 0;
}
#else
static int has_tools(void) { return 0; }
#endif

static PyObject *gate_asked(PyObject *object)
{
    Gate *self = (Gate *)object;
    if (self->left > 0) {
        self->left--;
        self->passed++;
        Py_RETURN_FALSE;
    }
    if (guards_running > 0 || floors->traced > 0 || take == NULL || is_watched()) Py_RETURN_FALSE;
    Py_RETURN_TRUE;
}

static PyObject *gate_itself(PyObject *self) { return Py_NewRef(self); }

/* How many elements an argument has; -1 where it is no array. */
static npy_intp elements_of(PyObject *item)
{
    if (PyArray_CheckExact(item)) return PyArray_SIZE((PyArrayObject *)item);
    if (!is_ours(item)) return -1;
    PyObject *made = made_of(item);
    if (made != NULL) return PyArray_CheckExact(made) ? PyArray_SIZE((PyArrayObject *)made) : 1;
    Layout *layout = window_of((Array *)item);
    return layout == NULL ? -1 : layout->size;
}

static npy_intp most_elements(PyObject *const *args, Py_ssize_t count)
{
    npy_intp most = -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        npy_intp found = elements_of(args[i]);
        if (found > most) most = found;
        for (Py_ssize_t k = 0; PyTuple_CheckExact(args[i]) && k < PyTuple_GET_SIZE(args[i]); k++) {
            found = elements_of(PyTuple_GET_ITEM(args[i], k));
            if (found > most) most = found;
        }
    }
    return most;
}

/* Let twice as many calls pass as before. */
static void pass_more(Gate *self, long long least)
{
    long long more = 2 * self->passed;
    self->left = more < least ? least : more > MOST_PASSED ? MOST_PASSED : more;
    self->passed = 0;
}

/* Look at a call of a function that nobody answers for: where its calls have taken long enough, somebody may. */
static int look(Gate *self, PyObject *const *args, Py_ssize_t count)
{
    npy_intp elements = most_elements(args, count);
    if (elements < 0) {
        pass_more(self, LEAST_PASSED);
        return 0;
    }
    double each = self->operations * (OPERATION_SECONDS + (double)elements * ELEMENT_SECONDS);
    self->seconds += (double)(self->passed + 1) * each;
    self->passed = 0;
    if (self->seconds < worth_seconds) {
        double wanted = (worth_seconds - self->seconds) / each;
        self->left = wanted < 64 ? (long long)wanted : 64; /* the next ones may be larger */
        return 0;
    }
    PyObject *hook = Py_XNewRef(take), *given = hook == NULL ? NULL : PyTuple_New(count), *done = NULL;
    if (given != NULL) {
        for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
        guards_running++;
        done = PyObject_CallFunctionObjArgs(hook, (PyObject *)self, given, PyEval_GetGlobals(), NULL);
        guards_running--;
        Py_DECREF(given);
    } else if (hook == NULL) { /* another thread has taken it away since the gate was asked */
        return 0;
    }
    Py_DECREF(hook);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static bool has_arrays_of_ours(PyObject *item)
{
    bool found = PyObject_TypeCheck(item, &ArrayType);
    for (Py_ssize_t i = 0; !found && PyTuple_CheckExact(item) && i < PyTuple_GET_SIZE(item); i++)
        found = PyObject_TypeCheck(PyTuple_GET_ITEM(item, i), &ArrayType);
    return found;
}

static PyObject *answered_on_arrays(PyObject *guard, PyObject *const *args, Py_ssize_t count)
{
    PyObject *given = PyTuple_New(count);
    if (given == NULL) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
    PyObject *result = PyObject_CallMethodOneArg(guard, given_arrays, given);
    Py_DECREF(given);
    return result;
}

static PyObject *gate_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Gate *self = (Gate *)object;
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    if (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0) {
        PyErr_SetString(PyExc_TypeError, "a gate is given every argument by position");
        return NULL;
    }
    int tools = has_tools();
    if (tools != 0) return tools < 0 ? NULL : Py_NewRef(object);
    if (self->answers == NULL) return look(self, args, count) < 0 ? NULL : Py_NewRef(object);
    if (PyEval_GetGlobals() != self->names) return Py_NewRef(object);
    bool ours = false, numpys = false;
    for (Py_ssize_t i = 0; i < count; i++) ours = ours || has_arrays_of_ours(args[i]);
    PyObject *guard = Py_NewRef(self->answers); /* what it runs may end it */
    PyObject *result = ours ? answered_on_arrays(guard, args, count)
                            : guard_answer(guard, args, count, self->passed, &numpys);
    Py_DECREF(guard);
    self->passed = 0;
    if (result == Py_NotImplemented) { /* nobody answers */
        Py_SETREF(result, Py_NewRef(object));
        self->vain = self->vain < 10 ? self->vain + 1 : 10;
        self->left = (1 << self->vain) - 1;
        return result;
    }
    self->vain = 0;
    self->numpys = numpys ? self->numpys + 1 : 0;
    if (self->numpys >= UNTIL_SURE) {
        self->numpys = UNTIL_SURE;
        self->left = NOT_LOOKED_AT;
    }
    return result;
}

/* Take the frame that the gate stands in out of the error that is being handled there: the frame of what ran in its
   place is of the same function. An empty tuple: no class of errors. */
static PyObject *gate_passed_by(PyObject *self)
{
    PyObject *error = PyErr_GetHandledException();
    PyObject *traceback = error == NULL || error == Py_None ? NULL : PyException_GetTraceback(error);
    if (traceback != NULL && PyTraceBack_Check(traceback)) {
        PyTracebackObject *first = (PyTracebackObject *)traceback;
        if (first->tb_next != NULL && first->tb_frame == PyEval_GetFrame() &&
            PyException_SetTraceback(error, (PyObject *)first->tb_next) < 0) PyErr_Clear();
    }
    Py_XDECREF(traceback);
    Py_XDECREF(error);
    return Py_NewRef(empty_tuple);
}

static PyObject *gate_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"origin", "operations", NULL};
    PyObject *origin = Py_None;
    int operations = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Oi:Gate", names, &origin, &operations)) return NULL;
    Gate *self = (Gate *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->vectorcall = gate_call;
    self->origin = Py_NewRef(origin);
    self->operations = operations;
    self->left = origin == Py_None ? PY_LLONG_MAX : worth_seconds > 0.0 ? LEAST_PASSED : 1;
    return (PyObject *)self;
}

static PyObject *gate_open(Gate *self, PyObject *args)
{
    PyObject *guard, *names;
    if (!PyArg_ParseTuple(args, "OO!:open", &guard, &PyDict_Type, &names)) return NULL;
    if (!is_guard(guard)) {
        PyErr_Format(PyExc_TypeError, "a CallGuard is needed, not %R", guard);
        return NULL;
    }
    Py_XSETREF(self->names, Py_NewRef(names));
    Py_XSETREF(self->answers, Py_NewRef(guard));
    self->left = self->passed = 0;
    Py_RETURN_NONE;
}

static PyObject *gate_close(Gate *self, PyObject *count)
{
    long long calls = PyLong_AsLongLong(count);
    if (calls < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no fewer than 0 calls pass");
        return NULL;
    }
    Py_CLEAR(self->answers);
    Py_CLEAR(self->names);
    self->left = calls;
    self->passed = 0;
    Py_RETURN_NONE;
}

static int gate_clear(Gate *self)
{
    Py_CLEAR(self->origin);
    Py_CLEAR(self->answers);
    Py_CLEAR(self->names);
    return 0;
}

static int gate_traverse(Gate *self, visitproc visit, void *arg)
{
    Py_VISIT(self->origin);
    Py_VISIT(self->answers);
    Py_VISIT(self->names);
    return 0;
}

static void gate_dealloc(Gate *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) PyObject_ClearWeakRefs((PyObject *)self);
    gate_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Code that has one is pickled by value and runs elsewhere, where nobody takes it. */
static PyObject *gate_reduce(PyObject *self, PyObject *unused) { return Py_BuildValue("O()", (PyObject *)Py_TYPE(self)); }

static PyMethodDef gate_methods[] = {
    {"open", (PyCFunction)gate_open, METH_VARARGS, "Have a guard answer calls that find these globals."},
    {"close", (PyCFunction)gate_close, METH_O, "Have nobody answer, and so many calls pass before one is looked at."},
    {"__reduce__", gate_reduce, METH_NOARGS, "Return what gives one in another process."},
    {NULL},
};

static PyMemberDef gate_members[] = {
    {"origin", T_OBJECT, offsetof(Gate, origin), READONLY, "Where its function's code is found without it."},
    {"answers", T_OBJECT, offsetof(Gate, answers), READONLY, "The guard that answers calls; None: none does."},
    {NULL},
};

static PyNumberMethods gate_number = {.nb_negative = gate_asked, .nb_positive = gate_passed_by, .nb_invert = gate_itself};

static PyTypeObject GateType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Gate",
    .tp_doc = "Stands at the beginning of a function's body, and may answer its calls.",
    .tp_basicsize = sizeof(Gate),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = gate_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Gate, vectorcall),
    .tp_dealloc = (destructor)gate_dealloc,
    .tp_weaklistoffset = offsetof(Gate, weakrefs),
    .tp_traverse = (traverseproc)gate_traverse,
    .tp_clear = (inquiry)gate_clear,
    .tp_as_number = &gate_number,
    .tp_methods = gate_methods,
    .tp_members = gate_members,
};

static PyObject *take_functions(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *function;
    double seconds;
    if (!PyArg_ParseTuple(args, "Od:take_functions", &function, &seconds)) return NULL;
    Py_XSETREF(take, function == Py_None ? NULL : Py_NewRef(function));
    worth_seconds = seconds;
    Py_RETURN_NONE;
}

static PyMethodDef gate_functions[] = {
    {"take_functions", take_functions, METH_VARARGS,
     "Have take(gate, arguments, globals) find guards for functions whose calls take NumPy so many seconds; None: nobody."},
    {NULL, NULL, 0, NULL},
};

bool gates_ready(PyObject *module)
{
    given_arrays = PyUnicode_InternFromString("on_arrays");
    return given_arrays != NULL && PyType_Ready(&GateType) == 0 && PyModule_AddFunctions(module, gate_functions) == 0
        && PyModule_AddObjectRef(module, "Gate", (PyObject *)&GateType) == 0;
}
