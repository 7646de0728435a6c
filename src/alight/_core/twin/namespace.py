"""A module whose names are another's."""

from __future__ import annotations

from types import ModuleType
from typing import Any


class Namespace(ModuleType):
    """A module that shows the names of another one as they are now, and assigns there.

    ``stand_ins`` has, by name, an object of that module's and what is shown in its place for as
    long as the module has that very object under the name; or a function that is called with what
    is found there, and returns what is shown.
    """

    def __init__(self, real: ModuleType, stand_ins: dict[str, Any]) -> None:
        super().__init__(real.__name__)
        own = _own(self)
        # What the interpreter reads past its attributes: for errors of imports.
        own.update({name: vars(real).get(name) for name in ("__file__", "__spec__")})
        own["real"], own["stand_ins"] = real, stand_ins

    def __getattribute__(self, name: str) -> Any:
        own = _own(self)
        found = getattr(own["real"], name)
        entry = own["stand_ins"].get(name)
        if entry is None:
            return found
        if type(entry) is not tuple:
            return entry(found)
        return entry[1] if entry[0] is found else found

    def __setattr__(self, name: str, value: Any) -> None:
        own = _own(self)
        entry = own["stand_ins"].get(name)
        if type(entry) is tuple and entry[1] is value:
            value = entry[0]
        setattr(own["real"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_own(self)["real"], name)


def _own(namespace: Namespace) -> dict[str, Any]:
    own: dict[str, Any] = ModuleType.__getattribute__(namespace, "__dict__")
    return own
