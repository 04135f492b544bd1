"""Cases of the tier `contained`, which `test_contained` runs with pytest in a made container."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grader.errors import Crashed, OverLimit, StudentError, WallFailed
from grader.sandbox import contained, linux, worker_users
from grader.sandbox.backends import Limits
from grader.sandbox.client import Session as CallLine
from grader.sandbox.client import Student
from grader.sandbox.codec import Side
from grader.sandbox.container import ResourceLimits
from grader.sandbox.fork_server import ContainedBackend, ForkServer, ForkServerClient
from grader.sandbox.server import CodeSpec

MIB = 2**20
SMALL = ResourceLimits(
    memory_bytes=200 * MIB, processes=24, file_bytes=8 * MIB, folder_bytes=16 * MIB
)
STUDENT = """
import os, signal, socket, subprocess, time

def me(): return [os.getuid(), os.geteuid(), os.getgid(), os.getgroups(), os.getcwd()]
def pid(): return os.getpid()
def reads(path): return open(path).read()
def writes(path): open(path, "w").write("x")
def opens(family, kind): socket.socket(family, kind).close()
def pairs(kind): return [s.close() for s in socket.socketpair(socket.AF_UNIX, kind)]
def connects(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5): return True
def loops_back():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()[:2]) as one:
            server.accept()[0].close()
            return True
def signals(pid): os.kill(pid, signal.SIGKILL)
def asks(number, *values):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    return [libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, values)), ctypes.get_errno()]
def hides():
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    return [libc.prctl(4, 0, 0, 0, 0), ctypes.get_errno()]
def leaves_daemons(count):
    for _ in range(count):
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if os.fork() == 0:
                for fd in range(3, 64):
                    try: os.close(fd)
                    except OSError: pass
                time.sleep(600)
            os._exit(0)
        os.wait()
def forks_away():
    # One that is always just being born somewhere else.
    if os.fork() == 0:
        os.setsid()
        until = time.monotonic() + 600
        while time.monotonic() < until:
            try:
                if os.fork(): os._exit(0)
            except OSError: pass
        os._exit(0)
def deep():
    for _ in range(3000):
        os.mkdir("a"); os.chdir("a")
    os.chdir("/")
    time.sleep(5)
def keeps_deleted():
    files = []
    for number in range(8):
        file = open(f"gone{number}", "wb", 0)
        os.unlink(f"gone{number}")
        for _ in range(4): file.write(bytes(1 << 20))
        files.append(file)
    time.sleep(30)
def takes(mib):
    block = bytearray(mib << 20)
    time.sleep(1)
    return len(block)
def runs(*command): return subprocess.run(command, capture_output=True, text=True).returncode
"""


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    folder = tmp_path_factory.mktemp("zygote")
    with ForkServer(folder, ["numpy"], [folder], tier="contained") as made:
        made.wait()
        yield made


@pytest.fixture
def opened(zygote: ForkServer, tmp_path: Path) -> Iterator[Callable[..., ContainedBackend]]:
    backends: list[ContainedBackend] = []

    def made(limits: ResourceLimits = SMALL, starts_ranks: bool = False) -> ContainedBackend:
        folder = tmp_path / f"lab{len(backends):02}"
        folder.mkdir()
        (folder / "main_file.py").write_text(STUDENT)
        spec = CodeSpec(folder, ("main_file.py",), (), starts_ranks=starts_ranks)
        line = ForkServerClient(zygote.address, limits)
        backends.append(ContainedBackend(spec, Limits(30.0), line))
        return backends[-1]

    yield made
    for backend in backends:
        backend.close()


def student_of(backend: ContainedBackend) -> Student:
    return Student(CallLine(backend, {}, {}))


def left_over() -> list[int]:
    return [pid for user in worker_users.USERS for pid in worker_users.processes_of(user, set())]


def test_each_worker_has_a_user_and_a_folder_of_its_own(
    opened: Callable[..., ContainedBackend],
) -> None:
    seen = [student_of(opened()).me() for _ in range(2)]
    assert len({user for user, *_ in seen}) == 2
    for user, effective, group, groups, folder in seen:
        assert user in worker_users.USERS
        assert (effective, group, groups) == (user, user, [])
        assert Path(folder).stat().st_uid == user
        assert Path(folder).parent.stat().st_mode & 0o777 == 0o700


def test_nothing_is_left_when_it_is_closed(opened: Callable[..., ContainedBackend]) -> None:
    backend = opened()
    folder = Path(student_of(backend).me()[-1]).parent
    student_of(backend).leaves_daemons(3)
    student_of(backend).forks_away()
    assert len(left_over()) >= 4
    backend.close()
    assert left_over() == []
    assert not folder.exists()


def test_a_killed_keeper_leaves_nothing(opened: Callable[..., ContainedBackend]) -> None:
    backend = opened()
    student_of(backend).leaves_daemons(2)
    assert backend.worker is not None
    os.kill(backend.worker.init_pid, signal.SIGKILL)  # type: ignore[attr-defined]

    def called_until_it_ends() -> None:  # the kernel ends it with its keeper
        while True:
            student_of(backend).me()

    with pytest.raises(WallFailed, match="ended from outside"):
        called_until_it_ends()
    assert left_over() == []


def test_the_others_cannot_be_reached(opened: Callable[..., ContainedBackend]) -> None:
    first, second = opened(), opened()
    place = student_of(first).me()[-1]
    student_of(first).writes("note")
    for path in (f"{place}/note", f"/proc/{first.pid()}/environ", f"/proc/{os.getpid()}/maps"):
        with pytest.raises(StudentError, match="PermissionError"):
            student_of(second).reads(path)
    for pid in (first.pid(), first.worker.init_pid, os.getpid(), 1):  # type: ignore[union-attr]
        with pytest.raises(StudentError, match="PermissionError"):
            student_of(second).signals(pid)


@pytest.mark.parametrize("path", ["/tmp/x", "/var/tmp/x", "/usr/x", "/autograder/x"])
def test_it_writes_into_its_folder_alone(
    opened: Callable[..., ContainedBackend], path: str
) -> None:
    with pytest.raises(StudentError, match=r"PermissionError|FileNotFound|Read-only"):
        student_of(opened()).writes(path)


def test_it_has_no_sockets_but_pairs(opened: Callable[..., ContainedBackend]) -> None:
    student = student_of(opened())
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, 16, 17):
        with pytest.raises(StudentError, match=r"PermissionError|not supported"):
            student.opens(family, socket.SOCK_STREAM)
    student.pairs(socket.SOCK_STREAM)
    with pytest.raises(StudentError, match="not supported"):
        student.pairs(socket.SOCK_DGRAM)  # it could send to any address


def test_ranks_have_tcp_to_the_ports_that_ranks_use(
    opened: Callable[..., ContainedBackend],
) -> None:
    student = student_of(opened(starts_ranks=True))
    assert student.loops_back()
    for family, kind in ((socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_UNIX, 1), (10, 1)):
        with pytest.raises(StudentError, match="not supported"):
            student.opens(family, kind)
    if linux.landlock_version() >= linux.PORTS_SINCE:
        with socket.create_server(("127.0.0.1", 8080)) as server:
            with pytest.raises(StudentError, match="PermissionError"):
                student.connects(8080)
            server.settimeout(0)
            with pytest.raises(BlockingIOError):
                server.accept()


RANKS = """
import torch
import torch.distributed as dist
from grader import ranks

def sums(_):
    def each(rank, size):
        values = torch.full((3,), rank + 1.0)
        dist.all_reduce(values)
        return values.tolist()
    found = ranks.run(each, 2)
    return [list(found), list(found.sent_bytes)]
"""


def test_ranks_talk_and_are_measured(zygote: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "main_file.py").write_text("")
    spec = CodeSpec(tmp_path, ("main_file.py",), (), probes=RANKS, starts_ranks=True)
    backend = ContainedBackend(spec, Limits(60.0), ForkServerClient(zygote.address))
    try:
        values, sent = backend.request("probe", "sums", 0, ((), {}), Side({}, None, print))
    finally:
        backend.close()
    assert values == [[3.0] * 3] * 2
    assert len(sent) == 2
    assert all(count > 0 for count in sent)


def test_what_its_files_take_is_counted(opened: Callable[..., ContainedBackend]) -> None:
    with pytest.raises(OverLimit, match=r"files of 3\d MiB"):
        student_of(opened()).keeps_deleted()
    with pytest.raises(OverLimit, match=r"20,001 files|20,000 files"):
        student_of(opened()).deep()
    assert left_over() == []


def test_it_stays_countable(opened: Callable[..., ContainedBackend]) -> None:
    assert student_of(opened()).hides() == [-1, 1]
    with pytest.raises(OverLimit, match="MiB"):
        student_of(opened()).takes(300)


@pytest.mark.skipif(linux.machine() != linux.MACHINES["x86_64"], reason="numbers of x86-64")
@pytest.mark.parametrize("number", [29, 30, 64, 65, 68, 69, 70, 240, 241, 101, 272, 161])
def test_what_all_users_share_is_refused(
    opened: Callable[..., ContainedBackend], number: int
) -> None:
    assert student_of(opened()).asks(number, 0, 0, 0) == [-1, 1]


def test_a_program_gives_it_no_rights(opened: Callable[..., ContainedBackend]) -> None:
    student = student_of(opened(ResourceLimits()))
    assert student.runs("true") == 0
    assert student.runs("su", "-c", "true") != 0


def test_a_crash_costs_a_call(opened: Callable[..., ContainedBackend]) -> None:
    student = student_of(opened())
    with pytest.raises(Crashed):
        student.signals(student.pid())
    assert student.me()


def test_an_ended_zygote_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "main_file.py").write_text(STUDENT)
    with ForkServer(tmp_path, [], [tmp_path], tier="contained") as zygote:
        zygote.wait()
        line = ForkServerClient(zygote.address, SMALL)
        backend = ContainedBackend(CodeSpec(tmp_path, ("main_file.py",), ()), Limits(30.0), line)
        student_of(backend).leaves_daemons(2)
        assert zygote.process is not None
        zygote.process.kill()
        zygote.process.wait()
        assert student_of(backend).me()  # its keeper goes on
        backend.close()
        assert zygote.private is not None
        folder = zygote.private.folder
    assert left_over() == []
    assert not folder.exists()


def test_what_is_hidden_inside_what_is_shown_is_taken_out(tmp_path: Path) -> None:
    for name in ("a/b/hidden", "a/b/shown", "a/c"):
        (tmp_path / name).mkdir(parents=True)
    found = set(contained._around([str(tmp_path)], [str(tmp_path / "a/b/hidden")]))
    assert found == {str(tmp_path / "a/b/shown"), str(tmp_path / "a/c")}


def test_a_link_beside_what_is_hidden_opens_nothing(tmp_path: Path) -> None:
    for name in ("a/hidden", "a/shown", "secret"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/link").symlink_to(tmp_path / "secret")
    found = set(contained._around([str(tmp_path / "a")], [str(tmp_path / "a/hidden")]))
    assert found == {str(tmp_path / "a/shown")}


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    with ForkServer(tmp_path, [], [], tier="contained") as running:
        running.wait()
        assert running.private is not None
        left = running.private.folder.parent / "infralens-users-left"
        (left / "60706").mkdir(parents=True)
        left.chmod(0o711)
        with ForkServer(tmp_path, [], [], tier="contained") as other:
            other.wait()
            assert running.private.folder.exists()
            assert not left.exists()


def test_the_environment_must_be_readable(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with (
        ForkServer(tmp_path, [], [], shown=[closed], tier="contained") as zygote,
        pytest.raises(WallFailed, match=f"other users cannot read {closed}"),
    ):
        zygote.wait()


def test_without_landlock_what_is_hidden_must_be_closed(tmp_path: Path) -> None:
    opened = Path("/autograder/submission")
    with ForkServer(tmp_path, [], [opened], tier="contained") as zygote:
        if linux.landlock_version():
            zygote.wait()
        else:
            with pytest.raises(WallFailed, match=f"chmod 700 {opened}"):
                zygote.wait()


def test_users_are_given_back() -> None:
    held = [worker_users.free_user() for _ in range(3)]
    assert len({user for user, _ in held}) == 3
    for _, sock in held:
        sock.close()
    user, sock = worker_users.free_user()
    assert user == held[0][0]
    sock.close()
    until = time.monotonic() + 5
    with contextlib.suppress(OSError):
        while time.monotonic() < until and left_over():
            time.sleep(0.05)
