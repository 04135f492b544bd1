"""Statistics in words: the bounds, and what is said where nothing is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grader.classroom.report import number_words
from grader.classroom.report.class_report import ItemStatistics

ITEM = ItemStatistics(
    people=30, facility=0.6, correlation=0.45, d27=0.5, efficiency=0.55, not_started=0.1,
    timed_out=1 / 30, not_verified=0.0, attempts_to_done=2.0, known=30, best27=0.9, worst27=0.4,
)  # fmt: skip
NOTHING = ItemStatistics(0, *[None] * 7)


@pytest.mark.parametrize(
    ("share", "said"),
    [(0, "0 %"), (0.001, "under 1 %"), (0.5, "50 %"), (0.999, "over 99 %"), (1, "100 %")],
)
def test_a_share_that_is_not_all_never_reads_as_all(share: float, said: str) -> None:
    assert number_words.percent(share) == said.replace(" %", "\N{NO-BREAK SPACE}%")


@pytest.mark.parametrize(
    ("name", "value", "shown", "word"),
    [
        ("facility", 1.0, "100 %", "very easy"),
        ("facility", 0.5, "50 %", "medium"),
        ("facility", 0.0, "0 %", "very hard"),
        ("correlation", 0.5, "0.50", "very good"),
        ("correlation", 0.3, "0.30", "good"),
        ("correlation", 0.2, "0.20", "weak"),
        ("correlation", 0.0, "0.00", "very weak"),
        ("correlation", -0.001, "0.00", "the wrong way"),
        ("correlation", -0.25, "−0.25", "the wrong way"),
        ("d27", 0.4, "0.40", "very good"),
        ("d27", 0.25, "0.25", "fair"),
        ("d27", -0.1, "−0.10", "the wrong way"),
        ("efficiency", 0.5, "50 %", "high"),
        ("efficiency", -0.4, "−40 %", "the wrong way"),
    ],
)
def test_a_word_for_each_number(name: str, value: float, shown: str, word: str) -> None:
    rows = number_words.numbers(replace(ITEM, **{name: value}))
    row = rows[["facility", "correlation", "d27", "efficiency"].index(name)]
    assert (row.value.replace("\N{NO-BREAK SPACE}", " "), row.word) == (shown, word)
    assert row.sentence.endswith(".")


def test_what_cannot_be_computed_is_said() -> None:
    for row in number_words.numbers(NOTHING):
        assert (row.value, row.word) == (number_words.UNKNOWN, "")
        assert row.sentence
    alike = replace(ITEM, correlation=None, d27=None, efficiency=None)
    assert "all have the same points" in number_words.numbers(alike)[1].sentence


def test_few_students_are_no_ground_for_words() -> None:
    facility, *others = number_words.numbers(replace(ITEM, known=9))
    assert facility.word == "medium"
    for row in others:
        assert row.word == ""
        assert row.sentence == "Of fewer than 10 students: by chance."


def test_shares_in_words() -> None:
    assert number_words.shares(ITEM) == [
        "3 of 30 students had not started it.",
        "1 of 30 students ran into a time limit.",
        "The median student who has it done needed 2 attempts.",
    ]
    assert number_words.shares(NOTHING) == []


@pytest.mark.parametrize(
    ("item", "flagged", "said"),
    [
        (ITEM, True, "look at it"),
        (ITEM, False, "works well"),
        (replace(ITEM, correlation=0.25), False, "works"),
        (replace(ITEM, correlation=0.1), False, "says little"),
        (replace(ITEM, correlation=None), False, "says nothing"),
        (replace(ITEM, facility=0.97), False, "almost all have it"),
        (replace(ITEM, facility=0.05), False, "almost nobody has it"),
        (replace(ITEM, known=9), False, "too few to say"),
        (NOTHING, False, "no answers"),
    ],
)
def test_a_verdict(item: ItemStatistics, flagged: bool, said: str) -> None:
    assert number_words.verdict(item, flagged).words == said
