"""What objects of the native core hold is seen by the collector, and goes with them."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SOURCES = Path(__file__).parents[2] / "src/alight/_core/native"
# What has no part in a cycle: it holds what the core made, or what knows nothing of it.
NOT_COLLECTED = {
    "Floor": "a mark",
    "Key": "ops, layouts and numbers",
    "Layout": "a dtype and numbers",
    "Launcher": "the code that it runs",
    "Stock": "nothing",
    "Shelf": "pieces of a device's memory",
    "DeviceBuffer": "a piece of a device's memory",
    "Turn": "storages, for as long as a block lasts",
    "View": "a layout",
}


def _plain(text: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def _structs() -> dict[str, str]:
    """Return the fields of every struct, by its name."""
    found = {}
    for path in sorted(SOURCES.glob("*.[ch]")):
        text = _plain(path.read_text(encoding="utf-8"))
        for match in re.finditer(r"struct\s*(\w*)\s*\{(.*?)\n\}\s*(\w*);", text, re.DOTALL):
            found[match[3] or match[1]] = match[2]
    return found


def _objects(fields: str, structs: dict[str, str]) -> list[str]:
    """Return the names of the objects that fields hold, also in structs that they point to."""
    names = []
    for line in fields.split(";"):
        match = re.match(r"\s*(?:struct )?(\w+)\s+(\*.*|\w+)$", line.strip(), re.DOTALL)
        if match is None:
            continue
        kind, rest = match.groups()
        held = [part.strip().lstrip("*").split("[")[0] for part in rest.split(",") if "*" in part]
        if kind in ("PyObject", "PyTypeObject"):
            names += held
        elif kind in structs and "PyObject_HEAD" not in structs[kind] and kind != "Kernel":
            names += _objects(structs[kind], structs)
    return [name for name in names if name != "weakrefs"]


def _types() -> list[tuple[str, str, str]]:
    """Return the file, the struct and the definition of every type."""
    found = []
    for path in sorted(SOURCES.glob("*.c")):
        text = _plain(path.read_text(encoding="utf-8"))
        for match in re.finditer(r"PyTypeObject \w+ = \{(.*?)\n\};", text, re.DOTALL):
            size = re.search(r"tp_basicsize = (?:offsetof|sizeof)\((\w+)", match[1])
            if size is not None:
                found.append((path.name, size[1], match[1]))
    return found


@pytest.mark.parametrize("file,name,definition", _types(), ids=lambda item: str(item)[:20].strip())
def test_every_object_that_a_type_holds_is_visited(file: str, name: str, definition: str) -> None:
    structs = _structs()
    if "Py_TPFLAGS_HAVE_GC" not in definition:
        assert name in NOT_COLLECTED, f"{file}: {name} is not collected. Fix: visit what it holds."
        return
    match = re.search(r"tp_traverse = (?:\(traverseproc\))?(\w+)", definition)
    assert match is not None
    text = _plain((SOURCES / file).read_text(encoding="utf-8"))
    body = re.search(rf"static int {match[1]}\(.*?\n\}}", text, re.DOTALL)
    assert body is not None
    listed = re.search(r"#define OBJECTS\(self\)(.*?)\n\n", text, re.DOTALL)
    visits = body[0] + (listed[1] if listed and "OBJECTS" in body[0] else "")
    # Words, and what is compared alone.
    left_out = {"name"} if name == "Entry" else set()
    missing = [
        held
        for held in _objects(structs[name], structs)
        if held not in left_out and not re.search(rf"\b{held}\b", visits)
    ]
    assert not missing, f"{file}: {match[1]} does not visit {missing}"


class Part:
    """Something that others hold, and that holds them."""

    whole: Any = None


def _value(core: Any) -> Any:
    layout = core.make_layout(np.dtype(float), (3,))
    value = core.Value(None, (), (), layout)
    value.bind(core.Data(layout, np.zeros(3)), 0)
    return value


def _field(make: Callable[[Any], Any], name: str) -> Callable[[Any, Part], Any]:
    def held(core: Any, part: Part) -> Any:
        made = make(core)
        setattr(made, name, part)
        return made

    return held


def _on_a_device(core: Any, part: Part) -> Any:
    made = _value(core)
    made.data.remote = {"part": part}
    return made


HOLDERS: dict[str, Callable[[Any, Part], Any]] = {
    **{
        f"Value.{name}": _field(_value, name)
        for name in ("op", "attrs", "errstate", "error", "site")
    },
    "Storage.lease": _field(lambda core: core.Storage(_value(core)), "lease"),
    "Data.remote": _on_a_device,
}


@pytest.mark.parametrize("name", HOLDERS)
def test_a_cycle_through_a_field_is_collected(core: Any, name: str) -> None:
    gc.collect()
    part = Part()
    part.whole = HOLDERS[name](core, part)
    seen = weakref.ref(part)
    del part
    gc.collect()
    assert seen() is None


def test_a_cycle_through_what_a_guard_compares_is_collected() -> None:
    from alight._core import _native

    class Setting:
        entry: Any = None

    variable: ContextVar[Any] = ContextVar("variable")
    setting = Setting()
    entry = _native.Entry((), (), object(), ((variable, None, setting),), lambda: None)
    setting.entry = entry
    seen = weakref.ref(setting)
    del setting, entry
    gc.collect()
    assert seen() is None
