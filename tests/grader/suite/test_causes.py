"""What is named, and what is not: each line of the rule on a task whose replays are given."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from grader.errors import LoadFailed, StudentError
from grader.status import TestStatus
from grader.suite import expect
from grader.suite.causes import Extra, OutOfTime, extra_of, is_failing, name_causes
from grader.suite.model import Case, Test
from grader.suite.run import Outcome
from grader.suite.splice import Misconception

FAILED, PASSED = TestStatus.FAILED, TestStatus.PASSED


def case(name: str) -> Case:
    return Case(Test("lab90", "mean", name, lambda: None, True, (), 1), "", {})


def misconception(name: str, sentence: str = "") -> Misconception:
    text = sentence or f"{name}."
    return Misconception("mean", name, "mean.py", text, None, lambda text: text)


@dataclass
class Told:
    """Replays that are written down: a misconception's letters, one a case. `a` agrees, `d` fails
    in another way, `x` is a hard extra, `X` one that is known without a replay, `f` a forgotten
    one, a point passes."""

    letters: Mapping[str, str]
    seconds: float = 1e9
    asked: list[tuple[str, str]] = field(default_factory=list)

    def _letter(self, wrong: Misconception, outcome: Outcome) -> str:
        if len(self.asked) >= self.seconds:
            raise OutOfTime
        self.asked.append((wrong.name, outcome.case.name))
        return self.letters[wrong.name][int(outcome.case.name)]

    def has_hard_extra(self, wrong: Misconception, passed: Outcome) -> bool:
        return self.letters[wrong.name][int(passed.case.name)] == "X"

    def agrees(self, wrong: Misconception, failing: Outcome) -> bool:
        return self._letter(wrong, failing) == "a"

    def extra(self, wrong: Misconception, passed: Outcome) -> Extra:
        kinds = {"x": Extra.HARD, "f": Extra.FORGOTTEN}
        return kinds.get(self._letter(wrong, passed), Extra.NONE)


def named(learner: str, sentences: Mapping[str, str] | None = None, **letters: str) -> list[str]:
    """What is said at each case, with `|` between two. Of the learner: `F` fails, a point passes,
    `?` is unknown."""
    kinds = {"F": FAILED, ".": PASSED, "?": TestStatus.TIMEOUT}
    rows = [Outcome(case(str(index)), kinds[mark]) for index, mark in enumerate(learner)]
    known = [misconception(name, (sentences or {}).get(name, "")) for name in letters]
    name_causes(rows, known, Told(letters))
    return ["|".join(row.causes) for row in rows]


def test_one_that_agrees_everywhere_is_named_at_each_failing_case() -> None:
    assert named("F.F", one="a.a", other="..d") == ["one.", "", "one."]


def test_without_an_agreement_nothing_is_named() -> None:
    assert named("F.", one="d.") == ["", ""]
    assert named("F.", one="..") == ["", ""]


def test_a_hard_extra_rules_it_out() -> None:
    assert named("FF.", one="aax") == ["", "", ""]
    assert named("FF.", one="aax", other="ad.") == ["other.", "", ""]


def test_one_that_is_known_to_be_ruled_out_is_not_replayed() -> None:
    rows = [Outcome(case(str(index)), kind) for index, kind in enumerate((FAILED, FAILED, PASSED))]
    told = Told({"one": "aaX", "other": "ad."})
    name_causes(rows, [misconception("one"), misconception("other")], told)
    assert [row.causes for row in rows] == [["other."], [], []]
    assert {name for name, _ in told.asked} == {"other"}


def test_a_forgotten_check_rules_nothing_out() -> None:
    assert named("FF.", one="aaf") == ["one.", "one.", ""]


def test_the_one_with_fewer_forgotten_checks_is_named() -> None:
    assert named("FF..", wider="aaf.", one="aa..") == ["one.", "one.", "", ""]


def test_agreements_and_extras_are_set_off_against_each_other() -> None:
    assert named("FFFF..", one="aaadff", other="aad...") == ["other."] * 2 + ["one.", "", "", ""]
    assert named("FFFF..", one="aaaaf.", other="aad...") == ["one."] * 4 + [""] * 2


def test_it_explains_at_least_half_of_the_failing_cases() -> None:
    assert named("FFFF", one="aadd") == ["one.", "one.", "", ""]
    assert named("FFFFF", one="aaddd") == [""] * 5


def test_a_name_stands_only_where_it_agrees() -> None:
    assert named("FFF", one="ada") == ["one.", "", "one."]


def test_two_that_tie_are_both_named_and_three_are_not() -> None:
    assert named("F.", one="a.", other="a.") == ["one.|other.", ""]
    assert named("F.", one="a.", other="a.", third="a.") == ["", ""]


def test_variants_under_one_sentence_are_one_name() -> None:
    same = {"one": "Same idea.", "other": "Same idea.", "third": "Same idea."}
    assert named("F.", same, one="a.", other="a.", third="a.") == ["Same idea.", ""]
    assert named("F.", same, one="a.", other="a.", third="a.", fourth="a.") == [
        "Same idea.|fourth.",
        "",
    ]


def test_two_mistakes_in_one_task_are_both_named() -> None:
    assert named("FFF.", one="aa..", other="..a.") == ["one.", "one.", "other.", ""]


def test_a_second_name_explains_half_of_what_is_left() -> None:
    assert named("FFFFFF", one="aaad..", other="....ad") == ["one."] * 3 + [""] * 3
    assert named("FFFFF", one="aaad.", other="....a") == ["one."] * 3 + ["", "other."]


def test_at_most_two_are_named_in_a_task() -> None:
    assert named("FFFFFFF", a="aaaa...", b="....aa.", c="......a") == ["a."] * 4 + ["b."] * 2 + [""]
    assert named("FFF", one="aa.", other="..a", third="..a") == ["one.", "one.", ""]
    assert named("FFF", one="aa.", other="aa.", third="..a") == ["one.|other."] * 2 + [""]


def test_an_unknown_case_is_neither_failing_nor_an_extra() -> None:
    assert named("F?", one="ax") == ["one.", ""]
    assert named("F?", one="aa") == ["one.", ""]


@pytest.mark.parametrize("calls", range(5))
def test_out_of_time_nothing_is_named(calls: int) -> None:
    """Two misconceptions at one failing case, three cases that pass: five replays are certain."""
    rows = [Outcome(case(str(n)), FAILED if n == 0 else PASSED) for n in range(4)]
    told = Told({"one": "a...", "other": "d..."}, seconds=calls)
    name_causes(rows, [misconception("one"), misconception("other")], told)
    assert rows[0].causes == []
    told.seconds = 1e9
    told.asked.clear()
    name_causes(rows, [misconception("one"), misconception("other")], told)
    assert rows[0].causes == ["one."]
    assert len(told.asked) == 5


def test_the_first_name_stays_when_time_runs_out_over_a_second() -> None:
    rows = [Outcome(case(str(n)), FAILED) for n in range(3)]
    name_causes(rows, [misconception("one"), misconception("b")], Told({"one": "aa.", "b": "..a"}))
    assert [row.causes for row in rows] == [["one."], ["one."], ["b."]]
    told = Told({"one": "aa.", "b": "..a"}, seconds=5)
    name_causes(rows, [misconception("one"), misconception("b")], told)
    assert [row.causes for row in rows] == [["one."], ["one."], []]


def test_one_that_cannot_be_the_best_is_not_replayed_further() -> None:
    rows = [Outcome(case(str(n)), FAILED if n < 4 else PASSED) for n in range(6)]
    told = Told({"one": "aaaa..", "none": "dddd..", "half": "aadd.."})
    name_causes(rows, [misconception(name) for name in told.letters], told)
    assert rows[0].causes == ["one."]
    assert sum(name == "none" for name, _ in told.asked) == 1
    assert sum(name == "half" for name, _ in told.asked) == 3


# -- what replays and failures mean ---------------------------------------------------------------


def test_what_is_refused_by_raising_is_forgotten_and_another_failure_is_hard() -> None:
    def replayed(status: TestStatus, error: BaseException | None = None) -> Extra:
        return extra_of(Outcome(case("0"), status, error=error))

    with pytest.raises(expect.Failure) as accepted, expect.raises(ValueError, "it is refused"):
        pass
    with pytest.raises(expect.Failure) as wrong:
        expect.equal(1, 2, "arithmetic")
    assert replayed(PASSED) is Extra.NONE
    assert replayed(TestStatus.TIMEOUT) is Extra.NONE
    assert replayed(TestStatus.NOT_VERIFIED) is Extra.NONE
    assert replayed(FAILED, accepted.value) is Extra.FORGOTTEN
    assert replayed(FAILED, StudentError("ZeroDivisionError", "by zero")) is Extra.FORGOTTEN
    assert replayed(FAILED, wrong.value) is Extra.HARD


def test_what_raises_counts_among_the_failing_and_a_file_that_does_not_import_does_not() -> None:
    raised = Outcome(case("0"), FAILED, error=StudentError("KeyError", "'a'"))
    broken = Outcome(case("0"), TestStatus.ERROR, error=LoadFailed("mean.py does not import"))
    assert is_failing(raised)
    assert not is_failing(broken)
    for status in (TestStatus.TIMEOUT, TestStatus.NOT_STARTED, TestStatus.NOT_RUN, PASSED):
        assert not is_failing(Outcome(case("0"), status))


def _exhaustive(learner: str, letters: Mapping[str, str]) -> list[str]:
    """The rule as its text has it, with every misconception asked everything."""
    left = [index for index, mark in enumerate(learner) if mark == "F"]
    passed = [index for index, mark in enumerate(learner) if mark == "."]
    said: list[list[str]] = [[] for _ in learner]
    found = 0
    while left and found < 2:
        scores = {}
        for name, row in letters.items():
            agrees = [index for index in left if row[index] == "a"]
            begins = [[row[index] == "a" for index in left[:asked]] for asked in range(len(left))]
            if any(len(b) - sum(b) >= 4 and len(b) - sum(b) > 3 * sum(b) for b in begins):
                continue
            extras = [row[index] for index in passed]
            if agrees and 2 * len(agrees) >= len(left) and "x" not in extras:
                scores[name] = (len(agrees) - extras.count("f"), agrees)
        best = max((score for score, _ in scores.values()), default=0)
        names = [name for name, (score, _) in scores.items() if score == best]
        if not names or found + len(names) > 2:
            break
        found += len(names)
        for name in sorted(names, key=lambda name: -len(scores[name][1])):
            for index in scores[name][1]:
                said[index].append(f"{name}.")
        left = [index for index in left if not said[index]]
    return ["|".join(row) for row in said]


def test_the_search_finds_what_asking_everything_finds() -> None:
    draw = random.Random(7)
    for _ in range(3000):
        learner = "".join(draw.choices("F.?", (5, 3, 1), k=draw.randint(1, 12)))
        letters = {
            f"w{number}": "".join(
                draw.choice("aad") if mark == "F" else draw.choices(".fx", (8, 2, 1))[0]
                for mark in learner
            )
            for number in range(draw.randint(1, 6))
        }
        assert named(learner, **letters) == _exhaustive(learner, letters), (learner, letters)


def test_one_that_explains_all_spares_the_others_their_replays() -> None:
    letters = {f"w{number}": "d" * 6 + "." for number in range(20)} | {"right": "aaaaaa."}
    told = Told(letters)
    rows = [Outcome(case(str(index)), FAILED if index < 6 else PASSED) for index in range(7)]
    name_causes(rows, [misconception(name) for name in letters], told)
    assert [row.causes for row in rows] == [["right."]] * 6 + [[]]
    assert len(told.asked) == 20 + 6 + 1


def test_one_that_differs_on_the_first_four_is_asked_no_more() -> None:
    told = Told({"late": "dddd" + "a" * 6, "late_by_three": "ddd" + "a" * 7})
    rows = [Outcome(case(str(index)), FAILED) for index in range(10)]
    name_causes(rows, [misconception(name) for name in told.letters], told)
    assert [row.causes for row in rows] == [[]] * 3 + [["late_by_three."]] * 7
    assert sum(name == "late" for name, _ in told.asked) <= 4 + 4
