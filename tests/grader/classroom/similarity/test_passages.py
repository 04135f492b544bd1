"""Fingerprints, scores and passages of texts whose answer is known."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("copydetect")

from grader.classroom.similarity import fingerprints, source_text, tokens
from grader.classroom.similarity.fingerprints import FilePrint, Malformed
from grader.classroom.similarity.pair_scores import NOBODY_ELSES, Language
from grader.classroom.similarity.passages import Passage, passages
from grader.classroom.similarity.source_text import NotCompared

MERGE = """def merge(first, second):
    largest = torch.maximum(first.largest, second.largest)
    one = torch.exp(first.largest - largest)
    other = torch.exp(second.largest - largest)
    total = one * first.total + other * second.total
    return State(largest, total, one * first.part + other * second.part)
"""
WINDOWS = """def windows(rows, width):
    found = []
    for start in range(0, len(rows) - width + 1):
        found.append([row for row in rows[start : start + width] if row is not None])
    while found and not found[-1]:
        found.pop()
    return sorted(found, key=len)
"""
COUNTS = """def counts(names):
    seen = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    if not seen:
        raise ValueError("no names")
    return {name: count / len(names) for name, count in seen.items()}
"""


def printed(text: str, name: str = "a.py") -> FilePrint:
    lexer = source_text.lexer_of(name)
    return fingerprints.checked(name, lexer, text.encode(), tokens.answer(text.encode(), lexer))


def language(texts: list[str], boilerplate: str = "", name: str = "a.py") -> Language:
    prints = [[printed(text, name)] for text in texts]
    known = np.unique(printed(boilerplate, name).hashes) if boilerplate else np.zeros(0, np.int64)
    return Language(source_text.lexer_of(name), prints, len(texts), known)


def lines(passage: Passage) -> tuple[int, int, int, int]:
    """First and last lines on both sides, as an editor counts them."""
    left, right = passage.left, passage.right
    return left.first + 1, left.last + 1, right.first + 1, right.last + 1


def test_a_moved_function_is_found_on_its_lines() -> None:
    found = passages(language([MERGE + WINDOWS, COUNTS + "\n\n\n" + MERGE]), 0, 1)
    assert [lines(one) for one in found] == [(1, 6, 11, 16)]


@pytest.mark.parametrize(
    "above", ["", "\n\n\n", "\ufeff\n", "# one\n# two\n", '"""One.\n\nTwo."""\n']
)
def test_what_stands_above_moves_the_lines_along(above: str) -> None:
    shift = above.count("\n")
    (found,) = passages(language([WINDOWS, above + WINDOWS]), 0, 1)
    assert lines(found) == (1, 7, 1 + shift, 7 + shift)


def test_a_class_s_long_name_shifts_no_line() -> None:
    above = "class ANameThatIsLongerThanAllThatStandsAboveIt:\n    pass\n\n\n"
    (found,) = passages(language([MERGE, above + MERGE]), 0, 1)
    assert lines(found) == (1, 6, 5, 10)


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_of_other_systems_are_line_ends(end: str) -> None:
    (found,) = passages(language([MERGE, COUNTS + MERGE.replace("\n", end)]), 0, 1)
    assert lines(found) == (1, 6, 8, 13)


def test_names_comments_strings_and_layout_do_not_matter() -> None:
    other = (
        MERGE.replace("largest", "peak")
        .replace("first", "a")
        .replace("second", "b")
        .replace("\n    ", "\n    # why\n    ")
        .replace("total = ", "total  =  ")
    )
    (found,) = passages(language([MERGE, other]), 0, 1)
    assert lines(found) == (1, 6, 1, 11)
    held = language([MERGE, other])
    assert held.share(0, held.holds(1)) == 1.0


def test_a_changed_constant_does_not_cut_a_passage() -> None:
    other = WINDOWS.replace("range(0,", "range(17,")
    (found,) = passages(language([WINDOWS, other]), 0, 1)
    assert lines(found) == (1, 7, 1, 7)


def test_a_share_is_of_each_one_s_own_text() -> None:
    held = language([MERGE + WINDOWS, MERGE])
    assert held.share(1, held.holds(0)) == 1.0
    assert 0.3 < held.share(0, held.holds(1)) < 0.6


def test_boilerplate_is_nobody_s() -> None:
    held = language([MERGE + WINDOWS, MERGE + COUNTS], boilerplate=MERGE)
    # What is left begins in it and ends in the next function's first words.
    assert held.share(0, held.holds(1)) < 0.15
    assert all(one.lines <= 2 for one in passages(held, 0, 1))
    assert language([MERGE, MERGE], boilerplate=MERGE).scores()[0, 1] == 0.0


def test_repeated_code_is_not_taken_for_boilerplate() -> None:
    held = language([WINDOWS + WINDOWS, COUNTS], boilerplate=MERGE)
    own = held.files[0][0]
    assert (own.ids == NOBODY_ELSES).all()


def test_what_many_have_weighs_less() -> None:
    rare = language([MERGE, MERGE, *[COUNTS] * 10])
    common = language([MERGE, MERGE, *[MERGE] * 10])
    assert rare.scores()[0, 1] > 50 * common.scores()[0, 1] > 0
    assert np.array_equal(rare.scores(), rare.scores().T)


def test_no_line_stands_in_two_passages() -> None:
    held = language([MERGE + WINDOWS + COUNTS, COUNTS + MERGE + WINDOWS])
    spans = sorted((one.left.first, one.left.last) for one in passages(held, 0, 1))
    assert all(before[1] <= after[0] + 1 for before, after in pairwise(spans))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "kernel.cu",
            "__global__ void add(float* x, int n) {\n  int i = threadIdx.x;\n  x[i] += n;\n}\n",
        ),
        ("config.yaml", "model: a/b\nengine:\n  blocks: 16\n  swap: 0.25\n  batch: [1, 2]\n"),
        ("queries.sql", "SELECT name, sum(dur) FROM kernels WHERE dur > 3 GROUP BY name;\n"),
        ("plan.md", "# Plan\n\nWe keep the weights in four bits because reading them\nis slow.\n"),
        ("run.sh", "nsys profile --trace cuda,nvtx \\\n  --output report python train.py\n"),
    ],
)
def test_other_files_are_compared_too(name: str, text: str) -> None:
    (found,) = passages(language([text, "\n" + text], name=name), 0, 1)
    assert lines(found) == (1, text.count("\n"), 2, 1 + text.count("\n"))


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    assert tokens._same_everywhere("V=V.V(V,V)") == 3931646383520738645


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"x = 1\n\0", "is not text"),
        ("x = 1".encode("utf-16"), "is not text"),
        (b"x" * (source_text.MAX_TEXT_BYTES + 1), "has 131,073 bytes; at most 128 KiB"),
    ],
)
def test_what_is_not_compared_is_a_sentence(data: bytes, reason: str) -> None:
    with pytest.raises(NotCompared) as raised:
        source_text.text_of(data)
    assert reason in raised.value.reason


GOOD: Mapping[str, bytes] = tokens.answer(MERGE.encode(), "python")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"hashes": GOOD["hashes"]},
        {**GOOD, "more": b""},
        {**GOOD, "hashes": GOOD["hashes"][:-8]},
        {**GOOD, "hashes": GOOD["hashes"][:-1]},
        {**GOOD, "lines": GOOD["lines"] + GOOD["lines"]},
        {**GOOD, "lines": b"\xff" * len(GOOD["lines"])},
        {**GOOD, "lines": GOOD["lines"][4:] + b"\0\0\0\0"},
        {**GOOD, "lines": GOOD["lines"][4:] + b"\xff\xff\0\0"},
    ],
)
def test_an_answer_that_does_not_fit_the_text_is_refused(answer: object) -> None:
    with pytest.raises(Malformed):
        fingerprints.checked("a.py", "python", MERGE.encode(), answer)
