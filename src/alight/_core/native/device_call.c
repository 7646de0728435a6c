/* A call of a jitted function on arrays that lie on a device, from its arguments to its results. */
#include "device.h"
#include "kernel.h"

#include <string.h>

#define STARTED 8 /* fields of what is kept of a launch until the log is told */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *weakrefs;
    Launches *launches;  /* NULL: ``run`` does it */
    PyObject *run;       /* called with a list of buffers, it returns a list of those made */
    PyObject *failing;   /* errors of ``run`` that leave the call to ``otherwise`` */
    PyObject *pattern;   /* a tuple: a layout for an array, (layout, number) for the data of an array before it, (scalar,) for a scalar */
    PyObject *space;     /* of the device */
    PyObject *constants; /* pairs of data and buffer, behind the arguments */
    PyObject *results;   /* for each thing made: its layout, and the seconds that bringing it would take */
    PyObject *form;      /* a tuple: tuple or list, and which are in it; None: what is made first */
    PyObject *acquire, *release, *running, *fresh;
    PyObject *array, *started, *graph, *told, *reads, *errstate;
    PyObject *build, *otherwise;
    Py_ssize_t count, most, operands, made;
    int *order;          /* of each operand: which argument, or constant behind them */
    int single;          /* the form is None */
    unsigned long long calls, next; /* so far, and the one that is left to ``otherwise`` */
} DeviceCall;

#define OBJECTS(self) \
    {&self->otherwise, &self->run, &self->failing, &self->pattern, &self->space, &self->constants, &self->results, &self->form, \
     &self->acquire, &self->release, &self->running, &self->fresh, &self->array, &self->started, &self->graph, &self->told, \
     &self->reads, &self->errstate, &self->build}

static int device_call_traverse(DeviceCall *self, visitproc visit, void *arg)
{
    PyObject **const objects[] = OBJECTS(self);
    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) Py_VISIT(*objects[i]);
    Py_VISIT(self->launches);
    return 0;
}

static int device_call_clear(DeviceCall *self)
{
    PyObject **const objects[] = OBJECTS(self);
    /* ``otherwise`` is the first: what goes may call this, which then says that it is gone */
    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) Py_CLEAR(*objects[i]);
    Py_CLEAR(self->launches);
    return 0;
}

static void device_call_dealloc(DeviceCall *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) PyObject_ClearWeakRefs((PyObject *)self);
    device_call_clear(self);
    PyMem_Free(self->order);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* ---------------------------------------------------------------- arguments */

static bool same_scalar(PyObject *item, PyObject *own)
{
    if (item == own) return true;
    if (PyFloat_CheckExact(item) && PyFloat_CheckExact(own))
        return memcmp(&((PyFloatObject *)item)->ob_fval, &((PyFloatObject *)own)->ob_fval, sizeof(double)) == 0;
    return false; /* equal ones of other types are seen to elsewhere */
}

/* The data and the buffer of an array that is all of it, and that nobody else sees; false for any other. */
static bool lies_there(DeviceCall *self, PyObject *item, PyObject *layout, PyObject **found, DeviceBuffer **buffer)
{
    if (!PyObject_TypeCheck(item, &ArrayType)) return false;
    Array *array = (Array *)item;
    if (array->window != Py_None || storage_of(array) == NULL || !Py_IS_TYPE(array->storage, &StorageType)) return false;
    PyObject *value = ((Storage *)array->storage)->value;
    if (!is_value(value) || ((Value *)value)->layout != layout || ((Value *)value)->offset != 0) return false;
    PyObject *data = ((Value *)value)->data;
    if (!is_data(data) || ((Data *)data)->shared) return false;
    PyObject *remote = ((Data *)data)->remote;
    if (remote == NULL || !PyDict_CheckExact(remote)) return false;
    PyObject *lying = PyDict_GetItemWithError(remote, self->space);
    if (lying == NULL || !Py_IS_TYPE(lying, &DeviceBufferType) || ((DeviceBuffer *)lying)->address == 0) return false;
    *found = data;
    *buffer = (DeviceBuffer *)lying;
    return true;
}

/* Whether the arguments fit; ``datas`` and ``buffers`` get new references of each operand's. */
static bool fits(DeviceCall *self, PyObject *const *args, Py_ssize_t operands, PyObject **datas, DeviceBuffer **buffers)
{
    PyObject *own_data[OPERANDS] = {NULL};
    DeviceBuffer *own[OPERANDS];
    for (Py_ssize_t i = 0; i < self->count; i++) {
        PyObject *like = PyTuple_GET_ITEM(self->pattern, i);
        if (PyTuple_CheckExact(like) && PyTuple_GET_SIZE(like) == 1) {
            if (!same_scalar(args[i], PyTuple_GET_ITEM(like, 0))) return false;
        } else if (PyTuple_CheckExact(like)) {
            Py_ssize_t first = PyLong_AsSsize_t(PyTuple_GET_ITEM(like, 1));
            if (!lies_there(self, args[i], PyTuple_GET_ITEM(like, 0), &own_data[i], &own[i]) || own_data[i] != own_data[first]) return false;
        } else if (!lies_there(self, args[i], like, &own_data[i], &own[i])) {
            return false;
        }
    }
    for (Py_ssize_t i = 0; i < operands; i++) {
        Py_ssize_t number = self->order[i] - self->count;
        if (number < 0) {
            datas[i] = own_data[self->order[i]];
            buffers[i] = own[self->order[i]];
        } else {
            PyObject *pair = PyTuple_GET_ITEM(self->constants, number);
            datas[i] = PyTuple_GET_ITEM(pair, 0);
            buffers[i] = (DeviceBuffer *)PyTuple_GET_ITEM(pair, 1);
        }
    }
    for (Py_ssize_t i = 0; i < operands; i++) {
        Py_INCREF(datas[i]);
        Py_INCREF((PyObject *)buffers[i]);
    }
    return true;
}

/* Whether an argument is an array of another layout, or a window: a call for another program. */
static bool is_others(const DeviceCall *self, PyObject *const *args)
{
    for (Py_ssize_t i = 0; i < self->count; i++) {
        PyObject *like = PyTuple_GET_ITEM(self->pattern, i);
        if (PyTuple_CheckExact(like) && PyTuple_GET_SIZE(like) == 1) continue;
        if (!PyObject_TypeCheck(args[i], &ArrayType)) continue;
        Array *array = (Array *)args[i];
        if (array->window != Py_None) return true;
        if (storage_of(array) == NULL || !Py_IS_TYPE(array->storage, &StorageType)) continue;
        PyObject *value = ((Storage *)array->storage)->value;
        PyObject *layout = PyTuple_CheckExact(like) ? PyTuple_GET_ITEM(like, 0) : like;
        if (is_value(value) && ((Value *)value)->layout != layout) return true;
    }
    return false;
}

/* ---------------------------------------------------------------- results */

static PyObject *weak_of(PyObject *const *items, Py_ssize_t count)
{
    PyObject *made = PyTuple_New(count);
    for (Py_ssize_t i = 0; made != NULL && i < count; i++) {
        PyObject *weak = PyWeakref_NewRef(items[i], NULL);
        if (weak == NULL) Py_CLEAR(made);
        else PyTuple_SET_ITEM(made, i, weak);
    }
    return made;
}

/* Return the value of a result in a buffer, whose reference is taken over; ``data`` gets a new reference. */
static Value *value_over(DeviceCall *self, PyObject *layout, PyObject *buffer, PyObject **data)
{
    PyObject *remote = PyDict_New();
    if (remote == NULL || PyDict_SetItem(remote, self->space, buffer) < 0) {
        Py_XDECREF(remote);
        Py_DECREF(buffer);
        return NULL;
    }
    Py_DECREF(buffer);
    *data = data_of(layout, Py_None);
    if (*data == NULL) {
        Py_DECREF(remote);
        return NULL;
    }
    Py_SETREF(((Data *)*data)->remote, remote);
    Value *value = value_new(Py_None, Py_NewRef(empty_tuple), layout, self->errstate);
    if (value != NULL) Py_SETREF(value->data, Py_NewRef(*data));
    return value;
}

/* Keep what was launched for the log, and for whoever must do it again. */
static bool keep_started(DeviceCall *self, PyObject **datas, DeviceBuffer **buffers, Py_ssize_t operands, PyObject **made,
                         Py_ssize_t count)
{
    PyObject *sources = weak_of(datas, operands), *lying = weak_of((PyObject **)buffers, operands);
    PyObject *outputs = weak_of(made, count);
    PyObject *row = ((PyTypeObject *)self->started)->tp_alloc((PyTypeObject *)self->started, STARTED), *done = NULL;
    if (sources == NULL || lying == NULL || outputs == NULL || row == NULL) goto failed;
    PyTuple_SET_ITEM(row, 0, Py_NewRef(self->graph));
    PyTuple_SET_ITEM(row, 1, Py_NewRef(self->told));
    PyTuple_SET_ITEM(row, 2, Py_NewRef(Py_None));
    PyTuple_SET_ITEM(row, 3, Py_NewRef(Py_None));
    PyTuple_SET_ITEM(row, 4, sources);
    PyTuple_SET_ITEM(row, 5, lying);
    PyTuple_SET_ITEM(row, 6, Py_NewRef(self->reads));
    PyTuple_SET_ITEM(row, 7, Py_NewRef(outputs));
    sources = lying = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *seconds = PyTuple_GET_ITEM(PyTuple_GET_ITEM(self->results, i), 1);
        PyObject *pair = PyTuple_Pack(2, PyTuple_GET_ITEM(outputs, i), seconds);
        Py_ssize_t end = PyList_GET_SIZE(self->fresh);
        bool kept = pair != NULL && PyList_SetSlice(self->fresh, end, end, pair) == 0; /* both or none */
        Py_XDECREF(pair);
        if (!kept) goto failed;
    }
    done = PyObject_CallOneArg(self->running, row);
failed:
    Py_XDECREF(sources);
    Py_XDECREF(lying);
    Py_XDECREF(outputs);
    Py_XDECREF(row);
    Py_XDECREF(done);
    return done != NULL;
}

/* Return the results in the form the body gave them. */
static PyObject *formed(DeviceCall *self, PyObject *const *args, Value *const *values, Py_ssize_t count)
{
    PyTypeObject *type = (PyTypeObject *)self->array;
    if (self->single) return array_new(type, values[0]);
    if (PyTuple_CheckExact(self->form)) {
        PyObject *which = PyTuple_GET_ITEM(self->form, 1);
        Py_ssize_t length = PyTuple_GET_SIZE(which);
        bool tuple = PyTuple_GET_ITEM(self->form, 0) == (PyObject *)&PyTuple_Type;
        PyObject *result = tuple ? PyTuple_New(length) : PyList_New(length);
        for (Py_ssize_t i = 0; result != NULL && i < length; i++) {
            PyObject *item = array_new(type, values[PyLong_AsSsize_t(PyTuple_GET_ITEM(which, i))]);
            if (item == NULL) Py_CLEAR(result);
            else if (tuple) PyTuple_SET_ITEM(result, i, item);
            else PyList_SET_ITEM(result, i, item);
        }
        return result;
    }
    PyObject *given = PyTuple_New(self->count), *made = PyTuple_New(count), *result = NULL;
    if (given != NULL && made != NULL) {
        for (Py_ssize_t i = 0; i < self->count; i++) PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
        for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(made, i, Py_NewRef((PyObject *)values[i]));
        result = PyObject_CallFunctionObjArgs(self->build, given, made, NULL);
    }
    Py_XDECREF(given);
    Py_XDECREF(made);
    return result;
}

/* ---------------------------------------------------------------- a call */

/* Have ``run`` launch: 1, 0 where it failed in a way that others see to, -1 for an error. */
static int asked(DeviceCall *self, DeviceBuffer *const *buffers, DeviceBuffer **made)
{
    PyObject *given = PyList_New(self->operands);
    if (given == NULL) return -1;
    for (Py_ssize_t i = 0; i < self->operands; i++) PyList_SET_ITEM(given, i, Py_NewRef((PyObject *)buffers[i]));
    PyObject *found = PyObject_CallOneArg(self->run, given);
    Py_DECREF(given);
    if (found == NULL) {
        if (!PyErr_ExceptionMatches(self->failing) || is_interrupt()) return -1;
        PyErr_Clear();
        return 0;
    }
    bool right = PyList_CheckExact(found) && PyList_GET_SIZE(found) == self->made;
    for (Py_ssize_t i = 0; right && i < self->made; i++) right = Py_IS_TYPE(PyList_GET_ITEM(found, i), &DeviceBufferType);
    for (Py_ssize_t i = 0; right && i < self->made; i++) made[i] = (DeviceBuffer *)Py_NewRef(PyList_GET_ITEM(found, i));
    if (!right) PyErr_Format(PyExc_TypeError, "%R is no list of %zd buffers", found, self->made);
    Py_DECREF(found);
    return right ? 1 : -1;
}

/* Launch for operands that fit, with the lock: 1, 0 where nothing was done, -1 for an error. */
static int launched(DeviceCall *self, PyObject **datas, DeviceBuffer **buffers, Py_ssize_t operands, Value **values)
{
    DeviceBuffer *buffer[OPERANDS];
    PyObject *made[OPERANDS] = {NULL};
    Py_ssize_t count = self->made, done = 0;
    int status = self->launches != NULL ? launches_go(self->launches, buffers, buffer) : asked(self, buffers, buffer);
    if (status <= 0) return status;
    for (; done < count; done++) {
        PyObject *layout = PyTuple_GET_ITEM(PyTuple_GET_ITEM(self->results, done), 0);
        values[done] = value_over(self, layout, (PyObject *)buffer[done], &made[done]);
        if (values[done] == NULL) break;
    }
    if (done < count || !keep_started(self, datas, buffers, operands, made, count)) {
        status = -1;
        for (Py_ssize_t i = done + 1; i < count; i++) Py_DECREF((PyObject *)buffer[i]);
        while (done > 0) Py_DECREF((PyObject *)values[--done]);
    }
    for (Py_ssize_t i = 0; i < count; i++) Py_XDECREF(made[i]);
    return status;
}

/* Return the results; Py_NotImplemented, borrowed, where the call is for others. */
static PyObject *quickly(DeviceCall *self, PyObject *const *args)
{
    PyObject *datas[OPERANDS], *result = Py_NotImplemented;
    DeviceBuffer *buffers[OPERANDS];
    Value *values[OPERANDS];
    if (++self->calls >= self->next) return result;
    Py_ssize_t operands = self->operands, count = self->made;
    if (PyList_GET_SIZE(self->fresh) > self->most || !fits(self, args, operands, datas, buffers)) return result;
    PyObject *free = PyObject_CallOneArg(self->acquire, Py_False);
    int status = free == NULL ? -1 : 0;
    if (free == Py_True) {
        status = launched(self, datas, buffers, operands, values);
        PyObject *kind, *error, *trace;
        PyErr_Fetch(&kind, &error, &trace);
        PyObject *released = PyObject_CallNoArgs(self->release);
        Py_XDECREF(released);
        for (Py_ssize_t i = 0; released == NULL && status > 0 && i < count; i++) Py_DECREF((PyObject *)values[i]);
        if (released == NULL) status = -1;
        if (kind != NULL) PyErr_Restore(kind, error, trace);
    }
    Py_XDECREF(free);
    for (Py_ssize_t i = 0; i < operands; i++) {
        Py_DECREF(datas[i]);
        Py_DECREF((PyObject *)buffers[i]);
    }
    if (status < 0) return NULL;
    if (status == 0) return result;
    result = formed(self, args, values, count);
    for (Py_ssize_t i = 0; i < count; i++) Py_DECREF((PyObject *)values[i]);
    return result;
}

static PyObject *device_call_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *names)
{
    DeviceCall *self = (DeviceCall *)callable;
    if (self->otherwise == NULL) {
        PyErr_SetString(PyExc_ReferenceError, "the call's program is gone");
        return NULL;
    }
    if ((names == NULL || PyTuple_GET_SIZE(names) == 0) && PyVectorcall_NARGS(nargsf) == self->count) {
        PyObject *result = quickly(self, args);
        if (result != Py_NotImplemented) return result;
        if (is_others(self, args)) {
            self->calls--;
            return Py_NewRef(result);
        }
    }
    return PyObject_Vectorcall(self->otherwise, args, nargsf, names);
}

static bool read_order(DeviceCall *self, PyObject *order)
{
    Py_ssize_t count = PyTuple_GET_SIZE(order), constants = PyTuple_GET_SIZE(self->constants);
    Py_ssize_t made = PyTuple_GET_SIZE(self->results);
    bool right = self->launches == NULL ||
                 (count == launches_read(self->launches) && made == launches_made(self->launches));
    self->operands = count;
    self->made = made;
    if (!right || made == 0 || count > OPERANDS || made > OPERANDS || self->count > OPERANDS) {
        PyErr_Format(PyExc_ValueError, "%zd arguments, %zd operands and %zd results, of one at least and at most %d", self->count, count, made, OPERANDS);
        return false;
    }
    self->order = PyMem_Calloc((size_t)count + 1, sizeof(int));
    if (self->order == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < self->count; i++) {
        PyObject *like = PyTuple_GET_ITEM(self->pattern, i);
        if (!PyTuple_CheckExact(like) || PyTuple_GET_SIZE(like) == 1) continue;
        PyObject *layout;
        Py_ssize_t first;
        if (!PyArg_ParseTuple(like, "O!n", &LayoutType, &layout, &first)) return false;
        if (first < 0 || first >= i || PyTuple_CheckExact(PyTuple_GET_ITEM(self->pattern, first))) {
            PyErr_Format(PyExc_ValueError, "argument %zd has the data of %zd, which is no array before it", i, first);
            return false;
        }
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GET_ITEM(order, i));
        bool array = number >= 0 && number < self->count && !PyTuple_CheckExact(PyTuple_GET_ITEM(self->pattern, number));
        if (!array && !(number >= self->count && number < self->count + constants)) {
            if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "operand %zd is no array", number);
            return false;
        }
        self->order[i] = (int)number;
    }
    for (Py_ssize_t i = 0; i < constants; i++) {
        PyObject *data, *buffer;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(self->constants, i), "O!O!", &DataType, &data, &DeviceBufferType, &buffer)) return false;
    }
    for (Py_ssize_t i = 0; i < made; i++) {
        PyObject *layout, *seconds;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(self->results, i), "O!O!", &LayoutType, &layout, &PyFloat_Type, &seconds)) return false;
    }
    if (!self->single && PyTuple_CheckExact(self->form)) {
        PyObject *kind, *which;
        if (!PyArg_ParseTuple(self->form, "OO!", &kind, &PyTuple_Type, &which)) return false;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(which); i++) {
            Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GET_ITEM(which, i));
            if (number < 0 || number >= made) {
                if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "no result %zd", number);
                return false;
            }
        }
    }
    return true;
}

static PyObject *device_call_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"launches", "pattern", "space", "constants", "order", "results", "form", "lock", "running",
                            "fresh", "most", "failing", "array", "started", "row", "build", "otherwise", NULL};
    PyObject *launches, *pattern, *space, *constants, *order, *results, *form, *acquire, *release, *running, *fresh;
    PyObject *failing, *array, *started, *graph, *told, *reads, *errstate, *build, *otherwise;
    Py_ssize_t most;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OO!UO!O!O!O(OO)OO!nO!O!O!(OOOO)OO:DeviceCall", names, &launches, &PyTuple_Type, &pattern,
            &space, &PyTuple_Type, &constants, &PyTuple_Type, &order, &PyTuple_Type, &results, &form, &acquire, &release, &running,
            &PyList_Type, &fresh, &most, &PyTuple_Type, &failing, &PyType_Type, &array, &PyType_Type, &started, &graph, &told, &reads, &errstate,
            &build, &otherwise))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)array, &ArrayType) || !PyType_IsSubtype((PyTypeObject *)started, &PyTuple_Type)) {
        PyErr_Format(PyExc_TypeError, "%R is no class of arrays, or %R none of tuples", array, started);
        return NULL;
    }
    DeviceCall *self = (DeviceCall *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->vectorcall = device_call_vectorcall;
    if (Py_IS_TYPE(launches, &LaunchesType)) self->launches = (Launches *)Py_NewRef(launches);
    PyObject *const given[] = {otherwise, launches, failing, pattern, space, constants, results, form, acquire, release, running,
                               fresh, array, started, graph, told, reads, errstate, build};
    PyObject **const objects[] = OBJECTS(self);
    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) *objects[i] = Py_NewRef(given[i]);
    self->count = PyTuple_GET_SIZE(pattern);
    self->most = most;
    self->single = form == Py_None;
    if (!read_order(self, order)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyMemberDef device_call_members[] = {
    {"calls", T_ULONGLONG, offsetof(DeviceCall, calls), 0, NULL},
    {"next", T_ULONGLONG, offsetof(DeviceCall, next), 0, NULL},
    {NULL},
};

PyTypeObject DeviceCallType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.DeviceCall",
    .tp_doc = "A call on arrays that lie on a device; what takes more than this knows goes to ``otherwise``.",
    .tp_basicsize = sizeof(DeviceCall),
    .tp_dealloc = (destructor)device_call_dealloc,
    .tp_vectorcall_offset = offsetof(DeviceCall, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_traverse = (traverseproc)device_call_traverse,
    .tp_clear = (inquiry)device_call_clear,
    .tp_weaklistoffset = offsetof(DeviceCall, weakrefs),
    .tp_members = device_call_members,
    .tp_new = device_call_new,
};
