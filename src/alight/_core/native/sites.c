/* Work below the floor by where it was called: what NumPy took there, and whether it is recorded all the same.

   The floor in force leaves work to NumPy that planning would not pay for if it came once. A call site that comes
   again and again pays: once NumPy has taken as long at sites of one function as a plan and its kernels take, they
   are opened, and what they do is recorded from as many elements on. What requests of theirs then take is compared
   with what NumPy took there; a site that lost is shut.

   Above the floor work is recorded, and some requests can win nothing: plans leave all of them to NumPy. Sites that
   only came in such ones are NumPy's at once, up to as many elements. */
#include "core.h"
#include "clock.h"
#include <math.h>

/* ``SITES``: 400 kB. ``MOST_OPS``: of a request; what is longer is judged by its first. ``FIRST``: runs of a site before it
   counts as one that comes again: the first finds cold caches, the second may. */
enum { SITES = 4096, FIRST = 3, MOST_OPS = 256 };
/* Requests before kernels run, in which NumPy stands in for them: the first makes the plan, the second asks for its
   kernels, and not most of the others may promise a loss. And requests with kernels: a site wins with most of them.
   Where other work makes one in four look as what it is not, one site in twenty is taken for what it is not
   (binomial). */
enum { MADE_READY = 2, REHEARSED = 6, JUDGED = 12 };
/* Requests in a row that plans left to NumPy: a loop's first turns may lack operands of the later ones. */
enum { IN_VAIN = 4 };
/* What NumPy has to take at a function's sites before they are tried: ten times what their plan and kernels take at most
   (first_plan: 0.03 to 0.1 s). After a tenth of it, programs of 40 calls of 5 ms spent half a second on a trial. */
static const double PRICE_SECONDS = 1.0;
/* Of what NumPy took at a function's sites, what a trial may lose (the design's share for all that is measured in the
   foreground); then they are NumPy's until that has doubled. */
static const double LOSS_SHARE = 0.05;
/* A request takes 20 to 100 us beyond its kernels (EPYC): ops that take NumPy less than this are not opened. */
static const double LEAST_SECONDS = 2e-5;
/* An op to be recorded, by Python at worst 3 us, in C 0.12. An open site that no request shows is left once its passes
   have cost as much as a request. */
static const double RECORDED_SECONDS = 5e-7;
#define UNSEEN ((int)(LEAST_SECONDS / RECORDED_SECONDS))

typedef enum { CLOSED, OPEN, WON, SHUT } State;

typedef struct Site {
    PyObject *code; /* kept, so that its address stays its own */
    int instruction; /* WHOLE: the function */
    State state;
    int unseen, cold, won, lost; /* passes; of a trial: requests before kernels ran, and those that gained and did not */
    long long runs;
    npy_intp elements, least;
    PyObject *row; /* of the table of paces: which op it is */
    double seconds, predicted, per_element, ratio, price, loss;
    unsigned long request, passed_request; /* that showed it last, and that was the last when it came by */
    int vain; /* requests that plans left to NumPy; GAINED: not all of them */
    npy_intp most; /* elements up to which it is NumPy's for that */
    unsigned long vain_request;
    long long passed_count; /* ops that waited then */
} Site;

enum { WHOLE = -2, GAINED = -1 };
static Site sites[SITES];
static Py_ssize_t used;
static Py_ssize_t taking; /* sites that are OPEN or WON */
static Py_ssize_t raised; /* sites whose requests were in vain */
npy_intp left_in_vain;

/* What the latest request was made of. */
static Site *in_request[MOST_OPS];
static Py_ssize_t in_request_count;
static unsigned long request_number;
static double request_numpy_seconds;
/* Whether it has no site of its own, and nothing that the floor in force would have had recorded: then it is there for
   what is on trial, to which what it takes is counted. */
static bool request_strays;
static Site *on_trial[MOST_OPS];
static Py_ssize_t on_trial_count;

static Site *site_at(PyObject *code, int instruction, bool make)
{
    size_t place = (((size_t)code >> 4) * 31 + (size_t)(instruction + 2)) * 0x9E3779B97F4A7C15ull >> 20;
    for (size_t i = 0; i < SITES; i++) {
        Site *site = &sites[(place + i) % SITES];
        if (site->code == code && site->instruction == instruction) {
            return site;
        }
        if (site->code == NULL) {
            if (!make || used >= SITES * 3 / 4) {
                return NULL;
            }
            *site = (Site){.code = Py_NewRef(code), .instruction = instruction, .least = NPY_MAX_INTP, .price = PRICE_SECONDS};
            used++;
            return site;
        }
    }
    return NULL;
}

static Site *site_here(bool make)
{
    PyFrameObject *frame = PyEval_GetFrame();
    if (frame == NULL) {
        return NULL;
    }
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    Site *site = site_at(code, PyFrame_GetLasti(frame), make);
    Py_DECREF(code);
    return site;
}

/* Tell whether the floor in force is the measured one, which sites may move: not a given one, nor under `alight run`,
   where what is small is no array of ours. */
static bool may_lower(npy_intp least)
{
    return !floors->scalars && least > 0 && (least == floors->automatic || (floors->kept > 0 && floors->kept == floors->automatic));
}

/* Have an open site be NumPy's. */
static void leave(Site *site, State state)
{
    site->state = state;
    site->least = NPY_MAX_INTP;
    taking--;
    floors->judging--;
}

/* Count a pass of an open site that no request has shown; false once they are many: what it does is never recorded.
   Turns of a loop that one request will show count once, as each of them records something. */
static bool may_pass(Site *site)
{
    bool waits = site->passed_request == request_number && site->passed_count < floors->count;
    site->passed_request = request_number;
    site->passed_count = floors->count;
    return waits || ++site->unseen <= UNSEEN;
}

/* Return the elements from which on the op that is called is recorded, where the floor in force says ``least``. The
   hooks go by it. */
npy_intp site_floor(npy_intp least)
{
    Py_CLEAR(priced.row);
    priced.each = floors->addition;
    left_in_vain = 0;
    if (taking + raised == 0 || floors->kept > 0 || !may_lower(least)) {
        floors->passed = 0;
        return least;
    }
    if (!called_by_user()) { /* an op that another is made of goes by that one's */
        return floors->passed > 0 ? floors->passed : least;
    }
    floors->passed = 0;
    Site *site = site_here(false);
    left_in_vain = site == NULL ? 0 : site->most;
    if (left_in_vain >= least) {
        return floors->passed = left_in_vain + 1;
    }
    if (site == NULL || site->least >= least) {
        return least;
    }
    if (site->state == OPEN && !may_pass(site)) {
        leave(site, SHUT);
        return least;
    }
    return floors->passed = site->least;
}

/* Begin to time what NumPy does with some operands. ``product``: its site is timed, and never opened. */
SiteWork begin_work(PyObject *const *plain, Py_ssize_t count, npy_intp least, bool product)
{
    SiteWork work = {NULL, 0.0, 0, false};
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyArray_CheckExact(plain[i])) {
            npy_intp size = PyArray_SIZE((PyArrayObject *)plain[i]);
            work.elements = size > work.elements ? size : work.elements;
        }
    }
    bool floored = least != OUTRIGHT && (least < (npy_intp)1 << 62 || floors->kept > 0); /* policy.EVERYTHING is no floor */
    if (work.elements >= COUNTED && floored) {
        work.site = site_here(true);
        work.lowers = may_lower(least) || (floors->passed > 0 && least == floors->passed && !floors->scalars);
        if (product && work.site != NULL && work.site->state == CLOSED) {
            work.site->state = SHUT;
        }
        if (work.site != NULL) {
            Py_XSETREF(work.site->row, Py_XNewRef(priced.row));
            work.site->predicted += priced.each * (double)work.elements;
        }
        work.began = now_seconds();
    }
    return work;
}

static bool may_open(Site *site)
{
    Site *whole = site_at(site->code, WHOLE, false);
    return site->state == CLOSED && site->runs >= FIRST && site->per_element * (double)site->elements >= LEAST_SECONDS
        && whole != NULL && whole->seconds >= site->price;
}

/* Open the sites of a function that may be, all at once: each set of them takes a plan of its own. */
static void open_sites(PyObject *code)
{
    for (size_t i = 0; i < SITES; i++) {
        Site *site = &sites[i];
        if (site->code != code || site->instruction == WHOLE || !may_open(site)) {
            continue;
        }
        site->state = OPEN;
        site->least = site->elements;
        site->unseen = site->cold = site->won = site->lost = 0;
        site->ratio = INFINITY;
        site->loss = 0.0;
        taking++;
        floors->judging++;
    }
}

void end_work(SiteWork work)
{
    Site *site = work.site;
    if (site == NULL || PyErr_Occurred()) { /* what failed is not like the work that comes again */
        return;
    }
    double seconds = now_seconds() - work.began, each = seconds / (double)work.elements;
    if (site->elements != work.elements || site->per_element == 0.0) {
        site->per_element = each;
    } else { /* what disturbs one run counts as twice as long at most */
        site->per_element += 0.2 * (fmin(each, 2.0 * site->per_element) - site->per_element);
    }
    site->elements = work.elements;
    site->seconds += seconds;
    if (++site->runs < FIRST || !work.lowers) {
        return;
    }
    Site *whole = site_at(site->code, WHOLE, true);
    if (whole == NULL) {
        return;
    }
    whole->seconds += seconds;
    if (!may_open(site)) {
        return;
    }
    if (floors->kept > 0) {
        meet_large(); /* what plans is loaded first */
    } else {
        open_sites(site->code);
    }
}

static bool reads(Value *value, Value *other)
{
    for (Py_ssize_t i = 0; PyTuple_CheckExact(value->operands) && i < PyTuple_GET_SIZE(value->operands); i++) {
        if (PyTuple_GET_ITEM(value->operands, i) == (PyObject *)other) {
            return true;
        }
    }
    return false;
}

/* Tell whether a value is of another call than the one recorded before it at the same site: what the core records is one
   a call; what Python does may be several, but does not go on with the same op. */
static bool is_next_turn(Value *value, Value *before)
{
    return value->code != NULL || (value->op == before->op && reads(value, before));
}

/* The elements an op goes through: the most of its result and its operands. */
static npy_intp elements_of(Value *value)
{
    npy_intp most = is_layout(value->layout) ? ((Layout *)value->layout)->size : 0;
    for (Py_ssize_t i = 0; PyTuple_CheckExact(value->operands) && i < PyTuple_GET_SIZE(value->operands); i++) {
        PyObject *item = PyTuple_GET_ITEM(value->operands, i);
        PyObject *layout = is_value(item) ? ((Value *)item)->layout : NULL;
        npy_intp size = layout != NULL && is_layout(layout) ? ((Layout *)layout)->size : 0;
        most = size > most ? size : most;
    }
    return most;
}

/* Return, borrowed, the code that recorded a value, and find its instruction; NULL: it is not known. */
static PyObject *place_of(Value *value, int *instruction)
{
    if (!is_value((PyObject *)value)) {
        return NULL;
    }
    PyObject *code = value->code, *site = value->site;
    *instruction = value->instruction;
    if (code == NULL && site != NULL && PyTuple_CheckExact(site) && PyTuple_GET_SIZE(site) == 2 && PyLong_CheckExact(PyTuple_GET_ITEM(site, 1))) {
        code = PyTuple_GET_ITEM(site, 0);
        *instruction = (int)PyLong_AsLong(PyTuple_GET_ITEM(site, 1));
    }
    return *instruction == WHOLE ? NULL : code;
}

/* Note of a request that its plan left all of it to NumPy (``vain``), or gained by kernels. */
PyObject *floor_planned(Floor *self, PyObject *const *args, Py_ssize_t nargs)
{
    static unsigned long number;
    Py_ssize_t first = nargs == 3 ? PyNumber_AsSsize_t(args[1], NULL) : -1;
    int vain = nargs == 3 ? PyObject_IsTrue(args[2]) : -1;
    if (first < 0 || vain < 0 || !PyList_CheckExact(args[0])) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "planned() takes a list of values, how many of them are inputs, and whether it was in vain");
        return NULL;
    }
    Py_ssize_t least;
    if (!floor_in_force(&least)) {
        return NULL;
    }
    if (!may_lower(least)) {
        Py_RETURN_NONE;
    }
    number++;
    for (Py_ssize_t i = first; i < PyList_GET_SIZE(args[0]); i++) {
        Value *value = (Value *)PyList_GET_ITEM(args[0], i);
        int instruction;
        PyObject *code = place_of(value, &instruction);
        Site *site = code == NULL ? NULL : site_at(code, instruction, true);
        if (site == NULL || site->vain == GAINED) {
            continue;
        }
        if (!vain) {
            site->vain = GAINED;
            continue;
        }
        site->vain += site->vain_request != number;
        site->vain_request = number;
        npy_intp elements = elements_of(value);
        if (site->vain >= IN_VAIN && elements > site->most) {
            raised += site->most == 0;
            site->most = elements;
        }
    }
    Py_RETURN_NONE;
}

/* Have all sites recorded again whose requests were in vain: plans may become others. */
PyObject *floor_replan(Floor *self, PyObject *unused)
{
    for (Py_ssize_t i = 0; i < SITES; i++) {
        sites[i].vain = 0;
        sites[i].most = 0;
    }
    raised = 0;
    Py_RETURN_NONE;
}

/* Return what NumPy would take for a request, by what it took at its sites; 0.0 where it says nothing of what is on trial. */
PyObject *floor_expected(Floor *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t first = nargs == 2 ? PyNumber_AsSsize_t(args[1], NULL) : -1;
    if (nargs != 2 || first < 0 || !PyList_CheckExact(args[0])) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected() takes a list of values and how many of them are inputs");
        return NULL;
    }
    bool judged = false, rehearses = false;
    double seconds = 0.0;
    npy_intp most = 0;
    Site *before = NULL;
    Value *latest = NULL;
    in_request_count = 0;
    request_number++;
    for (Py_ssize_t i = first; i < PyList_GET_SIZE(args[0]) && in_request_count < MOST_OPS; i++) {
        Value *value = (Value *)PyList_GET_ITEM(args[0], i);
        int instruction;
        PyObject *code = place_of(value, &instruction);
        npy_intp elements = is_value((PyObject *)value) ? elements_of(value) : 0;
        most = elements > most ? elements : most;
        if (code == NULL) {
            continue;
        }
        Site *site = site_at(code, instruction, false);
        if (site == NULL) {
            seconds += floors->addition * (double)elements;
        } else if (site->request != request_number) {
            site->request = request_number;
            site->unseen = 0;
            judged = judged || site->state == OPEN;
            rehearses = rehearses || (site->state == OPEN && site->cold < REHEARSED);
            in_request[in_request_count++] = site;
        }
        if (site != NULL) {
            if (site != before || is_next_turn(value, latest)) {
                seconds += site->per_element * (double)elements;
            }
            before = site;
            latest = value;
        }
        seconds -= RECORDED_SECONDS;
    }
    request_numpy_seconds = seconds;
    request_strays = !judged && most < self->automatic;
    self->rehearses = rehearses;
    if (judged) {
        on_trial_count = in_request_count;
        memcpy(on_trial, in_request, (size_t)in_request_count * sizeof(Site *));
    }
    return PyFloat_FromDouble(judged || request_strays ? fmax(seconds, 1e-9) : 0.0);
}

/* Have an open site be NumPy's where its trial has lost more than it may: until NumPy has taken as long again. */
static bool gives_up(Site *site)
{
    Site *whole = site_at(site->code, WHOLE, false);
    double seconds = whole == NULL ? 0.0 : whole->seconds;
    if (site->loss <= LOSS_SHARE * seconds) {
        return false;
    }
    site->price = 2.0 * seconds;
    leave(site, CLOSED);
    return true;
}

/* Count a request of an open site before kernels have run there. */
static void rehearse(Site *site, bool gains)
{
    if (++site->cold > MADE_READY && site->cold <= REHEARSED) {
        *(gains ? &site->won : &site->lost) += 1;
    }
    if (site->cold == REHEARSED && site->lost > (REHEARSED - MADE_READY) / 2) {
        leave(site, SHUT);
    } else if (site->cold >= REHEARSED && !gives_up(site) && site->cold == REHEARSED) {
        site->won = site->lost = 0;
    }
}

/* Note what the request took that was asked about last, and how much of it its steps did; ``least``: the seconds that its
   kernels are predicted to take at least, negative where it has none; ``cold``: NumPy stood in for them. True where its
   sites have lost, and kernels of theirs have run. */
PyObject *floor_took(Floor *self, PyObject *const *args, Py_ssize_t nargs)
{
    double given[3];
    int cold = nargs == 4 ? PyObject_IsTrue(args[3]) : -1;
    for (int i = 0; i < 3 && cold >= 0 && !PyErr_Occurred(); i++) {
        given[i] = PyFloat_AsDouble(args[i]);
    }
    if (cold < 0 || PyErr_Occurred()) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "took() takes seconds, those of steps, the least of kernels, and whether NumPy stood in");
        return NULL;
    }
    double taken = given[0], steps = given[1], least = given[2];
    for (Py_ssize_t i = 0; request_strays && i < on_trial_count; i++) {
        Site *site = on_trial[i];
        if (site->state == OPEN) {
            site->loss += fmax(0.0, taken - fmax(request_numpy_seconds, 0.0));
            if (site->ratio == INFINITY && gives_up(site)) { /* before its kernels have changed a bit */
                site->state = SHUT;
            }
        }
    }
    bool lost = false, kernels = least >= 0.0;
    double numpy_seconds = fmax(request_numpy_seconds, 1e-9), ratio = taken / numpy_seconds;
    for (Py_ssize_t i = 0; i < in_request_count; i++) {
        Site *site = in_request[i];
        if (site->state != OPEN) {
            continue;
        }
        if (taken > numpy_seconds) { /* more than twice as much is of a first time */
            bool first = site->cold + site->won + site->lost < MADE_READY;
            site->loss += first ? fmin(taken - numpy_seconds, numpy_seconds) : taken - numpy_seconds;
        }
        if (cold || (!kernels && site->ratio == INFINITY)) {
            rehearse(site, kernels && taken - steps + least < numpy_seconds);
            continue;
        }
        site->ratio = ratio < site->ratio ? ratio : site->ratio;
        *(kernels && ratio <= 1.0 ? &site->won : &site->lost) += 1;
        if (site->lost >= JUDGED / 2) {
            lost = true;
        } else if (site->won > JUDGED / 2) {
            /* Fewer elements take it no longer, so it breaks even where NumPy takes as long. */
            npy_intp fewest = (npy_intp)(site->ratio * (double)site->elements);
            site->least = fewest > COUNTED ? fewest : COUNTED;
            site->state = WON;
            floors->judging--;
        }
    }
    return PyBool_FromLong(lost);
}

/* Leave the sites of the request asked about last to NumPy that have lost; ``kept``: go on with them, whose bits are
   not to change. */
PyObject *floor_shut(Floor *self, PyObject *kept)
{
    int keep = PyObject_IsTrue(kept);
    for (Py_ssize_t i = 0; keep >= 0 && i < in_request_count; i++) {
        Site *site = in_request[i];
        if (site->state == OPEN && site->ratio < INFINITY && site->lost >= JUDGED / 2) {
            if (keep) {
                site->state = WON;
                floors->judging--;
            } else {
                leave(site, SHUT);
            }
        }
    }
    return keep < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *floor_sites(Floor *self, PyObject *unused)
{
    static const char *const states[] = {"numpy", "open", "recorded", "lost"};
    PyObject *rows = PyList_New(0);
    for (Py_ssize_t i = 0; rows != NULL && i < SITES; i++) {
        Site *site = &sites[i];
        if (site->code == NULL || site->instruction == WHOLE) {
            continue;
        }
        PyObject *row = Py_BuildValue(
            "OiLndsOd", site->code, site->instruction, site->runs, site->elements, site->seconds, states[site->state],
            site->row == NULL ? Py_None : site->row, site->predicted);
        if (row == NULL || PyList_Append(rows, row) < 0) {
            Py_CLEAR(rows);
        }
        Py_XDECREF(row);
    }
    return rows;
}

PyObject *floor_forget(Floor *self, PyObject *unused)
{
    PyObject *dropped = PyList_New(0);
    for (Py_ssize_t i = 0; dropped != NULL && i < SITES; i++) {
        PyObject *code = sites[i].code, *row = sites[i].row;
        sites[i] = (Site){0};
        if (code != NULL) {
            PyList_Append(dropped, code); /* and none is freed amid this */
            Py_DECREF(code);
            Py_XDECREF(row);
        }
    }
    used = taking = raised = in_request_count = on_trial_count = 0;
    floors->judging = 0;
    Py_XDECREF(dropped);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}
