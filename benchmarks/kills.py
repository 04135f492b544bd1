"""What a grading run keeps when it is disturbed: kills at random moments, full disks, lost folders.

    python benchmarks/kills.py [--tier process] [--lab lab90] [--submissions 40] [--kills 50]
                               [--jobs 2] [--seed 1] [--only kills,workers,...] [--write]
                               [--store folder|sqlite|postgresql]

An undisturbed run comes first. Every disturbed one is then started again until it is done, and must
end with the same files byte for byte, `seconds` apart: results, pages for students and `run.json`.
Units that were finished before a kill must not be touched again, no process of a killed run may be
there two seconds later, and nothing may be left in the folder of temporary files. `--lab lab90` is
a mini lab with right, wrong, slow, loud, crashing and endless submissions; `--lab lab01` takes the
kit's own lab. `--store` takes a course's gradebook for a run's folder; with PostgreSQL the server
is killed and started again, too. `--write` puts the figures into `benchmarks/results/kills.md`.
Exit status 1: a fault was found. Linux; full and read-only disks are made with root's rights.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import postgres_server
from kill_stores import DatabaseStore, FolderStore, Stamp, without_seconds

from grader.author.new_lab import new_lab
from grader.classroom.gradebook import records

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "kills.md"
GONE_SECONDS = 2.0
MAX_STARTS = 4
_SET_CHILD_SUBREAPER = 36

# -- submissions ----------------------------------------------------------------------------------

MEAN = """
def running_mean(values):
    {line}
    means, total = [], 0.0
    for count, value in enumerate(values, start=1):
        total += value
        means.append(total / count)
    return means
"""
SPILL = (
    "import tempfile\n"
    "    with tempfile.TemporaryFile(dir='.') as file:\n"
    "        file.write(bytes(2**18))\n"
    "        file.flush()"
)
KINDS = {
    "right": MEAN.format(line="pass"),
    "wrong": MEAN.format(line="values = values[1:]"),
    "off-by-one": MEAN.format(line="pass").replace("start=1", "start=2"),
    "slow": MEAN.format(line="import time; time.sleep(0.3)"),
    "raises": MEAN.format(line="raise KeyError('no such page')"),
    "leaves": MEAN.format(line="import os; os._exit(3)"),
    "aborts": MEAN.format(line="import os; os.abort()"),
    "kills-itself": MEAN.format(line="import os; os.kill(os.getpid(), 9)"),
    "loud": MEAN.format(line="print('x' * 300_000)"),
    "spills": MEAN.format(line=SPILL),
    "broken": "def running_mean(values:\n",
    "slow-import": "import time\ntime.sleep(0.5)\n" + MEAN.format(line="pass"),
}
ENDLESS = MEAN.format(line="while True: pass")
STUBBORN = """
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
"""


@dataclass
class Course:
    """A kit, a folder of submissions, and how they are graded."""

    folder: Path
    kit: Path
    lab: str
    tier: str
    jobs: int
    store: FolderStore | DatabaseStore = field(default_factory=FolderStore)
    expected: dict[str, bytes] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def submissions(self) -> Path:
        return self.folder / "submissions"

    @property
    def temporary(self) -> Path:
        return self.folder / "temporary"

    @property
    def said(self) -> str:
        return (self.folder / "said.txt").read_text(encoding="utf-8", errors="replace")

    def start(self, run: Path, **environment: str) -> subprocess.Popen[bytes]:
        """`infralens grade`, its output in a file: a pipe could be held open by what it leaves."""
        self.temporary.mkdir(exist_ok=True)
        arguments = ["grade", *self.store.arguments(run, self.submissions, self.lab)]
        arguments += ["--jobs", str(self.jobs), "--tier", self.tier]
        with (self.folder / "said.txt").open("wb") as said:
            return subprocess.Popen(
                [sys.executable, "-m", "grader.cli", *arguments],
                cwd=self.kit,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(self.temporary), "COLUMNS": "100", **environment},
            )

    def finish(self, run: Path, **environment: str) -> tuple[int, float]:
        """Start and wait for the end: exit status and seconds."""
        started = time.perf_counter()
        code = self.start(run, **environment).wait()
        return code, time.perf_counter() - started

    def fresh_run(self, name: str) -> Path:
        run = self.folder / name
        self.store.fresh(run, self.kit, self.submissions, self.lab)
        return run


def make_course(folder: Path, lab: str, count: int, tier: str, jobs: int) -> Course:
    """A class of `count` students; each one's file is another, so that no result is another's."""
    if lab == "lab90":
        kit = folder / "kit"
        new_lab(kit, lab)
        manifest = kit / "exercises" / lab / "lab.toml"
        text = manifest.read_text(encoding="utf-8")
        manifest.write_text(text.replace("call_seconds = 5", "call_seconds = 2"), encoding="utf-8")
        shutil.copy(ROOT / "pyproject.toml", kit)
        kinds = [{"running_mean.py": text} for text in KINDS.values()]
        names = list(KINDS)
    else:
        kit, (names, kinds) = ROOT, _kinds_of(lab)
    course = Course(folder, kit, lab, tier, jobs)
    for number in range(count):
        name, files = names[number % len(names)], kinds[number % len(names)]
        if lab == "lab90" and count >= 20 and number == count // 2:
            name, files = "endless", {"running_mean.py": ENDLESS}
        place = course.submissions / f"{number:02d}-{name}" / lab
        place.mkdir(parents=True)
        for file, text in files.items():
            (place / file).write_text(f"{text}\n# {number}\n", encoding="utf-8")
    return course


def _kinds_of(lab: str) -> tuple[list[str], list[dict[str, str]]]:
    """The reference, the untouched skeletons, the variants, and two that end the process."""
    folders = {"right": ROOT / "solutions" / lab, "untouched": ROOT / "exercises" / lab}
    folders |= {path.name: path for path in sorted((ROOT / "tests" / lab / "variants").iterdir())}
    kinds: dict[str, dict[str, str]] = {}
    for name, folder in folders.items():
        texts = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
        kinds[name] = texts
    kinds["leaves"] = {
        name: f"{text}\nimport os\nos._exit(1)" for name, text in kinds["right"].items()
    }
    return list(kinds), list(kinds.values())


# -- processes ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    state: str
    started: int
    command: str

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        up = float(Path("/proc/uptime").read_text().split()[0])
        return up - self.started / os.sysconf("SC_CLK_TCK")


def all_processes() -> dict[int, Process]:
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            rest = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            pid = int(path.name)
            found[pid] = Process(pid, int(rest[1]), rest[0], int(rest[19]), command)
    return found


def below(top: int) -> list[Process]:
    """Living processes that descend from one. This process adopts orphans, so that whatever a
    killed run leaves is below this process for as long as it lives."""
    table = all_processes()
    families: dict[int, list[Process]] = {}
    for process in table.values():
        families.setdefault(process.parent, []).append(process)
    found, waiting = [], [top]
    while waiting:
        children = families.get(waiting.pop(), [])
        waiting += [child.pid for child in children]
        found += [child for child in children if child.state not in "ZX"]
    return found


def adopt_orphans() -> None:
    if ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1) != 0:
        raise OSError("this system does not let a process adopt orphans: Linux is needed")


def survivors() -> tuple[float, list[str]]:
    """Wait until nothing is left of a killed run: the seconds that it took, and what had to be
    ended by hand after `GONE_SECONDS`."""
    started = time.monotonic()
    while left := [p for p in below(os.getpid()) if "postgres" not in p.command]:
        _reap()
        if time.monotonic() - started > GONE_SECONDS:
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            return GONE_SECONDS, [process.command or f"pid {process.pid}" for process in left]
        time.sleep(0.01)
    _reap()
    return time.monotonic() - started, []


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def of_role(role: str, coordinator: int) -> list[Process]:
    """The jobs, zygotes or workers of a run."""
    found = below(coordinator)
    by_pid = {process.pid: process for process in found}

    def is_of(process: Process) -> bool:
        parent = by_pid.get(process.parent)
        if "grader.sandbox.zygote" in process.command:
            forked = parent is not None and "grader.sandbox.zygote" in parent.command
            return role == ("worker" if forked else "zygote")
        if "grader.sandbox.worker" in process.command:
            return role == "worker"
        return role == "job" and process.parent == coordinator

    return [process for process in found if is_of(process)]


# -- what must hold -------------------------------------------------------------------------------


def half_done(course: Course, run: Path) -> list[str]:
    """Faults in what an ended run has left: results must be whole, expected and right."""
    found = course.store.faults(run)
    for name in course.store.stamps(run):
        try:
            data = course.store.data(run, name)
            records.decode(data)
        except records.InvalidResult as error:
            found.append(f"{name} is damaged: {error}")
            continue
        if name not in course.expected:
            found.append(f"{name} is not a result of this run")
        elif _compared(data) != _compared(course.expected[name]):
            found.append(f"{name} is not the undisturbed run's: {_first_difference(course, data)}")
    return found


def _compared(data: bytes) -> object:
    """A result without its seconds and whatever is only a matter of form."""
    return json.loads(without_seconds(data))


def _first_difference(course: Course, data: bytes) -> str:
    now = records.decode(data)
    name = f"results/{now.student}/{now.lab}.json"
    then = records.decode(course.store.data(course.folder / "undisturbed", name))
    for mine, other in zip(now.tests, then.tests, strict=False):
        if (mine.status, mine.message) != (other.status, other.message):
            return f"{mine.id} {other.status} -> {mine.status}: {mine.message[:200]!r}"
    return f"notes {then.notes} -> {now.notes}"


def different(course: Course, run: Path) -> list[str]:
    """Names of files that are not what an undisturbed run leaves."""
    found, expected = course.store.files(run), course.expected
    return sorted(
        name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)
    )


def complete(course: Course, run: Path, stamps: dict[str, Stamp]) -> list[str]:
    """Faults of a run that is done: the files, units graded twice, things left behind."""
    found = [f"{name} differs from the undisturbed run's" for name in different(course, run)]
    now = course.store.stamps(run)
    found += [
        f"{name} was graded twice" for name, stamp in stamps.items() if now.get(name) != stamp
    ]
    found += course.store.faults(run)
    left = sorted(path.name for path in course.temporary.iterdir())
    found += [f"{name} is left in the folder of temporary files" for name in left]
    _, alive = survivors()
    return found + [f"a process outlives its run: {command}" for command in alive]


# -- kills of the coordinator ---------------------------------------------------------------------


@dataclass
class Kill:
    """One kill. `share`: its moment as a share of the undisturbed run's time."""

    share: float
    finished: int
    gone_seconds: float
    partial: int
    first_seconds: float = 0.0
    recovery_seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


def kill_coordinator(course: Course, kills: int, rng: random.Random) -> list[Kill]:
    """Kill it at moments drawn uniformly from an undisturbed run's time. After every second kill,
    on average, the next start is killed too before one is let to its end."""
    done: list[Kill] = []
    while len(done) < kills:
        run = course.fresh_run("killed")
        mine = [kill for kill in [_kill_once(course, run, rng)] if kill]
        while mine and rng.random() < 0.5 and len(done) + len(mine) < kills:
            if (again := _kill_once(course, run, rng)) is None:
                break
            mine.append(again)
        if not mine:
            continue
        _recover(course, run, mine[-1])
        done += mine
        print(".", end="", flush=True)
    print()
    return done


def _kill_once(course: Course, run: Path, rng: random.Random) -> Kill | None:
    """None if the run had ended before its moment came."""
    share = rng.random()
    stamps = course.store.stamps(run)
    running = course.start(run)
    try:
        running.wait(share * course.seconds)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
    else:
        survivors()
        return None
    gone, alive = survivors()
    now = course.store.stamps(run)
    partial = sum(path.name.startswith(".") for path in run.rglob("*.partial"))
    kill = Kill(share, len(now), gone, partial, faults=half_done(course, run))
    kill.faults += [f"alive after {GONE_SECONDS:g} s: {command}" for command in alive]
    kill.faults += [f"{p} was graded twice" for p, stamp in stamps.items() if now.get(p) != stamp]
    return kill


def _recover(course: Course, run: Path, kill: Kill) -> None:
    stamps = course.store.stamps(run)
    started = time.perf_counter()
    running = course.start(run)
    while running.poll() is None:
        if not kill.first_seconds and len(course.store.stamps(run)) > len(stamps):
            kill.first_seconds = time.perf_counter() - started
        time.sleep(0.02)
    kill.recovery_seconds = time.perf_counter() - started
    if running.returncode != 0:
        kill.faults.append(f"the next start ended with {running.returncode}: {course.said}")
    if (known := _known(course)) != len(stamps):
        kill.faults.append(f"{len(stamps)} were finished, but {known} were known")
    kill.faults += complete(course, run, stamps)


def _known(course: Course) -> int | None:
    """How many units the last start did not grade again, by its own word."""
    if course.store.name == "folder":
        known = re.search(r"(\d+) known already", course.said)
        return int(known[1]) if known else None
    count = sum(1 for _ in course.submissions.iterdir())
    if "Every attempt has a result" in course.said:
        return count
    planned = re.search(r"(\d+) attempts?: ", course.said)
    return count - int(planned[1]) if planned else None


# -- other disturbances ---------------------------------------------------------------------------


@dataclass
class Row:
    """What one kind of disturbance did. `starts`: of the command until all was done; `listed`:
    units that a start named as without a result."""

    name: str
    times: int = 0
    starts: int = 0
    listed: int = 0
    faults: list[str] = field(default_factory=list)
    note: str = ""


def to_the_end(course: Course, run: Path, row: Row) -> None:
    """Start until a run ends with 0, without a disturbance; then everything must be as it should
    be. A unit without a result must not have a mark."""
    row.faults += half_done(course, run)
    stamps = course.store.stamps(run)
    for _ in range(MAX_STARTS):
        row.starts += 1
        code, _ = course.finish(run)
        if code == 0:
            row.faults += complete(course, run, stamps)
            return
    row.faults.append(f"not done after {MAX_STARTS} more starts: {course.said[-500:]}")


def _note_listed(course: Course, run: Path, row: Row) -> None:
    if isinstance(course.store, DatabaseStore):
        listed = re.findall(r"^No result for (\S+) of (.+?): ", course.said, re.MULTILINE)
        row.listed += len(listed)
        there = course.store.stamps(run)
        for lab, student in listed:
            if f"results/{student}/{lab}.json" in there:
                row.faults.append(f"{student} is listed and has a mark")
        return
    with contextlib.suppress(OSError, ValueError):
        for unit in json.loads((run / "run.json").read_text(encoding="utf-8"))["failed"]:
            row.listed += 1
            if (run / "results" / unit["student"] / f"{unit['lab']}.json").exists():
                row.faults.append(f"{unit['student']} is listed and has a mark")


def kill_others(
    course: Course, role: str, runs: int, pause: tuple[float, float], rng: random.Random
) -> Row:
    """SIGKILL for processes of a role, one after another, for as long as the run goes on."""
    row = Row(f"SIGKILL of a {role}")
    for _ in range(runs):
        run = course.fresh_run("others")
        running = course.start(run)
        row.starts += 1
        while _sleep(running, rng.uniform(*pause)):
            if victims := of_role(role, running.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(victims).pid, signal.SIGKILL)
                    row.times += 1
        if running.returncode not in (0, 3):
            row.faults.append(f"the run ended with {running.returncode}: {course.said[-500:]}")
        _note_listed(course, run, row)
        to_the_end(course, run, row)
    if not row.times:
        row.note = "there was none to kill"
    return row


def _sleep(running: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait; whether the run goes on."""
    try:
        running.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def stop_workers(course: Course, rng: random.Random) -> Row:
    """SIGSTOP for a worker in the middle of a slow call: the deadline must end it, and only its
    own unit may notice."""
    row = Row("SIGSTOP of a worker")
    run = course.fresh_run("stopped")
    running = course.start(run)
    row.starts += 1
    stopped: set[int] = set()
    while _sleep(running, 0.1):
        # A worker of that age is past its imports, whose deadline is a long one.
        workers = of_role("worker", running.pid)
        keepers = {process.parent for process in workers}
        victims = [p for p in workers if 1.0 < p.age < 1.6 and p.pid not in keepers]
        for process in victims[: max(0, 2 - len(stopped))]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGSTOP)
                stopped.add(process.pid)
    row.times = len(stopped)
    if running.returncode != 0:
        row.faults.append(f"the run ended with {running.returncode}: {course.said[-500:]}")
    changed = [name for name in different(course, run) if name.startswith("results/")]
    timed_out = [name for name in changed if b'"timeout"' in course.store.data(run, name)]
    row.faults += [f"{name} differs without a timeout" for name in changed if name not in timed_out]
    if len(changed) > len(stopped):
        row.faults.append(f"{len(stopped)} were stopped, and {len(changed)} results differ")
    row.faults += [f"a process outlives its run: {command}" for command in survivors()[1]]
    row.note = f"{len(timed_out)} units with a timeout"
    return row


def kill_at_a_start(course: Course, rng: random.Random) -> Row:
    """SIGKILL of the coordinator in the first moments of a zygote, or of a worker whose import
    never ends: they must notice even if they come to life after its death."""
    row = Row("SIGKILL of the coordinator while a zygote or worker starts")
    alone = replace(course, folder=course.folder / "alone")
    place = alone.submissions / "stubborn" / course.lab
    place.mkdir(parents=True)
    manifest = tomllib.loads((course.kit / "exercises" / course.lab / "lab.toml").read_text())
    for name in manifest["edit"]:
        (place / name).write_text(STUBBORN, encoding="utf-8")
    roles = ["zygote", "worker"] if course.tier == "sandbox" else ["worker"]
    for role in roles * 12:
        run = alone.fresh_run("run")
        running = alone.start(run)
        row.starts += 1
        while not of_role(role, running.pid) and _sleep(running, 0.005):
            pass
        _sleep(running, rng.uniform(0.0, 0.15))
        running.kill()
        running.wait()
        row.times += 1
        row.faults += [f"alive after {GONE_SECONDS:g} s: {left}" for left in survivors()[1]]
        row.faults += [f"{name} is a result" for name in course.store.stamps(run)]
    return row


def fill_disk_of_the_run(course: Course, rng: random.Random) -> Row:
    """A disk that is full after some results, or after some pages for students, and at a start;
    then there is space again."""
    row = Row("full disk of the run's folder")
    whole = sum(-(-len(data) // 4096) * 4 for data in course.expected.values())
    before = []
    for share in (0.2, 0.75):
        with small_disk(course.folder / "disk", f"{share * whole:.0f}k") as disk:
            run = disk / "run"
            for _ in range(2):
                row.times += 1
                row.starts += 1
                code, _ = course.finish(run)
                if code != 3 or "No space left" not in course.said or "Traceback" in course.said:
                    row.faults.append(f"a full disk gave {code}: {course.said[-500:]}")
                left = [path.name for path in course.temporary.iterdir()]
                row.faults += [f"{name} is left in the folder of temporary files" for name in left]
                _fill(disk)
            before.append(f"{len(course.store.stamps(run))}")
            (disk / "filler").unlink()
            _mount("remount,size=64m", disk)
            to_the_end(course, run, row)
    row.note = f"{' and '.join(before)} results before it was full"
    return row


def _fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))


def fill_disk_of_temporary_files(course: Course, rng: random.Random) -> Row:
    """The disk of temporary files fills up in the middle of a run; then there is space again."""
    row = Row("full disk of the temporary files", times=1, starts=1)
    with small_disk(course.folder / "disk", "24m") as disk:
        run = course.fresh_run("tempfull")
        running = course.start(run, TMPDIR=str(disk))
        while not course.store.stamps(run) and _sleep(running, 0.05):
            pass
        _fill(disk)
        row.note = f"{len(course.store.stamps(run))} results before it was full"
        running.wait()
        if running.returncode not in (0, 3):
            row.faults.append(f"a full disk gave {running.returncode}: {course.said[-500:]}")
        _note_listed(course, run, row)
        left = [path.name for path in disk.iterdir() if path.name != "filler"]
        row.faults += [f"{name} is left in the folder of temporary files" for name in left]
    to_the_end(course, run, row)
    return row


def make_run_read_only(course: Course, rng: random.Random) -> Row:
    """Nothing can be made in the run's folder any more, in the middle of a run and at a start."""
    row = Row("read-only run folder", times=2, starts=2)
    run = course.fresh_run("readonly")
    running = course.start(run)
    while not course.store.stamps(run) and _sleep(running, 0.02):
        pass
    with immutable(run / "results"):
        running.wait()
        if running.returncode != 3 or "not permitted" not in course.said:
            row.faults.append(f"it ended with {running.returncode}: {course.said[-500:]}")
        row.note = f"{len(course.store.stamps(run))} results before"
        code, _ = course.finish(run)
        if code != 2 or "cannot be written to" not in course.said:
            row.faults.append(f"a start there ended with {code}: {course.said[-500:]}")
    to_the_end(course, run, row)
    return row


def remove_submissions(course: Course, rng: random.Random) -> Row:
    """Every folder of a submission disappears while the first ones are graded."""
    row = Row("submissions removed while they are graded", starts=1)
    run, aside = course.fresh_run("removed"), course.folder / "aside"
    shutil.copytree(course.submissions, aside)
    running = course.start(run)
    while not course.store.stamps(run) and _sleep(running, 0.05):
        pass
    for path in course.submissions.iterdir():
        shutil.rmtree(path)
        row.times += 1
    running.wait()
    shutil.copytree(aside, course.submissions, dirs_exist_ok=True)
    shutil.rmtree(aside)
    if running.returncode != 0:
        row.faults.append(f"the run ended with {running.returncode}: {course.said[-500:]}")
    row.faults += complete(course, run, {})
    to_the_end(course, run, row)
    return row


def two_coordinators(course: Course, rng: random.Random) -> Row:
    """A second run in the same folder is refused in a sentence, and the first one goes on."""
    row = Row("two coordinators in one folder", times=1, starts=2)
    run = course.fresh_run("shared")
    first = course.start(run)
    while not course.store.stamps(run) and _sleep(first, 0.02):
        pass
    first.send_signal(signal.SIGSTOP)  # so that it does not end meanwhile
    code, _ = course.finish(run)
    first.send_signal(signal.SIGCONT)
    if code != 2 or "Another run is at work" not in course.said:
        row.faults.append(f"the second ended with {code}: {course.said[-500:]}")
    if first.wait() != 0:
        row.faults.append(f"the first ended with {first.returncode}")
    row.faults += complete(course, run, {})
    to_the_end(course, run, row)
    return row


def kill_the_server(course: Course, rng: random.Random) -> Row:
    """The database's server is killed in the middle of a run and started again: the run ends with
    a sentence, and the next one goes on."""
    row = Row("SIGKILL of the database's server")
    assert isinstance(course.store, DatabaseStore)
    server = course.store.server
    assert server is not None
    for _ in range(10):
        run = course.fresh_run("served")
        running = course.start(run)
        row.starts += 1
        _sleep(running, rng.uniform(0.1, 0.9) * course.seconds)
        server.kill()
        row.times += 1
        running.wait()
        if running.returncode not in (0, 2, 3) or "Traceback" in course.said:
            row.faults.append(f"it ended with {running.returncode}: {course.said[-500:]}")
        if running.returncode and "start it" not in course.said:
            row.faults.append(f"it did not say what to do: {course.said[-500:]}")
        row.faults += [f"alive after {GONE_SECONDS:g} s: {left}" for left in survivors()[1]]
        server.start()
        to_the_end(course, run, row)
    return row


# -- small disks ----------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "kills", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def immutable(folder: Path) -> Iterator[None]:
    """A folder in which not even root can make a file. A disk that is written to cannot be mounted
    read-only."""
    subprocess.run(["chattr", "+i", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", str(folder)], check=True)


def _mount(options: str, folder: Path) -> None:
    subprocess.run(["mount", "-o", options, str(folder)], check=True)


# -- all of it, and the page ----------------------------------------------------------------------

Disturb = Callable[[Course, random.Random], Row]
OTHERS: dict[str, Disturb] = {
    "jobs": lambda course, rng: kill_others(course, "job", 3, (0.8, 2.0), rng),
    "workers": lambda course, rng: kill_others(course, "worker", 3, (0.6, 1.5), rng),
    "zygotes": lambda course, rng: kill_others(course, "zygote", 3, (1.0, 3.0), rng),
    "starting": kill_at_a_start,
    "stop": stop_workers,
    "disk": fill_disk_of_the_run,
    "temporary": fill_disk_of_temporary_files,
    "read-only": make_run_read_only,
    "remove": remove_submissions,
    "two": two_coordinators,
    "server": kill_the_server,
}
OF_FOLDERS = ("disk", "temporary", "read-only", "remove", "stop", "starting")
"""What is about a run's folder, or about the grading of units, which no store has a part in."""
NEEDS_ROOT = ("disk", "temporary", "read-only")


def measure(course: Course, only: list[str], kills: int, seed: int) -> tuple[list[Kill], list[Row]]:
    rng = random.Random(seed)
    undisturbed = course.fresh_run("undisturbed")
    code, course.seconds = course.finish(undisturbed)
    if code != 0:
        raise SystemExit(f"The undisturbed run ended with {code}:\n{course.said}")
    course.expected = course.store.files(undisturbed)
    print(f"{course.lab}, tier {course.tier}: undisturbed {course.seconds:.1f} s", flush=True)
    again = course.fresh_run("again")
    course.finish(again)
    if names := different(course, again):
        raise SystemExit(f"Two undisturbed runs differ: {', '.join(names)}")
    done = kill_coordinator(course, kills, rng) if "kills" in only else []
    rows = []
    for name, disturb in OTHERS.items():
        if name not in only or (name in NEEDS_ROOT and os.geteuid() != 0):
            continue
        if name in OF_FOLDERS and course.store.name != "folder":
            continue
        if name == "server" and course.store.name != "postgresql":
            continue
        rows.append(disturb(course, rng))
        print(f"{rows[-1].name}: {rows[-1].times}, {len(rows[-1].faults)} faults", flush=True)
    return done, rows


def sections(course: Course, kills: list[Kill], rows: list[Row], call: str) -> list[str]:
    """The page's parts that this run makes anew."""
    count = sum(name.startswith("results/") for name in course.expected)
    head = [
        "",
        f"`{call}`, {time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, torch "
        f"{version('torch')}, {platform.system()} {platform.machine()}. {count} submissions, "
        f"{course.jobs} jobs; undisturbed {course.seconds:.1f} s.",
        "",
    ]
    name = f"{course.lab}, tier {course.tier}"
    if course.store.name != "folder":
        name += f", gradebook on {course.store.name}"
    made = []
    if kills:
        made.append([f"## {name}: kills of the coordinator", *head, *_kills_table(kills, count)])
    if rows:
        made.append([f"## {name}: other disturbances", *head, *_rows_table(rows)])
    return ["\n".join(lines) for lines in made]


def _rows_table(rows: list[Row]) -> list[str]:
    lines = [
        "| disturbance | times | starts until done | units listed | faults | |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        parts = (row.name, row.times, row.starts, row.listed, len(row.faults), row.note)
        lines.append(f"| {' | '.join(map(str, parts))} |")
    return lines


def _kills_table(kills: list[Kill], count: int) -> list[str]:
    ended = [kill for kill in kills if kill.recovery_seconds]
    first = [kill.first_seconds for kill in ended if kill.first_seconds]
    faults = sum(len(kill.faults) for kill in kills)
    shares = [kill.finished / count for kill in kills]
    lines = [
        f"SIGKILL of the coordinator, {len(kills)} times: {faults} faults, "
        f"{sum(kill.partial for kill in kills)} files half written under a temporary name. "
        f"Finished units at a kill: {min(shares):.0%} to {max(shares):.0%} of all, median "
        f"{statistics.median(shares):.0%}. All processes gone after at most "
        f"{max(kill.gone_seconds for kill in kills):.2f} s.",
    ]
    if first:
        lines[-1] += (
            f" First new result {statistics.median(first):.2f} s after the next start (median), "
            f"at most {max(first):.2f} s."
        )
    lines += [
        "",
        "| kill | moment, share of the run | units finished before | next start, until done (s) "
        "| faults |",
        "|---|---|---|---|---|",
    ]
    for number, kill in enumerate(kills, start=1):
        after = f"{kill.recovery_seconds:.1f}" if kill.recovery_seconds else "killed again"
        lines.append(
            f"| {number} | {kill.share:.2f} | {kill.finished} of {count} | {after} "
            f"| {len(kill.faults)} |"
        )
    return lines


def write(made: list[str]) -> None:
    """Put sections into the page; those of the same names go."""
    parts = []
    if RESULTS.exists():
        parts = RESULTS.read_text(encoding="utf-8").split("\n## ")[1:]
    made = [text.removeprefix("## ") for text in made]
    names = {text.partition("\n")[0] for text in made}
    kept = [part.rstrip() for part in parts if part.partition("\n")[0] not in names]
    RESULTS.parent.mkdir(exist_ok=True)
    page = "\n\n## ".join([f"# Grading runs that are disturbed\n\n{INTRO}", *sorted(kept + made)])
    RESULTS.write_text(page + "\n", encoding="utf-8")


INTRO = (
    "After every disturbance the same command is started again. In the end each file of the run "
    "must be that of an undisturbed run byte for byte, `seconds` apart; every other difference, a "
    "unit graded twice, a process that outlives its run by 2 s and anything left in the folder of "
    "temporary files is a fault."
)


@contextlib.contextmanager
def store_of(kind: str) -> Iterator[FolderStore | DatabaseStore]:
    if kind == "folder":
        yield FolderStore()
    elif kind == "sqlite":
        yield DatabaseStore()
    elif why := postgres_server.missing():
        raise SystemExit(why)
    else:
        with postgres_server.PostgresServer() as server:
            yield DatabaseStore(server)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tier", default="process")
    parser.add_argument("--lab", default="lab90")
    parser.add_argument("--submissions", type=int, default=40)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(["kills", *OTHERS]))
    parser.add_argument("--store", choices=["folder", "sqlite", "postgresql"], default="folder")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    only = options.only.split(",")
    if unknown := set(only) - {"kills", *OTHERS}:
        parser.error(f"--only names {sorted(unknown)}; there are: kills, {', '.join(OTHERS)}")
    adopt_orphans()
    with (
        store_of(options.store) as store,
        tempfile.TemporaryDirectory(prefix="kills-") as name,
    ):
        course = make_course(
            Path(name), options.lab, options.submissions, options.tier, options.jobs
        )
        course.store = store
        kills, rows = measure(course, only, options.kills, options.seed)
    call = " ".join(["python", "benchmarks/kills.py", *sys.argv[1:]])
    made = sections(course, kills, rows, call)
    print("\n\n".join(made))
    if options.write:
        write(made)
    faults = [f"kill {n}: {text}" for n, kill in enumerate(kills, 1) for text in kill.faults]
    faults += [f"{row.name}: {text}" for row in rows for text in row.faults]
    for text in faults:
        print(f"FAULT {text}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
