/* The native core. What each type means is said once, in ../_native.pyi; comments here give only what C adds. */
#ifndef ALIGHT_CORE_H
#define ALIGHT_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <structmember.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL alight_core_numpy
#ifndef ALIGHT_CORE_MODULE
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

/* Python code can assign anything to a field, or delete it. Every field read here is therefore checked
   where it is used: a wrong or missing one sends the call to the hooks, or raises. */

typedef struct Layout {
    PyObject_VAR_HEAD
    PyObject *weakrefs, *dtype, *shape, *strides, *probe;
    /* Python reads these often, so they are kept as objects too; layouts are few. */
    PyObject *ndim_object, *size_object, *itemsize_object, *nbytes_object;
    PyObject *c_contiguous_object, *dense_object, *ordinary_object;
    npy_intp ndim, size, itemsize, nbytes;
    bool dense, interned, kept;
    Py_hash_t hash;
    struct Layout *next;  /* in its bucket of the table of layouts */
    npy_intp numbers[];   /* the shape, then the strides */
} Layout;

typedef struct {
    PyObject_HEAD
    PyObject *layout;
    Py_ssize_t offset;
    char writeable;
} View;

typedef struct {
    PyObject_HEAD
    PyObject *weakrefs, *layout, *array, *owner, *remote, *raw;
    Py_ssize_t nbytes;
    char foreign, shared, fixed;
    char writing; /* by how many, at once, on the host (turns.c) */
} Data;

typedef struct {
    PyObject_HEAD
    PyObject *weakrefs, *op, *operands, *attrs, *layout, *data, *errstate, *error;
    /* The call site: as given, or as code and instruction until somebody asks for the tuple. */
    PyObject *site, *code;
    int instruction;
    Py_ssize_t offset;
    long long seq;
    /* The request that met it last, and its number there (request.c). */
    unsigned long long mark;
    Py_ssize_t number;
} Value;

typedef struct Storage {
    PyObject_HEAD
    PyObject *weakrefs, *value, *lease, *members;
    struct Storage *older, *newer;  /* in the list of storages that were pending; NULL: not in it */
    /* Whose turn it is to write, how often it took it, and what it writes into (turns.c). */
    unsigned long writer;
    unsigned int depth, process;
    PyObject *open;
} Storage;

typedef struct {
    PyObject_HEAD
    /* ``made``: the ndarray or the scalar that NumPy made, of whose storage nobody has asked yet; then there is none. */
    PyObject *weakrefs, *storage, *window, *made;
    /* NumPy's own generators take what they are given as out= for an ndarray without a look: where
       that has its flags these have none, and NumPy refuses it as not contiguous and not writeable
       (it wrote to wherever the bytes beside an Array led). */
    char no_flags[offsetof(PyArrayObject_fields, flags) + sizeof(int) - sizeof(PyObject) - 4 * sizeof(PyObject *)];
} Array;

typedef struct {
    PyObject_HEAD
    PyObject *appears, *array, *binary, *unary, *in_place, *getitem, *setitem, *ufunc, *at_once, *wrap, *taken;
    PyObject *inside, *flush, *settle, *large, *errstate;
} Hooks;

typedef struct {
    PyObject_HEAD
    PyObject *anchor, *paces;
    Py_ssize_t record_floor, automatic, kept;
    double begins;
    double addition; /* seconds that NumPy takes to add one float64 to another */
    long long budget, limit, count, pending, traced;
    Py_ssize_t passed; /* the floor of the site that called last, where it has its own; else 0 */
    Py_ssize_t judging; /* sites that are open, and not judged yet */
    char scalars, met, rehearses;
} Floor;

extern PyTypeObject LayoutType, ViewType, DataType, ValueType, StorageType, KeyType, KernelCallType;
extern PyTypeObject BorderType, ArrayType, HooksType, FloorType, CreationType, NamespaceType, PublicType, UfuncBaseType;
extern Hooks *hooks;
extern Floor *floors;
extern PyObject *policy_in_force;  /* the context variable POLICY */
extern PyObject *numpy_errstate;   /* NumPy's context variable of floating-point error handling */
extern PyObject *empty_tuple;

/* call.c */
bool take_arguments(const char *function, const char *const *names, Py_ssize_t required,
                    PyObject *const *args, size_t nargsf, PyObject *kwnames, PyObject **taken);
bool expect_type(PyObject *object, PyTypeObject *type, const char *function);
bool is_interrupt(void);

/* layout.c */
PyObject *layout_find(PyArray_Descr *dtype, Py_ssize_t ndim, const npy_intp *shape, const npy_intp *strides);
bool strides_are_dense(Py_ssize_t ndim, const npy_intp *shape, const npy_intp *strides, npy_intp itemsize);
PyObject *make_layout(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *layout_of(PyObject *module, PyObject *array);
PyObject *layout_probe(Layout *self, void *closure);
void layout_keep(PyObject *layout);
PyObject *native(PyObject *module, PyObject *dtype);

/* value.c */
Value *value_new(PyObject *op, PyObject *operands, PyObject *layout, PyObject *errstate);
PyObject *storage_new(Value *value);
PyObject *pending_storages(PyObject *module, PyObject *unused);
Storage *next_pending(Storage *after);  /* the oldest after one, or of all; NULL: no more */
PyObject *sole(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *reference_count(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
extern Py_ssize_t sole_references;

void value_bind(Value *self, PyObject *data, Py_ssize_t offset);

/* turns.c */
bool may_write(Storage *self);
bool wait_for_turn(Storage *self);
void let_go(Storage *self);  /* what was waited for */
PyObject *closed(Storage *self);
/* NumPy's own writing into an array at once. Its storage is had meanwhile, also one that is only made then, of what
   NumPy made: what others copy of it is not kept. */
typedef struct Writing {
    Storage *storage;
    PyObject *made;
    unsigned long thread;
    struct Writing *next;
} Writing;
void begin_writing(Writing *self, Array *array);
void join_writing(Storage *storage, PyObject *made); /* which has that storage from now on */
void end_writing(Writing *self);
bool turns_ready(void);
bool masked_ready(void);
PyObject *copy_where(PyObject *self, PyObject *const *args, Py_ssize_t count);
extern PyTypeObject TurnType;
PyObject *storage_open(PyObject *self, PyObject *unused);

/* request.c */
PyObject *request(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
bool layouts_ready(void);  /* layout.c */
bool requests_ready(void);  /* key.c */
unsigned long long next_mark(void); /* that no value has: to mark them while the interpreter's lock is held */

/* uses.c */
#define NOT_ALONE (-2)
Value *value_at(PyObject *values, Py_ssize_t number);
Py_ssize_t uses_below(Value *old, PyObject *values, const Py_ssize_t *nodes, Py_ssize_t count, const Py_ssize_t *outputs,
                      Py_ssize_t bound, Value *target);
PyObject *uses_within(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* errstate.c */
bool errors_may_wait(PyObject **state);
PyObject *recording_errstate(PyObject *module, PyObject *unused);
bool errstate_ready(void);

/* floor.c */
bool floor_in_force(Py_ssize_t *least);
void meet_large(void);
npy_intp array_floor(Py_ssize_t least);
/* The floor of a body that was given up (pending.OUTRIGHT): its work is NumPy's, and what that makes stays plain. */
#define OUTRIGHT (PY_SSIZE_T_MAX - 1)
bool outright(void);
bool small_are_numpys(void);
bool count_recorded(npy_intp elements);
bool floor_ready(void);

/* sites.c */
/* Fewer elements than this take NumPy 2 to 5 us, which a cached plan and its kernel's call take as well: no floor that
   was measured is lower. */
enum { COUNTED = 8192 };
typedef struct {
    struct Site *site;
    double began;
    npy_intp elements;
    bool lowers; /* the floor is one that sites may lower */
} SiteWork;
npy_intp site_floor(npy_intp least);
extern npy_intp left_in_vain; /* elements up to which plans left all to NumPy at the site that called last */
SiteWork begin_work(PyObject *const *plain, Py_ssize_t count, npy_intp least, bool product);
void end_work(SiteWork work);
PyObject *floor_expected(Floor *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *floor_took(Floor *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *floor_planned(Floor *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *floor_replan(Floor *self, PyObject *unused);
PyObject *floor_shut(Floor *self, PyObject *kept);
PyObject *floor_sites(Floor *self, PyObject *unused);
PyObject *floor_forget(Floor *self, PyObject *unused);

/* items.c */
extern PyTypeObject ItemsType;
PyObject *items_of(PyObject *module, PyObject *array);
PyObject *items_count(PyObject *module, PyObject *array);

/* pace.c */
/* The op that was asked about last: its row, kept, and what NumPy is predicted to take for an element. */
typedef struct {
    PyObject *row;
    double each;
} Priced;
extern Priced priced;
npy_intp op_floor(PyObject *row, PyObject *const *items, Py_ssize_t count, npy_intp least);
npy_intp ufunc_floor(PyObject *ufunc, PyObject *const *args, Py_ssize_t nargs, npy_intp least);
bool floor_passed(PyObject *ufunc, PyObject *const *args, Py_ssize_t nargs);
npy_intp paced_reduction(PyObject *pace, PyObject *array, Py_ssize_t more, npy_intp least);
npy_intp paced_product(PyObject *left, PyObject *right, npy_intp least);
npy_intp paced_in_place(PyObject *array, PyObject *other, npy_intp least);
PyObject *floor_paced(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

/* namespace.c */
void namespace_sized(void);  /* before the type is made ready */

/* buffers.c */
PyObject *fresh_data(PyObject *module, PyObject *layout);
PyObject *keep_bytes(PyObject *module, PyObject *most);
PyObject *keep_only(PyObject *module, PyObject *beyond);
PyObject *kept_bytes(PyObject *module, PyObject *unused);
PyObject *give_back_heap(PyObject *module, PyObject *unused);
PyObject *living_bytes(PyObject *module, PyObject *unused);
PyObject *memory_limits(PyObject *module, PyObject *unused);
bool buffers_ready(void);
/* Return an uninitialised ndarray that owns its memory, or NULL with an error. Takes over the descr. */
PyObject *fresh_ndarray(PyArray_Descr *descr, int ndim, const npy_intp *shape, const npy_intp *strides, int fortran);

/* free_memory.c: what limits leave, and the least of them; SIZE_MAX: there is none */
typedef struct {
    size_t left, most;
} Memory;
/* what the limits of this process leave, and what the machine has free and the control groups leave */
size_t left_by_limits(void);
size_t left_of_memory(void);
/* free_memory.c: give the system the pages of the C library's heap that hold nothing */
void trim_heap(void);
/* free_memory.c: the bytes that lie idle in it, where so many beside it are alight's own */
size_t idle_heap(size_t own);

/* guard.c, launcher.c: their names, put into the module */
bool guard_ready(PyObject *module);
bool threads_ready(PyObject *module);

/* data.c, view.c */
PyObject *data_of(PyObject *layout, PyObject *array);
bool data_is_private(Data *self); /* though it was shared once: nobody has it any more */
bool data_is_own(Data *self);  /* nobody outside can see its memory on the host */
PyObject *view_new(PyObject *layout, Py_ssize_t offset, bool writeable);
PyObject *view_over(PyTypeObject *type, Array *self, PyObject *window, PyObject *probe);
PyObject *view_from(PyTypeObject *type, Array *self, PyObject *layout, npy_intp offset);
PyObject *view_of(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* at_hand.c */
PyObject *bytes_at_hand(Array *array, npy_intp least);
PyObject *bytes_to_write(Array *array, npy_intp least, Writing *writing);
PyObject *element_at_hand(Array *array, PyObject *key);
int set_element_at_hand(Array *array, PyObject *key, PyObject *item);
PyObject *at_hand(PyObject *module, PyObject *array);
PyObject *export_at_hand(Array *array);
PyObject *exported(PyObject *module, PyObject *array);

/* once.c, once_arithmetic.c, once_index.c, once_call.c */
bool may_do(Py_ssize_t *least);
bool called_by_user(void);
bool may_do_below(Py_ssize_t least);
PyObject *operand(PyObject *item, npy_intp least);
PyObject *operand_as_made(PyObject *item, npy_intp least);
typedef enum { BROADCAST, PRODUCT, EITHER } Growth;
bool outgrow(PyObject *const *items, Py_ssize_t count, npy_intp least, Growth growth);
bool is_fresh(PyObject *object);
bool is_native(PyArray_Descr *dtype);
bool is_several(PyObject *made);
PyObject *taken_over(PyObject *made, npy_intp least);
PyObject *scalar_adopted(PyObject *scalar);
Value *fresh_value(PyObject *array);
PyObject *once_binary(binaryfunc run, PyObject *left, PyObject *right, Py_ssize_t least);
PyObject *once_few(binaryfunc run, PyObject *left, PyObject *right, Py_ssize_t least);
PyObject *once_unary(unaryfunc run, PyObject *array, Py_ssize_t least);
PyObject *once_in_place(binaryfunc run, PyObject *array, PyObject *other);
bool calls_ready(void);
bool is_plain_data(PyObject *item, npy_intp *left, int depth);
PyObject *once_draw(PyObject *function, Py_ssize_t own, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames); /* creation.c */
PyObject *once_call(PyObject *function, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *once_function(PyObject *function, Py_ssize_t operands, PyObject *pace, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *once_change(PyObject *function, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *once_gather(PyObject *array, PyObject *key);
int once_scatter(PyObject *array, PyObject *key, PyObject *item);
PyObject *once_ask(PyObject *function, PyObject *const *args, Py_ssize_t nargs);
PyObject *once_view(PyObject *function, PyObject *const *args, Py_ssize_t nargs);
PyObject *once_getitem(PyObject *array, PyObject *key);
int once_setitem(PyObject *array, PyObject *key, PyObject *item);
PyObject *take_over(PyObject *module, PyObject *array);
PyObject *fresh_array(PyObject *module, PyObject *made);
/* Find what an index of an axis of this length means; negative: it is too far, or too large. */
npy_intp index_of(PyObject *part, npy_intp length);

/* border.c */
extern long long live_arrays;

/* array.c */
PyObject *array_new(PyTypeObject *type, Value *value);
PyObject *array_over(PyTypeObject *type, PyObject *storage, PyObject *window);
PyObject *array_made_of(PyTypeObject *type, PyObject *made);
void array_store(Array *self);
bool array_ready(void);

/* operators.c */
extern PyNumberMethods array_number;
extern PyObject *operators_by_name;
PyObject *ask_array_hook(PyObject *hook, const char *name, PyObject *op, PyObject *left, PyObject *right);
PyObject *array_compare(PyObject *left, PyObject *right, int how);
PyObject *set_operators(PyObject *module, PyObject *table);

static inline bool is_layout(PyObject *object) { return object != NULL && Py_IS_TYPE(object, &LayoutType); }
static inline bool is_value(PyObject *object) { return object != NULL && Py_IS_TYPE(object, &ValueType); }
static inline bool is_data(PyObject *object) { return object != NULL && Py_IS_TYPE(object, &DataType); }
static inline bool is_pending(Value *value) { return value->op != NULL && value->op != Py_None; }
static inline bool is_ours(PyObject *object) { return (PyObject *)Py_TYPE(object) == hooks->array; }
static inline bool is_scalar(PyObject *object) { return PyArray_CheckAnyScalarExact(object) && PyArray_CheckScalar(object); }

/* Return, borrowed, the storage of an array; NULL without an error where there is none. */
static inline PyObject *storage_of(Array *array)
{
    if (array->storage == NULL && array->made != NULL) {
        array_store(array);
    }
    return array->storage;
}

/* Return, borrowed, what NumPy made where an array is that alone. */
static inline PyObject *made_of(PyObject *object)
{
    Array *array = (Array *)object;
    return is_ours(object) && array->storage == NULL ? array->made : NULL;
}

static inline Layout *window_of(Array *array)
{
    if (storage_of(array) == NULL || !Py_IS_TYPE(array->storage, &StorageType) || array->window == NULL) {
        return NULL;
    }
    Value *value = (Value *)((Storage *)array->storage)->value;
    PyObject *layout;
    if (array->window != Py_None) {
        layout = Py_IS_TYPE(array->window, &ViewType) ? ((View *)array->window)->layout : NULL;
    } else {
        layout = is_value((PyObject *)value) ? value->layout : NULL;
    }
    return is_layout(layout) ? (Layout *)layout : NULL;
}

#define MEMBER(type, name) {#name, T_OBJECT_EX, offsetof(type, name), 0, NULL}
#define READ_ONLY(type, name, field) {name, T_OBJECT_EX, offsetof(type, field), READONLY, NULL}

#endif
