"""What the statistics of a task or a test mean, each in a word and a sentence.

Bounds of facility and correlation: docs.moodle.org/dev/Quiz_report_statistics (Moodle's
discrimination index is a correlation with the rest of the quiz). Bounds of D: R. L. Ebel, Measuring
Educational Achievement (1965). Efficiency has no bounds of that kind; half and a fifth are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grader.classroom.report.class_report import FEWEST, ItemStatistics

UNKNOWN = "–"
Bounds = Sequence[tuple[float, str]]
_FACILITY: Bounds = (
    (0.945, "very easy"),
    (0.805, "easy"),
    (0.645, "fairly easy"),
    (0.345, "medium"),
    (0.205, "fairly hard"),
    (0.105, "hard"),
    (0.0, "very hard"),
)
_CORRELATION: Bounds = (
    (0.5, "very good"),
    (0.3, "good"),
    (0.2, "weak"),
    (0.0, "very weak"),
    (-1.0, "the wrong way"),
)
_D27: Bounds = (
    (0.4, "very good"),
    (0.3, "good"),
    (0.2, "fair"),
    (0.0, "poor"),
    (-1.0, "the wrong way"),
)
_EFFICIENCY: Bounds = ((0.5, "high"), (0.2, "medium"), (0.0, "low"), (-1.0, "the wrong way"))


@dataclass(frozen=True)
class NumberInWords:
    """A statistic: its name, its value as text, a word for it, and a sentence that says what it
    means."""

    name: str
    value: str
    word: str
    sentence: str


@dataclass(frozen=True)
class ItemVerdict:
    """One word or two on an item. tone: `good`, `plain` or `look`, for its colour."""

    words: str
    tone: str


def percent(share: float) -> str:
    """A share in whole percent; one that is not 0 or 1 never reads as 0 or 100 %."""
    rounded = round(100 * share)
    if rounded <= 0 < share:
        return "under 1\N{NO-BREAK SPACE}%"
    if rounded >= 100 > 100 * share:
        return "over 99\N{NO-BREAK SPACE}%"
    return f"{rounded}\N{NO-BREAK SPACE}%"


def signed(value: float) -> str:
    """A number from -1 to 1 with two decimals and a proper minus."""
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def word_of(value: float, bounds: Bounds) -> str:
    """The word of the first bound that the value reaches."""
    return next((word for least, word in bounds if value >= least), bounds[-1][1])


def numbers(found: ItemStatistics) -> list[NumberInWords]:
    """The four statistics of a task. Of fewer than FEWEST students only the values are said."""
    rows = [_facility(found), _correlation(found), _d27(found), _efficiency(found)]
    if found.known >= FEWEST:
        return rows
    return [rows[0], *(_of_few(row) for row in rows[1:])]


def _of_few(row: NumberInWords) -> NumberInWords:
    if not row.word:
        return row
    return NumberInWords(row.name, row.value, "", f"Of fewer than {FEWEST} students: by chance.")


def _facility(found: ItemStatistics) -> NumberInWords:
    if found.facility is None:
        return NumberInWords("Facility", UNKNOWN, "", "Nobody's answer was graded.")
    share = percent(found.facility)
    said = f"A student has {share} of the points on average."
    return NumberInWords("Facility", share, word_of(found.facility, _FACILITY), said)


def _correlation(found: ItemStatistics) -> NumberInWords:
    value = found.correlation
    if value is None:
        return NumberInWords("Correlation", UNKNOWN, "", _alike(found))
    if value >= 0.3:
        said = "Who does well here does well in the rest of the lab, too."
    elif value >= 0:
        said = "Who does well here does little better in the rest of the lab."
    else:
        said = "Who does well here does worse in the rest of the lab."
    return NumberInWords("Correlation", signed(value), word_of(value, _CORRELATION), said)


def _d27(found: ItemStatistics) -> NumberInWords:
    if found.d27 is None:
        return NumberInWords("D", UNKNOWN, "", _alike(found))
    if found.best27 is None or found.worst27 is None:
        said = "What the best 27 % of the students have here, less what the worst 27 % have."
    else:
        best, worst = percent(found.best27), percent(found.worst27)
        said = f"The best 27 % of the students have {best} of the points, the worst 27 % {worst}."
    return NumberInWords("D", signed(found.d27), word_of(found.d27, _D27), said)


def _efficiency(found: ItemStatistics) -> NumberInWords:
    value = found.efficiency
    if value is None:
        return NumberInWords("Efficiency", UNKNOWN, "", _alike(found))
    share = percent(value).replace("-", "−")
    said = f"It orders the class {share} as well as an item with these marks could."
    if value < 0:
        said = "It orders the class the wrong way round."
    return NumberInWords("Efficiency", share, word_of(value, _EFFICIENCY), said)


def _alike(found: ItemStatistics) -> str:
    if found.people == 0:
        return "Unknown: nobody answered, or too few students did."
    return "Unknown: all have the same points here, or in the rest of the lab."


def shares(found: ItemStatistics) -> list[str]:
    """Sentences on what else happened to the people, without those that would say 0 %."""
    return list(_shares(found))


def _shares(found: ItemStatistics) -> Iterator[str]:
    if found.not_started:
        yield f"{_people(found.not_started, found.people)} had not started it."
    if found.timed_out:
        yield f"{_people(found.timed_out, found.people)} ran into a time limit."
    if found.not_verified:
        who = _people(found.not_verified, found.people)
        yield f"{who} have an answer that could not be verified where it was graded."
    if found.attempts_to_done is not None:
        count = found.attempts_to_done
        word = "attempt" if count == 1 else "attempts"
        yield f"The median student who has it done needed {count:g} {word}."


def _people(share: float, people: int) -> str:
    return f"{round(share * people):,} of {people:,} students"


def verdict(found: ItemStatistics, flagged: bool) -> ItemVerdict:
    """On a task or a test. flagged: whether *What to look at* has a remark on it."""
    if flagged:
        return ItemVerdict("look at it", "look")
    if found.facility is None:
        return ItemVerdict("no answers", "plain")
    if found.known < FEWEST:
        return ItemVerdict("too few to say", "plain")
    if found.facility >= _FACILITY[0][0]:
        return ItemVerdict("almost all have it", "plain")
    if found.facility < _FACILITY[-2][0]:
        return ItemVerdict("almost nobody has it", "plain")
    if found.correlation is None:
        return ItemVerdict("says nothing", "plain")
    if found.correlation >= 0.3:
        return ItemVerdict("works well", "good")
    return ItemVerdict("works" if found.correlation >= 0.2 else "says little", "plain")
