/* The module ``_native``; _native.pyi says what its names mean. */
#define ALIGHT_CORE_MODULE
#include "core.h"

#include "device.h"
#include "kernel.h"

PyObject *numpy_errstate;
PyObject *empty_tuple;

static PyMethodDef functions[] = {
    {"make_layout", (PyCFunction)(void (*)(void))make_layout, METH_FASTCALL | METH_KEYWORDS,
     "Return the one layout with these fields; strides default to C order."},
    {"layout_of", layout_of, METH_O, "Return the layout of an Array or ndarray."},
    {"native", native, METH_O, "Tell whether alight computes with this dtype; all others are plain ndarrays."},
    {"pending_storages", pending_storages, METH_NOARGS,
     "Return the live storages whose version is pending, oldest first."},
    {"request", (PyCFunction)(void (*)(void))request, METH_FASTCALL | METH_KEYWORDS,
     "Return the key of a request and its values by number; None where nothing is pending."},
    {"sole", (PyCFunction)(void (*)(void))sole, METH_FASTCALL | METH_KEYWORDS,
     "Tell whether nobody else needs a concrete value's bytes: ``value`` has only ``held`` references besides\n"
     "the caller's own name, and its data only ``data_held`` besides the value's."},
    {"uses_within", (PyCFunction)(void (*)(void))uses_within, METH_FASTCALL | METH_KEYWORDS,
     "Return how many operands ``old`` is of what a launch's nodes were recorded with and of the versions between;\n"
     "None where somebody else holds one of those. The list, the nodes and the target of a write may hold them."},
    {"take_over", take_over, METH_O,
     "Return a value that takes over a fresh dense ndarray with memory of its own; None for others."},
    {"fresh_array", fresh_array, METH_O,
     "Return an array of ours that takes over a fresh ndarray or a NumPy scalar; None where wrapping takes more."},
    {"items_of", items_of, METH_O, "Return an iterator over an array; NotImplemented of scalars, and where it has no axes."},
    {"items_count", items_count, METH_O, "Return the length of an array's first axis; NotImplemented where it has none."},
    {"exported", exported, METH_O,
     "Return an ndarray that shares an array's memory; NotImplemented where that takes more than a look."},
    {"at_hand", at_hand, METH_O,
     "Return an ndarray over an array's bytes where the host has them and nobody follows reads, else None."},
    {"view_of", (PyCFunction)(void (*)(void))view_of, METH_FASTCALL | METH_KEYWORDS,
     "Return the view of an array that an ndarray made from its layout's probe says."},
    {"fresh_data", fresh_data, METH_O, "Return data of a dense layout, uninitialised, in memory of its own."},
    {"keep_bytes", keep_bytes, METH_O, "Keep at most so many bytes of memory that came back for later results."},
    {"keep_only", keep_only, METH_O, "Give the system what is kept for later results beyond so many bytes."},
    {"give_back_heap", give_back_heap, METH_NOARGS,
     "Give the system the pages of the C library's heap that hold nothing."},
    {"kept_bytes", kept_bytes, METH_NOARGS, "Return how many bytes are kept for later results."},
    {"living_bytes", living_bytes, METH_NOARGS,
     "Return the bytes that results have, and the most that they had since this was asked last."},
    {"memory_limits", memory_limits, METH_NOARGS,
     "Return the bytes that the limits of this process and of its control groups leave, and the least of them."},
    {"recording_errstate", recording_errstate, METH_NOARGS,
     "Return the floating-point error state to record an op under; None where NumPy must act at the call."},
    {"copy_where", (PyCFunction)(void (*)(void))copy_where, METH_FASTCALL,
     "Put elements into a target where a mask is true: copy_where(target, source, casting, mask)."},
    {"set_operators", set_operators, METH_O, "Tell the core which op each operator records."},
    {"_reference_count", (PyCFunction)(void (*)(void))reference_count, METH_FASTCALL | METH_KEYWORDS,
     "Return an object's reference count while it is passed to a function of this module."},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "alight._core._native",
    .m_doc = "The native core; _native.pyi says what its names mean.",
    .m_size = -1,
    .m_methods = functions,
};

static bool measure_sole(PyObject *module)
{
    static const char source[] = "def measure(make, count):\n    name = make()\n    return count(name)\n";
    PyObject *names = PyDict_New(), *ran = NULL, *count = NULL, *measured = NULL;
    if (names != NULL && PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins()) == 0) {
        ran = PyRun_String(source, Py_file_input, names, names);
    }
    if (ran != NULL && (count = PyObject_GetAttrString(module, "_reference_count")) != NULL) {
        measured = PyObject_CallFunctionObjArgs(
            PyDict_GetItemString(names, "measure"), (PyObject *)&PyBaseObject_Type, count, NULL);
    }
    if (measured != NULL) {
        sole_references = PyLong_AsSsize_t(measured);
    }
    Py_XDECREF(measured);
    Py_XDECREF(count);
    Py_XDECREF(ran);
    Py_XDECREF(names);
    return !PyErr_Occurred();
}

PyMODINIT_FUNC PyInit__native(void)
{
    static const struct {
        const char *name;
        PyTypeObject *type;
    } types[] = {
        {"Layout", &LayoutType}, {"View", &ViewType}, {"Data", &DataType}, {"Value", &ValueType}, {"Storage", &StorageType}, {"Turn", &TurnType}, {"ArrayBase", &ArrayType},
        {"Hooks", &HooksType}, {"Floor", &FloorType}, {"Creation", &CreationType}, {"Namespace", &NamespaceType}, {"Public", &PublicType},
        {"UfuncBase", &UfuncBaseType}, {"Border", &BorderType}, {"Items", &ItemsType},
        {"Key", &KeyType}, {"KernelCall", &KernelCallType}, {"Stock", &StockType}, {"Shelf", &ShelfType},
        {"DeviceBuffer", &DeviceBufferType}, {"Launches", &LaunchesType}, {"DeviceCall", &DeviceCallType},
    };
    import_array();
    namespace_sized();
    empty_tuple = PyTuple_New(0);
    if (empty_tuple == NULL || !errstate_ready() || !calls_ready() || !layouts_ready() || !array_ready() || !requests_ready() || !turns_ready() || !masked_ready()) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (PyType_Ready(types[i].type) < 0 || PyModule_AddObjectRef(module, types[i].name, (PyObject *)types[i].type) < 0) {
            Py_DECREF(module);
            return NULL;
        }
    }
    if (!floor_ready() || PyModule_AddStringConstant(module, "SOURCES", ALIGHT_SOURCES) < 0 || PyModule_AddObjectRef(module, "hooks", (PyObject *)hooks) < 0
        || PyModule_AddObjectRef(module, "floor", (PyObject *)floors) < 0
        || PyModule_AddObjectRef(module, "POLICY", policy_in_force) < 0
        || PyModule_AddIntConstant(module, "OPERANDS", OPERANDS) < 0 || PyModule_AddIntConstant(module, "PIECES", PIECES) < 0 || !buffers_ready()
        || !guard_ready(module) || !threads_ready(module) || !measure_sole(module)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
