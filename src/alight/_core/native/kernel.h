/* Generated kernels, as the core calls them. */
#ifndef ALIGHT_KERNEL_H
#define ALIGHT_KERNEL_H

#include <stdint.h>

typedef void (*Kernel)(void **addresses, int64_t *dims, int64_t *strides);

#define OPERANDS 256   /* of a kernel, whose addresses fit the stack; more go by the slow way. */
#define UNLOCKED 32768 /* elements: giving up the GIL and taking it back costs some 0.1 us, a kernel this long 10 us */

#endif
