"""Every save is answered with a round of its own, in a terminal: `infralens watch --plain`."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.lab.manifest import load_lab
from grader.learner.watch.link import Link
from tests.grader.conftest import HERE, WRONG, MiniKit
from tests.grader.learner.watch.conftest import (
    RIGHT,
    Opened,
    Terminal,
    backed_up,
    environment,
    in_place,
    processes_of,
    renamed,
    wait_until,
)

DONE = r"lab90: 2 of 2 points"
NONE = r"lab90: 0 of 2 points"


def history(kit: MiniKit) -> list[dict[str, object]]:
    rows = (kit.root / ".infralens" / "history.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(row) for row in rows]


@pytest.mark.parametrize("save", [in_place, renamed, backed_up])
def test_each_way_of_saving_is_answered(
    kit: MiniKit, terminal: Opened, save: Callable[[Path, str], None]
) -> None:
    shown = terminal()
    shown.wait_for("is not started: its placeholder still stands")
    shown.wait_for(NONE)
    save(kit.main, WRONG)
    shown.wait_for(r"-- \d\d:\d\d:\d\d  running_mean")
    shown.wait_for(r"x running_mean +core +0/2 +wrong")
    shown.wait_for("Why: entry i is the mean of the first i")
    shown.wait_for(r"lab90: 0 of 2 points; 1 more test passes")
    save(kit.main, RIGHT)
    shown.wait_for(r"\+ running_mean +core +2/2 +done")
    shown.wait_for(r"lab90: 2 of 2 points; 1 more test passes")
    assert shown.rounds() == 3
    assert [row["how"] for row in history(kit)] == ["watch"] * 3


def test_a_failing_test_runs_first_after_the_next_save(kit: MiniKit, terminal: Opened) -> None:
    """The second test fails, so it gives the first verdict of the next round."""
    kit.write(RIGHT.replace("return means", "return means or None"))
    shown = terminal()
    shown.wait_for(r"passed: running_mean/test_every_prefix")
    shown.wait_for(r"lab90: ")
    kit.write(RIGHT.replace("return means", "return means if values else None"))
    shown.wait_for(r"^ +failed: running_mean/test_no_value_gives_no_mean$")


def test_a_comment_touches_no_task(kit: MiniKit, terminal: Opened) -> None:
    kit.write(RIGHT)
    shown = terminal()
    shown.wait_for(DONE)
    kit.write(RIGHT + "# a note for myself\n")
    shown.wait_for(r"-- \d\d:\d\d:\d\d  running_mean.py$")
    shown.wait_for(DONE)


def test_what_is_printed_stands_under_its_test(kit: MiniKit, terminal: Opened) -> None:
    kit.write(WRONG.replace("    return", "    print('so far', means)\n    return"))
    shown = terminal()
    shown.wait_for(r"^   it printed\n   \| so far \[")


def test_a_deleted_file_is_named_and_its_return_is_answered(kit: MiniKit, terminal: Opened) -> None:
    kit.write(RIGHT)
    shown = terminal()
    shown.wait_for(DONE)
    kit.main.unlink()
    shown.wait_for(
        r"exercises/lab90/running_mean.py is missing. Save it again, or: infralens reset"
    )
    kit.write(WRONG)
    shown.wait_for(NONE)


def test_a_link_in_the_place_of_the_file_is_refused(
    kit: MiniKit, terminal: Opened, tmp_path: Path
) -> None:
    kit.write(RIGHT)
    shown = terminal()
    shown.wait_for(DONE)
    other = tmp_path / "elsewhere.py"
    other.write_text(RIGHT)
    kit.main.unlink()
    kit.main.symlink_to(other)
    shown.wait_for(r"running_mean.py is a link or not a plain file: what is graded must lie")
    kit.main.unlink()
    kit.write(RIGHT)
    shown.wait_for(DONE)


def test_swap_files_and_backups_are_no_saves(kit: MiniKit, terminal: Opened) -> None:
    kit.write(RIGHT)
    shown = terminal()
    shown.wait_for(DONE)
    for name in (".running_mean.py.swp", "running_mean.py~", "4913", ".#running_mean.py", "a.txt"):
        (kit.exercise / name).write_text("x")
    kit.write(WRONG)
    shown.wait_for(NONE)
    assert shown.rounds() == 2


def test_a_save_ends_the_round_that_runs(kit: MiniKit, terminal: Opened) -> None:
    kit.write("import time\n" + RIGHT.replace("    return", "    time.sleep(600)\n    return"))
    kit.manifest("call_seconds = 5", "call_seconds = 600")
    shown = terminal()
    shown.wait_for(r"^-- ")
    kit.write(RIGHT)
    shown.wait_for(DONE)
    assert shown.rounds() == 1


def test_of_a_hundred_quick_saves_the_last_one_counts(kit: MiniKit, terminal: Opened) -> None:
    shown = terminal()
    shown.wait_for(NONE)
    for number in range(100):
        renamed(kit.main, (RIGHT if number % 2 else WRONG) + f"\n# {number}\n")
    shown.wait_for(DONE)
    assert wait_until(lambda: not shown.read(0.5) or shown.text.rstrip().endswith(" s)"))
    last = [row for row in shown.text.splitlines() if "points" in row][-1]
    assert "2 of 2 points" in last


def test_a_file_that_grows_to_two_mebibytes(kit: MiniKit, terminal: Opened) -> None:
    kit.write(RIGHT)
    shown = terminal()
    shown.wait_for(DONE)
    kit.write(RIGHT + "# a line of a log that was pasted\n" * 60_000)
    shown.wait_for(r"^-- ")
    shown.wait_for(r"lab90: ")
    kit.write(RIGHT)
    shown.wait_for(DONE)


def test_bytes_that_are_not_utf8(kit: MiniKit, terminal: Opened) -> None:
    shown = terminal()
    shown.wait_for(NONE)
    kit.main.write_bytes(b"\xff\xfe\x00 = 1\n")
    shown.wait_for(r"running_mean.py")
    shown.wait_for(NONE)
    kit.write(RIGHT)
    shown.wait_for(DONE)


def test_a_changed_suite_is_loaded_again(kit: MiniKit, terminal: Opened) -> None:
    kit.write(RIGHT)
    shown = terminal()
    shown.wait_for(DONE)
    path = kit.suite / "test_running_mean.py"
    path.write_text(path.read_text().replace("student.running_mean([]), []", "1, 2"))
    shown.wait_for("the suite, the kit or a given file changed: loading it again.")
    shown.wait_for(r"lab90: 0 of 2 points; 1 fewer test passes")


CODE_THAT_DOES_HARM = {
    "exits": ("raise SystemExit(3)", r"lab90: 0 of 2"),
    "exits-hard": ("import os; os._exit(3)", r"raised SystemExit: os\._exit\(3\) was called"),
    "exits-in-c": (
        "import ctypes; ctypes.CDLL(None)._exit(3)",
        r"your code ended the process that ran it \(exit code 3\)",
    ),
    "hangs": ("while True: pass", r"lab90: 0 of 2"),
    "kills-its-parent": (
        "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
        r"your code ended the kit's process; it was started again",
    ),
    "kills-itself": (
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        r"ended the process that ran it \(signal SIGSEGV\)",
    ),
    "prints-gigabytes": ("for _ in range(300): print('x' * 10_000_000)", r"lab90: 0 of 2"),
    "prints-control": (r"print('\x1b[2J\x1b]0;title\x07' * 3)", r"lab90: 0 of 2"),
    "takes-memory": ("return bytearray(64 << 30)", r"MemoryError"),
    "raises-deep": ("return running_mean(values)", r"RecursionError"),
    "interrupts": ("raise KeyboardInterrupt", r"lab90: 0 of 2"),
    "closes-everything": (
        "import os; [os.close(n) for n in range(256) if os.path.exists(f'/proc/self/fd/{n}')]",
        r"lab90: 0 of 2",
    ),
    "writes-to-all": (
        "import os\n    for n in range(3, 64):\n"
        '        try: os.write(n, b\'{"event": "end"}\\n\')\n'
        "        except OSError: pass",
        r"lab90: 0 of 2",
    ),
}


@pytest.mark.parametrize("name", CODE_THAT_DOES_HARM)
def test_harm_costs_its_round_alone(kit: MiniKit, terminal: Opened, name: str) -> None:
    code, sentence = CODE_THAT_DOES_HARM[name]
    kit.manifest("call_seconds = 5", "call_seconds = 1")
    kit.write(f"def running_mean(values):\n    {code}\n")
    shown = terminal()
    shown.wait_for(sentence)
    assert "\x1b]0;" not in shown.text
    assert len(shown.text) < 100_000
    kit.write(RIGHT)
    shown.wait_for(DONE)


FORKS = """
import os, socket, subprocess, threading
def running_mean(values):
    listening = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=listening.accept, daemon=True).start()
    if os.fork() == 0:
        os.setsid()
        while True:
            threading.Event().wait(60)
    subprocess.Popen(["sleep", "3600"], start_new_session=True)
    return [1.0]
"""


def test_what_the_code_starts_ends_with_its_round(kit: MiniKit, terminal: Opened) -> None:
    """A child in a session of its own, another program, and a thread behind a socket."""
    kit.write(FORKS)
    shown = terminal()
    shown.wait_for(NONE)
    kit.write(RIGHT)
    shown.wait_for(DONE)
    # The command, its warm process, and no third one; `sleep` stands in the kit's folder as well.
    assert wait_until(lambda: len(processes_of(kit)) == 2)
    shown.process.send_signal(signal.SIGTERM)
    assert shown.end() == 0
    assert wait_until(lambda: processes_of(kit) == [])


@pytest.mark.parametrize("how", ["ctrl-c", "sigterm", "closed terminal"])
def test_an_end_leaves_nothing_and_loses_nothing(kit: MiniKit, terminal: Opened, how: str) -> None:
    kit.write(RIGHT)
    shown = terminal()
    shown.wait_for(DONE)
    assert wait_until(lambda: len(processes_of(kit)) == 2)
    if how == "ctrl-c":
        shown.press("\x03")
    elif how == "sigterm":
        shown.process.send_signal(signal.SIGTERM)
    else:
        os.close(shown.master)
        shown.master = -1
    if shown.master >= 0:
        assert shown.end() == 0
        assert "Traceback" not in shown.text
    else:
        shown.process.wait(60)
    assert wait_until(lambda: processes_of(kit) == [])
    assert history(kit)[-1]["tasks"] == {"running_mean": ["done", 2.0]}


def test_a_pipe_that_closes_ends_it(kit: MiniKit, terminal: Opened) -> None:
    """As in `infralens watch | head -3`."""
    kit.write(RIGHT)
    shown = terminal_with_head(terminal)
    assert shown.end() == 0
    assert "Traceback" not in shown.text
    kit.write(WRONG)
    assert wait_until(lambda: processes_of(kit) == [])


def terminal_with_head(terminal: Opened) -> Terminal:
    import sys

    shown: Terminal = terminal("list", "lab90")
    shown.end()
    shown.close()
    command = f"{sys.executable} -m grader.cli watch lab90 | head -2"
    return Terminal(["sh", "-c", command], shown.cwd, environment(), (100, 30))


def test_a_full_disk_costs_the_history_alone(kit: MiniKit, terminal: Opened) -> None:
    kit.write(RIGHT)
    (kit.root / ".infralens").mkdir(exist_ok=True)
    (kit.root / ".infralens" / "history.jsonl").symlink_to("/dev/full")
    shown = terminal()
    shown.wait_for(DONE)
    shown.wait_for(r"\(progress was not saved: .*[Nn]o space left on (the )?device")
    kit.write(WRONG)
    shown.wait_for(NONE)


def test_no_colour_narrow_and_ascii(kit: MiniKit, terminal: Opened) -> None:
    """No escape sequence with NO_COLOR; with an ASCII terminal no character beyond it."""
    kit.write(WRONG.replace("def", "# \N{GREEK SMALL LETTER SIGMA}\ndef"))
    env = environment(NO_COLOR="1", LANG="C", LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    shown = terminal("watch", "lab90", size=(40, 20), env=env)
    shown.wait_for(NONE)
    assert "\x1b" not in shown.text
    assert shown.text.isascii()


def test_without_fork_a_process_that_is_ready_serves_each_round(
    kit: MiniKit, terminal: Opened
) -> None:
    kit.write(WRONG)
    shown = terminal(env=environment(INFRALENS_FORK="0"))
    shown.wait_for(NONE)
    kit.write(RIGHT)
    shown.wait_for(r"-- \d\d:\d\d:\d\d  running_mean$")
    shown.wait_for(DONE)
    kit.write(RIGHT.replace("means = 0.0", "means = 0"))
    shown.wait_for(r"-- \d\d:\d\d:\d\d  running_mean$")
    shown.wait_for(r"lab90: ")


def test_a_round_that_is_asked_for_as_the_last_one_ends_is_served(
    kit: MiniKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without forks, the process that has served a round is about to end then."""
    monkeypatch.setenv("INFRALENS_FORK", "0")
    kit.write(RIGHT)
    link = Link(load_lab(kit.root, "lab90"))
    link.start()
    try:
        seen: list[str] = []
        link.ask()
        until = time.monotonic() + 60
        while seen.count("end") < 3 and time.monotonic() < until:
            select.select([link.descriptor], [], [], 0.2)
            for event in link.receive():
                seen.append(event["event"])
                if event["event"] == "end":
                    link.ask()
    finally:
        link.close()
    assert seen.count("end") == 3
    assert "lost" not in seen


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("lab99", "lab99"),
        ("lab90.nothing", "nothing"),
        ("nothing", "nothing"),
        ("../lab90", "lab90"),
        ("lab90.", "lab90 has no task"),
    ],
)
def test_a_target_that_does_not_exist_is_named(
    kit: MiniKit, terminal: Opened, target: str, sentence: str
) -> None:
    shown = terminal("watch", target, "--plain")
    assert shown.end() == 2
    assert sentence in shown.text
    assert "Traceback" not in shown.text


def test_a_suite_that_cannot_be_loaded_is_said(kit: MiniKit, terminal: Opened) -> None:
    (kit.suite / "test_running_mean.py").write_text("import nothing_like_this\n")
    shown = terminal()
    assert shown.end() == 2
    assert "nothing_like_this" in shown.text
    assert "Traceback" not in shown.text


def test_check_ends_with_ctrl_c_and_leaves_nothing(kit: MiniKit, terminal: Opened) -> None:
    kit.write("import time\ndef running_mean(values):\n    time.sleep(600)\n")
    kit.manifest("call_seconds = 5", "call_seconds = 600")
    shown = terminal("check", "--plain")
    assert wait_until(lambda: len(processes_of(kit)) >= 3)
    shown.press("\x03")
    assert shown.end() == 130
    assert "Stopped; the labs above are noted." in shown.text
    assert wait_until(lambda: processes_of(kit) == [])


@pytest.mark.parametrize("code", ["return sum(values)", "import os; os._exit(3)", "while 1: pass"])
def test_a_round_leaves_no_temporary_files(
    kit: MiniKit,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
) -> None:
    """Known wrong answers are tried in folders of their own when a test fails."""
    scratch = tmp_path_factory.mktemp("scratch")
    monkeypatch.setenv("TMPDIR", str(scratch))
    kit.write(f"def running_mean(values):\n    {code}\n")
    link = Link(load_lab(kit.root, "lab90"))
    link.start()
    try:
        link.ask()
        ended, until = False, time.monotonic() + 60
        while not ended and time.monotonic() < until:
            select.select([link.descriptor], [], [], 0.2)
            ended = any(event["event"] in ("end", "fault") for event in link.receive())
            if code.startswith("while"):  # that round is stopped, as by another save
                ended = any(scratch.iterdir())
        assert ended
    finally:
        link.close()
    assert wait_until(lambda: list(scratch.iterdir()) == [])


@pytest.mark.parametrize("spare", [False, True])
def test_a_reference_with_a_kernel_passes_as_with_pytest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spare: bool
) -> None:
    """Of lab 06, where Triton is there: it is interpreted, whatever the environment says."""
    pytest.importorskip("triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("INFRALENS_FORK", "0" if spare else "1")
    ignore = shutil.ignore_patterns("__pycache__", ".infralens")
    for name in ("exercises/lab06", "solutions/lab06", "tests/lab06"):
        shutil.copytree(HERE / name, tmp_path / name, ignore=ignore)
    lab = load_lab(tmp_path, "lab06")
    for name in lab.edit:
        shutil.copy(lab.solution / name, lab.exercise / name)
    link = Link(lab)
    link.start()
    rows: list[tuple[str, str]] = []
    try:
        link.ask(["softmax"])
        while not rows or rows[-1][0] != "end":
            select.select([link.descriptor], [], [], 60.0)
            for event in link.receive():
                if event["event"] == "row":
                    rows.append((event["row"]["case"], event["row"]["status"]))
                elif event["event"] in ("end", "fault", "lost"):
                    rows.append(("end", event.get("text", "")))
    finally:
        link.close()
    assert rows.pop() == ("end", "")
    assert {status for _, status in rows} <= {"passed", "not_verified"}
    assert any(status == "passed" for _, status in rows)
