"""Inputs for calculators: 50 each, drawn from a seed, and `sum` as the browser's Python has it."""

from __future__ import annotations

import builtins
import contextlib
import functools
import json
import math
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from grader.site.calculators.declaration import (
    AnyInput,
    Calculator,
    ChoiceInput,
    NumberInput,
    SwitchInput,
)
from grader.site.calculators.every_calculator import CALCULATORS, answer
from grader.site.calculators.model_input import PASTED
from tests.grader.site.lab_modules import whole

CASES, MOST_WRONG = 50, 10


def compensated_sum(values: Iterable[Any], /, start: Any = 0) -> Any:
    """`sum` of Python 3.12 and later, which carries the rounding errors of floats along.

    Source: CPython 3.13, Python/bltinmodule.c, `builtin_sum_impl` and `cs_add`.
    """
    total, rest = start, iter(values)
    for value in rest:
        total = total + value
        if type(total) is float:
            break
    else:
        return total
    lost = 0.0
    for value in rest:
        if type(value) is int:
            total += float(value)
            continue
        if type(value) is not float:
            raise TypeError(f"{value!r} among floats")
        after = total + value
        if abs(total) >= abs(value):
            lost += (total - after) + value
        else:
            lost += (value - after) + total
        total = after
    return total + lost if lost and math.isfinite(lost) else total


@contextlib.contextmanager
def summed_as_in_browser() -> Iterator[None]:
    """Python 3.11 adds floats one by one, so its last digit may be another than the browser's."""
    kept = whole("kernels_lab12")._kernels
    with pytest.MonkeyPatch.context() as patch:
        if sys.version_info < (3, 12):
            patch.setattr(builtins, "sum", compensated_sum)
            kept.cache_clear()
        yield
    kept.cache_clear()


def drawn(one: Calculator) -> list[dict[str, str]]:
    """50 inputs: models in turn, every fourth one pasted, the rest at random; at most 10 of them
    are refused."""
    return _drawn(one.name)


@functools.cache
def _drawn(name: str) -> list[dict[str, str]]:
    one = next(each for each in CALCULATORS if each.name == name)
    draw = random.Random(name)
    configs = list(whole("types_lab01").CONFIGS.values())
    choice = one.inputs[0]
    assert isinstance(choice, ChoiceInput)
    names = [value for value, _ in choice.choices]
    right: list[dict[str, str]] = [{}]
    wrong: list[dict[str, str]] = []
    turn = 0
    while len(right) + len(wrong[:MOST_WRONG]) < CASES:
        turn += 1
        texts = {each.name: _text(each, draw) for each in one.inputs[1:]} | _sizes(one, draw)
        texts["model"] = names[turn % len(names)]
        if texts["model"] == PASTED or turn % 4 == 0:
            texts |= {"model": PASTED, "config": json.dumps(draw.choice(configs))}
        refused = "wrong" in answer(one.name, texts, whole)
        (wrong if refused else right).append(texts)
    return right + wrong[:MOST_WRONG]


def _text(each: AnyInput, draw: random.Random) -> str:
    if isinstance(each, ChoiceInput):
        return draw.choice(each.choices)[0]
    if isinstance(each, SwitchInput):
        return draw.choice(("", "true"))
    return _number(each, draw) if isinstance(each, NumberInput) else each.default


def _number(each: NumberInput, draw: random.Random) -> str:
    if each.empty and draw.random() < 0.5:
        return ""
    if each.whole:
        high = min(each.high, 10 ** draw.randint(1, 5))
        return str(draw.randint(int(each.low), max(int(each.low), int(high))))
    if each.high == 1:
        return repr(draw.uniform(0.5, 1))
    return repr(round(draw.uniform(each.low, 200), 3))


def _sizes(one: Calculator, draw: random.Random) -> dict[str, str]:
    """Sizes that often go together; numbers at random rarely do."""
    if one.name == "kv-blocks":
        return {"tp": draw.choice("1248"), "gpu": draw.choice(("24", "80", "141", "640"))}
    if one.name == "zero-by-rank":
        ranks = draw.randint(1, 300)
        return {"ranks": str(ranks), "rank": str(draw.randint(0, ranks - 1))}
    if one.name != "parallel-plan":
        return {}
    left, sizes = 64, {}
    for axis in ("tp", "pp", "cp"):
        size = draw.choice([n for n in (1, 2, 4, 8) if left % n == 0])
        sizes[axis], left = str(size), left // size
    micro = draw.choice((1, 2))
    return {
        **sizes,
        "dp": str(left),
        "micro": str(micro),
        "gbs": str(left * micro * draw.choice((8, 16, 24))),
        "nodes": "8",
        "gpus": "8",
        "vpp": draw.choice(("1", "1", "2")),
        "ep": draw.choice(("1", "1", "2", "4")),
        "etp": draw.choice(("", "1")),
        "shard": draw.choice(("", "", "2")),
        "seq": draw.choice(("4096", "8192", "131072")),
        "sp": "true",
        "zero": draw.choice("0123"),
    }
