"""Designs that are asked for: each can be found, and not by any choice."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path

import pytest

from grader.lab.manifest import all_labs, load_lab
from grader.learner.interview.asking import Asker, chosen, verdict_lines
from grader.suite.questions import Bank, Card, Knob

ROOT = Path(__file__).resolve().parents[3]
FEWEST = 6
SEEDS = 12


@cache
def bank(lab: str) -> Bank:
    return Bank(load_lab(ROOT, lab))


CASES = [card for lab in all_labs(ROOT) for card in bank(lab.id).cards if card.kind == "case"]
each_case = pytest.mark.parametrize("card", CASES, ids=[card.name for card in CASES])


def test_there_are_enough() -> None:
    assert len(CASES) >= FEWEST
    assert {card.lab for card in CASES} == {"lab01", "lab08", "lab10", "lab12"}


@each_case
def test_it_can_be_found_and_missed(card: Card) -> None:
    """By what the lab's simulator says of the design, and of another one."""
    of = bank(card.lab)
    texts = set()
    for seed in range(SEEDS):
        ask = of.case(card, seed)
        good = of.judge_case(card, ask, of.good(card, ask))
        poor = of.judge_case(card, ask, ask.poor)
        assert good.points == 1.0, (seed, of.good(card, ask), good)
        assert poor.points < 1.0, (seed, ask.poor, poor)
        assert good.lines
        assert poor.lines
        texts.add(ask.text)
    assert len(texts) > 2


@each_case
def test_few_choices_are_right(card: Card) -> None:
    of = bank(card.lab)
    ask = of.case(card, 0)
    rows = [
        of.judge_case(card, ask, dict(zip([k.name for k in ask.knobs], values, strict=True)))
        for values in product(*(knob.choices for knob in ask.knobs))
    ]
    share = sum(row.points == 1.0 for row in rows) / len(rows)
    assert 0 < share <= 0.35, share


@each_case
def test_it_has_a_hint_and_knobs_that_say_what_they_are(card: Card) -> None:
    assert len(card.hint.split()) >= 4
    for knob in bank(card.lab).case(card, 1).knobs:
        assert knob.about
        assert len(set(knob.choices)) >= 2


KNOBS = (Knob("tp", (1, 2, 4), "tensor parallelism"), Knob("share", (0.5, 0.9), "of a card"))


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("2 0.9", {"tp": 2, "share": 0.9}),
        ("2, 0.5", {"tp": 2, "share": 0.5}),
        ("tp=4 share=0.9", {"tp": 4, "share": 0.9}),
        ("share = 0.9, tp: 1", {"tp": 1, "share": 0.9}),
        ("4.0 .5", {"tp": 4, "share": 0.5}),
        ("2 GPUs and 0.9", {"tp": 2, "share": 0.9}),
        ("0.9 share and 2", {"tp": 2, "share": 0.9}),
        ("share 0.9 tp 2", {"tp": 2, "share": 0.9}),
        ("4 cards, 0.5 of a card", {"tp": 4, "share": 0.5}),
    ],
)
def test_what_is_typed(typed: str, values: dict[str, float]) -> None:
    found = chosen(typed, KNOBS, "On how many GPUs, or cards?")
    assert found == values
    assert type(found["tp"]) is int


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("", r"2 numbers are asked for \(tp, share\), and you typed 0"),
        ("2", "and you typed 1"),
        ("2 0.9 1", "and you typed 3"),
        ("2 0.9 parsecs", "'parsecs' is not a number"),
        ("3 0.9", "tp is one of 1, 2, 4, and not 3"),
        ("two 0.9", "'two' is not a number"),
        ("nan 0.9", "tp is one of"),
        ("pp=2 share=0.9", "choose each of tp, share once"),
        ("tp=2 tp=4", "choose each of tp, share once"),
    ],
)
def test_a_faulty_design_is_a_sentence(typed: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        chosen(typed, KNOBS)


def test_it_is_asked_and_told() -> None:
    card = next(card for card in CASES if card.id == "layout_of_64_gpus")
    of = bank(card.lab)
    ask = of.case(card, 1)
    typed = ["tp=16 pp=1", " ".join(f"{value}" for value in ask.poor.values())]
    said: list[str] = []
    answer = Asker(lambda _: typed.pop(0), said.append).ask(card, of, 1)
    told = " ".join("\n".join(said).split())
    assert "3 numbers are asked for (tp, pp, micro), and you typed 2." in told
    assert "Write tp=<number> pp=<number> micro=<number>; or ? if you do not know." in told
    assert answer.points < 1
    told = "\n".join(verdict_lines(answer, False))
    assert "of 1 point." in told
    assert "One that does: tp=" in told
