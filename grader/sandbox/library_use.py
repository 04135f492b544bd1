"""Whether student code uses what a task asks it to write.

A manifest's `forbids` names modules, classes and functions of libraries by where they are defined:
`torch.optim.adamw`, `torch.distributed.distributed_c10d.all_reduce`. A call while a request is
carried out counts as a use if the function called is a forbidden one, and a frame of student code
is nearer than one of the kit's: what a probe calls as its oracle does not count, nor what runs
while a module is imported. Forked ranks write into the same shared memory.

The forbidden functions themselves tell when they start (`code_starts`). That is enough, and costs
nothing, where all files of the student are plain (`plain_code`), name nothing forbidden that is
written in C, and carry no copy of a forbidden function's source. Otherwise the interpreter's
profile function sees each call as well, which takes twice as long as a program's own work: then a
function is known by its module and name, and a copy by its bytecode without names of files and
lines. A copy that was rewritten is an answer of its own. The function that watches can be replaced
by student code, like all that lives in its process; the audit hook that says so cannot.

What a library has in C has no frame: a function or a class that a name stands for
(`torch.distributed.Reducer`) is wrapped before student code can hold it, and is known by its name
as well. ATen's operations are not known at all: `meters.op_log` sees those.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import sys
import threading
import types
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from grader.sandbox import code_starts, plain_code
from grader.sandbox.code_starts import OPTIMIZED, stands_for
from grader.sandbox.deadlines import compile_limit
from grader.sandbox.modules import NewModules

# A shorter function may well be written twice: `return self.module(*args)`.
MIN_CODE_BYTES = 160
MAX_KNOWN = 50_000
MAX_SOURCE_BYTES = 2_000_000
_IMPORTING = "<frozen importlib"
_NO = -1


class LibraryUse:
    """The watcher of one server: `names` is the union of what its tasks forbid."""

    def __init__(
        self,
        names: Sequence[str],
        folders: tuple[str, ...],
        files: Sequence[Path] = (),
        given: Sequence[Path] = (),
        noted: mmap.mmap | None = None,
    ) -> None:
        """`files`: what the student wrote; `given`: files beside them, which they may import;
        `noted`: `memory()`, if it was made before."""
        self.names = tuple(names)[: mmap.PAGESIZE]
        self._folders = folders
        self._files = [path for path in files if path.suffix == ".py"]
        self._given = [path for path in given if path.suffix == ".py"]
        self._own = frozenset(path.stem for path in (*files, *given))
        self._closely: bool | None = None
        self._read: dict[Path, bytes] = {}
        self._kit: dict[str, Any] = {}
        self._marks: dict[int, tuple[CodeType, int]] = {}
        # C functions by their own name: there is no frame, and no file, to know them by.
        self._c_names = {name.rpartition(".")[2]: at for at, name in enumerate(self.names)}
        self._used = noted or memory()
        self._replaced = False
        self._open = 0

    def prepare(self) -> None:
        """Called before student code: see what is written in C, and the threads that student code
        starts while it is imported."""
        if self.names:
            for name in self.names:
                _wrap(name)
            if self.closely():
                threading.setprofile(self._see)

    def closely(self) -> bool:
        """Whether each call is watched. Asked once, before student code runs or as soon as it can
        be: what it does to its files later is known from what it names."""
        if self._closely is None:
            _told.add(self)
            told = code_starts.tell(_tell, self.names)
            for path in self._given:
                with contextlib.suppress(OSError):
                    self._read[path] = path.read_bytes()
            self._closely = not (told and all(map(self._is_plain, self._files)))
        return self._closely

    def _is_plain(self, path: Path) -> bool:
        try:
            source = self._read[path] = path.read_bytes()
        except OSError:
            return False
        there = _are_imported(self.names)
        return _needs_no_watch(source, self.names, self._own, there)

    def is_to_run(self, path: Path, source: bytes) -> None:
        """Called before a file runs. If student code changed it since it was read, all is watched
        closely from here on."""
        if self.names and not self.closely() and self._read.get(path, source) != source:
            self._closely = True
            threading.setprofile(self._see)

    def of_probes(self, names: dict[str, Any]) -> None:
        """What functions of the probes have as their globals: a call from there is the kit's."""
        self._kit = names

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Note what the block uses."""
        if not self.names:
            yield
            return
        with self._seeing_calls() if self.closely() else contextlib.nullcontext():
            self._open += 1
            try:
                yield
            finally:
                self._open -= 1

    @contextlib.contextmanager
    def _seeing_calls(self) -> Iterator[None]:
        see, before, of_threads = self._see, sys.getprofile(), threading.getprofile()
        threading.setprofile(see)
        sys.setprofile(see)
        position = _alarm()
        try:
            yield
        finally:
            self._replaced = self._replaced or _alarm() != position
            sys.setprofile(before)
            threading.setprofile(of_threads)

    def take(self) -> tuple[list[str], bool]:
        """The names used since this was last asked, and whether the watch was disturbed."""
        if not self.names:
            return [], False
        found = [name for at, name in enumerate(self.names) if self._used[at]]
        for at in range(len(self.names)):
            self._used[at] = 0
        replaced, self._replaced = self._replaced, False
        return found, replaced

    def look_at(self, value: Any) -> None:
        """Note a found name that is the library's own, a part of it, or inherits from it."""
        if not self.names:
            return
        for part in _made_of(value):
            module, name = getattr(part, "__module__", None), getattr(part, "__qualname__", None)
            if type(module) is str and type(name) is str:
                at = self._named(f"{module}.{name}")
                if at != _NO:
                    self._used[at] = 1

    # -- calls

    def wrapped(self, name: str, frame: FrameType | None) -> None:
        """What has this name was called from that frame."""
        at = self._named(name)
        if self._open and at != _NO and not self._used[at] and self._by_student(frame):
            self._used[at] = 1

    def _see(self, frame: FrameType, event: str, arg: Any) -> None:
        if not self._open:  # a thread goes on between two requests
            return
        if event == "call":
            known = self._marks.get(id(frame.f_code))
            at = known[1] if known is not None else self._mark(frame)
            if at != _NO and not self._used[at] and self._by_student(frame.f_back):
                self._used[at] = 1
        elif event == "c_call":
            name = getattr(arg, "__name__", None)
            if name in self._c_names and not isinstance(name, bytes):
                self._see_c(frame, arg, self._c_names[name])

    def _see_c(self, frame: FrameType, function: Any, at: int) -> None:
        owner = getattr(function, "__self__", None)
        root = self.names[at].partition(".")[0]
        homes = (getattr(function, "__module__", None), getattr(type(owner), "__module__", None))
        home = any(type(h) is str and h.partition(".")[0] == root for h in homes)
        if home and not self._used[at] and self._by_student(frame):
            self._used[at] = 1

    def _mark(self, frame: FrameType) -> int:
        """Which of the names a code object belongs to; asked once for each."""
        code = frame.f_code
        module = frame.f_globals.get("__name__")
        at = _NO
        if code.co_flags & OPTIMIZED:
            if type(module) is str:
                at = self._named(f"{module}.{code.co_qualname}")
            if at == _NO and len(code.co_code) >= MIN_CODE_BYTES:
                at = self._copied(code)
        if len(self._marks) >= MAX_KNOWN:
            self._marks.clear()
        self._marks[id(code)] = (code, at)  # with the code, so that no other one gets its id
        return at

    def _named(self, full: str) -> int:
        for at, name in enumerate(self.names):
            if stands_for((name,), full):
                return at
        return _NO

    def _by_student(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code.co_filename.startswith(self._folders):
                return True
            if frame.f_globals is self._kit or frame.f_code.co_filename.startswith(_IMPORTING):
                return False
            frame = frame.f_back
        # A thread begins without its caller. Probes start none on a library's function.
        return threading.current_thread() is not threading.main_thread()

    def _copied(self, code: CodeType) -> int:
        return _copies_of(self.names).get(_normalised(code), _NO)


@functools.lru_cache(maxsize=256)
def _needs_no_watch(
    source: bytes, names: tuple[str, ...], own: frozenset[str], are_there: bool
) -> bool:
    """Whether it is enough that forbidden functions tell when they start. are_there:
    whether the libraries are imported, for a copy is known by their source."""
    roots = {name.partition(".")[0] for name in names}
    if not are_there or not plain_code.is_plain(source, own, roots):
        return False
    in_c = {name.rpartition(".")[2] for name in names if _is_of_c(name)}
    if not in_c.isdisjoint(plain_code.names_of(source)):
        return False
    copies = _copies_of(names)
    with compile_limit():
        parts = _inside(compile(source, "", "exec", dont_inherit=True))
    return all(len(p.co_code) < MIN_CODE_BYTES or _normalised(p) not in copies for p in parts)


def prepare(names: Sequence[str]) -> None:
    """Read the libraries that these names stand for now, and have their functions tell when they
    start, so that processes that are forked from this one need not."""
    _copies_of(tuple(names))
    code_starts.tell(_tell, names)
    for name in names:
        if isinstance(value := _value_of(name), types.BuiltinFunctionType):
            _places_of(name, value)


def prepare_all(lists: bytes) -> None:
    """`prepare` for each line of names, which spaces part."""
    for line in lists.decode().splitlines():
        prepare(line.split())


_COPIES: dict[tuple[str, ...], dict[int, int]] = {}


def _copies_of(names: tuple[str, ...]) -> dict[int, int]:
    """The place among the names by the hash of each function that they stand for."""
    if names in _COPIES:
        return _COPIES[names]
    found: dict[int, int] = {}
    for at, name in enumerate(names):
        for each in _sources(name):
            found.setdefault(_normalised(each), at)
    if _are_imported(names):
        _COPIES[names] = found
    return found


def _are_imported(names: Sequence[str]) -> bool:
    """Whether the packages are there, in which the names lie."""
    return all(name.partition(".")[0] in sys.modules for name in names)


def memory() -> mmap.mmap:
    """A byte for each name, which processes that are forked from this one share."""
    return mmap.mmap(-1, mmap.PAGESIZE)


def _made_of(value: Any) -> list[Any]:
    """A function, or a class with its bases; what a `partial` or a wrapper calls."""
    for _ in range(8):
        if isinstance(value, functools.partial):
            value = value.func
        elif not isinstance(value, type) and hasattr(value, "__wrapped__"):
            value = value.__wrapped__
        else:
            break
    return type.mro(value) if issubclass(type(value), type) else [value]


# -- copies of the source -------------------------------------------------------------------------


def _sources(name: str) -> Iterator[CodeType]:
    """The functions of a library's source that a name stands for; none where it has no source."""
    found = _file_of(name)
    if found is None:
        return
    path, inside = found
    try:
        if path.stat().st_size > MAX_SOURCE_BYTES:
            return
        module = compile(path.read_bytes(), str(path), "exec", dont_inherit=True, optimize=-1)
    except (OSError, SyntaxError, ValueError):
        return
    for code in _inside(module):
        if inside and code.co_qualname != inside and not code.co_qualname.startswith(inside + "."):
            continue
        if code.co_flags & OPTIMIZED and len(code.co_code) >= MIN_CODE_BYTES:
            yield code


def _file_of(name: str) -> tuple[Path, str] | None:
    """The source file of a module that a name begins with, and the rest of the name. Nothing is
    imported: packages lie where the root, which is imported, lies."""
    root, *parts = name.split(".")
    places = getattr(sys.modules.get(root), "__path__", None)
    for count in range(len(parts), -1, -1) if places else ():
        for place in places or ():
            stem = Path(place, *parts[:count])
            for path in (stem.with_suffix(".py"), stem / "__init__.py"):
                if path.is_file():
                    return path, ".".join(parts[count:])
    return None


def _inside(code: CodeType) -> Iterator[CodeType]:
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield part
            yield from _inside(part)


def _normalised(code: CodeType) -> int:
    """A hash of what code does: not of its file, its lines, its docstring or its local names."""
    consts: list[object] = []
    for at, part in enumerate(code.co_consts):
        if isinstance(part, CodeType):
            consts.append(_normalised(part))
        elif not (at == 0 and isinstance(part, str)):
            consts.append(repr(part) if type(part) in (int, float, str, bytes) else type(part))
    shape = (code.co_argcount, code.co_kwonlyargcount, code.co_flags & 0xF)
    return hash((code.co_code, code.co_names, shape, *consts))


# -- what is written in C -------------------------------------------------------------------------

_told: weakref.WeakSet[LibraryUse] = weakref.WeakSet()


def _tell(full: str, frame: FrameType) -> None:
    """What `code_starts` calls: a function of that name starts in that frame."""
    for use in list(_told):
        use.wrapped(full, frame.f_back)


def _value_of(name: str) -> Any:
    home, _, last = name.rpartition(".")
    return getattr(sys.modules.get(home), last, None)


_wrapped: set[str] = set()


def _is_of_c(name: str) -> bool:
    """Whether a name stands for a function or a class in C, or may do so: its library is not there
    yet."""
    if not _are_imported((name,)):
        return True
    value = _value_of(name)
    if isinstance(value, type):
        return name in _wrapped or _is_in_c(value)
    return name in _wrapped or isinstance(value, types.BuiltinFunctionType)


@functools.cache
def _wrap(name: str) -> None:
    """Put a Python function in the place of a function in C, wherever its library has it, and
    before the constructor of a class in C."""
    home, _, last = name.rpartition(".")
    value = _value_of(name)
    if _is_of_c(name):
        _wrapped.add(name)

    def tell() -> None:
        for use in list(_told):
            use.wrapped(name, sys._getframe(2))

    if isinstance(value, types.BuiltinFunctionType):
        original: Any = value

        def function(*args: Any, **kwargs: Any) -> Any:
            tell()
            return original(*args, **kwargs)

        function.__module__, function.__qualname__, function.__name__ = home, last, last
        for module, key in _places_of(name, original):
            if vars(module).get(key) is original:
                setattr(module, key, function)
    elif isinstance(value, type) and _is_in_c(value):
        start: Any = value.__init__  # type: ignore[misc]

        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            tell()
            start(self, *args, **kwargs)

        with contextlib.suppress(TypeError):  # a type that cannot be changed
            value.__init__ = init  # type: ignore[misc]


_Place = tuple[types.ModuleType, str]
_places: dict[str, tuple[object, list[_Place], NewModules]] = {}


def _places_of(name: str, value: object) -> list[_Place]:
    """Where the modules of its library have what a name stands for. It looks through each module
    once: to look again in a process that was forked since would copy ten thousand pages."""
    if name not in _places or _places[name][0] is not value:
        _places[name] = value, [], NewModules()
    _, places, new = _places[name]
    root = name.partition(".")[0]
    for _, module in new.take():
        if type(module) is types.ModuleType and module.__name__.partition(".")[0] == root:
            places += [(module, key) for key, held in list(vars(module).items()) if held is value]
    return places


def _is_in_c(kind: type) -> bool:
    return not any(isinstance(part, types.FunctionType) for part in vars(kind).values())


# -- the alarm ------------------------------------------------------------------------------------

_changes: Counter[int] = Counter()


@functools.cache
def _install() -> None:
    def hook(event: str, _args: tuple[Any, ...]) -> None:
        if event == "sys.setprofile":
            _changes[threading.get_ident()] += 1

    sys.addaudithook(hook)


def _alarm() -> int:
    """How often this thread set a profile function so far: a new thread sets its own once."""
    _install()
    return _changes[threading.get_ident()]
