/* The clock, in seconds. */
#ifndef ALIGHT_CLOCK_H
#define ALIGHT_CLOCK_H

#ifdef _WIN32
#include <windows.h>
#else
#include <time.h>
#endif

static inline double now_seconds(void)
{
#ifdef _WIN32
    LARGE_INTEGER count, frequency;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&frequency);
    return (double)count.QuadPart / (double)frequency.QuadPart;
#else
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
#endif
}

#endif
