/* Threads that run kernels together; what it means is written in alight/_core/threads.py, its twin. */

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#define MOST_THREADS 256
#define MOST_AXES 32     /* of a kernel that is split; NumPy's limit is 64, and merged axes are few */
#define MOST_OPERANDS 64
#define NEAR_BYTES 16384 /* of states of parts that fit the caller's stack */
#define EXPLORED 64      /* parts for each thread before a kernel was timed: the first must be short */
#define BALANCED 4       /* parts for each thread: who comes late or is interrupted leaves 1/4 of its share to others */
#define SETTLED 16       /* runs timed before only every 64th is */
#define TRIED 2          /* runs on one thread before its time is known */
#define UNLOCKED 32768   /* as in guard.c: giving up the GIL costs some 0.1 us, a kernel this long 10 us */

/* ---------------------------------------------------------------- clock, flags, processors */

static double now_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static inline void relax(void)
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

typedef void (*Work)(void *context, uint32_t part);

typedef struct {
    pthread_t thread;
    _Atomic int number;     /* the system's, for its affinity */
    _Atomic int processor;  /* where it last ran */
} Worker;

/* One job at a time. A part is taken by lowering the ticket; what the ticket's fields say is read before
   and is right if the exchange succeeds: they change only when no part of that job is left. */
static struct {
    _Atomic uint64_t ticket;      /* number of the job << 32 | parts not yet taken */
    _Atomic(Work) work;
    _Atomic(void *) context;
    _Atomic uint32_t parts;
    _Atomic uint32_t done;
    _Atomic int raised;
    _Atomic int limit;            /* workers that may take part */
    _Atomic int caller_processor;
    Modes modes;
    _Atomic int busy;             /* somebody has the pool */
    _Atomic int waiting;          /* the caller sleeps until every part is done */
    _Atomic int sleeping;         /* workers */
    unsigned calls;               /* that woke them; under the lock */
    _Atomic int resting;          /* do not spin */
    _Atomic int threads;          /* wanted, the caller included */
    _Atomic int started;
    _Atomic double join_seconds, wake_seconds;
    _Atomic double missed_seconds, missed_until; /* what sleeping workers would have saved of late */
    pthread_mutex_t lock;
    pthread_cond_t wake, finished;
    Worker workers[MOST_THREADS];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .finished = PTHREAD_COND_INITIALIZER,
          .threads = 1};

#define LEFT(ticket) ((uint32_t)(ticket))

/* Returns whether a part was taken and run; then *ran says which. */
static int take_part(int worker)
{
    uint64_t ticket = atomic_load_explicit(&pool.ticket, memory_order_acquire);
    while (LEFT(ticket) != 0) {
        if (worker >= atomic_load_explicit(&pool.limit, memory_order_relaxed)) return 0;
        Work work = atomic_load_explicit(&pool.work, memory_order_relaxed);
        void *context = atomic_load_explicit(&pool.context, memory_order_relaxed);
        uint32_t parts = atomic_load_explicit(&pool.parts, memory_order_relaxed);
        if (!atomic_compare_exchange_weak_explicit(&pool.ticket, &ticket, ticket - 1, memory_order_acq_rel,
                                                   memory_order_acquire)) continue;
        if (worker < 0) {
            work(context, parts - LEFT(ticket));
        } else {
            adopt_modes(pool.modes);
            work(context, parts - LEFT(ticket));
            int raised = raised_here();
            if (raised) atomic_fetch_or_explicit(&pool.raised, raised, memory_order_relaxed);
        }
        if (atomic_fetch_add(&pool.done, 1) + 1 == parts && worker >= 0 && atomic_load(&pool.waiting)) {
            pthread_mutex_lock(&pool.lock);
            pthread_cond_signal(&pool.finished);
            pthread_mutex_unlock(&pool.lock);
        }
        return 1;
    }
    return 0;
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

static void *work_on(void *argument)
{
    int index = (int)(intptr_t)argument;
    Worker *self = &pool.workers[index];
#ifdef __linux__
    atomic_store(&self->number, (int)syscall(SYS_gettid));
#endif
    feclearexcept(FE_ALL_EXCEPT);
    for (int called = 0;;) {
        while (take_part(index)) called = 1;
        if (called) { /* even where it came too late: there is more where that was */
            called = 0;
            double until = now_seconds() + atomic_load_explicit(&pool.wake_seconds, memory_order_relaxed);
            int found = 0;
            /* As long as waking would take: at worst twice the time of who knew the future. */
            for (unsigned turn = 1; !found && !atomic_load_explicit(&pool.resting, memory_order_relaxed); turn++) {
                relax();
                found = LEFT(atomic_load_explicit(&pool.ticket, memory_order_relaxed)) != 0 &&
                        index < atomic_load_explicit(&pool.limit, memory_order_relaxed);
                if (turn % 16 == 0 && now_seconds() > until) break;
            }
            if (found) continue;
        }
        atomic_store_explicit(&self->processor, processor_here(), memory_order_relaxed);
        pthread_mutex_lock(&pool.lock);
        unsigned calls = pool.calls;
        atomic_fetch_add(&pool.sleeping, 1);
        while ((LEFT(atomic_load(&pool.ticket)) == 0 && calls == pool.calls) || index >= atomic_load(&pool.limit))
            pthread_cond_wait(&pool.wake, &pool.lock);
        atomic_fetch_sub(&pool.sleeping, 1);
        pthread_mutex_unlock(&pool.lock);
        called = 1;
    }
    return NULL;
}

/* Make up to so many workers; called by who has the pool. */
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
        Worker *worker = &pool.workers[pool.started];
        atomic_store(&worker->number, 0);
        atomic_store(&worker->processor, -1);
        if (pthread_create(&worker->thread, &attributes, work_on, (void *)(intptr_t)pool.started) != 0) break;
        pool.started++;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void wake_workers(uint32_t useful)
{
    int here = processor_here();
    for (int i = 0; i < pool.started; i++) {
        Worker *worker = &pool.workers[i];
        int number = atomic_load(&worker->number);
        if (here >= 0 && number != 0 && atomic_load(&worker->processor) == here) keep_off(number, here);
    }
    pthread_mutex_lock(&pool.lock);
    int asleep = atomic_load(&pool.sleeping);
    pool.calls++;
    pthread_mutex_unlock(&pool.lock);
    if (asleep <= 0) return;
    if (useful >= (uint32_t)asleep || pool.started > atomic_load(&pool.limit)) pthread_cond_broadcast(&pool.wake);
    else while (useful-- > 0) pthread_cond_signal(&pool.wake);
}

/* Take the pool; 0 where somebody has it, who then works alone. */
static int claim_pool(void) { return !atomic_load(&pool.busy) && !atomic_exchange(&pool.busy, 1); }

static void release_pool(void) { atomic_store_explicit(&pool.busy, 0, memory_order_release); }

static void publish(Work work, void *context, uint32_t parts, int threads)
{
    uint64_t number = (atomic_load_explicit(&pool.ticket, memory_order_relaxed) >> 32) + 1;
    start_workers(threads - 1);
    atomic_store_explicit(&pool.work, work, memory_order_relaxed);
    atomic_store_explicit(&pool.context, context, memory_order_relaxed);
    atomic_store_explicit(&pool.parts, parts, memory_order_relaxed);
    atomic_store_explicit(&pool.done, 0, memory_order_relaxed);
    atomic_store_explicit(&pool.raised, 0, memory_order_relaxed);
    atomic_store_explicit(&pool.limit, threads - 1, memory_order_relaxed);
    atomic_store_explicit(&pool.resting, 0, memory_order_relaxed);
    pool.modes = modes_here();
    atomic_store(&pool.ticket, number << 32 | parts);
}

/* Return when every part that was taken is done. Who has not begun is not waited for. */
static void await_parts(uint32_t parts)
{
    if (atomic_load_explicit(&pool.done, memory_order_acquire) != parts) {
        double until = now_seconds() + atomic_load_explicit(&pool.wake_seconds, memory_order_relaxed);
        for (unsigned turn = 1; atomic_load_explicit(&pool.done, memory_order_acquire) != parts; turn++) {
            relax();
            if (turn % 16 != 0 || now_seconds() < until) continue;
            /* Its worker was interrupted, maybe by this very thread: leave it the processor. */
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

static void forget_workers(void)
{
    /* In a forked child: no worker lives here, and whoever held the locks does not either. */
    pool.started = 0;
    atomic_store(&pool.ticket, 0);
    atomic_store(&pool.busy, 0);
    atomic_store(&pool.waiting, 0);
    atomic_store(&pool.sleeping, 0);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.finished, NULL);
}

/* ---------------------------------------------------------------- plans */

typedef void (*Kernel)(void **, int64_t *, int64_t *);
typedef void (*Combine)(char *slots, int64_t parts, int64_t *dims, int64_t *strides, void **addresses);

typedef struct {
    Kernel kernel;
    Combine combine;      /* NULL: parts write their own share of the results */
    int rank, operands, inputs, axis, unlocked;
    int absorbing;        /* the first byte of a partial fold that nothing changes any more; -1: there is none */
    int64_t *dims;        /* rank of them, then what else the kernel wants */
    int64_t *strides;
    int64_t *partial_strides;
    int extra;
    int64_t unit, units;  /* indices that stay together, and how many such runs there are */
    int64_t cells, slot;  /* results of a fold, and the bytes of its state: each part has one for every result */
    _Atomic double alone_seconds; /* of a run on one thread; 0: not known */
    _Atomic double together_seconds[2]; /* on all; with those awake, and where some had to be woken */
    _Atomic uint32_t alone_runs, together_runs[2], last_parts;
} Plan;

typedef struct {
    const Plan *plan;
    void **addresses;
    char *slots;
    uint32_t parts;
    int shift;            /* of a fold: units to a part, as a power of two */
    _Atomic int decided;
} Run;

static void run_part(void *context, uint32_t part)
{
    Run *run = context;
    const Plan *plan = run->plan;
    int64_t dims[MOST_AXES + 4];
    void *addresses[MOST_OPERANDS];
    memcpy(dims, plan->dims, (size_t)(plan->rank + plan->extra) * sizeof(int64_t));
    if (plan->combine == NULL) {
        int64_t whole = plan->dims[plan->axis];
        int64_t start = plan->units * part / run->parts * plan->unit;
        int64_t stop = plan->units * (part + 1) / run->parts * plan->unit;
        if (stop > whole) stop = whole;
        dims[plan->axis] = stop - start;
        for (int i = 0; i < plan->operands; i++)
            addresses[i] = (char *)run->addresses[i] + start * plan->strides[i * plan->rank + plan->axis];
        plan->kernel(addresses, dims, plan->strides);
        return;
    }
    int outputs = plan->operands - plan->inputs;
    char *slots = run->slots + (size_t)part * (size_t)plan->cells * (size_t)(outputs * plan->slot);
    if (plan->absorbing >= 0 && atomic_load_explicit(&run->decided, memory_order_relaxed)) {
        *slots = (char)plan->absorbing;
        return;
    }
    int64_t *range = dims + plan->rank, count = range[1];
    range[0] = (int64_t)part * (plan->unit << run->shift);
    range[1] = range[0] + (plan->unit << run->shift);
    if (range[1] > count) range[1] = count;
    range[2] = 1;
    memcpy(addresses, run->addresses, (size_t)plan->inputs * sizeof(void *));
    for (int i = 0; i < outputs; i++) addresses[plan->inputs + i] = slots + (size_t)(i * plan->slot);
    plan->kernel(addresses, dims, plan->partial_strides);
    if (plan->absorbing >= 0 && *slots == (char)plan->absorbing)
        atomic_store_explicit(&run->decided, 1, memory_order_relaxed);
}

static void learn(_Atomic double *seconds, double sample)
{
    double known = atomic_load_explicit(seconds, memory_order_relaxed);
    /* What is in the way makes runs longer, never shorter: believe the shorter at once. */
    if (known <= 0 || sample < known) known = sample;
    else known += ((sample < 4 * known ? sample : 4 * known) - known) / 8;
    atomic_store_explicit(seconds, known > 1e-9 ? known : 1e-9, memory_order_relaxed);
}

static uint32_t counted(_Atomic uint32_t *runs)
{
    uint32_t before = atomic_load_explicit(runs, memory_order_relaxed);
    atomic_store_explicit(runs, before + 1, memory_order_relaxed);
    return before;
}

static void run_alone(Plan *plan, void **addresses)
{
    uint32_t before = counted(&plan->alone_runs);
    atomic_store_explicit(&plan->last_parts, 1, memory_order_relaxed);
    if (before >= SETTLED && before % 64 != 0) {
        plan->kernel(addresses, plan->dims, plan->strides);
        return;
    }
    double began = now_seconds();
    plan->kernel(addresses, plan->dims, plan->strides);
    double seconds = now_seconds() - began;
    if (before == 0) atomic_store_explicit(&plan->alone_seconds, 0, memory_order_relaxed); /* a guess until now */
    learn(&plan->alone_seconds, seconds);
}

static void run_together(Plan *plan, void **addresses, int threads, uint32_t parts, int known)
{
    _Alignas(64) char near[NEAR_BYTES];
    Run run = {.plan = plan, .addresses = addresses, .slots = near, .parts = parts};
    if (plan->combine != NULL) {
        while ((plan->units >> run.shift) + ((plan->units & (((int64_t)1 << run.shift) - 1)) != 0) > (int64_t)parts)
            run.shift++;
        run.parts = parts = (uint32_t)((plan->units + ((int64_t)1 << run.shift) - 1) >> run.shift);
        size_t bytes = (size_t)parts * (size_t)(plan->cells * (plan->operands - plan->inputs) * plan->slot);
        if (bytes > sizeof near && (run.slots = malloc(bytes)) == NULL) {
            release_pool();
            run_alone(plan, addresses);
            return;
        }
    }
    double wake = atomic_load_explicit(&pool.wake_seconds, memory_order_relaxed), began = now_seconds();
    publish(run_part, &run, parts, threads);
    int asleep = atomic_load(&pool.sleeping) > 0, woken = 0; /* one or none: it is an index too */
    if (known && asleep) {
        wake_workers(parts - 1);
        woken = 1;
    }
    uint32_t mine = 0;
    double seconds = 0;
    while (take_part(-1)) {
        mine++;
        if (known && mine < parts / (uint32_t)threads) continue; /* the clock costs as much as a small part */
        seconds = now_seconds() - began;
        uint32_t left = LEFT(atomic_load_explicit(&pool.ticket, memory_order_relaxed));
        if (!woken && left > 0 && seconds / mine * left * (threads - 1) > wake * threads &&
            atomic_load(&pool.sleeping) > 0) {
            wake_workers(left);
            woken = 1;
        }
    }
    await_parts(parts);
    release_pool();
    if (plan->combine != NULL) {
        plan->combine(run.slots, parts, plan->dims, plan->strides, addresses);
        if (run.slots != near) free(run.slots);
    }
    if (seconds > 0 && !atomic_load(&plan->alone_runs)) learn(&plan->alone_seconds, seconds / mine * parts);
    if (known) {
        _Atomic double *mean = &plan->together_seconds[asleep];
        double sample = now_seconds() - began, before = atomic_load_explicit(mean, memory_order_relaxed);
        /* A mean, not the best: neighbours that interrupt a worker now and then are part of what sharing costs. */
        if (counted(&plan->together_runs[asleep]) > 0) sample = before + ((sample < 4 * before ? sample : 4 * before) - before) / 4;
        atomic_store_explicit(mean, sample, memory_order_relaxed);
    }
    atomic_store_explicit(&plan->last_parts, parts, memory_order_relaxed);
}

/* One short kernel does not pay for waking anybody, but many in a row do: wake once what was not saved
   would have paid for it. At worst that costs twice what knowing the future would. */
static int worth_waking(double saved, double alone, double wake)
{
    double now = now_seconds(), missed = 0;
    if (now < atomic_load_explicit(&pool.missed_until, memory_order_relaxed))
        missed = atomic_load_explicit(&pool.missed_seconds, memory_order_relaxed);
    missed += saved;
    int worth = missed > wake;
    atomic_store_explicit(&pool.missed_seconds, worth ? 0 : missed, memory_order_relaxed);
    atomic_store_explicit(&pool.missed_until, now + alone + wake, memory_order_relaxed);
    return worth;
}

static int worth_sharing(Plan *plan, double alone, int threads, double wake)
{
    /* In tests nothing costs anything, and everything is shared. */
    if (wake <= 0) return 1;
    double join = atomic_load_explicit(&pool.join_seconds, memory_order_relaxed);
    double saved = alone * (threads - 1) / threads;
    if (saved <= join) return 0;
    /* The first run was cut up and met cold memory: where it matters, see what one thread takes. */
    uint32_t runs = atomic_load_explicit(&plan->alone_runs, memory_order_relaxed);
    if (runs < TRIED && saved <= BALANCED * wake) return 0;
    int asleep = pool.started < threads - 1 || atomic_load_explicit(&pool.sleeping, memory_order_relaxed) > 0;
    if (asleep && saved <= wake && !worth_waking(saved - join, alone, wake)) return 0;
    /* Data in this processor's caches, or other work on the others: sharing may take longer than predicted. */
    uint32_t shared = atomic_load_explicit(&plan->together_runs[asleep], memory_order_relaxed);
    double together = atomic_load_explicit(&plan->together_seconds[asleep], memory_order_relaxed);
    if (shared < BALANCED || together < alone) return 1;
    if (runs % 64 != 1) return 0;
    counted(&plan->alone_runs); /* things may have changed: see, once */
    return 1;
}

/* Run a kernel, on several threads where that is predicted to end sooner. */
static void run_plan(void **addresses, int64_t *opaque, int64_t *Py_UNUSED(strides))
{
    Plan *plan = (Plan *)(void *)opaque;
    int threads = atomic_load_explicit(&pool.threads, memory_order_relaxed);
    if (plan->units < 2 || threads < 2) {
        plan->kernel(addresses, plan->dims, plan->strides);
        return;
    }
    /* What stops early takes now this long, now that: such a fold begins alone every time. */
    double alone = plan->absorbing >= 0 ? 0 : atomic_load_explicit(&plan->alone_seconds, memory_order_relaxed);
    double parts = (double)threads * EXPLORED;
    if (alone > 0) {
        double wake = atomic_load_explicit(&pool.wake_seconds, memory_order_relaxed);
        if (!worth_sharing(plan, alone, threads, wake)) {
            run_alone(plan, addresses);
            return;
        }
        double join = atomic_load_explicit(&pool.join_seconds, memory_order_relaxed);
        double part = alone / (BALANCED * threads);
        if (part > wake) part = wake;
        if (part < BALANCED * join) part = BALANCED * join;
        if (part < 1e-9) part = 1e-9; /* the caller's floating-point flags are its own: nothing here may raise any */
        parts = alone / part;
        if (parts < threads) parts = threads;
    }
    if (parts > (double)plan->units) parts = (double)plan->units;
    if (parts > 1 << 20) parts = 1 << 20;
    if (!claim_pool()) {
        run_alone(plan, addresses);
        return;
    }
    run_together(plan, addresses, threads, (uint32_t)parts, alone > 0);
}

/* ---------------------------------------------------------------- Launcher */

typedef struct {
    PyObject_HEAD
    Plan plan;
    PyObject *keep;
} Launcher;

/* Numbers of a sequence as C memory with some room behind; NULL on an error. */
static int64_t *numbers(PyObject *sequence, Py_ssize_t *count, Py_ssize_t room)
{
    PyObject *fast = PySequence_Fast(sequence, "a sequence of whole numbers is needed");
    if (fast == NULL) return NULL;
    *count = PySequence_Fast_GET_SIZE(fast);
    int64_t *result = PyMem_Calloc((size_t)(*count + room + 1), sizeof(int64_t));
    if (result == NULL) PyErr_NoMemory();
    for (Py_ssize_t i = 0; result != NULL && i < *count; i++) {
        result[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast, i));
        if (result[i] == -1 && PyErr_Occurred()) {
            PyMem_Free(result);
            result = NULL;
        }
    }
    Py_DECREF(fast);
    return result;
}

static int set_partial(Plan *plan, int kept)
{
    size_t size = (size_t)plan->operands * (size_t)plan->rank;
    plan->partial_strides = PyMem_Calloc(size + 1, sizeof(int64_t));
    if (plan->partial_strides == NULL) return -1;
    memcpy(plan->partial_strides, plan->strides, size * sizeof(int64_t));
    plan->cells = 1;
    int outputs = plan->operands - plan->inputs;
    for (int axis = kept - 1; axis >= 0; axis--) {
        for (int i = plan->inputs; i < plan->operands; i++)
            plan->partial_strides[i * plan->rank + axis] = plan->cells * outputs * plan->slot;
        plan->cells *= plan->dims[axis];
    }
    return 0;
}

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"kernel", "dims", "strides", "inputs", "outputs", "keep", "axis", "unit", "elements",
                            "combine", "kept", "extra", "slot", "absorbing", NULL};
    unsigned long long kernel, combine = 0;
    PyObject *dims, *strides, *keep;
    int inputs, outputs, axis = -1, kept = 0, absorbing = -1;
    long long unit = 0, elements = 0, slot = 0;
    PyObject *extra = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KOOiiO|iLLKiOLi:Launcher", names, &kernel, &dims, &strides, &inputs,
                                     &outputs, &keep, &axis, &unit, &elements, &combine, &kept, &extra, &slot, &absorbing))
        return NULL;
    Launcher *self = (Launcher *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    Plan *plan = &self->plan;
    Py_ssize_t rank = 0, steps = 0, more = 0;
    self->keep = Py_NewRef(keep);
    plan->kernel = (Kernel)(uintptr_t)kernel;
    plan->inputs = inputs;
    plan->operands = inputs + outputs;
    plan->axis = axis;
    plan->absorbing = absorbing;
    plan->slot = slot;
    plan->unlocked = elements >= UNLOCKED;
    int64_t *others = NULL;
    if (extra != NULL && (others = numbers(extra, &more, 0)) == NULL) goto failed;
    if ((plan->dims = numbers(dims, &rank, more)) == NULL) goto failed;
    if ((plan->strides = numbers(strides, &steps, 0)) == NULL) goto failed;
    if (others != NULL) memcpy(plan->dims + rank, others, (size_t)more * sizeof(int64_t));
    plan->rank = (int)rank;
    plan->extra = (int)more;
    if (steps != rank * plan->operands || axis >= rank || kept > rank || (combine && more < 3) || more > 4) {
        PyErr_Format(PyExc_ValueError, "%zd strides do not go with %zd axes of %d operands", steps, rank, plan->operands);
        goto failed;
    }
    PyMem_Free(others);
    others = NULL;
    if (unit > 0 && rank <= MOST_AXES && plan->operands <= MOST_OPERANDS && (axis >= 0 || combine)) {
        int64_t whole = combine ? plan->dims[rank + 1] : plan->dims[axis];
        plan->unit = unit;
        plan->units = (whole + unit - 1) / unit;
        plan->combine = (Combine)(uintptr_t)combine;
        if (combine && set_partial(plan, kept) < 0) { PyErr_NoMemory(); goto failed; }
    }
    return (PyObject *)self;
failed:
    PyMem_Free(others);
    Py_DECREF(self);
    return NULL;
}

static void launcher_dealloc(Launcher *self)
{
    PyMem_Free(self->plan.dims);
    PyMem_Free(self->plan.strides);
    PyMem_Free(self->plan.partial_strides);
    Py_XDECREF(self->keep);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *launcher_call(Launcher *self, PyObject *args, PyObject *kwargs)
{
    void *near[MOST_OPERANDS], **addresses = near;
    Plan *plan = &self->plan;
    if (PyTuple_GET_SIZE(args) != 1 || (kwargs != NULL && PyDict_GET_SIZE(kwargs) != 0)) {
        PyErr_SetString(PyExc_TypeError, "a launcher takes the addresses of its operands, in one sequence");
        return NULL;
    }
    PyObject *fast = PySequence_Fast(PyTuple_GET_ITEM(args, 0), "addresses come in a sequence");
    if (fast == NULL) return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
    if (count != plan->operands) {
        PyErr_Format(PyExc_ValueError, "%zd addresses for %d operands", count, plan->operands);
        Py_DECREF(fast);
        return NULL;
    }
    if (count > MOST_OPERANDS && (addresses = PyMem_Malloc((size_t)count * sizeof(void *))) == NULL) {
        Py_DECREF(fast);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        addresses[i] = PyLong_AsVoidPtr(PySequence_Fast_GET_ITEM(fast, i));
        if (addresses[i] == NULL && PyErr_Occurred()) break;
    }
    Py_DECREF(fast);
    if (!PyErr_Occurred()) {
        if (plan->unlocked) {
            Py_BEGIN_ALLOW_THREADS
            run_plan(addresses, (int64_t *)(void *)plan, NULL);
            Py_END_ALLOW_THREADS
        } else {
            run_plan(addresses, (int64_t *)(void *)plan, NULL);
        }
    }
    if (addresses != near) PyMem_Free(addresses);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyObject *launcher_entry(Launcher *self, void *Py_UNUSED(closure))
{
    return Py_BuildValue("KKK", (unsigned long long)(uintptr_t)run_plan, (unsigned long long)(uintptr_t)&self->plan, 0ULL);
}

static PyObject *launcher_parts(Launcher *self, void *Py_UNUSED(closure))
{
    uint32_t parts = atomic_load(&self->plan.last_parts);
    return PyLong_FromUnsignedLong(parts ? parts : 1);
}

static PyObject *launcher_seconds(Launcher *self, void *Py_UNUSED(closure))
{
    return PyFloat_FromDouble(atomic_load(&self->plan.alone_seconds));
}

static PyGetSetDef launcher_fields[] = {
    {"entry", (getter)launcher_entry, NULL, "What runs it from C: a function's address and its last two arguments.", NULL},
    {"parts", (getter)launcher_parts, NULL, "Parts of the last run.", NULL},
    {"seconds", (getter)launcher_seconds, NULL, "What a run on one thread takes; 0 where that is not known.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject LauncherType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._threads.Launcher",
    .tp_basicsize = sizeof(Launcher),
    .tp_dealloc = (destructor)launcher_dealloc,
    .tp_call = (ternaryfunc)launcher_call,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A kernel bound to sizes and strides, called with the addresses of its operands.",
    .tp_getset = launcher_fields,
    .tp_new = launcher_new,
};

/* ---------------------------------------------------------------- the module */

static PyObject *set_threads(PyObject *Py_UNUSED(module), PyObject *args)
{
    int count;
    if (!PyArg_ParseTuple(args, "i:set_threads", &count)) return NULL;
    if (count < 1) {
        PyErr_Format(PyExc_ValueError, "%d threads: the caller is one already", count);
        return NULL;
    }
    atomic_store(&pool.threads, count < MOST_THREADS ? count : MOST_THREADS);
    Py_RETURN_NONE;
}

static PyObject *set_costs(PyObject *Py_UNUSED(module), PyObject *args)
{
    double join, wake;
    if (!PyArg_ParseTuple(args, "dd:set_costs", &join, &wake)) return NULL;
    atomic_store(&pool.join_seconds, join);
    atomic_store(&pool.wake_seconds, wake > join ? wake : join);
    Py_RETURN_NONE;
}

static PyObject *rest(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    atomic_store_explicit(&pool.resting, 1, memory_order_relaxed);
    Py_RETURN_NONE;
}

static PyObject *state(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return Py_BuildValue("{s:i,s:i,s:i,s:d,s:d}", "threads", atomic_load(&pool.threads), "started", pool.started, "asleep",
                         atomic_load(&pool.sleeping), "join_seconds", atomic_load(&pool.join_seconds), "wake_seconds",
                         atomic_load(&pool.wake_seconds));
}

typedef struct {
    _Atomic uint32_t arrived;
    uint32_t parts;
    double deadline;
} Meeting;

/* A part that no thread can do two of: it ends when all have arrived. */
static void meet(void *context, uint32_t Py_UNUSED(part))
{
    Meeting *meeting = context;
    atomic_fetch_add(&meeting->arrived, 1);
    for (unsigned turn = 1; atomic_load(&meeting->arrived) < meeting->parts; turn++) {
        relax();
        if (turn % 16 == 0 && now_seconds() > meeting->deadline) return;
    }
}

static PyObject *round_trip(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    int threads = atomic_load(&pool.threads);
    double began = now_seconds(), seconds;
    /* a hundred times what waking takes: then something else has the processor */
    Meeting meeting = {.parts = (uint32_t)threads, .deadline = began + 4e-3};
    if (threads < 2 || !claim_pool()) return PyFloat_FromDouble(0.0);
    Py_BEGIN_ALLOW_THREADS
    publish(meet, &meeting, (uint32_t)threads, threads);
    if (atomic_load(&pool.sleeping) > 0) wake_workers((uint32_t)threads - 1);
    while (take_part(-1)) {}
    await_parts((uint32_t)threads);
    release_pool();
    Py_END_ALLOW_THREADS
    seconds = now_seconds() - began;
    return PyFloat_FromDouble(seconds);
}

static PyMethodDef functions[] = {
    {"set_threads", set_threads, METH_VARARGS, "Let kernels run on so many threads, the caller's included."},
    {"set_costs", set_costs, METH_VARARGS, "Say what it takes to share work with threads that spin, and that sleep."},
    {"rest", rest, METH_NOARGS, "Have threads that spin go to sleep: something else needs the processors."},
    {"state", state, METH_NOARGS, "Return what the pool is like now."},
    {"round_trip", round_trip, METH_NOARGS, "Return the seconds until every thread has met, or 0 where none can."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "alight._core._threads",
    .m_doc = "The thread pool in C; alight._core.threads has its twin.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__threads(void)
{
    if (PyType_Ready(&LauncherType) < 0) return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) return NULL;
    pthread_atfork(NULL, NULL, forget_workers);
    if (PyModule_AddObjectRef(module, "Launcher", (PyObject *)&LauncherType) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
