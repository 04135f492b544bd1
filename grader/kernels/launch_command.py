"""`infralens kernel`: launch one kernel of a `.cu` file and print what it did."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

_TYPES = {
    "f32": numpy.float32,
    "f64": numpy.float64,
    "i32": numpy.int32,
    "u32": numpy.uint32,
    "i64": numpy.int64,
    "u8": numpy.uint8,
}
_ARRAY = re.compile(r"(?P<type>\w+)\[(?P<shape>[\d,_ ]+)\](?:=(?P<fill>\S+))?\Z")
FORMS = (
    "an argument is a number (256, 0.5), null, or an array: f32[1024] has random numbers, f32[1]=0 "
    f"one value everywhere (also nan), i32[64]=iota counts up; types: {', '.join(_TYPES)}"
)


class ArgumentError(ValueError):
    """An argument that cannot be read; the text lists the forms."""


def argument(text: str, random: numpy.random.Generator) -> Any:
    """A kernel's argument from the command line; raises ArgumentError."""
    if text == "null":
        return None
    if match := _ARRAY.match(text):
        kind = _TYPES.get(match["type"])
        if kind is None:
            raise ArgumentError(f"{text}: there is no type {match['type']}; {FORMS}")
        shape = tuple(int(part) for part in match["shape"].replace("_", "").split(",") if part)
        return _filled(text, kind, shape, match["fill"], random)
    for convert in (int, float):
        try:
            return convert(text.replace("_", ""))
        except ValueError:
            continue
    raise ArgumentError(f"{text}: {FORMS}")


def _filled(
    text: str, kind: Any, shape: tuple[int, ...], fill: str | None, random: numpy.random.Generator
) -> numpy.ndarray[Any, Any]:
    if fill is None:
        if issubclass(kind, numpy.floating):
            return random.standard_normal(shape).astype(kind)
        return random.integers(0, 100, shape).astype(kind)
    if fill == "iota":
        return numpy.arange(numpy.prod(shape, dtype=int)).astype(kind).reshape(shape)
    try:
        return numpy.full(shape, float(fill)).astype(kind)
    except ValueError:
        raise ArgumentError(f"{text}: {fill} is not a number; {FORMS}") from None


def run(
    file: Path,
    name: str,
    arguments: Sequence[str],
    grid: str,
    block: str,
    shared: int = 0,
    seed: int = 0,
) -> int:
    """Launch and print; 0 if nothing was wrong with the kernel, 1 if something was, 2 for
    arguments that cannot be read."""
    from grader import kernels

    random = numpy.random.default_rng(seed)
    try:
        values = [argument(text, random) for text in arguments]
        blocks, threads = ([int(part) for part in text.split(",")] for text in (grid, block))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        module = kernels.compile(file)
        report = module.launch(name, blocks, threads, values, shared, seed=seed)
    except OSError as error:
        print(f"{file} cannot be read: {error.strerror}.", file=sys.stderr)
        return 2
    except kernels.LaunchError as error:
        print(error, file=sys.stderr)
        return 2
    except (kernels.Unsupported, kernels.CompileError) as error:
        print(error)
        return 1
    print(report)
    if report.printed:
        print(f"The kernel printed:\n{report.printed}")
    return 1 if report.errors else 0
