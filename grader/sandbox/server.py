"""The server side of the wall: loads a learner's files and answers calls into them.

The same class serves the `local` tier (in the tests' own process) and the worker process. It holds
no expected value and reaches no verdict: a reply is a value, or a description of what was raised.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import mmap
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType, SimpleNamespace, TracebackType
from typing import Any

import msgspec

from grader.errors import MeasurementDisturbed, Refused
from grader.sandbox import codec, purity, torch_state
from grader.sandbox.deadlines import DeadlineHit, deadline
from grader.sandbox.kit_watch import KitWatch, bind
from grader.sandbox.library_use import LibraryUse
from grader.sandbox.modules import FolderModules, compiled, source_of

# Folders of the student code in this process; the code of the given files, which may lie there, and
# that of the probes, by its id. Meters refuse callers from a folder of students, except for given
# code, and what opens one must be a probe's.
FOLDERS: set[str] = set()
GIVEN: dict[int, CodeType] = {}
PROBES: dict[int, CodeType] = {}
PLACEHOLDER = re.compile(r"lab\d\d\.\w+\Z")
Reply = tuple[str, Any, Sequence[codec.Buffer]]


@dataclasses.dataclass(frozen=True)
class CodeSpec:
    """What a server is opened with: file names, and the source of the probes. `models`: source
    that only the probes import, by that name. The files `given` lie in `given_folder`, or beside
    those under `edit`; both sides know the dataclasses of those `crossing`. `preload`: what a
    worker process loads first (`entry_points`). `mutates`, `new`: as in `purity.Contract`.
    `forbids`: what `library_use` watches for. `starts_ranks`: whether probes need a loopback."""

    folder: Path
    edit: tuple[str, ...]
    given: tuple[str, ...]
    probes: str = ""
    probes_name: str = "probes.py"
    load_seconds: float = 60.0
    models: str = ""
    models_name: str = "models.py"
    crossing: tuple[str, ...] = ()
    given_folder: Path | None = None
    preload: tuple[str, ...] = ()
    mutates: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()
    starts_ranks: bool = False

    @property
    def folders(self) -> tuple[str, ...]:
        """The prefixes of its files' paths."""
        return tuple(f"{path}{os.sep}" for path in (self.folder, self.given_folder or self.folder))

    def path(self, name: str) -> Path:
        """The path of one of its files."""
        apart = self.given_folder if name in self.given else None
        return (apart or self.folder) / name

    def packed(self) -> dict[str, Any]:
        """As plain data, for the first message to a worker."""
        data = dataclasses.asdict(self)
        return {name: str(part) if isinstance(part, Path) else part for name, part in data.items()}

    @staticmethod
    def unpacked(data: dict[str, Any]) -> CodeSpec:
        """What `packed` gave."""
        return msgspec.convert(data, CodeSpec, dec_hook=lambda kind, part: kind(part))


class NameNotFound(Exception):
    """None of the learner's files has a name that a test calls."""


class ImportFailed(Exception):
    """One of the learner's files does not import."""

    def __init__(self, text: str, where: str) -> None:
        super().__init__(text)
        self.where = where


class HardExit(SystemExit):
    """A call of `os._exit`, where that raises."""


HardExit.__name__ = SystemExit.__name__  # which a learner knows


class Server:
    """One folder of learner's code, with the objects that tests hold handles of."""

    def __init__(
        self,
        spec: CodeSpec,
        let_through: tuple[type[BaseException], ...] = (KeyboardInterrupt, GeneratorExit),
        explain: Callable[[BaseException, str], str] | None = None,
        noted: mmap.mmap | None = None,
    ) -> None:
        """`let_through`: exceptions that leave the server as they are. `explain`: a sentence to
        add to what student code raised, or an empty one. `noted`: as in `LibraryUse`."""
        self.spec = spec
        self.explain = explain
        self.let_through = let_through
        FOLDERS.update(spec.folders)
        self.files = FolderModules(map(spec.path, (*spec.edit, *spec.given)))
        self.files.codes = self.codes
        self.failed: dict[str, BaseException] = {}
        self.sound: list[ModuleType] = []
        self.held: dict[int, object] = {}
        # A fresh worker must not reuse the handle numbers of its predecessor.
        self.next_handle = time.monotonic_ns()
        self.loaded = False
        self.probe_module: dict[str, Any] | None = None
        self.scratch: tempfile.TemporaryDirectory[str] | None = None
        self.side = codec.Side({}, self.hold, self.resolve, self.arrivals)
        self.contract = purity.Contract(spec.mutates, spec.new)
        self.notes = purity.ChangeLog(self.contract)
        self.kit: KitWatch | None = None
        files, given = ([spec.path(name) for name in names] for names in (spec.edit, spec.given))
        self.library = LibraryUse(spec.forbids, spec.folders, files, given, noted)

    def codes(self, path: Path) -> list[CodeType]:
        """The code of one of the files, noted where the file is a given one."""
        code = compiled(path)
        self.library.is_to_run(path, source_of(path))
        if path.name in self.spec.given and path == self.spec.path(path.name):
            GIVEN.update((id(part), part) for part in _parts(code))
        return [code]

    def hold(self, value: object) -> int:
        self.next_handle += 1
        self.held[self.next_handle] = value
        return self.next_handle

    def resolve(self, number: int, _type_name: str) -> object:
        if number not in self.held:
            raise Refused("a handle from another test was used")
        return self.held[number]

    def arrivals(self) -> Path:
        """A folder of its own for each file that arrives."""
        if self.scratch is None:
            self.scratch = tempfile.TemporaryDirectory(
                prefix="infralens-", ignore_cleanup_errors=True
            )
        return Path(tempfile.mkdtemp(dir=self.scratch.name))

    def forget(self) -> None:
        """Between tests: drop what handles keep alive, files that arrived, and modes of torch that
        calls left on."""
        self.held.clear()
        self.notes.take()
        torch_state.clear()
        scratch, self.scratch = self.scratch, None
        if scratch is not None:
            scratch.cleanup()

    def load(self) -> None:
        """Import every file; `find` reports a file that failed when a test needs it."""
        if self.loaded:
            return
        self.loaded = True
        for name in (*self.spec.crossing, *self.spec.edit):
            if not name.endswith(".py"):
                continue
            try:
                if name in self.spec.edit:
                    refuse_the_kit(self.spec.folder / name)
                with deadline(self.spec.load_seconds):
                    self.files.load(name)
            except BaseException as error:
                if isinstance(error, self.let_through):
                    raise
                self.failed[name] = error
        stems = [Path(name).stem for name in self.spec.edit if name not in self.failed]
        self.sound = [self.files.modules[s] for s in stems if s in self.files.modules]
        self.side.records = records_of(self.files, self.spec.crossing)
        purity.know(self.side.records.values())

    def prepare(self) -> None:
        """Execute the probes and remember what the kit is, before any student code runs. What fails
        here fails again where a test asks for a probe."""
        with contextlib.suppress(Exception):
            self.probes()
            self.library.prepare()
            self.kit = KitWatch(self.probes())

    def probes(self) -> dict[str, Any]:
        """The names of the probes."""
        if self.probe_module is None:
            self.probe_module = names_of_probes(self.spec)
            self.library.of_probes(self.probe_module)
        return self.probe_module

    def refuse_replaced(self) -> None:
        """Raise if something of the kit's own in this process is no longer what it was."""
        _refuse(self.kit.problems() if self.kit is not None else [])

    def refuse_moved(self) -> None:
        """Raise if student code has changed which folders count as its own."""
        moved = not FOLDERS.issuperset(self.spec.folders)
        _refuse(["the folders of student code were replaced"] if moved else [])

    def find(self, name: str) -> Any:
        """The learner's function or class of that name."""
        self.load()
        for module in self.sound:
            if hasattr(module, name):
                value = own(getattr(module, name), name)
                self.library.look_at(value)
                return value
        for file, error in self.failed.items():
            raise ImportFailed(*self._import_failure(file, error)) from error
        files = " or ".join(name for name in self.spec.edit if name.endswith(".py"))
        raise NameNotFound(f"{files} has no `{name}`; was it renamed or deleted?")

    def probe(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = self.probes()[name]
        self.load()
        namespace = _Names(self)
        return lambda *args, **kwargs: function(namespace, *args, **kwargs)

    def target(self, op: str, name: str, handle: int) -> Callable[..., Any]:
        if op == "call":
            return self.find(name)  # type: ignore[no-any-return]
        if op == "probe":
            return self.probe(name)
        owner = self.resolve(handle, "")
        if op == "get":
            return lambda: getattr(owner, name)
        if op == "method":
            return getattr(owner, name) if name else owner  # type: ignore[return-value]
        raise Refused(f"unknown request {op!r}")

    def answer(
        self,
        op: str,
        name: str,
        handle: int,
        tree: Any,
        buffers: Sequence[codec.Buffer],
        looked: bool = False,
    ) -> Reply:
        """Carry out one request and encode its value; student exceptions come through. The caller
        keeps the files `visible()`. looked: nothing of the kit's is replaced, and no student code
        was called since that was seen."""
        if op == "load":
            self.load()
            value: Any = None
        else:
            self.load()
            if op == "probe" and not looked:
                self.refuse_replaced()
            with self.library.watching():
                value = self.carried_out(op, name, handle, tree, buffers)
        out, out_buffers = codec.encode(value, self.side)
        changes = self.notes.take() + library_rows(*self.library.take())
        if changes:
            return "changed", [changes, out], out_buffers
        return "ok", out, out_buffers

    def carried_out(
        self, op: str, name: str, handle: int, tree: Any, buffers: Sequence[codec.Buffer]
    ) -> Any:
        """The value of one request."""
        if op == "map":
            function = self.find(name)
            rows = codec.decode(tree, buffers, self.side)
            return [self.watched(name, function, row, {}) for row in rows]
        function = self.target(op, name, handle)
        args, kwargs = codec.decode(tree, buffers, self.side)
        if op == "probe":
            self.refuse_moved()
            with self.kit.running() if self.kit is not None else contextlib.nullcontext():
                value = function(*args, **kwargs)
            self.refuse_moved()  # the worker looks at the rest after each probe
            return value
        return self.watched(self.shown(op, name, handle), function, args, kwargs)

    def shown(self, op: str, name: str, handle: int) -> str:
        """What a call is of, in words: a function, or a class and its method."""
        if op == "call":
            return name
        return f"{purity.word(type(self.resolve(handle, '')))}.{name or '__call__'}"

    def watched(
        self, shown: str, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """The value of a call; what it did to its arguments is noted."""
        if purity.is_plain(args, kwargs):
            return function(*args, **kwargs)
        watch = purity.Watch(args, kwargs)
        value = function(*args, **kwargs)
        if self.contract.new or not watch.same():
            self.notes.add(watch.changes(self.contract, shown, function, value))
        return value

    def describe(self, error: BaseException) -> Reply:
        """A raised exception as plain data: kind, type, text, bases, place, trace."""
        where = self.place(error.__traceback__)
        kind, text = "raised", _text(error)
        if isinstance(error, ImportFailed):
            kind, text, where = "load", str(error), error.where
        elif isinstance(error, NameNotFound):
            kind = "missing"
        elif isinstance(error, Refused):
            kind, text = "refused", error.text
        elif isinstance(error, NotImplementedError) and PLACEHOLDER.match(text):
            kind = "not_started"
        elif isinstance(error, MeasurementDisturbed):
            kind = "disturbed"
        elif self.explain is not None:
            text = f"{text}{self.explain(error, text)}"
        bases = [base.__name__ for base in type(error).__mro__[:-1]]
        trace = self.trace(error)
        return "error", [kind, type(error).__name__, text[:4000], bases, where, trace], []

    def place(self, trace: TracebackType | None) -> str:
        """`file:line` of the innermost frame in the learner's own files, or the given ones."""
        found = ""
        while trace:
            path = trace.tb_frame.f_code.co_filename
            if path.startswith(self.spec.folders):
                found = f"{Path(path).name}:{trace.tb_lineno}"
            trace = trace.tb_next
        return found

    def trace(self, error: BaseException) -> list[str]:
        """The last frames, for the instructor: `file:line in function`."""
        frames = traceback.extract_tb(error.__traceback__)[-6:]
        return [f"{Path(f.filename).name}:{f.lineno} in {f.name}" for f in frames]

    def _import_failure(self, file: str, error: BaseException) -> tuple[str, str]:
        if isinstance(error, FileNotFoundError) and not self.spec.path(file).is_file():
            return f"{file} is missing; {how_to_restore(self.spec.folder.name)}", file
        if isinstance(error, SyntaxError):
            line = (error.text or "").strip()
            text = f"{file} does not import: {type(error).__name__}: {error.msg}"
            name = Path(error.filename or file).name
            return (f"{text}: {line}" if line else text), f"{name}:{error.lineno or 1}"
        if isinstance(error, DeadlineHit):
            text = f"{file} does not import: not done after {self.spec.load_seconds:g} s"
            return text, self.place(error.__traceback__) or file
        text = f"{file} does not import: {type(error).__name__}: {_text(error)}"
        if isinstance(error, ModuleNotFoundError) and error.name:
            own = self.spec.folder / f"{error.name.partition('.')[0]}.py"
            if own.is_file():
                taken = ", ".join(self.spec.edit)
                text += f" (a submission holds only {taken}, so {own.name} is missing)"
        return text, self.place(error.__traceback__) or file


def names_of_probes(spec: CodeSpec) -> dict[str, Any]:
    """Execute the probes. `models` can be imported only meanwhile, so student code cannot import
    it. No process needs the module by name later: ranks of a probe are forked, not spawned."""
    models, hidden = ModuleType("models"), sys.modules.get("models")
    names: dict[str, Any] = {"__name__": "probes"}
    sys.modules["models"] = models
    try:
        for source, file, space in (
            (spec.models, spec.models_name, vars(models)),
            (spec.probes, spec.probes_name, names),
        ):
            code = compile(source, file, "exec", dont_inherit=True)
            PROBES.update((id(part), part) for part in _parts(code))
            exec(code, space)
    finally:
        del sys.modules["models"]
        if hidden is not None:
            sys.modules["models"] = hidden
    bind(vars(models))
    bind(names)
    return names


def _parts(code: CodeType) -> Iterator[CodeType]:
    """A code object, and those in it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _parts(part)


def library_rows(used: Sequence[str], disturbed: bool) -> list[list[str]]:
    """What was used of a library, in the form of a `purity.Change`."""
    rows = [["", name, "library", ""] for name in used]
    return rows + (
        [["", "", "disturbed", "the profile function was replaced"]] if disturbed else []
    )


def how_to_restore(lab: str) -> str:
    return f"`infralens reset {lab}` puts the skeletons back and keeps your files aside"


def own(value: Any, name: str) -> Any:
    """`value`; raises MeasurementDisturbed if it is one of the kit's own functions or classes, or
    made from one: a meter is not an answer, and a person must look at it."""
    made_of = type.mro(value) if issubclass(type(value), type) else [value]
    modules = [getattr(part, "__module__", None) for part in made_of]
    if any(type(module) is str and module.partition(".")[0] == "grader" for module in modules):
        raise MeasurementDisturbed(f"`{name}` is one of the kit's own, not an answer")
    return value


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise MeasurementDisturbed(f"Measurement disturbed: {'; '.join(problems[:3])}.")


def refuse_the_kit(path: Path) -> None:
    """ImportError if a learner's file imports `grader`: meters are not part of an exercise."""
    source = path.read_bytes()
    if b"grader" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        if any(name.partition(".")[0] == "grader" for name in names):
            line = getattr(node, "lineno", 1)
            raise ImportError(
                f"line {line} imports `grader`, the kit's own package, which is not part of the "
                "exercise; remove that line"
            )


def records_of(files: FolderModules, crossing: tuple[str, ...]) -> dict[str, type]:
    """Dataclasses of the crossing files that are loaded, by name."""
    loaded = [files.modules.get(Path(name).stem) for name in crossing]
    values = [value for module in loaded if module for value in vars(module).values()]
    kinds = [value for value in values if isinstance(value, type)]
    return {kind.__name__: kind for kind in kinds if dataclasses.is_dataclass(kind)}


def _text(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        function = "os._exit" if isinstance(error, HardExit) else "sys.exit"
        return f"{function}({'' if error.code is None else error.code!r}) was called"
    try:
        text = str.__str__(str(error))
    except Exception:
        return "(its message could not be read)"
    # Text that is not valid Unicode could not be sent.
    return text.encode("utf-8", "replace").decode() if text else "(no message)"


class _Names(SimpleNamespace):
    """A probe's `student`: the learner's real functions and classes. What a function does to the
    arguments that the probe calls it with is noted, as for a call of a test."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        object.__setattr__(self, "_server", server)
        object.__setattr__(self, "_watched", {})

    def path(self, name: str) -> Path:
        """The path of one of the learner's files, such as a `.cu` file."""
        spec: CodeSpec = self._server.spec
        if name not in (*spec.edit, *spec.given):
            raise NameNotFound(f"{name} is missing: not handed in, or not a file of this lab")
        return spec.path(name)

    def unchanged(self, function: str, **values: Any) -> AbstractContextManager[None]:
        """For the time of the block, `function` must leave these values as they are: for the
        methods of a class, which no wrapper watches."""
        notes: purity.ChangeLog = self._server.notes
        return notes.unchanged(function, values)

    def __getattr__(self, name: str) -> Any:
        found = self._server.find(name)
        # A class keeps its identity, and a function that a library has wrapped its attributes.
        if type(found) is not FunctionType:
            return found
        if found not in self._watched:
            self._watched[found] = _watched(self._server, name, found)
        return self._watched[found]


def _watched(server: Server, name: str, function: FunctionType) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        value = server.watched(name, function, args, kwargs)
        server.notes.raise_in_a_rank()
        return value

    return call
