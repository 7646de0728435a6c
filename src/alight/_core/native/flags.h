/* This thread's floating-point flags, as far as NumPy warns of them by default. */
#ifndef ALIGHT_FLAGS_H
#define ALIGHT_FLAGS_H

#include <Python.h>

#include "kernel.h"

/* Generated code computes in vector registers, whose flags are read ten times faster alone than with
   those of the old unit beside them. */
#if defined(__SSE2__) || defined(_M_X64)
#include <xmmintrin.h>
#define WATCHED (_MM_EXCEPT_INVALID | _MM_EXCEPT_DIV_ZERO | _MM_EXCEPT_OVERFLOW)
#define FLAG_DIVIDE _MM_EXCEPT_DIV_ZERO
#define FLAG_OVER _MM_EXCEPT_OVERFLOW
#define FLAG_INVALID _MM_EXCEPT_INVALID
static inline void clear_flags(void) { _mm_setcsr(_mm_getcsr() & ~(unsigned)_MM_EXCEPT_MASK); }
static inline int raised_flags(void) { return (int)(_mm_getcsr() & WATCHED); }
#else
#include <fenv.h>
#define FLAG_DIVIDE FE_DIVBYZERO
#define FLAG_OVER FE_OVERFLOW
#define FLAG_INVALID FE_INVALID
static inline void clear_flags(void) { feclearexcept(FE_ALL_EXCEPT); }
static inline int raised_flags(void) { return fetestexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW); }
#endif

/* Run a kernel, without the interpreter's lock where it is long; return what it raised where that is watched. */
static inline int run_watched(Kernel kernel, void **operands, int64_t *dims, int64_t *strides, int watched, int unlocked)
{
    PyThreadState *state = unlocked ? PyEval_SaveThread() : NULL;
    if (watched) clear_flags();
    kernel(operands, dims, strides);
    int heard = watched ? raised_flags() : 0; /* before other code runs in this thread */
    if (state != NULL) PyEval_RestoreThread(state);
    return heard;
}

/* The flags of categories as alight/_core/guard.py numbers them. */
static inline int flags_of(int categories)
{
    return (categories & 1 ? FLAG_DIVIDE : 0) | (categories & 2 ? FLAG_OVER : 0) | (categories & 4 ? FLAG_INVALID : 0);
}

static inline int categories_of(int flags)
{
    return (flags & FLAG_DIVIDE ? 1 : 0) | (flags & FLAG_OVER ? 2 : 0) | (flags & FLAG_INVALID ? 4 : 0);
}

#endif
