"""The same behaviour in the tests' own process and in a worker; what only a worker promises."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grader.errors import (
    Crashed,
    LoadFailed,
    Missing,
    NotStarted,
    Refused,
    StudentError,
    SuiteFault,
    Timeout,
)
from grader.lab import capabilities
from grader.sandbox.backends import Backend, Limits, LocalBackend
from grader.sandbox.client import Handle, Session, Student
from grader.sandbox.deadlines import CompileLimit, compile_limit
from grader.sandbox.fork_server import ForkServerClient as Zygote
from grader.sandbox.fork_server import SandboxBackend
from grader.sandbox.process import MAX_OUTPUT, ProcessBackend, environment, how_it_ended
from grader.sandbox.server import CodeSpec
from tests.grader.conftest import needs_sandbox

STUDENT = """
import os, sys, time
from pairs import Pair

CALLS = []
__doc__ = "the learner's"


class Pool:
    def __init__(self, size):
        self.size, self.used = size, []

    def take(self, n=1):
        self.used.append(n)
        if sum(self.used) > self.size:
            raise MemoryError(f"only {self.size}")
        return self

    def left(self):
        return self.size - sum(self.used)

    def __eq__(self, other):
        return True


class Odd(ValueError):
    def __str__(self):
        raise RuntimeError("no text")


def echo(*args, **kwargs):
    return [*args, kwargs] if kwargs else args[0] if len(args) == 1 else list(args)

def count():
    CALLS.append(1)
    return len(CALLS)

def mutate(values):
    values[0] = -1
    return values

def fails(n):
    return 1 // n

def odd():
    raise Odd

def todo():
    raise NotImplementedError("lab90.todo")

def later():
    raise NotImplementedError("not lab90.todo")

def leaves():
    sys.exit(3)

def loops():
    while True:
        pass

def spins():
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass

def waits(seconds):
    time.sleep(seconds)
    return seconds

def swallows():
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            pass

def deep(n):
    return deep(n + 1)

def says(text, times=1):
    for _ in range(times):
        print(text)

def environment():
    return dict(os.environ)

def reads():
    return sys.stdin.read() if sys.stdin else ""

def allocate(mebibytes):
    block = bytearray(mebibytes << 20)
    for i in range(0, len(block), 4096):
        block[i] = 1
    return len(block)

def swap(pair):
    return Pair(pair.right, pair.left)

def lambda_():
    return lambda x: x + 1

def imports(name):
    try:
        __import__(name)
    except ImportError as error:
        return str(error)

def path_of(file):
    return [str(file), file.read_text()]

def surrogate():
    return "\\ud800"

def bad_text():
    raise ValueError("half \\ud800")

def bold():
    raise ValueError("so \\x1b[1;31mbold\\x1b[0m")
"""
TYPES = """
import dataclasses

@dataclasses.dataclass(frozen=True)
class Pair:
    left: int
    right: int

    @property
    def total(self):
        return self.left + self.right
"""
PROBES = """
import sys

from models import Doubled

def uses_the_class(student, n):
    pool = student.Pool(n)
    return [pool.take().left(), student.CALLS is student.CALLS]

def fails_inside(student):
    return student.fails(0)

def uses_a_model(student):
    return [Doubled(4)(), Doubled.__module__, "models" in sys.modules, student.imports("models")]
"""
MODELS = """
class Doubled:
    def __init__(self, n):
        self.n = n

    def __call__(self):
        return 2 * self.n
"""


def spec_of(folder: Path, text: str = STUDENT) -> CodeSpec:
    folder.mkdir(exist_ok=True)
    (folder / "main_file.py").write_text(text, encoding="utf-8")
    (folder / "pairs.py").write_text(TYPES, encoding="utf-8")
    given = ("pairs.py",)
    return CodeSpec(folder, ("main_file.py",), given, PROBES, models=MODELS, crossing=given)


TIERS = ("local", "process", pytest.param("sandbox", marks=needs_sandbox))
PATIENT = Limits(20.0)


@pytest.fixture(scope="module", params=TIERS)
def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    kit = spec_of(tmp_path_factory.mktemp("backend") / "lab")
    made = backend_of(request.param, kit, PATIENT, request)
    yield made
    made.close()


def backend_of(tier: str, kit: CodeSpec, limits: Limits, request: pytest.FixtureRequest) -> Backend:
    if tier == "sandbox":
        return SandboxBackend(kit, limits, Zygote(request.getfixturevalue("fork_server").address))
    return {"local": LocalBackend, "process": ProcessBackend}[tier](kit, limits)


def student_of(backend: Backend) -> Student:
    return Student(Session(backend, getattr(backend, "records", {}), {}))


@pytest.fixture
def student(backend: Backend) -> Iterator[Student]:
    yield student_of(backend)
    backend.forget()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[ProcessBackend]:
    made = ProcessBackend(spec_of(tmp_path / "lab"), Limits(20.0))
    yield made
    made.close()


# -- the same at every tier -----------------------------------------------------------------------


def test_values_go_and_come(student: Student) -> None:
    value = {"a": [1, (2.5, None)], "b": b"x", 3: "é"}
    assert student.echo(value) == value
    assert student.echo(1, two=2) == [1, {"two": 2}]


def test_arguments_are_copies(student: Student) -> None:
    values, array = [1, 2], np.zeros(3)
    assert student.mutate(values) == [-1, 2]
    assert student.mutate(array)[0] == -1
    assert (values, array.tolist()) == ([1, 2], [0, 0, 0])


def test_an_exception_has_its_type_text_bases_and_line(student: Student) -> None:
    with pytest.raises(StudentError) as caught:
        student.fails(0)
    error = caught.value
    line = STUDENT.splitlines().index("    return 1 // n") + 1
    assert (error.type_name, error.where) == ("ZeroDivisionError", f"main_file.py:{line}")
    assert "ArithmeticError" in error.bases
    assert any("in fails" in frame for frame in error.trace)
    with pytest.raises(StudentError, match="its message could not be read"):
        student.odd()
    with pytest.raises(StudentError, match=r"half \?"):
        student.bad_text()
    with pytest.raises(StudentError, match=r"^ValueError: so bold$"):
        student.bold()
    with pytest.raises(StudentError, match=r"sys\.exit\(3\) was called"):
        student.leaves()
    with pytest.raises(StudentError, match="RecursionError"):
        student.deep(0)
    with pytest.raises(StudentError, match=r"TypeError.*argument"):
        student.fails()
    with pytest.raises(Refused, match="surrogate"):
        student.surrogate()
    assert student.echo("still here") == "still here"


def test_not_started_is_told_from_not_implemented(student: Student) -> None:
    with pytest.raises(NotStarted) as caught:
        student.todo()
    assert caught.value.task == "lab90.todo"
    with pytest.raises(StudentError, match="not lab90"):
        student.later()


def test_a_missing_name_is_said(student: Student) -> None:
    with pytest.raises(Missing, match=r"main_file\.py has no `nothing`; was it renamed or deleted"):
        student.nothing()
    with pytest.raises(AttributeError, match="public names only"):
        student._private()


def test_handles(student: Student, backend: Backend) -> None:
    pool = student.Pool(3)
    assert isinstance(pool, Handle)
    assert pool.take(2).left() == 1
    assert student.get(pool, "size") == 3
    assert student.lambda_()(4) == 5
    assert student.echo([pool])[0].left() == 1
    with pytest.raises(StudentError, match="only 3"):
        pool.take(2)
    with pytest.raises(StudentError, match="AttributeError"):
        student.get(pool, "nothing")
    with pytest.raises(TypeError, match="cannot be compared"):
        _ = pool == 3
    backend.forget()
    with pytest.raises(Refused, match="from another test"):
        pool.left()


def test_known_types_cross_as_themselves(student: Student, backend: Backend) -> None:
    import importlib.util

    spec = importlib.util.spec_from_loader("pairs", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["pairs"] = module
    try:
        exec(TYPES, module.__dict__)
    finally:
        del sys.modules["pairs"]
    friend = Student(Session(backend, {"Pair": module.Pair}, {}))
    got = friend.swap(module.Pair(1, 2))
    assert type(got) is module.Pair
    assert (got.left, got.total) == (2, 3)


def test_map_makes_many_calls_in_one_trip(student: Student) -> None:
    assert student.map("fails", [(1,), (2,)]) == [1, 0]
    with pytest.raises(StudentError, match="ZeroDivisionError"):
        student.map("fails", [(1,), (0,)])


def test_probes_run_beside_the_code(student: Student) -> None:
    assert student.probe.uses_the_class(5) == [4, True]
    with pytest.raises(StudentError) as caught:
        student.probe.fails_inside()
    assert caught.value.where.startswith("main_file.py:")


def test_probes_import_models_and_student_code_cannot(student: Student) -> None:
    """The source of `models` is sent along; no name of it is left where student code looks."""
    refused = "No module named 'models'"
    assert student.imports("models") == refused
    assert student.probe.uses_a_model() == [8, "models", False, refused]


def test_files_are_copied_and_gone_after_the_test(
    student: Student, backend: Backend, tmp_path: Path
) -> None:
    source = tmp_path / "data.txt"
    source.write_text("hello", encoding="utf-8")
    there, text = student.path_of(source)
    assert text == "hello"
    assert Path(there) != source
    if backend.tier == "sandbox":
        assert not Path(there).exists()
        return
    assert Path(there).exists()
    backend.forget()
    backend.pid()  # the next request, whatever it is
    assert not Path(there).exists()


def test_what_cannot_be_sent_is_the_suites_fault(student: Student) -> None:
    with pytest.raises(SuiteFault, match="cannot cross into student code; send plain data"):
        student.echo(lambda: 1)


@pytest.mark.parametrize("tier", TIERS)
def test_deadlines(tier: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    backend = backend_of(tier, spec_of(tmp_path / "lab"), Limits(0.3), request)
    student = student_of(backend)
    for name in ("loops", "swallows"):
        with pytest.raises(Timeout, match=r"no answer after 0.3 s"):
            getattr(student, name)()
    assert signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, None)
    assert sys.gettrace() is None
    assert student.echo(1) == 1
    backend.close()


@pytest.mark.parametrize("tier", TIERS)
def test_a_loop_ends_by_processor_time_and_a_wait_by_the_clock(
    tier: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    limits = Limits(10.0, processor_seconds=0.4)
    backend = backend_of(tier, spec_of(tmp_path / "lab"), limits, request)
    student = student_of(backend)
    for name in ("loops", "spins"):
        with pytest.raises(Timeout, match=r"^no answer after 0.4 s of processor time"):
            getattr(student, name)()
    assert student.waits(1.5) == 1.5
    backend.close()
    backend = backend_of(tier, spec_of(tmp_path / "lab"), Limits(1.0, patience=1.0), request)
    with pytest.raises(Timeout, match=r"^no answer after 1 s$"):
        student_of(backend).waits(30.0)
    backend.close()


@pytest.mark.parametrize("tier", TIERS)
def test_a_file_that_never_finishes_its_import(
    tier: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kit = spec_of(tmp_path / "lab", "while True:\n    pass\n")
    (tmp_path / "lab" / "other.py").write_text("def fine():\n    return 1\n", encoding="utf-8")
    kit = CodeSpec(kit.folder, ("main_file.py", "other.py"), kit.given)
    backend = backend_of(tier, kit, Limits(20.0, load_seconds=0.3), request)
    student = student_of(backend)
    assert student.fine() == 1
    with pytest.raises(LoadFailed, match=r"main_file.py does not import: not done after 0.3 s"):
        student.echo(1)
    backend.close()


ONLY = r"a submission holds only main_file.py, so main_helper.py is missing"


@pytest.mark.parametrize("tier", TIERS)
def test_only_listed_files_can_be_imported(
    tier: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kit = spec_of(tmp_path / "lab", "import main_helper\n")
    (tmp_path / "lab" / "main_helper.py").write_text("x = 1\n", encoding="utf-8")
    backend = backend_of(tier, kit, PATIENT, request)
    with pytest.raises(
        LoadFailed, match="No module named 'main_helper'" if tier == "sandbox" else ONLY
    ):
        student_of(backend).echo(1)
    backend.close()


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    "line", ["import grader.meters as m", "from grader import meters", "import os, grader"]
)
def test_a_learners_file_cannot_import_the_kit(
    tier: str, request: pytest.FixtureRequest, tmp_path: Path, line: str
) -> None:
    backend = backend_of(
        tier, spec_of(tmp_path / "lab", f"x = 1\n{line}\n{STUDENT}"), PATIENT, request
    )
    with pytest.raises(LoadFailed, match="line 2 imports `grader`, the kit's own package"):
        student_of(backend).echo(1)
    backend.close()


def test_the_word_grader_is_free(tmp_path: Path) -> None:
    backend = LocalBackend(
        spec_of(tmp_path / "lab", f"grader = 'import grader'\n{STUDENT}"), PATIENT
    )
    assert student_of(backend).echo(1) == 1


def test_torch_and_big_arrays_cross(student: Student) -> None:
    import torch

    tensor = torch.arange(12.0, dtype=torch.bfloat16).reshape(3, 4).T
    got = student.echo(tensor)
    assert (got.dtype, got.stride()) == (torch.bfloat16, (1, 4))
    assert torch.equal(got, tensor)
    big = np.arange(50 * 2**17, dtype=np.float64)  # 50 MiB
    assert (student.echo(big) == big).all()


LITTER = """
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.overrides import TorchFunctionMode

class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))

class Function(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))

def litters():
    torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()
    Dispatch().__enter__()
    Function().__enter__()
    torch.set_grad_enabled(False)
    torch.autograd.set_detect_anomaly(True)

def finds():
    return [
        torch._C._autograd._top_saved_tensors_default_hooks(True) is not None,
        torch._C._len_torch_dispatch_stack(),
        torch._C._len_torch_function_stack(),
        torch.is_grad_enabled(),
        torch.is_anomaly_enabled(),
    ]
"""


@pytest.mark.parametrize("tier", TIERS)
def test_what_a_call_left_switched_on_is_off_for_the_next_test(
    tier: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    backend = backend_of(tier, spec_of(tmp_path / "lab", LITTER), PATIENT, request)
    student = student_of(backend)
    assert student.finds() == [False, 0, 0, True, False]
    student.litters()
    assert student.finds() == [True, 1, 1, False, True]
    backend.forget()
    assert student.finds() == [False, 0, 0, True, False]
    backend.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell")
def test_peak_memory_sees_a_big_allocation_and_no_small_one(student: Student) -> None:
    with student.peak_memory() as small:
        student.allocate(1)
    with student.peak_memory() as big:
        assert student.allocate(64) == 64 << 20
    assert small.available
    assert big.available
    assert small.growth_bytes < 20 << 20
    assert 60 << 20 < big.growth_bytes < 90 << 20


# -- what only a worker promises ------------------------------------------------------------------

CRASHES = """
import ctypes, os, signal, subprocess, sys, threading, time

def exits():
    os._exit(0)

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def aborts():
    os.abort()

def faults():
    ctypes.string_at(0)

def closes():
    os.closerange(3, 64)
    time.sleep(60)

def forges():
    for fd in range(3, 64):
        try:
            os.write(fd, b"\\xff" * 64)
        except OSError:
            pass
    time.sleep(60)

def pid():
    return os.getpid()

def flood():
    os.write(1, b"x" * 5_000_000)
    print("y" * 1000, file=sys.stderr)
    return 1

def leaves_a_child():
    return subprocess.Popen(["sleep", "600"]).pid

def leaves_a_thread():
    threading.Thread(target=lambda: time.sleep(600)).start()
    return os.getpid()

def loops():
    while True:
        pass

def environment():
    return dict(os.environ)

def reads():
    return sys.stdin.read()

def folder():
    return [os.getcwd(), os.listdir(".")]

def where():
    return [sys.path, [name for name in sys.modules if "suite" in name or "pytest" in name]]
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[ProcessBackend]:
    made = ProcessBackend(spec_of(tmp_path / "lab", CRASHES), Limits(20.0))
    yield made
    made.close()


def test_a_crash_costs_one_call_and_says_how(hostile: ProcessBackend) -> None:
    student = student_of(hostile)
    first = student.pid()
    for name, said in [
        ("exits", "ended itself with exit status 0"),
        ("killed", "ended by SIGKILL"),
        ("aborts", "ended by SIGABRT"),
        ("faults", "ended by SIGSEGV"),
        ("closes", "stopped answering"),
    ]:
        with pytest.raises(Crashed, match=said):
            getattr(student, name)()
        assert student.pid() != first


def test_bytes_on_the_data_socket_are_no_answer(hostile: ProcessBackend) -> None:
    student = student_of(hostile)
    with pytest.raises((Crashed, Refused)):
        student.forges()
    assert student.pid()


def test_a_handle_of_a_dead_worker_is_refused(worker: ProcessBackend) -> None:
    student = student_of(worker)
    pool = student.Pool(3)
    os.kill(worker.pid(), signal.SIGKILL)
    with pytest.raises(Crashed):
        pool.left()
    student.Pool(4)
    with pytest.raises(Refused):
        pool.left()


def test_what_a_call_printed_is_there_with_its_answer_and_once(worker: ProcessBackend) -> None:
    student = student_of(worker)
    for text in ("hello", "good bye", "without a line's end"):
        assert student.says(text) is None
        assert worker.printed() == f"{text}\n"
    assert worker.printed() == ""


def test_a_flood_of_output_is_capped_and_does_not_block(hostile: ProcessBackend) -> None:
    student = student_of(hostile)
    for _ in range(2):
        assert student.flood() == 1
        assert len(hostile.printed()) == MAX_OUTPUT


def test_nothing_of_the_parents_environment_is_visible(
    hostile: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFRALENS_SECRET", "key")
    student = student_of(hostile)
    seen = student.environment()
    assert "INFRALENS_SECRET" not in seen
    constants = {"PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE", "TORCH_CPP_LOG_LEVEL"}
    constants |= {name for name in seen if name.endswith("_THREADS")}
    constants |= capabilities.triton_settings().keys()
    assert set(seen) & set(os.environ) <= constants
    assert seen["HOME"] != os.environ.get("HOME")
    assert student.reads() == ""
    folder, files = student.folder()
    assert Path(folder).is_relative_to(hostile.home)
    assert files == []
    path, loaded = student.where()
    assert loaded == []
    assert str(hostile.spec.folder) not in path


def test_a_worker_for_the_gpu_finds_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/somewhere/nvidia/lib64")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("INFRALENS_SECRET", "key")
    names = "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "INFRALENS_SECRET"
    for on_gpu, wanted in ((False, [None] * 3), (True, ["/somewhere/nvidia/lib64", "3", None])):
        settings = environment(tmp_path, 1, on_gpu=on_gpu)
        assert [settings.get(name) for name in names] == wanted


def test_children_and_threads_are_gone_after_close(hostile: ProcessBackend) -> None:
    student = student_of(hostile)
    child, own = student.leaves_a_child(), student.leaves_a_thread()
    assert _alive(child)
    home = hostile.home
    hostile.close()
    assert _eventually(lambda: not _alive(child) and not _alive(own))
    assert not home.exists()


def test_a_worker_outlives_the_thread_that_started_it(hostile: ProcessBackend) -> None:
    student, pids = student_of(hostile), []
    thread = threading.Thread(target=lambda: pids.append(student.pid()))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert student.pid() == pids[0]


@pytest.mark.parametrize("tier", TIERS)
def test_given_files_may_lie_elsewhere(
    tier: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """They are imported by plain name, and a probe finds the path of each."""
    kit = spec_of(tmp_path / "lab")
    (tmp_path / "given").mkdir()
    (tmp_path / "lab" / "pairs.py").rename(tmp_path / "given" / "pairs.py")
    probes = "def second_lines(student, *names):\n"
    probes += "    return [student.path(n).read_text().splitlines()[1] for n in names]\n"
    kit = replace(kit, probes=probes, given_folder=tmp_path / "given")
    backend = backend_of(tier, kit, PATIENT, request)
    student = student_of(backend)
    assert student.echo(1) == 1
    said = student.probe.second_lines("main_file.py", "pairs.py")
    assert said == [text.splitlines()[1] for text in (STUDENT, TYPES)]
    backend.close()


PARENT = """
import sys
from pathlib import Path
from grader.sandbox.server import CodeSpec
from grader.sandbox.client import Session, Student
from grader.sandbox.process import ProcessBackend
from grader.sandbox.backends import Limits
spec = CodeSpec(Path(sys.argv[1]), ("main_file.py",), ("pairs.py",))
backend = ProcessBackend(spec, Limits(60.0))
student = Student(Session(backend, {}, {}))
print(student.pid(), flush=True)
student.loops()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system offers no such signal")
def test_no_worker_outlives_its_parent(tmp_path: Path) -> None:
    kit = spec_of(tmp_path / "lab", CRASHES)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(kit.folder)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    assert _alive(worker)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert _eventually(lambda: not _alive(worker))


def test_local_loading_leaves_nothing_behind(tmp_path: Path) -> None:
    paths, modules, finders = list(sys.path), set(sys.modules), list(sys.meta_path)
    backend = LocalBackend(spec_of(tmp_path / "lab"), PATIENT)
    student_of(backend).echo(1)
    backend.close()
    assert list(sys.path) == paths
    assert list(sys.meta_path) == finders
    assert not {"main_file", "pairs"} & (set(sys.modules) - modules)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _eventually(condition: Callable[[], Any]) -> bool:
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_a_file_that_compiles_for_ever_ends_its_process() -> None:
    """CPython compares functions of one name with each other, and no alarm is heard meanwhile."""
    child = os.fork()
    if child == 0:
        CompileLimit.ends_process = True
        with compile_limit(0.2):
            compile("def a(): pass\n" * 70_000, "many.py", "exec")
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert "to compile it takes more than" in how_it_ended(status).text


@pytest.mark.parametrize("ends", [False, True])
def test_what_compiles_in_time_is_not_ended(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompileLimit, "ends_process", ends)
    with compile_limit(0.2):
        compile("x = 1", "one.py", "exec")
    _use_processor(0.3)


def test_a_learner_s_own_run_is_not_ended() -> None:
    with compile_limit(0.05):
        _use_processor(0.1)


def _use_processor(seconds: float) -> None:
    before = time.process_time()
    while time.process_time() < before + seconds:
        pass
