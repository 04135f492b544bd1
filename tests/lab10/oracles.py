"""What lab 10's cache and scheduler are held against: vLLM's recorded decisions, and plain models
that are slow and obvious."""

from __future__ import annotations

import gzip
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from types_lab10 import Req, SchedulerConfig

from . import workloads

FILE = Path(__file__).resolve().parent / "vllm_steps.json.gz"
VLLM = "vLLM 0.33.0"
FIELDS = ("scheduled", "preempted", "finished", "free_blocks")


@lru_cache(maxsize=1)
def recorded() -> dict[str, Any]:
    """The file that make_goldens.py wrote."""
    record = json.loads(gzip.decompress(FILE.read_bytes()))
    if f"vLLM {record['vllm']}" != VLLM:
        raise ValueError(f"{FILE.name} was made with vLLM {record['vllm']}, not with {VLLM}")
    return record


@lru_cache(maxsize=1)
def golden_cases() -> list[tuple[workloads.Case, list[list[Any]]]]:
    """Each recorded case with its steps, as `unpacked` gives them."""
    found = []
    for entry in recorded()["cases"]:
        rows = [workloads.Row(*row) for row in entry["rows"]]
        case = workloads.Case(entry["name"], workloads.Config(*entry["config"]), rows)
        found.append((case, [unpacked(step) for step in entry["steps"]]))
    return found


def unpacked(step: list[Any]) -> list[Any]:
    """[[[id, tokens], ...], preempted, finished, free_blocks, generated, context_tokens]."""
    flat, preempted, finished, free, silent, context = step
    pairs = [list(pair) for pair in zip(flat[::2], flat[1::2], strict=True)]
    generated = [name for name, _tokens in pairs if name not in silent]
    return [pairs, preempted, finished, free, generated, context]


def named(step: list[Any]) -> dict[str, Any]:
    """The four decisions of a step, as a learner reads them."""
    pairs, preempted, finished, free = step[:4]
    return dict(zip(FIELDS, (dict(map(tuple, pairs)), preempted, finished, free), strict=True))


# -- requests -------------------------------------------------------------------------------------


def as_tokens(case: workloads.Case) -> list[tuple[int, Req]]:
    """The requests of a case as token ids, with the step before which each comes."""
    made = workloads.prompts(case.rows)
    return [
        (row.arrival, Req(number, float(row.arrival), made[number], row.out_tokens, None, row.salt))
        for number, row in enumerate(case.rows)
    ]


def as_numbers(case: workloads.Case) -> list[tuple[int, Req]]:
    """The same requests, of whose prompts only the length is known."""
    return [
        (row.arrival, Req(number, float(row.arrival), row.length, row.out_tokens))
        for number, row in enumerate(case.rows)
    ]


def as_hashes(case: workloads.Case) -> list[tuple[int, Req]]:
    """The same requests as a trace writes them: a number of tokens, and an id for each block of the
    prompt, a last one that is not full included. Blocks have the same id where all tokens up to
    their end are the same, which is looked up in a dict of whole prefixes."""
    ids: dict[tuple[int, ...], int] = {}
    size, rows = case.config.block_size, []
    for (arrival, request), row in zip(as_tokens(case), case.rows, strict=True):
        tokens = request.prompt_tokens
        ends = range(size, len(tokens) + size, size)
        hashes = [ids.setdefault(tuple(tokens[:end]), len(ids)) for end in ends]
        rows.append((arrival, Req(request.id, 0.0, row.length, row.out_tokens, hashes)))
    return rows


def cfg(case: workloads.Case) -> SchedulerConfig:
    """The configuration as the student's code gets it."""
    return SchedulerConfig(*case.config)


# -- plain models ---------------------------------------------------------------------------------


def shared_blocks(one: list[int], other: list[int], size: int) -> int:
    """Full blocks at the beginning of two token lists that are the same, token by token."""
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return same // size


class SlowPool:
    """A block pool in which everything is a list that is searched: what vLLM documents, written
    down word for word."""

    def __init__(self, num_blocks: int) -> None:
        self.queue = list(range(1, num_blocks))
        self.held = [0] * num_blocks
        self.labels: list[tuple[Any, int]] = []  # (content, block), in the order of caching

    def label(self, block: int) -> Any:
        return next((content for content, other in self.labels if other == block), None)

    def alloc(self, k: int) -> list[int] | None:
        if k > len(self.queue):
            return None
        taken, self.queue = self.queue[:k], self.queue[k:]
        self.labels = [pair for pair in self.labels if pair[1] not in taken]
        for block in taken:
            self.held[block] = 1
        return taken

    def touch(self, blocks: list[int]) -> None:
        for block in blocks:
            self.held[block] += 1
            if block in self.queue:
                self.queue.remove(block)

    def free(self, blocks: list[int]) -> None:
        for block in blocks:
            self.held[block] -= 1
        gone = [block for block in reversed(blocks) if self.held[block] == 0]
        head = [block for block in gone if self.label(block) is None]
        self.queue = head + self.queue + [block for block in gone if block not in head]

    def cache(self, block: int, content: Any) -> None:
        self.labels.append((content, block))

    def lookup(self, content: Any) -> int | None:
        return next((block for other, block in self.labels if other == content), None)

    def references(self, block: int) -> int:
        return self.held[block]
