"""The reader of lab 09's shell scripts: it runs nothing, ends soon, and refuses by name."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

import pytest

from grader.lab.manifest import load_lab
from grader.suite.model import load_suite

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def profilers() -> Any:
    suite = load_suite(load_lab(ROOT, "lab09"))
    return importlib.import_module(f"{suite.package}.profilers")


@pytest.fixture(scope="module")
def unreadable(profilers: Any) -> Any:
    return profilers.shell.Unreadable


@pytest.mark.parametrize(
    "text",
    [
        "for a in 1 2 3 4 5 6 7 8 9; do " * 9 + ":;" + " done;" * 9,
        "A=xxxxxxxxxx\n" + "A=$A$A\n" * 60,
        "( " * 5000 + ")" * 5000,
        "x" * 30_000,
        "$(rm -rf /)",
        "f() { nsys profile x; }",
        "python - <<EOF\nEOF",
        "torchrun --nproc-per-node=99999 x",
        "nsys profile 'python train.py",
        "nsys profile \\ \n  python train.py",
    ],
)
def test_what_is_not_read_is_refused_at_once(profilers: Any, unreadable: Any, text: str) -> None:
    started = time.monotonic()
    with pytest.raises(unreadable) as caught:
        profilers.read(text)
    assert time.monotonic() - started < 5
    assert len(caught.value.text) < 300


@pytest.mark.parametrize("expression", ["(a+)+$", "(a|aa)*b", ".*.*.*.*.*x", "x" * 5000])
def test_no_expression_takes_for_ever(profilers: Any, expression: str) -> None:
    script = profilers.read(f"ncu -k 'regex:{expression}' -s 60 -c 5 python train.py")
    assert [fault.key for fault in profilers.few_launches(script)] == ["involved regex"]


def test_nothing_is_started(profilers: Any, tmp_path: Path) -> None:
    marker = tmp_path / "started"
    profilers.read(
        f"touch {marker}; python -c 'open(\"{marker}\", \"w\")'; bash -c 'touch {marker}'"
    )
    assert not marker.exists()


def test_lines_are_those_of_the_file(profilers: Any) -> None:
    text = "# one\n\nnsys profile \\\n  --tracer=cuda \\\n  -o a \\\n  python train.py\n"
    faults = list(profilers.options(profilers.read(text)))
    assert [(fault.line, fault.key) for fault in faults] == [(4, "unknown option")]
    assert "the nearest is `--trace`" in faults[0].text


@pytest.mark.parametrize("rank", range(8))
def test_a_condition_is_decided_for_each_rank(profilers: Any, rank: int) -> None:
    shell = profilers.shell
    inner = (
        f'if [ "$RANK" -eq {rank} ] && [[ $LOCAL_RANK == {rank} ]]; then nsys x; '
        "elif false; then a; else case $RANK in 0|1) low ;; *) high ;; esac; fi"
    )
    job = shell.starts(
        shell.parse(f"torchrun --nproc-per-node=8 --no-python bash -c '{inner}'"), {}
    )
    found = [(number, start.program) for number, start in shell.ranks(job[0])]
    others = {0: "low", 1: "low"}
    want = [(n, "nsys" if n == rank else others.get(n, "high")) for n in range(8)]
    assert found == want


def test_every_option_of_the_table_is_named_once(profilers: Any) -> None:
    table = profilers.TABLE
    for rows in (*table["nsys"].values(), table["ncu"]):
        names = [name for row in rows for name in row["names"]]
        assert len(names) == len(set(names))
        assert all(row["documented"] for row in rows)
        assert all(row.get("allowed") for row in rows if row["value"] in ("choice", "list"))
