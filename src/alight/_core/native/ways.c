/* On how many threads a kernel ends soonest, as far as its runs have told. */

#include "core.h"
#include "ways.h"

#define SETTLED 16       /* runs on one thread that are timed before only every 64th is */
#define TRIED 2          /* runs on one thread before its time is known */
#define AGAIN 64         /* of so many runs one is spent on looking whether things have changed */

void learn(_Atomic double *seconds, double sample)
{
    double known = atomic_load_explicit(seconds, memory_order_relaxed);
    /* What is in the way makes runs longer, never shorter: believe the shorter at once. */
    if (known <= 0 || sample < known) known = sample;
    else known += ((sample < 4 * known ? sample : 4 * known) - known) / 8;
    atomic_store_explicit(seconds, known > 1e-9 ? known : 1e-9, memory_order_relaxed);
}

/* Add one; returns how many there were. */
static uint32_t counted(_Atomic uint32_t *runs)
{
    uint32_t before = atomic_load_explicit(runs, memory_order_relaxed);
    atomic_store_explicit(runs, before + 1, memory_order_relaxed);
    return before;
}

uint32_t begin_alone(Plan *plan, int *timed)
{
    uint32_t before = counted(&plan->alone_runs);
    *timed = before < SETTLED || before % AGAIN == 0;
    return before;
}

void note_alone(Plan *plan, uint32_t before, double seconds)
{
    if (before == 0) atomic_store_explicit(&plan->alone_seconds, 0, memory_order_relaxed); /* a guess until now */
    learn(&plan->alone_seconds, seconds);
}

void note_together(Plan *plan, Way way, double seconds)
{
    _Atomic double *mean = &plan->together_seconds[way.asleep][way.count];
    double before = atomic_load_explicit(mean, memory_order_relaxed);
    uint32_t runs = counted(&plan->together_runs[way.asleep][way.count]);
    /* The first runs bring the data to other processors' caches: the best of them tells. Then a mean, for
       neighbours that interrupt a worker now and then are part of what sharing costs; but no single run,
       however long, is to end it. */
    if (runs > 0 && runs < BALANCED) seconds = seconds < before ? seconds : before;
    else if (runs > 0) seconds = before + ((seconds < 2 * before ? seconds : 2 * before) - before) / 4;
    atomic_store_explicit(mean, seconds, memory_order_relaxed);
    if (!way.asleep) atomic_store_explicit(&plan->wasted, 0, memory_order_relaxed);
    atomic_store_explicit(&plan->woken, way.asleep, memory_order_relaxed);
}

/* Have workers spin until the run after this one, which may be on one thread: of a short kernel they would
   sleep through the run and take longer to come awake than the next one lasts. */
void keep_on(Plan *plan, double wake)
{
    double alone = atomic_load_explicit(&plan->alone_seconds, memory_order_relaxed);
    if (alone <= BALANCED * wake) keep_awake(2 * (wake + alone));
}

/* A series: runs that come so soon after one another that workers, once awake, stay awake. One short kernel
   does not pay for waking anybody, but many in a row do. Kept of all plans together: what awake workers saved
   in its runs after the first or would have saved, what of that was missed, and the sum of the series before. */
static struct {
    _Atomic double until, saved, missed, before;
    _Atomic double ended, pause; /* of the last run; the longest pause of late */
    _Atomic uint32_t short_pauses; /* one after the other */
} series;

static void forget_series(void)
{
    _Atomic double *seconds[] = {&series.until, &series.saved, &series.missed, &series.before, &series.ended, &series.pause};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) atomic_store_explicit(seconds[i], 0, memory_order_relaxed);
    atomic_store_explicit(&series.short_pauses, 0, memory_order_relaxed);
}

/* A worker that spins through a pause saves the next run what waking takes. It does so while that is a tenth of
   the pause at least, and pauses have been so short BALANCED times in a row: one that is not costs a spin in vain.
   Kernels of 100,000 elements with 300 us between them, on 2 threads: in the quickest fifth they took 60 to 79 us
   where workers slept and 41 to 76 where they spun, which kept 1.04 to 1.63 and 1.71 to 1.97 processors busy. So
   4 to 20 us of some 370 are had for half a processor, which others may want: no more than this. The quarter that
   spinning goes on for longer, and the eighth of a shorter pause that counts at once, are guesses. */
#define WORTH 10

/* Count a pause that ends now; returns for how long workers stay awake after a job from here on. */
static double patience(double now, double wake)
{
    double pause = now - atomic_load_explicit(&series.ended, memory_order_relaxed);
    double known = atomic_load_explicit(&series.pause, memory_order_relaxed);
    uint32_t before = atomic_load_explicit(&series.short_pauses, memory_order_relaxed);
    int brief = pause <= WORTH * wake;
    if (!brief) before = 0, known = 0;
    else if (pause > known) known = pause;
    else known += (pause - known) / 8;
    atomic_store_explicit(&series.short_pauses, before + (uint32_t)brief, memory_order_relaxed);
    atomic_store_explicit(&series.pause, known, memory_order_relaxed);
    /* A quarter longer, for pauses differ. */
    return before + (uint32_t)brief < BALANCED || known * 1.25 < wake ? wake : known * 1.25;
}

void run_ended(double now)
{
    atomic_store_explicit(&series.ended, now, memory_order_relaxed);
}

/* Count a run that ends so much sooner where workers are awake; tell whether a series goes on. */
static int goes_on(double now, double saved, double alone, double awake)
{
    double sum = atomic_load_explicit(&series.saved, memory_order_relaxed), missed = 0;
    int on = now < atomic_load_explicit(&series.until, memory_order_relaxed);
    if (on) missed = atomic_load_explicit(&series.missed, memory_order_relaxed) + saved;
    else atomic_store_explicit(&series.before, sum, memory_order_relaxed);
    atomic_store_explicit(&series.saved, on ? sum + saved : 0, memory_order_relaxed);
    atomic_store_explicit(&series.missed, missed, memory_order_relaxed);
    atomic_store_explicit(&series.until, now + alone + awake, memory_order_relaxed);
    return on;
}

/* Wake once what was missed would have paid for it: at worst that costs twice what knowing the future would. At
   the first run of a series, where the one before would have paid. */
static int worth_waking(int on, double price)
{
    if (atomic_load_explicit(on ? &series.missed : &series.before, memory_order_relaxed) <= price) return 0;
    atomic_store_explicit(&series.missed, 0, memory_order_relaxed);
    return 1;
}

/* Seconds on so many threads if nothing but their number decides: no run ends sooner. Who is woken
   comes on average half the time late that it takes to wake all; nobody waits for it. */
static double predicted(double alone, int threads, int asleep)
{
    double late = asleep ? wake_seconds(threads) / 2 * (threads - 1) / threads : 0;
    return alone / threads + late + join_seconds(threads);
}

/* The number of threads, 1 included, on which a run is predicted to end soonest, workers being as they are, all
   awake or all asleep.
   What was not tried, or hardly, is predicted at its best, so that it is tried where it could be the best;
   what was tried takes what it took: memory that is no faster for more threads, data in one processor's
   caches, neighbours. */
enum { AS_THEY_ARE = -1, AWAKE, ASLEEP };
static Way best_way(Plan *plan, double alone, int most, int workers, const Scene *scene)
{
    Way best = {.threads = 1, .seconds = alone};
    for (int count = 0, threads = 2; count < COUNTS; count++, threads *= 2) {
        if (threads > most) threads = most;
        int asleep = scene ? scene->asleep : asleep_among(threads), state = workers == AS_THEY_ARE ? asleep : workers;
        double seconds = predicted(alone, threads, state);
        uint32_t runs = atomic_load_explicit(&plan->together_runs[state][count], memory_order_relaxed);
        double mean = atomic_load_explicit(&plan->together_seconds[state][count], memory_order_relaxed);
        if (runs > 0 && (runs >= BALANCED || mean < seconds)) seconds = mean;
        if (seconds < best.seconds) best = (Way){threads, count, asleep, seconds};
        if (threads == most) break;
    }
    return best;
}

/* Where it was given up, try the number of threads again that nothing but predictions would choose: things may
   have changed, or a few runs were interrupted. Two runs, for the first brings the data to where it is needed.
   Returns the turns until the next look, so many that what two runs cost is 1 / AGAIN of the time at most. */
static uint32_t try_again(Plan *plan, double alone, int most, const Scene *scene)
{
    int chosen = -1, threads = 2;
    double least = alone, gap = 2 * BALANCED;
    for (int count = 0; count < COUNTS; count++, threads *= 2) {
        if (threads > most) threads = most;
        double seconds = predicted(alone, threads, 0);
        if (seconds < least) least = seconds, chosen = count;
        if (threads == most) break;
    }
    for (int state = AWAKE; state <= ASLEEP && chosen >= 0; state++) {
        double mean = atomic_load_explicit(&plan->together_seconds[state][chosen], memory_order_relaxed);
        if (atomic_load_explicit(&plan->together_runs[state][chosen], memory_order_relaxed) < BALANCED) continue;
        double best = best_way(plan, alone, most, state, scene).seconds, turns = 2 * AGAIN * (mean / best - 1);
        if (mean <= best) continue;
        if (turns > gap) gap = turns < 2 * AGAIN ? turns : 2 * AGAIN;
        atomic_store_explicit(&plan->together_seconds[state][chosen], BALANCED * alone, memory_order_relaxed);
        atomic_store_explicit(&plan->together_runs[state][chosen], BALANCED - 2, memory_order_relaxed);
    }
    return (uint32_t)gap;
}

/* The way of a run that begins now, while workers stay awake for so long after each. */
static Way shared_way(Plan *plan, double alone, int most, const Scene *scene, double now, double awake)
{
    double wake = wake_seconds(most);
    Way one = {.threads = 1, .seconds = alone};
    /* The first run was cut up and met cold memory: where it matters, see what one thread takes. */
    uint32_t runs = atomic_load_explicit(&plan->alone_runs, memory_order_relaxed);
    if (runs < TRIED && alone <= BALANCED * wake) return one;
    uint32_t turn = counted(&plan->turns);
    if (turn >= atomic_load_explicit(&plan->again, memory_order_relaxed))
        atomic_store_explicit(&plan->again, turn + try_again(plan, alone, most, scene), memory_order_relaxed);
    Way best = best_way(plan, alone, most, AS_THEY_ARE, scene), next = best_way(plan, alone, most, AWAKE, scene);
    double saved = best_way(plan, alone, most, ASLEEP, scene).seconds - next.seconds;
    int on = saved > 0 && goes_on(now, saved, alone, awake);
    /* See, ever less often, what half as many threads take. */
    if (best.threads > 1 && turn >= 2 * BALANCED && (turn % AGAIN == 0 || (turn & (turn - 1)) == 0)) {
        int fewer = 1 << best.count;
        if (fewer == 1 && !best.asleep) keep_on(plan, wake);
        return fewer == 1 ? one : (Way){fewer, best.count - 1, scene ? scene->asleep : asleep_among(fewer), best.seconds};
    }
    if (saved <= 0 || next.threads <= best.threads || !next.asleep) return best;
    /* This run alone does not pay for waking so many, but those after it would find them awake. What waking
       them took tells its price; where nobody was awake at the next run all the same, it costs twice as much. */
    double price = wake;
    if (atomic_load_explicit(&plan->together_runs[ASLEEP][next.count], memory_order_relaxed) >= BALANCED) {
        double more = atomic_load_explicit(&plan->together_seconds[ASLEEP][next.count], memory_order_relaxed) - best.seconds;
        if (more > price) price = more;
    }
    uint32_t wasted = atomic_load_explicit(&plan->wasted, memory_order_relaxed);
    if (on && atomic_load_explicit(&plan->woken, memory_order_relaxed) && 2u << wasted <= AGAIN)
        atomic_store_explicit(&plan->wasted, ++wasted, memory_order_relaxed);
    atomic_store_explicit(&plan->woken, 0, memory_order_relaxed);
    return worth_waking(on, price * (double)(1u << wasted)) ? next : best;
}

Way way_of(Plan *plan, double alone, int most, const Scene *scene)
{
    double wake = wake_seconds(most);
    if (wake <= 0) { /* In tests nothing costs anything, and everything is shared. */
        Way all = {.threads = most, .asleep = asleep_among(most)};
        while ((2 << all.count) < most) all.count++;
        return all;
    }
    if (alone <= join_seconds(2)) return (Way){.threads = 1, .seconds = alone};
    double now = scene ? scene->now : now_seconds(), awake = patience(now, wake);
    stay_awake(awake);
    Way way = shared_way(plan, alone, most, scene, now, awake);
    run_ended(now + way.seconds); /* of one on several threads more is known once it has */
    return way;
}

/* Seconds of a list's place, -1 with an error set where there are none. */
static double seconds_at(PyObject *list, Py_ssize_t place)
{
    if (place < PyList_GET_SIZE(list)) return PyFloat_AsDouble(PyList_GET_ITEM(list, place));
    PyErr_Format(PyExc_ValueError, "a run has seconds for %zd numbers of threads, not %zd", PyList_GET_SIZE(list), place + 1);
    return -1;
}

/* On how many threads each run of a kernel would go: of a list of its seconds on 1, 2, 4, ... threads, and of
   the seconds that pass before it. Workers are awake for as long after a run as it takes to wake them, or as
   pauses have lasted. */
PyObject *foresee(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *runs, *pauses, *found = NULL;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &runs, &PyList_Type, &pauses)) return NULL;
    if (PyList_GET_SIZE(pauses) != PyList_GET_SIZE(runs))
        return PyErr_Format(PyExc_ValueError, "%zd pauses before %zd runs", PyList_GET_SIZE(pauses), PyList_GET_SIZE(runs));
    found = PyList_New(0);
    forget_series();
    Plan plan = {.rank = 0};
    Scene scene = {.now = now_seconds() + 3600}; /* after all that really ran */
    double awake = 0;
    for (Py_ssize_t i = 0; found != NULL && i < PyList_GET_SIZE(runs); i++) {
        PyObject *run = PyList_GET_ITEM(runs, i), *threads = NULL;
        if (!PyList_Check(run) || PyList_GET_SIZE(run) < 2 || PyList_GET_SIZE(run) > COUNTS) {
            PyErr_Format(PyExc_ValueError, "a run is a list of its seconds on 1, 2, 4, ... threads, not %R", run);
            Py_CLEAR(found);
            break;
        }
        int most = 1 << (PyList_GET_SIZE(run) - 1), timed;
        double wake = wake_seconds(most), known = atomic_load_explicit(&plan.alone_seconds, memory_order_relaxed);
        scene.now += PyFloat_AsDouble(PyList_GET_ITEM(pauses, i));
        scene.asleep = scene.now > awake;
        Way way = {.threads = most};
        if (known > 0) way = way_of(&plan, known, most, &scene);
        double seconds = seconds_at(run, way.threads < 2 || known <= 0 ? 0 : way.count + 1);
        if (way.threads > 1 && way.asleep) seconds += wake;
        if (way.threads < 2) {
            uint32_t before = begin_alone(&plan, &timed);
            if (timed) note_alone(&plan, before, seconds);
        } else if (known > 0) {
            note_together(&plan, way, seconds);
        } else {
            learn(&plan.alone_seconds, seconds);
        }
        scene.now += seconds;
        run_ended(scene.now);
        double stay = awake_seconds();
        if (way.threads > 1 && known > 0) awake = scene.now + (stay > wake ? stay : wake);
        if (!PyErr_Occurred()) threads = PyLong_FromLong(way.threads);
        if (threads == NULL || PyList_Append(found, threads) < 0) Py_CLEAR(found);
        Py_XDECREF(threads);
    }
    forget_series();
    stay_awake(0);
    return found;
}
