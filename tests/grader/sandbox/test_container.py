"""The sandbox tier: what student code sees, what it may take, and what happens when it ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grader.errors import Crashed, OverLimit, Refused, StudentError, Timeout, WallFailed
from grader.sandbox import channel, linux, rootfs, seccomp
from grader.sandbox.backends import Limits
from grader.sandbox.client import Session as CallLine
from grader.sandbox.client import Student
from grader.sandbox.container import ResourceLimits
from grader.sandbox.fork_server import ForkServer, ForkServerClient, SandboxBackend
from grader.sandbox.server import CodeSpec
from tests.grader.conftest import HERE, MiniKit, needs_sandbox

pytestmark = needs_sandbox

MIB = 2**20
SMALL = ResourceLimits(
    memory_bytes=200 * MIB, processes=24, file_bytes=8 * MIB, folder_bytes=16 * MIB
)

STUDENT = """
import ctypes, mmap, os, signal, socket, subprocess, sys, threading, time
import numpy as np


def pid(): return os.getpid()
def echo(value): return value
def reads(path): return open(path).read()
def lists(path): return os.listdir(path)
def environment(): return dict(os.environ)
def exits(): os._exit(3)
def killed(): os.kill(os.getpid(), signal.SIGKILL)
def spins():
    while True: pass


def seen():
    return [os.getuid(), os.getpid(), socket.gethostname(), os.getcwd(), os.path.expanduser("~"),
            [int(name) for name in os.listdir("/proc") if name.isdigit()]]


def connects(port):
    with socket.socket() as sock:
        sock.connect(("127.0.0.1", port))


def loops_back():
    with socket.create_server(("localhost", 0)) as server:
        with socket.create_connection(server.getsockname()[:2]) as one:
            other, _ = server.accept()
            one.sendall(b"hello")
            return other.recv(5)


def compiles():
    source = "#include <vector>\\nint main() { return (int)std::vector<int>(7).size(); }"
    open("add.cpp", "w").write(source)
    subprocess.run(["g++", "-O1", "add.cpp", "-o", "add"], check=True)
    return subprocess.run(["./add"]).returncode


def writes(path): open(path, "w").write("x")


def syscall(number, *args):
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in args])
    return [result, ctypes.get_errno()]


def opens(family):
    socket.socket(family, socket.SOCK_RAW if family == 17 else socket.SOCK_STREAM).close()


def takes(mib):
    block = np.ones(mib << 17)
    time.sleep(1)
    return block.nbytes


def takes_in_children(count, mib):
    for _ in range(count):
        if os.fork() == 0:
            block = np.ones(mib << 17)
            time.sleep(30)
            os._exit(0)
    time.sleep(20)


def takes_shared(mib):
    block = mmap.mmap(-1, mib << 20)
    for page in range(0, mib << 20, 4096):
        block[page] = 1
    time.sleep(1)


def shares(mib, count):
    block = np.ones(mib << 17)
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            block.sum()
            time.sleep(0.5)
            os._exit(0)
        pids.append(pid)
    return [os.waitpid(pid, 0)[1] for pid in pids]


def forks_for_ever():
    def bomb():
        while True:
            try:
                if os.fork() == 0: bomb()
            except OSError: time.sleep(0.001)
    bomb()


def forks(count):
    children = []
    try:
        for _ in range(count):
            child = os.fork()
            if child == 0: time.sleep(30); os._exit(0)
            children.append(child)
    finally:
        for child in children: os.kill(child, 9)


def starts_threads(count):
    done = threading.Event()
    try:
        for _ in range(count): threading.Thread(target=done.wait).start()
    finally: done.set()


def fills(mib, files=1):
    for number in range(files):
        with open(f"full{number}", "wb") as file:
            for _ in range(mib): file.write(bytes(1 << 20))


def opens_files(count): return len([open("/dev/null") for _ in range(count)])


def prints(mib):
    for _ in range(mib): print("x" * ((1 << 20) - 1))
    return "done"


def leaves_a_daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in range(64):
                try: os.close(fd)
                except OSError: pass
            time.sleep(60)
        os._exit(0)
    os.wait()
    return True


def orphans(): return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
def remembers(value=None):
    if value: open("/tmp/memory", "w").write(value)
    return os.path.exists("/tmp/memory")


def limits_the_keeper(): import resource; resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))
def kills_the_keeper():
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
        try: os.kill(1, number)
        except OSError: pass
    return os.path.exists("/proc/1")
def draws(): return [float(np.random.rand()), float(np.random.rand())]
def stretches(path):
    with open(path, "r+b") as file: file.truncate(0)
"""


def eventually(check: Callable[[], bool], seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if check():
            return True
        time.sleep(0.02)
    return check()


def spec_of(folder: Path, text: str = STUDENT) -> CodeSpec:
    folder.mkdir(exist_ok=True)
    (folder / "main_file.py").write_text(text, encoding="utf-8")
    return CodeSpec(folder, ("main_file.py",), ())


def student_of(backend: SandboxBackend) -> Student:
    return Student(CallLine(backend, {}, {}))


@pytest.fixture
def opened(fork_server: ForkServer, tmp_path: Path) -> Iterator[Callable[..., SandboxBackend]]:
    """Rooms of the sandbox tier, closed at the end."""
    backends: list[SandboxBackend] = []

    def made(
        seconds: float = 20.0, resource_limits: ResourceLimits = SMALL, text: str = STUDENT
    ) -> SandboxBackend:
        line = ForkServerClient(fork_server.address, resource_limits)
        kit = spec_of(tmp_path / f"lab{len(backends):02}", text)
        backends.append(SandboxBackend(kit, Limits(seconds), line))
        return backends[-1]

    yield made
    for backend in backends:
        backend.close()


@pytest.fixture
def backend(opened: Callable[..., SandboxBackend]) -> SandboxBackend:
    return opened()


@pytest.fixture
def student(backend: SandboxBackend) -> Student:
    return student_of(backend)


# -- what it sees ---------------------------------------------------------------------------------


def test_it_is_nobody_alone_in_a_private_folder(student: Student) -> None:
    uid, pid, host, folder, home, processes = student.seen()
    assert (uid, pid, host) == (rootfs.INSIDE_UID, 2, "localhost")
    assert (folder, home) == (str(rootfs.SCRATCH), str(rootfs.HOME))
    assert processes == [1, 2]


def test_nothing_of_this_machine_is_there(student: Student, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("expected = 42")
    places = [secret, HERE / "tests", HERE / "solutions", HERE / "exercises"]
    for path in (*places, HERE / "grader/classroom", "/etc/shadow", "/sys/kernel", "/var/log"):
        with pytest.raises(StudentError, match="FileNotFoundError"):
            student.lists(str(path))
        with pytest.raises(StudentError, match="PermissionError"):
            student.reads(f"/proc/1/root{path}")
    with contextlib.suppress(StudentError):  # a part of the way to the Python environment, or none
        inside = {Path(path).relative_to(Path.home()).parts[0] for path in _shown_at_home()}
        assert set(student.lists(str(Path.home()))) <= inside


def _shown_at_home() -> list[str]:
    return [path for path in rootfs.plan([]).visible if Path(path).is_relative_to(Path.home())]


def test_the_environment_has_no_secrets(student: Student, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFRALENS_SECRET", "key")
    seen = student.environment()
    assert seen["HOME"] == str(rootfs.HOME)
    assert not any("INFRALENS" in name or "VIRTUAL" in name for name in seen)


def test_the_network_is_a_loopback_of_its_own(student: Student) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(StudentError, match="ConnectionRefusedError"):
            student.connects(server.getsockname()[1])
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert student.loops_back() == b"hello"


@pytest.mark.parametrize("path", ["/usr/x", "/x", "/etc/passwd", "/private/../bin/x", sys.prefix])
def test_the_system_is_read_only(student: Student, path: str) -> None:
    with pytest.raises(StudentError, match=r"Read-only|Permission|IsADirectory"):
        student.writes(path)


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++ here")
def test_a_compiler_works(opened: Callable[..., SandboxBackend]) -> None:
    assert student_of(opened(resource_limits=ResourceLimits())).compiles() == 7


def test_other_kinds_of_sockets_are_refused(student: Student) -> None:
    for family in (17, 38, 40):  # packets, the kernel's ciphers, virtual machines
        with pytest.raises(StudentError, match="Address family not supported"):
            student.opens(family)


@pytest.mark.skipif(linux.machine() != linux.MACHINES["x86_64"], reason="numbers of x86-64")
@pytest.mark.parametrize(
    ("number", "errors"),
    [
        *((number, {1}) for number in (101, 165, 272, 308, 321, 250, 298, 310, 438, 304)),
        *((number, {38}) for number in (319, 425, 435)),
        (29, {1}),
        (0x40000000 + 39, {38}),
    ],
)
def test_calls_around_the_wall_are_refused(student: Student, number: int, errors: set[int]) -> None:
    result, error = student.syscall(number, 0, 0, 0)
    assert result == -1
    assert error in errors


def test_a_new_namespace_is_refused(student: Student) -> None:
    assert student.syscall(56, linux.CLONE_NEWUSER | 17, 0, 0, 0, 0) == [-1, 1]


def test_every_forbidden_number_is_in_the_filter() -> None:
    code = seccomp.program()
    assert len(code) % 8 == 0
    for numbers in (*seccomp._FORBIDDEN.values(), *seccomp._ABSENT.values()):
        number = numbers[list(linux.MACHINES.values()).index(linux.machine())]
        wanted = b"\x15\x00\x00\x01" + number.to_bytes(4, "little")
        assert number < 0 or wanted in code


# -- what it may take -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("takes", (400,), r"took \d+ MiB .* \(limit: 200 MiB\)"),
        ("takes_in_children", (4, 80), r"took \d+ MiB .* \(limit: 200 MiB\)"),
        ("forks_for_ever", (), r"kept \d+ processes and threads alive, .* \(limit: 24\)"),
    ],
)
def test_a_bomb_costs_one_call(
    student: Student, name: str, arguments: tuple[int, ...], said: str
) -> None:
    with pytest.raises(OverLimit, match=said):
        getattr(student, name)(*arguments)
    assert student.echo(1) == 1


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("forks", (60,), r"limit: 24 processes and threads at once"),
        ("starts_threads", (60,), r"limit: 24 processes and threads at once"),
        ("fills", (9,), r"limit: 8 MiB in one file"),
        ("fills", (7, 3), r"limit: 16 MiB in all files"),
        ("takes_shared", (400,), r"PermissionError"),
        ("opens_files", (1000,), r"limit: 256 open files"),
    ],
)
def test_a_limit_is_told(
    student: Student, name: str, arguments: tuple[int, ...], said: str
) -> None:
    with pytest.raises(StudentError, match=said):
        getattr(student, name)(*arguments)
    assert student.echo(1) == 1


def test_memory_that_children_share_counts_once(student: Student) -> None:
    assert student.shares(120, 4) == [0] * 4


def test_an_endless_loop_costs_one_call(opened: Callable[..., SandboxBackend]) -> None:
    student = student_of(opened(0.5))
    with pytest.raises(Timeout, match=r"no answer after 0\.5 s"):
        student.spins()
    assert student.echo(1) == 1


def test_a_flood_of_output_is_capped(backend: SandboxBackend, student: Student) -> None:
    assert student.prints(40) == "done"
    assert len(backend.printed()) == 64 * 1024


# -- how it ends ----------------------------------------------------------------------------------


def test_a_crash_says_how(student: Student) -> None:
    for name, said in [("exits", "with exit status 3"), ("killed", "by SIGKILL")]:
        with pytest.raises(Crashed, match=said):
            getattr(student, name)()
    assert student.echo(1) == 1


def test_nothing_outlives_its_worker(backend: SandboxBackend, student: Student) -> None:
    assert student.leaves_a_daemon()
    assert len(student.orphans()) == 3
    before = _in_namespace_of(backend.pid())
    assert len(before) == 3
    backend.close()
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in before))


def _in_namespace_of(pid: int) -> list[int]:
    mine = os.readlink(f"/proc/{pid}/ns/pid")
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(path / "ns/pid") == mine:
                found.append(int(path.name))
        except OSError:
            continue
    return found


def test_the_next_worker_starts_clean(opened: Callable[..., SandboxBackend]) -> None:
    first = opened()
    assert student_of(first).remembers("answers")
    first.close()
    assert not student_of(opened()).remembers()


def test_workers_draw_different_random_numbers(opened: Callable[..., SandboxBackend]) -> None:
    assert student_of(opened()).draws() != student_of(opened()).draws()


def test_the_keeper_is_out_of_reach(student: Student) -> None:
    assert student.kills_the_keeper()
    with pytest.raises(StudentError, match="PermissionError"):
        student.limits_the_keeper()
    with pytest.raises(StudentError, match="PermissionError"):
        student.lists("/proc/1/fd")


def test_the_pid_is_the_one_that_this_side_sees(backend: SandboxBackend) -> None:
    text = Path(f"/proc/{backend.pid()}/status").read_text()
    assert "NSpid" in text
    assert text.split("NSpid:")[1].split("\n")[0].split()[-1] == "2"


def test_memory_is_read_from_outside(opened: Callable[..., SandboxBackend]) -> None:
    student = student_of(opened(resource_limits=ResourceLimits()))
    student.takes(1)
    with student.peak_memory() as peak:
        student.takes(64)
    assert peak.available
    assert 60 * MIB < peak.growth_bytes < 100 * MIB


def test_killing_the_zygote_is_no_fault_of_the_students(tmp_path: Path) -> None:
    with ForkServer(tmp_path, [], [HERE]) as fork_server:
        fork_server.wait()
        line = ForkServerClient(fork_server.address)
        backend = SandboxBackend(
            spec_of(tmp_path / "lab00", STUDENT.replace("import numpy as np", "")),
            Limits(20.0),
            line,
        )
        student = student_of(backend)
        assert student.echo(1) == 1
        assert fork_server.process is not None
        worker = backend.pid()
        fork_server.process.kill()
        assert eventually(lambda: not Path(f"/proc/{worker}").exists())
        with pytest.raises(WallFailed):
            student.echo(2)
        assert fork_server.revive()
        fork_server.wait()
        assert student.echo(3) == 3
        backend.close()


# -- shared memory --------------------------------------------------------------------------------


def test_big_arrays_come_back_as_they_went(student: Student) -> None:
    for size in (1, channel.BIG_BYTES // 8, 3 * MIB):
        value = np.random.default_rng(size).normal(size=size)
        first, second = student.echo([value, value[::2]])
        np.testing.assert_array_equal(first, value)
        np.testing.assert_array_equal(second, value[::2])
        assert first.flags.writeable


def test_a_buffer_that_somebody_has_is_not_used_again(
    opened: Callable[..., SandboxBackend],
) -> None:
    text = "KEPT = []\ndef keep(x): KEPT.append(x)\ndef kept(): return KEPT\ndef drop(x): pass\n"
    student = student_of(opened(resource_limits=ResourceLimits(), text=text))
    arrays = [np.full(MIB, float(number)) for number in range(4)]
    for array in arrays:
        student.keep(array)
        student.drop(array + 100.0)
    for mine, theirs in zip(arrays, student.kept(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    both = [student.kept()[0], student.kept()[1]]
    assert both[0][0] == 0.0
    assert both[1][0] == 1.0


def test_the_size_of_the_shared_memory_is_fixed() -> None:
    fd = channel.Arena.create()
    try:
        for size in (0, 4 * channel.HALF_BYTES):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
    finally:
        os.close(fd)


@pytest.mark.parametrize("place", [2 * channel.HALF_BYTES, channel.HALF_BYTES - 4, 2**63])
def test_a_place_outside_the_shared_memory_is_refused(place: int) -> None:
    ours, theirs = socket.socketpair()
    mine = channel.Channel(ours, channel.Arena(channel.Arena.create(), trusted=True))
    header = b"\xc0"
    table = channel._BUFFER.pack(8, place)
    theirs.sendall(channel._FRAME.pack(len(header), 1) + table + header)
    with pytest.raises(Refused, match="outside the memory"):
        mine.receive(time.monotonic() + 5)
    mine.close()
    theirs.close()


# -- failing closed -------------------------------------------------------------------------------


GRADE = """
import sys
from grader.sandbox import linux, seccomp
linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1, "no new privileges")
seccomp.install(seccomp.program())
from grader.cli import main
main()
"""


def test_without_namespaces_nothing_is_graded(kit: MiniKit, tmp_path: Path) -> None:
    """A machine that refuses them is made with the wall's own filter."""
    folder = tmp_path / "in" / "alice" / "lab90"
    folder.mkdir(parents=True)
    shutil.copy(kit.solution / "running_mean.py", folder)
    command = [sys.executable, "-c", GRADE, "grade", str(tmp_path / "in")]
    out = tmp_path / "run"
    done = subprocess.run(
        [*command, "--out", str(out), "--tier", "sandbox"],
        cwd=kit.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "nothing was graded" in done.stderr
    assert "infralens probe" in done.stderr
    assert not list((out / "results").glob("**/*.json"))
    default = subprocess.run(
        [*command, "--out", str(out)], cwd=kit.root, capture_output=True, text=True, check=False
    )
    assert default.returncode == 2
    assert "nothing was graded" in default.stderr
    probed = subprocess.run(
        [sys.executable, "-c", GRADE, "probe"], capture_output=True, text=True, check=False
    )
    assert probed.returncode == 0
    # Root keeps the tier that needs no namespaces, where other users can read the environment.
    assert re.search(r"Tier reached: (process|contained)\.", probed.stdout)


def test_hidden_folders_stay_hidden_inside_visible_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kit that lies inside the Python environment, with an environment inside the kit."""
    monkeypatch.setattr(rootfs, "_environment", lambda: [tmp_path, tmp_path / "kit/.venv"])
    plan = rootfs.plan([tmp_path / "kit", tmp_path / "elsewhere" / "run", Path("/nowhere")])
    assert str(tmp_path) in plan.visible
    assert str(tmp_path / "kit/.venv") in plan.visible
    assert plan.hidden == (str(tmp_path / "elsewhere/run"), str(tmp_path / "kit"))


def test_what_a_request_says_is_not_believed(fork_server: ForkServer) -> None:
    """A line that talks nonsense is dropped; the zygote goes on."""
    for data in (b"nonsense", json.dumps({"memory_bytes": 1}).encode()):
        line = ForkServerClient(fork_server.address)
        with pytest.raises(WallFailed):
            _ask(line, data)
    line = ForkServerClient(fork_server.address)
    line.ask(_descriptors())
    assert line.answer() > 0


def _ask(line: ForkServerClient, data: bytes) -> None:
    class Odd(ResourceLimits):
        def packed(self) -> Any:
            return data.decode()

    line.resource_limits = Odd()
    line.ask([])
    line.answer()


def _descriptors() -> list[int]:
    control, init = socket.socketpair()
    data, theirs = socket.socketpair()
    control.detach()
    data.detach()
    return [
        theirs.detach(),
        os.open(os.devnull, os.O_WRONLY),
        init.detach(),
        channel.Arena.create(),
    ]


def test_a_worker_is_forked_ahead_of_need(fork_server: ForkServer, tmp_path: Path) -> None:
    line = ForkServerClient(fork_server.address, ahead=True)
    backend = SandboxBackend(spec_of(tmp_path / "lab00"), Limits(20.0), line)
    student = student_of(backend)
    assert student.echo(1) == 1
    spare = line.spare
    with pytest.raises(Crashed):
        student.exits()
    assert student.echo(2) == 2
    assert backend.worker is spare is not None
    assert line.spare is not spare
    backend.close()
    line.close()


def test_a_spare_that_died_with_its_zygote_is_replaced(tmp_path: Path) -> None:
    with ForkServer(tmp_path, ["numpy"], [HERE]) as fork_server:
        line = ForkServerClient(fork_server.address, ahead=True)
        backend = SandboxBackend(spec_of(tmp_path / "lab00"), Limits(20.0), line)
        assert student_of(backend).echo(1) == 1
        backend.close()
        assert fork_server.process is not None
        fork_server.process.kill()
        fork_server.process.wait()
        assert fork_server.revive()
        assert student_of(backend).echo(2) == 2
        backend.close()
        line.close()


def test_a_signal_to_init_ends_everything(backend: SandboxBackend, student: Student) -> None:
    assert student.echo(1) == 1
    assert backend.worker is not None
    init = backend.worker.init_pid
    pid = backend.pid()
    os.kill(init, signal.SIGKILL)
    assert eventually(lambda: not Path(f"/proc/{pid}").exists())
    with pytest.raises(WallFailed, match="ended from outside"):
        student.echo(2)
    assert student.echo(3) == 3  # the backend goes on with another worker


# -- what labs need -------------------------------------------------------------------------------

PROBES = """
import time

import numpy as np
import torch
import torch.distributed as dist
from multiprocessing import shared_memory

from grader import meters, ranks
from models import Steps


def reduces(student):
    def rank_sum(rank, world_size):
        value = Steps(rank + 1)(torch.zeros(1000))
        dist.all_reduce(value)
        return value

    found = ranks.run(rank_sum, world_size=3, timeout_s=60.0)
    return [float(value[0]) for value in found], found.peak_rss_bytes


def shares(student):
    block = shared_memory.SharedMemory(create=True, size=1 << 20)
    try:
        view = np.ndarray((1 << 17,), buffer=block.buf)
        view[:] = 2.0
        total = float(view.sum())
        del view
        return total
    finally:
        block.close()
        block.unlink()


def measures(student):
    x = torch.ones(256, 256, requires_grad=True)
    with meters.live_bytes() as m:
        (x @ x).sum().backward()
    return m.peak_bytes
"""
MODELS = """
import torch


class Steps(torch.nn.Module):
    def __init__(self, count):
        super().__init__()
        self.count = count

    def forward(self, x):
        return x + self.count
"""


@pytest.fixture(scope="module")
def tensors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Student]:
    """A worker with PyTorch and probes, as labs with tensors and ranks get it."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("tensors")
    with ForkServer(folder, ["numpy", "torch", "grader.meters:preload"], [HERE]) as fork_server:
        fork_server.wait()
        kit = spec_of(folder / "lab00")
        backend = SandboxBackend(
            CodeSpec(kit.folder, kit.edit, (), PROBES, models=MODELS),
            Limits(60.0),
            ForkServerClient(fork_server.address),
        )
        yield student_of(backend)
        backend.close()


def test_ranks_talk_over_gloo_and_are_weighed(tensors: Student) -> None:
    sums, peaks = tensors.probe.reduces()
    assert sums == [6.0, 6.0, 6.0]
    assert all(peak and peak > MIB for peak in peaks)


def test_named_shared_memory_works(tensors: Student) -> None:
    assert tensors.probe.shares() == 2.0 * (1 << 17)


def test_meters_work(tensors: Student) -> None:
    assert tensors.probe.measures() >= 256 * 256 * 4


def test_a_worker_owns_little_beyond_its_zygote(tensors: Student) -> None:
    """The kernel's own count of what is not shared, after a first call."""
    text = Path(f"/proc/{tensors._line.backend.pid()}/smaps_rollup").read_text()
    private = sum(int(row.split()[1]) for row in text.splitlines() if row.startswith("Private_"))
    assert 0 < private < 60 * 1024
