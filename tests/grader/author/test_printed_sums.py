"""Sums on pages and in questions: the printed operands give what is printed, or a fault says so."""

from __future__ import annotations

import pytest

from grader.author import printed_sums, question_checks

RIGHT = [
    "70.55 billion x 18 / 64 = 19.84 GB",
    "16.00 GB / 4.8 TB/s = 3.33 ms",
    "4 x 2^26 = 0.26844 GB",
    "bytes: 2 x 32 x 8 x 128 x 2 = 131,072",
    "(80 - 14.96) / 0.25048, rounded down: 259",
    "1,120 / 60 = 18.67, rounded up: 19",
    "one value a gap: (19 x 10 + 1 x 20) / 20 = 210 / 20 = 10.5 ms",
    "8 / 32 = 25 %",
    "the smallest is 2^-24 = 5.96e-8",
    "6 x 405e9 x 15.6e12 = 3.79e25",
    "40 // 16 = 2",
]
WRONG = {
    "70.6 billion x 18 / 64 = 19.8 GB": "19.85625",
    "(80 - 13.5) / 0.250, rounded down: 265": "266",
    "1.07 GB / 4.8 TB/s = 223.7 us": "0.2229167",
    "in all 3 + 4 = 8": "7",
    "1.75 x 13.48 = 23.58 GB": "23.59",
    "6 x 405e9 x 15.6e12 = 3.78e25": "3.7908e+25",
}
OTHER = [
    "4 S^2 = 67,108,864",
    "ceil(10 / 4) = 3",
    "weights 2/4 + gradients 2 + optimizer 12/8 = 4",
    "m = 16, p = 4",
    "34 s b h = 34 x 2,048",
    "between: 1/2 of it / 50 GB/s = 1 ms",
]


@pytest.mark.parametrize("text", RIGHT)
def test_a_sum_that_its_operands_give_passes(text: str) -> None:
    assert not list(printed_sums.faults(text))


@pytest.mark.parametrize("text", WRONG)
def test_a_sum_that_its_operands_do_not_give_is_a_fault_with_its_value(text: str) -> None:
    (said,) = printed_sums.faults(text)
    assert WRONG[text] in said


@pytest.mark.parametrize("text", OTHER)
def test_what_is_not_a_sum_of_plain_numbers_is_left_alone(text: str) -> None:
    assert not list(printed_sums.faults(text))


def test_a_digit_more_or_less_is_seen_in_every_right_sum() -> None:
    """The right sums are really read: with another last digit each of them is a fault."""
    for text in RIGHT[:9]:
        at = max(i for i, char in enumerate(text) if char.isdigit() and "e-" not in text[:i])
        other = text[:at] + str((int(text[at]) + 5) % 10) + text[at + 1 :]
        assert list(printed_sums.faults(other)), other


@pytest.mark.parametrize("text", ["1 warps: 1 x 16", "at once on 1 GPUs", "the 1 micro-batches"])
def test_one_of_a_thing_in_the_plural_is_a_fault(text: str) -> None:
    assert list(question_checks._said_wrong([text]))


@pytest.mark.parametrize(
    "text", ["64 - 1 steps", "rank 1 reads row 1", "(1 is none)", "1 ms", "11 warps", "1 warp"]
)
def test_one_of_a_thing_in_the_singular_is_not(text: str) -> None:
    assert not list(question_checks._said_wrong([text]))
