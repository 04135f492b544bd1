"""Programs that a question shows: run as they stand, so that what is asked of them is counted."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grader.kernels import Report


def ran(program: str, **names: Any) -> dict[str, Any]:
    """Run a Python program with these names in it; its names at the end."""
    exec(compile(program, "<program>", "exec"), names)  # the kit's own text
    return names


def launched(
    program: str,
    kernel: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    shared_bytes: int = 0,
) -> Report:
    """Launch a kernel of a CUDA program on the emulator. Raises ValueError for a faulty one: its
    counts would end where the fault is."""
    from grader import kernels

    with tempfile.TemporaryDirectory(prefix="infralens-") as folder:
        path = Path(folder) / "program.cu"
        path.write_text(program, encoding="utf-8")
        report = kernels.compile(path).launch(kernel, grid, block, args, shared_bytes)
    if report.errors:
        raise ValueError(f"the program shown has a fault: {report.errors[0]}")
    return report
