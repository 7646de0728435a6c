"""Which functions are proven to do nothing but compute: from their bytecode, and nothing is
guessed.

A proof holds for as long as the objects it looked at are still the ones that the function finds
under those names; they are its *lookups*, to be checked at every call. What depends on the elements
of an array cannot be seen in bytecode: whoever records a call notices when elements are asked for.
"""

from __future__ import annotations

import builtins
import contextlib
import math
import re
from functools import cache
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from alight._src.base.failures import failures, ignoring_failures
from alight._src.base.originals import np
from alight._src.base.records import dataclass, field
from alight._src.ir.op_table import OPS, Kind, Op, Origin
from alight._src.jit.bytecode import Step, Steps, instructions, lines
from alight._src.jit.code_origin import installed
from alight._src.jit.known_attributes import KNOWN_ATTRIBUTES
from alight._src.record.declared_ops import STAND_INS, adopt_all
from alight._src.record.ufunc_calls import FUNCTIONS, LATE

__all__ = [
    "ABSENT",
    "Lookup",
    "Proof",
    "declare_pure",
    "only_computes",
    "prove",
]


class _Absent:
    """What a lookup expects where there must be no such name."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


class Lookup(NamedTuple):
    """A name and the very object that must be found there. ``place`` is a dict, a cell (name None),
    or a function (name among ``_PARTS``)."""

    place: Any
    name: str | None
    expected: Any


# What a function is made of and can be given anew. Its globals and closure cannot.
_PARTS = ("__code__", "__defaults__", "__kwdefaults__")


_DECLARED = "declared"


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether a function is pure; if not, ``reason`` says why. ``ops``: how many operations on
    arrays a call is at most (infinity: what it calls was not looked into); None where code may run
    many times. ``straight``: the same code runs at every call, and elements do not say how much it
    does. ``parts``: it takes parts of arrays, whose sizes say little of what its operations are
    on."""

    pure: bool
    reason: str = ""
    ops: float | None = None
    lookups: tuple[Lookup, ...] = field(default=(), repr=False)
    straight: bool = False
    parts: bool = False

    @property
    def declared(self) -> bool:
        """Tell whether it is pure because its author says so."""
        return self.pure and self.reason == _DECLARED


class _NotProven(Exception):
    """Carries the reason."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Instructions that only move and combine values, by the names CPython 3.11 to 3.14 give them. One
# that is not here (a newer interpreter's, or one with an effect) ends the proof.
_PLAIN = _names(
    "BINARY_OP BINARY_SLICE BINARY_SUBSCR BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP BUILD_SLICE "
    "BUILD_STRING BUILD_TUPLE CACHE CALL CALL_FUNCTION_EX CALL_KW COMPARE_OP CONTAINS_OP "
    "CONVERT_VALUE COPY COPY_FREE_VARS DELETE_FAST DICT_MERGE DICT_UPDATE EXTENDED_ARG "
    "FORMAT_SIMPLE FORMAT_VALUE FORMAT_WITH_SPEC IS_OP JUMP_FORWARD JUMP_IF_FALSE_OR_POP "
    "JUMP_IF_TRUE_OR_POP KW_NAMES LIST_APPEND LIST_EXTEND LIST_TO_TUPLE LOAD_ASSERTION_ERROR "
    "LOAD_CLOSURE LOAD_COMMON_CONSTANT LOAD_CONST LOAD_FAST LOAD_FAST_AND_CLEAR "
    "LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST "
    "LOAD_SMALL_INT MAKE_CELL MAKE_FUNCTION MAP_ADD NOP NOT_TAKEN POP_JUMP_FORWARD_IF_FALSE "
    "POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE "
    "POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE POP_TOP PRECALL "
    "PUSH_NULL RAISE_VARARGS RERAISE RESUME RETURN_CONST RETURN_VALUE SET_FUNCTION_ATTRIBUTE "
    "STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST STORE_SLICE STORE_SUBSCR SWAP "
    "TO_BOOL UNARY_INVERT UNARY_NEGATIVE UNARY_NOT UNARY_POSITIVE UNPACK_EX UNPACK_SEQUENCE "
    # a block: of what such a function can hold only np.errstate opens one
    "BEFORE_WITH LOAD_SPECIAL POP_EXCEPT PUSH_EXC_INFO WITH_EXCEPT_START"
)
# Those of them that may be operations on arrays.
_COMPUTING = _names(
    "BINARY_OP BINARY_SLICE BINARY_SUBSCR CALL CALL_FUNCTION_EX CALL_KW COMPARE_OP STORE_SLICE "
    "STORE_SUBSCR UNARY_INVERT UNARY_NEGATIVE UNARY_POSITIVE"
)
_LOOPS = _names(
    "END_FOR FOR_ITER GET_ITER JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT POP_ITER "
    "POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE "
    "POP_JUMP_BACKWARD_IF_TRUE"
)
_OF_PARTS = _names("BINARY_SLICE BINARY_SUBSCR STORE_SLICE STORE_SUBSCR")
_INTRINSICS = frozenset(("INTRINSIC_LIST_TO_TUPLE", "INTRINSIC_UNARY_POSITIVE"))

# Creation whose result depends on the arguments alone; what is in files and buffers is not among
# it.
_CREATION = (
    *("zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like"),
    *("arange", "linspace", "logspace", "geomspace", "eye", "identity", "tri", "indices"),
    *("array", "asarray", "ascontiguousarray", "asfortranarray", "meshgrid", "copy"),
)
# Functions of shapes, dtypes and plain numbers beside those that record.
_DESCRIBING = (
    *("shape", "ndim", "size", "result_type", "promote_types", "can_cast", "broadcast_shapes"),
    *("isscalar", "iterable", "iinfo", "finfo"),
)
_BUILTINS = (
    *("abs", "all", "any", "bool", "complex", "dict", "divmod", "enumerate", "float", "int"),
    *("isinstance", "len", "list", "max", "min", "pow", "range", "reversed", "round", "slice"),
    *("sorted", "str", "sum", "tuple", "zip"),
    *("ValueError", "TypeError", "IndexError", "KeyError", "RuntimeError", "ArithmeticError"),
    *("ZeroDivisionError", "NotImplementedError", "AssertionError", "OverflowError"),
)
_ATOMS = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), np.generic, np.dtype)


_OF_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that code has made

# Builtins that make no whole numbers of elements.
_MEASURES = (abs, bool, complex, float, isinstance, len)
# Functions of the op table and methods in which elements may say how much is done, or that make
# such numbers of them.
_LENGTHS = _names(
    "apply_along_axis bincount broadcast_to histogram item pad repeat resize tile tolist vander"
)
# NumPy's functions that look at or change what is outside their arguments.
_OUTSIDE = re.compile("save|load|file|txt|print|seed|rand|errs?tate|seterr|geterr|buf")


def _known_pure(value: Any) -> bool:
    """Tell whether a function is known to be pure; those that load late say so when they have."""
    if type(value) is type(np.sum) and (late := LATE.pop(value.__module__, None)) is not None:
        import_module(late)
    return id(value) in _pure_callables(len(FUNCTIONS))


@cache
def _pure_callables(count: int) -> dict[int, Any]:
    """Return the functions known to be pure, by id, while so many of NumPy's are recorded."""
    known: list[Any] = [getattr(builtins, name) for name in _BUILTINS]
    known += [f for f in vars(math).values() if callable(f)]
    known += [getattr(np, name) for name in (*_CREATION, *_DESCRIBING) if hasattr(np, name)]
    known += [f for f in FUNCTIONS if not _OUTSIDE.search(getattr(f, "__name__", ""))]
    known += [np.ndarray, np.errstate]
    return {id(function): function for function in known}


# Code of installed functions that were part of a proof, by id.
_computing: dict[int, CodeType] = {}


def only_computes(code: CodeType | None) -> bool:
    """Tell whether an installed function's code was part of a proof: it asks nothing of arrays but
    what is recorded."""
    return id(code) in _computing


def prove(function: FunctionType) -> Proof:
    """Return whether the function, with all it calls, does nothing but compute its result from
    its arguments."""
    work = _Proving()
    parts = any([step.opname in _OF_PARTS for step in instructions(function.__code__)])
    try:
        work.function(function)
    except _NotProven as reason:
        # What was looked at: another object there may be one that can be proven.
        return Proof(False, str(reason), lookups=work.looked_up(), parts=parts)
    for code in work.codes:
        if code.co_filename.startswith(installed()):
            _computing[id(code)] = code
    straight = not (work.loops or work.branches or work.lengths)
    return Proof(True, "", None if work.loops else work.ops, work.looked_up(), straight, parts)


def declare_pure(function: FunctionType) -> Proof:
    """Return the proof of a function whose author says that it is pure: what it names must stay
    as it is."""
    proof = prove(function)
    if proof.pure:
        return proof
    work = _Proving()
    work.parts(function)
    code = function.__code__
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    work.names(code, function.__globals__, cells)
    return Proof(True, _DECLARED, None if work.loops else math.inf, work.looked_up())


class _Proving:
    def __init__(self) -> None:
        self.lookups: dict[tuple[int, str | None], Lookup] = {}
        self.loops = self.branches = False
        self.lengths = False  # elements may say how much is done
        self.ops = 0
        self.open: list[CodeType] = []
        self.codes: list[CodeType] = []
        # The operations of functions that were looked into: packages call the same ones often.
        self.known: dict[FunctionType, int] = {}

    def look_up(self, place: Any, name: str | None, expected: Any) -> None:
        """Note what must be found somewhere for the proof to hold."""
        self.lookups.setdefault((id(place), name), Lookup(place, name, expected))

    def looked_up(self) -> tuple[Lookup, ...]:
        """Return what must be found where, each once."""
        return tuple(self.lookups.values())

    def names(self, code: CodeType, names: dict[str, Any], cells: dict[str, Any]) -> None:
        """Look up what code names, and of modules what it takes from them; nothing is checked."""
        steps = instructions(code)
        for position, step in enumerate(steps, 1):
            self.loops = self.loops or step.opname in _LOOPS
            place = _Place(code, step)
            with contextlib.suppress(_NotProven):
                if step.opname == "LOAD_GLOBAL":
                    value = self.found(names, step.name, place)
                elif step.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF") and step.name in cells:
                    value = self.content(cells[step.name], step.name, place)
                else:
                    continue
                self.taken(value, step.name, steps, position, place)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self.names(constant, names, cells)

    def function(self, function: FunctionType) -> None:
        if (ops := self.known.get(function)) is not None:
            self.ops += ops
            return
        before = self.ops
        self.parts(function)
        code = function.__code__
        if code in self.open:
            raise _NotProven(f"{function.__qualname__} calls itself")
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            if not _constant(default):
                raise _NotProven(
                    f"{function.__qualname__} has a default of type {type(default).__name__}"
                )
        self.open.append(code)
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        self.code(code, function.__globals__, cells, frozenset())
        self.open.pop()
        self.known[function] = self.ops - before

    def parts(self, function: FunctionType) -> None:
        """Look up what the function is made of."""
        for part in _PARTS:
            self.look_up(function, part, getattr(function, part))
        keywords = function.__kwdefaults__ or {}
        for name, value in keywords.items():
            self.look_up(keywords, name, value)

    def code(
        self, code: CodeType, names: dict[str, Any], cells: dict[str, Any], own: frozenset[str]
    ) -> None:
        """Check one code object. ``own``: variables of enclosing functions that are checked with
        it."""
        own |= frozenset(code.co_cellvars)
        self.codes.append(code)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self.code(constant, names, cells, own)
        steps = instructions(code)
        position = 0
        while position < len(steps):
            step = steps[position]
            position += 1
            name = step.opname
            if name in _PLAIN:
                self.ops += name in _COMPUTING
                self.branches = self.branches or "_IF_" in name
                continue
            if name in _LOOPS:
                self.loops = True
                continue
            if name == "CALL_INTRINSIC_1" and step.name in _INTRINSICS:
                continue
            where = _Place(code, step)
            if name in ("LOAD_ATTR", "LOAD_METHOD"):
                self.lengths = self.lengths or step.name in _LENGTHS
                if step.name not in KNOWN_ATTRIBUTES:
                    raise _NotProven(f"{where}: attribute {step.name!r} is not known")
                continue
            if name == "LOAD_GLOBAL":
                value = self.found(names, step.name, where)
            elif name not in ("LOAD_DEREF", "STORE_DEREF"):
                raise _NotProven(f"{where}: {name} is not known to be pure")
            elif step.name in own:
                continue
            elif name == "STORE_DEREF" or step.name not in cells:
                raise _NotProven(f"{where}: writes {step.name!r} of outside")
            else:
                value = self.content(cells[step.name], step.name, where)
            value, taken, position = self.taken(value, step.name, steps, position, where)
            self.admit(value, taken, where)

    def found(self, names: dict[str, Any], name: str, where: _Place) -> Any:
        """Return what a global name stands for."""
        value = names.get(name, ABSENT)
        if value is not ABSENT:
            self.look_up(names, name, value)
            return value
        inner = vars(builtins)
        value = inner.get(name, ABSENT)
        self.look_up(names, name, ABSENT)
        self.look_up(inner, name, value)
        if value is ABSENT:
            raise _NotProven(f"{where}: {name!r} is not defined yet")
        return value

    def content(self, cell: Any, name: str, where: _Place) -> Any:
        """Return what a variable of an enclosing function holds."""
        try:
            value = cell.cell_contents
        except failures(ValueError):
            raise _NotProven(f"{where}: {name!r} is not assigned yet") from None
        self.look_up(cell, None, value)
        return value

    def taken(
        self, value: Any, name: str, steps: Steps, position: int, where: _Place
    ) -> tuple[Any, str, int]:
        """Return what is used of a module that stands under a name, what the code calls it, and
        the position after that; other values as they are."""
        while isinstance(value, ModuleType):
            step = steps[position] if position < len(steps) else steps[-1]
            if step.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                raise _NotProven(f"{where}: the module {name} is used as a value")
            inner = vars(value)
            self.look_up(inner, step.name, inner.get(step.name, ABSENT))
            if step.name not in inner:
                raise _NotProven(f"{where}: {name}.{step.name} is made when it is asked for")
            value = inner[step.name]
            name = f"{name}.{step.name}"
            position += 1
        return value, name, position

    def admit(self, value: Any, name: str, where: _Place) -> None:
        """Check what a name stands for."""
        if _answers_for_itself(value):
            raise _NotProven(f"{where}: {name} has a say in what its attributes are")
        op = _declared(value)
        if op is not None and op.origin is Origin.PROGRAM and op.lower is not None:
            self.admit(op.lower, f"what {name} is composed of", where)
            return
        known = op is not None or _known_pure(value)
        if known or type(value) is not FunctionType:  # others are looked into
            self.lengths = self.lengths or not _follows_shapes(value, known)
        if known or _constant(value) or isinstance(value, np.ufunc):
            return
        if isinstance(value, type) and issubclass(value, np.generic):
            return
        kept = getattr(value, "__dict__", {})
        if not KNOWN_ATTRIBUTES.isdisjoint(kept):
            raise _NotProven(f"{where}: {name} keeps things in attributes of its own")
        if isinstance(kept.get("declared_pure"), bool) and isinstance(
            value.__wrapped__, FunctionType
        ):
            self.look_up(kept, "__wrapped__", value.__wrapped__)
            if value.declared_pure:
                self.parts(value.__wrapped__)
            else:
                self.function(value.__wrapped__)
            return
        # Also a package's: what it does stands in its bytecode as in the program's own.
        if type(value) is FunctionType:
            self.function(value)
            return
        raise _NotProven(f"{where}: {name} is a {type(value).__name__} not known to be pure")


def _answers_for_itself(value: Any) -> bool:
    """Tell whether code of the program's runs where an attribute of a value is asked for."""
    look_up, kind = type.__getattribute__, type(value)  # a class of classes may have a say, too
    if not look_up(kind, "__flags__") & _OF_PYTHON:
        return False
    with ignoring_failures(AttributeError):
        look_up(kind, "__getattr__")
        return True
    return look_up(kind, "__getattribute__") not in (object.__getattribute__, look_up)


def _declared(value: Any) -> Op | None:
    """Return the op that calls of a function go to: a declaration of alight's, or a body, promises
    that it computes, and does no more. A function of the program's own is called itself."""
    if type(value) is FunctionType:
        adopt_all()
    if hasattr(value, "_implementation"):  # a function of NumPy's, which asks its arguments
        return _op_of(value)
    for function, made in list(STAND_INS.items()):
        if value is made or (value is function and _is_installed(function)):
            return _op_of(function)
    return None


def _op_of(function: Any) -> Op | None:
    return next((op for op in list(OPS.values()) if op.reference is function), None)


def _is_installed(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return isinstance(code, CodeType) and code.co_filename.startswith(installed())


def _follows_shapes(value: Any, known: bool) -> bool:
    """Tell whether elements cannot say how large a result is of what a name stands for, nor become
    a length by it."""
    if _constant(value) or isinstance(value, np.ufunc) or any(value is one for one in _MEASURES):
        return True
    name = getattr(value, "__name__", "")
    op = OPS.get(name) if known and name not in _LENGTHS else None
    return op is not None and op.kind is not Kind.CREATION


def _constant(value: Any) -> bool:
    """Tell whether a value can never change."""
    if type(value) is tuple:
        return all(map(_constant, value))
    if isinstance(value, _ATOMS):
        return not isinstance(value, np.void)  # a record: its fields can be assigned
    return isinstance(value, type) and issubclass(value, np.generic)


class _Place(NamedTuple):
    """A step of code; its line is looked up where somebody reads of it."""

    code: CodeType
    step: Step

    def __str__(self) -> str:
        line = lines(self.code)[self.step.offset // 2]
        return f"{self.code.co_filename}:{line or self.code.co_firstlineno}"
