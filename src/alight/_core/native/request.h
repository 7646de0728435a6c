/* What a request comes to in numbers: shared by the walk (request.c) and its key (key.c). */
#ifndef ALIGHT_REQUEST_H
#define ALIGHT_REQUEST_H

#include "core.h"

typedef struct {
    PyObject *layout;
    PyObject *spaces;     /* NULL: the host alone; None: a constant, everywhere; else a frozenset */
    Py_ssize_t base;
    Py_ssize_t within;    /* bytes of the memory that it is a part of, 0 where it is all of it */
} Leaf;

typedef struct {
    PyObject *op, *attrs, *layout;
    Py_ssize_t first, count;  /* of its operands, in the array of all */
} Node;

typedef struct {
    PyObject_HEAD
    Py_hash_t hash;
    long long stamp;
    Py_ssize_t read, leaf_count, node_count, operand_count, output_count;
    Leaf *leaves;
    Node *nodes;
    Py_ssize_t *operands, *outputs;
} Key;

/* What `spaces` says without an object. */
extern PyObject *host_name, *host_only, *anywhere;

/* key.c */
bool set_hash(Key *self);

static inline void mix(size_t *hash, size_t word)
{
    *hash = (*hash ^ word) * (size_t)0x9E3779B97F4A7C15u;
    *hash ^= *hash >> (4 * sizeof(size_t)); /* a product's low bits know nothing of the high ones */
}

#endif
