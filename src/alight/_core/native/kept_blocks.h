/* Blocks of host memory for results, and what is kept of them for later ones. */
#ifndef ALIGHT_KEPT_BLOCKS_H
#define ALIGHT_KEPT_BLOCKS_H
#include "core.h"

/* Below this glibc serves memory from its heap (M_MMAP_THRESHOLD's default, mallopt(3)), where pages
   stay touched; above it a block is mapped anew and pays page faults. */
#define LEAST_BYTES ((size_t)128 << 10)
/* From here on NumPy asks for huge pages, too (its default allocator). */
#define HUGE_BYTES ((size_t)4 << 20)
#define HUGE_PAGE ((size_t)2 << 20)
#define PAGE ((size_t)4096)
/* Limits of the process are looked at when so many bytes have come back (3 us, of 170 to write them), the machine's
   and the control group's at so many (30 us, of 10 ms), and all of them as often as the clock ticks. */
#define LOOK_LIMITS HUGE_BYTES
#define LOOK_MEMORY ((uint64_t)256 << 20)
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

extern struct Kept {
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
    size_t idle, idle_before;    /* the most seen idle in the C library's heap, in the ticks of each peak */
    bool tended;                 /* by a thread that gives back what nobody wants */
} kept;

#define DATA(block) ((char *)(block) + HEADER)
#define BLOCK(data) ((Block *)(void *)((char *)(data) - HEADER))

/* kept_blocks.c: how blocks are mapped; what is kept, under the lock; how much of it. */
uint32_t class_of(size_t size, size_t *capacity);
Block *map_block(size_t capacity, uint32_t class);
void unmap_block(Block *block);
Block *move_pages(Block *block, Block *other);
void unlink_block(Block *block);
void link_block(Block *block);
void now_live(size_t bytes);
Block *outgrown(size_t capacity);
void cool_blocks(void);
void trim(size_t most);
size_t allowed(bool all);
void tend(void);

#endif
