"""From a save to the first verdict of `infralens watch`, and whether its verdicts are true.

    python benchmarks/watch.py [--labs lab01 ...] [--edits 200] [--truth 200] [--seed 1] [--write]

Each lab is worked on in a copy of the kit with the reference in the learner's place. An edit puts a
misconception of a random task in or takes it out, breaks the syntax, renames a function, or adds a
comment; it is saved as most editors save, by a new file in the place of the old one. Measured is
the time from the file's close to the line of the first verdict, both in pseudo-terminals and in
turns: `infralens watch LAB --plain`, and `watchfiles "pytest -v FOLDER" FOLDER`, which gets one
edit in twenty, because it takes so much longer. Then the warm process's memory (of which what it
shares with nobody) and its processor time in 5 s without a save.

Truth: random edits, some of them three saves in quick succession; the states of all cases as the
warm process gives them are compared with those of a cold `pytest` on the same text.

`--write` puts the tables into `benchmarks/results/watch.md`. Exit status 1: a verdict differed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pty
import random
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import results_page
from cold_start import fresh_kit

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "watch.md"
sys.path.insert(0, str(ROOT))

from grader.lab.manifest import Lab, all_labs, load_lab  # noqa: E402
from grader.learner.watch.link import Link  # noqa: E402
from grader.status import TestStatus  # noqa: E402
from grader.suite.model import load_suite  # noqa: E402

WATCH_VERDICT = re.compile(r"^   (passed|failed|error|not started|not run|[a-z ]+): \w+/", re.M)
PYTEST_VERDICT = re.compile(r" (PASSED|FAILED|SKIPPED|ERROR)\b", re.M)
PYTEST_END = re.compile(r" in [\d.]+s", re.M)
PATIENCE = 120.0
TRUE_LABS = {"lab01": 6, "lab07": 1, "lab09": 2, "lab10": 3, "lab12": 2, "lab04": 1}
"""Labs of the truth check, and how many parts of its edits each gets: a cold run of some takes
long."""


class Edits:
    """An endless row of texts for a lab's files, each with what it is."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab = lab
        self.rng = random.Random(f"{seed} {lab.id}")
        self.references = {
            name: (lab.solution / name).read_text(encoding="utf-8") for name in lab.edit
        }
        self.wrongs = [
            (task, wrong)
            for task in lab.tasks
            for wrong in load_suite(lab).misconceptions_of(task.id)
        ]
        self.is_right = dict.fromkeys(lab.edit, True)

    def next(self) -> tuple[str, str]:
        """A file's name and its next text."""
        task, wrong = self.rng.choice(self.wrongs)
        name, reference = task.file, self.references[task.file]
        if not self.is_right[name]:
            self.is_right[name] = True
            return name, reference
        kind = self.rng.choices(["wrong", "syntax", "rename", "comment"], [8, 1, 1, 1])[0]
        self.is_right[name] = kind == "comment"
        if kind == "wrong":
            return name, wrong.text(reference)
        if kind == "syntax":
            place = self.rng.randrange(len(reference))
            return name, f"{reference[:place]}\n(((\n{reference[place:]}"
        if kind == "rename":
            return name, re.sub(rf"\b{task.id}\b", f"{task.id}_", reference)
        return name, f"{reference}\n{self._comment(name)} {self.rng.random()}\n"

    @staticmethod
    def _comment(name: str) -> str:
        return "//" if name.endswith((".cu", ".h")) else "#"


def save(lab: Lab, name: str, text: str) -> float:
    """Save as most editors do; the time at which the file was closed and in its place."""
    path = lab.exercise / name
    other = path.with_name(f".{name}.tmp")
    other.write_text(text, encoding="utf-8")
    other.replace(path)
    return time.perf_counter()


class Terminal:
    """A command in a pseudo-terminal."""

    def __init__(self, command: Sequence[str], cwd: Path) -> None:
        self.master, slave = pty.openpty()
        kept = {key: value for key, value in os.environ.items() if key not in ("CI", "NO_COLOR")}
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**kept, "PYTHONPATH": str(cwd), "COLUMNS": "120", "TERM": "xterm"},
        )
        os.close(slave)
        self.text = ""

    def wait_for(self, pattern: re.Pattern[str], begin: int = 0) -> float:
        """The time at which a line that matches was there."""
        limit = time.perf_counter() + PATIENCE
        while not pattern.search(self.text, begin):
            if time.perf_counter() > limit:
                raise TimeoutError(f"no {pattern.pattern!r} in:\n{self.text[-3000:]}")
            self.take(0.5)
        return time.perf_counter()

    def take(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        with contextlib.suppress(OSError):
            self.text += os.read(self.master, 1 << 16).decode("utf-8", "replace")
        return True

    def quiet(self, seconds: float) -> None:
        """Read until nothing has come for so long."""
        while self.take(seconds):
            pass

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


@dataclass
class Measured:
    """One lab: seconds from save to verdict, of `watch` and of the other; memory; idle seconds."""

    lab: str
    watch: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)
    memory: int = 0
    own_memory: int = 0
    idle: float = 0.0


def latency(lab: Lab, edits: int, seed: int) -> Measured:
    found = Measured(lab.id)
    source = Edits(lab, seed)
    for name, text in source.references.items():
        save(lab, name, text)
    root, folder = lab.root, f"exercises/{lab.id}"
    warm = Terminal([sys.executable, "-m", "grader.cli", "watch", lab.id, "--plain"], root)
    pytest = f"{sys.executable} -m pytest -v --color=no -p no:cacheprovider {folder}"
    command = [sys.executable, "-m", "watchfiles", "--verbosity", "warning", pytest, folder]
    try:
        warm.wait_for(re.compile(rf"^ +{lab.id}: [\d.]+ of ", re.M))
        for number in range(edits):
            begin = len(warm.text)
            closed = save(lab, *source.next())
            found.watch.append(warm.wait_for(WATCH_VERDICT, begin) - closed)
            # A learner's next save comes later; now and then it comes at once.
            warm.quiet(0.02 if number % 10 == 0 else 0.3)
        pid = _warm_process(warm.process.pid)
        warm.quiet(5.0)
        if pid:
            found.memory, found.own_memory = _memory(pid)
            before = _processor_seconds([pid, warm.process.pid])
            warm.quiet(5.0)
            found.idle = _processor_seconds([pid, warm.process.pid]) - before
    finally:
        warm.close()
    other = Terminal(command, root)
    try:
        other.wait_for(PYTEST_END)
        other.quiet(0.5)
        for _ in range(max(3, edits // 20)):
            begin = len(other.text)
            closed = save(lab, *source.next())
            found.other.append(other.wait_for(PYTEST_VERDICT, begin) - closed)
            other.wait_for(PYTEST_END, begin)
            other.quiet(0.5)
    finally:
        other.close()
    return found


def _warm_process(parent: int) -> int:
    rows = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(parent)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.splitlines()
    pids = [int(row.split()[0]) for row in rows if "grader.learner.watch.warm" in row]
    return pids[0] if pids else 0


def _memory(pid: int) -> tuple[int, int]:
    """Resident bytes, and those that it shares with no other process."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    rows = {row.split(":")[0]: row.split()[1] for row in text.splitlines() if row.endswith("kB")}
    own = int(rows["Private_Clean"]) + int(rows["Private_Dirty"])
    return int(rows["Rss"]) << 10, own << 10


def _processor_seconds(pids: Sequence[int]) -> float:
    total = 0
    for pid in pids:
        rows = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(rows[11]) + int(rows[12])
    return total / os.sysconf("SC_CLK_TCK")


# -- truth


def truth(kit: Path, edits: int, seed: int) -> tuple[int, list[str]]:
    """How many edits were compared, and those whose verdicts differ."""
    parts = sum(TRUE_LABS.values())
    compared, failing, faults = 0, 0, list[str]()
    for lab_id, share in TRUE_LABS.items():
        lab = load_lab(kit, lab_id)
        source = Edits(lab, seed + 1)
        for name, text in source.references.items():
            save(lab, name, text)
        with _linked(lab) as link:
            for number in range(max(1, round(edits * share / parts))):
                for _ in range(3 if number % 4 == 0 else 1):
                    name, text = source.next()
                    save(lab, name, text)
                    asked = link.ask()
                warm = _rows(link, asked)
                cold = _cold(lab)
                compared += 1
                for case in sorted(warm.keys() | cold.keys()):
                    if warm.get(case) != cold.get(case):
                        faults.append(
                            f"{lab_id} edit {number} of {name}: {case}: warm {warm.get(case)}, "
                            f"cold {cold.get(case)}"
                        )
                        print(faults[-1], flush=True)
                failing += not all(cold.values())
        print(f"{lab_id}: {compared} edits so far, {failing} with cases that fail", flush=True)
    if not failing:
        faults.append("no edit failed a case cold: nothing was compared")
    return compared, faults


@contextlib.contextmanager
def _linked(lab: Lab) -> Iterator[Link]:
    link = Link(lab)
    link.start()
    try:
        yield link
    finally:
        link.close()


def _rows(link: Link, number: int) -> dict[str, bool]:
    """Of each case whether it passes, when the round of that number has ended."""
    rows: dict[str, bool] = {}
    while True:
        select.select([link.descriptor], [], [], PATIENCE)
        for event in link.receive():
            if event["event"] == "begin":
                rows = {}
            elif event["event"] == "row":
                rows[event["row"]["case"]] = TestStatus(event["row"]["status"]).is_pass
            elif event["event"] in ("fault", "lost"):
                raise RuntimeError(event["text"])
            elif event["event"] == "end" and event["number"] == number:
                return rows


def _cold(lab: Lab) -> dict[str, bool]:
    with tempfile.TemporaryDirectory() as name:
        report = Path(name) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"--junitxml={report}", f"exercises/{lab.id}"]
        subprocess.run(command, cwd=lab.root, capture_output=True, check=False)
        found = {}
        for row in ElementTree.parse(report).iter("testcase"):
            *_, task = (row.get("classname") or "").split(".")
            passed = all(row.find(tag) is None for tag in ("failure", "error", "skipped"))
            found[f"{lab.id}/{task}/{row.get('name')}"] = passed
        return found


# -- the page


def _millis(rows: Sequence[float], part: float) -> str:
    at = min(len(rows) - 1, int(part * len(rows)))
    return f"{sorted(rows)[at] * 1000:,.0f}"


def page(rows: Sequence[Measured], compared: int, differing: int, how: str) -> list[str]:
    lines = ["# From a save to a verdict", "", results_page.made(how), ""]
    if rows:
        lines += [
            "| lab | edits | watch p50 (ms) | p95 (ms) | watchfiles + pytest p50 (ms) | ratio | "
            "warm process (MB) | its own (MB) | idle CPU in 5 s (s) |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for row in rows:
            ratio = statistics.median(row.other) / statistics.median(row.watch)
            lines.append(
                f"| {row.lab} | {len(row.watch)} | {_millis(row.watch, 0.5)} | "
                f"{_millis(row.watch, 0.95)} | {_millis(row.other, 0.5)} | {ratio:.0f} | "
                f"{row.memory / 1e6:,.0f} | {row.own_memory / 1e6:,.0f} | {row.idle:.2f} |"
            )
        lines.append("")
    if compared:
        lines += [
            f"Truth: {compared} random edits of {', '.join(TRUE_LABS)}; of {differing} the warm "
            "verdict of some case differs from that of a cold `pytest`."
        ]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--labs", nargs="*", default=None)
    parser.add_argument("--edits", type=int, default=200)
    parser.add_argument("--truth", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    names = options.labs if options.labs is not None else [lab.id for lab in all_labs(ROOT)]
    with tempfile.TemporaryDirectory() as folder:
        kit = fresh_kit(Path(folder))
        rows = []
        for name in names if options.edits else []:
            rows.append(latency(load_lab(kit, name), options.edits, options.seed))
            print(page(rows[-1:], 0, 0, "so far")[-2], flush=True)
        compared, faults = truth(kit, options.truth, options.seed) if options.truth else (0, [])
    differing = len({fault.partition(": ")[0] for fault in faults})
    how = f"python benchmarks/watch.py --edits {options.edits} --truth {options.truth}"
    lines = page(rows, compared, differing, how)
    return results_page.told(lines, faults, RESULTS if options.write else None)


if __name__ == "__main__":
    raise SystemExit(main())
