"""Workloads for a scheduler: a configuration, and requests that come at given steps.

A request is written as (arrival, parent, shared, length, out_tokens, salt): it comes before step
`arrival`, its prompt has `length` tokens of which the first `shared` are those of its parent, and
the rest is its own. A parent is an earlier request, with all that it generates (a conversation
goes on), or a number below 0, which stands for a text of its own (a system prompt).

`python tests/lab10/workloads.py drawn_0` prints that workload and each step that vLLM made of it.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

GENERATED = 7


class Row(NamedTuple):
    """One request; see above."""

    arrival: int
    parent: int
    shared: int
    length: int
    out_tokens: int
    salt: str | None = None


class Config(NamedTuple):
    """The fields of a SchedulerConfig, in their order."""

    num_blocks: int
    block_size: int
    max_num_batched_tokens: int
    max_num_seqs: int
    enable_prefix_caching: bool
    reserve_full_isl: bool

    def __str__(self) -> str:
        switches = [
            "prefix caching " + ("on" if self.enable_prefix_caching else "off"),
            "reserve_full_isl " + ("on" if self.reserve_full_isl else "off"),
        ]
        return (
            f"{self.num_blocks} blocks of {self.block_size}, budget {self.max_num_batched_tokens}, "
            f"at most {self.max_num_seqs} requests, {', '.join(switches)}"
        )


class Case(NamedTuple):
    """A name, a configuration and its requests, whose ids are their places."""

    name: str
    config: Config
    rows: list[Row]


def prompts(rows: list[Row]) -> list[list[int]]:
    """The token ids of each request's prompt. No own token is anybody else's, and none is 7."""
    made: list[list[int]] = []
    for number, row in enumerate(rows):
        if row.parent < 0:
            text = [1_000_000 * -row.parent + i for i in range(row.shared)]
        else:
            parent = rows[row.parent]
            text = (made[row.parent] + [GENERATED] * parent.out_tokens)[: row.shared]
        own = [1_000_000 * (number + 100) + i for i in range(row.length - len(text))]
        made.append(text + own)
    return made


# -- those of the page, and their relatives --------------------------------------------------------

TWELVE = Config(12, 4, 32, 16, True, True)


def alone(length: int, out_tokens: int, arrival: int = 0) -> Row:
    """A request that shares nothing."""
    return Row(arrival, -1, 0, length, out_tokens)


BY_HAND = [
    # The page's example: requests 0 and 2 begin with the same four tokens.
    Case(
        "four_steps_and_three_more",
        Config(7, 4, 12, 8, True, True),
        [Row(0, -1, 4, 7, 5), alone(7, 4), Row(0, -1, 4, 6, 4)],
    ),
    Case("two_outgrow_the_pool", TWELVE, [alone(14, 12), alone(14, 12)]),
    Case(
        "the_third_waits",
        TWELVE._replace(max_num_batched_tokens=16),
        [alone(14, 5), alone(10, 8), alone(20, 3)],
    ),
    Case(
        "the_third_does_not_wait",
        TWELVE._replace(max_num_batched_tokens=16, reserve_full_isl=False),
        [alone(14, 5), alone(10, 8), alone(20, 3)],
    ),
    Case("a_large_one_in_front", TWELVE, [alone(20, 3), alone(28, 2), alone(4, 2)]),
    Case(
        "nobody_beside_a_preemption", Config(6, 4, 8, 8, False, False), [alone(7, 6), alone(7, 4)]
    ),
    Case("ten_tokens_shared", TWELVE, [Row(0, -1, 10, 15, 8), Row(3, -1, 10, 14, 3)]),
    Case("the_same_again", TWELVE, [Row(0, -1, 16, 16, 1), Row(1, -1, 16, 16, 2)]),
    Case(
        "salts",
        TWELVE._replace(num_blocks=24),
        [
            Row(0, -1, 16, 18, 2, "a"),
            Row(1, -1, 16, 18, 2, "b"),
            Row(2, -1, 16, 18, 2, "a"),
            Row(3, -1, 16, 18, 2),
        ],
    ),
]


# -- drawn ----------------------------------------------------------------------------------------


def drawn(seed: int) -> Case:
    """A small workload under pressure: the pool is about as large as two or three requests."""
    pick = random.Random(seed)
    size = pick.choice([1, 2, 3, 4, 4, 8, 16])
    caching, reserve = pick.random() < 0.75, pick.random() < 0.5
    count = pick.randint(3, 16)
    crowd = pick.choice([1, 2, 3, 4, 8, 64, 64])
    rows: list[Row] = []
    arrival = 0
    longest = pick.choice([2, 4, 7]) * size + pick.randint(1, 6)
    for number in range(count):
        arrival += pick.choice([0, 0, 0, 0, 1, 2, 6])
        length = pick.choice([pick.randint(1, longest), size * pick.randint(1, 5)])
        length = max(1, length + pick.choice([-1, 0, 0, 1]))
        parent, shared = -1 - pick.randrange(2), 0
        if pick.random() < 0.65:
            if number and pick.random() < 0.4:
                parent = pick.randrange(number)
            whole = length if parent < 0 else rows[parent].length + rows[parent].out_tokens
            shared = min(
                length, whole, pick.choice([length, size * pick.randint(1, 5), length - 1])
            )
        out = pick.choice(
            [1, pick.randint(1, 2 * size + 3), pick.randint(1, 30), pick.randint(1, 30)]
        )
        salt = pick.choice([None, None, None, "a"]) if seed % 5 == 0 else None
        rows.append(Row(arrival, parent, max(0, shared), length, out, salt))
    need = max(-(-(row.length + row.out_tokens - 1) // size) for row in rows)
    room = need + pick.choice([0, 0, 1, 2, need // 3, need // 2, need])
    budget = pick.choice([1, 2, size, size + 1, 2 * size + 1, 16, 48, 256])
    # vLLM refuses a budget below the number of requests, and a request takes a token at least.
    config = Config(room + 1, size, budget, min(crowd, budget), caching, reserve)
    return Case(f"drawn_{seed}", config, rows)


def one_token_each(seed: int) -> Case:
    """As `drawn`, with prefix caching and one generated token a request: nothing that is generated
    is ever in the cache, so the hashes of the prompts say everything."""
    case = drawn(10_000 + seed)
    rows = [row._replace(out_tokens=1, salt=None) for row in case.rows]
    rows = [row if row.parent < 0 else row._replace(parent=-1 - row.parent % 2) for row in rows]
    need = max(-(-row.length // case.config.block_size) for row in rows)
    room = need + seed % 3 * (need // 2 + 1)
    return Case(
        f"one_token_{seed}",
        rows=rows,
        config=case.config._replace(num_blocks=room + 1, enable_prefix_caching=True),
    )


def all_cases(number: int) -> Iterator[Case]:
    """The cases by hand, then `number` drawn ones, then 40 of one token a request."""
    yield from BY_HAND
    for seed in range(number):
        yield drawn(seed)
    for seed in range(40):
        yield one_token_each(seed)


def in_words(rows: list[Row], most: int = 4) -> str:
    """The first requests of a workload, for a message."""
    said = []
    for number, row in enumerate(rows[:most]):
        begin = f"request {row.parent}" if row.parent >= 0 else f"common prompt {-row.parent}"
        tokens = f"{row.length} token{'s' if row.length > 1 else ''}"
        shared = f", the first {row.shared} those of {begin}" if row.shared else ""
        salt = f", salt {row.salt!r}" if row.salt else ""
        said.append(
            f"request {number} comes before step {row.arrival}: {tokens}{shared}, "
            f"generates {row.out_tokens}{salt}"
        )
    more = len(rows) - most
    return "; ".join(said) + (f"; and {more} more requests" if more > 0 else "")


def _print(name: str) -> None:
    """One recorded workload, for eyes."""
    file = Path(__file__).resolve().parent / "vllm_steps.json.gz"
    record = json.loads(gzip.decompress(file.read_bytes()))
    found = [entry for entry in record["cases"] if entry["name"] == name]
    if not found:
        raise SystemExit(f"no record is called {name!r}")
    print(f"vLLM {record['vllm']}, {Config(*found[0]['config'])}")
    for number, row in enumerate(Row(*values) for values in found[0]["rows"]):
        begin = f"request {row.parent}" if row.parent >= 0 else f"text {-row.parent}"
        salt = f", salt {row.salt}" if row.salt else ""
        print(
            f"request {number} comes before step {row.arrival}: {row.length} tokens, the first "
            f"{row.shared} of {begin}; generates {row.out_tokens}{salt}"
        )
    for number, (flat, preempted, finished, free, *_rest) in enumerate(found[0]["steps"]):
        scheduled = dict(zip(flat[::2], flat[1::2], strict=True))
        ends = f", finished {finished}" if finished else ""
        lost = f", preempted {preempted}" if preempted else ""
        print(f"step {number}: {scheduled}{lost}{ends}, {free} free")


if __name__ == "__main__":
    _print(sys.argv[1] if len(sys.argv) == 2 else "")
