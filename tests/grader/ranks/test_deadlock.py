"""Who waits for whom: each sentence, and what a rank can write into its notes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grader import ranks


def _calls(text: str) -> Callable[..., None]:
    """A function of a rank, its body in one line."""
    names: dict[str, Any] = {}
    lines = f"import torch, torch.distributed as dist\ndef fn(r, n):\n    {text}\n"
    exec(compile(lines, "main_file.py", "exec"), names)
    return names["fn"]  # type: ignore[no-any-return]


_DIFFER = {
    "dist.all_reduce(torch.ones(1 + r))": (
        "rank 0 calls all_reduce on float32, shape (1,) (main_file.py, line 3), "
        "rank 1 calls all_reduce on float32, shape (2,) (main_file.py, line 3)"
    ),
    "dist.broadcast(torch.ones(2).to([torch.float32, torch.int64][r]), 0)": (
        "rank 0 calls broadcast on float32, shape (2,) (main_file.py, line 3), "
        "rank 1 calls broadcast on int64, shape (2,) (main_file.py, line 3)"
    ),
    "dist.all_reduce(torch.ones(3)) if r else dist.barrier()": (
        "rank 0 calls barrier (main_file.py, line 3), "
        "rank 1 calls all_reduce on float32, shape (3,) (main_file.py, line 3)"
    ),
}


@pytest.mark.parametrize("text", _DIFFER)
def test_mismatched_collectives_are_explained(text: str) -> None:
    with pytest.raises(ranks.RanksError, match="mismatch between collectives") as caught:
        ranks.run(_calls(text), 2, timeout_s=8)
    assert caught.value.sentences == [f"Collective 1 differs: {_DIFFER[text]}."]
    assert caught.value.sentences[0] in str(caught.value)


def test_a_mismatch_that_ends_the_process_is_explained() -> None:
    text = "dist.barrier(); dist.all_reduce(torch.ones(100 if r else 10_000))"
    with pytest.raises(ranks.RanksError) as caught:
        ranks.run(_calls(text), 2, timeout_s=3, checked=False)
    (sentence,) = caught.value.sentences
    assert sentence.startswith("Collective 2 differs: rank 0 calls all_reduce on float32, shape (1")


_WAITS = {
    "dist.barrier(); r == 1 or dist.all_reduce(torch.ones(4))": (
        "Rank 1 never joined all_reduce number 2 (float32, shape (4,)), in which rank 0 waits"
        " (main_file.py, line 3): it had returned."
    ),
    "dist.recv(torch.ones(4), 1 - r)": (
        "Rank 0 waits to receive float32, shape (4,) from rank 1 (main_file.py, line 3); rank 1"
        " waits to receive float32, shape (4,) from rank 0 (main_file.py, line 3): nobody sends."
    ),
    "dist.recv(torch.ones(4), 0) if r else dist.all_reduce(torch.ones(4))": (
        "Rank 1 never joined all_reduce number 1 (float32, shape (4,)), in which rank 0 waits"
        " (main_file.py, line 3): it waits to receive float32, shape (4,) from rank 0"
        " (main_file.py, line 3)."
    ),
    "r == 1 or dist.recv(torch.ones(4), 1)": (
        "Rank 0 waits to receive float32, shape (4,) from rank 1 (main_file.py, line 3):"
        " rank 1 had returned."
    ),
}


@pytest.mark.parametrize("text", _WAITS)
@pytest.mark.parametrize("checked", [True, False])
def test_who_waits_for_whom_is_said(text: str, checked: bool) -> None:
    with pytest.raises(ranks.RanksError) as caught:
        ranks.run(_calls(text), 2, timeout_s=1.0, checked=checked)
    assert caught.value.sentences == [_WAITS[text]]
    assert caught.value.texts  # the tracebacks stay


def test_a_group_that_not_all_of_its_ranks_join_is_named() -> None:
    text = "g = dist.new_group([0, 2]); r == 0 and dist.all_reduce(torch.ones(4), group=g)"
    with pytest.raises(ranks.RanksError) as caught:
        ranks.run(_calls(text), 3, timeout_s=1.0)
    assert caught.value.sentences[0].startswith(
        "Rank 2 never joined all_reduce number 1 of ranks 0, 2 (float32, shape (4,)), in which"
        " rank 0 waits"
    )


@pytest.mark.parametrize("junk", ["[", "[]", '["issued"]', '["done", 5]', '["issued", 0, 1, 2]'])
def test_what_a_rank_writes_into_its_notes_is_only_read(
    junk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other runs of ranks may be under way, or have left their folders, where these are by default.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def lies(rank: int, world_size: int) -> None:
        (notes,) = tmp_path.glob(f"ranks-*/calls-{rank}")
        notes.write_text(junk)
        raise ValueError("first")

    with pytest.raises(ranks.RanksError, match="first") as caught:
        ranks.run(lies, 1)
    assert caught.value.sentences == []
