/* Host memory for results: blocks that arrays own and that come back here when the arrays die.

   An array made here is as one of NumPy's own: it owns its data and has no base. NumPy asks the
   allocator that was in force when the array was made (NEP 49) to free or resize the data, and that
   is this one: the block is kept for the next array of its size. Fresh pages cost more than most
   arithmetic: writing 64 MiB took 2.7 ms where the pages were there and 7.2 (of 2 MiB) or 39 (of
   4 KiB) where they were not (EPYC, Linux 6.18). */
#include "kept_blocks.h"
#include "ranges.h"

#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* NumPy finds the allocator in force in the context; entering one that has ours takes 0.1 us, setting it
   and setting the old one again 0.3. */
static PyObject *context;

#ifdef __GLIBC__
/* glibc gives pages back to the system where more than twice the largest block that came back so far lies idle,
   of up to 32 MiB, and those are faulted in anew at the next call (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD,
   mallopt(3)). With results here it would see few large ones, and what else NumPy makes would pay: 40 ms for the
   spectrum of 2^20 float32 and back, and 23 once it has seen one; 0.37 s for 80 statements on 3 million float64
   below the floor, and 0.23. This is it, and nobody touches it; where the user has set a threshold, that stands.
   Twice this lies idle, 50 MiB, within the 64 MB that a program may have more than by NumPy when it has dropped all.
   A larger one would cost peaks: 25 MiB twice, which NumPy alone gives back, beside 155 of temporaries. */
#define HEAP_BYTES ((size_t)25 << 20)
static void teach_heap(void)
{
    void *volatile block = malloc(HEAP_BYTES); /* volatile: compilers leave out what is freed unused */
    free(block);
    /* Each thread has a heap of its own, for which 64 MB of addresses are reserved: one for all where they are few. */
    if (left_by_limits() != SIZE_MAX) mallopt(M_ARENA_MAX, 1);
}
#endif

/* ---------------------------------------------------------------- NumPy's allocator */

static void *take(void *Py_UNUSED(context), size_t size)
{
    size_t capacity;
    if (size > (size_t)PY_SSIZE_T_MAX / 2) return NULL;
    uint32_t class = class_of(size ? size : 1, &capacity);
    PyThread_acquire_lock(kept.lock, WAIT_LOCK);
    Block *block = kept.lists[class], *other = NULL;
    if (block != NULL) unlink_block(block);
    now_live(capacity);
    if (block == NULL) other = outgrown(capacity);
    PyThread_release_lock(kept.lock);
    if (block == NULL) {
        if ((block = map_block(capacity, class)) == NULL) {
            trim(0); /* what is kept for later may be what is missing now */
            if (other != NULL) unmap_block(other);
            other = NULL;
            block = map_block(capacity, class);
        }
        if (other != NULL) {
            if ((block = move_pages(block, other)) == NULL) block = map_block(capacity, class);
            trim(kept.limit); /* of which there is still too much */
        }
    }
    if (block == NULL) {
        PyThread_acquire_lock(kept.lock, WAIT_LOCK);
        kept.living -= capacity;
        PyThread_release_lock(kept.lock);
        return NULL;
    }
    HIDE_BYTES(DATA(block), block->capacity);
    SHOW_BYTES(DATA(block), size);
    return DATA(block);
}

static void *take_zeroed(void *context, size_t count, size_t size)
{
    if (size != 0 && count > (size_t)PY_SSIZE_T_MAX / size) return NULL;
    void *data = take(context, count * size);
    if (data != NULL) memset(data, 0, count * size);
    return data;
}

static void give(void *Py_UNUSED(context), void *data, size_t Py_UNUSED(size))
{
    if (data == NULL) return;
    Block *block = BLOCK(data);
    HIDE_BYTES(DATA(block), block->capacity);
    PyThread_acquire_lock(kept.lock, WAIT_LOCK);
    kept.living -= block->capacity;
    if (block->capacity > kept.limit) {
        PyThread_release_lock(kept.lock);
        unmap_block(block);
        return;
    }
    link_block(block);
    cool_blocks();
    size_t most = kept.share < kept.limit ? kept.share : kept.limit;
    if (kept.given - kept.limits_at >= LOOK_LIMITS) {
        kept.limits_at = kept.given;
        most = allowed(kept.given - kept.memory_at >= LOOK_MEMORY);
    }
    bool tended = kept.tended;
    PyThread_release_lock(kept.lock);
    trim(most);
    if (!tended) tend();
}

static void *resize(void *context, void *data, size_t size)
{
    if (data == NULL) return take(context, size);
    size_t before = BLOCK(data)->capacity;
    if (size <= before && size >= before / 2) {
        HIDE_BYTES(data, before);
        SHOW_BYTES(data, size);
        return data;
    }
    void *other = take(context, size);
    if (other == NULL) return NULL;
    SHOW_BYTES(data, before); /* what is beyond the size it was asked for with is copied along */
    memcpy(other, data, size < before ? size : before);
    give(context, data, before);
    return other;
}

#if PY_VERSION_HEX >= 0x030C0000
#define SAVE_ERROR PyObject *saved = PyErr_GetRaisedException();
#define RESTORE_ERROR PyErr_SetRaisedException(saved);
#else
#define SAVE_ERROR PyObject *saved[3]; PyErr_Fetch(&saved[0], &saved[1], &saved[2]);
#define RESTORE_ERROR PyErr_Restore(saved[0], saved[1], saved[2]);
#endif

static PyDataMem_Handler handler = {"alight", 1, {NULL, take, take_zeroed, resize, give}};

PyObject *fresh_ndarray(PyArray_Descr *descr, int ndim, const npy_intp *shape, const npy_intp *strides, int fortran)
{
    npy_intp bytes = PyDataType_ELSIZE(descr);
    for (int i = 0; i < ndim; i++)
        if (shape[i] == 0 || bytes > NPY_MAX_INTP / shape[i]) {
            bytes = 0; /* nothing to keep, or NumPy's error */
            break;
        } else {
            bytes *= shape[i];
        }
    int flags = fortran ? NPY_ARRAY_F_CONTIGUOUS : 0;
    if ((size_t)bytes < LEAST_BYTES)
        return PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, strides, NULL, flags, NULL);
    /* A context is in one place at a time: who comes here from a finaliser in between is served by NumPy. */
    int inside = PyContext_Enter(context) == 0;
    if (!inside) PyErr_Clear();
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, strides, NULL, flags, NULL);
    if (inside) {
        SAVE_ERROR
        PyContext_Exit(context); /* fails only where another was left in between, and none is */
        RESTORE_ERROR
    }
    return array;
}

/* ---------------------------------------------------------------- for Python */

PyObject *fresh_data(PyObject *Py_UNUSED(module), PyObject *object)
{
    if (!expect_type(object, &LayoutType, "layout")) return NULL;
    Layout *layout = (Layout *)object;
    PyArray_Descr *descr = (PyArray_Descr *)layout->dtype;
    if (PyDataType_REFCHK(descr)) {
        PyErr_SetString(PyExc_TypeError, "data of Python objects have no memory of their own");
        return NULL;
    }
    if (!layout->dense) {
        PyErr_Format(PyExc_ValueError,
                     "%R has holes or overlaps, so no buffer of its own can have it. Fix: make it a view of a dense one.",
                     object);
        return NULL;
    }
    PyObject *array = fresh_ndarray((PyArray_Descr *)Py_NewRef(layout->dtype), (int)layout->ndim, layout->numbers,
                                    layout->numbers + layout->ndim, 0);
    if (array == NULL) return NULL;
    if (layout->size == 0) { /* for which NumPy sets other strides than those of the layout */
        memcpy(PyArray_STRIDES((PyArrayObject *)array), layout->numbers + layout->ndim, (size_t)layout->ndim * sizeof(npy_intp));
        PyArray_UpdateFlags((PyArrayObject *)array, NPY_ARRAY_UPDATE_ALL);
    }
    PyObject *data = data_of(object, array);
    Py_DECREF(array);
    return data;
}

PyObject *keep_bytes(PyObject *Py_UNUSED(module), PyObject *most)
{
    size_t limit = PyLong_AsSize_t(most);
    if (limit == (size_t)-1 && PyErr_Occurred()) return NULL;
    kept.limit = limit;
    trim(limit);
    Py_RETURN_NONE;
}

PyObject *keep_only(PyObject *Py_UNUSED(module), PyObject *beyond)
{
    size_t most = PyLong_AsSize_t(beyond);
    if (most == (size_t)-1 && PyErr_Occurred()) return NULL;
    trim(most);
    Py_RETURN_NONE;
}

PyObject *give_back_heap(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    Py_BEGIN_ALLOW_THREADS
    trim_heap();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyObject *kept_bytes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) { return PyLong_FromSize_t(kept.held); }

PyObject *living_bytes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    PyThread_acquire_lock(kept.lock, WAIT_LOCK);
    size_t living = kept.living, most = kept.most;
    kept.most = living;
    PyThread_release_lock(kept.lock);
    return Py_BuildValue("nn", (Py_ssize_t)living, (Py_ssize_t)most);
}

#ifndef _WIN32
/* A forked child shares every page with its parent until one of them writes. What is kept has nothing
   in it, so the child lets go of it, or both would pay for copies. */
static void drop_in_child(void)
{
    kept.tended = false;
    if (PyThread_acquire_lock(kept.lock, NOWAIT_LOCK)) {
        PyThread_release_lock(kept.lock);
        trim(0);
        return;
    }
    /* Another thread was changing the lists: leave them, and what is in them, behind. */
    memset(kept.lists, 0, sizeof kept.lists);
    kept.oldest = kept.newest = kept.warm = NULL;
    kept.held = 0;
    kept.lock = PyThread_allocate_lock();
}
#endif

static bool make_context(void)
{
    PyObject *allocator = PyCapsule_New(&handler, "mem_handler", NULL), *before = NULL;
#ifdef __GLIBC__
    teach_heap();
#endif
    context = PyContext_New();
    if (allocator != NULL && context != NULL && PyContext_Enter(context) == 0) {
        before = PyDataMem_SetHandler(allocator);
        PyContext_Exit(context);
    }
    Py_XDECREF(allocator);
    Py_XDECREF(before);
    return before != NULL;
}

bool buffers_ready(void)
{
    kept.lock = PyThread_allocate_lock();
    if (kept.lock == NULL || !make_context()) return PyErr_Occurred() ? false : (PyErr_NoMemory(), false);
#ifndef _WIN32
    pthread_atfork(NULL, NULL, drop_in_child);
#endif
    return true;
}
