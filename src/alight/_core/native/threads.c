/* The pool of threads.

   A job is cut into parts, and every thread has a share of them: the same one each time, so that what
   it left in its caches serves the next job on the same arrays. Who is done with its own takes from the
   others' shares, so that nobody waits for a thread that is late. */

#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "core.h"
#include "ways.h"

#include <fenv.h>
#ifndef _WIN32
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#else
/* Not run so far: here the pool is its caller alone (`start_workers`), who takes every part, wakes nobody and waits
   for nobody. */
typedef int pthread_mutex_t, pthread_cond_t, pthread_t;
#define PTHREAD_MUTEX_INITIALIZER 0
#define PTHREAD_COND_INITIALIZER 0
#define pthread_mutex_init(lock, attributes) ((void)(lock))
#define pthread_mutex_lock(lock) ((void)(lock))
#define pthread_mutex_unlock(lock) ((void)(lock))
#define pthread_cond_init(condition, attributes) ((void)(condition))
#define pthread_cond_signal(condition) ((void)(condition))
#define pthread_cond_wait(condition, lock) ((void)(condition))
#endif
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#define WORDS (MOST_THREADS / 64)

/* ---------------------------------------------------------------- flags, processors */

void relax(void)
{
#if defined(__SSE2__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* A part runs under the caller's rounding and denormal modes, and what it raises is the caller's. */
#if defined(__SSE2__)
typedef unsigned Modes;
static Modes modes_here(void) { return _mm_getcsr() & ~(unsigned)_MM_EXCEPT_MASK; }
static void adopt_modes(Modes modes) { _mm_setcsr(modes); }
static int raised_here(void)
{
    int raised = (int)(_mm_getcsr() & _MM_EXCEPT_MASK), all = fetestexcept(FE_ALL_EXCEPT);
    if (all & ~raised) feclearexcept(FE_ALL_EXCEPT); /* of the old unit, which the C library still uses */
    return raised | all;
}
static void raise_here(int raised) { _mm_setcsr(_mm_getcsr() | (unsigned)raised); }
#else
typedef fenv_t Modes;
static Modes modes_here(void) { Modes modes; fegetenv(&modes); return modes; }
static void adopt_modes(Modes modes) { fesetenv(&modes); feclearexcept(FE_ALL_EXCEPT); }
static int raised_here(void) { return fetestexcept(FE_ALL_EXCEPT); }
static void raise_here(int raised) { feraiseexcept(raised); }
#endif

static int processor_here(void)
{
#ifdef __linux__
    return sched_getcpu();
#else
    return -1;
#endif
}

/* ---------------------------------------------------------------- the pool */

/* Seat 0 is the caller's. A seat's lines are its own: to look for work costs nobody else anything. */
typedef struct {
    _Alignas(128) _Atomic uint64_t ticket; /* number of the job << 32 | parts of its share not yet taken */
    _Alignas(128) pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    _Atomic int number;     /* the system's, for its affinity */
    _Atomic int processor;  /* where it last ran */
} Seat;

/* One job at a time. A part is taken by lowering a ticket; what the job's fields say is read before
   and is right if the exchange succeeds: they change only when no part of that job is left. */
static struct {
    _Atomic(Work) work;
    _Atomic(void *) context;
    _Atomic uint32_t parts, job;
    _Atomic int sharing;          /* threads that take part */
    Modes modes;
    _Alignas(128) _Atomic uint32_t done;
    _Atomic int raised;
    _Atomic int waiting;          /* the caller sleeps until every part is done */
    _Alignas(128) _Atomic int next_woken;
    _Atomic uint64_t sleeping[WORDS]; /* seats, by bit */
    _Alignas(128) _Atomic int resting; /* do not spin */
    _Alignas(128) _Atomic int busy;    /* somebody has the pool */
    _Atomic int threads;          /* wanted, the caller included */
    _Atomic int started;
    _Atomic double join, wake, join_pair, wake_pair; /* seconds, with all threads and with one other */
    _Atomic double kept_until;    /* nobody goes to sleep before */
    _Atomic double patience;      /* seconds to spin after a job where that is longer than waking takes */
    pthread_mutex_t lock;
    pthread_cond_t finished;
    Seat seats[MOST_THREADS];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .finished = PTHREAD_COND_INITIALIZER, .threads = 1};

#define LEFT(ticket) ((uint32_t)(ticket))
#define JOB(ticket) ((uint32_t)((ticket) >> 32))

static inline uint32_t share_start(uint32_t parts, int seat, int sharing)
{
    return (uint32_t)((uint64_t)parts * (uint64_t)seat / (uint64_t)sharing);
}

/* What this thread did of a job and has not told yet. */
typedef struct {
    uint32_t done, parts;
    int raised;
} Tally;

/* Returns whether a part of one seat's share was taken and run. */
static int take_from(int victim, int seat, Tally *tally)
{
    uint64_t ticket = atomic_load_explicit(&pool.seats[victim].ticket, memory_order_acquire);
    while (LEFT(ticket) != 0) {
        int sharing = atomic_load_explicit(&pool.sharing, memory_order_relaxed);
        if (seat >= sharing || victim >= sharing) return 0;
        Work work = atomic_load_explicit(&pool.work, memory_order_relaxed);
        void *context = atomic_load_explicit(&pool.context, memory_order_relaxed);
        uint32_t parts = atomic_load_explicit(&pool.parts, memory_order_relaxed);
        if (!atomic_compare_exchange_weak_explicit(&pool.seats[victim].ticket, &ticket, ticket - 1, memory_order_acq_rel,
                                                   memory_order_acquire)) continue;
        uint32_t part = share_start(parts, victim + 1, sharing) - LEFT(ticket);
        if (seat == 0) {
            work(context, part);
        } else {
            if (tally->done == 0) adopt_modes(pool.modes);
            work(context, part);
        }
        tally->done++;
        tally->parts = parts;
        return 1;
    }
    return 0;
}

static void report(Tally *tally, int seat)
{
    if (tally->done == 0) return;
    if (seat > 0) {
        int raised = raised_here();
        if (raised & ~atomic_load_explicit(&pool.raised, memory_order_relaxed))
            atomic_fetch_or_explicit(&pool.raised, raised, memory_order_relaxed);
    }
    if (atomic_fetch_add(&pool.done, tally->done) + tally->done == tally->parts && seat > 0 && atomic_load(&pool.waiting)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_signal(&pool.finished);
        pthread_mutex_unlock(&pool.lock);
    }
    tally->done = 0;
}

/* Run parts of the own share, then of those after it, until none is left; returns how many. */
static uint32_t work_through(int seat)
{
    Tally tally = {0};
    int sharing = atomic_load_explicit(&pool.sharing, memory_order_relaxed);
    for (int k = 0; k < sharing; k++) {
        int victim = seat + k < sharing ? seat + k : seat + k - sharing;
        if (victim >= 0 && victim < MOST_THREADS)
            while (take_from(victim, seat, &tally)) {}
    }
    uint32_t done = tally.done;
    report(&tally, seat);
    return done;
}

int take_part(void)
{
    Tally tally = {0};
    int sharing = atomic_load_explicit(&pool.sharing, memory_order_relaxed);
    for (int victim = 0; victim < sharing; victim++)
        if (take_from(victim, 0, &tally)) {
            report(&tally, 0);
            return 1;
        }
    return 0;
}

uint32_t take_parts(void) { return work_through(0); }

uint32_t parts_left(void)
{
    uint32_t left = 0;
    int sharing = atomic_load_explicit(&pool.sharing, memory_order_relaxed);
    for (int seat = 0; seat < sharing; seat++)
        left += LEFT(atomic_load_explicit(&pool.seats[seat].ticket, memory_order_relaxed));
    return left;
}

#ifdef __linux__
/* A worker that the system put on the caller's processor would wait for it to finish. */
static void keep_off(int number, int processor)
{
    cpu_set_t allowed;
    if (processor < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    CPU_CLR(processor, &allowed);
    if (CPU_COUNT(&allowed) > 0) sched_setaffinity(number, sizeof allowed, &allowed);
}
#else
static void keep_off(int number, int processor) { (void)number, (void)processor; }
#endif

static inline _Atomic uint64_t *sleepers(int seat) { return &pool.sleeping[seat / 64]; }
static inline uint64_t bit_of(int seat) { return (uint64_t)1 << (seat % 64); }

/* Wake the sleeping ones of this job. Whoever is awake takes the next one to wake, so that the first
   ones help with the others: to wake one takes some us, and to come awake some tens. */
static void wake_next(int seat)
{
    int sharing = atomic_load_explicit(&pool.sharing, memory_order_relaxed);
    while (atomic_load_explicit(&pool.next_woken, memory_order_relaxed) < sharing) {
        int next = atomic_fetch_add(&pool.next_woken, 1);
        if (next >= sharing) return;
        Seat *other = &pool.seats[next];
        if (next == seat || !(atomic_load(sleepers(next)) & bit_of(next))) continue;
        pthread_mutex_lock(&other->lock);
        pthread_cond_signal(&other->wake);
        pthread_mutex_unlock(&other->lock);
    }
}

void wake_workers(void)
{
    int here = processor_here(), sharing = atomic_load_explicit(&pool.sharing, memory_order_relaxed);
    for (int i = 1; i < sharing && here >= 0; i++) {
        Seat *worker = &pool.seats[i];
        int number = atomic_load(&worker->number);
        if (number != 0 && atomic_load(&worker->processor) == here) keep_off(number, here);
    }
    atomic_store(&pool.next_woken, 1);
    wake_next(0);
}

static void *work_on(void *argument)
{
    int index = (int)(intptr_t)argument;
    Seat *self = &pool.seats[index];
#ifdef __linux__
    atomic_store(&self->number, (int)syscall(SYS_gettid));
#endif
    feclearexcept(FE_ALL_EXCEPT);
    uint32_t seen = 0;
    for (;;) {
        uint32_t job = JOB(atomic_load_explicit(&self->ticket, memory_order_acquire));
        if (job != seen) {
            seen = job;
            wake_next(index);
            work_through(index);
            double wake = atomic_load_explicit(&pool.wake, memory_order_relaxed), began = now_seconds(), last = began;
            int found = 0;
            /* As long as waking would take, at worst twice the time of who knew the future; or as jobs are known
               to be apart. */
            for (unsigned turn = 1; !found && !atomic_load_explicit(&pool.resting, memory_order_relaxed); turn++) {
                relax();
                found = JOB(atomic_load_explicit(&self->ticket, memory_order_relaxed)) != seen;
                if (turn % 16 != 0) continue;
                double now = now_seconds(), patience = awake_seconds();
                /* Somebody else needs this processor: it was taken away for longer than waking takes. */
                if (now - last > wake) patience = 0;
                last = now;
                if (now - began > (patience > wake ? patience : wake) &&
                    now > atomic_load_explicit(&pool.kept_until, memory_order_relaxed)) break;
            }
            if (found) continue;
        }
        atomic_store_explicit(&self->processor, processor_here(), memory_order_relaxed);
        pthread_mutex_lock(&self->lock);
        atomic_fetch_or(sleepers(index), bit_of(index));
        while (JOB(atomic_load(&self->ticket)) == seen) pthread_cond_wait(&self->wake, &self->lock);
        atomic_fetch_and(sleepers(index), ~bit_of(index));
        pthread_mutex_unlock(&self->lock);
    }
    return NULL;
}

/* Make up to so many workers; called by who has the pool. */
#ifdef _WIN32
static void start_workers(int wanted) { (void)wanted, (void)work_on; }
#else
static void start_workers(int wanted)
{
    if (pool.started >= wanted) return;
    sigset_t all, before;
    pthread_attr_t attributes;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for Python's threads */
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 4 << 20); /* kernels keep buffers there; small C libraries give 128 KiB */
    while (pool.started < wanted) {
        int index = pool.started + 1;
        Seat *seat = &pool.seats[index];
        pthread_mutex_init(&seat->lock, NULL);
        pthread_cond_init(&seat->wake, NULL);
        atomic_store(&seat->ticket, 0);
        atomic_store(&seat->number, 0);
        atomic_store(&seat->processor, -1);
        if (pthread_create(&seat->thread, &attributes, work_on, (void *)(intptr_t)index) != 0) break;
        pool.started++;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
#endif

int threads_wanted(void) { return atomic_load_explicit(&pool.threads, memory_order_relaxed); }

int claim_pool(void) { return !atomic_load(&pool.busy) && !atomic_exchange(&pool.busy, 1); }

void release_pool(void) { atomic_store_explicit(&pool.busy, 0, memory_order_release); }

void publish(Work work, void *context, uint32_t parts, int threads)
{
    start_workers(threads - 1);
    uint32_t job = atomic_load_explicit(&pool.job, memory_order_relaxed) + 1;
    if (job == 0) job = 1; /* that of seats nobody had yet */
    atomic_store_explicit(&pool.job, job, memory_order_relaxed);
    atomic_store_explicit(&pool.work, work, memory_order_relaxed);
    atomic_store_explicit(&pool.context, context, memory_order_relaxed);
    atomic_store_explicit(&pool.parts, parts, memory_order_relaxed);
    atomic_store_explicit(&pool.sharing, threads, memory_order_relaxed);
    atomic_store_explicit(&pool.done, 0, memory_order_relaxed);
    atomic_store_explicit(&pool.raised, 0, memory_order_relaxed);
    atomic_store_explicit(&pool.next_woken, threads, memory_order_relaxed);
    if (atomic_load_explicit(&pool.resting, memory_order_relaxed)) atomic_store(&pool.resting, 0);
    pool.modes = modes_here();
    for (int seat = 0; seat < threads; seat++) {
        uint32_t share = share_start(parts, seat + 1, threads) - share_start(parts, seat, threads);
        atomic_store_explicit(&pool.seats[seat].ticket, (uint64_t)job << 32 | share, memory_order_release);
    }
    atomic_thread_fence(memory_order_seq_cst); /* before who sleeps is looked at */
}

void await_parts(uint32_t parts)
{
    if (atomic_load_explicit(&pool.done, memory_order_acquire) != parts) {
        double until = now_seconds() + atomic_load_explicit(&pool.wake, memory_order_relaxed);
        for (unsigned turn = 1; atomic_load_explicit(&pool.done, memory_order_acquire) != parts; turn++) {
            relax();
            if (turn % 16 != 0 || now_seconds() < until) continue;
            /* A worker was interrupted, maybe by this very thread: leave it the processor. */
            pthread_mutex_lock(&pool.lock);
            atomic_store(&pool.waiting, 1);
            while (atomic_load(&pool.done) != parts) pthread_cond_wait(&pool.finished, &pool.lock);
            atomic_store(&pool.waiting, 0);
            pthread_mutex_unlock(&pool.lock);
            break;
        }
    }
    int raised = atomic_load_explicit(&pool.raised, memory_order_relaxed);
    if (raised) raise_here(raised);
}

void keep_awake(double seconds)
{
    atomic_store_explicit(&pool.kept_until, now_seconds() + seconds, memory_order_relaxed);
}

void stay_awake(double seconds)
{
    atomic_store_explicit(&pool.patience, seconds, memory_order_relaxed);
}

double awake_seconds(void) { return atomic_load_explicit(&pool.patience, memory_order_relaxed); }

int asleep_among(int threads)
{
    if (atomic_load_explicit(&pool.started, memory_order_relaxed) < threads - 1) return 1;
    for (int word = 0; word <= (threads - 1) / 64; word++) {
        uint64_t asleep = atomic_load_explicit(&pool.sleeping[word], memory_order_relaxed);
        if (threads - word * 64 < 64) asleep &= ((uint64_t)1 << (threads - word * 64)) - 1;
        if (asleep) return 1;
    }
    return 0;
}

/* Between one other thread and all of them: each takes its turn, so on a line. */
static double between(double pair, double all, int threads)
{
    int most = threads_wanted();
    return most <= 2 ? all : pair + (all - pair) * (threads - 2) / (most - 2);
}

double join_seconds(int threads)
{
    return between(atomic_load_explicit(&pool.join_pair, memory_order_relaxed),
                   atomic_load_explicit(&pool.join, memory_order_relaxed), threads);
}

double wake_seconds(int threads)
{
    return between(atomic_load_explicit(&pool.wake_pair, memory_order_relaxed),
                   atomic_load_explicit(&pool.wake, memory_order_relaxed), threads);
}

void forget_workers(void)
{
    /* In a forked child: no worker lives here, and whoever held the locks does not either. */
    pool.started = 0;
    for (int seat = 0; seat < MOST_THREADS; seat++) atomic_store(&pool.seats[seat].ticket, 0);
    for (int word = 0; word < WORDS; word++) atomic_store(&pool.sleeping[word], 0);
    atomic_store(&pool.job, 0);
    atomic_store(&pool.busy, 0);
    atomic_store(&pool.waiting, 0);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.finished, NULL);
}

/* ---------------------------------------------------------------- for Python */

static PyObject *set_threads(PyObject *Py_UNUSED(module), PyObject *args)
{
    int count;
    if (!PyArg_ParseTuple(args, "i:set_threads", &count)) return NULL;
    if (count < 1) {
        PyErr_Format(PyExc_ValueError, "%d threads: the caller is one already", count);
        return NULL;
    }
#ifdef _WIN32
    count = 1;
#endif
    atomic_store(&pool.threads, count < MOST_THREADS ? count : MOST_THREADS);
    Py_RETURN_NONE;
}

static PyObject *set_costs(PyObject *Py_UNUSED(module), PyObject *args)
{
    double join, wake, join_pair = -1, wake_pair = -1;
    if (!PyArg_ParseTuple(args, "dd|dd:set_costs", &join, &wake, &join_pair, &wake_pair)) return NULL;
    if (join_pair < 0) join_pair = join;
    if (wake_pair < 0) wake_pair = wake;
    atomic_store(&pool.join, join);
    atomic_store(&pool.wake, wake > join ? wake : join);
    atomic_store(&pool.join_pair, join_pair);
    atomic_store(&pool.wake_pair, wake_pair > join_pair ? wake_pair : join_pair);
    Py_RETURN_NONE;
}

static PyObject *rest(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    atomic_store_explicit(&pool.resting, 1, memory_order_relaxed);
    Py_RETURN_NONE;
}

static PyObject *state(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    int asleep = 0;
    for (int seat = 1; seat <= pool.started; seat++) asleep += (atomic_load(sleepers(seat)) & bit_of(seat)) != 0;
    return Py_BuildValue("{s:i,s:i,s:i,s:d,s:d}", "threads", atomic_load(&pool.threads), "started", pool.started, "asleep",
                         asleep, "join_seconds", atomic_load(&pool.join), "wake_seconds", atomic_load(&pool.wake));
}

PyMethodDef thread_functions[] = {
    {"copy", copy, METH_VARARGS, "Copy so many bytes to one address from another, on so many threads."},
    {"set_threads", set_threads, METH_VARARGS, "Let kernels run on so many threads, the caller's included."},
    {"set_costs", set_costs, METH_VARARGS,
     "Say what it takes to share work with all threads where they spin and where they sleep, and with one other."},
    {"rest", rest, METH_NOARGS, "Have threads that spin go to sleep: something else needs the processors."},
    {"state", state, METH_NOARGS, "Return what the pool is like now."},
    {"round_trip", round_trip, METH_VARARGS, "Return the seconds until so many threads have met, or 0 where none can."},
    {"foresee", foresee, METH_VARARGS,
     "Return on how many threads each run of a kernel would go, of lists of its seconds on 1, 2, 4, ... threads,\n"
     "and of the seconds that pass before each."},
    {NULL, NULL, 0, NULL},
};
