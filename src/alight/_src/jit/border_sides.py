"""On which side of the border code is: the program's, a package's, or what passes on what it is
given."""

from __future__ import annotations

import builtins
import functools
import itertools
import os
import sys
import types
from typing import Any

from alight._core import ArrayBase
from alight._src.base import package
from alight._src.base.classes import is_among, module_of
from alight._src.base.failures import failures
from alight._src.base.originals import np
from alight._src.jit import code_origin
from alight._src.record.declared_ops import adopt_all

__all__ = [
    "FOREIGN",
    "ITERATING",
    "NOT_KEPT",
    "STRAIGHT",
    "is_of_a_package",
    "is_the_programs_class",
    "judge",
    "program_folders",
    "side_of_class",
]

# What `judge` answers, as the core has it.
STRAIGHT, FOREIGN, PASSES_ON, NOT_KEPT = 1, 2, 3, 8

# Folders of the program, where `alight run` compiles what is imported from them. Without it, all is
# the program's that is not installed.
program_folders: list[str] = []

_OWN_FOLDERS = tuple(
    os.path.join(os.path.realpath(folder), "")
    for folder in (os.path.dirname(np.__file__), package.FOLDER)
)
# Parts of NumPy that take an ndarray for what it is.
_PARTS = ("numpy.testing", "numpy.ctypeslib")
_PART_FOLDERS = tuple(
    os.path.join(_OWN_FOLDERS[0], *name.split(".")[1:]) + end for name in _PARTS for end in "/."
)
# What hands its other arguments on to what it is given.
ITERATING: tuple[Any, ...] = (
    map,
    filter,
    itertools.starmap,
    functools.reduce,
    itertools.accumulate,
)


def _of_file(path: str) -> int:
    if path.startswith(_PART_FOLDERS):
        return FOREIGN
    if path.startswith(_OWN_FOLDERS):
        return STRAIGHT
    there = path.split(os.sep)
    if "site-packages" in there or "dist-packages" in there:
        return FOREIGN
    if path.startswith(code_origin.standard()):
        return PASSES_ON
    if program_folders:
        return STRAIGHT if path.startswith(tuple(program_folders)) else FOREIGN
    return FOREIGN if path.startswith(code_origin.installed()) else STRAIGHT


def _of_module(name: Any) -> int:
    if not isinstance(name, str) or not name:
        return FOREIGN
    if name.startswith(_PARTS):
        return FOREIGN
    top = name.partition(".")[0]
    if top in ("__main__", "__mp_main__", "numpy", "alight"):
        return STRAIGHT
    if top in sys.stdlib_module_names or top == "builtins":
        # Functions of other languages, which read memory by address.
        return FOREIGN if top in ("ctypes", "_ctypes") else PASSES_ON
    module = sys.modules.get(name) or sys.modules.get(top)
    file = getattr(module, "__file__", None)
    if file is None:
        paths = getattr(module, "__path__", None)
        file = next(iter(paths), None) if paths else None
        if file is None and isinstance(module, types.ModuleType):
            # Made by the program, without a file; what is built in is of the standard library.
            return STRAIGHT if getattr(module, "__spec__", None) is None else FOREIGN
        file = None if file is None else os.path.join(file, "")
    return FOREIGN if file is None else _of_file(file)


def side_of_class(kind: Any) -> int:
    """Tell whose objects of a class are; some are made by C code that names no module."""
    if type(kind) is type and kind in _BUILTINS:  # most are
        return PASSES_ON
    module = module_of(kind)
    if module == "builtins" and getattr(builtins, kind.__name__, None) is not kind:
        return PASSES_ON if is_among(kind, _OF_THE_INTERPRETER) else FOREIGN
    return _of_module(module)


_BUILTINS = frozenset(item for item in vars(builtins).values() if type(item) is type)
_OF_THE_INTERPRETER = frozenset(item for item in vars(types).values() if isinstance(item, type)) | {
    type({}.keys()),
    type({}.values()),
    type({}.items()),
    type(iter([])),
    type(iter(())),
}


def is_the_programs_class(kind: type) -> bool:
    """Tell whether objects of a class are the program's own, and may hold anything."""
    return (
        side_of_class(kind) == STRAIGHT
        and not module_of(kind).startswith(("numpy", "alight"))
        and not issubclass(kind, type)
    )


def _of_method(kind: type, name: str) -> int:
    """Tell whose code a method of a class is."""
    for base in kind.__mro__:
        found = vars(base).get(name)
        if found is None:
            continue
        if isinstance(found, types.FunctionType):
            return _judged(found) & ~NOT_KEPT
        return side_of_class(base)
    return STRAIGHT


_OF_CLASSES_IN_C = (
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)


def _judged(item: Any) -> int:
    kind = type(item)
    if kind is str:
        return _of_module(item)
    if kind is types.CodeType:
        path = item.co_filename
        return _of_file(path) if os.path.isabs(path) else STRAIGHT
    if kind is types.FunctionType:
        path = item.__code__.co_filename
        if os.path.isabs(path):
            return _of_file(path)
        return _of_module(item.__globals__.get("__name__") or item.__module__)
    if kind is types.MethodType:
        return _judged(item.__func__)
    if isinstance(item, type):
        if any([item is one for one in ITERATING]):
            return PASSES_ON
        if issubclass(item, (np.ndarray, np.generic, np.dtype)):
            return side_of_class(item)
        made_by = {_of_method(item, name) for name in ("__init__", "__new__")}
        if FOREIGN in made_by and side_of_class(item) == STRAIGHT:
            # Its own `__init__` runs first, and hands on what it likes.
            own = vars(item).keys() & {"__init__", "__new__"}
            return STRAIGHT if own else FOREIGN
        return FOREIGN if FOREIGN in made_by else side_of_class(item)
    if kind is functools.partial:
        return _judged(item.func) | NOT_KEPT
    if is_among(kind, (types.BuiltinFunctionType, types.BuiltinMethodType)):
        owner = item.__self__
        if owner is None or isinstance(owner, types.ModuleType):
            return _of_module(item.__module__)
        if isinstance(owner, type):
            return side_of_class(owner) | NOT_KEPT
        return _of_c_method(type(owner), item.__name__)
    if is_among(kind, _OF_CLASSES_IN_C):
        return side_of_class(item.__objclass__) | NOT_KEPT
    if kind.__name__ == "cython_function_or_method" or kind.__name__ == "fused_cython_function":
        return _of_module(item.__module__) | NOT_KEPT
    found = _of_method(kind, "__call__")
    wrapped = getattr(item, "__wrapped__", None) if found == PASSES_ON else None
    if wrapped is not None and callable(wrapped):  # functools.lru_cache, singledispatch
        return _judged(wrapped) | NOT_KEPT
    return found


def _of_c_method(kind: type, name: str) -> int:
    for base in kind.__mro__:
        if name in vars(base):
            return side_of_class(base)
    return side_of_class(kind)


def judge(item: Any) -> int:
    """Tell whose code runs when something is called: STRAIGHT is the program's own, NumPy's or
    alight's."""
    try:
        found = _judged(item)
    except failures():  # what objects of packages do when they are looked at is not known here
        return FOREIGN
    if found == FOREIGN:
        adopt_all()  # of a package that was imported meanwhile, whose table it may be
    return found


def is_of_a_package(item: Any) -> bool:
    """Tell whether a module, a class, a function or an object is a package's."""
    kind = type(item)  # what `isinstance` asks beside it is the program's
    if issubclass(kind, ArrayBase):
        return False
    if issubclass(kind, types.ModuleType):
        # Not asked in a way of its own, by which a lazy module is loaded; some have no name.
        names = types.ModuleType.__getattribute__(item, "__dict__")
        return _of_module(names.get("__name__")) == FOREIGN
    if kind is types.FunctionType or issubclass(kind, type):
        return judge(item) & ~NOT_KEPT == FOREIGN
    return side_of_class(kind) == FOREIGN
