/* Host memory for results: blocks that arrays own and that come back here when the arrays die.

   An array made here is as one of NumPy's own: it owns its data and has no base. NumPy asks the
   allocator that was in force when the array was made (NEP 49) to free or resize the data, and that
   is this one: the block is kept for the next array of its size. Fresh pages cost more than most
   arithmetic: writing 64 MiB took 2.7 ms where the pages were there and 7.2 (of 2 MiB) or 39 (of
   4 KiB) where they were not (EPYC, Linux 6.18). */
#include "core.h"
#include "ranges.h"

#ifndef _WIN32
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif
#endif

/* Below this glibc serves memory from its heap (M_MMAP_THRESHOLD's default, mallopt(3)), where pages
   stay touched; above it a block is mapped anew and pays page faults. */
#define LEAST_BYTES ((size_t)128 << 10)
/* From here on NumPy asks for huge pages, too (its default allocator). */
#define HUGE_BYTES ((size_t)4 << 20)
#define HUGE_PAGE ((size_t)2 << 20)
#define PAGE ((size_t)4096)
/* A block that was not asked for while others of so many times its bytes came back is unmapped.
   Writing those takes 64 times as long as writing it; mapping it anew takes 3 (huge pages) to 14
   times as long: at worst a twentieth to a fifth of one round is lost, once. */
#define STALE 64
/* And from so many times its bytes on, the system may take its pages where memory is short. Saying so
   for a block of huge pages costs 1/100 of writing it; of small pages, a seventh: those are not. */
#define COLD 8
/* Of what this process may still have, what is kept for later included: with an eighth, a program that needs up to
   7/8 of it fits beside (alight/backends/host.py, whose limit this follows as memory gets short). */
#define SHARE 8
/* Limits of the process are looked at when so many bytes have come back (3 us, of 170 to write them), the machine's
   and the control group's at so many (30 us, of 10 ms), and all of them as often as the clock ticks. */
#define LOOK_LIMITS HUGE_BYTES
#define LOOK_MEMORY ((uint64_t)256 << 20)
/* What nobody asked for in so many ticks goes: within a second all that a program has dropped is the system's again.
   To have 640 MB anew takes 45 ms (huge pages), a ninth of the least time that they were not wanted. */
#define TICK_NANOSECONDS 200000000L
#define UNWANTED_TICKS 3
/* What results have and what is kept are together no more than results had at most, now or in the last so many ticks
   or in as many before: what is kept adds nothing to what the program needs. Beyond that is room for small ones, which
   64 MB over NumPy's memory, the promise, leave twice. */
#define PEAK_TICKS 5
#define SLACK ((size_t)32 << 20)
/* Among so many of the oldest blocks one is looked for whose pages a new one can have. */
#define LOOKED_AT 16
/* Sizes of one list are within an eighth of one another: so much of a block can lie idle. */
#define STEPS 8
#define CLASSES (64 * STEPS)

typedef struct Block {
    struct Block *next;          /* of its class, the one that came back before it */
    struct Block *older, *newer; /* of all kept ones, by when they came back */
    size_t capacity;             /* bytes, from the data on */
    uint64_t came;               /* bytes that had come back by then */
    uint32_t class;
    uint32_t tick;               /* and the tick it was */
    void *start;                 /* of the memory that holds it */
    size_t whole;                /* and its bytes; 0 where it is not mapped */
} Block;

/* The header stands right before the data, on a line of its own, or in the page before. */
#define HEADER 64
_Static_assert(sizeof(Block) <= HEADER || sizeof(void *) > 4, "the header of a block must fit");

static struct {
    PyThread_type_lock lock;
    Block *lists[CLASSES], *oldest, *newest, *warm; /* warm: the oldest whose pages were not offered */
    size_t limit, held;
    size_t living;               /* bytes of blocks that arrays have */
    size_t most;                 /* the most of these since somebody asked */
    size_t peak, peak_before;    /* and in these ticks, and those before */
    uint32_t ticks;
    uint64_t given;              /* bytes that came back so far */
    uint64_t limits_at, memory_at; /* `given` when each was looked at last */
    size_t share;                /* that may be kept, by the machine's memory as it was then */
    bool tended;                 /* by a thread that gives back what nobody wants */
} kept = {.share = SIZE_MAX};

/* NumPy finds the allocator in force in the context; entering one that has ours takes 0.1 us, setting it
   and setting the old one again 0.3. */
static PyObject *context;

#define DATA(block) ((char *)(block) + HEADER)
#define BLOCK(data) ((Block *)(void *)((char *)(data) - HEADER))

static uint32_t class_of(size_t size, size_t *capacity)
{
    uint32_t power = 0, rounded = 0;
    while ((size >> power) > 1) power++;
    size_t step = ((size_t)1 << power) / STEPS;
    if (step < PAGE) step = PAGE;
    *capacity = (size + step - 1) / step * step;
    while ((*capacity >> rounded) > 1) rounded++;
    return rounded * STEPS + (uint32_t)((*capacity - ((size_t)1 << rounded)) / step);
}

#ifdef __GLIBC__
/* glibc gives pages back to the system where more than twice the largest block that came back so far lies idle,
   of up to 32 MiB, and those are faulted in anew at the next call (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD,
   mallopt(3)). With results here it would see few large ones, and what else NumPy makes would pay: 33 ms for
   the spectrum of 2^20 float32 and back, and 17 once it has seen one; 1.9 s for 400 statements on 500,000
   float64 below the floor, and 0.65. This is it, and nobody touches it; where the user has set a threshold,
   that stands. */
#define HEAP_BYTES (((size_t)32 << 20) - 2 * PAGE)
static void teach_heap(void)
{
    void *volatile block = malloc(HEAP_BYTES); /* volatile: compilers leave out what is freed unused */
    free(block);
}
#endif

static Block *map_block(size_t capacity, uint32_t class)
{
    Block *block;
#ifdef _WIN32
    size_t whole = capacity + 2 * HEADER;
    char *start = PyMem_RawMalloc(whole);
    if (start == NULL) return NULL;
    block = BLOCK((((uintptr_t)start + HEADER + 63) & ~(uintptr_t)63));
    whole = 0;
#else
    /* The header has the page before the data, which can then begin where a huge page does. */
    size_t edge = capacity >= HUGE_BYTES ? HUGE_PAGE : PAGE, whole = capacity + PAGE + edge;
    if (whole < capacity) return NULL;
    char *start = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    char *data = (char *)(((uintptr_t)start + PAGE + edge - 1) & ~(uintptr_t)(edge - 1));
    block = BLOCK(data);
#ifdef MADV_HUGEPAGE
    if (capacity >= HUGE_BYTES) madvise(data, capacity, MADV_HUGEPAGE);
#endif
#endif
    block->capacity = capacity;
    block->class = class;
    block->start = start;
    block->whole = whole;
    return block;
}

static void unmap_block(Block *block)
{
    SHOW_BYTES(DATA(block), block->capacity); /* who maps these addresses next knows nothing of ours */
#ifdef _WIN32
    PyMem_RawFree(block->start);
#else
    munmap(block->start, block->whole);
#endif
}

/* Let a block have the pages of another, which goes: no page of theirs is touched anew. Return the block; NULL, and it
   is gone, too, where there is no memory. */
static Block *move_pages(Block *block, Block *other)
{
#ifdef MREMAP_FIXED
    size_t bytes = block->capacity < other->capacity ? block->capacity : other->capacity;
    SHOW_BYTES(DATA(other), other->capacity);
    /* It fails where the other's pages came from several, and then Linux has unmapped the block's own before. */
    if (mremap(DATA(other), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, DATA(block)) == MAP_FAILED) {
        int fixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        if (mmap(DATA(block), bytes, PROT_READ | PROT_WRITE, fixed, -1, 0) == MAP_FAILED) {
            unmap_block(block);
            block = NULL;
        }
    }
#endif
    unmap_block(other);
    return block;
}

/* ---------------------------------------------------------------- what is kept; under the lock */

static void unlink_block(Block *block)
{
    if (kept.warm == block) kept.warm = block->newer;
    if (block->older) block->older->newer = block->newer;
    else kept.oldest = block->newer;
    if (block->newer) block->newer->older = block->older;
    else kept.newest = block->older;
    Block **place = &kept.lists[block->class];
    while (*place != block) place = &(*place)->next;
    *place = block->next;
    kept.held -= block->capacity;
}

static void link_block(Block *block)
{
    block->next = kept.lists[block->class];
    kept.lists[block->class] = block;
    block->older = kept.newest;
    block->newer = NULL;
    if (kept.newest) kept.newest->newer = block;
    else kept.oldest = block;
    kept.newest = block;
    if (kept.warm == NULL) kept.warm = block;
    block->came = kept.given += block->capacity;
    block->tick = kept.ticks;
    kept.held += block->capacity;
}

static void now_live(size_t bytes)
{
    kept.living += bytes;
    if (kept.living > kept.peak) kept.peak = kept.living;
    if (kept.living > kept.most) kept.most = kept.living;
}

/* The bytes that may be kept beside what lives. */
static size_t room(void)
{
    size_t peak = kept.peak > kept.peak_before ? kept.peak : kept.peak_before;
    return peak - kept.living + SLACK;
}

/* Take off a block whose pages another of so many bytes may have, as there is no room for both. */
static Block *outgrown(size_t capacity)
{
    if (kept.held <= room()) return NULL;
    Block *block = kept.oldest;
    for (int i = 0; i < LOOKED_AT && block != NULL && block->capacity < capacity / 2; i++) block = block->newer;
    if (block == NULL) block = kept.oldest;
    unlink_block(block);
    return block;
}

static void cool_blocks(void)
{
    for (; kept.warm && kept.given - kept.warm->came > COLD * kept.warm->capacity; kept.warm = kept.warm->newer) {
#if defined(MADV_HUGEPAGE) && defined(MADV_FREE)
        if (kept.warm->capacity >= HUGE_BYTES) madvise(DATA(kept.warm), kept.warm->capacity, MADV_FREE);
#endif
    }
}

/* Take the oldest off where there is too much, or where nobody wants it any more. */
static Block *surplus(size_t most)
{
    Block *block = kept.oldest;
    if (block == NULL) return NULL;
    bool wanted = kept.given - block->came <= STALE * block->capacity && kept.ticks - block->tick < UNWANTED_TICKS;
    if (wanted && kept.held <= most && kept.held <= room()) return NULL;
    unlink_block(block);
    return block;
}

static void trim(size_t most)
{
    for (;;) {
        PyThread_acquire_lock(kept.lock, WAIT_LOCK);
        Block *block = surplus(most);
        PyThread_release_lock(kept.lock);
        if (block == NULL) return;
        unmap_block(block);
    }
}

/* ---------------------------------------------------------------- how much may be kept */

#ifdef _WIN32
static size_t allowed(bool all) { return kept.limit; }
static void tend(void) {}
#else

static size_t share_of(size_t left) { return left == SIZE_MAX ? SIZE_MAX : left / SHARE + kept.held / SHARE; }

/* The bytes that may be kept now; ``all``: the machine is looked at, too. */
static size_t allowed(bool all)
{
    if (all) {
        kept.memory_at = kept.given;
        kept.share = share_of(left_of_memory());
    }
    size_t most = share_of(left_by_limits());
    if (kept.share < most) most = kept.share;
    return most < kept.limit ? most : kept.limit;
}

/* Give back what nobody wants, until nothing is left. */
static void *tending(void *unused)
{
    struct timespec tick = {0, TICK_NANOSECONDS};
    for (;;) {
        nanosleep(&tick, NULL);
        PyThread_acquire_lock(kept.lock, WAIT_LOCK);
        if (++kept.ticks % PEAK_TICKS == 0) {
            kept.peak_before = kept.peak;
            kept.peak = kept.living;
        }
        size_t most = allowed(true);
        bool over = kept.held == 0;
        if (over) {
            kept.tended = false;
            kept.peak = kept.peak_before = kept.living;
        }
        PyThread_release_lock(kept.lock);
        if (over) return NULL;
        trim(most);
    }
}

static void tend(void)
{
    pthread_t thread;
    pthread_attr_t small;
    sigset_t all, before;
    PyThread_acquire_lock(kept.lock, WAIT_LOCK);
    bool mine = !kept.tended;
    kept.tended = true;
    PyThread_release_lock(kept.lock);
    if (!mine) return;
    pthread_attr_init(&small);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&small, (size_t)128 << 10);
    sigfillset(&all); /* signals are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, &small, tending, NULL) != 0) kept.tended = false;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&small);
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
            block = move_pages(block, other);
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
