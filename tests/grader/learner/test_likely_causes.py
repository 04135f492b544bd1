"""A likely cause needs all cases of its task: what a run of some of them does for it, and what it
leaves alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from ..conftest import WRONG, MiniKit

TARGET = "exercises/lab90/running_mean.py"
TASK = f"{TARGET}::running_mean"
GATE = f"{TASK}::test_every_prefix_has_its_mean"
CAUSE = "Likely cause: After value i there are i + 1 values, not i: the count starts at one."


def written(kit: MiniKit, first: str, answer: str = WRONG) -> None:
    """A wrong answer that counts its calls in `calls`, and then does what `first` says."""
    log = f"    with open({str(kit.root / 'calls')!r}, 'a') as file:\n"
    log += "        file.write(f'{len(values)} ')\n"
    code = "".join(f"    {line}\n" for line in first.splitlines())
    kit.write(answer.replace("    total, means", f"{log}{code}    total, means"))


def calls(kit: MiniKit) -> list[int]:
    """The lengths that the answer was called with since this was last asked, sorted."""
    path = kit.root / "calls"
    found = sorted(map(int, path.read_text(encoding="utf-8").split())) if path.exists() else []
    path.unlink(missing_ok=True)
    return found


@pytest.mark.parametrize(
    ("options", "counts", "causes"),
    [
        (["exercises/lab90"], {"failed": 3, "passed": 1}, 4),
        (["exercises/lab90", "-x"], {"failed": 1}, 2),
        (["exercises/lab90", "-k", "31"], {"failed": 1, "deselected": 3}, 2),
        ([f"{GATE}[7]"], {"failed": 1}, 2),
        (["exercises/lab90", "--lf"], {"failed": 3, "passed": 1}, 4),
        (["exercises/lab90", "-s"], {"failed": 3, "passed": 1}, 4),
    ],
    ids=["all", "x", "k", "case", "lf", "s"],
)
def test_each_case_is_executed_once_and_the_cause_is_named(
    kit: MiniKit, options: list[str], counts: dict[str, int], causes: int
) -> None:
    """The message of each failing case names it, and so does the end of the run."""
    written(kit, "")
    run = kit.pytest(*options, cache=True)
    assert run.counts() == counts
    assert run.out.count(CAUSE) == causes
    assert calls(kit) == [0, 2, 7, 31]


def test_workers_execute_each_case_once(kit: MiniKit) -> None:
    written(kit, "")
    run = kit.fresh_pytest("exercises/lab90", "-n", "2")
    assert run.counts() == {"failed": 3, "passed": 1}
    assert run.out.count(CAUSE) == 4
    assert calls(kit) == [0, 2, 7, 31]


def test_a_case_that_no_misconception_fails_alike_runs_no_other(kit: MiniKit) -> None:
    written(kit, "return None")
    run = kit.pytest(f"{GATE}[7]")
    assert "Likely cause" not in run.out
    assert calls(kit) == [7]


def test_an_answer_that_passes_what_the_misconception_fails_is_not_named(kit: MiniKit) -> None:
    """It makes the mistake for two values only."""
    right = (kit.solution / "running_mean.py").read_text(encoding="utf-8")
    kit.write(right.replace("(index + 1)", "(index + 1 if len(values) > 2 else max(index, 1))"))
    for options in (["exercises/lab90"], [f"{GATE}[2]"]):
        run = kit.pytest(*options)
        assert run.counts()["failed"] == 1
        assert "Likely cause" not in run.out


def test_what_a_case_prints_stands_at_that_case(kit: MiniKit) -> None:
    shown = "import os, sys\nprint('out', len(values))\nprint('err', len(values), file=sys.stderr)"
    written(kit, f"{shown}\nos.write(1, f'fd {{len(values)}}\\n'.encode())")
    run = kit.pytest("exercises/lab90")
    parts = re.split(r"^_+ (.+) _+$", run.out, flags=re.MULTILINE)
    reports = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert len(reports) == 3
    for n in (2, 7, 31):
        [report] = [text for name, text in reports.items() if name.endswith(f"[{n}]")]
        for stream in ("out", "err", "fd"):
            found = re.findall(rf"^{stream} (\d+)$", report, flags=re.MULTILINE)
            assert found == [str(n)], (n, stream)
    assert "out 7" not in kit.pytest(f"{GATE}[2]").out
    assert "out 7" not in kit.pytest(f"{GATE}[2]", "-s").out


def test_what_a_case_logs_stands_at_no_other(kit: MiniKit) -> None:
    written(kit, "import logging\nlogging.getLogger('mine').warning('length %d', len(values))")
    run = kit.pytest(f"{GATE}[2]")
    assert "length 2" in run.out
    assert "length 7" not in run.out
    assert CAUSE in run.out


def test_a_breakpoint_opens_in_its_own_case_only(kit: MiniKit) -> None:
    for how in ("breakpoint()", "import pdb; pdb.set_trace()"):
        written(kit, f"if len(values) == 7:\n    try:\n        {how}\n    except Exception: pass")
        run = kit.fresh_pytest(f"{GATE}[2]", stdin="q\n")
        assert run.counts() == {"failed": 1}
        assert "(Pdb)" not in run.out
        run = kit.fresh_pytest("exercises/lab90", stdin="p ('length', len(values))\nc\n")
        assert run.counts() == {"failed": 3, "passed": 1}
        assert run.out.count("(Pdb)") == 2
        assert "('length', 7)" in run.out
        calls(kit)


def test_a_breakpoint_behind_a_bare_except_opens_in_its_own_case_only(kit: MiniKit) -> None:
    first = "if len(values) == 7:\n    try:\n        breakpoint()\n    except: pass"
    written(kit, first)
    run = kit.fresh_pytest("exercises/lab90", stdin="p ('length', len(values))\nc\n")
    assert run.counts() == {"failed": 3, "passed": 1}
    assert "('length', 7)" in run.out


def test_no_case_is_run_ahead_of_a_debugger_after_a_failure(kit: MiniKit) -> None:
    written(kit, "")
    run = kit.fresh_pytest(f"{GATE}[7]", "--pdb", stdin="p ('n is', n)\nq\n")
    assert "('n is', 7)" in run.out
    assert calls(kit) == [7]


def test_an_endless_loop_elsewhere_is_that_cases_timeout(kit: MiniKit) -> None:
    """It is unknown what the case would have said; nothing is run twice."""
    kit.manifest("call_seconds = 5", "call_seconds = 0.3")
    written(kit, "while len(values) == 7: pass")
    run = kit.pytest("exercises/lab90")
    assert run.counts() == {"failed": 3, "passed": 1}
    assert run.out.count("no answer after 0.3 s") == 1
    assert run.out.count(CAUSE) == 3
    assert calls(kit) == [0, 2, 7, 31]


def test_ctrl_c_while_other_cases_run_ends_the_run_and_reports_the_case(kit: MiniKit) -> None:
    kit.manifest("call_seconds = 5", "call_seconds = 60")
    flag = kit.root / "waits"
    written(
        kit,
        f"if len(values) == 7:\n    open({str(flag)!r}, 'w').close()\n    import time\n"
        "    time.sleep(60)",
    )
    command = [sys.executable, "-B", "-m", "pytest", "-p", "no:cacheprovider", f"{GATE}[2]"]
    with subprocess.Popen(
        command, cwd=kit.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        try:
            while not flag.exists() and run.poll() is None:
                time.sleep(0.01)
            os.kill(run.pid, signal.SIGINT)
            out, _ = run.communicate(timeout=60)
        finally:
            run.kill()
    assert run.returncode == 2
    assert "1 failed" in out
    assert "running_mean([" in out
    assert "while the cause of a failure was looked for" in out
    assert "Traceback" not in out
    assert CAUSE not in out
