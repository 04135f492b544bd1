"""A class of sixty with six planted copies: all are found, and the page says what is expected."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("copydetect")

from grader.classroom.similarity import boilerplate, fingerprints, source_text, tokens
from grader.classroom.similarity.comparison import Comparison, compare
from grader.classroom.similarity.fingerprint_reader import FingerprintReader, Prints
from grader.classroom.similarity.similarity_page import similarity_page
from grader.lab.manifest import Lab, load_lab

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "benchmarks"))
from invented_class import Class, Copy, invented_class  # noqa: E402


class DirectReader(FingerprintReader):
    """Tokenizes in this process: the texts here are ours."""

    def __init__(self) -> None:
        self.tier = "local"

    def read(self, files: object) -> Prints:
        assert isinstance(files, dict)
        found: Prints = {}
        for name, data in sorted(files.items()):
            lexer = source_text.lexer_of(name)
            try:
                answer = tokens.answer(data, lexer)
                found[name] = fingerprints.checked(name, lexer, data, answer)
            except source_text.NotCompared as error:
                found[name] = error
        return found


@pytest.fixture(scope="module")
def lab() -> Lab:
    return load_lab(ROOT, "lab07")


@pytest.fixture(scope="module")
def invented(lab: Lab) -> tuple[Class, list[Copy]]:
    return invented_class(lab, 60, 1)


@pytest.fixture(scope="module")
def found(lab: Lab, invented: tuple[Class, list[Copy]]) -> Comparison:
    return compare(lab, invented[0], {}, DirectReader())


def places(found: Comparison, planted: list[Copy]) -> list[int]:
    ends = [{author.student for author in found.ends(pair)} for pair in found.pairs]
    return [ends.index({copy.original, copy.copy}) for copy in planted]


def test_every_planted_copy_stands_out(
    found: Comparison, invented: tuple[Class, list[Copy]]
) -> None:
    where = places(found, invented[1])
    assert all(found.pairs[place].stands_out for place in where)
    assert max(where) < 20


def test_few_honest_pairs_stand_out(found: Comparison, invented: tuple[Class, list[Copy]]) -> None:
    honest = sum(pair.stands_out for pair in found.pairs) - len(invented[1])
    assert honest <= len(found.pairs) // 100


def test_a_renamed_copy_is_shared_whole_in_long_passages(
    found: Comparison, invented: tuple[Class, list[Copy]]
) -> None:
    place = places(found, invented[1])[0]
    pair = found.pairs[place]
    assert min(pair.whole.left, pair.whole.right) > 0.95
    assert max(one.lines for one in found.passages(pair)) > 50


def test_the_page_is_the_same_every_time_and_says_what_it_is(
    lab: Lab, invented: tuple[Class, list[Copy]], found: Comparison
) -> None:
    shuffled = dict(reversed(invented[0].items()))
    page = similarity_page(found)
    assert similarity_page(compare(lab, shuffled, {}, DirectReader())) == page
    assert "This is a report for a person, never a mark." in page
    assert "of 1,770 pairs are as alike as this or more." in page
    assert len(page.encode()) < 4 * 2**20


def test_an_earlier_year_is_compared_with_this_one_only(
    lab: Lab, invented: tuple[Class, list[Copy]]
) -> None:
    everyone = sorted(invented[0].items())
    original, copy = invented[1][0].original, invented[1][0].copy
    now = {name: files for name, files in everyone[:10] if name != original}
    now[copy] = invented[0][copy]
    before = {name: files for name, files in everyone[10:20] if name not in now}
    before[original] = invented[0][original]
    found = compare(lab, now, {"2025": before}, DirectReader())
    assert len(found.pairs) == len(now) * (len(now) - 1) // 2 + len(now) * len(before)
    first = found.pairs[0]
    assert [author.name for author in found.ends(first)] == [copy, f"{original} (2025)"]
    assert all(not found.ends(pair)[0].folder for pair in found.pairs)
    assert f"{original} (2025)" in similarity_page(found)


def test_many_who_did_nothing_make_nobody_stand_out(
    lab: Lab, invented: tuple[Class, list[Copy]]
) -> None:
    honest = {name for one in invented[1] for name in (one.original, one.copy)}
    some = {name: files for name, files in sorted(invented[0].items())[:16] if name not in honest}
    skeleton = {name: (lab.exercise / name).read_bytes() for name in lab.edit}
    idle = {f"idle{number:02}": skeleton for number in range(40)}
    found = compare(lab, some | idle, {}, DirectReader())
    assert len(found.authors) == len(some)
    assert not any(pair.stands_out for pair in found.pairs)
    assert len(found.left_out) == 40


def test_a_few_students_are_ordered_and_not_marked(
    lab: Lab, invented: tuple[Class, list[Copy]]
) -> None:
    copy = invented[1][0]
    others = [name for name in sorted(invented[0]) if name not in (copy.original, copy.copy)][:2]
    few = {name: invented[0][name] for name in (copy.original, copy.copy, *others)}
    found = compare(lab, few, {}, DirectReader())
    assert {author.student for author in found.ends(found.pairs[0])} == {copy.original, copy.copy}
    assert all(pair.z is None for pair in found.pairs)
    assert "no pair is marked" in similarity_page(found)


def test_the_kit_s_own_files_are_boilerplate(lab: Lab) -> None:
    paths = boilerplate.kit_files(lab)
    parts = {part for path in paths for part in path.parts}
    assert {"exercises", "solutions", "variants", "pictures.py", "recursion"} <= parts
