/* How much memory this process may still have. */
#include "core.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#ifndef _WIN32
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Read the numbers at the beginning of a file; false where there are not so many. */
static bool read_file(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t length = read(file, text, size - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
    return length > 0;
}

static bool read_bytes(const char *path, size_t *bytes)
{
    char text[32], *end;
    if (!read_file(path, text, sizeof text)) return false;
    *bytes = (size_t)strtoull(text, &end, 10);
    return end != text; /* "max": there is no limit */
}

/* What the limits of this process leave. */
size_t left_by_limits(void)
{
    struct rlimit limit;
    char text[128], *next = text;
    size_t pages;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
    if (!read_file("/proc/self/statm", text, sizeof text)) return SIZE_MAX;
    pages = (size_t)strtoull(next, &next, 10);
    size_t used = pages * (size_t)sysconf(_SC_PAGESIZE);
    return limit.rlim_cur > used ? (size_t)limit.rlim_cur - used : 0;
}

/* What the machine has free, and the control group leaves (as host_memory() in alight/backends/machine.py). */
size_t left_of_memory(void)
{
    static const char *const groups[][2] = {
        {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"},
    };
    char text[512], *line;
    size_t left = SIZE_MAX, limit, usage;
    if (read_file("/proc/meminfo", text, sizeof text) && (line = strstr(text, "MemAvailable:")) != NULL)
        left = (size_t)strtoull(line + 13, NULL, 10) << 10;
    for (size_t i = 0; i < 2; i++) {
        if (!read_bytes(groups[i][0], &limit) || !read_bytes(groups[i][1], &usage)) continue;
        size_t rest = limit > usage ? limit - usage : 0;
        if (rest < left) left = rest;
    }
    return left;
}
#endif

/* glibc keeps what was freed below what lives on, in each thread's heap, as long as the process lives: 30 MB after a
   compiler has run. */
void trim_heap(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* What was given back within the heap counts as free to the C library, too: what it has, but no more than is resident
   beyond all that is in use. */
size_t idle_heap(size_t own)
{
#ifdef __GLIBC__
#if __GLIBC_PREREQ(2, 33)
    struct mallinfo2 heap = mallinfo2();
    size_t idle = heap.fordblks, used = heap.uordblks + heap.hblkhd + own;
#else
    struct mallinfo heap = mallinfo(); /* of 4 GiB and more, what is left over 4 GiB */
    size_t idle = (unsigned)heap.fordblks, used = (size_t)(unsigned)heap.uordblks + (unsigned)heap.hblkhd + own;
#endif
    char text[128], *next = text;
    if (!read_file("/proc/self/statm", text, sizeof text)) return 0;
    strtoull(next, &next, 10);
    size_t resident = (size_t)strtoull(next, &next, 10);
    resident = (resident - (size_t)strtoull(next, &next, 10)) * (size_t)sysconf(_SC_PAGESIZE);
    size_t rest = resident > used ? resident - used : 0;
    return idle < rest ? idle : rest;
#else
    (void)own;
    return 0;
#endif
}
