"""What `expect` accepts, what it refuses, and the words that a learner reads then.

The texts stand in `golden/*.txt`; `INFRALENS_REWRITE_GOLDEN=1 pytest tests/grader` writes them.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from grader.errors import NotStarted, StudentError, SuiteFault
from grader.ranks import rank_faults
from grader.sandbox.client import Handle, Session, Student
from grader.sandbox.codec import RemoteRecord
from grader.suite import expect, format

from ..conftest import WRONG, MiniKit
from ..learner.test_collection import add_second

WHY = "this must hold"
HANDLE = Handle(None, 1, "Pool")  # type: ignore[arg-type]
NAN, INF = math.nan, math.inf


def refused(call: Callable[[], object]) -> expect.Failure:
    with pytest.raises(expect.Failure) as caught:
        call()
    failure = caught.value
    assert failure.because == WHY
    assert failure.site == (__file__, failure.site[1])
    assert all(len(line) < 400 and "\n" not in line for line in failure.lines)
    return failure


# -- right and wrong ------------------------------------------------------------------------------

EQUAL: list[tuple[Any, Any]] = [
    (3, 3),
    (3.0, 3),
    (3, 3.0),
    (2**80, 2**80),
    ("a", "a"),
    (None, None),
    (True, True),
    ([1, 2.0], [1, 2]),
    ((1, (2,)), (1, (2,))),
    ({"a": [1]}, {"a": [1]}),
    (frozenset({1}), {1}),
    (b"x", b"x"),
    (INF, INF),
    (np.array([1, 2]), np.array([1.0, 2.0])),
    (torch.tensor([1, 2]), np.array([1, 2])),
    (torch.ones(2, dtype=torch.bfloat16), torch.ones(2)),
    (torch.ones(2).to(torch.float8_e5m2), torch.ones(2)),
    ([np.zeros(2)], [np.zeros(2)]),
    (RemoteRecord("A", {"x": np.zeros(2)}), RemoteRecord("A", {"x": np.zeros(2)})),
    (np.zeros((0, 3)), np.zeros((0, 3))),
    (np.zeros(2), [0.0, 0.0]),
]
UNEQUAL: list[tuple[Any, Any]] = [
    (4, 3),
    (True, 1),
    (1, True),
    (0, False),
    (0, None),
    (None, 0),
    (None, []),
    (3.5, 3),
    ("3", 3),
    (NAN, 3.0),
    (NAN, NAN),
    ([1], (1,)),
    ([1, 2], [1]),
    ([True], [1]),
    ({"a": 1}, {"a": 1, "b": 2}),
    ({"a": 1, "b": 2}, {"a": 1}),
    (HANDLE, 3),
    (HANDLE, "Pool"),
    ([HANDLE], [3]),
    (np.zeros(2), np.zeros(3)),
    (np.zeros((2, 1)), np.zeros(2)),
    (np.array([NAN]), np.array([NAN])),
    ([0.0, 0.0], np.zeros(2)),
    (RemoteRecord("A", {"x": 1}), RemoteRecord("A", {"x": 2})),
    (RemoteRecord("A", {"x": 1}), RemoteRecord("B", {"x": 1})),
]


@pytest.mark.parametrize(("got", "want"), EQUAL, ids=repr)
def test_equal_accepts(got: Any, want: Any) -> None:
    expect.equal(got, want, WHY)


@pytest.mark.parametrize(("got", "want"), UNEQUAL, ids=repr)
def test_equal_refuses(got: Any, want: Any) -> None:
    refused(lambda: expect.equal(got, want, WHY))


CLOSE: list[tuple[Any, Any, dict[str, Any]]] = [
    (1.0 + 2e-16, 1.0, {}),
    (1, 1.0, {}),
    (0.1 + 0.2, 0.3, {}),
    (INF, INF, {}),
    ([1.0, 2.0], (1.0, 2.0), {}),
    (np.array([1.0, INF]), np.array([1.0, INF]), {}),
    (np.array([NAN]), np.array([NAN]), {}),
    (1.001, 1.0, {"dtype": "float16"}),
    (torch.tensor(1.0), 1.0, {}),
    (torch.ones(3, dtype=torch.bfloat16) * 1.01, np.ones(3), {"dtype": "bfloat16"}),
    (np.array([1j + 1e-17]), np.array([1j]), {}),
    (np.array([5], dtype=np.uint8), np.array([6], dtype=np.uint8), {"floor": 2.0}),
    (5e-324, 0.0, {}),
    (np.zeros((0, 2)), np.zeros((0, 2)), {}),
    (9.0, 10.0, {"floor": 1.0}),
    (np.array([2**63 - 1]), np.array([2**63 - 1]), {}),
]
FAR: list[tuple[Any, Any, dict[str, Any]]] = [
    (1.0 + 1e-9, 1.0, {}),
    (NAN, 1.0, {}),
    (INF, 1.0, {}),
    (-INF, INF, {}),
    (1.0, INF, {}),
    (1.0, NAN, {}),
    (None, 1.0, {}),
    (True, 1.0, {}),
    ("1", 1.0, {}),
    (HANDLE, 1.0, {}),
    (None, [1.0], {}),
    (1.0, [1.0], {}),
    ([1.0], [1.0, 2.0], {}),
    (np.ones(2), [1.0, 1.0], {}),
    ([1.0, 1.0], np.ones(2), {}),
    (np.ones((2, 1)), np.ones(2), {}),
    (np.array([True]), np.array([1.0]), {}),
    (np.array([1.0, NAN]), np.ones(2), {}),
    (np.array([1j]), np.array([1.0]), {}),
    (np.array([2j]), np.array([1j]), {}),
    (np.array([0], dtype=np.uint8), np.array([3], dtype=np.uint8), {"floor": 2.0}),
    (np.array([-(2**63)]), np.array([2**63 - 1]), {"floor": 5.0}),
    (1e-20, 0.0, {"floor": 0.0}),
]


@pytest.mark.parametrize(("got", "want", "options"), CLOSE, ids=repr)
def test_close_accepts(got: Any, want: Any, options: dict[str, Any]) -> None:
    expect.close(got, want, WHY, **options)


@pytest.mark.parametrize(("got", "want", "options"), FAR, ids=repr)
def test_close_refuses(got: Any, want: Any, options: dict[str, Any]) -> None:
    refused(lambda: expect.close(got, want, WHY, **options))


def test_tolerance_follows_the_error_model_and_is_never_zero() -> None:
    failure = refused(lambda: expect.close(1.5, 1.0, WHY, n=10, c=2.0, dtype="float32", scale=3.0))
    assert failure.tolerance == pytest.approx(2.0 * 10 * 2.0**-23 * 3.0)
    failure = refused(lambda: expect.close(np.ones(2), np.zeros(2), WHY, floor=0.0))
    assert failure.tolerance > 0
    failure = refused(lambda: expect.close(5.0, 1.0, WHY, floor=2.0))
    assert failure.tolerance == 2.0
    with pytest.raises(SuiteFault, match="dtype is 'float31'"):
        expect.close(1.0, 1.0, WHY, dtype="float31")


ROW = {"id": "kv_bytes", "expected": 131_072, "unit": "bytes", "source": "a paper, table 2"}


def test_published() -> None:
    expect.published(131_072, ROW)
    expect.published([1.0, 2.02], {**ROW, "expected": [1.0, 2.0], "tol_rel": 0.02})
    for got in (131_073, None, NAN, True, "131072", [131_072, 1], HANDLE):
        with pytest.raises(expect.Failure):
            expect.published(got, ROW)


def test_bounds() -> None:
    expect.at_most(3, 3, WHY)
    expect.at_least(3, 3, WHY)
    expect.within(3.0, 2, 4, WHY)
    for call in (
        lambda: expect.at_most(4, 3, WHY),
        lambda: expect.at_least(2, 3, WHY),
        lambda: expect.within(5, 2, 4, WHY),
        lambda: expect.within(NAN, 2, 4, WHY),
        lambda: expect.at_most(NAN, 3, WHY),
        lambda: expect.at_least(None, 3, WHY),
        lambda: expect.at_most(True, 3, WHY),
        lambda: expect.at_most(HANDLE, 3, WHY),
    ):
        refused(call)


def test_bytes_and_the_slips_of_units() -> None:
    expect.bytes(100, 100, WHY)
    expect.bytes(101.0, 100, WHY, rel=0.02)
    for got in (101, None, NAN, INF, True, "100"):
        refused(lambda got=got: expect.bytes(got, 100, WHY))
    slip = refused(lambda: expect.bytes(8 * 10**9, 8 * 2**30, WHY))
    assert "GiB (2**30) and GB (10**9)" in slip.lines[-1]
    slip = refused(lambda: expect.bytes(8, 8 * 2**30, WHY))
    assert "bytes and GiB are mixed" in slip.lines[-1]
    expect.bytes(150 * 10041.6 * (1 + 2**-52), 1_506_240, WHY)
    refused(lambda: expect.bytes(1_506_240 * (1 + 1e-13), 1_506_240, WHY))
    refused(lambda: expect.bytes(2**60 + 1, 2**60, WHY))
    other = refused(lambda: expect.bytes(2 * 2**30, 8 * 2**30, WHY))
    assert len(other.lines) == 2


def test_true_and_shape() -> None:
    expect.true(1 < 2, WHY)
    expect.shape(np.zeros((2, 3)), (2, 3), WHY)
    expect.shape(torch.zeros(2), (2,), WHY)
    assert refused(lambda: expect.true(False, WHY, observed=[3])).lines[-1] == "found: [3]"
    for got in (np.zeros(6), None, [[0] * 3] * 2, 1.0, HANDLE):
        refused(lambda got=got: expect.shape(got, (2, 3), WHY))


def test_a_sequence() -> None:
    assert expect.sequence([1, 2], WHY) == [1, 2]
    assert expect.sequence((1, 2), WHY, "int") == [1, 2]
    assert expect.sequence((), WHY, "Point") == []
    lazy = refused(lambda: expect.sequence(map(str, []), WHY, "Point", "points"))
    assert lazy.lines == [
        "points: got a map, expected a list of Point",
        "a map gives its items one by one; list(...) makes a list of it",
    ]
    assert lazy.observed == "map"
    lost = refused(lambda: expect.sequence(None, WHY, "Point"))
    assert lost.lines == [
        "got None, expected a list of Point (as a function without `return` gives)"
    ]
    item = refused(lambda: expect.sequence([1, {}], WHY, "int", "codes"))
    assert item.lines == ["codes[1]: got a dict, expected an int"]
    assert refused(lambda: expect.sequence("ab", WHY)).observed == "str"


def test_dtype_and_arrays() -> None:
    expect.dtype(torch.zeros(1, dtype=torch.bfloat16), "bfloat16", WHY)
    expect.dtype(np.zeros(1), ("float32", "float64"), WHY)
    wrong = refused(lambda: expect.dtype(torch.zeros(1), ("float64", "bfloat16"), WHY, "m"))
    assert wrong.lines == ["m: got dtype float32, expected float64 or bfloat16"]
    assert wrong.observed == "float32"
    refused(lambda: expect.dtype(1.0, "float64", WHY))
    refused(lambda: expect.dtype(None, "float64", WHY))
    pair = (np.zeros(2), torch.zeros(3))
    assert expect.arrays(pair, "ml") is pair
    assert "without `return`" in refused(lambda: expect.arrays(None, "ml", WHY)).lines[0]
    few = refused(lambda: expect.arrays(pair, ("m", "l", "o"), WHY))
    assert few.lines == ["got tuple of 2, expected a tuple of 3 tensors, (m, l, o)"]
    item = refused(lambda: expect.arrays((np.zeros(2), 1.0), ("m", "l"), WHY))
    assert item.lines == ["l: got 1 (a float), expected a tensor"]


def test_raises() -> None:
    with expect.raises(ValueError, WHY):
        raise StudentError("UnicodeError", "x", bases=("UnicodeError", "ValueError", "Exception"))

    def nothing() -> None:
        with expect.raises(ValueError, WHY):
            pass

    def another() -> None:
        with expect.raises(ValueError, WHY):
            raise StudentError("KeyError", "'x'", bases=("KeyError", "LookupError"))

    assert refused(nothing).lines == ["returned normally, expected ValueError"]
    assert refused(another).observed == "KeyError"
    with pytest.raises(NotStarted), expect.raises(Exception, WHY):
        raise NotStarted("lab90.x")


def test_raises_with_a_text_that_names() -> None:
    error = StudentError("ValueError", "no 'x'; there are a, b", bases=("ValueError",))

    def raised(*names: str) -> None:
        with expect.raises(ValueError, WHY, names=names):
            raise error

    raised("'x'", "a", "b")
    failure = refused(lambda: raised("'x'", "fp32", "b", "bf16"))
    assert failure.lines == [
        "raised ValueError: no 'x'; there are a, b",
        "the text does not say fp32, bf16",
    ]
    assert failure.observed == ["fp32", "bf16"]


def test_short_text_of_huge_values_is_cheap_and_short() -> None:
    value: Any = 7
    for _ in range(30):
        value = [value] * 3 if isinstance(value, int) else [value] * 2
    assert len(format.short(value)) <= format.MAX_TEXT
    assert len(format.short({str(i): "x" * 1000 for i in range(1000)})) <= format.MAX_TEXT
    assert format.short("x" * 10**6).endswith(" ...")
    assert format.short([0.1] * 100, 60) == "[" + "0.1, " * 10 + "...]"


LINKS = {"sent_to": [{1: 2_068, 2: 301_900}, {0: 99, 2: 100}, None]}


def test_what_ranks_sent_to_each_other() -> None:
    limits = {(0, 1): (2_068, 2_068), (1, 0): (0, 99), (2, 0): (5, 5)}
    expect.sent_to(LINKS, limits, WHY)  # the system does not report rank 2
    low = refused(lambda: expect.sent_to(LINKS, limits | {(1, 2): (116, 200)}, WHY))
    assert (low.kind, low.observed, low.gap) == ("bound", 100, 16)
    high = refused(lambda: expect.sent_to(LINKS, {(1, 2): (0, 97)}, WHY))
    assert (high.observed, high.gap, high.tolerance) == (100, 3, 3)


# -- golden texts ---------------------------------------------------------------------------------

MESSAGES: dict[str, Callable[[], object]] = {
    "scalar": lambda: expect.equal(3, 4, WHY, what="layers"),
    "scalar with unit": lambda: expect.equal(3_000, 4_000, WHY, unit="parameters"),
    "floats that look alike": lambda: expect.equal(1.00000001, 1.0, WHY),
    "float off": lambda: expect.close(1.1, 1.0, WHY, what="loss"),
    "float hardly off": lambda: expect.close(1.00000001, 1.0, WHY, unit="us"),
    "array": lambda: expect.close(np.array([[1.0, 2.5]]), np.array([[1.0, 2.0]]), WHY, what="out"),
    "array of integers": lambda: expect.equal(np.array([1, 2, 3]), np.array([1, 5, 6]), WHY),
    "second of two": lambda: expect.close((1.0, 2.5), (1.0, 2.0), WHY),
    "shape": lambda: expect.close(np.zeros((2, 3)), np.zeros((3, 2)), WHY, what="scores"),
    "one number wanted": lambda: expect.close(np.zeros(1), 0.0, WHY),
    "nan": lambda: expect.close(NAN, 1.0, WHY),
    "nan in an array": lambda: expect.close(np.array([1.0, NAN, INF]), np.ones(3), WHY),
    "nan where an int is": lambda: expect.equal(NAN, 3, WHY),
    "missing return": lambda: expect.close(None, 1.0, WHY),
    "missing return of an array": lambda: expect.close(None, np.zeros((2, 3)), WHY),
    "missing return of a list": lambda: expect.close(None, [1.0, 2.0], WHY),
    "bool for an int": lambda: expect.equal(True, 1, WHY),
    "text for a number": lambda: expect.close("3.0", 3.0, WHY),
    "text for an int": lambda: expect.equal("3", 3, WHY),
    "object for a number": lambda: expect.equal(HANDLE, 3, WHY),
    "array for a list": lambda: expect.close(np.ones(2), [1.0, 1.0], WHY),
    "list for an array": lambda: expect.close([1.0, 1.0], np.ones(2), WHY),
    "list for a tuple": lambda: expect.equal([1, 2], (1, 2), WHY),
    "too few items": lambda: expect.equal([1, 2], [1, 2, 3], WHY),
    "a wrong item": lambda: expect.equal([1, 2, 4], [1, 2, 3], WHY),
    "a missing key": lambda: expect.equal({"q": 1}, {"q": 1, "k": 2}, WHY),
    "a wrong key": lambda: expect.equal({"q": 1, "k": 3}, {"q": 1, "k": 2}, WHY),
    "a wrong field": lambda: expect.equal(
        RemoteRecord("Ledger", {"weights": 1, "grads": 3}),
        RemoteRecord("Ledger", {"weights": 1, "grads": 2}),
        WHY,
    ),
    "bytes": lambda: expect.bytes(13_476_839_424, 14_551_089_152, WHY, what="weights"),
    "bytes in the wrong unit": lambda: expect.bytes(14.0, 14 * 10**9, WHY),
    "published": lambda: expect.published(131_073, ROW),
    "published with a reason": lambda: expect.published(
        15.0, {**ROW, "unit": "GB", "expected": 16.1, "tol_rel": 0.01}, WHY
    ),
    "at most": lambda: expect.at_most(
        10_000_000, 1_048_576, WHY, what="saved for backward", unit="bytes"
    ),
    "at least": lambda: expect.at_least(0.5, 0.9, WHY),
    "within": lambda: expect.within(5, 1, 4, WHY, unit="launches"),
    "sent by one rank to another": lambda: expect.sent_to(LINKS, {(0, 1): (100, 200)}, WHY),
    "sent where nothing goes": lambda: expect.sent_to(LINKS, {(0, 2): (0, 4_096)}, WHY),
    "property": lambda: expect.true(False, WHY, observed={"rank 0": 3, "rank 1": 5}),
    "property without a value": lambda: expect.true(False, WHY),
}


@pytest.mark.parametrize(
    ("name", "args", "shown"),
    [
        ("watched", ("f", ([1, 2], 3), {"block": 4}, 0), "f([1, 2], 3, block=4)"),
        ("unmodified", ("f", (1.5,)), "f(1.5)"),
        ("many", ("f", [(1, 2)]), "f(1, 2)"),
        ("many", ("f", [(1, 2), (3, 4)]), "f (2 calls)"),
        ("ledger", ("mlp", "adamw", 1), "mean, run by a test on 'mlp', 'adamw', 1"),
        ("launch", ("mean", [3, 2], [32, 8]), "mean, run by a test on [3, 2], [32, 8]"),
        ("launch", ("k", [3, 2], [32, 8]), "mean, run by a test on 'k', [3, 2], [32, 8]"),
        ("rows", ("two words", (1,)), "mean, run by a test on 'two words', (1)"),
        ("refuses", (), "mean, run by a test"),
        ("launches", ([((1, 2), {"block": 4}, 7)],), "mean(1, 2, block=4)"),
        ("launches", ([((1,), {}, 7), ((2,), {}, 8)],), "mean (2 calls)"),
    ],
)
def test_a_probe_is_shown_as_its_call_or_as_what_its_test_is_about(
    name: str, args: tuple[Any, ...], shown: str
) -> None:
    backend: Any = SimpleNamespace(request=lambda *_: None)
    line = Session(backend, {}, {}, "lab90.mean")
    getattr(Student(line).probe, name)(*args)
    assert line.last is not None
    assert format.call(line.last) == shown


def test_what_is_given_by_name_is_shown_with_its_name() -> None:
    backend: Any = SimpleNamespace(request=lambda *_: None)
    line = Session(backend, {}, {}, "lab90.mean")
    Student(line).probe.spread([1, 2], members=[1, 3])
    assert line.last is not None
    assert format.call(line.last) == "mean, run by a test on [1, 2], members=[1, 3]"


def test_a_path_is_shown_by_its_name_and_a_whole_float_like_an_int() -> None:
    assert format.short(Path("/tmp/gone-tomorrow/trace.json")) == "Path('trace.json')"
    assert format.pair(1043.0, 1025) == ("1,043", "1,025")
    assert format.short([((1.5, "x"), {"a": 1})], 60) == "[((1.5, 'x'), {'a': 1})]"


def test_messages(golden: Callable[[str, str], None]) -> None:
    parts = []
    for name, call in MESSAGES.items():
        with pytest.raises(expect.Failure) as caught:
            call()
        text = "\n".join(f"    {line}" for line in caught.value.lines)
        parts.append(f"-- {name}\n{text}\n    (why: {caught.value.because})\n")
    golden("messages", "\n".join(parts))


PROBLEMS = {
    "wrong_value": WRONG,
    "raised": "def running_mean(values):\n    return sum(values) / (len(values) - 2)\n",
    "timed_out": "def running_mean(values):\n    while True:\n        pass\n",
    "missing_name": "def mean(values):\n    return values\n",
    "missing_return": "def running_mean(values):\n    sum(values)\n",
    "import_failure": "from no_such_package import mean\n",
    "not_started": None,
    "nearly": "def running_mean(values):\n"
    "    return [sum(values[: i + 1]) / (i + 1) for i in range(len(values))] or None\n",
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_whole_failing_run(kit: MiniKit, golden: Callable[[str, str], None], name: str) -> None:
    kit.manifest("call_seconds = 5", "call_seconds = 0.2")
    if (text := PROBLEMS[name]) is not None:
        kit.write(text)
    golden(f"run_{name}", normalised(kit.pytest("exercises/lab90").out))


def test_a_whole_run_of_two_files(kit: MiniKit, golden: Callable[[str, str], None]) -> None:
    add_second(kit, "notes.md", "the spread\n", 'student.read("notes.md")')
    kit.manifest('title = "What a mean hides"', 'title = "What a mean hides"  # second')
    (kit.exercise / "notes.md").write_text("# Notes\n<!-- NOT STARTED lab90.notes -->\n")
    shutil.copy(kit.solution / "running_mean.py", kit.main)
    golden("run_two_files", normalised(kit.pytest("exercises/lab90").out))


def normalised(text: str) -> str:
    """Without what differs from machine to machine: versions, folders, hashes, times."""
    text = text[text.index("self-check of") :]
    text = re.sub(r"sha256 [0-9a-f]{64}", "sha256 <hash>", text)
    text = re.sub(r"^(rootdir|configfile|plugins):.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r" in \d+\.\d+s", " in <time>", text)
    text = re.sub(r"^(FAILED \S+) - .*$", r"\1", text, flags=re.MULTILINE)
    return re.sub(r"(=+|-+|_+)( .* )(=+|-+|_+)$", r"==\2==", text, flags=re.MULTILINE)


# -- what another failure is compared with --------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        ("row 3: 1.25e-3 and 7", "row 18: 4 and 12,000", "column 3: 1 and 7"),
        (1000, 1100, 2500),
        (0.75, 0.8, -0.75),
        ([1.0, 2.0, 1.1], [1.9, 1.0], [16.0]),
        ({"rank": 1, "b": None}, {"rank": 1, "b": None}, {"rank": 1}),
        (np.zeros((2, 3)), np.ones((5, 7)), np.zeros(6)),
        (True, True, False),
        (math.nan, math.nan, 1.0),
    ],
)
def test_a_property_is_compared_without_rows_and_digits(one: Any, same: Any, other: Any) -> None:
    def seen(value: Any) -> Any:
        return refused(lambda: expect.true(False, WHY, observed=value)).observed

    assert seen(one) == seen(same) != seen(other)


def test_a_value_of_the_wrong_kind_is_compared_by_its_kind() -> None:
    def seen(value: Any) -> Any:
        return refused(lambda: expect.equal(value, 3, WHY)).observed

    assert seen("row 3") == seen("row 18") != seen(None)
    assert seen(3.5) == 3.5


def test_ranks_that_do_not_return_are_compared_without_the_rank() -> None:
    def seen(rank: int, problem: str) -> Any:
        fault = rank_faults.plain(rank_faults.NoResult(rank, "raised", problem, "ddp.py, line 7"))
        return refused(lambda: expect.returned({"fault": fault, "ranks": []}, WHY)).observed

    assert seen(0, "KeyError: 3") == seen(1, "KeyError: 12") != seen(0, "ValueError: 3")
