"""Limits of memory count, whoever set them: of the process, of its control group, of that one's."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them")

LIMIT = 700 << 20
SAYS = """
import os, resource, sys
{before}
from alight.backends.machine import host_memory
print(*host_memory())
"""


def said(before: str) -> tuple[int, int]:
    program = SAYS.format(before=before)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    free, total = ran.stdout.split()
    return int(free), int(total)


@pytest.fixture
def nested() -> Iterator[Path]:
    """A control group without a limit in one that has."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = {kind: path for _, kind, path in (line.split(":", 2) for line in lines)}
        if "memory" in own:
            root, limit = Path("/sys/fs/cgroup/memory", own["memory"][1:]), "memory.limit_in_bytes"
        else:
            root, limit = Path("/sys/fs/cgroup", own[""][1:]), "memory.max"
        outer = root / f"alight-{uuid.uuid4().hex}"
        outer.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    inner = outer / "inner"
    try:
        try:
            if limit == "memory.max":
                (outer / "cgroup.subtree_control").write_text("+memory")
            (outer / limit).write_text(str(LIMIT))
            inner.mkdir()
        except OSError as error:
            pytest.skip(f"no control group here may have a limit: {error}")
        yield inner / "cgroup.procs"
    finally:
        if inner.exists():
            inner.rmdir()
        outer.rmdir()


def test_a_limit_of_a_control_group_holds_for_those_within(nested: Path) -> None:
    free, total = said(f"open({str(nested)!r}, 'w').write(str(os.getpid()))")
    assert total == LIMIT
    assert free < LIMIT


def test_what_the_system_keeps_of_files_counts_as_free(nested: Path, tmp_path: Path) -> None:
    file = tmp_path / "read"
    file.write_bytes(bytes(400 << 20))
    join = f"open({str(nested)!r}, 'w').write(str(os.getpid()))"
    drop = "os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)"  # it is nobody's else
    read = "\nwhile file.read(1 << 20): pass"
    free, _ = said(
        f"{join}\nfile = open({str(file)!r}, 'rb')\nos.fsync(file.fileno())\n{drop}{read}"
    )
    assert free > LIMIT - (200 << 20)


@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_limits_of_the_process_count(name: str) -> None:
    limit = 3 << 30
    free, total = said(f"resource.setrlimit(resource.{name}, ({limit}, {limit}))")
    assert total <= limit
    assert free < limit
