"""Loading a folder's files as modules that other folders cannot see.

Sources are compiled afresh: a stale `.pyc` of a file saved twice within a second would run old
code. Only the files that a manifest lists can be imported, since a grader has no others. A folder's
modules are in `sys.modules` only while code of that folder runs, so the same file names in
`exercises/` and `solutions/` do not collide.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from grader.sandbox.deadlines import compile_limit

_CODE: dict[Path, tuple[bytes, CodeType]] = {}


def compiled(path: Path) -> CodeType:
    """The code of a source file; raises SyntaxError, ValueError or OSError like `compile`."""
    source = path.read_bytes()
    known = _CODE.get(path)
    if known and known[0] == source:
        return known[1]
    with compile_limit():
        code = compile(source, str(path), "exec", dont_inherit=True)
    _CODE[path] = (source, code)
    return code


def source_of(path: Path) -> bytes:
    """What `compiled` read last."""
    return _CODE[path][0]


class FolderModules(MetaPathFinder, Loader):
    """Modules of Python files, under their plain names while `visible()`; skips other files."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.stems = {file.stem: file for file in files if file.suffix == ".py"}
        self.modules: dict[str, ModuleType] = {}
        self.codes: Callable[[Path], Sequence[CodeType]] = lambda path: [compiled(path)]
        """The code objects to execute for a file, in order."""

    @contextmanager
    def visible(self) -> Iterator[None]:
        """For the time of the block, `import` sees this folder's modules first."""
        if self in sys.meta_path:
            try:
                yield
            finally:
                self.modules.update({s: sys.modules[s] for s in self.stems if s in sys.modules})
            return
        before = {stem: sys.modules.pop(stem) for stem in self.stems if stem in sys.modules}
        sys.modules.update(self.modules)
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            for stem in self.stems:
                module = sys.modules.pop(stem, None)
                if module is not None:
                    self.modules[stem] = module
            sys.modules.update(before)
            if self in sys.meta_path:
                sys.meta_path.remove(self)

    def load(self, name: str) -> ModuleType:
        """Execute one of the files, once; raises whatever it raises."""
        with self.visible():
            return importlib.import_module(Path(name).stem)

    # -- what `import` calls while the folder is visible -------------------------------------------

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self.stems.get(fullname)
        return spec_from_file_location(fullname, file, loader=self) if file else None

    def exec_module(self, module: ModuleType) -> None:
        for code in self.codes(self.stems[module.__name__]):
            exec(code, module.__dict__)


class NewModules:
    """Tells which modules are new. In a process that was just forked, a list of all modules copies
    the page of each name; this looks at the new ones only."""

    def __init__(self) -> None:
        self._count = 0
        self._last: tuple[str, ModuleType] | None = None

    def take(self) -> list[tuple[str, ModuleType]]:
        """The modules, with their names, that were loaded since it was asked last: all at first,
        and where others have gone or moved."""
        found = list(itertools.takewhile(self._is_later, reversed(sys.modules.items())))
        if len(sys.modules) != self._count + len(found):
            found = list(sys.modules.items())
        self._count, self._last = len(sys.modules), next(reversed(sys.modules.items()), None)
        return found

    def _is_later(self, named: tuple[str, ModuleType]) -> bool:
        return self._last is None or named[1] is not self._last[1]
