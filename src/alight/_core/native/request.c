/* Requests: the walk from what is asked for to all that must be computed with it. */
#include "request.h"

#include <string.h>

/* ---------------------------------------------------------------- the walk */

/* Values are marked with the request that met them, so that no table is needed. The interpreter's lock is
   held from the first mark to the last number: nothing in between runs other code. */
static unsigned long long requests;

unsigned long long next_mark(void) { return ++requests; }

typedef struct {
    Value *root;          /* NULL: the part of what is asked for */
    Py_ssize_t joined;    /* an earlier part that shares work with this one, or itself */
} Part;

/* All memory of a walk; each grows alone. */
typedef struct {
    void *items;
    Py_ssize_t count, room;
} List;

static void *more(List *list, size_t size)
{
    if (list->count == list->room) {
        Py_ssize_t room = list->room ? 2 * list->room : 64;
        void *items = PyMem_Realloc(list->items, (size_t)room * size);
        if (items == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        list->items = items;
        list->room = room;
    }
    return (char *)list->items + (size_t)list->count++ * size;
}

static bool push(List *list, Value *value)
{
    Value **place = more(list, sizeof(Value *));
    if (place == NULL) return false;
    *place = value;
    return true;
}

#define KEPT 4096 /* items; a request of more takes far longer than asking for memory does */
#define VALUES(list) ((Value **)(list).items)
#define PARTS(list) ((Part *)(list).items)

typedef struct {
    unsigned long long mark;
    bool given;           /* back, and not taken again */
    List stack, pending, parts, roots, leaves, bases, table;
} Walk;

/* Kept for the next request; taken away while one is under way. */
static Walk spare;

static void give_back(Walk *walk)
{
    List *lists[] = {&walk->stack, &walk->pending, &walk->parts, &walk->roots, &walk->leaves, &walk->bases, &walk->table};
    bool keep = !spare.given; /* else a request in between gave its own */
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        lists[i]->count = 0;
        if (!keep || lists[i]->room > KEPT) {
            PyMem_Free(lists[i]->items);
            *lists[i] = (List){NULL, 0, 0};
        }
    }
    walk->given = true;
    if (keep) spare = *walk;
}

static Py_ssize_t first_part(Part *parts, Py_ssize_t part)
{
    while (parts[part].joined != part) part = parts[part].joined = parts[parts[part].joined].joined;
    return part;
}

/* A value's ``number`` is twice its part, and one more where it is requested, until it gets its number. */
static bool reach(Walk *walk, Value *root, Py_ssize_t part)
{
    walk->stack.count = 0;
    if (!push(&walk->stack, root)) return false;
    while (walk->stack.count > 0) {
        Value *value = VALUES(walk->stack)[--walk->stack.count];
        if (!is_pending(value)) continue;
        if (value->mark == walk->mark) {
            Py_ssize_t one = first_part(PARTS(walk->parts), part);
            Py_ssize_t two = first_part(PARTS(walk->parts), value->number >> 1);
            if (one != two) PARTS(walk->parts)[one > two ? one : two].joined = one > two ? two : one;
            continue;
        }
        if (value->operands == NULL || !PyTuple_Check(value->operands) || value->attrs == NULL || !is_layout(value->layout)) {
            PyErr_SetString(PyExc_TypeError, "a pending value needs operands in a tuple, attrs and a layout");
            return false;
        }
        value->mark = walk->mark;
        value->number = 2 * part;
        if (!push(&walk->pending, value)) return false;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value->operands); i++) {
            PyObject *operand = PyTuple_GET_ITEM(value->operands, i);
            if (!expect_type(operand, &ValueType, "operand")) return false;
            /* A leaf is numbered later, and a value met before only matters where it is another part's. */
            if (is_pending((Value *)operand) && !push(&walk->stack, (Value *)operand)) return false;
        }
    }
    return true;
}

static bool add_part(Walk *walk, Value *root)
{
    Py_ssize_t number = walk->parts.count;
    Part *part = more(&walk->parts, sizeof(Part));
    if (part == NULL) return false;
    *part = (Part){root, number};
    return true;
}

/* What is asked for is part 0. */
static bool ask(Walk *walk, PyObject *roots)
{
    if (!add_part(walk, NULL)) return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(roots); i++) {
        PyObject *item = PyList_GET_ITEM(roots, i);
        if (!expect_type(item, &ValueType, "root")) return false;
        Value *root = (Value *)item;
        if (!is_pending(root) || (root->mark == walk->mark && root->number & 1)) continue;
        if (!reach(walk, root, 0) || !push(&walk->roots, root)) return false;
        root->number |= 1;
    }
    return true;
}

/* Parts begin apart, one for each other storage whose version is pending. */
static bool connect(Walk *walk, PyObject *passing)
{
    for (Storage *storage = next_pending(NULL); storage != NULL; storage = next_pending(storage)) {
        Value *value = (Value *)storage->value;
        bool reached = value->mark == walk->mark;
        if ((PyObject *)storage == passing || (reached && value->number & 1)) continue;
        if (!reached && value->error != NULL && value->error != Py_None) continue; /* it would fail again */
        Py_ssize_t part = walk->parts.count;
        if (!add_part(walk, value) || !reach(walk, value, part)) return false;
        value->number |= 1;
    }
    for (Py_ssize_t i = 1; i < walk->parts.count; i++)
        if (first_part(PARTS(walk->parts), i) == 0 && !push(&walk->roots, PARTS(walk->parts)[i].root)) return false;
    return true;
}

static int by_age(const void *left, const void *right)
{
    long long a = (*(Value *const *)left)->seq, b = (*(Value *const *)right)->seq;
    return (a > b) - (a < b);
}

/* Leave only what belongs to what is asked for, in the order of recording; count the rest. */
static void sort_pending(Walk *walk, long long *count, long long *elements)
{
    Value **values = VALUES(walk->pending);
    Py_ssize_t kept = 0, total = walk->pending.count;
    for (Py_ssize_t i = 0; i < total; i++) {
        if (first_part(PARTS(walk->parts), values[i]->number >> 1) == 0) {
            values[kept++] = values[i];
        } else {
            *count += 1;
            *elements += ((Layout *)values[i]->layout)->size;
        }
    }
    walk->pending.count = kept;
    /* The walk meets a statement's values in the opposite order. */
    for (Py_ssize_t i = 0, j = kept - 1; i < j; i++, j--) {
        Value *value = values[i];
        values[i] = values[j];
        values[j] = value;
    }
    for (Py_ssize_t i = 1; i < kept; i++) {
        if (values[i]->seq < values[i - 1]->seq) {
            qsort(values, (size_t)kept, sizeof(Value *), by_age);
            return;
        }
    }
}

/* ---------------------------------------------------------------- leaves */

static bool is_constant(Value *value) { return !is_data(value->data); }

static size_t leaf_hash(Value *leaf)
{
    if (!is_constant(leaf)) return (size_t)leaf->data >> 4;
    size_t hash = (size_t)leaf->layout;
    const char *bytes = PyArray_BYTES((PyArrayObject *)leaf->attrs);
    for (npy_intp i = 0; i < ((Layout *)leaf->layout)->itemsize; i++) mix(&hash, (size_t)(unsigned char)bytes[i]);
    return hash;
}

static bool same_constant(Value *a, Value *b)
{
    return is_constant(a) && a->layout == b->layout &&
           memcmp(PyArray_DATA((PyArrayObject *)a->attrs), PyArray_DATA((PyArrayObject *)b->attrs),
                  (size_t)((Layout *)a->layout)->itemsize) == 0;
}

static bool fill_table(Walk *walk, Py_ssize_t size)
{
    PyMem_Free(walk->table.items);
    walk->table.items = PyMem_Calloc((size_t)size, sizeof(Py_ssize_t));
    walk->table.room = walk->table.items == NULL ? 0 : size;
    if (walk->table.items == NULL) {
        PyErr_NoMemory();
        return false;
    }
    return true;
}

/* Number a leaf: equal constants are one, and so are equal windows of one memory. The table holds the
   first leaf of each memory (plus one; 0: none), from which the others hang by `older`. */
typedef struct {
    Py_ssize_t base, older;
} Base;

#define BASES(list) ((Base *)(list).items)

static bool number_leaf(Walk *walk, Value *leaf)
{
    bool constant = is_constant(leaf);
    if (!is_layout(leaf->layout) ||
        (constant && (leaf->attrs == NULL || !PyArray_Check(leaf->attrs) ||
                      PyArray_NBYTES((PyArrayObject *)leaf->attrs) != ((Layout *)leaf->layout)->itemsize))) {
        PyErr_SetString(PyExc_TypeError, "a concrete value needs a layout, and data or a 0-d array");
        return false;
    }
    if (2 * walk->leaves.count >= walk->table.room) {
        Py_ssize_t size = walk->table.room ? 4 * walk->table.room : 64;
        if (!fill_table(walk, size)) return false;
        for (Py_ssize_t i = 0; i < walk->leaves.count; i++) {
            if (BASES(walk->bases)[i].base != i) continue;
            size_t place = leaf_hash(VALUES(walk->leaves)[i]);
            Py_ssize_t *table = walk->table.items;
            while (table[place & (size_t)(size - 1)] != 0) place++;
            table[place & (size_t)(size - 1)] = i + 1;
        }
    }
    Py_ssize_t *table = walk->table.items, number = walk->leaves.count, base = number, older = -1;
    size_t place = leaf_hash(leaf), mask = (size_t)walk->table.room - 1;
    for (; table[place & mask] != 0; place++) {
        Py_ssize_t first = table[place & mask] - 1;
        Value *known = VALUES(walk->leaves)[first];
        if (constant ? same_constant(known, leaf) : known->data == leaf->data) {
            base = first;
            break;
        }
    }
    if (base == number) {
        table[place & mask] = number + 1;
    } else if (constant) {
        leaf->number = base;
    } else {
        /* The list begins at the base itself, which names the one that came last. */
        for (Py_ssize_t i = base; i >= 0; i = BASES(walk->bases)[i].older) {
            Value *known = VALUES(walk->leaves)[i];
            if (known->layout == leaf->layout && known->offset == leaf->offset) {
                leaf->number = i;
                leaf->mark = walk->mark;
                return true;
            }
        }
        older = BASES(walk->bases)[base].older;
    }
    leaf->mark = walk->mark;
    if (constant && base != number) return true;
    leaf->number = number;
    if (!push(&walk->leaves, leaf)) return false;
    Base *own = more(&walk->bases, sizeof(Base));
    if (own == NULL) {
        walk->leaves.count--;
        return false;
    }
    *own = (Base){base, older};
    if (base != number) BASES(walk->bases)[base].older = number;
    return true;
}

static Py_ssize_t number_all(Walk *walk)
{
    Py_ssize_t operands = 0;
    walk->leaves.count = walk->bases.count = 0;
    if (walk->table.room) memset(walk->table.items, 0, (size_t)walk->table.room * sizeof(Py_ssize_t));
    for (Py_ssize_t i = 0; i < walk->pending.count; i++) {
        PyObject *own = VALUES(walk->pending)[i]->operands;
        operands += PyTuple_GET_SIZE(own);
        for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(own); j++) {
            Value *operand = (Value *)PyTuple_GET_ITEM(own, j);
            if (!is_pending(operand) && operand->mark != walk->mark && !number_leaf(walk, operand)) return -1;
        }
    }
    for (Py_ssize_t i = 0; i < walk->pending.count; i++)
        VALUES(walk->pending)[i]->number = walk->leaves.count + i;
    return operands;
}

/* ---------------------------------------------------------------- the request */

/* What `spaces` says of a leaf, as a new reference or NULL for the host alone; an error is set on failure. */
static PyObject *spaces_of(Value *leaf)
{
    if (is_constant(leaf)) return Py_NewRef(Py_None);
    Data *data = (Data *)leaf->data;
    bool on_host = data->array != NULL && data->array != Py_None;
    if (data->remote == NULL || !PyDict_Check(data->remote) || (on_host && PyDict_GET_SIZE(data->remote) == 0)) return NULL;
    PyObject *found = PyFrozenSet_New(data->remote);
    if (found != NULL && on_host && PySet_Add(found, host_name) < 0) Py_CLEAR(found);
    return found;
}

static Key *make_key(Walk *walk, Py_ssize_t operand_count, Py_ssize_t read, long long stamp)
{
    Py_ssize_t leaf_count = walk->leaves.count, node_count = walk->pending.count, outputs = walk->roots.count;
    size_t bytes = (size_t)leaf_count * sizeof(Leaf) + (size_t)node_count * sizeof(Node) +
                   (size_t)(operand_count + outputs) * sizeof(Py_ssize_t);
    Key *key = PyObject_New(Key, &KeyType);
    if (key == NULL) return NULL;
    *key = (Key){.ob_base = key->ob_base, .stamp = stamp, .read = read, .operand_count = operand_count, .output_count = outputs};
    key->leaves = PyMem_Malloc(bytes);
    if (key->leaves == NULL) {
        Py_DECREF(key);
        PyErr_NoMemory();
        return NULL;
    }
    key->nodes = (Node *)(void *)(key->leaves + leaf_count);
    key->operands = (Py_ssize_t *)(void *)(key->nodes + node_count);
    key->outputs = key->operands + operand_count;
    Py_ssize_t next = 0;
    for (; key->node_count < node_count; key->node_count++) {
        Value *value = VALUES(walk->pending)[key->node_count];
        Py_ssize_t count = PyTuple_GET_SIZE(value->operands);
        key->nodes[key->node_count] = (Node){Py_NewRef(value->op), Py_NewRef(value->attrs), Py_NewRef(value->layout), next, count};
        for (Py_ssize_t j = 0; j < count; j++)
            key->operands[next++] = ((Value *)PyTuple_GET_ITEM(value->operands, j))->number;
    }
    for (Py_ssize_t i = 0; i < outputs; i++) key->outputs[i] = VALUES(walk->roots)[i]->number;
    for (; key->leaf_count < leaf_count; key->leaf_count++) {
        Value *leaf = VALUES(walk->leaves)[key->leaf_count];
        PyObject *spaces = spaces_of(leaf);
        if (spaces == NULL && PyErr_Occurred()) break;
        Py_ssize_t memory = is_constant(leaf) ? 0 : ((Data *)leaf->data)->nbytes;
        Py_ssize_t within = ((Layout *)leaf->layout)->nbytes >= memory ? 0 : memory;
        key->leaves[key->leaf_count] =
            (Leaf){Py_NewRef(leaf->layout), spaces, BASES(walk->bases)[key->leaf_count].base, within};
    }
    if (key->leaf_count < leaf_count || !set_hash(key)) Py_CLEAR(key);
    return key;
}

/* The key, and a list of the leaves and the pending values by number. */
static PyObject *numbered(Walk *walk, Py_ssize_t operands, Py_ssize_t read, long long stamp)
{
    Py_ssize_t leaves = walk->leaves.count, count = leaves + walk->pending.count;
    /* Held first: once all is numbered, other code may run again, and let go of them. */
    for (Py_ssize_t i = 0; i < leaves; i++) Py_INCREF(VALUES(walk->leaves)[i]);
    for (Py_ssize_t i = leaves; i < count; i++) Py_INCREF(VALUES(walk->pending)[i - leaves]);
    Key *key = make_key(walk, operands, read, stamp);
    PyObject *list = key == NULL ? NULL : PyList_New(count), *result = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = (PyObject *)(i < leaves ? VALUES(walk->leaves)[i] : VALUES(walk->pending)[i - leaves]);
        if (list == NULL) Py_DECREF(value);
        else PyList_SET_ITEM(list, i, value);
    }
    if (list != NULL) result = PyTuple_Pack(2, key, list);
    Py_XDECREF(list);
    Py_XDECREF(key);
    return result;
}

PyObject *request(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"roots", "read", "stamp", "passing", "connected", NULL};
    PyObject *taken[5] = {NULL, NULL, NULL, Py_None, Py_True};
    if (!take_arguments("request", names, 3, args, nargs, kwnames, taken) ||
        !expect_type(taken[0], &PyList_Type, "roots")) {
        return NULL;
    }
    int read = PyObject_IsTrue(taken[1]), connected = PyObject_IsTrue(taken[4]);
    long long stamp = PyLong_AsLongLong(taken[2]), count = 0, elements = 0;
    if (read < 0 || connected < 0 || (stamp == -1 && PyErr_Occurred())) return NULL;
    Walk walk = spare;
    memset(&spare, 0, sizeof spare);
    walk.mark = next_mark();
    PyObject *result = NULL;
    if (ask(&walk, taken[0])) {
        Py_ssize_t asked = walk.roots.count, operands = -1;
        if (asked == 0) {
            result = Py_NewRef(Py_None);
        } else if (!connected || connect(&walk, taken[3])) {
            sort_pending(&walk, &count, &elements);
            if (connected) {
                floors->count = count;
                if (elements < floors->pending) floors->pending = elements; /* since somebody looked */
            }
            operands = number_all(&walk);
        }
        if (operands >= 0) result = numbered(&walk, operands, read ? asked : 0, stamp);
    }
    give_back(&walk);
    return result;
}
