"""The stage that attacks are carried out on: a kit with secrets in it, a class of submissions, and
canaries around both; and the grading run, as an instructor would start it."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import hashlib
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom.gradebook import records
from grader.classroom.gradebook.records import UnitResult
from grader.lab import skeleton
from grader.lab.manifest import load_lab

from .catalogue import LAB_OF, REPORTER, Attack
from .odd import Odd

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
_SET_CHILD_SUBREAPER = 36


def secret(kind: str) -> str:
    """A word that can be recognised wherever it turns up."""
    return f"{kind}-{secrets.token_hex(12)}"


@dataclass
class Stage:
    """Folders and secrets of one run. `known` is what every attacker knows of the machine."""

    root: Path
    token: str = field(default_factory=lambda: secrets.token_hex(4))
    words: dict[str, str] = field(default_factory=dict)
    known: dict[str, object] = field(default_factory=dict)
    boxed: bool = False
    """Whether all of it is in a container of its own, where no attack can harm this machine."""

    @property
    def kit(self) -> Path:
        return self.root / "kit"

    @property
    def submissions(self) -> Path:
        return self.root / "handed-in"

    @property
    def out(self) -> Path:
        return self.root / "run"

    @property
    def key_file(self) -> Path:
        return self.root / "course.key"

    def build(self) -> None:
        self.words = {
            kind: secret(kind) for kind in ("passphrase", "coursekey", "envsecret", "homesecret")
        }
        self.submissions.mkdir(exist_ok=True)
        self.out.mkdir(exist_ok=True)
        self.key_file.write_text(self.words["coursekey"])
        self._kit()

    def _kit(self) -> None:
        for folder, pattern in (
            ("exercises", "lab.toml"),
            ("exercises", "given/*.py"),
            ("solutions", "solution/*.py"),
            ("tests", "suite/*.py"),
        ):
            target = self.kit / folder / "lab91"
            target.mkdir(parents=True, exist_ok=True)
            for file in (HERE / "kit").glob(pattern):
                text = file.read_text(encoding="utf-8")
                text = text.replace("@PASSPHRASE@", self.words["passphrase"])
                (target / file.name).write_text(text, encoding="utf-8")
        for folder in ("exercises", "solutions", "tests"):
            for lab in ("lab01", "lab07"):
                # A diagnosis is no part of a mark, and most of the time that a wrong answer takes.
                leave = shutil.ignore_patterns("__pycache__", "variants", "misconceptions")
                shutil.copytree(ROOT / folder / lab, self.kit / folder / lab, ignore=leave)
        shutil.copy(ROOT / "pyproject.toml", self.kit)
        lab = load_lab(self.kit, "lab91")
        skeleton.write(lab, list(lab.edit))

    # -- submissions

    def hand_in(self, student: str, lab: str, data: bytes | None) -> Path:
        """Write one student's folder; returns the lab's folder in it."""
        folder = self.submissions / student / lab
        folder.mkdir(parents=True, exist_ok=True)
        if data is not None:
            first, *others = load_lab(self.kit, lab).edit
            (folder / first).write_bytes(data)
            for name in others:  # as they were shipped
                shutil.copy(self.kit / "exercises" / lab / name, folder)
        return folder

    def right(self, lab: str) -> str:
        """The reference of a lab, or its first tasks, as a student might have written it."""
        if lab == "lab07":
            return _base("begun07")
        name = load_lab(self.kit, lab).edit[0]
        return (self.kit / "solutions" / lab / name).read_text(encoding="utf-8")

    def armed(self, base: str, code: str, name: str) -> bytes:
        """The submission `base` with an attacker's equipment, and `code` at its end."""
        known = repr({**self.known, "me": name})
        kit = (HERE / "kit" / "equipment.py").read_text(encoding="utf-8")
        parts = [
            _base(base),
            kit.replace('"@KNOWN@"', known),
            f"def {REPORTER[LAB_OF[base]]}(*args, **kwargs):\n"
            '    raise Report(" | ".join(TOLD) or "nothing was tried")\n',
            code,
        ]
        return "\n\n".join(parts).encode()

    def attack(self, attack: Attack, student: str) -> None:
        """Hand in an attack, files beside it and all."""
        taken = "answers.py" not in attack.files
        data = self.armed(attack.base, attack.code, attack.id) if taken else None
        folder = self.hand_in(student, attack.lab, data)
        for name, text in attack.files.items():
            path = Path(os.path.normpath(folder / name))
            path.parent.mkdir(parents=True, exist_ok=True)
            text = text.replace("@KIT@", str(self.kit)).replace("@KEY@", str(self.key_file))
            if text == "(fifo)":
                os.mkfifo(path)
            elif text.startswith("-> "):
                path.symlink_to(text[3:])
            else:
                path.write_text(text, encoding="utf-8")

    def odd(self, odd: Odd, student: str) -> None:
        text = odd.before + self.right(odd.lab) + odd.after
        self.hand_in(student, odd.lab, text.replace("\n", odd.newline).encode(odd.encode))

    # -- the run

    def grade(self, tier: str, patience: float, jobs: int = 2) -> Graded:
        """`infralens grade` as a process of its own, with a secret in its environment."""
        command = [sys.executable, "-m", "grader.cli", "grade", str(self.submissions)]
        command += ["--out", str(self.out), "--jobs", str(jobs), "--tier", tier]
        command += ["--feedback", "names", "--course-key-file", str(self.key_file)]
        temporary = self.root / "tmp"
        temporary.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "INFRALENS_PATIENCE": str(patience),
            "INFRALENS_SECRET": self.words["envsecret"],
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(temporary),
            "COLUMNS": "200",
        }
        done = subprocess.run(
            command, cwd=self.kit, env=environment, capture_output=True, text=True, timeout=900
        )
        found = {}
        for path in sorted(self.out.glob("results/*/*.json")):
            found[path.parent.name] = records.decode(path.read_bytes())
        return Graded(done.returncode, done.stdout + done.stderr, found, list(temporary.iterdir()))


@dataclass
class Graded:
    """What a run left: exit status, what it printed, results by student, temporary files."""

    code: int
    printed: str
    records: dict[str, UnitResult]
    left: list[Path]


def _base(name: str) -> str:
    """The text of a submission that attacks are built on."""
    if name == "half":
        return (HERE / "kit" / "half.py").read_text(encoding="utf-8")
    lab, solved, extra = {
        "partial01": ("lab01", ("simple_ledger", "simple_activation_bytes"), ""),
        "partial07": ("lab07", ("naive_attention",), ""),
        "begun07": ("lab07", ("naive_attention", "online_softmax"), ""),
        "square07": ("lab07", ("naive_attention",), _SQUARE),
        "library07": ("lab07", ("naive_attention",), _LIBRARY),
    }[name]
    file = load_lab(ROOT, lab).edit[0]
    skeleton_ = (ROOT / "exercises" / lab / file).read_text(encoding="utf-8")
    reference = (ROOT / "solutions" / lab / file).read_text(encoding="utf-8")
    functions = [
        ast.get_source_segment(reference, node) or ""
        for node in ast.parse(reference).body
        if isinstance(node, ast.FunctionDef) and node.name in solved
    ]
    return "\n\n\n".join([skeleton_, *functions, extra])


_SQUARE = '''
def flash_forward(q, k, v, block_q, block_k, causal=False, scale=None):
    """Right values, and all S x S scores at once."""
    wide = torch.promote_types(q.dtype, torch.float32)
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1).to(wide) for t in (k, v))
    s = q.to(wide) @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if causal:
        seen = torch.ones(s.shape[-2:], dtype=torch.bool).tril(s.shape[-1] - s.shape[-2])
        s = s.masked_fill(~seen, -math.inf)
    lse = torch.logsumexp(s, -1)
    p = torch.exp(s - lse.masked_fill(lse == -math.inf, 0.0)[..., None])
    return (p @ v).to(q.dtype), lse
'''
_LIBRARY = '''
def flash_forward(q, k, v, block_q, block_k, causal=False, scale=None):
    """The library's own kernel, under the name of the task."""
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    o, lse = kernel(q, k, v, 0.0, causal, scale=scale)
    return o, lse
'''


# -- canaries -------------------------------------------------------------------------------------


class Canaries:
    """Files, a process and listeners that nothing may touch, outside of every unit."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.folders = self._folders()
        self.sockets: dict[str, socket.socket] = {}

    def _folders(self) -> dict[str, Path]:
        made = {"beside": self.stage.submissions / ".beside"}
        made["beside"].mkdir()
        home = Path(os.path.expanduser("~"))
        shared = Path("/dev/shm")
        for name, place in (("home", home), ("tmp", Path("/tmp")), ("shm", shared)):
            parent = place if os.access(place, os.W_OK) else self.stage.root
            made[name] = Path(tempfile.mkdtemp(prefix="infralens-canary-", dir=parent))
        for name, folder in made.items():
            word = self.stage.words["homesecret"] if name == "home" else "a canary"
            (folder / "canary.txt").write_text(word)
        return made

    def open(self) -> None:
        name = f"infralens-canary-{self.stage.token}"
        path = str(self.folders["tmp"] / "line")
        self.process = subprocess.Popen(["sleep", "3600"])
        for kind, family, how, address in (
            ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            ("unix", socket.AF_UNIX, socket.SOCK_STREAM, path),
            ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, f"\0{name}"),
        ):
            made = socket.socket(family, how)
            made.bind(address)
            if how == socket.SOCK_STREAM:
                made.listen(64)
            made.setblocking(False)
            self.sockets[kind] = made
        stage = self.stage
        stage.known = {
            "kit": str(stage.kit),
            "repository": str(ROOT),
            "submissions": str(stage.submissions),
            "out": str(stage.out),
            "key_file": str(stage.key_file),
            **{name: str(folder) for name, folder in self.folders.items()},
            "pid": self.process.pid,
            "pid_namespace": "" if stage.boxed else os.readlink("/proc/self/ns/pid"),
            "tcp": self.sockets["tcp"].getsockname()[1],
            "udp": self.sockets["udp"].getsockname()[1],
            "unix": path,
            "abstract": name,
        }

    def close(self) -> None:
        for made in self.sockets.values():
            made.close()
        self.process.kill()
        self.process.wait()
        for folder in self.folders.values():
            shutil.rmtree(folder, ignore_errors=True)

    def received(self) -> list[str]:
        """What arrived at a listener, with the attack's name where it sent one."""
        found = []
        for kind, made in self.sockets.items():
            while select.select([made], [], [], 0)[0]:
                if made.type == socket.SOCK_DGRAM:
                    found.append(f"{kind}: {made.recv(100)!r}")
                    continue
                line, _ = made.accept()
                with line:
                    line.settimeout(0.5)
                    with contextlib.suppress(OSError):
                        found.append(f"{kind}: {line.recv(100)!r}")
        return found

    def process_state(self) -> str:
        """The canary's state, niceness and limits; it sleeps, at the niceness it was born with."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        limits = Path(f"/proc/{self.process.pid}/limits").read_text()
        return f"{stat[0]} {stat[16]} {hashlib.sha256(limits.encode()).hexdigest()}"

    def files(self) -> dict[str, str]:
        """Every file that nobody may change: canaries, the kit, the submissions, the key, and what
        has the name of an attack in the places where programs start from."""
        places = [*self.folders.values(), self.stage.kit, self.stage.submissions]
        found = {str(self.stage.key_file): _stamp(self.stage.key_file)}
        for place in places:
            for path in sorted(place.rglob("*")):
                # Byte code, and the constants that hypothesis notes, are the suites' own.
                if not {"__pycache__", ".hypothesis"} & set(path.parts):
                    found[str(path)] = _stamp(path)
        for path in strangers():
            found[str(path)] = "was left behind"
        return found


def strangers() -> list[Path]:
    """Files that attacks may have left where they would harm others."""
    import site

    places = [Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/usr/local"), Path("/etc")]
    places += [Path(os.path.expanduser("~")), *map(Path, site.getsitepackages())]
    names = (
        "infralens-answers.txt",
        "hidden",
        "sitecustomize.py",
        "usercustomize.py",
        "msgspec.py",
    )
    found = [place / name for place in places for name in names]
    found += [path for place in places for path in place.glob("infralens-writes-everywhere*")]
    return [path for path in found if path.exists() and not _known(path)]


def _known(path: Path) -> bool:
    """A file of the environment's own (some distributions ship a sitecustomize.py)."""
    return path.name.endswith("customize.py") and "HIJACKED" not in path.read_text(errors="replace")


def _stamp(path: Path) -> str:
    info = path.lstat()
    if path.is_symlink() or not path.is_file():
        return f"{info.st_mode:o}"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{info.st_mode:o} {info.st_nlink} {info.st_mtime_ns} {digest}"


# -- processes ------------------------------------------------------------------------------------


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """For the block, whatever outlives its parent below this process becomes this one's child."""
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        libc.prctl(_SET_CHILD_SUBREAPER, 0)


def descendants(pid: int) -> dict[int, str]:
    """Processes below one that have not ended, by id, with their command lines."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = path.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state != "Z":
                parents.setdefault(int(parent), []).append(int(path.parent.name))
    found: dict[int, str] = {}
    todo = list(parents.get(pid, []))
    while todo:
        child = todo.pop()
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ")
            found[child] = line.decode(errors="replace")
        todo += parents.get(child, [])
    return found


def settled(before: Iterable[int], seconds: float = 5.0) -> dict[int, str]:
    """Descendants that were not there before, once those that are just ending have ended."""
    until = time.monotonic() + seconds
    while True:
        left = {p: line for p, line in descendants(os.getpid()).items() if p not in set(before)}
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.05)


def end(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(pid, 0)
