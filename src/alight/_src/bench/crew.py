"""The peers' worker processes: started with the run, asked by lines of JSON, and started again
where one died or hung."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alight._src.base.formatting import readable_seconds
from alight._src.bench.device_peers import peers_on
from alight._src.bench.peers import HOST

__all__ = ["Crew"]

# What compiling one program may take before a peer is counted out.
_OPEN_SECONDS = 90.0
# What the files are called that hold NumPy's results.
_RESULTS = "reference"


class Gone(Exception):
    """A worker's process ended or did not answer in time."""


class Crew:
    """The peers' processes. One that dies or hangs is started again for the next row."""

    def __init__(
        self, peers: Sequence[str], environment: Mapping[str, str], device: str = HOST
    ) -> None:
        self.environment = dict(environment)
        self.device = device
        self.absent: dict[str, str] = {}
        self.about: dict[str, dict[str, Any]] = {}
        folder = Path("/dev/shm")
        # Results to compare with are read by every peer: in memory, where there is such a folder.
        self.scratch = tempfile.TemporaryDirectory(
            prefix="alight-bench-", dir=folder if os.access(folder, os.W_OK) else None
        )
        self._running: dict[str, subprocess.Popen[str]] = {}
        for peer in peers:
            try:
                self.about[peer] = self._start(peer)
            except Gone as error:
                self.absent[peer] = f"its process did not start: {error}"
        self.present = [peer for peer in peers if peer not in self.absent]

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in list(self._running):
            self._stop(peer)
        self.scratch.cleanup()

    def _start(self, peer: str) -> dict[str, Any]:
        log = open(Path(self.scratch.name) / f"{peer}.log", "a")  # noqa: SIM115  # the child's
        with log:
            self._running[peer] = subprocess.Popen(
                [sys.executable, "-m", "alight._src.bench.worker", peer, self.device],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self.environment,
            )
        hello = self._read(peer, _OPEN_SECONDS)
        if hello.get("absent"):
            self._stop(peer)
            package = peers_on(self.device)[peer].package
            missing = hello["error"].startswith("ModuleNotFoundError")
            self.absent[peer] = (
                f"not installed: pip install {package}" if missing else hello["error"]
            )
        return hello

    def _stop(self, peer: str) -> None:
        process = self._running.pop(peer, None)
        if process is None:
            return
        process.kill()
        process.communicate()

    def _read(self, peer: str, seconds: float) -> dict[str, Any]:
        process = self._running[peer]
        assert process.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ)
            if not waiting.select(seconds):
                raise Gone(f"took over {readable_seconds(seconds)}")
        line = process.stdout.readline()
        if not line:
            raise Gone(f"its process ended with {process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def open(self, peer: str, program: str, n: int, dtype: str) -> dict[str, Any]:
        """Have a peer make a program's inputs and call it once; return what it says of that."""
        reference = str(Path(self.scratch.name) / _RESULTS)
        what = {"program": program, "n": n, "dtype": dtype, "reference": reference}
        return self.ask(peer, "open", _OPEN_SECONDS, **what)

    def forget_results(self) -> None:
        """Remove NumPy's results of what was opened, with which the peers compared theirs."""
        for file in Path(self.scratch.name).glob(f"{_RESULTS}.*"):
            file.unlink()

    def ask(self, peer: str, do: str, seconds: float = 600.0, **request: Any) -> dict[str, Any]:
        """Return a peer's answer; ``{"error": why}`` where there is none."""
        try:
            if peer not in self._running:
                self._start(peer)
            process = self._running[peer]
            assert process.stdin is not None
            process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            process.stdin.flush()
            return self._read(peer, seconds)
        except (Gone, OSError) as error:
            self._stop(peer)
            return {"error": str(error)}
