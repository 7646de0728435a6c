/* Jobs of the pool's own: threads that meet, which is timed, and a copy of bytes. */
#include "core.h"
#include "threads.h"

#include <string.h>

typedef struct {
    _Atomic uint32_t arrived;
    uint32_t parts;
    double deadline;
} Meeting;

static void meet(void *context, uint32_t Py_UNUSED(part))
{
    Meeting *meeting = context;
    atomic_fetch_add(&meeting->arrived, 1);
    for (unsigned turn = 1; atomic_load(&meeting->arrived) < meeting->parts; turn++) {
        relax();
        if (turn % 16 == 0 && now_seconds() > meeting->deadline) return;
    }
}

PyObject *round_trip(PyObject *Py_UNUSED(module), PyObject *args)
{
    int most = threads_wanted(), threads = most;
    if (!PyArg_ParseTuple(args, "|i:round_trip", &threads)) return NULL;
    if (threads > most) threads = most;
    double began = now_seconds(), seconds;
    /* a hundred times what waking takes: then something else has the processor */
    Meeting meeting = {.parts = (uint32_t)threads, .deadline = began + 4e-3};
    if (threads < 2 || !claim_pool()) return PyFloat_FromDouble(0.0);
    Py_BEGIN_ALLOW_THREADS
    publish(meet, &meeting, (uint32_t)threads, threads);
    if (asleep_among(threads)) wake_workers();
    while (take_part()) {}
    await_parts((uint32_t)threads);
    release_pool();
    Py_END_ALLOW_THREADS
    seconds = now_seconds() - began;
    return PyFloat_FromDouble(seconds);
}

/* What each part of a copy has: ten times what it takes to share work, at 10 GB/s of a thread. */
#define COPIED_BYTES ((size_t)128 << 10)

typedef struct {
    char *target;
    const char *source;
    size_t nbytes;
} Copied;

static void copy_part(void *context, uint32_t part)
{
    Copied *copied = context;
    size_t start = part * COPIED_BYTES, left = copied->nbytes - start;
    memcpy(copied->target + start, copied->source + start, left < COPIED_BYTES ? left : COPIED_BYTES);
}

PyObject *copy(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_ssize_t target, source, nbytes;
    int threads = 0;
    if (!PyArg_ParseTuple(args, "nnni:copy", &target, &source, &nbytes, &threads)) return NULL;
    if (nbytes <= 0) Py_RETURN_NONE;
    Copied copied = {(char *)target, (const char *)source, (size_t)nbytes};
    size_t parts = (copied.nbytes + COPIED_BYTES - 1) / COPIED_BYTES;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if ((size_t)threads > parts) threads = (int)parts;
    Py_BEGIN_ALLOW_THREADS
    if (threads < 2 || parts > UINT32_MAX || !claim_pool()) {
        memcpy(copied.target, copied.source, copied.nbytes);
    } else {
        publish(copy_part, &copied, (uint32_t)parts, threads);
        if (asleep_among(threads)) wake_workers();
        take_parts();
        await_parts((uint32_t)parts);
        release_pool();
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
