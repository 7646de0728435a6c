"""Where values leave the program's own code for the code of packages."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Any

from .recording import ArrayBase, floor

# What `judge` answers.
_FOREIGN, _PASSES_ON, _NOT_KEPT = 2, 3, 8
# What `describe` tells.
_A_PACKAGES = 1

# In the order of OPERATORS of jit/border.py.
_BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift"),
    *("and_", "or_", "xor"),
)
_OPERATORS: Sequence[Callable[[Any, Any], Any]] = (
    *[getattr(operator, name) for name in (*_BINARY, *["lt", "le", "eq", "ne", "gt", "ge"])],
    divmod,
    *[getattr(operator, "i" + name.rstrip("_")) for name in _BINARY],
    *(operator.contains, operator.getitem, operator.delitem),
)
_IN_PLACE, _OF_HOLDERS = 20, 33


def _may_hold(item: Any) -> bool:
    return isinstance(item, ArrayBase) or type(item) in (tuple, list, dict, slice)


class Border:
    """Calls, stores and returns of the program's code; true while an Array may live.

    ``judge`` tells whose code something is, ``describe`` what objects of a class are; ``enter``
    gives what is handed over in place of a call's arguments and ``leave`` what is given back,
    ``give`` what is returned or stored; ``installed`` gives the border in another process.
    ``inside`` gives what runs in place of the program's own function while `jit` records. The
    native core has no frame between who calls and what is called; the twin has one.
    """

    __slots__ = (
        *("__weakref__", "_describe", "_enter", "_give", "_installed", "_judge", "_leave"),
        *("inside", "out"),
    )

    slice = slice

    def __init__(
        self,
        judge: Callable[[Any], int],
        describe: Callable[[type], int],
        enter: Callable[..., Any],
        leave: Callable[[Any, Any], Any],
        give: Callable[[Any], Any],
        installed: Callable[[], Any],
    ) -> None:
        self._installed = installed
        self._judge = judge
        self._describe = describe
        self._enter = enter
        self._leave = leave
        self._give = give
        self.out = 0
        self.inside: Callable[..., Any] | None = None

    def __bool__(self) -> bool:
        return True  # the twin does not count

    def __reduce__(self) -> Any:
        return self._installed, ()

    def _verdict(self, item: Any) -> int:
        while type(item) is MethodType:
            item = item.__func__
        return self._judge(item) & ~_NOT_KEPT

    def __call__(self, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
        verdict = self._verdict(callee)
        passed = False
        if verdict == _PASSES_ON:
            passed = any(
                callable(item)
                and not isinstance(item, ArrayBase)
                and self._verdict(item) == _FOREIGN
                for item in (*args, *kwargs.values())
            )
        if verdict != _FOREIGN and not passed:
            if self.inside is not None and floor.traced:
                callee, args, kwargs = self._inside(callee, args, kwargs)
            return callee(*args, **kwargs)
        state = None
        entered = self._enter(callee, args, kwargs or None, passed)
        if entered is not None:
            args, kwargs, state = entered
        try:
            result = callee(*args, **(kwargs or {}))
        except BaseException:
            self._leave(NotImplemented, state)
            raise
        return self._leave(result, state)

    def _inside(self, callee: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return a call as it is while `jit` records."""
        inside: Any = self.inside
        function = callee.__func__ if type(callee) is MethodType else callee
        if type(function) is FunctionType and (twin := inside(function)) is not function:
            bound = type(callee) is MethodType
            return MethodType(twin, callee.__self__) if bound else twin, args, kwargs
        given = tuple([inside(a, callee) if type(a) is FunctionType else a for a in args])
        for name, item in kwargs.items():
            if type(item) is FunctionType:
                kwargs[name] = inside(item, callee)
        return callee, given, kwargs

    def give(self, value: Any) -> Any:
        """Return what is returned or yielded, as who asked for it may have it."""
        if not isinstance(value, (ArrayBase, tuple, list, dict)):
            return value
        frame = sys._getframe(1).f_back
        foreign = frame is not None and self._judge(frame.f_code) == _FOREIGN
        return self._give(value) if foreign else value

    def _stored(self, value: Any, place: Any, by: str) -> Any:
        method = getattr(type(place), by, None)
        if method is None or isinstance(place, ArrayBase):
            return value
        verdict = self._verdict(method)
        if verdict != _FOREIGN and by == "__setattr__":
            verdict = self._verdict(type(place))
        return self._give(value) if verdict == _FOREIGN else value

    def set_item(self, value: Any, container: Any, key: Any) -> None:
        """Store a value in a container under a key."""
        if self._is_a_packages(container) and _may_hold(key):
            key = self._give(key)
        container[key] = self._stored(value, container, "__setitem__")

    def set_attribute(self, value: Any, holder: Any, name: str) -> None:
        """Store a value in an object under a name."""
        setattr(holder, name, self._stored(value, holder, "__setattr__"))

    def swap(self, holder: Any, place: Any, old: Any, new: Any) -> None:
        """Exchange an item of a list or a dict for another, where it still is."""
        if isinstance(holder, dict):
            if dict.get(holder, place) is old:
                dict.__setitem__(holder, place, new)
        elif place < list.__len__(holder) and list.__getitem__(holder, place) is old:
            list.__setitem__(holder, place, new)

    def operate(self, which: int, one: Any, other: Any) -> Any:
        """Do an operation on two operands, by its number."""
        array = which < _OF_HOLDERS and isinstance(one, ArrayBase)
        gives_one = _may_hold(one) if which < _IN_PLACE else array
        gives_one = gives_one and self._is_a_packages(other)
        gives_other = _may_hold(other) and self._is_a_packages(one)
        if not (gives_one or gives_other):
            return _OPERATORS[which](one, other)
        one = self._give(one) if gives_one else one
        other = self._give(other) if gives_other else other
        return self._leave(_OPERATORS[which](one, other), None)

    def _is_a_packages(self, item: Any) -> bool:
        return bool(self._describe(type(item)) & _A_PACKAGES)

    def forget(self) -> None:
        """Judge anew whose code is whose."""
