"""Lab 09's judgement of a comment on clocks: right ones in many words, and wrong ones."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from grader.lab.manifest import load_lab
from grader.suite.model import load_suite

ROOT = Path(__file__).resolve().parents[3]
RIGHT = [
    "clock-control none: the durations match what we see in training, at the price of jitter "
    "between runs",
    "clock control is off so times equal those nsys shows; the price is noise",
    "Clocks are left alone: durations are then those of production, but differ from run to run "
    "with temperature and power; locked to their base they would repeat, and be too long.",
    "clock control none: the durations of real runs, at the cost that two measurements differ",
    'ncu locks the clock to base by default; "none" shows real durations and lets them wander.',
    "Why not lock the clocks: durations like in production. Why one would: they repeat.",
    "Free clocks show what users get. The price: noise, since boost follows temperature.",
    'Clock control: "none" measures at the clocks that production runs at, and gives up '
    "repeatability",
    "Do not lock the clocks: we want the boost clock that training gets, and pay with variance.",
    "Free clocks: the kernel runs as fast as it does in the job; the spread is larger.",
    "No clock control. Buys: true durations. Costs: results are not reproducible.",
    "Unlocked clocks give production timings but are not repeatable across runs",
    "Clocks float with temperature, so repeat the measurement; in return it is what the user sees",
    "locked clocks would give stable numbers, which are lower than the real ones at boost clock",
    "With clocks unlocked the GPU boosts as in the training run; take the median of several runs.",
    "none = do not pin clocks. Realistic kernel times; run-to-run variation of a few per cent.",
    "Locked clocks are repeatable, free clocks are those of production and vary with temperature.",
    "Base clocks are repeatable but not what production runs at, so they stay unlocked.",
    "clock control off: actual speed of deployment, less comparable from one day to another",
    "Leaving the clocks free makes repeatable results hard, and shows the real speed of a step",
    "Clocks free on purpose. We see the times of the real workload; thermal throttling shows too.",
    "ncu would lock clocks to base. We do not: its times then agree with the timeline, but drift "
    "when the chip gets hot.",
    "Free clocks cost repeatability and buy durations that are representative of the job",
    "We leave clocks free. None of the runs is repeatable, all of them are honest.",
    "The clocks are not locked: numbers as in everyday use, with fluctuations of some per cent",
    "--clock-control none keeps boost clocks on, so durations are comparable with nsys, not with "
    "each other",
    "Never lock clocks here, leave them free: durations of our serving job, noisier by 3 %",
    "Do not forget that free clocks vary: durations are those of the real run, not to be compared "
    "to the last digit",
    "Don't use locked clocks: the numbers would be stable and wrong; free ones are real",
    "clocks run free, which mirrors inference under load; two runs may be 5 % apart, so average",
    "If clocks are locked then results are stable but do not reflect production; so they are free.",
    "Free clocks are less repeatable than locked clocks, and closer to actual training speed",
    "Clock control none. Gain: what a user's GPU does. Loss: consistency between measurements",
    "unlocked clocks: production speed. Without them: repeatable, but slower than in practice",
    "clocks unlocked: what you'd measure in prod; downside is that it wobbles with GPU temp",
    "We don't lock the clocks. Pro: duration = production duration. Con: results jump around.",
    "don't lock clocks to base: durations would be too long. price: not repeatable.",
    "the clock is free: kernel time like in the epoch; no guarantee that tomorrow gives the same",
    "Clock control none makes durations comparable with the timeline, noise is the price",
    "Locked clocks have true repeatability, unlocked clocks have production durations but vary",
    "locked clocks are real nice for comparing; free ones show training speed",
    "avoid drawing conclusions from one run: free clocks vary, though durations are real",
    "Fixed clocks are reproducible but unrealistic, free clocks realistic but noisy.",
    "Locking clocks gives repeatable counters but real durations only without it; so none here, "
    "noise accepted",
]
WRONG = {
    "clocks unexplained": [
        "",
        "the durations of production, which vary from run to run with the temperature",
        "clocks none",
        "clocks clocks clocks clocks clocks production vary",
    ],
    "clocks without a gain": [
        "Clocks are left alone, so no two runs take the same: they vary with heat.",
        "clocks clocks: none of the base here, please",
        "The option for clocks is none, because the task asks for exactly that.",
    ],
    "clocks without a cost": [
        "Clocks are left alone: these are the durations of production.",
        "The clocks are free here, so we measure what training does.",
        "clock control none: honest numbers, as users will get them",
    ],
    "clocks turned round": [
        "Unlocked clocks give repeatable results; locked clocks are those of production, and vary "
        "with temperature.",
        "Do not use free clocks: production durations vary.",
        "Free clocks are reproducible, and the price is that they are not those of production.",
        "Locked clocks give production durations, free ones repeat them.",
        "clock-control none makes the measurements stable; real durations are longer",
        "Avoid unlocked clocks: noise. Production durations are what matters.",
        "Locked clocks show the real durations of training but drift with temperature.",
        "With free clocks the results are deterministic, unlike those of production.",
        "Free clocks give less noise than the real job has, and no boost.",
        "Locked clocks vary with temperature; free clocks do not, so they are honest.",
        "Never leave the clocks free: production durations differ from run to run.",
    ],
}


@pytest.fixture(scope="module")
def profilers() -> Any:
    suite = load_suite(load_lab(ROOT, "lab09"))
    return importlib.import_module(f"{suite.package}.profilers")


@pytest.mark.parametrize("comment", RIGHT)
def test_a_right_comment_is_accepted(profilers: Any, comment: str) -> None:
    assert profilers.clock_faults([comment]) == []
    assert profilers.clock_faults(["[ ] the symptom is a number", comment, "see above"]) == []


@pytest.mark.parametrize(("key", "comment"), [(key, one) for key in WRONG for one in WRONG[key]])
def test_a_wrong_comment_is_refused(profilers: Any, key: str, comment: str) -> None:
    assert [fault for fault, _text in profilers.clock_faults([comment])] == [key]


def test_one_right_comment_is_enough(profilers: Any) -> None:
    turned = WRONG["clocks turned round"][0]
    assert profilers.clock_faults([turned, RIGHT[0]]) == []


def test_no_comment_takes_for_ever(profilers: Any) -> None:
    for word in ("free clocks are ", "locked is ", "not ", "clock ", "a "):
        profilers.clock_faults(["clock production vary real nsys " + word * 1200])
