/* Blocks that came back are kept for later results: which, how many, for how long. */
#include "kept_blocks.h"
#include "clock.h"
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
/* What nobody asked for in so many ticks goes: within a second all that a program has dropped is the system's again.
   To have 640 MB anew takes 45 ms (huge pages), a ninth of the least time that they were not wanted. */
#define TICK_NANOSECONDS 200000000L
#define UNWANTED_TICKS 3
/* What results have and what is kept are together no more than results had at most, now or in the last so many ticks
   or in as many before: what is kept adds nothing to what the program needs. Beyond that is room for small ones, of the
   64 MB over NumPy's memory that are promised the part that the C library's heap leaves (buffers.c). With 32 MiB a
   program that makes and drops arrays had 3 % more at its peak, and took no less time. What lies idle in the C
   library's heap, where NumPy makes its results, counts as kept: both at once are more than NumPy has. */
#define PEAK_TICKS 5
#define SLACK ((size_t)16 << 20)
/* Among so many of the oldest blocks one is looked for whose pages a new one can have. */
#define LOOKED_AT 16
struct Kept kept = {.share = SIZE_MAX};

uint32_t class_of(size_t size, size_t *capacity)
{
    uint32_t power = 0, rounded = 0;
    while ((size >> power) > 1) power++;
    size_t step = ((size_t)1 << power) / STEPS;
    if (step < PAGE) step = PAGE;
    *capacity = (size + step - 1) / step * step;
    while ((*capacity >> rounded) > 1) rounded++;
    return rounded * STEPS + (uint32_t)((*capacity - ((size_t)1 << rounded)) / step);
}

Block *map_block(size_t capacity, uint32_t class)
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

void unmap_block(Block *block)
{
    SHOW_BYTES(DATA(block), block->capacity); /* who maps these addresses next knows nothing of ours */
#ifdef _WIN32
    PyMem_RawFree(block->start);
#else
    munmap(block->start, block->whole);
#endif
}

#ifdef MREMAP_FIXED
/* Unmap a block but for so many bytes of its data, whose addresses may be anybody's by now: other threads map memory
   without a lock of ours. */
static void unmap_around(Block *block, size_t bytes)
{
    char *start = block->start, *end = start + block->whole, *data = DATA(block);
    munmap(data + bytes, (size_t)(end - data) - bytes);
    munmap(start, (size_t)(data - start)); /* where the header stands */
}
#endif

/* Let a block have the pages of another, which goes: no page of theirs is touched anew. Return the block; NULL, and it
   is gone, too, where they cannot be moved. */
Block *move_pages(Block *block, Block *other)
{
#ifdef MREMAP_FIXED
    size_t bytes = block->capacity < other->capacity ? block->capacity : other->capacity;
    SHOW_BYTES(DATA(other), other->capacity);
    if (mremap(DATA(other), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, DATA(block)) != MAP_FAILED) {
        unmap_around(other, bytes);
        return block;
    }
    /* So it is where the other's pages came from several and Linux is older than 6.17, which unmaps the block's own
       before. Where it does not, their addresses are lost: nobody can tell whose they are. */
    unmap_around(block, bytes);
    block = NULL;
#endif
    unmap_block(other);
    return block;
}

/* ---------------------------------------------------------------- what is kept; under the lock */

void unlink_block(Block *block)
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

void link_block(Block *block)
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

void now_live(size_t bytes)
{
    kept.living += bytes;
    if (kept.living > kept.peak) kept.peak = kept.living;
    if (kept.living > kept.most) kept.most = kept.living;
}

/* The bytes that may be kept beside what lives. */
static size_t room(void)
{
    size_t peak = kept.peak > kept.peak_before ? kept.peak : kept.peak_before;
    size_t idle = kept.idle > kept.idle_before ? kept.idle : kept.idle_before, had = peak - kept.living;
    return (had > idle ? had - idle : 0) + SLACK;
}

/* Take off a block whose pages another of so many bytes may have, as there is no room for both. */
Block *outgrown(size_t capacity)
{
    if (kept.held <= room()) return NULL;
    Block *block = kept.oldest;
    for (int i = 0; i < LOOKED_AT && block != NULL && block->capacity < capacity / 2; i++) block = block->newer;
    if (block == NULL) block = kept.oldest;
    unlink_block(block);
    return block;
}

void cool_blocks(void)
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

void trim(size_t most)
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
size_t allowed(bool all) { return kept.limit; }
void tend(void) {}
#else

static size_t share_of(size_t left) { return left == SIZE_MAX ? SIZE_MAX : left / SHARE + kept.held / SHARE; }

/* The bytes that may be kept now; ``all``: the machine is looked at, too. */
size_t allowed(bool all)
{
    if (all) {
        kept.memory_at = kept.given;
        kept.share = share_of(left_of_memory());
    }
    size_t most = share_of(left_by_limits());
    if (kept.share < most) most = kept.share;
    return most < kept.limit ? most : kept.limit;
}

/* Look at what lies idle in the heap, where there is more of ours than may be kept beside anything. What nobody uses
   there is given back, for good; what comes again is used, counts from then on, and is given back half as often each
   time. Looking takes 5 us, more where the heap has many pieces; a hundredth of the time may go there. */
static void look_at_heap(void)
{
    static double looks_at, trims_at, wait;
    struct timespec before, after;
    double began = now_seconds();
    size_t own = kept.held + kept.living;
    if (own <= SLACK || began < looks_at) return;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before); /* not what others had meanwhile */
    size_t idle = idle_heap(own);
    if (idle > SLACK && began >= trims_at) {
        wait = wait > 0 ? 2 * wait : PEAK_TICKS * TICK_NANOSECONDS * 1e-9;
        trims_at = began + wait;
        trim_heap();
    } else if (idle > kept.idle) {
        kept.idle = idle;
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    looks_at = began + 100 * ((double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec));
}

/* Give back what nobody wants, until nothing is left. */
static void *tending(void *unused)
{
    struct timespec tick = {0, TICK_NANOSECONDS};
    for (;;) {
        nanosleep(&tick, NULL);
        look_at_heap();
        PyThread_acquire_lock(kept.lock, WAIT_LOCK);
        if (++kept.ticks % PEAK_TICKS == 0) {
            kept.peak_before = kept.peak;
            kept.peak = kept.living;
            kept.idle_before = kept.idle;
            kept.idle = 0;
        }
        size_t most = allowed(true);
        bool over = kept.held == 0;
        if (over) {
            kept.tended = false;
            kept.peak = kept.peak_before = kept.living;
        }
        PyThread_release_lock(kept.lock);
        if (over) {
            trim_heap(); /* where NumPy had its results and temporaries, and a compiler its own */
            return NULL;
        }
        trim(most);
    }
}

void tend(void)
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
