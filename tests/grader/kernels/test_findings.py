"""A finding is data that crosses the wall, one sentence for a person, and a signature by which one
mistake of two authors is known."""

from __future__ import annotations

import string
from typing import Any

import msgspec
import pytest

from grader.kernels import Report
from grader.kernels.findings import Actor, Element, KernelFinding, position
from grader.kernels.sentences import FindingKind
from grader.suite import expect

MASKED = KernelFinding(
    FindingKind.NOT_IN_MASK, Actor(7, "", (3,), (0,)), details={"lane": 3, "mask": 0xFF}
)


def race(line: int, place: tuple[int, ...], element: Element, count: int) -> KernelFinding:
    by, other = Actor(line, "write", place, (0,)), Actor(line, "read", (9,), (0,))
    return KernelFinding(FindingKind.RACE_IN_WARP, by, other, element, {"count": count})


def outside(program: int, wrong: int, lanes: int, element: int) -> KernelFinding:
    return KernelFinding(
        FindingKind.OUT_OF_ARGUMENT,
        Actor(5, "read", (program,)),
        element=Element("x", (element,)),
        details={"wrong": wrong, "lanes": lanes, "elements": 16},
    )


def report_of(error: Any) -> dict[str, Any]:
    return {**Report("k", (1, 1, 1), (32, 1, 1)).plain(), "errors": [error]}


def test_a_finding_crosses_the_wall_as_plain_data() -> None:
    for finding in (MASKED, race(3, (1, 2), Element("tile", (4, 0)), 5), outside(0, 1, 8, 16)):
        report = Report("k", (1, 1, 1), (32, 1, 1), errors=[finding])
        data = msgspec.msgpack.decode(msgspec.msgpack.encode(report.plain()))
        assert isinstance(data["errors"][0], dict)
        assert Report.from_plain(data) == report
        assert str(finding) in str(Report.from_plain(data))


@pytest.mark.parametrize(
    "more",
    [
        {"kind": "unheard_of"},
        {"kind": "endless"},  # whose sentence has a limit
        {"details": {"lane": 3}},
        {"details": {"lane": 3, "mask": "ff"}},
        {"details": {"lane": 3, "mask": 0.5}},
        {"details": {"lane": 3, "mask": [1]}},
        {"details": {"lane": True, "mask": 1}},
        {"by": {"line": -1}},
        {"by": {"access": "steal"}},
        {"by": {"place": ["3"]}},
        {"by": None},
        {"element": {"more": 1}},
        {"more": 1},
    ],
)
def test_a_finding_that_no_sentence_fits_is_garbage(more: dict[str, Any]) -> None:
    plain = msgspec.to_builtins(MASKED)
    assert Report.from_plain(report_of(plain)).errors == [MASKED]
    with pytest.raises(ValueError, match="no report of a launch"):
        Report.from_plain(report_of({**plain, **more}))


def test_a_finding_without_its_details_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="limit"):
        KernelFinding(FindingKind.ENDLESS)


def test_every_place_of_a_sentence_is_filled_and_every_detail_shown() -> None:
    for kind in FindingKind:
        places = [(name, form) for _, name, form, _ in string.Formatter().parse(kind.sentence)]
        details: dict[str, Any] = {
            name: 7 if form else "seven" for name, form in places if name and name not in SEEN
        }
        actor = Actor(12, "read", (3,), (1,))
        finding = KernelFinding(kind, actor, actor, Element("x", (5,)), details)
        assert "{" not in str(finding)
        assert all(("7" if value == 7 else value) in str(finding) for value in details.values())


SEEN = (
    *("who", "thread", "block", "program", "other", "other_block", "other_program", "line", "at"),
    *("other_line", "other_at", "does", "acts", "did", "array", "element", "shaped", "lie"),
)


def test_one_mistake_has_one_signature() -> None:
    mine = race(3, (1,), Element("tile", (4,)), 1)
    other = race(8, (2,), Element("buffer", (0,)), 60)
    assert mine.signature() == other.signature()
    assert mine.signature(exactly=True) != other.signature(exactly=True)
    assert mine.signature(exactly=True) == race(9, (1,), mine.element, 2).signature(exactly=True)
    assert mine.signature() != race(3, (1,), Element("in", (4,)), 1).signature()
    assert mine.signature() != race(3, (1,), Element("total"), 1).signature()
    assert mine.signature() != race(0, (1,), mine.element, 1).signature()  # the line is unknown


def test_of_a_triton_kernel_the_size_of_a_block_is_not_in_the_signature() -> None:
    assert outside(0, 1, 8, 16).signature() == outside(3, 4, 32, 16).signature()
    assert outside(0, 1, 8, 16).signature() != outside(0, 1, 8, -1).signature()
    by, other = Actor(5, "write", (1,)), Actor(6, "write", (0,))
    races = [
        KernelFinding(FindingKind.RACE_OF_PROGRAMS, by, other, Element(name, (at,)), {"count": at})
        for name, at in (("xs[0]", 3), ("xs[1]", 9), ("y", 3))
    ]
    assert races[0].signature() == races[1].signature() != races[2].signature()


def test_the_clause_of_a_kind_is_found_by_how_its_sentence_begins() -> None:
    with pytest.raises(expect.Failure) as caught:
        expect.launched([MASKED], {"warp-level function": "mine"})
    assert caught.value.because == "mine"
    assert caught.value.lines[0] == str(MASKED)
    with pytest.raises(expect.Failure) as caught:
        expect.launched([outside(0, 1, 8, 16), MASKED], {"out of bounds: thread": "mine"})
    assert "its mask switches the others off" in caught.value.because
    assert caught.value.lines[1] == "and 1 more in this launch"


def test_a_position_has_the_axes_that_are_in_use() -> None:
    assert position(7, (8, 1, 1)) == (7,)
    assert position(7, (4, 2, 1)) == (3, 1)
    assert position(7, (2, 2, 2)) == (1, 1, 1)
