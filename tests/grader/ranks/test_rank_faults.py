"""Faults of ranks as data: every kind crosses whole, and nothing else is taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grader.ranks import member, rank_faults
from grader.ranks.rank_faults import Call, Differs, NeverJoined, NoResult, RankFault, Unanswered
from grader.sandbox.purity import Change, ChangeLog, Contract
from grader.suite import expect

REDUCE = Call("all_reduce", (0, 1, 2), "float32", ((4,),), None, "ddp.py, line 7", 2)
RECV = Call("recv", (0, 1, 2), "int64", (), 1, "", 2)
FAULTS: dict[str, RankFault] = {
    "Collective 2 differs: rank 0 calls all_reduce on float32, shape (4,), rank 2 calls recv.": (
        Differs(3, ((0, REDUCE), (2, RECV)))
    ),
    "Rank 1 never joined all_reduce number 2 (float32, shape (4,)), in which ranks 0 and 2 wait: "
    "it was still running other code.": NeverJoined(3, 1, REDUCE, (0, 2), "elsewhere"),
    "Rank 1 never joined all_reduce number 2 of ranks 0, 1, 2 (float32, shape (4,)), in which rank "
    "0 waits: it waits to receive from rank 1.": NeverJoined(4, 1, REDUCE, (0,), RECV),
    "Rank 2 waits to receive from rank 1: nobody sends.": Unanswered(((2, RECV),), ()),
    "Rank 2 waits to receive from rank 1: rank 1 had failed.": (
        Unanswered(((2, RECV),), ((1, "failed"),))
    ),
    "Rank 1: ValueError: no": NoResult(
        1, "raised", "Traceback\nValueError: no\n", "ddp.py, line 7"
    ),
    "Rank 1: Its result cannot cross: no plain data.": NoResult(1, "refused", "no plain data"),
    "Rank 1: Rank 1 exited with status 3 before it returned.": NoResult(1, "exited", status=3),
    "Rank 1: Rank 1 was ended by SIGABRT before it returned.": (
        NoResult(1, "killed", signal="SIGABRT")
    ),
    "Rank 1: Rank 1 closed its connection to the kit.": NoResult(1, "closed"),
    "Rank 1:   (unknown: it left no stack)": NoResult(1, "silent"),
    "Rank 1: Its result cannot be read: no": NoResult(1, "unreadable", "no"),
}


@pytest.mark.parametrize("sentence", FAULTS)
def test_a_fault_crosses_as_plain_data_and_reads_the_same(sentence: str) -> None:
    fault = FAULTS[sentence]
    assert rank_faults.from_plain(json.loads(json.dumps(rank_faults.plain(fault)))) == fault
    assert rank_faults.sentence(fault, places=False) == sentence
    placed = "ddp.py, line 7" if "all_reduce" in sentence or "ValueError" in sentence else ""
    assert rank_faults.place(fault) == placed


@pytest.mark.parametrize(
    "data",
    [
        "all is well",
        [],
        {},
        {"type": "NoResult", "rank": -1, "kind": "closed"},
        {"type": "NoResult", "rank": 1, "kind": "bored"},
        {"type": "Unanswered", "calls": [], "idle": []},
        {"type": "Differs", "world_size": 2, "calls": [[0, ["send"]]]},
    ],
)
def test_anything_else_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        rank_faults.from_plain(data)
    with pytest.raises(ValueError, match=r".+"):
        expect.returned({"fault": data, "ranks": []})


def test_a_suite_shows_the_sentence_and_the_place() -> None:
    fault = rank_faults.plain(NeverJoined(3, 1, REDUCE, (0,), "returned"))
    with pytest.raises(expect.Failure) as caught:
        expect.returned({"fault": fault, "ranks": []})
    text = "\n".join(caught.value.lines)
    assert "the ranks (ddp.py, line 7)" in text
    assert "never joined all_reduce number 2" in text
    assert expect.returned({"fault": None, "ranks": [1, 2]}) == [1, 2]


def test_a_changed_argument_of_a_rank_is_placed_in_its_caller_not_in_the_kit() -> None:
    log = ChangeLog(Contract())
    log.found, log.process = [Change("average", "x", "changed", "x[0] was 1, is 2 now")], -1
    with pytest.raises(Exception, match="changed its argument") as caught:
        log.raise_in_a_rank()
    fault = member._raised(1, caught.value)
    assert fault.place.startswith("test_rank_faults.py, line ")
    assert "purity" not in fault.text
    assert fault.text.endswith("`average` changed its argument `x`: x[0] was 1, is 2 now\n")


def test_an_error_in_the_kit_keeps_its_place() -> None:
    with pytest.raises(TypeError) as caught:
        ChangeLog(Contract()).raise_in_a_rank(1)  # type: ignore[call-arg]
    assert member._raised(1, caught.value).place.startswith("test_rank_faults.py")
    with pytest.raises(ValueError, match="got `str`") as inside:
        rank_faults.from_plain("all is well")
    assert member._raised(1, inside.value).place.startswith("rank_faults.py")
