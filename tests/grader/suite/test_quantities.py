"""Figures as people type them."""

from __future__ import annotations

import contextlib
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.suite.quantities import UNITS, NotAFigure, figure

MIB = 2**20


@pytest.mark.parametrize(
    ("typed", "dimension", "value"),
    [
        ("131072", "bytes", 131_072),
        ("131,072", "bytes", 131_072),
        ("131 072 B", "bytes", 131_072),
        ("131_072 bytes", "bytes", 131_072),
        ("131'072", "bytes", 131_072),
        ("128 KiB", "bytes", 131_072),
        ("128KiB", "bytes", 131_072),
        ("128 kib", "bytes", 131_072),
        ("2^17", "bytes", 131_072),
        ("2**17 bytes", "bytes", 131_072),
        ("0.13 MB", "bytes", 130_000),
        ("0,13 MB", "bytes", 130_000),
        ("1.3e5", "bytes", 130_000),
        ("1.3 x 10^5", "bytes", 130_000),
        ("1.3*10**5 B", "bytes", 130_000),
        ("~ 16 GB", "bytes", 16 * 10**9),
        ("= 16 GiB.", "bytes", 16 * 2**30),
        ("16 gigs", "", None),
        ("1,048,576.5", "bytes", Fraction(2_097_153, 2)),
        ("1.048.576", "bytes", 1_048_576),
        ("8 Mbit", "bytes", 10**6),
        ("12 ms", "s", Fraction(12, 1000)),
        ("375 us", "s", Fraction(375, 10**6)),
        ("375 \u00b5s", "s", Fraction(375, 10**6)),
        ("1.5 min", "s", 90),
        ("1 1/2 s", "s", Fraction(3, 2)),
        ("3/8", "", Fraction(3, 8)),
        ("37.5 %", "", Fraction(3, 8)),
        ("7B", "", 7 * 10**9),
        ("7B", "bytes", 7),
        ("7 billion", "", 7 * 10**9),
        ("48 tokens", "", 48),
        ("2.2 requests/s", "", Fraction(11, 5)),
        ("3.35 TB/s", "bytes/s", 3_350_000_000_000),
        ("989 TFLOP/s", "FLOP/s", 989 * 10**12),
        ("989 tflops", "FLOP/s", 989 * 10**12),
        ("65.5 TFLOPs", "FLOPs", Fraction(655, 10) * 10**12),
        ("-3", "", -3),
        (".5", "", Fraction(1, 2)),
        ("5.", "", 5),
    ],
)
def test_what_people_type(typed: str, dimension: str, value: int | Fraction | None) -> None:
    if value is None:
        with pytest.raises(NotAFigure):
            figure(typed, dimension)
        return
    assert figure(typed, dimension).value == value


@pytest.mark.parametrize(
    ("typed", "dimension", "sentence"),
    [
        ("", "bytes", "Type a figure"),
        ("   ", "", "Type a figure"),
        ("many", "", "does not begin with a figure"),
        ("12 parsecs", "s", "'parsecs' is not a unit that is known here (known are s, ms, us, ns)"),
        ("12 GB", "s", "That has the unit GB, and the answer is a time in s"),
        ("12 ms", "bytes", "That has the unit ms, and the answer is in bytes"),
        ("12 GB/s", "bytes", "That has the unit GB/s, and the answer is in bytes"),
        ("1.2.3", "", "is not one number"),
        ("1,2,3", "", "is not one number"),
        ("1e5000", "", "10 to the power of 5,000"),
        ("9" * 61, "", "longer than 60 characters"),
        ("1/0", "", "is not a unit"),
        ("\u0661\u0662", "", "does not begin with a figure"),
    ],
)
def test_what_is_not_a_figure(typed: str, dimension: str, sentence: str) -> None:
    with pytest.raises(NotAFigure, match=re.escape(sentence)):
        figure(typed, dimension)


def test_a_figure_stands_for_what_rounds_to_it() -> None:
    assert figure("0.13 MB", "bytes").covers(Fraction(131_072))
    assert not figure("0.14 MB", "bytes").covers(Fraction(131_072))
    assert not figure("130 KB", "bytes").covers(Fraction(131_072))
    for typed in ("131.1 KB", "131 kB", "2^17"):
        assert figure(typed, "bytes").covers(Fraction(131_072)), typed


@pytest.mark.parametrize(
    ("typed", "half", "loose"),
    [
        ("131,072", Fraction(1, 2), Fraction(1, 2)),
        ("131,000", Fraction(1, 2), 500),
        ("100", Fraction(1, 2), 5),
        ("10", Fraction(1, 2), Fraction(1, 2)),
        ("0", Fraction(1, 2), Fraction(1, 2)),
        ("1.00", Fraction(1, 200), Fraction(1, 200)),
        ("1.3e5", 5000, 5000),
        ("130k", 500, 5000),
        ("2^17", 0, 0),
        ("3/8", 0, 0),
    ],
)
def test_zeros_at_the_end_may_only_hold_places(
    typed: str, half: int | Fraction, loose: int | Fraction
) -> None:
    said = figure(typed)
    assert (said.half, said.loose) == (half, loose)


@pytest.mark.parametrize(
    ("typed", "dimension", "question", "value"),
    [
        ("4.13 bits", "", "How many bits does a weight take?", Fraction(413, 100)),
        ("4.13 bits a weight", "", "How many bits does a weight take?", Fraction(413, 100)),
        ("2 cards", "", "How many cards does it take?", 2),
        ("1 card", "", "How many cards does it take?", 1),
        ("13 requests a second", "", "What is the goodput in requests a second?", 13),
        ("8.75 FLOPs/byte", "", "What is its intensity in FLOPs a byte?", Fraction(35, 4)),
        ("128 KiB a token", "bytes", "How many bytes does a token add?", 131_072),
        ("128 KiB/token", "bytes", "How many bytes does a token add?", 131_072),
    ],
)
def test_words_of_the_question_are_its_unit(
    typed: str, dimension: str, question: str, value: int | Fraction
) -> None:
    assert figure(typed, dimension, question).value == value


@pytest.mark.parametrize(
    ("typed", "dimension", "question", "sentence"),
    [
        ("5 GiB", "", "A card has 80 GiB. How many sequences fit?", "the unit GiB"),
        ("5 blocks of 16", "", "There are blocks of 16 tokens. How many?", "is not a unit"),
        ("5 +", "", "How many?", "is not a unit"),
        ("5 of", "", "How many of them?", "is not a unit"),
        ("12 tokens", "s", "How long do 12 tokens take?", ""),
        ("12 GB a second", "bytes", "At 3 GB a second: how many bytes?", "is not a unit"),
    ],
)
def test_other_words_are_not(typed: str, dimension: str, question: str, sentence: str) -> None:
    if not sentence:
        assert figure(typed, dimension, question).unit is None
        return
    with pytest.raises(NotAFigure, match=sentence):
        figure(typed, dimension, question)


@given(st.integers(0, 10**15), st.sampled_from(sorted(UNITS)))
def test_any_whole_number_of_any_unit(number: int, name: str) -> None:
    unit = UNITS[name]
    assert figure(f"{number:,} {name}", unit.dimension).value == number * unit.scale


@given(st.text(max_size=80), st.sampled_from(["", "bytes", "s", "FLOPs", "bytes/s"]))
def test_any_text_is_a_figure_or_a_sentence(typed: str, dimension: str) -> None:
    with contextlib.suppress(NotAFigure):
        said = figure(typed, dimension, typed)
        assert 0 <= said.half <= said.loose
