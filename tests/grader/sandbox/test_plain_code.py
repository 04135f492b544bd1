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
    "templates": "def f(x): return '{0:.3f} {name!r:>8}'.format(x, name=f'{x.shape}')",
    "patterns": "def f(x):\n    match x:\n        case [int(a), *_] | {'b': a}: return a",
    "its own private names": "class A:\n    def __init__(self): self._kept = 1\n"
    "    def f(self): return self._kept",
    "parts of sys": "import sys\nif __name__ == '__main__':\n    sys.exit(len(sys.argv))",
    "a type asked for": "def f(x): return type(x) is int",
    "weights alone": "import torch\ndef f(p): return torch.load(p, weights_only=True)",
    "local names": "def f(code, dis, sys_): return code + dis + sys_",
}
MORE = {
    "getattr": "import torch\ndef f(n): return getattr(torch, n)",
    "exec": "exec('1')",
    "modules of sys": "import sys as s\ndef f(): return s.modules",
    "sys handed on": "import sys\ndef f(g): return g(sys)",
    "sys of another module": "import os\ndef f(): return os.sys",
    "a private module of another": "import random\ndef f(): return random._os",
    "a module that another one keeps": "import enum\ndef f(): return enum.bltns",
    "a special name": "def f(g): return g.__globals__",
    "subclasses": "def f(): return ().__class__.__base__.__subclasses__()",
    "frames": "def f(g): return g.gi_frame.f_back",
    "all names of a module": "from torch import *",
    "a relative import": "from . import mine",
    "an unknown library": "import requests",
    "a module that runs code": "import runpy",
    "a hidden part of torch": "import torch\ndef f(): return torch._C._VariableFunctions",
    "by import from": "from torch import _C",
    "a private function of torch": "import torch\ndef f(b): torch.storage._load_from_bytes(b)",
    "a class pattern": "def f(x):\n    match x:\n        case object(__globals__=g): return g",
    "a class made of values": "def f(b): return type('A', b, {})",
    "a class of another kind": "class A(metaclass=B): pass",
    "what a class says of instances": "class A(type):\n    def __instancecheck__(s, x): return 1",
    "names of a pattern": "class A:\n    __match_args__ = ('x',)",
    "an attribute set by its name": "def f(x, n): setattr(x, n, 1)",
    "a template that is made": "def f(x, n): return ('{0.' + n + '}').format(x)",
    "a template that looks into its argument": "def f(x): return '{0.a[b]}'.format(x)",
    "a template in a template": "def f(x, y): return '{0:{1.a}}'.format(x, y)",
    "functions that torch hands over": "from torch.overrides import TorchFunctionMode",
    "their hook": "class A:\n    def __torch_function__(self, f, types, args=(), kwargs=None): ...",
    "annotations that are evaluated": "from functools import singledispatch",
    "wrapping what has other names": "import functools\nf = functools.update_wrapper",
    "a private part of typing": "import typing\ndef f(): return typing._eval_type",
    "an unpickled file": "import torch\ndef f(p): return torch.load(p, weights_only=False)",
    "an unpickled file, told in a dictionary": "def f(g, p): return g(p, **{'weights_only': 0})",
    "one whose arguments are made": "import torch\ndef f(p, k): return torch.load(p, **k)",
    "an unpickled array": "import numpy\ndef f(p): return numpy.load(p, None, True)",
    "a parser that fills what it is given": "def f(p, x): return p.parse_args([], namespace=x)",
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
