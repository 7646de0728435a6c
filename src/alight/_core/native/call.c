/* Arguments of calls that come as vectors. */
#include "core.h"

/* Place arguments by position and name into ``taken``, which holds the defaults; references stay borrowed. */
bool take_arguments(const char *function, const char *const *names, Py_ssize_t required,
                    PyObject *const *args, size_t nargsf, PyObject *kwnames, PyObject **taken)
{
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf), count = 0;
    size_t given = 0;
    while (names[count] != NULL) {
        count++;
    }
    if (nargs > count) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %zd arguments (%zd given)", function, count, nargs);
        return false;
    }
    for (Py_ssize_t i = 0; i < nargs; i++) {
        taken[i] = args[i];
        given |= (size_t)1 << i;
    }
    for (Py_ssize_t k = 0; kwnames != NULL && k < PyTuple_GET_SIZE(kwnames); k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        Py_ssize_t i = 0;
        while (names[i] != NULL && PyUnicode_CompareWithASCIIString(name, names[i]) != 0) {
            i++;
        }
        if (names[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R", function, name);
            return false;
        }
        if (given & ((size_t)1 << i)) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument %R", function, name);
            return false;
        }
        taken[i] = args[nargs + k];
        given |= (size_t)1 << i;
    }
    for (Py_ssize_t i = 0; i < required; i++) {
        if (!(given & ((size_t)1 << i))) {
            PyErr_Format(PyExc_TypeError, "%s() is missing the argument '%s'", function, names[i]);
            return false;
        }
    }
    return true;
}

bool expect_type(PyObject *object, PyTypeObject *type, const char *what)
{
    if (object != NULL && PyObject_TypeCheck(object, type)) {
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s must be a %s, not %.80s", what, type->tp_name,
                 object == NULL ? "missing" : Py_TYPE(object)->tp_name);
    return false;
}

/* Tell whether the error that is set came out of a signal's handler, or says of a program that it is to end: that
   is the program's affair, and nothing that is tried another way. */
bool is_interrupt(void)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return true;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL) PyException_SetTraceback(error, traceback);
    PyObject *failures = PyImport_ImportModule("alight._src.base.failures");
    PyObject *found = failures == NULL ? NULL : PyObject_CallMethod(failures, "from_signal", "O", error);
    bool interrupt = found != Py_False;
    Py_XDECREF(found);
    Py_XDECREF(failures);
    if (found == NULL && !PyErr_ExceptionMatches(PyExc_Exception)) { /* interrupted once more: that counts */
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
        return true;
    }
    PyErr_Clear();
    PyErr_Restore(type, error, traceback);
    return interrupt;
}
