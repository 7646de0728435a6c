"""Addresses that blocks give up while their pages move are anybody's: other threads map there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux moves pages")

# Stands before the C library's `mremap`, and maps memory at once wherever that leaves a hole, as a
# thread would that asks for memory just then. With FAILING, Linux's answer of before 6.17 to pages
# of several mappings: the target is unmapped, and nothing moves.
SQUATTER = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
enum { MOST = 4096 };
static unsigned char *places[MOST];
static size_t sizes[MOST];
static int count;
static void squat(void *place, size_t size)
{
    void *got = mmap(place, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
    if (got != place || count == MOST) return;
    memset(got, 0x5a, 4096);
    places[count] = got;
    sizes[count++] = size;
}
void *mremap(void *old, size_t before, size_t size, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    void *target = va_arg(rest, void *);
    va_end(rest);
    if (!(flags & MREMAP_FIXED)) {
        long found = syscall(SYS_mremap, old, before, size, flags);
        return (void *)found;
    }
    if (getenv("FAILING")) {
        munmap(target, size);
        squat(target, size);
        errno = EFAULT;
        return MAP_FAILED;
    }
    long found = syscall(SYS_mremap, old, before, size, flags, target);
    if ((void *)found != MAP_FAILED) squat(old, before);
    return (void *)found;
}
int squatters(void) { return count; }
/* How many lie where they lay, with what they had. */
int unharmed(void)
{
    int good = 0;
    for (int i = 0; i < count; i++) {
        unsigned char state;
        good += mincore(places[i], 4096, &state) == 0
            && mincore(places[i] + sizes[i] - 4096, 4096, &state) == 0
            && *places[i] == 0x5a && places[i][4095] == 0x5a;
    }
    return good;
}
"""

PROGRAM = """
import ctypes
import numpy as np
from alight._core import fresh_data, keep_bytes, make_layout

shim = ctypes.CDLL(None)
keep_bytes(1 << 30)
for number in range(40):  # each has the pages of the one before
    size = (5 + number % 7) << 20
    data = fresh_data(make_layout(np.dtype(np.float64), (size,)))
    data.array[:: 1 << 9] = number
    assert (data.array[:: 1 << 9] == number).all()
    del data
print(shim.squatters(), shim.unharmed())
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("squatter")
    (folder / "squatter.c").write_text(SQUATTER, encoding="utf-8")
    library = folder / "squatter.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(folder / "squatter.c")]
    subprocess.run(command, check=True)
    return library


@pytest.mark.parametrize("failing", [False, True])
def test_what_others_map_meanwhile_is_theirs(shim: Path, failing: bool) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(shim)} | ({"FAILING": "1"} if failing else {})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    squatters, unharmed = map(int, done.stdout.split())
    assert squatters > 0 and unharmed == squatters
