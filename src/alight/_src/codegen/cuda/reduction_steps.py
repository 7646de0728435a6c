"""Reductions in CUDA C: what each element becomes, what two partial reductions become, what the
whole does.

The tree is that of ``codegen.llvm.combine``, so results have the bits of the host's kernels. It
suits a warp: four threads hold the sixteen lanes of a chunk, four elements side by side each, and
eight steps fill it. Lanes, chunks, runs of chunks and parts of a row then meet pairwise. A tree
that is not full is filled up with the identity, which changes no bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from alight._src.codegen.common.source import Statements
from alight._src.codegen.cuda.cuda_dialect import CUDA
from alight._src.codegen.llvm.combine import Reduction
from alight._src.ir.body import width_of

if TYPE_CHECKING:
    from alight._src.ir.graph import Graph, Node

# Elements that the threads of one warp hold between them: a chunk for every four threads.
RUN = 1024
# Partial reductions that a thread can keep: it takes fewer than 2**32 in turn.
_LEVELS = 32

TREE = """
// --- partial reductions and how they meet; a is always before b
template <typename T> struct Best { T value; long long index; };
template <typename T> struct Moments { T count, sum, squares; };

template <typename T> __device__ __forceinline__ T turned(T x, int mask) {
  if constexpr (sizeof(T) < 4) return (T)__shfl_xor_sync(0xffffffffu, (int)x, mask);
  else return __shfl_xor_sync(0xffffffffu, x, mask);
}
template <typename T> __device__ __forceinline__ Best<T> turned(Best<T> x, int mask) {
  return {turned(x.value, mask), turned(x.index, mask)};
}
template <typename T> __device__ __forceinline__ Moments<T> turned(Moments<T> x, int mask) {
  return {turned(x.count, mask), turned(x.sum, mask), turned(x.squares, mask)};
}

// a thread's partial reduction with that of the thread whose number differs in one bit
template <typename F> __device__ __forceinline__ typename F::S met(typename F::S mine, int mask) {
  const typename F::S other = turned(mine, mask);
  return (threadIdx.x & mask) ? F::pair(other, mine) : F::pair(mine, other);
}

// of a chunk, from the lanes 4 (t % 4) + j of four threads
template <typename F> __device__ __forceinline__ typename F::S chunk(const typename F::S (&a)[4]) {
  typedef typename F::S S;
  const bool high = threadIdx.x & 2, odd = threadIdx.x & 1;
  S b[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const S mine = high ? a[j + 2] : a[j], other = turned(high ? a[j] : a[j + 2], 2);
    b[j] = high ? F::pair(other, mine) : F::pair(mine, other);
  }
  const S mine = odd ? b[1] : b[0], other = turned(odd ? b[0] : b[1], 1);
  return met<F>(met<F>(odd ? F::pair(other, mine) : F::pair(mine, other), 2), 1);
}

// of the chunks that the threads of a team in one warp hold
template <typename F, int TEAM> __device__ __forceinline__ typename F::S run(typename F::S s) {
#pragma unroll
  for (int mask = 4; mask < TEAM && mask < 32; mask *= 2) s = met<F>(s, mask);
  return s;
}

// of what lies in shared memory, and has all been put there when everybody is here
template <typename F, int COUNT> __device__ __forceinline__ typename F::S gathered(
    const typename F::S* shared) {
  __syncthreads();
  typename F::S s = shared[threadIdx.x % COUNT];
#pragma unroll
  for (int mask = 1; mask < COUNT; mask *= 2) s = met<F>(s, mask);
  __syncthreads();
  return s;
}

// of all warps of a block
template <typename F, int WARPS> __device__ __forceinline__ typename F::S block(
    typename F::S s, typename F::S* shared) {
  if constexpr (WARPS > 1) {
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = s;
    s = gathered<F, WARPS>(shared);
  }
  return s;
}

// of some side by side
template <typename F, int COUNT> __device__ __forceinline__ typename F::S adjacent(
    typename F::S (&a)[COUNT]) {
#pragma unroll
  for (int half = 1; half < COUNT; half *= 2)
#pragma unroll
    for (int i = 0; i < COUNT; i += 2 * half) a[i] = F::pair(a[i], a[i + half]);
  return a[0];
}

// the reduction of any number of partial reductions one after another: a binary counter of them
template <typename F> struct Counter {
  typename F::S kept[LEVELS];
  unsigned int count = 0;
  int top = 0;
  __device__ __forceinline__ void push(typename F::S s) {
    for (unsigned int bits = count++; bits & 1; bits >>= 1) s = F::pair(kept[--top], s);
    kept[top++] = s;
  }
  __device__ __forceinline__ typename F::S total() {
    typename F::S s = F::none();
    for (int i = top; i-- > 0;) s = F::pair(kept[i], s);
    return s;
  }
};

template <typename F> struct Bests {
  typedef Best<typename F::T> S;
  static __device__ __forceinline__ S none() { return {(typename F::T)0, -1}; }
  static __device__ __forceinline__ S pair(S a, S b) {
    if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
    if (F::better(b.value, a.value)) return b;
    return F::better(a.value, b.value) || a.index < b.index ? a : b;
  }
};

// counts, sums of distances from one element, squared deviations from the mean of each run; runs
// are of equal length where the tree is full
template <typename T> struct Spread {
  typedef Moments<T> S;
  static __device__ __forceinline__ S none() { return {0, 0, 0}; }
  static __device__ __forceinline__ S pair(S a, S b) {
    if (a.count == 0 || b.count == 0) return a.count == 0 ? b : a;
    const T count = a.count + b.count, sum = a.sum + b.sum;
    T between;
    if (a.count == b.count) {
      const T away = b.sum - a.sum, factor = (T)0.5 / a.count;
      between = away * (away * factor);
    } else {
      const T away = b.sum / b.count - a.sum / a.count;
      between = away * (away * (a.count * (b.count / count)));
    }
    // where the sum overflows, as in NumPy, everything is infinitely far from the mean
    if (sum * (T)0 != (T)0) between = sum * sum;
    return {count, sum, (a.squares + b.squares) + between};
  }
};
""".replace("LEVELS", str(_LEVELS))


class CudaReduction(Reduction):
    """One reduction of a group, with the name of the structure that says how it reduces."""

    def __init__(self, graph: Graph, node: Node, number: int) -> None:
        super().__init__(graph, node)
        self.number = number
        self.type = CUDA.type_of(self.dtype)
        # what is reduced in lanes and chunks: of moments plain sums, two times
        self.plain = f"Reduction{number}"
        self.name = self.plain
        if self.argument:
            self.name = f"Bests<{self.plain}>"
        elif self.moments:
            self.name = f"Spread<{self.type}>"
        self.state = f"{self.name}::S"
        self.lanes = self.name if self.argument else self.plain
        size = max(1, width_of(self.dtype) // 8)
        self.state_bytes = 16 if self.argument else 3 * size if self.moments else size

    def structure(self, outside: dict[str, str]) -> str:
        """Return the structure's text: the type, the identity, how two meet or which is better."""
        code = Statements(CUDA, outside)
        if self.argument:
            (tree,) = self.better
            head, result = "bool better", code.evaluate(tree, ["a", "b"])
        else:
            (tree,) = self.pair
            head, result = "S pair", code.evaluate(tree, ["a", "b"])
        body = "\n".join(f"  {line}" for line in (*code.lines, f"  return {result};"))
        function = "static __device__ __forceinline__"
        none = CUDA.literal(self.identity, self.dtype) if not self.argument else ""
        neutral = f"\n  {function} S none() {{ return {none}; }}" if none else ""
        return f"""struct {self.plain} {{
  typedef {self.type} T;
  typedef T S;{neutral}
  {function} {head}(T a, T b) {{
{body}
  }}
}};"""

    def made(self, code: Statements, values: Sequence[str]) -> str:
        """Return the element to reduce, from the values of the reduction's operands; the mask is
        the last."""
        (tree,) = self.element
        value = code.evaluate(tree, [values[0]])
        if self.masked:
            value = f"({values[-1]} ? {value} : {CUDA.literal(self.identity, self.dtype)})"
        return value

    def delivered(self, code: Statements, state: str, count: str) -> str:
        """Return the result made of the state of the whole and the number of elements."""
        if self.argument:
            return CUDA.cast(f"{state}.index", "int64", self.result)
        reduced = f"{state}.squares" if self.moments else state
        if self.start is not None:
            (tree,) = self.pair
            reduced = code.evaluate(tree, [CUDA.literal(self.start, self.dtype), reduced])
        if self.finish is None:
            return CUDA.cast(reduced, self.dtype, self.result)
        number = f"(double){count}"
        if self.moments:
            taken = CUDA.literal(self.freedom, "float64")
            left = code.name(f"{number} - {taken}", "float64")
            number = f"({left} > 0.0 ? {left} : 0.0)"
        (tree,) = self.finish
        return code.evaluate(tree, [reduced, code.name(number, "float64")])
