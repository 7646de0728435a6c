/* Memory of a device: buffers, and shelves of pieces that come back and are given again. */
#include "device.h"

/* ---------------------------------------------------------------- how much may be kept */

static PyObject *stock_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"most", NULL};
    long long most;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "L:Stock", names, &most)) return NULL;
    Stock *self = (Stock *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->most = most;
    self->open = 1;
    return (PyObject *)self;
}

static PyMemberDef stock_members[] = {
    {"held", T_LONGLONG, offsetof(Stock, held), READONLY, NULL},
    {"most", T_LONGLONG, offsetof(Stock, most), 0, NULL},
    {"open", T_BOOL, offsetof(Stock, open), 0, NULL},
    {NULL},
};

PyTypeObject StockType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Stock",
    .tp_doc = "How many bytes the shelves of a device hold, and may hold; ``open``: it can be used.",
    .tp_basicsize = sizeof(Stock),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_members = stock_members,
    .tp_new = stock_new,
};

/* ---------------------------------------------------------------- shelves */

static PyObject *shelf_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stock", "nbytes", "device", NULL};
    PyObject *stock, *device;
    Py_ssize_t nbytes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!nU:Shelf", names, &StockType, &stock, &nbytes, &device)) return NULL;
    Shelf *self = (Shelf *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->stock = (Stock *)Py_NewRef(stock);
    self->device = Py_NewRef(device);
    self->nbytes = nbytes;
    return (PyObject *)self;
}

DeviceBuffer *shelf_take(Shelf *self, Py_ssize_t nbytes)
{
    if (self->count == 0 || !self->stock->open) return NULL;
    DeviceBuffer *buffer = PyObject_New(DeviceBuffer, &DeviceBufferType);
    if (buffer == NULL) return NULL;
    Piece piece = self->pieces[--self->count];
    self->stock->held -= self->nbytes;
    buffer->weakrefs = NULL;
    buffer->memory = piece.memory;
    buffer->address = piece.address;
    buffer->device = Py_NewRef(self->device);
    buffer->shelf = (Shelf *)Py_NewRef((PyObject *)self);
    buffer->nbytes = nbytes;
    return buffer;
}

/* Keep a piece, whose reference is taken over; false where it may not be kept. */
static bool shelf_put(Shelf *self, PyObject *memory, uint64_t address)
{
    Stock *stock = self->stock;
    if (self->count == PIECES || !stock->open || stock->held + self->nbytes > stock->most) return false;
    self->pieces[self->count].memory = memory;
    self->pieces[self->count++].address = address;
    stock->held += self->nbytes;
    return true;
}

static PyObject *shelf_clear(Shelf *self, PyObject *Py_UNUSED(none))
{
    while (self->count > 0) {
        PyObject *memory = self->pieces[--self->count].memory;
        self->stock->held -= self->nbytes;
        Py_DECREF(memory); /* last: it may run other code */
    }
    Py_RETURN_NONE;
}

static PyObject *shelf_take_method(Shelf *self, PyObject *given)
{
    Py_ssize_t nbytes = PyLong_AsSsize_t(given);
    if (nbytes < 0 && PyErr_Occurred()) return NULL;
    if (nbytes > self->nbytes) {
        PyErr_Format(PyExc_ValueError, "%zd bytes of a shelf with pieces of %zd", nbytes, self->nbytes);
        return NULL;
    }
    PyObject *buffer = (PyObject *)shelf_take(self, nbytes);
    return buffer != NULL || PyErr_Occurred() ? buffer : Py_NewRef(Py_None);
}

static void shelf_dealloc(Shelf *self)
{
    Py_XDECREF(shelf_clear(self, NULL));
    Py_XDECREF((PyObject *)self->stock);
    Py_XDECREF(self->device);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef shelf_methods[] = {
    {"take", (PyCFunction)shelf_take_method, METH_O, "Return a buffer of so many bytes, or None where no piece is here."},
    {"clear", (PyCFunction)shelf_clear, METH_NOARGS, "Give every piece back to whoever gave it."},
    {NULL},
};

static PyMemberDef shelf_members[] = {
    {"nbytes", T_PYSSIZET, offsetof(Shelf, nbytes), READONLY, NULL},
    {"count", T_INT, offsetof(Shelf, count), READONLY, NULL},
    {NULL},
};

PyTypeObject ShelfType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Shelf",
    .tp_doc = "Pieces of one size that buffers have left, for the next ones.",
    .tp_basicsize = sizeof(Shelf),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = (destructor)shelf_dealloc,
    .tp_methods = shelf_methods,
    .tp_members = shelf_members,
    .tp_new = shelf_new,
};

/* ---------------------------------------------------------------- buffers */

static PyObject *buffer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"memory", "nbytes", "device", "shelf", NULL};
    PyObject *memory, *device, *shelf = Py_None;
    Py_ssize_t nbytes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OnU|O:DeviceBuffer", names, &memory, &nbytes, &device, &shelf)) return NULL;
    if (shelf != Py_None && !expect_type(shelf, &ShelfType, "shelf")) return NULL;
    PyObject *place = PyObject_GetAttrString(memory, "ptr");
    if (place == NULL) return NULL;
    unsigned long long address = PyLong_AsUnsignedLongLong(place);
    Py_DECREF(place);
    if (address == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
    DeviceBuffer *self = PyObject_New(DeviceBuffer, type);
    if (self == NULL) return NULL;
    self->weakrefs = NULL;
    self->memory = Py_NewRef(memory);
    self->device = Py_NewRef(device);
    self->shelf = shelf == Py_None ? NULL : (Shelf *)Py_NewRef(shelf);
    self->address = address;
    self->nbytes = nbytes;
    return (PyObject *)self;
}

static void buffer_dealloc(DeviceBuffer *self)
{
    if (self->weakrefs != NULL) PyObject_ClearWeakRefs((PyObject *)self);
    PyObject *memory = self->memory, *device = self->device;
    Shelf *shelf = self->shelf;
    uint64_t address = self->address;
    PyObject_Free(self);
    if (shelf == NULL || address == 0 || !shelf_put(shelf, memory, address)) Py_DECREF(memory);
    Py_XDECREF((PyObject *)shelf);
    Py_DECREF(device);
}

static PyObject *buffer_free(DeviceBuffer *self, PyObject *Py_UNUSED(none))
{
    PyObject *memory = self->memory;
    self->memory = Py_NewRef(Py_None);
    self->address = 0;
    Py_DECREF(memory);
    Py_RETURN_NONE;
}

static PyMethodDef buffer_methods[] = {
    {"free", (PyCFunction)buffer_free, METH_NOARGS, "Give the memory back."},
    {NULL},
};

static PyMemberDef buffer_members[] = {
    {"memory", T_OBJECT_EX, offsetof(DeviceBuffer, memory), READONLY, NULL},
    {"device", T_OBJECT_EX, offsetof(DeviceBuffer, device), READONLY, NULL},
    {"address", T_ULONGLONG, offsetof(DeviceBuffer, address), READONLY, NULL},
    {"nbytes", T_PYSSIZET, offsetof(DeviceBuffer, nbytes), READONLY, NULL},
    {NULL},
};

PyTypeObject DeviceBufferType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.DeviceBuffer",
    .tp_doc = "Device memory; it goes back when the buffer is dropped or freed.",
    .tp_basicsize = sizeof(DeviceBuffer),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = (destructor)buffer_dealloc,
    .tp_weaklistoffset = offsetof(DeviceBuffer, weakrefs),
    .tp_methods = buffer_methods,
    .tp_members = buffer_members,
    .tp_new = buffer_new,
};
