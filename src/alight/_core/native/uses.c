/* Who needs old bytes: the operands that a launch's nodes were recorded with, and those between. */
#include "core.h"

#include <string.h>

#define ANY (PY_SSIZE_T_MAX / 2) /* references of what is bound: whoever holds it has its bytes */

#define FEW 64 /* values; most launches have fewer, and need no memory for them */

typedef struct {
    Value *old, **met, *few[FEW];
    Py_ssize_t uses, count, room;
    unsigned long long mark;
} Uses;

/* Meet a value, of which some references are known. */
static bool meet(Uses *uses, Value *value, Py_ssize_t known)
{
    if (value->mark == uses->mark) {
        if (value->number < ANY) value->number += known;
        return true;
    }
    if (uses->count == uses->room) {
        Value **met = PyMem_Malloc(2 * (size_t)uses->room * sizeof(Value *));
        if (met == NULL) {
            PyErr_NoMemory();
            return false;
        }
        memcpy(met, uses->met, (size_t)uses->count * sizeof(Value *));
        if (uses->met != uses->few) PyMem_Free(uses->met);
        uses->met = met;
        uses->room *= 2;
    }
    uses->met[uses->count++] = value;
    value->mark = uses->mark;
    value->number = known;
    return true;
}

/* Of what a value was recorded with, follow what is pending. */
static bool follow(Uses *uses, Value *value)
{
    if (value->operands == NULL || !PyTuple_Check(value->operands)) return true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value->operands); i++) {
        Value *operand = (Value *)PyTuple_GET_ITEM(value->operands, i);
        if (operand == uses->old) uses->uses++;
        else if (is_value((PyObject *)operand) && is_pending(operand) && !meet(uses, operand, 1)) return false;
    }
    return true;
}

/* -1 where it fails, NOT_ALONE where somebody else holds one of these values, who would make it anew of the old
   bytes; else how many of their operands are ``old``. The ``outputs`` among the nodes are about to be bound. */
Py_ssize_t uses_below(Value *old, PyObject *values, const Py_ssize_t *nodes, Py_ssize_t count, const Py_ssize_t *outputs,
                      Py_ssize_t bound, Value *target)
{
    Uses uses;
    uses.old = old;
    uses.met = uses.few;
    uses.room = FEW;
    uses.uses = uses.count = 0;
    uses.mark = next_mark();
    bool done = true;
    if (target != NULL) { /* it has the new bytes, whoever reads it: the same launch, where its results are several */
        target->mark = uses.mark;
        target->number = ANY;
    }
    for (Py_ssize_t i = 0; done && i < bound; i++) {
        Value *value = value_at(values, outputs[i]);
        if (value != NULL) done = meet(&uses, value, ANY);
    }
    for (Py_ssize_t i = 0; done && i < count; i++) {
        Value *value = value_at(values, nodes[i]);
        if (value != NULL) done = meet(&uses, value, 1); /* by the list */
    }
    for (Py_ssize_t i = 0; done && i < uses.count; i++) done = follow(&uses, uses.met[i]);
    if (target != NULL && target->operands != NULL && PyTuple_Check(target->operands)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(target->operands); i++) {
            Value *operand = (Value *)PyTuple_GET_ITEM(target->operands, i);
            if (is_value((PyObject *)operand) && operand->mark == uses.mark && operand->number < ANY) operand->number++;
        }
    }
    Py_ssize_t found = done ? uses.uses : -1;
    for (Py_ssize_t i = 0; found >= 0 && i < uses.count; i++)
        if (Py_REFCNT(uses.met[i]) > uses.met[i]->number) found = NOT_ALONE;
    if (uses.met != uses.few) PyMem_Free(uses.met);
    return found;
}

/* The recorded value of a number, NULL where there is none any more. */
Value *value_at(PyObject *values, Py_ssize_t number)
{
    PyObject *value = number >= 0 && number < PyList_GET_SIZE(values) ? PyList_GET_ITEM(values, number) : NULL;
    return is_value(value) ? (Value *)value : NULL;
}

static Py_ssize_t *numbers_of(PyObject *given, Py_ssize_t *count)
{
    PyObject *items = PySequence_Fast(given, "numbers of values in a sequence");
    if (items == NULL) return NULL;
    *count = PySequence_Fast_GET_SIZE(items);
    Py_ssize_t *numbers = PyMem_Malloc((size_t)(*count + 1) * sizeof *numbers);
    if (numbers == NULL) PyErr_NoMemory();
    for (Py_ssize_t i = 0; numbers != NULL && i < *count; i++) {
        numbers[i] = PyNumber_AsSsize_t(PySequence_Fast_GET_ITEM(items, i), PyExc_OverflowError);
        if (numbers[i] == -1 && PyErr_Occurred()) {
            PyMem_Free(numbers);
            numbers = NULL;
        }
    }
    Py_DECREF(items);
    return numbers;
}

PyObject *uses_within(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"old", "values", "nodes", "outputs", "target", NULL};
    PyObject *taken[5] = {NULL, NULL, NULL, NULL, NULL};
    if (!take_arguments("uses_within", names, 5, args, nargs, kwnames, taken) ||
        !expect_type(taken[0], &ValueType, "old") || !expect_type(taken[1], &PyList_Type, "values") ||
        !expect_type(taken[4], &ValueType, "target")) {
        return NULL;
    }
    Py_ssize_t count = 0, bound = 0, found = -1;
    Py_ssize_t *nodes = numbers_of(taken[2], &count);
    Py_ssize_t *outputs = nodes == NULL ? NULL : numbers_of(taken[3], &bound);
    if (outputs != NULL)
        found = uses_below((Value *)taken[0], taken[1], nodes, count, outputs, bound, (Value *)taken[4]);
    PyMem_Free(nodes);
    PyMem_Free(outputs);
    if (found == NOT_ALONE) Py_RETURN_NONE;
    return found < 0 ? NULL : PyLong_FromSsize_t(found);
}
