/* The floating-point error state an op is recorded under: NumPy's, unless a warning could not wait. */
#include "core.h"

/* What the hook answered, and what it looked at: NumPy's state, and the warning filters. States never change;
   filters are put in front of the list, or another list takes its place. */
typedef struct {
    PyObject *current, *filters, *first, *answer; /* owned: an address is not taken by another object meanwhile */
    Py_ssize_t count;
} Known;

/* The usual ones, and those of a block of the program's; the last one that was asked for stands first. */
static Known known[2];

static PyObject *warnings_names, *filters_name;
static bool filters_in_context; /* then the list in the module is not the one in force */

static bool is_known(Known *one, PyObject *current, PyObject *filters, PyObject *first, Py_ssize_t count)
{
    return one->current == current && one->filters == filters && one->first == first && one->count == count;
}

/* Ask the hook, and know its answer from now on. */
static bool ask_hook(PyObject *current, PyObject *filters, PyObject *first, Py_ssize_t count)
{
    Known new = {Py_NewRef(current), Py_XNewRef(filters), Py_XNewRef(first), NULL, count};
    PyObject *hook = Py_XNewRef(hooks->errstate);
    new.answer = hook == NULL ? Py_NewRef(current) : PyObject_CallNoArgs(hook);
    Py_XDECREF(hook);
    Known old = new;
    if (new.answer != NULL) {
        old = known[1];
        known[1] = known[0];
        known[0] = new;
    }
    Py_XDECREF(old.current);
    Py_XDECREF(old.filters);
    Py_XDECREF(old.first);
    Py_XDECREF(old.answer);
    return new.answer != NULL;
}

/* Find the state to record under; NULL where NumPy must act at the call. It is borrowed, and good until the
   next time this is asked. False with an error set. */
bool errors_may_wait(PyObject **state)
{
    PyObject *current, *filters = PyDict_GetItemWithError(warnings_names, filters_name);
    if ((filters == NULL && PyErr_Occurred()) || PyContextVar_Get(numpy_errstate, NULL, &current) < 0) {
        return false;
    }
    Py_ssize_t count = filters != NULL && PyList_CheckExact(filters) ? PyList_GET_SIZE(filters) : 0;
    PyObject *first = count > 0 ? PyList_GET_ITEM(filters, 0) : NULL;
    bool done = true;
    if (filters_in_context || !is_known(&known[0], current, filters, first, count)) {
        if (!filters_in_context && is_known(&known[1], current, filters, first, count)) {
            Known other = known[0];
            known[0] = known[1];
            known[1] = other;
        } else {
            done = ask_hook(current, filters, first, count);
        }
    }
    Py_XDECREF(current);
    *state = done && known[0].answer != Py_None ? known[0].answer : NULL;
    return done;
}

PyObject *recording_errstate(PyObject *module, PyObject *unused)
{
    PyObject *state;
    return errors_may_wait(&state) ? Py_NewRef(state == NULL ? Py_None : state) : NULL;
}

bool errstate_ready(void)
{
    PyObject *umath = PyImport_ImportModule("numpy._core.umath"), *warnings = PyImport_ImportModule("warnings");
    numpy_errstate = umath == NULL ? NULL : PyObject_GetAttrString(umath, "_extobj_contextvar");
    warnings_names = warnings == NULL ? NULL : Py_XNewRef(PyModule_GetDict(warnings));
    filters_name = PyUnicode_InternFromString("filters");
    Py_XDECREF(umath);
    Py_XDECREF(warnings);
    PyObject *flags = PySys_GetObject("flags"), *in_context = NULL;
    if (flags != NULL && PyObject_HasAttrString(flags, "context_aware_warnings")) { /* Python 3.14 */
        in_context = PyObject_GetAttrString(flags, "context_aware_warnings");
        filters_in_context = in_context != NULL && PyObject_IsTrue(in_context) == 1;
        Py_XDECREF(in_context);
    }
    return warnings_names != NULL && filters_name != NULL && !PyErr_Occurred() && numpy_errstate != NULL
        && expect_type(numpy_errstate, &PyContextVar_Type, "NumPy's errstate");
}
