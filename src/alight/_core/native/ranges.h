/* What kernels may touch, checked in debug builds (-DALIGHT_CHECK_RANGES, which tools/sanitize.py sets).

   Generated code and NumPy's are not instrumented: AddressSanitizer, which knows of each block where
   it begins and ends, is asked here, before they run, whether all from an operand's first byte that
   they reach to its last lies in one. Without the flag nothing of this is in the code. */
#ifndef ALIGHT_RANGES_H
#define ALIGHT_RANGES_H

#ifdef ALIGHT_CHECK_RANGES
#ifndef __SANITIZE_ADDRESS__
#error "ALIGHT_CHECK_RANGES asks AddressSanitizer where blocks end. Fix: add -fsanitize=address."
#endif
#include <sanitizer/asan_interface.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Of an operand: the address of its element 0, steps in bytes for each axis, bytes of an element. */
static inline void check_range(const char *who, int number, const char *first, int axes, const int64_t *dims,
                               const int64_t *strides, int64_t itemsize)
{
    const char *low = first, *high = first;
    for (int axis = 0; axis < axes; axis++) {
        if (dims[axis] <= 0) return; /* nothing is touched */
        int64_t reach = (dims[axis] - 1) * strides[axis];
        if (reach < 0) low += reach;
        else high += reach;
    }
    char *bad = __asan_region_is_poisoned((void *)low, (size_t)(high - low + itemsize));
    if (bad == NULL) return;
    fprintf(stderr, "%s: operand %d reaches from %p to %p (element 0 at %p), out of its block at %p\n", who, number,
            (const void *)low, (const void *)(high + itemsize), (const void *)first, (void *)bad);
    for (int axis = 0; axis < axes; axis++)
        fprintf(stderr, "  axis %d: %lld steps of %lld bytes\n", axis, (long long)dims[axis], (long long)strides[axis]);
    __asan_describe_address(bad);
    abort();
}

#define HIDE_BYTES(data, count) ASAN_POISON_MEMORY_REGION(data, count)
#define SHOW_BYTES(data, count) ASAN_UNPOISON_MEMORY_REGION(data, count)
#else
#define HIDE_BYTES(data, count) ((void)0)
#define SHOW_BYTES(data, count) ((void)0)
#endif

#endif
