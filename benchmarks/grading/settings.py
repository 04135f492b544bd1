"""What a benchmark run was asked for, and the words that all its parts share."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Options of a run. `cold_sample`: how many submissions get a cold pytest (0: all of them)."""

    tier: str
    jobs: tuple[int, ...]
    submissions: int
    repeats: int
    cold_sample: int
    other_sample: int
    scaling: tuple[int, ...]
    scaling_lab01: tuple[int, ...]
    tests: tuple[int, ...]
    every_lab: int
    memory_sample: int
    array_runs: int
    otter_python: Path | None
    nbgrader_python: Path | None
    folder: Path


def say(text: str) -> None:
    """Progress, for a person who waits."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def verdict(reached: bool) -> str:
    return "reached" if reached else "NOT reached"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def spaced(items: Sequence[Path], count: int) -> list[Path]:
    """`count` of the items, evenly spaced; all of them for 0."""
    if not count or count >= len(items):
        return list(items)
    step = len(items) / count
    return [items[int((index + 0.5) * step)] for index in range(count)]


def chunks(items: Sequence[Path], count: int) -> list[list[Path]]:
    """The items in `count` rows, in turn."""
    return [list(items[index::count]) for index in range(count)]
