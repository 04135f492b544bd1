"""The labs' whole files as modules: what a calculator's cut files are held against."""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]
LAB_OF = {
    "memory_accounting": "lab01",
    "types_lab01": "lab01",
    "zero_memory_accounting": "lab08",
    "serving": "lab10",
    "types_lab10": "lab10",
    "quantization": "lab11",
    "plans_lab11": "lab11",
    "types_lab11": "lab11",
    "parallelism": "lab12",
    "kernels_lab12": "lab12",
    "types_lab12": "lab12",
}


@functools.cache
def _whole_lab(lab: str) -> dict[str, ModuleType]:
    """A lab's modules, imported together, and gone from `sys.modules` afterwards."""
    folders = [ROOT / "solutions" / lab, ROOT / "exercises" / lab]
    names = {path.stem for folder in folders for path in folder.glob("*.py")}
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path[:0] = [str(folder) for folder in folders]
    try:
        return {name: importlib.import_module(name) for name, its in LAB_OF.items() if its == lab}
    finally:
        del sys.path[: len(folders)]
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(before)


def whole(name: str) -> ModuleType:
    """A module of the labs, from its whole file."""
    return _whole_lab(LAB_OF[name])[name]
