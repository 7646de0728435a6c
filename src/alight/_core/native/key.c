/* The structure of a request as a key: equal for equal work on equal layouts. */
#include "request.h"

#include <string.h>

PyObject *host_name, *host_only, *anywhere;

static void key_dealloc(Key *self)
{
    for (Py_ssize_t i = 0; i < self->leaf_count; i++) {
        Py_DECREF(self->leaves[i].layout);
        Py_XDECREF(self->leaves[i].spaces);
    }
    for (Py_ssize_t i = 0; i < self->node_count; i++) {
        Py_DECREF(self->nodes[i].op);
        Py_DECREF(self->nodes[i].attrs);
        Py_DECREF(self->nodes[i].layout);
    }
    PyMem_Free(self->leaves);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static bool mix_object(size_t *hash, PyObject *object)
{
    Py_hash_t own = PyObject_Hash(object);
    mix(hash, (size_t)own);
    return own != -1;
}

bool set_hash(Key *self)
{
    size_t hash = (size_t)self->stamp;
    mix(&hash, (size_t)self->read);
    for (Py_ssize_t i = 0; i < self->leaf_count; i++) {
        Leaf *leaf = &self->leaves[i];
        mix(&hash, (size_t)leaf->layout ^ ((size_t)leaf->base << 2) ^ ((size_t)leaf->within << 1) ^ (leaf->spaces == Py_None));
        if (leaf->spaces != NULL && leaf->spaces != Py_None && !mix_object(&hash, leaf->spaces)) return false;
    }
    for (Py_ssize_t i = 0; i < self->node_count; i++) {
        Node *node = &self->nodes[i];
        mix(&hash, (size_t)node->op);
        mix(&hash, (size_t)node->layout + (size_t)node->count);
        if (node->attrs != empty_tuple && !mix_object(&hash, node->attrs)) return false;
    }
    for (Py_ssize_t i = 0; i < self->operand_count; i++) mix(&hash, (size_t)self->operands[i]);
    for (Py_ssize_t i = 0; i < self->output_count; i++) mix(&hash, (size_t)self->outputs[i]);
    self->hash = (Py_hash_t)hash == -1 ? -2 : (Py_hash_t)hash;
    return true;
}

static Py_hash_t key_hash(Key *self) { return self->hash; }

/* 1 where two keys say the same, 0 where not, -1 for an error. */
static int same_keys(Key *a, Key *b)
{
    if (a == b) return 1;
    if (a->hash != b->hash || a->stamp != b->stamp || a->read != b->read || a->leaf_count != b->leaf_count ||
        a->node_count != b->node_count || a->operand_count != b->operand_count || a->output_count != b->output_count ||
        memcmp(a->operands, b->operands, (size_t)(a->operand_count + a->output_count) * sizeof(Py_ssize_t)) != 0)
        return 0;
    for (Py_ssize_t i = 0; i < a->leaf_count; i++) {
        Leaf *one = &a->leaves[i], *two = &b->leaves[i];
        if (one->layout != two->layout || one->base != two->base || one->within != two->within) return 0;
        if (one->spaces == two->spaces) continue;
        if (one->spaces == NULL || two->spaces == NULL) return 0;
        int same = PyObject_RichCompareBool(one->spaces, two->spaces, Py_EQ);
        if (same != 1) return same;
    }
    for (Py_ssize_t i = 0; i < a->node_count; i++) {
        Node *one = &a->nodes[i], *two = &b->nodes[i];
        if (one->op != two->op || one->layout != two->layout || one->count != two->count) return 0;
        int same = one->attrs == two->attrs ? 1 : PyObject_RichCompareBool(one->attrs, two->attrs, Py_EQ);
        if (same != 1) return same;
    }
    return 1;
}

static PyObject *key_compare(PyObject *left, PyObject *right, int how)
{
    if ((how != Py_EQ && how != Py_NE) || !Py_IS_TYPE(left, &KeyType) || !Py_IS_TYPE(right, &KeyType))
        Py_RETURN_NOTIMPLEMENTED;
    int same = same_keys((Key *)left, (Key *)right);
    return same < 0 ? NULL : PyBool_FromLong(same == (how == Py_EQ));
}

static PyObject *numbers_of(const Py_ssize_t *numbers, Py_ssize_t count)
{
    PyObject *result = PyTuple_New(count);
    for (Py_ssize_t i = 0; result != NULL && i < count; i++) {
        PyObject *number = PyLong_FromSsize_t(numbers[i]);
        if (number == NULL) Py_CLEAR(result);
        else PyTuple_SET_ITEM(result, i, number);
    }
    return result;
}

static PyObject *key_leaves(Key *self, void *Py_UNUSED(closure))
{
    PyObject *result = PyTuple_New(self->leaf_count);
    for (Py_ssize_t i = 0; result != NULL && i < self->leaf_count; i++) {
        Leaf *leaf = &self->leaves[i];
        PyObject *spaces = leaf->spaces == NULL ? host_only : leaf->spaces == Py_None ? anywhere : leaf->spaces;
        PyObject *item = Py_BuildValue("OOnn", leaf->layout, spaces, leaf->base, leaf->within);
        if (item == NULL) Py_CLEAR(result);
        else PyTuple_SET_ITEM(result, i, item);
    }
    return result;
}

static PyObject *key_nodes(Key *self, void *Py_UNUSED(closure))
{
    PyObject *result = PyTuple_New(self->node_count);
    for (Py_ssize_t i = 0; result != NULL && i < self->node_count; i++) {
        Node *node = &self->nodes[i];
        PyObject *operands = numbers_of(self->operands + node->first, node->count);
        PyObject *item = operands == NULL ? NULL : Py_BuildValue("ONOO", node->op, operands, node->attrs, node->layout);
        if (item == NULL) Py_CLEAR(result);
        else PyTuple_SET_ITEM(result, i, item);
    }
    return result;
}

static PyObject *key_outputs(Key *self, void *Py_UNUSED(closure)) { return numbers_of(self->outputs, self->output_count); }

static PyGetSetDef key_properties[] = {
    {"leaves", (getter)key_leaves, NULL, "Layout, memory spaces and base of each leaf, and the bytes of the memory it is a part of, or 0.", NULL},
    {"nodes", (getter)key_nodes, NULL, "Op, operands by number, attributes and layout of each pending value.", NULL},
    {"outputs", (getter)key_outputs, NULL, "Numbers of the requested values, those asked for first.", NULL},
    {NULL},
};

static PyMemberDef key_members[] = {
    {"count", T_PYSSIZET, offsetof(Key, leaf_count), READONLY, "How many leaves there are."},
    {"read", T_PYSSIZET, offsetof(Key, read), READONLY, "How many outputs the host is about to read."},
    {"stamp", T_LONGLONG, offsetof(Key, stamp), READONLY, "The stamp of the policy in force."},
    {NULL},
};

PyTypeObject KeyType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Key",
    .tp_doc = "The structure of a request: equal for equal work on equal layouts.",
    .tp_basicsize = sizeof(Key),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)key_dealloc,
    .tp_hash = (hashfunc)key_hash,
    .tp_richcompare = key_compare,
    .tp_members = key_members,
    .tp_getset = key_properties,
};

bool requests_ready(void)
{
    host_name = PyUnicode_InternFromString("host");
    PyObject *star = PyUnicode_InternFromString("*");
    if (host_name == NULL || star == NULL) {
        Py_XDECREF(star);
        return false;
    }
    host_only = PyFrozenSet_New(NULL);
    anywhere = PyFrozenSet_New(NULL);
    bool ready = host_only != NULL && anywhere != NULL && PySet_Add(host_only, host_name) == 0 && PySet_Add(anywhere, star) == 0;
    Py_DECREF(star);
    return ready;
}
