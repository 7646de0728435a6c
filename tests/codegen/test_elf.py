"""Object code put into memory without a linker: every kind of kernel, and files that are wrong."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from alight._src.codegen.llvm import (
    compiled,
    elf,
    object_code,
    target,
)
from alight._src.codegen.llvm.shared import unpacked
from alight._src.ir.group import Group
from alight._src.ir.op_table import OPS
from alight.device import Unsupported
from generated import (
    Array,
    address,
    hold_no_code,
    loop_group,
    reduce_group,
    ulp_distance,
    values_for,
)
from kernel_process import PROGRAM, python

pytestmark = pytest.mark.skipif(not elf.HERE, reason="object files of this machine are not ELF's")


def _addresses(data: bytes) -> dict[str, int]:
    """Stand-ins for the shared functions that a kernel calls."""
    return {name: 64 for part in unpacked(data)[1] for name in part.names}


def _cases() -> list[tuple[Group, list[Array], Array]]:
    x, y = (np.abs(values_for(np.dtype("f8"), (64, 300), seed)) + 1 for seed in (1, 2))
    return [
        # A function of its own, and one that has tables.
        (loop_group([x, y], [(OPS["fmod"], (0, 1), (), "f8")]), [x, y], np.fmod(x, y)),
        (loop_group([x], [(OPS["sin"], (0,), (), "f8")]), [x], np.sin(x)),
        (reduce_group([x], ["max"], (0, 1)), [x], x.max()),
        (reduce_group([x], ["max"], (0,)), [x], x.max(0)),
    ]


@pytest.mark.parametrize("case", range(4))
def test_placed_code_is_the_code_that_llvm_loads(
    case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, inputs, expected = _cases()[case]
    data = object_code.compile_group(group).object
    names = set(elf.place(unpacked(data)[0], _addresses(data)).functions)
    assert "entry" in names
    got = []
    for here in (True, False):
        monkeypatch.setattr(elf, "HERE", here)
        hold_no_code(monkeypatch)
        out = np.empty_like(expected)
        kernel = compiled.load_object(group, None, data)
        kernel([address(a) for a in (*inputs, out)])
        assert (kernel.combine != 0) == ("combine" in names)
        got.append(out.tobytes())
    assert got[0] == got[1]
    assert np.allclose(np.frombuffer(got[0]), np.ravel(expected), equal_nan=True)


def test_no_kernel_of_these_needs_llvms_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(data: bytes, *_: Any) -> Any:
        raise AssertionError(f"{len(data)} bytes were not placed")

    monkeypatch.setattr(target, "place", refused)
    hold_no_code(monkeypatch)
    for group, _, _ in _cases():
        object_code.compile_group(group)


def test_functions_apart_are_made_once_and_stored_with_every_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hold_no_code(monkeypatch)
    x = values_for(np.dtype("f8"), (300,), 1) * 1e12
    kernels = []
    for ops in (["sin"], ["sin", "cos"]):
        nodes = [(OPS[name], (0,), (), "f8") for name in ops]
        kernels.append(object_code.compile_group(loop_group([x], nodes)).object)
    first, second = (unpacked(data)[1] for data in kernels)
    assert len(first) == 1 and len(second) == 2
    assert first[0] in second  # of the cosine is made what the sine has not
    for ops, data in zip((["sin"], ["sin", "cos"]), kernels, strict=True):
        hold_no_code(monkeypatch)
        nodes = [(OPS[name], (0,), (), "f8") for name in ops]
        kernel = compiled.load_object(loop_group([x], nodes), None, data)
        out = np.empty((len(ops), x.size))
        kernel([address(x), *(address(row) for row in out)])
        for name, row in zip(ops, out, strict=True):
            assert ulp_distance(row, getattr(np, name)(x)).max() <= OPS[name].ulp_from_numpy


def test_a_file_that_is_wrong_is_refused() -> None:
    group, _, _ = _cases()[0]
    data = unpacked(object_code.compile_group(group).object)[1][0].object
    wrong = [data[:size] for size in range(0, len(data), 7)]
    for offset in (0, 4, 5, 16, 18, 58):  # magic, class, order, type, machine, size of a section
        wrong.append(data[:offset] + bytes([data[offset] ^ 0x7F]) + data[offset + 1 :])
    at, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    for i in range(count):
        kind, flags, _, _, size = struct.unpack_from("<4xIQQQQ", data, at + 64 * i)
        if kind == 1 and flags & 4 and size:  # code that may be written
            place = at + 64 * i + 8
            wrong.append(data[:place] + bytes([flags & 255 | 1]) + data[place + 1 :])
        if kind == 4:  # a relocation of a kind that is not known
            entry = struct.unpack_from("<Q", data, at + 64 * i + 24)[0]
            wrong.append(data[: entry + 8] + b"\x02" + data[entry + 9 :])
    assert len(wrong) > 100
    for content in wrong:
        with pytest.raises(Unsupported, match="object code of"):
            elf.place(content, {})


def test_a_function_the_c_library_has_not_is_llvms_to_find() -> None:
    group, _, _ = _cases()[0]
    data = unpacked(object_code.compile_group(group).object)[0]
    found = re.search(rb"\0(lanes\.[0-9a-f]+)\0", data)
    assert found is not None

    def calling(name: bytes) -> bytes:
        return data.replace(found[1], name.ljust(len(found[1]), b"\0"))

    assert "entry" in elf.place(calling(b"fmod"), {}).functions
    with pytest.raises(Unsupported, match="the C library has no fmoq"):
        elf.place(calling(b"fmoq"), {})


def test_a_stored_kernel_runs_without_llvmlite(tmp_path: Path) -> None:
    told = "import sys\n" + PROGRAM + "print('llvmlite' in sys.modules)"
    assert python(told, tmp_path).stdout.split() == ["1", "0", "0", "True"]
    assert python(told, tmp_path).stdout.split() == ["0", "1", "0", "False"]
