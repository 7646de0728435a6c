/* Layouts, interned in a table of our own so that finding one for an ndarray makes no Python object. */
#include "core.h"

enum { MOST_AXES = NPY_MAXDIMS };

static Layout **buckets;
static size_t bucket_count, layout_count;

bool strides_are_dense(Py_ssize_t ndim, const npy_intp *shape, const npy_intp *strides, npy_intp itemsize)
{
    /* From the innermost axis out: each time the axis whose stride is what the elements so far fill.
       Axes of length one may have any stride. */
    npy_intp expected = itemsize;
    bool done[MOST_AXES] = {false};
    for (Py_ssize_t left = ndim; left > 0; left--) {
        Py_ssize_t found = -1;
        for (Py_ssize_t i = ndim - 1; i >= 0; i--) {
            if (!done[i] && (shape[i] == 1 || strides[i] == expected)) {
                found = i;
                break;
            }
        }
        if (found < 0) {
            return false;
        }
        done[found] = true;
        expected *= shape[found];
    }
    return true;
}

static bool strides_are_c(Py_ssize_t ndim, const npy_intp *shape, const npy_intp *strides, npy_intp itemsize)
{
    npy_intp expected = itemsize;
    for (Py_ssize_t i = ndim - 1; i >= 0; i--) {
        if (shape[i] != 1) {
            if (strides[i] != expected) {
                return false;
            }
            expected *= shape[i];
        }
    }
    return true;
}

/* Not memcmp: NumPy's shapes of no axes can be null pointers. */
static bool same_numbers(Py_ssize_t n, const npy_intp *a, const npy_intp *b)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        if (a[i] != b[i]) {
            return false;
        }
    }
    return true;
}

/* Fill in the strides of a fresh C-order array. */
static void c_strides(Py_ssize_t ndim, const npy_intp *shape, npy_intp itemsize, npy_intp *strides)
{
    /* Unsigned, because where another axis has length zero the product need not fit. */
    size_t step = (size_t)itemsize;
    for (Py_ssize_t i = ndim - 1; i >= 0; i--) {
        strides[i] = (npy_intp)step;
        step *= (size_t)(shape[i] ? shape[i] : 1);
    }
}

static PyObject *tuple_of(Py_ssize_t n, const npy_intp *numbers)
{
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple != NULL && i < n; i++) {
        PyObject *number = PyLong_FromSsize_t(numbers[i]);
        if (number == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

static bool sizes_of(Py_ssize_t ndim, const npy_intp *shape, npy_intp itemsize, npy_intp *size, npy_intp *nbytes)
{
    npy_intp product = 1;
    bool fits = true;
    for (Py_ssize_t i = 0; i < ndim; i++) {
        if (shape[i] == 0) {
            *size = *nbytes = 0;
            return true;
        }
        fits = fits && shape[i] > 0 && product <= NPY_MAX_INTP / shape[i];
        product = fits ? product * shape[i] : 0;
    }
    fits = fits && (itemsize == 0 || product <= NPY_MAX_INTP / itemsize);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "array is too big; `arr.size * arr.dtype.itemsize` is larger "
                                          "than the maximum possible size.");
        return false;
    }
    *size = product;
    *nbytes = product * itemsize;
    return true;
}

static Layout *layout_new(PyArray_Descr *dtype, Py_ssize_t ndim, const npy_intp *shape, const npy_intp *strides)
{
    npy_intp size, nbytes, itemsize = PyDataType_ELSIZE(dtype);
    if (ndim > MOST_AXES) {
        PyErr_Format(PyExc_ValueError, "maximum supported dimension for an ndarray is %d, found %zd", MOST_AXES, ndim);
        return NULL;
    }
    if (!sizes_of(ndim, shape, itemsize, &size, &nbytes)) {
        return NULL;
    }
    Layout *self = PyObject_NewVar(Layout, &LayoutType, 2 * ndim);
    if (self == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < ndim; i++) {
        self->numbers[i] = shape[i];
        self->numbers[ndim + i] = strides[i];
    }
    npy_intp usual[MOST_AXES];
    c_strides(ndim, shape, itemsize, usual);
    bool c_contiguous = size == 0 || strides_are_c(ndim, shape, strides, itemsize);
    self->weakrefs = self->probe = NULL;
    self->ndim = ndim;
    self->size = size;
    self->itemsize = itemsize;
    self->nbytes = nbytes;
    self->dense = c_contiguous || strides_are_dense(ndim, shape, strides, itemsize);
    self->interned = self->kept = false;
    self->hash = 0;
    self->next = NULL;
    self->dtype = Py_NewRef((PyObject *)dtype);
    self->shape = tuple_of(ndim, shape);
    self->strides = tuple_of(ndim, strides);
    self->ndim_object = PyLong_FromSsize_t(ndim);
    self->size_object = PyLong_FromSsize_t(size);
    self->itemsize_object = PyLong_FromSsize_t(itemsize);
    self->nbytes_object = PyLong_FromSsize_t(nbytes);
    self->c_contiguous_object = PyBool_FromLong(c_contiguous);
    self->dense_object = PyBool_FromLong(self->dense);
    self->ordinary_object = PyBool_FromLong(size > 0 && same_numbers(ndim, strides, usual));
    if (self->shape == NULL || self->strides == NULL || self->ndim_object == NULL || self->size_object == NULL
        || self->itemsize_object == NULL || self->nbytes_object == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return self;
}

static void layout_dealloc(Layout *self)
{
    /* Out of the table first: a weakref's callback may ask for this very layout. */
    if (self->interned) {
        Layout **place = &buckets[(size_t)self->hash & (bucket_count - 1)];
        while (*place != self) {
            place = &(*place)->next;
        }
        *place = self->next;
        layout_count--;
    }
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    Py_XDECREF(self->dtype);
    Py_XDECREF(self->shape);
    Py_XDECREF(self->strides);
    Py_XDECREF(self->probe);
    Py_XDECREF(self->ndim_object);
    Py_XDECREF(self->size_object);
    Py_XDECREF(self->itemsize_object);
    Py_XDECREF(self->nbytes_object);
    Py_XDECREF(self->c_contiguous_object);
    Py_XDECREF(self->dense_object);
    Py_XDECREF(self->ordinary_object);
    Py_TYPE(self)->tp_free(self);
}

static bool grow(void)
{
    size_t count = bucket_count ? 2 * bucket_count : 64;
    Layout **wider = PyMem_Calloc(count, sizeof(Layout *));
    if (wider == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < bucket_count; i++) {
        for (Layout *layout = buckets[i], *next; layout != NULL; layout = next) {
            next = layout->next;
            Layout **bucket = &wider[(size_t)layout->hash & (count - 1)];
            layout->next = *bucket;
            *bucket = layout;
        }
    }
    PyMem_Free(buckets);
    buckets = wider;
    bucket_count = count;
    return true;
}

static Py_hash_t hash_of(Py_hash_t hash, Py_ssize_t n, const npy_intp *numbers)
{
    /* FNV-1a over words, then folded: the low bits choose the bucket. */
    size_t mixed = (size_t)hash;
    for (Py_ssize_t i = 0; i < n; i++) {
        mixed = (mixed ^ (size_t)numbers[i]) * (size_t)1099511628211u;
        mixed ^= mixed >> (sizeof(size_t) * 4);
    }
    return (Py_hash_t)mixed;
}

/* Return a new reference to the interned layout with these fields, or NULL, with or without an error. */
static Layout *look_up(PyArray_Descr *dtype, Py_hash_t hash, Py_ssize_t ndim, const npy_intp *shape, const npy_intp *strides)
{
    Layout *held = NULL, *layout = bucket_count ? buckets[(size_t)hash & (bucket_count - 1)] : NULL;
    while (layout != NULL) {
        if (layout->hash == hash && layout->ndim == ndim
            && same_numbers(ndim, layout->numbers, shape) && same_numbers(ndim, layout->numbers + ndim, strides)) {
            Py_INCREF(layout);
            Py_XDECREF(held);
            if (layout->dtype == (PyObject *)dtype) {
                return layout;
            }
            /* Comparing dtypes that are not one object can run code, which can change the table: what is
               held stays in its bucket, and where the buckets were made anew the search starts again. */
            size_t count = bucket_count;
            /* Two of C's types may be one dtype to NumPy (long and long long), which have scalars of their own. */
            if (((PyArray_Descr *)layout->dtype)->type_num == dtype->type_num
                && PyArray_EquivTypes((PyArray_Descr *)layout->dtype, dtype)) {
                return layout;
            }
            held = layout;
            if (count != bucket_count) {
                layout = buckets[(size_t)hash & (bucket_count - 1)];
                continue;
            }
        }
        layout = layout->next;
    }
    Py_XDECREF(held);
    return NULL;
}

PyObject *layout_find(PyArray_Descr *dtype, Py_ssize_t ndim, const npy_intp *shape, const npy_intp *strides)
{
    Py_hash_t hash = PyObject_Hash((PyObject *)dtype);
    if (hash == -1) {
        return NULL;
    }
    hash = hash_of(hash_of(hash ^ (Py_hash_t)ndim, ndim, shape), ndim, strides);
    Layout *layout = look_up(dtype, hash, ndim, shape, strides);
    if (layout != NULL || PyErr_Occurred()) {
        return (PyObject *)layout;
    }
    layout = layout_new(dtype, ndim, shape, strides);
    if (layout == NULL) {
        return NULL;
    }
    /* Making it can have run the collector, and with it code that made the same one. */
    Layout *other = look_up(dtype, hash, ndim, shape, strides);
    if (other != NULL || PyErr_Occurred()) {
        Py_DECREF(layout);
        return (PyObject *)other;
    }
    if (layout_count >= bucket_count && !grow()) {
        Py_DECREF(layout);
        return NULL;
    }
    Layout **bucket = &buckets[(size_t)hash & (bucket_count - 1)];
    layout->hash = hash;
    layout->interned = true;
    layout->next = *bucket;
    *bucket = layout;
    layout_count++;
    return (PyObject *)layout;
}

/* The layouts that views had last, which loops over views ask for again: making one takes longer than making a
   view. The rows of a triangle of 2,000 and what they are multiplied with are 4,000; each takes some hundred bytes. */
enum { KEPT = 8192 };
static PyObject *kept[KEPT];
static size_t kept_next;

void layout_keep(PyObject *layout)
{
    if (((Layout *)layout)->kept || !is_native((PyArray_Descr *)((Layout *)layout)->dtype)) {
        return;
    }
    PyObject **place = &kept[kept_next++ % KEPT], *before = *place;
    ((Layout *)layout)->kept = true;
    *place = Py_NewRef(layout);
    if (before != NULL) {
        ((Layout *)before)->kept = false;
        Py_DECREF(before);
    }
}

static bool numbers_of(PyObject *tuple, const char *what, Py_ssize_t n, npy_intp *numbers)
{
    if (!PyTuple_Check(tuple)) {
        PyErr_Format(PyExc_TypeError, "%s must be a tuple of integers, not %.80s. Fix: wrap it in tuple().",
                     what, Py_TYPE(tuple)->tp_name);
        return false;
    }
    if (PyTuple_GET_SIZE(tuple) != n || n > MOST_AXES) {
        PyErr_Format(PyExc_ValueError, "%s has %zd entries where %zd were expected and %d is NumPy's limit. "
                     "Fix: give one entry for each axis.", what, PyTuple_GET_SIZE(tuple), n, MOST_AXES);
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        numbers[i] = PyNumber_AsSsize_t(PyTuple_GET_ITEM(tuple, i), PyExc_OverflowError);
        if (numbers[i] == -1 && PyErr_Occurred()) {
            return false;
        }
    }
    return true;
}

typedef PyObject *(*Maker)(PyArray_Descr *, Py_ssize_t, const npy_intp *, const npy_intp *);

static PyObject *make_from(Maker make, PyObject *dtype, PyObject *shape, PyObject *strides)
{
    npy_intp lengths[MOST_AXES], steps[MOST_AXES];
    if (!expect_type(dtype, &PyArrayDescr_Type, "dtype")) {
        return NULL;
    }
    Py_ssize_t ndim = PyTuple_Check(shape) ? PyTuple_GET_SIZE(shape) : 0;
    if (!numbers_of(shape, "shape", ndim, lengths)) {
        return NULL;
    }
    if (strides != Py_None) {
        if (!numbers_of(strides, "strides", ndim, steps)) {
            return NULL;
        }
    } else {
        c_strides(ndim, lengths, PyDataType_ELSIZE((PyArray_Descr *)dtype), steps);
    }
    return make((PyArray_Descr *)dtype, ndim, lengths, steps);
}

static PyObject *make_apart(PyArray_Descr *dtype, Py_ssize_t ndim, const npy_intp *shape, const npy_intp *strides)
{
    return (PyObject *)layout_new(dtype, ndim, shape, strides);
}

static PyObject *layout_call(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    static const char *const names[] = {"dtype", "shape", "strides", NULL};
    PyObject *taken[3] = {NULL};
    if (!take_arguments("Layout", names, 3, args, nargsf, kwnames, taken)) {
        return NULL;
    }
    return make_from(make_apart, taken[0], taken[1], taken[2]);
}

PyObject *make_layout(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"dtype", "shape", "strides", NULL};
    PyObject *taken[3] = {NULL, NULL, Py_None};
    if (!take_arguments("make_layout", names, 2, args, nargs, kwnames, taken)) {
        return NULL;
    }
    return make_from(layout_find, taken[0], taken[1], taken[2]);
}

PyObject *layout_of(PyObject *module, PyObject *object)
{
    if (PyObject_TypeCheck(object, &ArrayType)) {
        Layout *found = window_of((Array *)object);
        if (found == NULL) {
            PyErr_SetString(PyExc_AttributeError, "storage");
        }
        return Py_XNewRef((PyObject *)found);
    }
    if (!PyArray_Check(object)) {
        PyErr_Format(PyExc_TypeError, "layout_of takes an Array or ndarray, not %.80s. Fix: pass numpy.asarray(it).",
                     Py_TYPE(object)->tp_name);
        return NULL;
    }
    PyArrayObject *array = (PyArrayObject *)object;
    return layout_find(PyArray_DESCR(array), PyArray_NDIM(array), PyArray_DIMS(array), PyArray_STRIDES(array));
}

PyObject *native(PyObject *module, PyObject *object)
{
    if (!expect_type(object, &PyArrayDescr_Type, "dtype")) {
        return NULL;
    }
    PyArray_Descr *dtype = (PyArray_Descr *)object;
    bool known = strchr("biufc", dtype->kind) != NULL && PyDataType_ELSIZE(dtype) <= 16 && PyArray_ISNBO(dtype->byteorder)
                 && dtype->type != NPY_LONGDOUBLELTR && dtype->type != NPY_CLONGDOUBLELTR;
    return PyBool_FromLong(known);
}

static PyObject *make_probe;

bool layouts_ready(void)
{
    PyObject *probing = PyImport_ImportModule("alight._core.probing");
    make_probe = probing == NULL ? NULL : PyObject_GetAttrString(probing, "probe");
    Py_XDECREF(probing);
    return make_probe != NULL;
}

PyObject *layout_probe(Layout *self, void *closure)
{
    if (self->probe == NULL) {
        PyObject *probe = PyObject_CallFunctionObjArgs(make_probe, self->dtype, self->shape, self->strides, NULL);
        if (probe == NULL) {
            return NULL;
        }
        if (self->probe == NULL) {
            self->probe = probe;
        } else {
            Py_DECREF(probe);  /* another thread was first: keep one, for its address is compared */
        }
    }
    return Py_NewRef(self->probe);
}

static PyObject *layout_repr(Layout *self)
{
    PyObject *shape = PySequence_List(self->shape);
    PyObject *name = shape == NULL ? NULL : PyObject_GetAttrString(self->dtype, "name");
    PyObject *text = NULL;
    if (name != NULL) {
        text = self->c_contiguous_object == Py_True
                   ? PyUnicode_FromFormat("%S%R", name, shape)
                   : PyUnicode_FromFormat("%S%R, strides=%R", name, shape, self->strides);
    }
    Py_XDECREF(name);
    Py_XDECREF(shape);
    return text;
}

static PyMemberDef layout_members[] = {
    READ_ONLY(Layout, "dtype", dtype),
    READ_ONLY(Layout, "shape", shape),
    READ_ONLY(Layout, "strides", strides),
    READ_ONLY(Layout, "ndim", ndim_object),
    READ_ONLY(Layout, "size", size_object),
    READ_ONLY(Layout, "itemsize", itemsize_object),
    READ_ONLY(Layout, "nbytes", nbytes_object),
    READ_ONLY(Layout, "c_contiguous", c_contiguous_object),
    READ_ONLY(Layout, "dense", dense_object),
    READ_ONLY(Layout, "ordinary", ordinary_object),
    {NULL},
};

static PyGetSetDef layout_properties[] = {
    {"probe", (getter)layout_probe, NULL,
     "Return an array of this layout that has no elements: index or transpose it, never read it.", NULL},
    {NULL},
};

PyTypeObject LayoutType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Layout",
    .tp_doc = "How bytes are read as an array: dtype, shape and strides in bytes. Interned: compare with ``is``.",
    .tp_basicsize = offsetof(Layout, numbers),
    .tp_itemsize = sizeof(npy_intp),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_vectorcall = layout_call,
    .tp_dealloc = (destructor)layout_dealloc,
    .tp_weaklistoffset = offsetof(Layout, weakrefs),
    .tp_repr = (reprfunc)layout_repr,
    .tp_members = layout_members,
    .tp_getset = layout_properties,
};
