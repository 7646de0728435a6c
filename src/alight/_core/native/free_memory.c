/* How much memory this process may still have. */
#include "core.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#ifndef _WIN32
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Read the beginning of a file; false where there is none. */
static bool read_file(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t length = read(file, text, size - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
    return length > 0;
}

static bool read_bytes(const char *folder, const char *name, size_t *bytes)
{
    char path[2048], text[32], *end;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
    if (!read_file(path, text, sizeof text)) return false;
    *bytes = (size_t)strtoull(text, &end, 10);
    return end != text && *bytes < SIZE_MAX / 4; /* "max", or 2^63 less a page: there is no limit */
}

static void lower(Memory *memory, size_t limit, size_t used)
{
    size_t left = limit > used ? limit - used : 0;
    if (limit < memory->most) memory->most = limit;
    if (left < memory->left) memory->left = left;
}

/* Count the limit of a soft resource of which so many pages are used, the number so far along in statm. */
static void count_resource(Memory *memory, int resource, int place)
{
    struct rlimit limit;
    char text[128], *next = text;
    size_t pages = 0;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    if (!read_file("/proc/self/statm", text, sizeof text)) return;
    for (int i = 0; i <= place; i++) pages = (size_t)strtoull(next, &next, 10);
    lower(memory, (size_t)limit.rlim_cur, pages * (size_t)sysconf(_SC_PAGESIZE));
}

/* What the limits of this process leave. Linux counts for RLIMIT_DATA what statm calls data, but for stacks. */
size_t left_by_limits(void)
{
    Memory memory = {SIZE_MAX, SIZE_MAX};
    count_resource(&memory, RLIMIT_AS, 0);
    count_resource(&memory, RLIMIT_DATA, 5);
    return memory.left;
}

/* Read what a control group's memory holds of files that were not read again of late: it counts as used, and goes once
   somebody asks for memory. */
static size_t read_idle_files(const char *folder, const char *name)
{
    char path[1024 + 64], text[8192], *line;
    if (snprintf(path, sizeof path, "%s/memory.stat", folder) >= (int)sizeof path) return 0;
    if (!read_file(path, text, sizeof text) || (line = strstr(text, name)) == NULL) return 0;
    return (size_t)strtoull(line + strlen(name), NULL, 10);
}

/* Count the limits of a control group and of all that it is within, whose own hold for it. In a container the path may
   be one of the machine's that is not seen: what is not there has no limit, and the root is the container's. */
static void count_groups(Memory *memory, const char *root, char *path, const char *limit, const char *usage,
                         const char *files)
{
    char folder[1024];
    size_t most, used;
    for (;;) {
        if (snprintf(folder, sizeof folder, "%s%s", root, path) < (int)sizeof folder &&
            read_bytes(folder, limit, &most) && read_bytes(folder, usage, &used)) {
            size_t idle = read_idle_files(folder, files);
            lower(memory, most, used > idle ? used - idle : 0);
        }
        char *end = strrchr(path, '/');
        if (end == NULL) return;
        *end = 0;
    }
}

static void count_control_groups(Memory *memory)
{
    char text[4096], path[1024];
    if (!read_file("/proc/self/cgroup", text, sizeof text)) text[0] = 0;
    /* Lines are of a number, the names of what is controlled, and the group: "4:memory:/a/b"; version 2 has no names. */
    for (char *line = text, *end; line != NULL && *line; line = end) {
        if ((end = strchr(line, '\n')) != NULL) *end++ = 0;
        char *names = strchr(line, ':'), *group = names == NULL ? NULL : strchr(names + 1, ':');
        if (group == NULL || strlen(group + 1) >= sizeof path) continue;
        *group++ = 0;
        strcpy(path, strcmp(group, "/") == 0 ? "" : group);
        if (names[1] == 0) {
            count_groups(memory, "/sys/fs/cgroup", path, "memory.max", "memory.current", "\ninactive_file ");
        } else if (strstr(names, "memory") != NULL) {
            count_groups(memory, "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes",
                         "\ntotal_inactive_file ");
        }
    }
}

/* What the machine has free, and the control groups leave. */
size_t left_of_memory(void)
{
    char text[512], *line;
    Memory memory = {SIZE_MAX, SIZE_MAX};
    if (read_file("/proc/meminfo", text, sizeof text) && (line = strstr(text, "MemAvailable:")) != NULL)
        memory.left = (size_t)strtoull(line + 13, NULL, 10) << 10;
    count_control_groups(&memory);
    return memory.left;
}

Memory limits_of_memory(void)
{
    Memory memory = {SIZE_MAX, SIZE_MAX};
    count_resource(&memory, RLIMIT_AS, 0);
    count_resource(&memory, RLIMIT_DATA, 5);
    count_control_groups(&memory);
    return memory;
}
#else
Memory limits_of_memory(void) { return (Memory){SIZE_MAX, SIZE_MAX}; }
#endif

PyObject *memory_limits(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    Memory memory = limits_of_memory();
    return Py_BuildValue("KK", (unsigned long long)memory.left, (unsigned long long)memory.most);
}

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
