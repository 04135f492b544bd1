"""Loading a folder's files as modules, without leaving them where others would find them.

Sources are compiled afresh (a stale `.pyc` of a file saved twice within a second would run old
code), and a folder's modules stand in `sys.modules` only while code of that folder runs: the same
file names in `exercises/` and `solutions/` never meet.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType

_CODE: dict[Path, tuple[bytes, CodeType]] = {}


def compiled(path: Path) -> CodeType:
    """The code of a source file; raises SyntaxError, ValueError or OSError like `compile`."""
    source = path.read_bytes()
    known = _CODE.get(path)
    if known and known[0] == source:
        return known[1]
    code = compile(source, str(path), "exec", dont_inherit=True)
    _CODE[path] = (source, code)
    return code


class FolderModules:
    """Modules of the files `names` in `folder`, under their plain names while `visible()`."""

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self.folder = folder
        self.names = tuple(name for name in names if name.endswith(".py"))
        self.modules: dict[str, ModuleType] = {}

    @contextmanager
    def visible(self) -> Iterator[None]:
        """For the time of the block, `import` sees this folder's modules first."""
        stems = {Path(name).stem for name in self.names}
        before = {stem: sys.modules.pop(stem) for stem in stems if stem in sys.modules}
        sys.modules.update(self.modules)
        folder = str(self.folder)
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            for stem in stems:
                module = sys.modules.pop(stem, None)
                if module is not None:
                    self.modules[stem] = module
            sys.modules.update(before)
            if folder in sys.path:
                sys.path.remove(folder)

    def load(self, name: str) -> ModuleType:
        """Execute one of the files, once; whatever it raises comes through."""
        stem = Path(name).stem
        with self.visible():
            if stem in self.modules:
                return self.modules[stem]
            return self._execute(stem, self.folder / name)

    def _execute(self, stem: str, path: Path) -> ModuleType:
        module = ModuleType(stem)
        module.__file__ = str(path)
        sys.modules[stem] = module
        try:
            exec(compiled(path), module.__dict__)
        except BaseException:
            sys.modules.pop(stem, None)
            raise
        return module
