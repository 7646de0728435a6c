"""LLVM IR that puts a tile of two axes in order in a buffer, or back where it belongs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from alight._src.codegen.llvm.expressions import Code, Module

# Elements to a side of the squares that are turned around in registers.
_SIDE = 8


def copy_function(module: Module, size: int) -> str:
    """Return the function that copies rows × cols elements of a size: ``(ptr target, i64 row step,
    i64 column step, ptr source, i64 row step, i64 column step, i64 rows, i64 cols)``."""
    name = f"tile{size}"
    if name in module.shared:
        return name
    code = Code(module)
    given = "ptr %target, i64 %tr, i64 %tc, ptr %source, i64 %sr, i64 %sc, i64 %rows, i64 %cols"
    turned = size <= 8
    if turned:
        there = code.emit(f"icmp eq i64 %sr, {size}")
        here = code.emit(f"icmp eq i64 %tc, {size}")
        both = code.emit(f"and i1 {there}, {here}")
        whole = [code.emit(f"and i64 {n}, {-_SIDE}") for n in ("%rows", "%cols")]
        rows, cols = (code.emit(f"select i1 {both}, i64 {n}, i64 0") for n in whole)
        with _some(code, cols, step=_SIDE) as j, _some(code, rows, step=_SIDE) as i:
            _turn(code, size, *(_at(code, p, i, j) for p in ("target", "source")))
        # what the squares leave: columns on their right, and rows below them
        rows = code.emit(f"select i1 {code.emit(f'icmp eq i64 {cols}, 0')}, i64 0, i64 {rows}")
        _each(code, size, "0", rows, cols, "%cols")
        _each(code, size, rows, "%rows", "0", "%cols")
    else:
        _each(code, size, "0", "%rows", "0", "%cols")
    code.do("ret void")
    return module.share(name, code.function(f"internal void @{name}({given})", "#3"))


def run_copy_function(module: Module, size: int) -> str:
    """Return the function ``(ptr target, i64 step, ptr source, i64 step, i64 count, i64 room)``
    that copies elements of a size and repeats the first one until there is no more room."""
    name = f"copy{size}"
    if name not in module.shared:
        code = Code(module)
        one = f"i{8 * size}"
        with code.loop("%room") as j:
            inside = code.emit(f"icmp slt i64 {j}, %count")
            k = code.emit(f"select i1 {inside}, i64 {j}, i64 0")
            source = code.offset("%source", code.emit(f"mul i64 {k}, %given"))
            value = code.emit(f"load {one}, ptr {source}, align 1")
            target = code.offset("%target", code.emit(f"mul i64 {j}, %step"))
            code.do(f"store {one} {value}, ptr {target}, align 1")
        code.do("ret void")
        given = "ptr %target, i64 %step, ptr %source, i64 %given, i64 %count, i64 %room"
        module.share(name, code.function(f"internal void @{name}({given})", "#3"))
    return name


@contextmanager
def _some(code: Code, stop: str, start: str = "0", step: int = 1) -> Iterator[str]:
    """Run what is added inside for start, start + step, … below stop, if there are any."""
    count = code.emit(f"sub i64 {stop}, {start}")
    with code.when(code.emit(f"icmp sgt i64 {count}, 0")), code.loop(count, step=step) as i:
        yield i if start == "0" else code.emit(f"add i64 {start}, {i}")


def _at(code: Code, side: str, i: str, j: str) -> str:
    row = code.offset(f"%{side}", code.emit(f"mul i64 {i}, %{side[0]}r"))
    return code.offset(row, code.emit(f"mul i64 {j}, %{side[0]}c"))


def _each(code: Code, size: int, top: str, bottom: str, left: str, right: str) -> None:
    one = f"i{8 * size}"
    with _some(code, bottom, top) as i, _some(code, right, left) as j:
        value = code.emit(f"load {one}, ptr {_at(code, 'source', i, j)}, align 1")
        code.do(f"store {one} {value}, ptr {_at(code, 'target', i, j)}, align 1")


def _turn(code: Code, size: int, target: str, source: str) -> None:
    """Copy a square whose columns lie side by side in the source and its rows in the target."""
    vector = f"<{_SIDE} x i{8 * size}>"
    lines = [
        code.emit(
            f"load {vector}, ptr {code.offset(source, code.emit(f'mul i64 {k}, %sc'))}, align 1"
        )
        for k in range(_SIDE)
    ]
    # three times the halves are woven together, as cards are
    half = _SIDE // 2
    masks = []
    for start in (0, half):
        order = ", ".join(f"i32 {start + i // 2 + i % 2 * _SIDE}" for i in range(_SIDE))
        masks.append(f"<{_SIDE} x i32> <{order}>")
    for _ in range(half.bit_length()):
        pairs = [(lines[k], lines[k + half]) for k in range(half)]
        lines = [
            code.emit(f"shufflevector {vector} {a}, {vector} {b}, {mask}")
            for a, b in pairs
            for mask in masks
        ]
    for k, line in enumerate(lines):
        where = code.offset(target, code.emit(f"mul i64 {k}, %tr"))
        code.do(f"store {vector} {line}, ptr {where}, align 1")
