"""CUDA C of reductions along short axes: a thread has some elements of the axis before them, each
with all that is reduced or made of it.

The short axes are written out as ``codegen.llvm.unrolled`` does it for the host, so the tree of a
reduction, and with it the bits, are the same. Threads side by side have elements side by side, so a
warp reads and writes whole lines; a record, what one element has along the short axes, is read in
packs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import gcd, prod
from typing import TYPE_CHECKING

from alight._src.base.originals import np
from alight._src.base.records import dataclass
from alight._src.codegen.common.source import ENTRY, Grid, Statements
from alight._src.codegen.cuda.cuda_dialect import CUDA
from alight._src.codegen.cuda.kernel_program import PACK, KernelForm, Step, around, begins
from alight._src.codegen.cuda.loop_kernels import element_function
from alight._src.codegen.llvm.unrolled import Unrolled
from alight._src.ir.graph import GroupKind
from alight._src.ir.group import Group

if TYPE_CHECKING:
    from alight._src.codegen.common.loops import Nest

# The widest access of a thread.
PACK_BYTES = 16
_PACKS = """
// side by side in memory, PACK at a time
template <int PACK, int N, typename T> __device__ __forceinline__ void taken(
    T (&x)[N], const T* p) {
#pragma unroll
  for (int i = 0; i < N; i += PACK) {
    if constexpr (PACK == 1) x[i] = p[i];
    else {
      const Pack<T, PACK> pack = *(const Pack<T, PACK>*)(p + i);
#pragma unroll
      for (int j = 0; j < PACK; ++j) x[i + j] = pack.v[j];
    }
  }
}
// the same by a warp whose threads are side by side, through memory of its own: every store is one
// run; of eight packs in a row each is in another bank for who puts it there and who takes it
template <int N, typename T> __device__ __forceinline__ void put_together(
    const T (&x)[N], T* p, Pack<float, 4>* stage) {
  constexpr int EACH = 16 / sizeof(T), COUNT = N / EACH;
  typedef Pack<T, EACH> P;
  const int lane = threadIdx.x % 32;
  P* s = (P*)stage + threadIdx.x / 32 * 32 * COUNT;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    P pack;
#pragma unroll
    for (int j = 0; j < EACH; ++j) pack.v[j] = x[i * EACH + j];
    const int at = lane * COUNT + i;
    s[at ^ (at >> 3 & 7)] = pack;
  }
  __syncwarp();
  P* q = (P*)(p - lane * N);
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int at = 32 * i + lane;
    q[at] = s[at ^ (at >> 3 & 7)];
  }
}
template <int PACK, int N, typename T> __device__ __forceinline__ void put(
    const T (&x)[N], T* p) {
#pragma unroll
  for (int i = 0; i < N; i += PACK) {
    if constexpr (PACK == 1) p[i] = x[i];
    else {
      Pack<T, PACK> pack;
#pragma unroll
      for (int j = 0; j < PACK; ++j) pack.v[j] = x[i + j];
      *(Pack<T, PACK>*)(p + i) = pack;
    }
  }
}
"""
# An operand decides how many elements a thread has if it is so large a part of the largest one: the
# others come out of the caches, or are few bytes beside it.
_LARGE = 1 / 4
# 32-bit registers of a thread for what it reads and writes: half of what each of 1024 has.
_REGISTERS = 32
# Bytes of a thread that its warp stores for it: with 256 threads to a block, 16 KiB of an SM's
# shared memory for each of its eight blocks, which every card from sm_80 on has.
_STAGED_BYTES = 64


@lru_cache(256)  # a schedule, a text and its launches ask for the same
def written_out(group: Group, shape: Nest) -> tuple[Unrolled, Group]:
    """Return a group without its short axes: what it reads and writes where, and the loop group
    over one element."""
    written = Unrolled(group, shape)
    return written, Group(GroupKind.LOOP, written.graph, ())


def short_schedule(
    group: Group, shape: Nest, offsets: Sequence[int], bits: int, threads: int
) -> Grid:
    """Return the default schedule for operands at these byte offsets and a device that has so many
    threads at once."""
    graph = group.graph
    layouts = graph.operand_layouts
    looped, vector = shape.looped, shape.vector_axis
    counts = [_record(shape, place) for place in range(len(layouts))]
    nbytes = [
        prod(n for n, s in zip(shape.dims, strides, strict=True) if s) * layout.itemsize
        for layout, strides in zip(layouts, shape.strides, strict=True)
    ]
    # A warp reads and writes whole lines where each thread has a pack of all that is large (H200,
    # distances of 4096 x 4096 points: 28 µs with four float32, 29 with eight, 39 with two, 62 with
    # one; 47 with two float64, 78 with four, 96 with one. Records of 32 and 64 bytes, written: 30
    # and 82 µs one by one, 46 and 128 in twos).
    elements = 8
    held = 0
    for place, (kind, layout) in enumerate(zip(shape.classes, layouts, strict=True)):
        size = layout.itemsize
        held += counts[place] * max(1, size // 4) if kind != "b" else 0
        if nbytes[place] < _LARGE * max(nbytes) or kind == "b":
            continue
        if kind == "k":
            elements = min(elements, PACK_BYTES // gcd(PACK_BYTES, counts[place] * size))
        else:
            elements = min(elements, max(1, PACK_BYTES // size) if kind == "c" else 1)
    wide = PACK_BYTES
    for kind, offset, strides in zip(shape.classes, offsets, shape.strides, strict=True):
        if kind in "ck":
            far = [s for k, s in enumerate(strides) if k != vector and (kind == "c" or k < looped)]
            wide = gcd(wide, offset, *far)
    total = prod(shape.dims[:looped])
    while elements > 1 and (
        elements * held > _REGISTERS
        or (looped > 1 and shape.dims[vector] % elements)
        or total < elements * threads
        or wide < PACK_BYTES
    ):
        elements //= 2
    # where elements are one run in memory, so are the records of a warp
    staged = looped == 1 and wide == PACK_BYTES and "k" in shape.classes[len(graph.inputs) :]
    return Grid(256, elements, bits, wide=wide, staged=staged)


def _record(shape: Nest, place: int) -> int:
    """Return how many elements of an operand there are for one of the looped axes."""
    return prod(n for n, moves in zip(shape.unrolled, shape.along[place], strict=True) if moves)


@dataclass(frozen=True, slots=True)
class _Access:
    """One element of a record: which operand's, where it is from the record's beginning, and what
    it is called where a thread has it for its element ``j``."""

    place: int
    offset: str
    name: str


class Short(KernelForm):
    """The text of one group with short axes, with one schedule."""

    def __init__(self, group: Group, shape: Nest, grid: Grid) -> None:
        super().__init__(group, shape, grid)
        self.written, self.flat = written_out(group, shape)
        self.layouts = group.graph.operand_layouts
        self.code = Statements(CUDA)

    # --- launches
    def steps(self) -> tuple[Step, ...]:
        """Return the launches."""
        _, values = self.places.numbers()
        total = prod(self.shape.dims[: self.shape.looped])
        blocks = around(-(-total // (self.grid.block * self.grid.elements)))
        return (Step(ENTRY, blocks, self.grid.block, (total, *values)),)

    # --- the text
    def text(self) -> str:
        """Return the text of the kernel."""
        accesses = self.accesses()
        dtypes = [self.places.dtypes[a.place] for a in accesses]
        words = [self.places.words[a.place] for a in accesses]
        outside: dict[str, str] = {}
        element = element_function(self.flat, dtypes, words, f"{ENTRY}_element", outside)
        usual = element_function(self.flat, dtypes, words, f"{ENTRY}_usual", outside, True)
        branchy = "seldom" in usual.partition("{")[2]
        code, places, grid = self.code, self.places, self.grid
        index, size = places.index, grid.elements
        first = "blockIdx.x" if index == "int" else "(long long)blockIdx.x"
        code.add(f"const {index} apart = {first.replace('blockIdx', 'gridDim')} * {grid.block};")
        code.add(f"const {index} start = {first} * {grid.block} + threadIdx.x;")
        code.add(f"const {index} packs = n / {size};")
        staged = max((self.staged(a, size) for a in accesses[len(self.written.reads) :]), default=0)
        if staged and not branchy:
            code.add(f"__shared__ Pack<float, 4> stage[{grid.block * staged}];")
        with code.block(f"for ({index} e = start; e < packs; e += apart)"):
            if staged and not branchy:
                code.add("const bool together = (e | 31) < packs;")
            self.pack(accesses, size, branchy)
        if size > 1 and self.shape.looped == 1:  # of several axes the inner one has whole packs
            with code.block(f"for ({index} e = packs * {size} + start; e < n; e += apart)"):
                self.pack(accesses, 1, False, True)
        names, _ = places.numbers()
        parameters = ", ".join((*places.pointers(), *places.declared(["n", *names])))
        functions = "\n".join((*outside.values(), element, usual if branchy else ""))
        body = "\n".join(code.lines)
        return f"""{PACK}{_PACKS}{CUDA.functions(functions)}
{functions}
extern "C" __global__ void __launch_bounds__({grid.bounds}) {ENTRY}(
    {parameters}) {{
{body}
}}
"""

    def accesses(self) -> list[_Access]:
        """Return what is read and what is written of one element, in the order of the loop group's
        operands."""
        shape, found = self.shape, []
        for place, index in (*self.written.reads, *self.written.writes):
            sizes = self.written.extent(shape.along[place])
            number = int(np.ravel_multi_index(index, sizes))
            kind = shape.classes[place]
            offset = str(number)
            if kind != "k":
                moved = [(i, k) for k, i in enumerate(index, shape.looped) if i]
                offset = " + ".join(f"{i} * s{place}_{k}" for i, k in moved) or "0"
            name = f"x{place}"
            if kind == "k":
                name += f"[j * {prod(sizes)} + {number}]"
            else:
                name += f"_{number}" + ("" if kind == "b" else "[j]")
            found.append(_Access(place, offset, name))
        return found

    def staged(self, a: _Access, size: int) -> int:
        """Return the packs that a thread stores of an output together with its warp, if it does."""
        nbytes = size * _record(self.shape, a.place) * self.layouts[a.place].itemsize
        if not self.grid.staged or self.shape.classes[a.place] != "k" or nbytes % PACK_BYTES:
            return 0
        return nbytes // PACK_BYTES if PACK_BYTES < nbytes <= _STAGED_BYTES else 0

    def pack(
        self, accesses: Sequence[_Access], size: int, branchy: bool, tail: bool = False
    ) -> None:
        """Add what is done for so many elements side by side."""
        code, shape = self.code, self.shape
        count = len(self.written.reads)
        self.find(size)
        for text in self.declared(accesses[:count], size):
            code.add(text)
        for text in self.moved(accesses[:count], size, True):
            code.add(text)
        for text in self.declared(accesses[count:], size):
            code.add(text)
        if branchy:
            code.add("bool seldom = false;")
        given = ", ".join((*(a.name for a in accesses), *(("seldom",) if branchy else ())))
        code.add("#pragma unroll")
        made = "usual" if branchy else "element"
        code.add(f"for (int j = 0; j < {size}; ++j) {ENTRY}_{made}({given});")
        if branchy:
            # the few that are not usual are read and made again, one after the other
            with code.block("if (seldom)"):
                code.add("#pragma unroll 1")
                each = []
                for a in accesses:
                    step = {"c": "j", "k": f"j * {_record(shape, a.place)}", "b": "0"}.get(
                        shape.classes[a.place], f"j * s{a.place}_{shape.vector_axis}"
                    )
                    each.append(f"q{a.place}[{step} + {a.offset}]")
                code.add(f"for (int j = 0; j < {size}; ++j) {ENTRY}_element({', '.join(each)});")
                code.add("continue;")
        for text in self.moved(accesses[count:], size, False, not branchy and not tail):
            code.add(text)

    def find(self, size: int) -> None:
        """Declare q0, q1, …: where each operand has the first of a thread's elements."""
        code, places, looped = self.code, self.places, self.shape.looped
        indices = [f"e * {size}" if size > 1 else "e"]
        if looped > 1:
            code.add(f"{places.index} rest = e;")
            for axis in range(looped - 1, 0, -1):
                inner, scale = f"d{axis}", ""
                if axis == looped - 1 and size > 1:
                    inner, scale = f"(d{axis} / {size})", f" * {size}"
                code.add(f"const {places.index} i{axis} = rest % {inner}{scale};")
                code.add(f"rest /= {inner};")
            indices = ["rest", *(f"i{axis}" for axis in range(1, looped))]
        for place, word in enumerate(places.words):
            terms = []
            for axis, i in enumerate(indices):
                kind = self.shape.classes[place] if axis == looped - 1 else "s"
                if kind == "k":
                    terms.append(f"({i}) * {_record(self.shape, place)}")
                elif kind != "b":
                    terms.append(f"({i})" if kind == "c" else f"({i}) * s{place}_{axis}")
            code.add(begins(word, f"q{place}", place, self.first, terms, self.grid.by_value))

    def each(self, accesses: Sequence[_Access]) -> Iterator[tuple[str, str, _Access]]:
        """Yield, once for each name that a thread has, the name, the operand's class and its first
        access."""
        first: dict[str, _Access] = {}
        for a in accesses:
            first.setdefault(a.name.partition("[")[0], a)
        for name, a in first.items():
            yield name, self.shape.classes[a.place], a

    def declared(self, accesses: Sequence[_Access], size: int) -> Iterator[str]:
        """Yield the declarations of what a thread has of its elements."""
        for name, kind, a in self.each(accesses):
            word = self.places.words[a.place]
            room = size * (_record(self.shape, a.place) if kind == "k" else 1)
            yield f"{word} {name};" if kind == "b" else f"{word} {name}[{room}];"

    def moved(
        self, accesses: Sequence[_Access], size: int, read: bool, together: bool = False
    ) -> Iterator[str]:
        """Yield the reads, or the writes, of that."""
        for name, kind, a in self.each(accesses):
            place = a.place
            step = f"s{place}_{self.shape.vector_axis}"
            if kind == "b":
                left, right = name, f"q{place}[{a.offset}]"
                yield f"{left} = {right};" if read else f"{right} = {left};"
                continue
            if kind not in "ck":
                for j in range(size):
                    left, right = f"{name}[{j}]", f"q{place}[{j} * {step} + {a.offset}]"
                    yield f"{left} = {right};" if read else f"{right} = {left};"
                continue
            room = size * (_record(self.shape, place) if kind == "k" else 1)
            at = f"q{place}" if kind == "k" else f"q{place} + {a.offset}"
            itemsize = self.layouts[place].itemsize
            pack = max(1, gcd(self.grid.wide, room * itemsize) // itemsize)
            if size == 1 and kind == "c":
                pack = 1
            if together and self.staged(a, size):
                yield f"if (together) put_together({name}, {at}, stage); else"
            yield f"{'taken' if read else 'put'}<{pack}>({name}, {at});"
