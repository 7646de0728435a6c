"""Where values leave the program's own code for the code of packages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from .recording import ArrayBase, floor

# What `judge` answers.
_FOREIGN, _PASSES_ON, _NOT_KEPT = 2, 3, 8


class Border:
    """Calls, stores and returns of the program's code; true while an Array may live.

    ``judge`` tells whose code something is; ``enter`` gives what is handed over in place of a
    call's arguments and ``leave`` what is given back, ``give`` what is returned or stored;
    ``installed`` gives the border in another process.
    ``inside`` gives what runs in place of the program's own function while `jit` records. The
    native core has no frame between who calls and what is called; the twin has one.
    """

    __slots__ = ("__weakref__", "_enter", "_give", "_installed", "_judge", "_leave", "inside")

    slice = slice

    def __init__(
        self,
        judge: Callable[[Any], int],
        enter: Callable[..., Any],
        leave: Callable[[Any, Any], Any],
        give: Callable[[Any], Any],
        installed: Callable[[], Any],
    ) -> None:
        self._installed = installed
        self._judge = judge
        self._enter = enter
        self._leave = leave
        self._give = give
        self.inside: Callable[[Any], Any] | None = None

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
            inside = self.inside if floor.traced else None
            if inside is not None and type(callee) is MethodType:
                if type(callee.__func__) is FunctionType:
                    callee = MethodType(inside(callee.__func__), callee.__self__)
            elif inside is not None and type(callee) is FunctionType:
                callee = inside(callee)
            return callee(*args, **kwargs)
        state = None
        entered = self._enter(callee, args, kwargs or None, passed)
        if entered is not None:
            args, kwargs, state = entered
        try:
            result = callee(*args, **(kwargs or {}))
        except BaseException:
            self._leave(None, state)
            raise
        return self._leave(result, state)

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
        container[key] = self._stored(value, container, "__setitem__")

    def set_attribute(self, value: Any, holder: Any, name: str) -> None:
        """Store a value in an object under a name."""
        setattr(holder, name, self._stored(value, holder, "__setattr__"))

    def forget(self) -> None:
        """Judge anew whose code is whose."""
