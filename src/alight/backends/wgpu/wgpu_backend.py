"""WebGPU by way of wgpu-py: elementwise kernels in WGSL, on whatever card the system drives.

WebGPU has float32, int32 and uint32; float64 is never demoted to them. Nothing is started before a
plan needs it: probing asks the driver in another process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

from alight._core import Data, make_layout
from alight._src.base.originals import np
from alight._src.base.records import dataclass, field
from alight._src.base.uninterrupted import whereabouts
from alight._src.codegen.common.dialects import Dialect
from alight._src.codegen.common.keys import structure
from alight._src.codegen.common.loops import Nest, Schedule, nest
from alight._src.codegen.common.source import ENTRY, Grid
from alight._src.codegen.wgsl.wgsl_dialect import wgsl
from alight._src.codegen.wgsl.wgsl_loops import GRID, wgsl_arguments, wgsl_loop
from alight._src.config.loading import config
from alight._src.ir.group import Group
from alight.backends.base import Command, Copy, Launch, Operand
from alight.backends.driver_subprocess import loaded, refusal
from alight.backends.machine import host_memory
from alight.backends.wgpu.adapters import CHOOSING, adapters, ask, described, paths, preferred
from alight.backends.wgpu.checked_pieces import Pieces, proven
from alight.backends.wgpu.wgpu_session import Session, WgpuBuffer
from alight.device import Device, Gap, Probe, Support, Traces, Unsupported
from alight.errors import DeviceUnavailable, KernelError

DTYPES = frozenset(("bool", "int32", "uint32", "float32"))
GAPS = (
    Gap("float64", "WebGPU has no double precision", "a WebGPU extension"),
    Gap("int64", "WebGPU has no integers of 64 bits", "a WebGPU extension"),
    Gap("int8, int16", "WGSL has no integers under 32 bits", "alight: bytes packed in words"),
    Gap("reductions, scans, matmul", "only elementwise kernels are printed", "alight"),
    Gap("sin, cos, tan, ldexp", "their bodies need integers of 64 bits", "alight"),
    Gap("cbrt", "WGSL has no dependable fma, and its body is not the same with sums", "alight"),
)
# Of the host's memory, for a device that has none of its own.
_SHARE_OF_HOST = 1 / 2


@dataclass(slots=True)
class WgpuEvent:
    """The end of a submission. ``ended`` is the host's clock when it was known to have ended."""

    device: str
    queue: int
    session: Session
    number: int
    began: float
    buffers: tuple[Any, ...] = ()
    downloads: list[Any] = field(default_factory=list)
    known: float | None = None

    @property
    def ended(self) -> float:
        """Return when the work had ended; an error before it was waited for."""
        if self.known is None:
            raise RuntimeError(f"an event of {self.device} was not waited for. Fix: wait first.")
        return self.known


@dataclass(frozen=True, slots=True)
class WgpuKernel:
    """A compiled pipeline and the nest of one group that it runs."""

    group: Group
    shape: Nest
    text: str
    pipeline: Any
    layout: Any
    itemsizes: tuple[int, ...]


def _preferred(infos: Sequence[Mapping[str, Any]]) -> list[int]:
    settings = config()
    return preferred(infos, settings.wgpu_power, settings.wgpu_software)


class WgpuBackend:
    """Drives WebGPU devices; buffers are ``WgpuBuffer``, kernels ``WgpuKernel``."""

    name = "wgpu"
    late = False
    downloads_parts = True

    def __init__(self) -> None:
        self._probe: Probe | None = None
        self._sessions: dict[str, Session] = {}
        self._dialects: dict[str, Dialect] = {}
        self._pipelines: dict[tuple[str, str], tuple[Any, Any]] = {}
        self._texts: dict[tuple[str, str], str] = {}
        self._pieces: Pieces = _pieces

    def probe(self) -> Probe:
        """Return the adapters' devices, by the settings' preference, or why there are none."""
        if self._probe is None:
            self._probe = self._asked()
        return self._probe

    def _asked(self) -> Probe:
        if reason := refusal("WebGPU"):
            return Probe((), reason)
        if whereabouts("wgpu") is None:
            return Probe((), "wgpu-py is not installed. Fix: pip install 'alight[webgpu]'")
        found, reason = ask()
        places = _preferred([adapter["info"] for adapter in found])
        if found and not places:
            reason = (
                "there are only software adapters, and wgpu_software is false. Fix: set it to true"
            )
        devices = tuple([_device(i, found[place]) for i, place in enumerate(places)])
        settings = ("wgpu_power", "wgpu_software")
        return Probe(devices, reason, Traces(paths(), CHOOSING, settings, ("wgpu",)))

    def described(self, device: Device) -> Device:
        """Return an open device as its driver describes it in this process."""
        found = described()
        place = int(device.id.partition(":")[2])
        return _device(place, found[_preferred([adapter["info"] for adapter in found])[place]])

    def open(self, device: Device) -> None:
        """Start the driver and learn how the device rounds."""
        if device.id in self._sessions:
            return
        loaded("WebGPU")
        place = int(device.id.partition(":")[2])
        here = adapters()
        here = [here[i] for i in _preferred([dict(adapter.info) for adapter in here])]
        if place >= len(here) or _fingerprint(dict(here[place].info)) not in device.fingerprint:
            raise DeviceUnavailable(
                f"{device.id} ({device.name}) is not there any more. Fix: start the program again."
            )
        self._sessions[device.id] = Session(here[place], device.memory_bytes)
        self._dialects[device.id] = self._measured_dialect(device)
        if config().check:
            self._pieces = proven(_pieces)

    def close(self, device: Device) -> None:
        """Give up everything held on the device."""
        session = self._sessions.pop(device.id, None)
        if session is not None:
            session.close()
        for key in [key for key in self._pipelines if key[0] == device.id]:
            del self._pipelines[key]

    def _session(self, device: Device) -> Session:
        session = self._sessions.get(device.id)
        if session is None:
            raise DeviceUnavailable(f"{device.id} is not open. Fix: open it first.")
        return session

    # --- kernels
    def compile(
        self, device: Device, group: Group, implementation: str, schedule: Any
    ) -> WgpuKernel:
        """Return a kernel for the group.

        Raises Unsupported, with the reason, where the device or WGSL has a gap.
        """
        if implementation != "generated":
            raise Unsupported(f"{device.id} has no implementation {implementation!r}")
        grid = schedule if isinstance(schedule, Grid) else GRID
        dialect = self._dialects[device.id]
        shape = nest(group)
        key = device.id, f"{structure(group, shape, Schedule())}|{grid}"
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = wgsl_loop(dialect, group, shape, grid)
        return self._kernel(device, group, shape, text)

    def _kernel(self, device: Device, group: Group, shape: Nest, text: str) -> WgpuKernel:
        graph = group.graph
        layouts = graph.operand_layouts
        most = device.limits["operands"]
        if len(layouts) > most:
            raise Unsupported(f"{len(layouts)} operands, {device.id} binds {most} at most")
        pipeline, layout = self._pipeline(device, text)
        itemsizes = tuple(operand.itemsize for operand in layouts)
        return WgpuKernel(group, shape, text, pipeline, layout, itemsizes)

    def _pipeline(self, device: Device, text: str) -> tuple[Any, Any]:
        found = self._pipelines.get((device.id, text))
        if found is None:
            session = self._session(device)
            with session.errors():
                module = session.device.create_shader_module(code=text)
                pipeline = session.device.create_compute_pipeline(
                    layout="auto", compute={"module": module, "entry_point": ENTRY}
                )
                found = pipeline, pipeline.get_bind_group_layout(0)
            self._pipelines[device.id, text] = found
        return found

    def dump(self, kernel: WgpuKernel) -> bytes:
        """Return the kernel's text: what a driver compiles it to is the driver's to keep."""
        return kernel.text.encode()

    def load(self, device: Device, group: Group, schedule: Any, data: bytes) -> WgpuKernel:
        """Return a kernel from its text."""
        return self._kernel(device, group, nest(group), data.decode())

    # --- memory
    def allocate(self, device: Device, nbytes: int, where: str = "device") -> Any:
        """Return a buffer of the device, or of the host's memory, which WebGPU cannot pin."""
        if where == "pinned":
            layout = make_layout(np.dtype(np.uint8), (nbytes,))
            return Data(layout, np.empty(nbytes, np.uint8))
        return self._session(device).buffer(nbytes)

    def register(self, device: Device, address: int, nbytes: int) -> Any:
        """Raise Unsupported: WebGPU does not reach the host's memory."""
        raise Unsupported(f"{device.id} cannot reach memory of the host")

    def free(self, device: Device, buffer: Any) -> None:
        """Give a buffer back."""
        if isinstance(buffer, WgpuBuffer):
            buffer.free()

    def memory(self, device: Device) -> tuple[int, int]:
        """Return free and total bytes, as far as this process may use them."""
        session = self._sessions.get(device.id)
        total = device.memory_bytes
        return (total if session is None else total - session.live()), total

    # --- running
    def submit(
        self, device: Device, queue: int, commands: Sequence[Command], wait: Sequence[Any] = ()
    ) -> WgpuEvent:
        """Encode the commands after all others: there is one queue, so nothing is waited for.

        No commands at all are a mark in time: all earlier work has ended when this returns.
        """
        session = self._session(device)
        session.submitted += 1
        event = WgpuEvent(device.id, queue, session, session.submitted, perf_counter())
        made: list[Any] = []
        for command in commands:
            if isinstance(command, Launch):
                made += self._launch(device, session, command)
            elif isinstance(command, Copy):
                event.downloads += self._copy(session, command)
            else:
                data = np.full(command.nbytes, command.byte, np.uint8)
                session.upload(data, command.target, command.nbytes)
        event.buffers = tuple(made)
        if not commands:
            self.wait(event)
        return event

    def wait(self, event: WgpuEvent) -> None:
        """Return when the event has happened and what it downloads is on the host."""
        session = event.session
        if event.downloads:
            downloads, event.downloads = event.downloads, []
            session.deliver(downloads)
            session.done = max(session.done, event.number)
        elif event.number > session.done:
            session.fence()
        if event.known is None:
            event.known = perf_counter()

    def seconds(self, start: WgpuEvent, end: WgpuEvent) -> float:
        """Return seconds between two events on the host's clock, sending included: that is what a
        program waits for."""
        self.wait(start)
        self.wait(end)
        return end.ended - start.ended

    def _copy(self, session: Session, command: Copy) -> list[Any]:
        source, target, nbytes = command.source, command.target, command.nbytes
        if nbytes == 0:
            return []
        if isinstance(target, WgpuBuffer) and nbytes % 4 and nbytes < target.nbytes:
            raise KernelError(
                f"a copy of {nbytes} bytes into a buffer of {target.nbytes}: WebGPU copies whole "
                "words. Fix: copy a multiple of 4 bytes, or all."
            )
        if not isinstance(target, WgpuBuffer):
            return session.download(source, target.raw, nbytes, command.start)
        if not isinstance(source, WgpuBuffer):
            session.upload(source.raw, target, nbytes)
            return []
        whole = -(-nbytes // 4) * 4
        with session.errors():
            session.commands().copy_buffer_to_buffer(source.handle, 0, target.handle, 0, whole)
        return []

    def _launch(self, device: Device, session: Session, command: Launch) -> list[WgpuBuffer]:
        kernel: WgpuKernel = command.kernel
        made: list[WgpuBuffer] = []
        operands = list(command.inputs)
        outputs: list[Operand] = []
        for number, output in zip(kernel.group.graph.outputs, command.outputs, strict=True):
            if output is None:
                layout = kernel.group.graph.layouts[number]
                made.append(session.buffer(layout.nbytes))
                output = Operand(made[-1], 0, layout)
            outputs.append(output)
        written = {id(output.buffer) for output in outputs}
        if len(written) < len(outputs):
            raise KernelError("two results in one buffer. Fix: give each its own.")
        for place, operand in enumerate(operands):
            if id(operand.buffer) in written:  # WebGPU binds what is written only once
                copy = session.buffer(operand.buffer.nbytes)
                whole = Copy(operand.buffer, copy, copy.nbytes, device.space, device.space)
                self._copy(session, whole)
                operands[place] = operand._replace(buffer=copy)
        operands += outputs
        for operand in operands:
            if not isinstance(operand.buffer, WgpuBuffer) or operand.buffer.handle is None:
                raise KernelError(
                    f"a launch on {device.id} was given a {type(operand.buffer).__name__} that is "
                    "not in its memory, or was freed. Fix: upload it first."
                )
            if operand.offset % operand.layout.itemsize:
                raise Unsupported(f"{operand.layout.dtype} at byte {operand.offset}: not aligned")
        starts_at = [operand.offset for operand in operands]
        for shape, offsets in self._pieces(kernel, starts_at, session.binding_bytes):
            bound, starts = [], []
            for operand, offset, strides, size in zip(
                operands, offsets, shape.strides, kernel.itemsizes, strict=True
            ):
                low, high = _reach(shape.dims, strides, offset, size)
                first = low // session.alignment * session.alignment
                bound.append((operand.buffer.handle, first, -(-(high - first) // 4) * 4))
                starts.append((offset - first) // size)
            words = wgsl_arguments(shape, starts, kernel.itemsizes)
            groups = min(session.groups, -(-words[0] // GRID.block))
            session.dispatch(kernel.pipeline, kernel.layout, words, bound, groups)
        return made

    def _measured_dialect(self, device: Device) -> Dialect:
        """Return WGSL with what this device's compiler does to floats made good."""
        x = np.random.default_rng(0).uniform(-2, 2, (3, GRID.block)).astype(np.float32)
        big, tenth = np.float32(1.5 * 2.0**23), np.float32(0.1)
        exact = (x[0].astype(float) * x[1] - (x[0] * x[1]).astype(float)).astype(np.float32)
        found = self._four(
            device,
            np.concatenate([x[0], x[1], -(x[0] * x[1])]),
            "fma(a, b, c), a * b + c, (a + 12582912.0f) - 12582912.0f, (a * 0.1f) * 0.1f",
        )
        again = self._four(
            device, x.ravel(), "(a + b) - a, a * b - a * c, -a + (a + b), a - (a - b)"
        )
        plain = (np.zeros(GRID.block, np.float32), (x[0] + big) - big, (x[0] * tenth) * tenth)
        more = (
            (x[0] + x[1]) - x[0], x[0] * x[1] - x[0] * x[2],
            -x[0] + (x[0] + x[1]), x[0] - (x[0] - x[1]),
        )  # fmt: skip
        pairs = zip((*found[1:], *again), (*plain, *more), strict=True)
        return wgsl(
            fused=np.array_equal(found[0], exact),
            rearranges=not all(np.array_equal(got, expect) for got, expect in pairs),
        )

    def _four(self, device: Device, values: Any, text: str) -> list[Any]:
        """Return four expressions of a, b and c, each a third of the values, as the device computes
        them, thread by thread as kernels do."""
        session = self._session(device)
        count = GRID.block
        source, target = session.buffer(values.nbytes), session.buffer(16 * count)
        session.upload(values.view(np.uint8), source, values.nbytes)
        pipeline, layout = self._pipeline(
            device,
            f"""@group(0) @binding(0) var<storage, read> arguments: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
@compute @workgroup_size({count})
fn {ENTRY}(@builtin(global_invocation_id) id: vec3<u32>) {{
  let a = x[id.x + arguments[0]];
  let b = x[id.x + {count}u];
  let c = x[id.x + {2 * count}u];
  y[id.x] = vec4<f32>({text});
}}
""",
        )
        bound = [(source.handle, 0, values.nbytes), (target.handle, 0, 16 * count)]
        session.dispatch(pipeline, layout, [0], bound, 1)
        result = np.empty(16 * count, np.uint8)
        session.deliver(session.download(target, result, result.nbytes))
        return list(result.view(np.float32).reshape(count, 4).T)


def _pieces(
    kernel: WgpuKernel, offsets: Sequence[int], most: int
) -> Iterator[tuple[Nest, list[int]]]:
    """Yield the nest in pieces whose operands each lie within so many bytes, and their offsets."""
    shape = kernel.shape
    stack = [(shape.dims, list(offsets))]
    while stack:
        dims, starts = stack.pop()
        if 0 in dims:
            continue
        reach = [
            _reach(dims, strides, start, size)
            for strides, start, size in zip(shape.strides, starts, kernel.itemsizes, strict=True)
        ]
        # 256 bytes: an offset is rounded down to its alignment, which is no more than that
        if all(high - low <= most - 256 for low, high in reach):
            yield Nest(dims, shape.kept, shape.strides, shape.classes, shape.columns), starts
            continue
        axis = next(i for i, n in enumerate(dims) if n > 1)
        half = dims[axis] // 2
        rest = [
            start + half * strides[axis]
            for start, strides in zip(starts, shape.strides, strict=True)
        ]
        stack.append(((*dims[:axis], dims[axis] - half, *dims[axis + 1 :]), rest))
        stack.append(((*dims[:axis], half, *dims[axis + 1 :]), starts))


def _reach(dims: Sequence[int], strides: Sequence[int], offset: int, size: int) -> tuple[int, int]:
    """Return the first byte that an operand reaches and the one after the last."""
    moves = [(n - 1) * step for n, step in zip(dims, strides, strict=True)]
    return offset + sum(m for m in moves if m < 0), offset + sum(m for m in moves if m > 0) + size


def _device(place: int, adapter: dict[str, Any]) -> Device:
    info, limits = adapter["info"], adapter["limits"]
    software = info["adapter_type"] == "CPU"
    own = info["adapter_type"] == "DiscreteGPU"
    shared = int(host_memory()[1] * _SHARE_OF_HOST)
    return Device(
        id=f"wgpu:{place}",
        vendor=info["vendor"] or info["backend_type"],
        name=f"{info['device']} by {info['backend_type']}{', software' if software else ''}",
        space=f"wgpu:{place}",
        # WebGPU does not tell; a card of its own has room for its largest buffer at least
        memory_bytes=limits["max-buffer-size"] if own else shared,
        unified_memory=False,
        support=Support(("generated",), DTYPES, GAPS, dialect="wgsl"),
        limits={
            "operands": limits["max-storage-buffers-per-shader-stage"] - 1,
            "binding_bytes": limits["max-storage-buffer-binding-size"],
            "groups": limits["max-compute-workgroups-per-dimension"],
        },
        fingerprint=f"{_fingerprint(info)} wgpu-py {adapter['package']}",
    )


def _fingerprint(info: dict[str, Any]) -> str:
    names = ("backend_type", "vendor", "device", "description", "adapter_type")
    return " ".join(str(info[name]) for name in names)
