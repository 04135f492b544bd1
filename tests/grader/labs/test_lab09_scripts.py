"""The reader of lab 09's shell scripts: it runs nothing, ends soon, and refuses by name."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
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


# -- against bash itself ---------------------------------------------------------------------------

# A stand-in for every program: it writes down its words and two variables.
STUB = """#!/usr/bin/env python3
import json, os, sys
row = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
with open(os.environ["SEEN"], "a") as file:
    file.write(json.dumps([row, os.environ.get("A"), os.environ.get("B")]) + "\\n")
"""
SCRIPTS = {
    "words": "nsys a 'b c' \"d $HOME e\" f\\ g \\\n  h # no\nncu x#y '#z'",
    "variables": 'A=1; B="x y"\nnsys $A $B "$B" ${A}2 \'$A\' "\\$A"',
    "append": 'A=a\nA+=,b\nA+=",c d"\nncu --metrics $A "$A"',
    "exported": "A=1; export B=2; nsys x; export A; nsys y; A=3 nsys z; nsys w",
    "declared": "declare -x A=1; readonly B=2; nsys $A $B; set -a; C=3; A=5; ncu $C",
    "unset": "A=1; export A; nsys x; unset A; nsys y ${A-none}",
    "defaults": 'nsys ${N:-8} ${N-7} ${A:=5} $A "${N:-$A b}" ${A:+set} x${N:+set}y ${#A}',
    "empty": 'A=; nsys ${A:-1} ${A-2} $A "$A" x$A',
    "cut": "A=out/run.nsys-rep; nsys ${A%.nsys-rep}.sqlite ${A##*/} ${A#*/} ${A/run/walk} ${A%%.*}",
    "split": "A=' b  c '; nsys a$A'd' \"a$A\" $A",
    "positional": "bash -c 'nsys $0 $1 \"$@\" $#' zero one 'two three'",
    "braces": "nsys {a,b}c x{1..3} {3..1} '{a,b}' %q{RANK} --{x,y}=1",
    "arithmetic": "A=3; (( A == 3 )) && nsys $(( A * 20 )) $((A**2)) $((-7 / 2)) $((7 % -3)); "
    "(( A > 3 || !A )) || ncu no; (( A += 4 )); nsys $A $(( $A ? 1 : 2 )) $((1<<4 | 3)) $((010))",
    "cond": "A=03 B=; [[ $A == 0? && -z $B ]] && nsys 1; [[ $A =~ ^0[0-9]$ ]] && nsys 2; "
    '[[ ! ( $A -eq 4 || $A != 03 ) ]] && nsys 3; [[ $A == "0?" ]] || nsys 4; [[ a < b ]] && nsys 5;'
    " [[ -n $B ]] || nsys 6; [[ $A -lt 4 ]] && nsys 7; [[ -v A ]] && nsys 8",
    "test": 'A=1; [ $A = 1 ] && nsys 1; [ ! $A -ge 2 ] && nsys 2; test -z "$B" && nsys 3; '
    "[ $A -eq 1 -a -n x ] && nsys 4; [ \"$A\" = '*' ] || nsys 5; if ! [ $A = 2 ]; then nsys 6; fi",
    "if": "A=2; if (( A == 1 )); then nsys 1; elif [[ $A == 2 ]]; then nsys 2; else nsys 3; fi; "
    "if false; then a\nfi\nncu",
    "case": "for A in 0 3 ab 'x*'; do case $A in 0|1) nsys low;; (a*) nsys a ;; "
    "'x*') nsys star ;;\n*) nsys other ;; esac; done",
    "for": "for A in a 'b c' {1..2}; do nsys -r $A x; ncu \"$A\"\ndone; "
    "for B\nin 1\ndo nsys $B; done",
    "and_or": "false && nsys 1 || nsys 2; true && nsys 3; ! false && nsys 4; : ; nsys 5 & wait",
    "exec": "(exec nsys 1; ncu no); if true; then exec nsys 2; fi; ncu no",
    "exit": "nsys 1; (exit 0); nsys 2; exit 0; nsys 3",
    "subshell": "A=1; (A=2; nsys $A); nsys $A; { A=3; nsys $A; }; nsys $A",
    "pipe": "nsys a | ncu b; nsys c 2>&1 > x.log; nsys d &> y.log; nsys e >> z.log 2> w.log",
    "fronts": "env A=1 nsys 1; nohup nsys 2; timeout 60 nsys 3; nice -n 5 nsys 4; command nsys 5; "
    "env -u A B=2 nsys 6; exec nsys 7",
    "bash": "export A=4; bash -euc 'B=3; nsys $A $B'; sh -c \"nsys '$A'\"; "
    "bash -o pipefail -c 'ncu 1'",
    "quotes": 'nsys $\'a\\nb\' "a\'b" \'a"b\' "a\\\\b" a\\\nb \'\' "" "$Z" $Z',
    "here_string": "nsys a <<< 'text' b",
    "nested": 'A=\'x y\'; nsys "${B:-"$A"}" "${B:-${A:-z}}" ${B:-\'p q\'}',
}
REFUSED = [
    *("if then nsys; fi", "nsys; ; ncu", "nsys &&", "| nsys", "for A in 1; do done", "nsys 'a"),
    *("case x in a) nsys", "fi", "if true; then nsys", "nsys ;; ncu", "( nsys", "nsys )", "nsys >"),
    *("[[ a == b", "nsys (a)", "nsys a & & ncu", "{ nsys", "done", "for A in 1; nsys; done"),
]


def _bash() -> str:
    found = shutil.which("bash")
    version = (
        subprocess.run([found, "--version"], capture_output=True, text=True) if found else None
    )
    if found is None or version is None or "version 5" not in version.stdout:
        pytest.skip("not verified here: bash 5 is not on this machine")
    return found


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_reader_reads_what_bash_reads(profilers: Any, tmp_path: Path, name: str) -> None:
    bash, folder = _bash(), tmp_path / "bin"
    folder.mkdir()
    for program in ("nsys", "ncu"):
        (folder / program).write_text(STUB)
        (folder / program).chmod(0o755)
    seen = tmp_path / "seen.jsonl"
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": "/home/you", "SEEN": str(seen)}
    text = SCRIPTS[name]
    subprocess.run([bash, "-c", text, "script"], env=environment, cwd=tmp_path, timeout=60)
    want = [json.loads(line) for line in seen.read_text().splitlines()]
    shell = profilers.shell
    got = []
    for start in shell.starts(shell.parse(text), {"HOME": "/home/you"}, ["script"]):
        for one in shell.inside(start, {}):
            env = one.environment
            got.append([[one.program, *one.words[1:]], env.get("A"), env.get("B")])
    if name == "pipe":
        got.sort()
        want.sort()
    assert got == want


@pytest.mark.parametrize("text", REFUSED)
def test_the_reader_refuses_what_bash_refuses(unreadable: Any, profilers: Any, text: str) -> None:
    run = subprocess.run([_bash(), "-n", "-c", text], capture_output=True, timeout=60)
    assert run.returncode != 0
    with pytest.raises(unreadable):
        profilers.read(text)
