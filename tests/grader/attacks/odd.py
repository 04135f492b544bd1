"""Honest submissions that look odd. Each must earn what it earns without its oddity."""

from __future__ import annotations

from dataclasses import dataclass

from .catalogue import APART, REAL, SMALL


@dataclass(frozen=True)
class Odd:
    """A right solution of `lab` (of the first tasks of lab 07: its others take long) with `before`
    in front of it and `after` behind it, at the tiers that it can be run at; with this encoding
    and these line ends."""

    id: str
    before: str = ""
    after: str = ""
    lab: str = "lab91"
    encode: str = "utf-8"
    newline: str = "\n"
    tiers: tuple[str, ...] = ("local", *APART)

    @property
    def group(self) -> str:
        return SMALL if self.lab == "lab91" else REAL

    def __str__(self) -> str:
        return self.id


ODD = [
    Odd("prints-5-mb", after="for _ in range(5): print('x' * 2**20)\n"),
    Odd(
        "threads",
        after="""
import threading
from concurrent.futures import ThreadPoolExecutor
_pool = ThreadPoolExecutor(3)
def add(a, b): return _pool.submit(lambda: a + b).result()
threading.Thread(target=print, daemon=True).start()
""",
    ),
    Odd(
        "own-classes",
        after="""
class _Row(list): pass
class _Number(int):
    def __repr__(self): return "a number"
_add = add
def add(a, b): return _Number(_add(a, b))
_Base = Stack
class Stack(_Base):
    size = property(lambda self: _Number(len(self._items)))
""",
    ),
    Odd(
        "numpy-scalars",
        after="""
import numpy as np
_mid = midpoint
def add(a, b): return np.int64(a) + np.int64(b)
def midpoint(a, b): return Point(np.float64(a.x + b.x) / 2, np.float64(a.y + b.y) / 2)
""",
    ),
    Odd(
        "slow-but-legal",
        after="""
import time
_slow = midpoint
def midpoint(a, b):
    time.sleep(0.5)
    return _slow(a, b)
""",
    ),
    Odd(
        "deep-recursion",
        after="""
import sys
sys.setrecursionlimit(20_000)
def _sum(n): return 0 if n == 0 else 1 + _sum(n - 1)
_plain = add
def add(a, b): return _plain(a, b) + _sum(3000) - 3000
""",
    ),
    Odd(
        "finalizers",
        after="""
import weakref
class _Loud:
    def __del__(self): print("gone")
_Quiet = Stack
class Stack(_Quiet):
    def __init__(self):
        super().__init__()
        self._loud = _Loud()
        weakref.finalize(self, print, "finalized")
    def __del__(self): print("stack gone")
""",
    ),
    Odd(
        "warnings-as-errors",
        before="import warnings\nwarnings.simplefilter('error')\n",
        tiers=APART,
    ),
    Odd("changes-folder", before="import os\nos.chdir(os.path.expanduser('~'))\n", tiers=APART),
    Odd(
        "patches-itself",
        after="""
import sys
_me = sys.modules[__name__]
_once = _me.add
setattr(_me, "add", lambda a, b: _once(a, b))
globals()["passphrase"] = (lambda word: lambda: word)(passphrase())
""",
    ),
    Odd(
        "forks-a-helper",
        after="""
import os
def add(a, b):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(a + b).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as line: answer = int(line.read())
    os.waitpid(child, 0)
    return answer
""",
    ),
    Odd(
        "multiprocessing",
        after="""
import multiprocessing
def _square(x): return x
def midpoint(a, b):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        x, y = pool.map(_square, [(a.x + b.x) / 2, (a.y + b.y) / 2])
    return Point(x, y)
""",
        tiers=APART,
    ),
    Odd(
        "calls-python",
        after="""
import subprocess, sys
def add(a, b):
    command = [sys.executable, "-I", "-S", "-c", f"print({a} + {b})"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
""",
    ),
    Odd(
        "temporary-files",
        after="""
import os, pathlib, tempfile
_direct = add
def add(a, b):
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("w+") as other:
        path = pathlib.Path(folder) / "sum.txt"
        path.write_text(str(_direct(a, b)))
        other.write("kept for a moment")
        return int(path.read_text())
""",
    ),
    Odd(
        "reads-its-own-source",
        after="""
import inspect, pathlib
assert "def softmax_rows" in pathlib.Path(__file__).read_text()
assert "def midpoint" in inspect.getsource(midpoint)
""",
    ),
    Odd(
        "has-a-main",
        after="""
def main(): raise SystemExit("not when it is imported")
if __name__ == "__main__":
    main()
""",
    ),
    Odd(
        "logs",
        before="import logging\nlogging.basicConfig(level=logging.DEBUG)\nlogging.info('hi')\n",
        after="logging.getLogger(__name__).warning('loaded %s', __name__)\n",
        tiers=APART,
    ),
    Odd(
        "seeds",
        before="import random\nrandom.seed(7)\nimport numpy\nnumpy.random.seed(7)\n",
        after="_first = random.random()\n",
    ),
    Odd(
        "caches",
        after="""
import functools
add = functools.lru_cache(maxsize=None)(add)
_rows = {}
_soft = softmax_rows
def softmax_rows(x): return _rows.setdefault(x.tobytes(), _soft(x))
""",
    ),
    Odd(
        "own-dataclasses",
        after="""
import dataclasses, enum, typing
@dataclasses.dataclass(slots=True, kw_only=True)
class _Box:
    items: list = dataclasses.field(default_factory=list)
class _Kind(enum.IntEnum):
    ZERO = 0
class _Pair(typing.NamedTuple):
    x: float
    y: float
class Stack:
    def __init__(self): self.box = _Box()
    def push(self, item): self.box.items.append(item)
    def pop(self): return self.box.items.pop()
    size = property(lambda self: len(self.box.items) + _Kind.ZERO)
def midpoint(a, b):
    pair = _Pair((a.x + b.x) / 2, (a.y + b.y) / 2)
    return Point(*pair)
""",
    ),
    Odd(
        "generators",
        after="""
def _halves(a, b): yield from ((a.x + b.x) / 2, (a.y + b.y) / 2)
def midpoint(a, b): return Point(*_halves(a, b))
""",
    ),
    Odd("lambdas", after="add = lambda a, b, *rest: (lambda: a + b)()\n"),
    Odd("star-imports", before="from math import *\nfrom types_lab91 import *\n"),
    Odd("unicode-names", after="\ndef größe(π, Δ): return π + Δ\nadd = größe\n"),
    Odd("byte-order-mark", encode="utf-8-sig", newline="\r\n"),
    Odd("tabs", after="\ndef add(a, b):\n\ttotal = a\n\ttotal += b\n\treturn total\n"),
    Odd(
        "optional-import",
        before="try:\n    import no_such_module as plt\nexcept ImportError:\n    plt = None\n",
    ),
    Odd(
        "asyncio",
        after="""
import asyncio
async def _sum(a, b):
    await asyncio.sleep(0)
    return a + b
def add(a, b): return asyncio.run(_sum(a, b))
""",
    ),
    Odd(
        "compiles-c++",
        after="""
import ctypes, os, subprocess, tempfile
_folder = tempfile.mkdtemp()
with open(os.path.join(_folder, "sum.cpp"), "w") as _file:
    _file.write('extern "C" long sum(long a, long b) {\\n    return a + b;\\n}\\n')
_library = os.path.join(_folder, "sum.so")
subprocess.run(["g++", "-shared", "-fPIC", "-O0", "-o", _library,
                os.path.join(_folder, "sum.cpp")], check=True, capture_output=True)
_sum = ctypes.CDLL(_library).sum
_sum.argtypes, _sum.restype = [ctypes.c_long] * 2, ctypes.c_long
def add(a, b): return _sum(a, b)
""",
    ),
    Odd(
        "own-alarm",
        after="""
import signal
_quick = softmax_rows
def softmax_rows(x):
    signal.signal(signal.SIGALRM, lambda *args: None)
    signal.alarm(5)
    try: return _quick(x)
    finally: signal.alarm(0)
""",
        tiers=APART,
    ),
    Odd(
        "catches-everything",
        after="""
_careless = add
def add(a, b):
    while True:
        try: return _careless(a, b)
        except: pass
""",
    ),
    Odd(
        "torch-settings",
        after="""
torch.set_num_threads(2)
torch.manual_seed(3)
torch.set_printoptions(precision=2)
_plainly = naive_attention
def naive_attention(*args, **kwargs):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try: return _plainly(*args, **kwargs)
    finally: torch.set_default_dtype(before)
""",
        lab="lab07",
        tiers=APART,
    ),
    Odd(
        "odd-tensors",
        after="""
class _Mine(torch.Tensor): pass
_softmax = online_softmax
def online_softmax(*args, **kwargs):
    p, m, l = _softmax(*args, **kwargs)
    odd = l.t().contiguous().t() if l.dim() == 2 else l
    return p.as_subclass(_Mine), torch.nn.Parameter(m), odd
""",
        lab="lab07",
        tiers=APART,
    ),
    Odd(
        "plain-numbers",
        after="""
from fractions import Fraction
_layers = simple_activation_bytes
def simple_activation_bytes(*args, **kwargs): return float(Fraction(_layers(*args, **kwargs)))
""",
        lab="lab01",
        tiers=APART,
    ),
]
