"""CUDA C run without a GPU: compiled as C++, the threads of a block as coroutines.

Blocks run one after another; at a barrier or a shuffle a thread waits until all of its block, or of
its warp, have come. So what is computed is checked, and not how memory races would end.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from alight._src.codegen.common.loops import Nest
from alight._src.codegen.common.source import Grid
from alight._src.codegen.cuda.group_forms import Form, card_nest, form, schedule
from alight._src.codegen.cuda.kernel_program import Step, scalars
from alight._src.ir.group import Group

# Where the processes of a session find what one of them has compiled.
FOLDER = "CUDA_ON_CPU"
_FLAGS = ("-std=c++17", "-O1", "-ffp-contract=off", "-w", "-fPIC")
# What kernels include, and what runs them. To compile it took three fourths of a kernel's time.
_SHIM = r"""
#include <cmath>
#include <cstring>
#include <type_traits>
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#pragma GCC visibility push(hidden)
struct Dim { unsigned x; };
extern Dim threadIdx, blockIdx, gridDim;
extern unsigned long long slots[1024];
void __syncwarp();
void __syncthreads();
void run(unsigned blocks, unsigned size, void (*f)());
#pragma GCC visibility pop
using std::max;
using std::min;
template <typename T> static T exchanged(T x, unsigned from) {
  const unsigned me = threadIdx.x, warp = me / 32;
  memcpy(&slots[me], &x, sizeof(T));
  __syncwarp();
  T result;
  memcpy(&result, &slots[warp * 32 + from], sizeof(T));
  __syncwarp();
  return result;
}
template <typename T> static T __shfl_xor_sync(unsigned, T x, int mask) {
  return exchanged(x, (threadIdx.x % 32) ^ mask);
}
template <typename T> static T __shfl_up_sync(unsigned, T x, int far) {
  const int lane = threadIdx.x % 32;
  return exchanged(x, lane >= far ? lane - far : lane);
}
template <typename A, typename B> static A bits(B b) { A a; memcpy(&a, &b, sizeof(A)); return a; }
static float __uint_as_float(unsigned x) { return bits<float>(x); }
static float __int_as_float(int x) { return bits<float>(x); }
static unsigned __float_as_uint(float x) { return bits<unsigned>(x); }
static double __longlong_as_double(long long x) { return bits<double>(x); }
static long long __double_as_longlong(double x) { return bits<long long>(x); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static const long long* words;
template <typename T> static T word(int i) {
  typename std::remove_cv<T>::type value;
  memcpy(&value, &words[i], sizeof(T));
  return value;
}
"""
_RUNTIME = r"""
#include "shim.h"
#include <csetjmp>
#include <cstdlib>
#include <ucontext.h>
#include <vector>
Dim threadIdx, blockIdx, gridDim;
unsigned long long slots[1024];
struct Meeting { unsigned come = 0, turn = 0; };
static std::vector<ucontext_t> threads;
struct Place { jmp_buf registers; };
static std::vector<Place> places;
static std::vector<char> begun, over;
static std::vector<Meeting> warps;
static Meeting everyone;
static ucontext_t outside;
static unsigned current, left;
static void go(unsigned n) {
  current = threadIdx.x = n;
  if (begun[n]) _longjmp(places[n].registers, 1);
  begun[n] = 1;
  setcontext(&threads[n]);
}
static void next() {
  const unsigned me = current;
  unsigned n = me;
  do n = (n + 1) % threads.size(); while (over[n]);
  if (n == me) return;
  // swapcontext asks the system for the mask of signals, each time
  if (_setjmp(places[me].registers) == 0) go(n);
}
static void meet(Meeting& m, unsigned size) {
  const unsigned turn = m.turn, me = current;
  if (++m.come == size) { m.come = 0; ++m.turn; }
  for (long i = 0; m.turn == turn; ++i) {
    if (i > 1000000) abort();  // somebody never comes
    next();
  }
  current = threadIdx.x = me;
}
void __syncwarp() { meet(warps[threadIdx.x / 32], 32); }
void __syncthreads() { meet(everyone, threads.size()); }
static void (*body)();
static void begin() {
  body();
  over[current] = 1;
  if (--left == 0) setcontext(&outside);
  unsigned n = current;
  do n = (n + 1) % threads.size(); while (over[n]);
  go(n);
}
void run(unsigned blocks, unsigned size, void (*f)()) {
  const size_t room = 1 << 16;
  // not cleared, and given back: each of hundreds of libraries would keep 64 MB otherwise
  char* stacks = (char*)malloc(room * size);
  body = f;
  gridDim.x = blocks;
  for (unsigned b = 0; b < blocks; ++b) {
    blockIdx.x = b;
    threads.assign(size, ucontext_t());
    places.resize(size);
    begun.assign(size, 0);
    over.assign(size, 0);
    warps.assign(size / 32 + 1, Meeting());
    everyone = Meeting();
    left = size;
    for (unsigned t = 0; t < size; ++t) {
      getcontext(&threads[t]);
      threads[t].uc_stack.ss_sp = stacks + room * t;
      threads[t].uc_stack.ss_size = room;
      threads[t].uc_link = nullptr;
      makecontext(&threads[t], begin, 0);
    }
    current = threadIdx.x = 0;
    begun[0] = 1;
    swapcontext(&outside, &threads[0]);
  }
  free(stacks);
}
"""
_PLAIN = {
    'asm("and.b64 %0, %1, 0x7fffffffffffffff;" : "=l"(r) : "l"(__double_as_longlong(x)));': (
        "r = __double_as_longlong(x) & 0x7fffffffffffffffll;"
    ),
    # what is denormal is zero to these
    'asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));': (
        "r = 1.0f / (std::fabs(y) < 0x1p-126f ? std::copysign(0.0f, y) : y);"
    ),
    'asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));': (
        "r = 1.0 / std::sqrt((double)(std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x));"
    ),
    # a NaN of the card's arithmetic is this one
    "told = __float_as_uint(root);": "told = root == root ? __float_as_uint(root) : 0x7fffffffu;",
    'asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));': "f = bits<_Float16>(h);",
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));': "h = bits<short>((_Float16)f);",
    'asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h) : "d"(d));': "h = bits<short>((_Float16)d);",
}


def compiler() -> str | None:
    """Return a C++ compiler, or None."""
    return shutil.which("g++")


def signature(text: str, entry: str) -> list[str]:
    """Return the types of an entry point's parameters."""
    found = re.search(rf'extern "C" __global__ [^{{]*?\b{entry}\(\n\s*(.*?)\) \{{', text, re.S)
    assert found is not None, entry
    return [re.sub(r"\s*\w+$", "", p.strip()) for p in found[1].split(",")]


@cache
def library(text: str) -> ctypes.CDLL:
    """Return a text compiled as C++, with ``launch_NAME(blocks, threads, words)`` for each entry
    point: eight bytes for each of its parameters, as the driver reads them."""
    entries = re.findall(r'extern "C" __global__ [^{]*?\b(\w+)\(\n', text)
    signatures = {name: signature(text, name) for name in entries}
    for asm, plain in _PLAIN.items():
        text = text.replace(asm, plain)
    callers = []
    for name, types in signatures.items():
        arguments = [f"word<{t}>({i})" for i, t in enumerate(types)]
        callers.append(
            f"static void call_{name}() {{ {name}({', '.join(arguments)}); }}\n"
            f'extern "C" void launch_{name}(unsigned blocks, unsigned size, const long long* w) '
            f"{{ words = w; run(blocks, size, call_{name}); }}"
        )
    source = "\n".join(['#include "shim.h"', text, *callers])
    target = _folder() / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.so"
    if not target.exists():
        _compile(source, target, "-shared", str(target.parent / "runtime.o"), "-x", "c++")
    return ctypes.CDLL(str(target))


@cache
def _folder() -> Path:
    """Return the folder for what is compiled, with what all kernels need."""
    if FOLDER in os.environ:
        folder = Path(os.environ[FOLDER])
        folder.mkdir(exist_ok=True)
    else:
        folder = Path(tempfile.mkdtemp(prefix="cuda-on-cpu-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if not (folder / "runtime.o").exists():  # the last one
        with _whole(folder / "shim.h") as made:
            made.write_text(_SHIM)
        _compile(_SHIM, folder / "shim.h.gch", "-x", "c++-header")
        _compile(_RUNTIME, folder / "runtime.o", "-c", "-x", "c++")
    return folder


@contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """Yield a path for what becomes the target when all of it is there."""
    with tempfile.TemporaryDirectory(dir=target.parent) as made:
        yield Path(made) / "made"
        (Path(made) / "made").replace(target)


def _compile(text: str, target: Path, *how: str) -> None:
    command = [str(compiler()), *_FLAGS, "-I", str(target.parent), *how]
    with _whole(target) as made:
        (source := made.with_name("source")).write_text(text)
        done = subprocess.run(
            [*command, str(source), "-o", str(made)], capture_output=True, text=True
        )
        assert done.returncode == 0, f"{done.stderr[:3000]}\n{text}"


def launched(compiled: ctypes.CDLL, step: Step, words: Sequence[int]) -> None:
    """Run one launch of a program with these parameters."""
    given = (ctypes.c_longlong * len(words))(*words)
    getattr(compiled, f"launch_{step.entry}")(step.blocks, step.threads, given)


def run(
    group: Group, inputs: Sequence[Any], grid: Grid | None = None, processors: int = 4
) -> list[Any]:
    """Return what the group's CUDA kernels give for the inputs, whether those of one element come
    by value or lie in memory."""
    shape = card_nest(group)
    if grid is None:
        addresses = [a.__array_interface__["data"][0] for a in inputs]
        addresses += [0] * len(group.graph.outputs)  # NumPy's memory is aligned
        grid = schedule(group, shape, addresses, processors)
    results = _run(group, shape, inputs, grid)
    if known := scalars(group, shape):
        others = _run(group, shape, inputs, replace(grid, by_value=known))
        for one, other in zip(results, others, strict=True):
            assert one.tobytes() == other.tobytes(), (known, one, other)
    return results


def _run(group: Group, shape: Nest, inputs: Sequence[Any], grid: Grid) -> list[Any]:
    graph = group.graph
    outputs = []
    for number in graph.outputs:
        layout = graph.layouts[number]
        order = sorted(range(layout.ndim), key=lambda i: -layout.strides[i])
        dense = np.empty([layout.shape[i] for i in order], layout.dtype)
        dense.view(np.uint8 if dense.ndim else dense.dtype)[...] = 0xA5 if dense.ndim else 0
        outputs.append(dense.transpose(np.argsort(order)) if layout.ndim else dense)
    addresses = [a.__array_interface__["data"][0] for a in (*inputs, *outputs)]
    for place in grid.by_value:
        addresses[place] = int.from_bytes(inputs[place].tobytes(), sys.byteorder)
    program: Form = form(group, shape, grid)
    compiled = library(program.text())
    scratch = [np.full(n, 0xA5, np.uint8) for n in program.scratch()]
    addresses += [a.__array_interface__["data"][0] for a in scratch]
    for step in program.steps():
        launched(compiled, step, (*addresses, *step.numbers))
    return outputs
