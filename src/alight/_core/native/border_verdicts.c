/* Whose code runs where the border is met, and what has to be exchanged for it. */
#include "border.h"

/* Tell whether a class is told apart from others by what it is, and no code of a class of its own is asked. */
static bool is_kept_by(PyTypeObject *kind)
{
    return Py_TYPE(kind)->tp_hash == PyType_Type.tp_hash && Py_TYPE(kind)->tp_richcompare == PyType_Type.tp_richcompare;
}

int border_judged(Border *self, PyObject *known, PyObject *key, PyObject *item)
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
int border_verdict(Border *self, PyObject *callee)
{
    if (PyMethod_Check(callee)) callee = PyMethod_GET_FUNCTION(callee);
    if (PyFunction_Check(callee)) {
        PyObject *file = ((PyCodeObject *)PyFunction_GET_CODE(callee))->co_filename;
        bool made = PyUnicode_GET_LENGTH(file) > 0 && PyUnicode_READ_CHAR(file, 0) == '<';
        return border_judged(self, self->by_origin, made ? PyFunction_GET_MODULE(callee) : file, callee);
    }
    if (PyCFunction_Check(callee)) {
        PyObject *owner = PyCFunction_GET_SELF(callee);
        if (owner == NULL || PyModule_Check(owner) || PyType_Check(owner)) {
            PyObject *module = ((PyCFunctionObject *)callee)->m_module;
            return border_judged(self, self->by_origin, owner != NULL && PyType_Check(owner) ? NULL : module, callee);
        }
        if (PyList_CheckExact(owner) || PyDict_CheckExact(owner) || PyUnicode_CheckExact(owner)) return STRAIGHT;
        return border_judged(self, self->by_class, (PyObject *)Py_TYPE(owner), callee);
    }
    if (PyType_Check(callee)) return border_judged(self, self->by_made, callee, callee);
    return border_judged(self, self->by_class, (PyObject *)Py_TYPE(callee), callee);
}

/* Tell what is known of objects of a class: of bits below. */
int border_described(Border *self, PyTypeObject *kind)
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

/* Tell whether nothing can be in an object that has to be exchanged. */
bool border_is_closed(PyObject *item)
{
    return item == Py_None || PyBool_Check(item) || PyLong_CheckExact(item) || PyFloat_CheckExact(item)
           || PyUnicode_CheckExact(item) || PyBytes_CheckExact(item) || PyComplex_CheckExact(item)
           || (PyArray_CheckExact(item) && PyArray_TYPE((PyArrayObject *)item) != NPY_OBJECT)
           || PySlice_Check(item) || PyFunction_Check(item);
}

/* Tell whether a key or an operand is an Array, or a container that may have one. */
bool border_may_hold(PyObject *item)
{
    return PyObject_TypeCheck(item, &ArrayType) || PyTuple_CheckExact(item) || PyList_CheckExact(item) || PyDict_CheckExact(item)
           || PySlice_Check(item);
}

bool border_all_hold_none(Border *self, PyObject *const *items, Py_ssize_t count, int *looks)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (!border_holds_none(self, items[i], looks)) return false;
    return true;
}

/* What is in a container is held while it is looked at: the collector may run then, and what it calls. */
static bool within_holds_none(Border *self, PyObject *item, int *looks)
{
    if (self->out > 0 && PyArray_CheckExact(item)) return false; /* another call may have put it there */
    if (border_is_closed(item)) return true;
    Py_INCREF(item);
    bool empty = border_holds_none(self, item, looks);
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
bool border_holds_none(Border *self, PyObject *item, int *looks)
{
    if (border_is_closed(item)) return true;
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
int border_tell_of(Border *self, PyObject *const *items, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (!border_is_closed(items[i]) && border_described(self, Py_TYPE(items[i])) < 0) return -1;
    return 0;
}

/* Tell whether something that is passed on will call a package's code. */
int border_names_foreign(Border *self, PyObject *const *items, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (is_ours(items[i]) || !PyCallable_Check(items[i])) continue;
        int verdict = border_verdict(self, items[i]);
        if (verdict < 0 || verdict == FOREIGN) return verdict < 0 ? -1 : 1;
    }
    return 0;
}
