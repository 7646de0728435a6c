/* Memory of a device and launches on it. */
#ifndef ALIGHT_DEVICE_H
#define ALIGHT_DEVICE_H

#include "core.h"

#include <stdint.h>

#define PIECES 8  /* what a shelf keeps: a loop needs one piece, or as many as it has results before it drops one */

typedef struct {
    PyObject_HEAD
    long long held, most;
    char open;
} Stock;

typedef struct {
    PyObject *memory;
    uint64_t address;
} Piece;

typedef struct {
    PyObject_HEAD
    Stock *stock;
    PyObject *device;
    Py_ssize_t nbytes;
    int count;
    Piece pieces[PIECES];
} Shelf;

typedef struct {
    PyObject_HEAD
    PyObject *weakrefs, *memory, *device;
    Shelf *shelf;         /* NULL: the memory goes back to whoever gave it */
    uint64_t address;     /* 0: freed */
    Py_ssize_t nbytes;
} DeviceBuffer;

typedef struct Launches Launches;

extern PyTypeObject StockType, ShelfType, DeviceBufferType, LaunchesType, DeviceCallType;

/* device.c */
DeviceBuffer *shelf_take(Shelf *self, Py_ssize_t nbytes);  /* a new reference; NULL: none there, or an error is set */

/* launches.c: how many operands it reads and makes; and launch for these: 1, or 0 where nothing was done, -1 for an
   error. ``made`` gets new references. */
Py_ssize_t launches_read(Launches *self);
Py_ssize_t launches_made(Launches *self);
int launches_go(Launches *self, DeviceBuffer *const *given, DeviceBuffer **made);

#endif
