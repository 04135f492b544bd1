"""Freed memory leaves a process that calls student code itself, as it leaves a worker."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

GROWS = """
import os, sys
from pathlib import Path
from grader.sandbox.backends import Limits, LocalBackend
from grader.sandbox.server import CodeSpec

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

if sys.argv[1] == "backend":
    LocalBackend(CodeSpec(Path("."), (), ()), Limits(1.0))
pins, before = [], resident()
for _ in range(3):
    blocks = []
    for _ in range(16):
        blocks.append(bytearray(b"x") * (4 << 20))
        pins.append(bytearray(4000))  # keeps the heap from shrinking behind a block
    del blocks
print((resident() - before) >> 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc")
@pytest.mark.parametrize(("who", "most_mib"), [("backend", 4), ("nobody", 1000)])
def test_blocks_that_were_freed_are_no_growth(who: str, most_mib: int, tmp_path: Path) -> None:
    call = [sys.executable, "-c", GROWS, who]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True)
    grown = int(done.stdout)
    assert grown <= most_mib
    if who == "nobody":  # or this test could not fail
        assert grown > 16
