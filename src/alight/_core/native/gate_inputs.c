/* What a gate's code computes from, found where the program keeps it, and what is stored there.

   Attributes are read and set only where that runs no code of the program's: neither the class nor a class of its
   attribute has a say in it. So to read them all first, and to set them last, is what the body does one by one. */
#include "gate.h"

/* Tell whether nothing but the object itself has a say in an attribute: its own, a slot, or a plain value of its class. */
static bool is_plain(PyTypeObject *type, PyObject *name)
{
    PyObject *found = _PyType_Lookup(type, name); /* borrowed */
    if (found == NULL || Py_IS_TYPE(found, &PyMemberDescr_Type)) return true;
    return Py_TYPE(found)->tp_descr_get == NULL && Py_TYPE(found)->tp_descr_set == NULL;
}

static PyObject *attribute_of(PyObject *holder, PyObject *name)
{
    PyTypeObject *type = Py_TYPE(holder);
    if (type->tp_getattro != PyObject_GenericGetAttr || !is_plain(type, name)) return NULL;
    PyObject *found = PyObject_GenericGetAttr(holder, name);
    if (found == NULL) PyErr_Clear(); /* its body says so, where it comes there */
    return found;
}

static bool can_be_set(PyTypeObject *type, PyObject *name)
{
    PyObject *found = _PyType_Lookup(type, name); /* borrowed */
    return type->tp_setattro == PyObject_GenericSetAttr && (found == NULL || Py_IS_TYPE(found, &PyMemberDescr_Type));
}

static Py_ssize_t dropped(PyObject **inputs, Py_ssize_t found, Py_ssize_t result)
{
    while (found > 0) Py_DECREF(inputs[--found]);
    return result;
}

Py_ssize_t gate_inputs(Gate *self, PyObject *const *args, Py_ssize_t count, PyObject **inputs)
{
    PyObject *holder = NULL, *cells = NULL;
    if (self->source == ATTRIBUTES || self->source == CELLS) {
        if (count == 0) return -1;
        holder = self->source == ATTRIBUTES ? *args++ : args[count - 1];
        count--;
    }
    if (self->source == CELLS) {
        if (!PyFunction_Check(holder)) return -1;
        cells = PyFunction_GET_CLOSURE(holder);
    }
    Py_ssize_t more = self->source == CELLS ? (cells == NULL ? 0 : PyTuple_GET_SIZE(cells)) : PyTuple_GET_SIZE(self->inputs);
    if (count + more > INPUTS) return -1;
    for (Py_ssize_t i = 0; i < count; i++) inputs[i] = Py_NewRef(args[i]);
    for (Py_ssize_t i = 0; self->source == ATTRIBUTES && self->stored != NULL && i < PyTuple_GET_SIZE(self->stored); i++)
        if (!can_be_set(Py_TYPE(holder), PyTuple_GET_ITEM(self->stored, i))) return dropped(inputs, count, -1);
    PyObject *names = self->source == NAMES ? PyEval_GetGlobals() : NULL;
    for (Py_ssize_t i = 0; i < more; i++) {
        PyObject *item, *name = cells == NULL ? PyTuple_GET_ITEM(self->inputs, i) : NULL;
        if (self->source == ATTRIBUTES) {
            item = attribute_of(holder, name);
        } else if (self->source == CELLS) {
            item = PyCell_Get(PyTuple_GET_ITEM(cells, i));
        } else {
            item = PyDict_GetItemWithError(names, name);
            if (item == NULL && PyErr_Occurred()) return dropped(inputs, count + i, -2);
            item = Py_NewRef(item == NULL ? (PyObject *)self : item); /* a builtin, or not there yet */
        }
        if (item == NULL) return dropped(inputs, count + i, -1);
        inputs[count + i] = item;
    }
    return count + more;
}

bool fits_roles(Gate *self, PyObject *const *inputs, Py_ssize_t count)
{
    if (self->roles == NULL) return true;
    if (PyTuple_GET_SIZE(self->roles) != count) return false;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *role = PyTuple_GET_ITEM(self->roles, i);
        Py_ssize_t form = PyTuple_GET_SIZE(role);
        if (form == 1 && (PyObject *)Py_TYPE(inputs[i]) != PyTuple_GET_ITEM(role, 0)) return false;
        if (form == 2 && inputs[i] != PyTuple_GET_ITEM(role, 1)) return false;
    }
    return true;
}

int gate_store(Gate *self, PyObject *stored, PyObject *holder, PyObject *numbers, PyObject *results, Py_ssize_t from)
{
    Py_ssize_t first = numbers == NULL ? 0 : PyTuple_GET_SIZE(numbers), all = PyTuple_GET_SIZE(stored);
    if (!PyTuple_CheckExact(results) || first + PyTuple_GET_SIZE(results) - from != all) {
        PyErr_Format(PyExc_SystemError, "what a gate stores is not what it was told: %R", results);
        return -1;
    }
    for (Py_ssize_t i = 0; i < all; i++) {
        PyObject *value = i < first ? PyTuple_GET_ITEM(numbers, i) : PyTuple_GET_ITEM(results, i - first + from);
        PyObject *name = PyTuple_GET_ITEM(stored, i);
        if (value == (PyObject *)self) continue; /* of an error, that came before it was stored */
        if ((self->source == NAMES ? PyDict_SetItem(PyEval_GetGlobals(), name, value)
                                   : PyObject_GenericSetAttr(holder, name, value)) < 0) return -1;
    }
    return 0;
}

PyObject *gate_assigned(PyObject *stored, PyObject *numbers, PyObject *results)
{
    Py_ssize_t first = numbers == NULL ? 0 : PyTuple_GET_SIZE(numbers), all = PyTuple_GET_SIZE(stored);
    if (!PyTuple_CheckExact(results) || first + PyTuple_GET_SIZE(results) - 1 != all)
        return PyErr_Format(PyExc_SystemError, "what a gate stores is not what it was told: %R", results);
    PyObject *assigned = PyTuple_New(all);
    for (Py_ssize_t i = 0; assigned != NULL && i < all; i++) {
        PyObject *value = i < first ? PyTuple_GET_ITEM(numbers, i) : PyTuple_GET_ITEM(results, i - first + 1);
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(stored, i));
        if (place < 0 || place >= all || PyTuple_GET_ITEM(assigned, place) != NULL) {
            if (!PyErr_Occurred()) PyErr_Format(PyExc_SystemError, "no such place among what is stored: %zd", place);
            Py_CLEAR(assigned);
            return NULL;
        }
        PyTuple_SET_ITEM(assigned, place, Py_NewRef(value));
    }
    return assigned;
}
