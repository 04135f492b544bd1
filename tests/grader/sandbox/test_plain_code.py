"""What is plain code, and what is watched more closely."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.lab.manifest import lab_ids, load_lab
from grader.sandbox.plain_code import is_plain

ROOT = Path(__file__).resolve().parents[3]
OWN = frozenset({"mine", "given_types"})

PLAIN = {
    "torch": "import torch\nfrom torch.nn import functional as F\ndef f(x): return F.softmax(x, 0)",
    "its own files": "from given_types import Row\nimport mine",
    "a class": "class A:\n    def __init__(self): self.modules = []\n    def eval(self): pass",
    "an attribute like a builtin": "def f(model): return model.eval(), model.compile",
    "parts of sys": "import sys\nif __name__ == '__main__':\n    sys.exit(len(sys.argv))",
    "a type asked for": "def f(x): return type(x) is int",
    "weights alone": "import torch\ndef f(p): return torch.load(p, weights_only=True)",
    "local names": "def f(code, dis, sys_): return code + dis + sys_",
}
MORE = {
    "getattr": "import torch\ndef f(n): return getattr(torch, n)",
    "exec": "exec('1')",
    "another name of sys": "import sys as s",
    "modules of sys": "import sys\ndef f(): return sys.modules",
    "sys handed on": "import sys\ndef f(g): return g(sys)",
    "sys of another module": "import os\ndef f(): return os.sys",
    "a private module of another": "import random\ndef f(): return random._os, random._inst\n"
    "import weakref\ndef g(): return weakref.itertools, weakref._importlib",
    "a special name": "def f(g): return g.__globals__",
    "subclasses": "def f(): return ().__class__.__base__.__subclasses__()",
    "frames": "def f(g): return g.gi_frame.f_back",
    "all names of a module": "from torch import *",
    "a relative import": "from . import mine",
    "an unknown library": "import requests",
    "a module that runs code": "import runpy",
    "a hidden part of torch": "import torch\ndef f(): return torch._C._VariableFunctions",
    "by import from": "from torch import _C",
    "a class pattern": "def f(x):\n    match x:\n        case object(__globals__=g): return g",
    "a class made of values": "def f(b): return type('A', b, {})",
    "an unpickled file": "import torch\ndef f(p): return torch.load(p, weights_only=False)",
    "an unpickled file, told in a dictionary": "def f(g, p): return g(p, **{'weights_only': 0})",
    "broken": "def f(:",
    "nested too deeply": "x = " + "(" * 5000 + ")" * 5000,
    "nothing readable": "\0",
}


@pytest.mark.parametrize("what", PLAIN)
def test_plain(what: str) -> None:
    assert is_plain(PLAIN[what].encode(), OWN, {"torch"})


@pytest.mark.parametrize("what", MORE)
def test_more_than_plain(what: str) -> None:
    assert not is_plain(MORE[what].encode(), OWN, {"torch"})


@pytest.mark.parametrize("lab_id", lab_ids(ROOT))
def test_skeletons_and_references_are_plain_where_something_is_forbidden(lab_id: str) -> None:
    """What we hand out begins plain, so that most answers are."""
    lab = load_lab(ROOT, lab_id)
    own = {Path(name).stem for name in (*lab.edit, *lab.given)}
    for folder in (lab.exercise, lab.solution) if lab.forbids else ():
        for name in lab.edit:
            if name.endswith(".py"):
                assert is_plain((folder / name).read_bytes(), own, {"torch"}), folder / name
