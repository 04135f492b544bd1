"""Launching the kernels of a `.cu` file: on the CPU with counters, or on a GPU through CuPy.

A launch on the CPU is a process of its own, so a kernel that crashes ends only that process.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy

from grader.kernels.cuda import gpu, source
from grader.kernels.cuda.compile import (
    LEARNERS,
    MAX_SHARED,
    CompileError,
    CompilerEnded,
    program,
    promotions,
)
from grader.kernels.cuda.source import Kernel, Parameter, Source
from grader.kernels.cuda.symbolize import report_of
from grader.kernels.findings import KernelFinding
from grader.kernels.report import Report
from grader.kernels.sentences import FindingKind
from grader.meters.evidence import refuse_students

MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
LAUNCH_SECONDS = 20.0
_PRINTED_BYTES = 65536
_SCALARS = {
    "bool": "?",
    "char": "b",
    "signed char": "b",
    "unsigned char": "B",
    "short": "h",
    "unsigned short": "H",
    "int": "i",
    "signed": "i",
    "signed int": "i",
    "unsigned": "I",
    "unsigned int": "I",
    "long": "q",
    "long int": "q",
    "unsigned long": "Q",
    "size_t": "Q",
    "long long": "q",
    "long long int": "q",
    "unsigned long long": "Q",
    "unsigned long long int": "Q",
    "ptrdiff_t": "q",
    "float": "f",
    "double": "d",
}


class LaunchError(ValueError):
    """A launch that a GPU would refuse; the text says which value is wrong."""


@dataclass(frozen=True)
class Pointer:
    """A pointer into an array: `offset` elements past its beginning."""

    array: numpy.ndarray[Any, Any]
    offset: int = 0


@dataclass
class _Place:
    """Memory of this process, from `first` to `end`, that holds one array or several overlapping
    ones; `number` and `offset` are its place in a launch."""

    first: int
    end: int
    number: int = -1
    offset: int = 0

    def holds(self, array: numpy.ndarray[Any, Any]) -> bool:
        start = _address(array)
        return self.first <= start and start + array.nbytes <= self.end


Argument = Any  # a NumPy array, a Pointer, a number, or None for a null pointer


class Module:
    """A compiled file. `program` runs on the CPU."""

    def __init__(self, read: Source) -> None:
        self.source = read
        self.program = program(read)
        self.promotions = promotions(self.program)
        self.lines: dict[int, int] = {}

    def launch(
        self,
        name: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Argument],
        shared_bytes: int = 0,
        *,
        seed: int = 0,
        races: bool = True,
        device: str = "cpu",
        max_steps: int = 1 << 25,
        max_total_steps: int = 1 << 29,
        seconds: float = LAUNCH_SECONDS,
    ) -> Report:
        """Launch a kernel; arrays among `args` are changed in place, as on a GPU.

        `grid`, `block`: up to three sizes, x first. `shared_bytes`: dynamic shared memory. `seed`:
        0 runs blocks, warps and lanes in their order, another one shuffles blocks and warps.
        `max_steps`: basic blocks that one thread may run, `max_total_steps`: all threads together.
        `device="gpu"` gives values only. A fault of the kernel is a finding in `report.errors`;
        raises LaunchError for wrong arguments of this call, and MeasurementDisturbed where student
        code makes it: the counts are for the kit to read.
        """
        refuse_students(sys._getframe(1))
        kernel = self._kernel(name)
        if device not in ("cpu", "gpu"):
            raise LaunchError(f'device is {device!r}: give "cpu" or "gpu"')
        sizes = _sizes("grid", grid, MAX_GRID), _sizes("block", block, MAX_BLOCK)
        if sizes[1][0] * sizes[1][1] * sizes[1][2] > MAX_BLOCK[0]:
            raise LaunchError(f"a block of {sizes[1]} threads is larger than {MAX_BLOCK[0]}")
        if not 0 <= shared_bytes <= MAX_SHARED:
            limit = f"a block has at most {MAX_SHARED}"
            raise LaunchError(f"shared_bytes is {shared_bytes}: {limit}")
        checked = _arguments(kernel, args)
        if device == "gpu":
            gpu.launch(self.source, name, *sizes, checked, shared_bytes)
            return Report(name, *sizes)
        order = _Order(kernel, *sizes, checked, shared_bytes, self.source.dynamic_of(name))
        limits = [f"seed {seed}", f"races {int(races)}"]
        limits += [f"steps {max_steps}", f"total {max_total_steps}"]
        with tempfile.TemporaryDirectory(prefix="infralens-launch-") as folder:
            found = order.run(self.program, Path(folder), limits, seconds)
        if isinstance(found, KernelFinding):
            return Report(name, *sizes, errors=[found])
        data, printed = found
        report = report_of(data, self.source, kernel, self._lines_of(data), sizes, printed)
        others = self.source.lines_of_others(name) if self.promotions else set()
        return msgspec.structs.replace(
            report, promotions=[line for line in self.promotions if line not in others]
        )

    def _kernel(self, name: str) -> Kernel:
        if name not in self.source.kernels:
            known = ", ".join(self.source.kernels) or "none"
            raise LaunchError(f"{self.source.name} has no kernel `{name}`; it has: {known}")
        return self.source.kernels[name]

    def _lines_of(self, data: dict[str, Any]) -> dict[int, int]:
        """The source line of every instruction that a report names."""
        asked = {pc for pc in _pcs(data) if pc not in self.lines}
        if asked:
            self.lines.update(_source_lines(self.program, asked))
        return self.lines


_MODULES: dict[tuple[str, str], Module] = {}
_REFUSED: dict[tuple[str, str], Exception] = {}
"""What the compiler or the kit said of the last file that was refused: tests ask again for each."""


def compile(path: Path | str, name: str | None = None) -> Module:
    """The module of a `.cu` file; the same bytes are compiled, or refused, once. Raises
    `Unsupported` for code that is not supported, `CompileError` with the compiler's own text,
    OSError; MeasurementDisturbed where student code calls it."""
    refuse_students(sys._getframe(1))
    text = Path(path).read_bytes().decode("utf-8", "replace")
    key = (name or Path(path).name, text)
    if refused := _REFUSED.get(key):
        raise type(refused)(*refused.args)
    if key not in _MODULES or not _MODULES[key].program.is_file():
        if len(_MODULES) > 64:
            _MODULES.clear()
        try:
            _MODULES[key] = Module(source.read(*key))
        except (CompileError, source.Unsupported) as error:
            if not isinstance(error, CompilerEnded):
                _REFUSED.clear()
                _REFUSED[key] = error
            raise
    return _MODULES[key]


def _address(array: numpy.ndarray[Any, Any]) -> int:
    # An empty array may lie anywhere, even in another array: give it a place of its own.
    return int(array.__array_interface__["data"][0]) if array.size else -id(array)


def _places(arrays: list[numpy.ndarray[Any, Any]]) -> list[_Place]:
    """Arrays that share memory here share it in the launch too."""
    found: list[_Place] = []
    for array in sorted(arrays, key=_address):
        start = _address(array)
        if found and (start < found[-1].end or start == found[-1].first):
            found[-1].end = max(found[-1].end, start + array.nbytes)
        else:
            found.append(_Place(start, start + array.nbytes))
    return found


# -- what a launch is called with -----------------------------------------------------------------

Checked = list[tuple[Parameter, Pointer | bytes | None]]


def _sizes(what: str, given: int | Sequence[int], largest: Iterable[int]) -> tuple[int, int, int]:
    numbers = tuple(given) if isinstance(given, Sequence | numpy.ndarray) else (given,)
    whole = all(isinstance(number, int | numpy.integer) for number in numbers)
    if not 1 <= len(numbers) <= 3 or not whole:
        raise LaunchError(f"{what} is {given!r}: give one to three sizes")
    sizes = tuple(int(number) for number in numbers) + (1,) * (3 - len(numbers))
    for axis, size, limit in zip("xyz", sizes, largest, strict=True):
        if not 1 <= size <= limit:
            raise LaunchError(f"{what}.{axis} is {size}: it must lie in 1 to {limit:,}")
    return sizes  # type: ignore[return-value]


def _arguments(kernel: Kernel, args: Sequence[Argument]) -> Checked:
    if len(args) != len(kernel.parameters):
        wanted = ", ".join(f"{p.type} {p.name}" for p in kernel.parameters)
        raise LaunchError(
            f"`{kernel.name}` takes {len(kernel.parameters)} arguments ({wanted}), "
            f"{len(args)} were given"
        )
    return [(p, _argument(kernel, p, a)) for p, a in zip(kernel.parameters, args, strict=True)]


def _argument(kernel: Kernel, parameter: Parameter, given: Argument) -> Pointer | bytes | None:
    where = f"argument `{parameter.name}` of `{kernel.name}`"
    if isinstance(given, numpy.ndarray):
        given = Pointer(given)
    if isinstance(given, Pointer) or given is None:
        if not parameter.is_pointer:
            raise LaunchError(f"{where} is a {parameter.type}, not a pointer")
        if given is not None and not given.array.flags.c_contiguous:
            raise LaunchError(f"{where} must be a contiguous array")
        if given is not None and given.array.dtype.hasobject:
            raise LaunchError(f"{where} is an array of Python objects: give one of numbers")
        return given
    if parameter.is_pointer:
        raise LaunchError(f"{where} is a pointer: give a NumPy array, not {given!r}")
    form = _SCALARS.get(parameter.type)
    if isinstance(given, numpy.generic):
        if given.nbytes <= 8 and form in (None, _form(given)):
            return given.tobytes()  # bit by bit: a NaN keeps its payload
        given = given.item()
    if form is None:
        raise LaunchError(
            f"{where} is a {parameter.type}: give it as a NumPy scalar of up to 8 bytes"
        )
    try:
        return struct.pack(form, given)
    except (struct.error, TypeError, OverflowError) as error:
        raise LaunchError(f"{where} is a {parameter.type}, which cannot hold {given!r}") from error


def _form(scalar: numpy.generic) -> str:
    """The letter of `struct` for a NumPy scalar; NumPy has different letters for equal types."""
    size = scalar.dtype.itemsize
    letters = {"i": "bhiq", "u": "BHIQ"}.get(scalar.dtype.kind)
    if letters:
        return letters[size.bit_length() - 1]
    return scalar.dtype.char


class _Order:
    """A launch as the compiled program reads it: a text, and one file with all arrays."""

    def __init__(
        self,
        kernel: Kernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Checked,
        shared_bytes: int,
        dynamic: tuple[str, ...],
    ) -> None:
        self.arrays: dict[int, tuple[numpy.ndarray[Any, Any], int]] = {}
        self.size = 0
        rows = [
            f"kernel {kernel.name}",
            f"grid {grid[0]} {grid[1]} {grid[2]}",
            f"block {block[0]} {block[1]} {block[2]}",
            f"shared {shared_bytes}",
            *(f"dynamic {name}" for name in dynamic),
        ]
        places = _places([v.array for _, v in arguments if isinstance(v, Pointer)])
        for parameter, value in arguments:
            if value is None:
                rows.append("null")
            elif isinstance(value, bytes):
                rows.append(f"value {int.from_bytes(value, 'little'):x} {len(value)}")
            else:
                array = value.array
                place = next(place for place in places if place.holds(array))
                if place.number < 0:
                    place.number = sum(other.number >= 0 for other in places)
                    rows.append(self._add(parameter.name or "array", place, array.itemsize))
                self.arrays[id(array)] = (array, place.offset + _address(array) - place.first)
                by = _address(array) - place.first + value.offset * array.itemsize
                rows.append(f"pointer {place.number} {by}")
        self.rows = rows

    def _add(self, name: str, place: _Place, itemsize: int) -> str:
        place.offset = self.size
        size = place.end - place.first
        self.size += -(-max(size, 1) // 4096) * 4096
        return f"array {place.offset} {size} {itemsize} 0 {name}"

    def run(
        self, program: Path, folder: Path, limits: list[str], seconds: float
    ) -> tuple[dict[str, Any], str] | KernelFinding:
        """The program's report and what the kernel printed, or the finding why there is none."""
        text = "\n".join([*limits, *self.rows]) + "\n"
        spec, data, report = (folder / name for name in ("spec", "data", "report"))
        spec.write_text(text, encoding="ascii", errors="replace")
        with data.open("wb") as file:
            for array, offset in self.arrays.values():
                file.seek(offset)
                file.write(array.tobytes())
            file.truncate(self.size)
        try:
            with (folder / "printed").open("w+b") as out, (folder / "faults").open("w+b") as faults:
                code = _finished(
                    [str(program), str(spec), str(data), str(report)],
                    seconds,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=faults,
                    env={"PATH": os.defpath},
                )
                out.seek(0)
                printed = out.read(_PRINTED_BYTES).decode("utf-8", "replace")
                printed += "\n(and more)" if out.read(1) else ""
                faults.seek(0)
                said = faults.read(2000).decode("utf-8", "replace").strip()
        except subprocess.TimeoutExpired:
            return KernelFinding(FindingKind.TIMEOUT, details={"seconds": seconds})
        if code == 3:
            return KernelFinding(FindingKind.REFUSED, details={"text": said})
        if code or not report.is_file():
            return KernelFinding(FindingKind.EXITED, details={"code": code, "text": said})
        with data.open("rb") as file:
            for array, offset in self.arrays.values():
                if array.size and array.flags.writeable:
                    file.seek(offset)
                    flat = numpy.frombuffer(file.read(array.nbytes), array.dtype)
                    array[...] = flat.reshape(array.shape)
        try:
            return json.loads(report.read_bytes()), printed
        except ValueError:
            return KernelFinding(FindingKind.NO_REPORT)


def _finished(call: list[str], seconds: float, **options: Any) -> int:
    """The exit code of a program, as soon as it ends; `Popen.wait` with a time limit only polls.
    Raises TimeoutExpired."""
    with subprocess.Popen(call, **options) as process:
        try:
            with contextlib.suppress(OSError, AttributeError):  # where there is no pidfd
                ended = os.pidfd_open(process.pid)
                try:
                    if not select.select([ended], [], [], seconds)[0]:
                        raise subprocess.TimeoutExpired(call, seconds)
                finally:
                    os.close(ended)
            return process.wait(seconds)
        except BaseException:
            process.kill()
            raise


# -- lines ----------------------------------------------------------------------------------------


def _pcs(data: dict[str, Any]) -> Iterable[int]:
    """The instructions in a report: of accesses, of races, and of the end of the launch."""
    rows = [*data["sites"], *data["races"], *([data["error"]] if data["error"] else [])]
    return [row[key] for row in rows for key in ("pc", "other_pc") if key in row]


def _source_lines(program: Path, pcs: Iterable[int]) -> dict[int, int]:
    """Return addresses to lines of the learner's file; for a function of the shim that was inlined,
    the line that called it."""
    tool = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if tool is None:
        return {}
    wanted = sorted(pcs)
    done = subprocess.run(
        [tool, "-a", "-i", "-e", str(program), *(hex(pc - 1) for pc in wanted)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found: dict[int, int] = {}
    address = 0
    for row in done.stdout.splitlines():
        if row.startswith("0x"):
            address = int(row, 16) + 1
        elif match := re.search(rf"(?:^|/){re.escape(LEARNERS)}:(\d+)", row):
            found.setdefault(address, int(match[1]))
    return found
