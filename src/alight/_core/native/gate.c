/* The gate of code of the program's own: `alight run` compiles one into the beginning of a function's body,

   if gate != gate:
       try:
           answer = ~gate(every argument, by position)
           if answer is not ~gate: return answer
           del answer
       except +gate: pass

   or before statements at a script's top level:

   try:
       if gate != gate: pass
       else: statements
   except +gate: pass

   or before statements in a loop of a function, which assign x and y:

   try:
       match gate != gate and ~gate(every variable that they read):
           case (x, y): pass
           case _: statements
   except +gate: pass

   The body goes on below in the same frame wherever the gate gives itself back, so code that nothing is gained for
   runs as it is written; it costs what gate != gate does. Marshalled, a gate is b"", which equals itself. */
#include "gate.h"

static PyObject *take, *given_arrays; /* what finds a guard for a function; "on_arrays" */
static double worth_seconds = 1e300, all_worth_seconds, all_seconds; /* of one gate's code; of all together */

/* What NumPy takes for an op on few elements, and for an element of an operand at least (jit/specialization.py). */
#define OPERATION_SECONDS 7e-7
#define ELEMENT_SECONDS 5e-10

#define LEAST_PASSED 2          /* calls before the first look: a function that is called twice is not called again and again */
#define MOST_PASSED (1 << 20)   /* where no arrays were given: half a million calls take 20 ms at the quickest */
#define UNTIL_SURE 8            /* calls of NumPy's one after another, after which most of those to come are not looked at … */
#define MOST_UNSEEN 64          /* calls that are taken to be as large as the last: a look at arrays takes 0.3 µs, so 5 ns a call */
#define MOST_VAIN 10            /* of 1,024 calls one is looked at where nobody answers: 0.2 to 20 µs, at most 20 ns a call */
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

static PyObject *statements_run(Gate *self);

/* Tell whether a call is to be looked at; of statements, whether they have been run. */
static PyObject *gate_compared(PyObject *object, PyObject *other, int op)
{
    Gate *self = (Gate *)object;
    if (op != Py_NE || object != other) Py_RETURN_NOTIMPLEMENTED;
    if (self->left > 0) {
        self->left--;
        self->passed++;
        Py_RETURN_FALSE;
    }
    if (guards_running > 0 || floors->traced > 0 || take == NULL || is_watched()) Py_RETURN_FALSE;
    if (self->source == NAMES) return statements_run(self);
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

/* Arrays of ours as large as the floor that was measured record what is done with them, which then runs where the
   program as a whole ends soonest: nobody answers for that. With a lower floor, smaller ones are answered for. */
static bool is_recorded(PyObject *item)
{
    npy_intp least = floors->automatic; /* 1: it was not measured, as another one is given */
    return least > 1 && PyObject_TypeCheck(item, &ArrayType) && elements_of(item) >= least;
}

static bool any_recorded(PyObject *const *items, Py_ssize_t count)
{
    bool found = false;
    for (Py_ssize_t i = 0; !found && i < count; i++) {
        found = is_recorded(items[i]);
        for (Py_ssize_t k = 0; !found && PyTuple_CheckExact(items[i]) && k < PyTuple_GET_SIZE(items[i]); k++)
            found = is_recorded(PyTuple_GET_ITEM(items[i], k));
    }
    return found;
}

/* Look at a call of a function that nobody answers for: where its calls have taken long enough, somebody may. */
static int look(Gate *self, PyObject *const *args, Py_ssize_t count)
{
    npy_intp elements = most_elements(args, count);
    if (elements < 0 || any_recorded(args, count)) {
        pass_more(self, LEAST_PASSED);
        return 0;
    }
    double each = self->operations * (OPERATION_SECONDS + (double)elements * ELEMENT_SECONDS);
    self->seconds += (double)(self->passed + 1) * each;
    all_seconds += (double)(self->passed + 1) * each;
    self->passed = 0;
    if (self->seconds < worth_seconds || all_seconds < all_worth_seconds) {
        double own = worth_seconds - self->seconds, all = all_worth_seconds - all_seconds, wanted = (own > all ? own : all) / each;
        self->left = wanted < MOST_UNSEEN ? (long long)wanted : MOST_UNSEEN; /* the next ones may be larger */
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

/* Nobody answers: more and more calls pass before the next one is looked at. */
static PyObject *unanswered(Gate *self)
{
    self->passed = 0;
    self->vain = self->vain < MOST_VAIN ? self->vain + 1 : MOST_VAIN;
    self->left = (1 << self->vain) - 1;
    return Py_NewRef(self);
}

/* An error is on its way: store what the body had stored before it. */
static void store_before(Gate *self, PyObject *stored, PyObject *left_by, PyObject *holder, PyObject *const *inputs,
                         Py_ssize_t count)
{
    PyObject *type, *error, *traceback, *given = NULL, *done = NULL;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL) PyException_SetTraceback(error, traceback);
    if ((given = PyTuple_New(count)) != NULL) {
        for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(given, i, Py_NewRef(inputs[i]));
        done = PyObject_CallFunctionObjArgs(left_by, (PyObject *)self, error, given, NULL);
    }
    if (done == NULL || gate_store(self, stored, holder, NULL, done, 0) < 0) PyErr_WriteUnraisable((PyObject *)self);
    Py_XDECREF(done);
    Py_XDECREF(given);
    PyErr_Restore(type, error, traceback);
}

/* Tell whether what computes numbers raised the error: it calls nothing, so what comes from further in is a signal's
   handler's, and comes once. */
static bool is_its_own_error(void)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    bool further_in = traceback != NULL && ((PyTracebackObject *)traceback)->tb_next != NULL;
    PyErr_Restore(type, error, traceback);
    return !further_in;
}

/* Return what answers a call of these inputs; Py_NotImplemented: nobody does, and nothing of it was done. */
static PyObject *answered_by(Gate *self, PyObject *holder, PyObject *const *inputs, Py_ssize_t count)
{
    PyObject *numbers = NULL, *picked[INPUTS];
    bool ours = false, numpys = false;
    if (any_recorded(inputs, count) || !fits_roles(self, inputs, count)) return Py_NewRef(Py_NotImplemented);
    PyObject *const *given = self->count < 0 ? inputs : picked;
    Py_ssize_t given_count = self->count < 0 ? count : self->count;
    for (Py_ssize_t i = 0; i < self->count; i++) picked[i] = inputs[self->picked[i]];
    for (Py_ssize_t i = 0; i < given_count; i++) ours = ours || has_arrays_of_ours(given[i]);
    /* What runs here may end it, and so may another thread meanwhile. */
    PyObject *guard = Py_NewRef(self->answers), *stored = Py_XNewRef(self->stored), *left_by = Py_XNewRef(self->left_by);
    PyObject *computing = Py_XNewRef(self->numbers), *result = NULL;
    if (computing != NULL) {
        numbers = PyObject_Vectorcall(computing, inputs, (size_t)count, NULL);
        Py_DECREF(computing);
    }
    if (computing != NULL && numbers == NULL) {
        Py_DECREF(guard);
        Py_XDECREF(stored);
        Py_XDECREF(left_by);
        if (!is_its_own_error()) return NULL;
        PyErr_Clear(); /* the body raises it itself, in its turn */
        return Py_NewRef(Py_NotImplemented);
    }
    result = ours ? answered_on_arrays(guard, given, given_count)
                  : guard_answer(guard, given, given_count, self->passed, &numpys);
    Py_DECREF(guard);
    self->numpys = numpys ? self->numpys + 1 : 0;
    if (self->source == LOCALS) {
        if (result != NULL && result != Py_NotImplemented)
            Py_SETREF(result, stored == NULL ? Py_NewRef(empty_tuple) : gate_assigned(stored, numbers, result));
    } else if (stored != NULL && result == NULL) {
        store_before(self, stored, left_by, holder, inputs, count);
    } else if (stored != NULL && result != Py_NotImplemented) {
        bool whole = gate_store(self, stored, holder, numbers, result, 1) == 0;
        Py_SETREF(result, whole ? Py_NewRef(PyTuple_GET_ITEM(result, 0)) : NULL);
    }
    Py_XDECREF(stored);
    Py_XDECREF(left_by);
    Py_XDECREF(numbers);
    return result;
}

/* Return the result of a call, the gate itself where its body is to go on. */
static PyObject *gate_answer(Gate *self, PyObject *const *args, Py_ssize_t count)
{
    int tools = has_tools();
    if (tools != 0) return tools < 0 ? NULL : Py_NewRef(self);
    if (self->answers != NULL && PyEval_GetGlobals() != self->names) return Py_NewRef(self);
    PyObject *inputs[INPUTS];
    Py_ssize_t found = gate_inputs(self, args, count, inputs);
    if (found < 0) return found == -1 ? unanswered(self) : NULL;
    PyObject *result;
    if (self->answers == NULL) {
        result = look(self, inputs, found) < 0 ? NULL : Py_NewRef(self);
    } else {
        result = answered_by(self, self->source == ATTRIBUTES ? args[0] : NULL, inputs, found);
        self->passed = 0;
        if (result == Py_NotImplemented) {
            Py_SETREF(result, unanswered(self));
        } else {
            self->vain = 0;
            if (self->numpys >= UNTIL_SURE) {
                self->numpys = UNTIL_SURE;
                self->left = NOT_LOOKED_AT;
            }
        }
    }
    while (found > 0) Py_DECREF(inputs[--found]);
    return result;
}

static PyObject *gate_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0) {
        PyErr_SetString(PyExc_TypeError, "a gate is given every argument by position");
        return NULL;
    }
    Gate *self = (Gate *)object;
    PyObject *result = gate_answer(self, args, PyVectorcall_NARGS(nargsf));
    if (self->source == LOCALS) self->failed = result == NULL ? PyThread_get_thread_ident() : 0;
    return result;
}

static PyObject *statements_run(Gate *self)
{
    PyObject *result = gate_answer(self, NULL, 0);
    self->failed = result == NULL ? PyThread_get_thread_ident() : 0;
    if (result == NULL) return NULL;
    bool done = result != (PyObject *)self;
    Py_DECREF(result);
    return PyBool_FromLong(done);
}

/* Take the frame that the gate stands in out of the error that is being handled there: the frame of what ran in its
   place is of the same function. An empty tuple: no class of errors. */
static PyObject *gate_passed_by(PyObject *object)
{
    Gate *self = (Gate *)object;
    bool others = self->failed != PyThread_get_thread_ident(); /* it is the statements' own */
    if ((self->source == NAMES || self->source == LOCALS) && others) return Py_NewRef(empty_tuple);
    self->failed = 0;
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
    static char *names[] = {"origin", "operations", "source", "inputs", NULL};
    PyObject *origin = Py_None, *inputs = empty_tuple;
    int operations = 0, source = ARGUMENTS;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OiiO!:Gate", names, &origin, &operations, &source, &PyTuple_Type, &inputs))
        return NULL;
    Gate *self = (Gate *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->vectorcall = gate_call;
    self->origin = Py_NewRef(origin);
    self->operations = operations;
    self->source = (Source)source;
    self->inputs = Py_NewRef(inputs);
    self->count = -1;
    self->left = origin == Py_None ? PY_LLONG_MAX : worth_seconds > 0.0 ? LEAST_PASSED : 1;
    return (PyObject *)self;
}

static void forget(Gate *self)
{
    Py_CLEAR(self->answers);
    Py_CLEAR(self->names);
    Py_CLEAR(self->roles);
    Py_CLEAR(self->numbers);
    Py_CLEAR(self->stored);
    Py_CLEAR(self->left_by);
    self->passed = 0;
    self->count = -1;
}

static PyObject *gate_open(Gate *self, PyObject *args)
{
    PyObject *guard, *names, *roles = NULL, *picked = NULL, *numbers = Py_None, *stored = NULL, *left_by = NULL;
    if (!PyArg_ParseTuple(args, "OO!|O!O!OO!O:open", &guard, &PyDict_Type, &names, &PyTuple_Type, &roles, &PyTuple_Type,
                          &picked, &numbers, &PyTuple_Type, &stored, &left_by)) return NULL;
    if (!is_guard(guard)) {
        PyErr_Format(PyExc_TypeError, "a CallGuard is needed, not %R", guard);
        return NULL;
    }
    Py_ssize_t count = picked == NULL ? -1 : PyTuple_GET_SIZE(picked);
    int which[INPUTS];
    if (count > INPUTS) {
        PyErr_Format(PyExc_ValueError, "at most %d inputs, not %zd", INPUTS, count);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        which[i] = (int)PyLong_AsLong(PyTuple_GET_ITEM(picked, i));
        if (which[i] < 0 || which[i] >= PyTuple_GET_SIZE(roles)) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such input");
            return NULL;
        }
    }
    forget(self);
    self->count = (int)count;
    for (Py_ssize_t i = 0; i < count; i++) self->picked[i] = which[i];
    self->roles = Py_XNewRef(roles);
    self->numbers = numbers == Py_None ? NULL : Py_NewRef(numbers);
    self->stored = stored == NULL || PyTuple_GET_SIZE(stored) == 0 ? NULL : Py_NewRef(stored);
    self->left_by = Py_XNewRef(left_by);
    self->names = Py_NewRef(names);
    self->answers = Py_NewRef(guard);
    self->left = 0;
    Py_RETURN_NONE;
}

static PyObject *gate_close(Gate *self, PyObject *count)
{
    long long calls = PyLong_AsLongLong(count);
    if (calls < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no fewer than 0 calls pass");
        return NULL;
    }
    forget(self);
    self->left = calls;
    Py_RETURN_NONE;
}

static int gate_clear(Gate *self)
{
    Py_CLEAR(self->origin);
    Py_CLEAR(self->inputs);
    forget(self);
    return 0;
}

static int gate_traverse(Gate *self, visitproc visit, void *arg)
{
    Py_VISIT(self->origin);
    Py_VISIT(self->answers);
    Py_VISIT(self->names);
    Py_VISIT(self->inputs);
    Py_VISIT(self->roles);
    Py_VISIT(self->numbers);
    Py_VISIT(self->stored);
    Py_VISIT(self->left_by);
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
    {"open", (PyCFunction)gate_open, METH_VARARGS, "Have a guard answer calls that find these globals; the rest says from what, and what is stored."},
    {"close", (PyCFunction)gate_close, METH_O, "Have nobody answer, and so many calls pass before one is looked at."},
    {"__reduce__", gate_reduce, METH_NOARGS, "Return what gives one in another process."},
    {NULL},
};

static PyMemberDef gate_members[] = {
    {"origin", T_OBJECT, offsetof(Gate, origin), READONLY, "Where its function's code is found without it."},
    {"answers", T_OBJECT, offsetof(Gate, answers), READONLY, "The guard that answers calls; None: none does."},
    {"source", T_INT, offsetof(Gate, source), READONLY, "Where its inputs are found."},
    {"inputs", T_OBJECT, offsetof(Gate, inputs), READONLY, "What they are called there."},
    {NULL},
};

/* Marshalled it is bytes, and none of them. */
static int gate_buffer(PyObject *self, Py_buffer *view, int flags) { return PyBuffer_FillInfo(view, self, "", 0, 1, flags); }

static Py_hash_t gate_hash(PyObject *self) { return (Py_hash_t)((uintptr_t)self >> 4); }

static PyBufferProcs gate_as_buffer = {.bf_getbuffer = gate_buffer};

static PyNumberMethods gate_number = {.nb_positive = gate_passed_by, .nb_invert = gate_itself};

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
    .tp_as_buffer = &gate_as_buffer,
    .tp_richcompare = gate_compared,
    .tp_hash = gate_hash,
    .tp_methods = gate_methods,
    .tp_members = gate_members,
};

static PyObject *take_functions(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *function;
    double seconds, all;
    if (!PyArg_ParseTuple(args, "Odd:take_functions", &function, &seconds, &all)) return NULL;
    Py_XSETREF(take, function == Py_None ? NULL : Py_NewRef(function));
    worth_seconds = seconds;
    all_worth_seconds = all;
    Py_RETURN_NONE;
}

static PyMethodDef gate_functions[] = {
    {"take_functions", take_functions, METH_VARARGS,
     "Have take(gate, arguments, globals) find guards for code that takes NumPy so long, once all such code has; None: nobody."},
    {NULL, NULL, 0, NULL},
};

bool gates_ready(PyObject *module)
{
    given_arrays = PyUnicode_InternFromString("on_arrays");
    return given_arrays != NULL && PyType_Ready(&GateType) == 0 && PyModule_AddFunctions(module, gate_functions) == 0
        && PyModule_AddObjectRef(module, "Gate", (PyObject *)&GateType) == 0
        && PyModule_AddIntConstant(module, "MOST_INPUTS", INPUTS) == 0;
}
