"""The reader of lab 09's shell scripts: it runs nothing, ends soon, and refuses by name."""

from __future__ import annotations

import importlib
import importlib.util
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


# -- answers that are right, and answers that are not ----------------------------------------------

REFERENCE = (ROOT / "solutions/lab09/profile_commands.sh").read_text()
NSYS = REFERENCE[REFERENCE.index("nsys profile \\") : REFERENCE.index("# 2. Eight")]
JOB = REFERENCE[REFERENCE.index("torchrun --standalone") : REFERENCE.index("# 3. The same")]
TABLES = REFERENCE[REFERENCE.index("nsys export --") : REFERENCE.index("# 4. Why")]
PYTHON = REFERENCE[REFERENCE.index("python -c '") : REFERENCE.index("# 6. In this")]
BOXES = REFERENCE[REFERENCE.index("# [ ] the symptom") : REFERENCE.index("# END")]
CLOCKS = REFERENCE[REFERENCE.index("# Clocks are left") : REFERENCE.index("METRICS=dram")]
PLAN = "schedule(wait=2, warmup=1, active=3, repeat=1, skip_first=20)"
SUMS = "cuda_gpu_kern_sum cuda_api_sum cuda_gpu_mem_time_sum nvtx_sum"
STEPS = "    for _ in range(30):\n        train.step()\n        prof.step()\n"
READY = '    on_trace_ready=lambda p: p.export_chrome_trace("trace.json.gz"),\n'
WHERE = 'if [ "$LOCAL_RANK" = 0 ]'
PROGRAM = "    python train.py\n\n# 2"
CAPTURE = "--capture-range=cudaProfilerApi"
OUTPUT = "--force-overwrite=true --output=timeline \\"
FIRST = "    timeline.nsys-rep\n\n# 4"
SKIP, COUNT = "--launch-skip 60", "--launch-count 12"


def stats(*words: str) -> str:
    return TABLES[: TABLES.index("nsys stats")] + "\n".join(words) + "\n\n"


RIGHT: dict[str, list[tuple[str, str]]] = {
    "as_it_is": [],
    "report_after_report": [
        (TABLES, stats("nsys stats -f csv -r " + " -r ".join(SUMS.split()) + " timeline.nsys-rep"))
    ],
    "a_stats_each": [
        (TABLES, stats(*(f"nsys stats -f csv -r {r} timeline.nsys-rep" for r in SUMS.split())))
    ],
    "stats_in_a_loop": [
        (TABLES, stats(f'for r in {SUMS}; do nsys stats -f csv -r "$r" timeline.nsys-rep; done'))
    ],
    "stats_of_the_export": [(FIRST, FIRST.replace("nsys-rep", "sqlite"))],
    "stats_into_files": [("--format csv", "--format csv --output . --force-export=true")],
    "two_formats": [("--format csv", "--format column --format csv --report osrt_sum")],
    "arithmetic_condition": [(WHERE, "if (( LOCAL_RANK == 0 ))")],
    "double_brackets": [(WHERE, 'if [[ $LOCAL_RANK -eq 0 && "$WORLD_SIZE" == 8 ]]')],
    "default_rank": [(WHERE, 'if [[ "${LOCAL_RANK:-0}" == "0" ]]')],
    "rank_three": [(WHERE, "if [ $(( RANK % 8 )) = 3 ]")],
    "metrics_appended": [
        ("METRICS=$METRICS,sm__th", "METRICS+=,sm__th"),
        ("METRICS=$METRICS,dram", "METRICS+=,dram"),
    ],
    "supported_activities": [
        (
            "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
            "activities=torch.profiler.supported_activities()",
        )
    ],
    "activities_by_default": [
        ("    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],\n", "")
    ],
    "numbers_from_shell": [
        ("python -c '", "SKIP=20\npython -c '"),
        ("skip_first=20", "skip_first='$SKIP'"),
    ],
    "numbers_from_environment": [
        ("python -c '", "SKIP=20 python -c '\nimport os"),
        ("skip_first=20", 'skip_first=int(os.environ["SKIP"])'),
    ],
    "numbers_from_python": [
        ("with profile(", "WAIT, WARM, ACTIVE = 22, 1, 3\nPLAN = dict(wait=WAIT, warmup=WARM)\n"
         "with profile("),
        ("wait=2, warmup=1, active=3, repeat=1, skip_first=20", "**PLAN, active=ACTIVE"),
        ("range(30)", "range(WAIT + WARM + ACTIVE)"),
    ],
    "a_function_that_writes": [
        ("with profile(", "def save(p):\n    p.export_chrome_trace(f\"{p.step_num}.json\")\n\n"
         "with profile("),
        (READY, "    on_trace_ready=save,\n"),
    ],
    "written_at_the_end": [
        (READY, ""), (STEPS, STEPS + 'prof.export_chrome_trace("trace.json")\n')
    ],
    "start_and_stop": [
        ("with profile(", "prof = profile("),
        (") as prof:\n", ")\nprof.start()\n"),
        (STEPS, "while train.step() < 40:\n    prof.step()\nprof.stop()\n"),
    ],
    "python_module": [(PROGRAM, "    python -u -m train\n\n# 2")],
    "through_bash": [(PROGRAM, "    bash -c 'python3.12 train.py --lr 1'\n\n# 2")],
    "half_and_half": [(SKIP, "--launch-skip-before-match 1800 --launch-skip 30")],
    "all_before": [(SKIP, "--launch-skip-before-match 3600")],
    "fifty": [(COUNT, "-c 50")],
    "the_last_one": [(f"{SKIP} {COUNT}", "-s 599 -c 1")],
    "by_number": [
        (f"--kernel-name 'regex:gemm|conv' {SKIP} {COUNT}", "--kernel-id ::regex:'gemm|conv':61")
    ],
    "brackets": [("'regex:gemm|conv'", "regex:'.*(gemm|conv).*'")],
    "delayed_by_range": [(SKIP, "--profile-from-start off")],
    "one_box_more": [(BOXES, BOXES + "# [ ] the result is written where the team will find it\n")],
    "a_folder": [
        ("--output=timeline \\", "--output=out/timeline \\"),
        (TABLES, TABLES.replace("timeline.", "out/timeline.")),
    ],
    "into_the_folder": [
        (TABLES, "cd out\n" + TABLES), ("--output=timeline \\", "--output=out/timeline \\")
    ],
    "nvtx": [
        (CAPTURE, "--capture-range=nvtx --nvtx-capture=measure"),
        ("nsys profile \\", "export NSYS_NVTX_PROFILER_REGISTER_ONLY=0\nnsys profile \\"),
    ],
    "nvtx_by_option": [
        (CAPTURE, "-c nvtx -p measure@* -e NSYS_NVTX_PROFILER_REGISTER_ONLY=0")
    ],
    "kept_alive": [(f"{CAPTURE} --capture-range-end=stop", f"{CAPTURE} --kill=none")],
    "a_schedule_of_ones_own": [
        (PLAN, "lambda at: torch.profiler.ProfilerAction({22: 1, 23: 2, 24: 2, 25: 3}.get(at, 0))")
    ],
    "a_schedule_as_a_function": [
        ("with profile(", "def plan(step):\n    action = torch.profiler.ProfilerAction\n"
         "    if step % 30 < 24:\n        return action.NONE\n"
         "    if step % 30 < 26:\n        return action.WARMUP\n"
         "    return action.RECORD if step % 30 < 29 else action.RECORD_AND_SAVE\n\nwith profile("),
        (PLAN, "plan"),
        ("range(30)", "range(40)"),
    ],
    "another_small_text": [("set -euo pipefail", "set -euo pipefail\npython -c 'print(1)'")],
    "ready_made_handler": [
        (READY, '    on_trace_ready=torch.profiler.tensorboard_trace_handler("runs"),\n')
    ],
}  # fmt: skip
WRONG: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "tables_first": ("too early", [(TABLES, ""), (NSYS, TABLES + NSYS)]),
    "stats_first": ("too early", [
        (TABLES, stats()), (NSYS, TABLES[TABLES.index("nsys stats") :] + NSYS)
    ]),
    "stats_of_an_export_to_come": ("too early", [
        (TABLES, TABLES[TABLES.index("nsys stats") :].replace("nsys-rep", "sqlite")
         + TABLES[: TABLES.index("nsys stats")])
    ]),
    "the_ranks_report": ("other report", [
        ("timeline.sqlite timeline.nsys-rep", "timeline.sqlite timeline_rank0.nsys-rep")
    ]),
    "the_ranks_sums": ("no cuda_gpu_kern_sum", [
        (FIRST, FIRST.replace("timeline", "timeline_rank0"))
    ]),
    "one_name": ("one name for two reports", [("timeline_rank0", "timeline")]),
    "another_folder": ("input", [("--output=timeline \\", "--output=out/timeline \\")]),
    "a_table_is_printed": ("no trace", [
        (READY, "    on_trace_ready=lambda p: print(p.key_averages().table(row_limit=10)),\n")
    ]),
    "no_trace": ("nobody asks", [(READY, "")]),
    "written_too_early": ("python AssertionError", [
        (READY, ""),
        (STEPS, '    prof.export_chrome_trace("trace.json")\n' + STEPS),
    ]),
    "words_alone": ("bare words", [
        (BOXES, "# [ ] symptom\n# [ ] timeline\n# [ ] counter\n# [ ] change\n# [ ] gain\n")
    ]),
    "boxes_alone": ("bare words", [(BOXES, "# [ ]\n" * 6)]),
    "an_empty_box": ("bare words", [
        ("# [ ] the timeline says when the GPU is idle, and for how many us a step", "# [ ]")
    ]),
    "all_on_one_line": ("early the timeline", [
        (BOXES, "# [ ] look at this with great care\n" * 5
         + "# [ ] symptom, timeline, counter, one change, measured again\n")
    ]),
    "gain_before_change": ("early the gain, measured again", [
        (BOXES, "".join(BOXES.splitlines(True)[index] for index in (0, 1, 2, 3, 5, 4))
         .replace("with the gain in us predicted beforehand", "and no second one beside it"))
    ]),
    "no_python": ("no python", [(PROGRAM, "    train.py\n\n# 2")]),
    "named_python": ("no python", [
        ("--output=timeline \\\n    python train.py", "-o python train.py"),
        (TABLES, TABLES.replace("timeline.", "python.")),
    ]),
    "echoed": ("other program", [(PROGRAM, "    echo python train.py\n\n# 2")]),
    "other_ranks_echo": ("ranks left out", [
        ("        exec python train.py", "        echo python train.py")
    ]),
    "another_script": ("other program", [(PROGRAM, "    python test.py train.py\n\n# 2")]),
    "any_kernel": ("regex catches", [("'regex:gemm|conv'", "'regex:gemm|conv|.*'")]),
    "most_kernels": ("regex catches", [("'regex:gemm|conv'", "'regex:gem|con'")]),
    "everything_with_an_m": ("regex catches", [("'regex:gemm|conv'", "'regex:m|v'")]),
    "gemm_alone": ("regex misses", [("'regex:gemm|conv'", "'regex:gemm'")]),
    "at_the_beginning": ("regex misses", [("'regex:gemm|conv'", "'regex:^gemm|^conv'")]),
    "fifty_one": ("launch count", [(COUNT, "-c 51")]),
    "none": ("launch count", [(COUNT, "-c 0")]),
    "one_too_few": ("ncu warm-up", [(SKIP, "-s 59")]),
    "none_is_left": ("skips all", [(SKIP, "-s 600")]),
    "none_is_left_before": ("skips all", [(SKIP, "--launch-skip-before-match 36000")]),
    "none_is_left_of_the_range": ("skips all", [(SKIP, "--profile-from-start off -s 60")]),
    "half_of_the_warm_up": ("skips little", [
        (SKIP, "--launch-skip-before-match 1800 --launch-skip 29")
    ]),
    "another_range": ("no nvtx range", [(SKIP, "--nvtx --nvtx-include forward/")]),
    "not_exported": ("registered strings", [
        (CAPTURE, "--capture-range=nvtx --nvtx-capture=measure"),
        ("nsys profile \\", "NSYS_NVTX_PROFILER_REGISTER_ONLY=0\nnsys profile \\"),
    ]),
    "clocks_six_words": ("clocks without a gain", [
        (CLOCKS, "# clocks clocks: none of the base here, please\n")
    ]),
    "clocks_without_a_cost": ("clocks without a cost", [
        (CLOCKS, "# Clocks are left alone: these are the durations of production.\n")
    ]),
    "clocks_without_a_gain": ("clocks without a gain", [
        (CLOCKS, "# Clocks are left alone, so no two runs take the same: they vary with heat.\n")
    ]),
    "recorded_warm_up": ("records warm-up", [(", skip_first=20", "")]),
    "one_step_too_early": ("records warm-up", [("skip_first=20", "skip_first=16")]),
    "loop_too_short": ("too few steps", [("range(30)", "range(20)")]),
    "loop_cut_short": ("loop ends early", [("range(30)", "range(25)")]),
    "stepped_twice": ("steps do not fit", [
        (STEPS, STEPS.replace("range(30)", "range(60)") + "        prof.step()\n"),
        ("skip_first=20", "skip_first=40"),
    ]),
    "every_other_step": ("steps do not fit", [
        (STEPS, STEPS.replace("range(30)", "range(60)").replace("     prof", "     _ % 2 or prof"))
    ]),
    "the_program_never_steps": ("no steps", [("        train.step()\n", "")]),
    "misspelt_keyword": ("python TypeError", [("record_shapes", "record_shape")]),
    "misspelt_schedule": ("python TypeError", [("warmup=1", "warm_up=1")]),
    "cpu_alone": ("activities", [(", ProfilerActivity.CUDA]", "]")]),
    "no_warm_up": ("no warm-up step", [("warmup=1", "warmup=0")]),
    "no_schedule": ("no schedule", [(f"    schedule={PLAN},\n", "")]),
    "one's_own_without_warm_up": ("no warm-up step", [
        (PLAN, "lambda step: torch.profiler.ProfilerAction(3 if step == 25 else 0)")
    ]),
    "one's_own_records_warm_up": ("records warm-up", [
        (PLAN, "lambda step: torch.profiler.ProfilerAction({18: 1, 19: 3}.get(step, 0))")
    ]),
    "one's_own_never_records": ("never records", [
        (PLAN, "lambda step: torch.profiler.ProfilerAction(step == 22)")
    ]),
    "one's_own_for_a_longer_loop": ("too few steps", [
        (PLAN, "lambda step: torch.profiler.ProfilerAction({40: 1, 41: 3}.get(step, 0))")
    ]),
    "one's_own_is_cut_short": ("loop ends early", [
        (PLAN, "lambda at: torch.profiler.ProfilerAction({27: 1, 28: 2, 29: 2, 30: 3}.get(at, 0))")
    ]),
    "one's_own_gives_numbers": ("python TypeError", [(PLAN, "lambda step: step == 25")]),
    "csv_of_some": ("not csv", [("--format csv", "--format csv,column")]),
    "no_counters": ("no gpu__time_duration.sum", [
        ("dram__bytes.sum,gpu__time_duration.sum", "dram__bytes.sum")
    ]),
    "the_program_is_killed": ("duration", [(OUTPUT, "--duration=60 --output=timeline \\")]),
    "four_ranks": ("ranks", [("--nproc-per-node=8", "--nproc-per-node=4")]),
    "import_first": ("too early", [
        ("METRICS=dram", "ncu --import gemm.ncu-rep --csv\nMETRICS=dram")
    ]),
}  # fmt: skip


@pytest.fixture(scope="module")
def python_text() -> Any:
    path = ROOT / "tests/lab09/probes.py"
    spec = importlib.util.spec_from_file_location("lab09_probes", path)
    assert spec is not None
    assert spec.loader is not None
    probes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(probes)
    return lambda *args: probes.python_text(None, *args)


def faults_of(profilers: Any, python_text: Any, changes: list[tuple[str, str]]) -> list[str]:
    text = REFERENCE
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times"
        text = text.replace(old, new)
    script = profilers.read(text)
    rules = ("readable", "options", "timeline", "one_rank", "reports", "few_launches", "counters")
    found = [f.key for rule in (*rules, "checklist") for f in getattr(profilers, rule)(script)]
    return found + [fault.key for fault in profilers.torch_profiler(script, python_text)]


# Conditions for one rank of eight, and whether it is the rank that they hold for.
CONDITIONS = {
    "[ $LOCAL_RANK = 0 ]": True,
    "[ $LOCAL_RANK == 0 ]": True,
    "[ $LOCAL_RANK = 3 ]": True,
    "[ $LOCAL_RANK -eq 0 ]": True,
    "[ $LOCAL_RANK -ne 0 ]": False,
    "[ $LOCAL_RANK != 0 ]": False,
    '[ "$LOCAL_RANK" = 0 ]': True,
    '[ "$RANK" == "7" ]': True,
    "[ x$RANK = x0 ]": True,
    "[ ${LOCAL_RANK:-0} -lt 1 ]": True,
    "[ $(( RANK % 8 )) = 0 ]": True,
    "test $LOCAL_RANK = 0": True,
    "test ! $LOCAL_RANK -gt 0": True,
    "[[ $LOCAL_RANK == 0 ]]": True,
    "[[ $LOCAL_RANK != 0 ]]": False,
    "[[ $RANK -eq 0 ]]": True,
    "[[ $RANK =~ ^0$ ]]": True,
    "(( $LOCAL_RANK == 0 ))": True,
    "! (( $LOCAL_RANK ))": True,
    "(( $LOCAL_RANK > 0 ))": False,
}


def job_of(condition: str, holds: bool, quote: str) -> str:
    """The reference's job of eight ranks with another condition, and another quote around it."""
    watched, other = JOB[JOB.index("exec nsys") : JOB.index("    else")], "exec python train.py\n"
    first, second = (watched, other) if holds else (other, watched)
    text = f"if {condition}; then {first}\nelse {second}\nfi"
    if quote == '"':
        text = text.replace('"', '\\"')
    return f"{JOB[: JOB.index('bash -c')]}bash -c {quote}{text}{quote}\n\n"


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_in_the_ranks_own_shell(
    profilers: Any, python_text: Any, condition: str
) -> None:
    job = job_of(condition, CONDITIONS[condition], "'")
    assert faults_of(profilers, python_text, [(JOB, job)]) == []
    if '"' not in condition:
        kept = job_of(condition.replace("$", "\\$"), CONDITIONS[condition], '"')
        assert faults_of(profilers, python_text, [(JOB, kept)]) == []


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_that_the_outer_shell_has_emptied(
    profilers: Any, python_text: Any, condition: str
) -> None:
    job = job_of(condition, CONDITIONS[condition], '"')
    assert faults_of(profilers, python_text, [(JOB, job)]) == ["wrong shell"]
    _before, launcher, text = job.partition("torchrun --standalone --nproc-per-node=8 --no-python ")
    held = f'TEXT={text.removeprefix("bash -c ").rstrip()}\n{launcher}bash -c "$TEXT"\n\n'
    assert faults_of(profilers, python_text, [(JOB, held)]) == ["wrong shell"]


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("bash -c '\n    if [ \"$LOCAL_RANK\" = 0 ]; then", None, ["wrong shell"]),
        # The variable is put in too early, and nothing depends on it: no fault.
        ("bash -c '\n    if [ \"$LOCAL_RANK\" = 0 ]; then",
         'bash -c "\n    echo $RANK; if (( LOCAL_RANK == 0 )); then', []),
        # Another fault stays what it is.
        ("bash -c '\n    if [ \"$LOCAL_RANK\" = 0 ]; then",
         'bash -c "\n    echo $RANK; if (( LOCAL_RANK >= 0 )); then', ["many ranks"]),
    ],
)  # fmt: skip
def test_only_what_the_outer_shell_has_broken(
    profilers: Any, python_text: Any, old: str, new: str | None, keys: list[str]
) -> None:
    changed = new or 'bash -c "\n    case $LOCAL_RANK in 0)'
    ends = ("    fi'", '    fi"') if new else ("    fi'", '    esac"')
    changes = [(old, changed), ends]
    if not new:
        changes.append(
            ("    else\n        exec python train.py", "    ;; *) exec python train.py ;;")
        )
    assert faults_of(profilers, python_text, changes) == keys


@pytest.mark.parametrize("condition", ["[ $LOCALRANK = 0 ]", "[ $NOBODY == 0 ]", "[[ $A -eq 0 ]]"])
def test_a_name_that_is_not_set_is_told(profilers: Any, unreadable: Any, condition: str) -> None:
    text = REFERENCE.replace(JOB, job_of(condition, True, "'"))
    if condition.startswith("[["):
        assert profilers.read(text)  # an empty word is 0 to [[ ]]
        return
    with pytest.raises(unreadable, match="nothing stands before"):
        profilers.read(text)


@pytest.mark.parametrize("name", RIGHT)
def test_right_scripts_have_no_fault(profilers: Any, python_text: Any, name: str) -> None:
    assert faults_of(profilers, python_text, RIGHT[name]) == []


@pytest.mark.parametrize("name", WRONG)
def test_wrong_scripts_have_their_fault(profilers: Any, python_text: Any, name: str) -> None:
    key, changes = WRONG[name]
    assert key in faults_of(profilers, python_text, changes)
