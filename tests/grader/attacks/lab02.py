"""Lab 02: libraries under another name, the kit's meter as a ledger, values read past operators."""

from __future__ import annotations

from .lab_attack import LabAttack

_CTYPES = """
import ctypes, numpy
def _number(t):
    kind = ctypes.c_double if t.dtype == torch.float64 else ctypes.c_float
    return kind.from_address(t.data_ptr()).value
def _by_dlpack(t):
    return float(numpy.from_dlpack(t))
def clip_grad_norm(params, max_norm, error_if_nonfinite=False):
    grads = [p.grad for p in params if p.grad is not None]
    if not grads:
        return torch.tensor(0.0)
    wide = torch.float64 if any(g.dtype == torch.float64 for g in grads) else torch.float32
    norms = [g.to(wide).norm() for g in grads]
    total = sum(READ(n) ** 2 for n in norms) ** 0.5
    norm = torch.full((), total, dtype=wide)
    if error_if_nonfinite and not norm.isfinite():
        raise RuntimeError("not finite")
    with torch.no_grad():
        for g in grads:
            g.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0).to(g))
    return norm
"""
_READS = r"SIGSEGV|on meta"

ATTACKS = [
    LabAttack(
        "adamw-made-anew",
        "AdamW",
        "torch's source of AdamW, executed under another file's name",
        """
import inspect
import torch.optim.adam as _adam, torch.optim.adamw as _adamw
_space = {"__name__": "mine", "__package__": "torch.optim"}
exec(compile("\\n\\n" + inspect.getsource(_adam), "train_single_gpu.py", "exec"), _space)
_source = inspect.getsource(_adamw).replace("from .adam import Adam, adam", "")
exec(compile("\\n" + _source, "train_single_gpu.py", "exec"), _space)
class AdamW(_space["AdamW"]):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, lr, betas, eps, weight_decay, foreach=False)
""",
        mark=r"your code used `torch\.optim\.adam",
    ),
    LabAttack(
        "a-scaler-in-an-older-thread",
        "LossScaler",
        "torch's scaler, made and asked in a thread that began at import",
        """
from concurrent.futures import ThreadPoolExecutor
_pool = ThreadPoolExecutor(1)
_pool.submit(int).result()
class LossScaler:
    def __init__(self, init=65536.0, growth=2.0, backoff=0.5, interval=2000):
        make = lambda: torch.amp.GradScaler("cpu", init, growth, backoff, interval)
        self._inner = _pool.submit(make).result()
    def __getattr__(self, name):
        held = getattr(self._inner, name)
        if not callable(held):
            return held
        return lambda *given: _pool.submit(held, *given).result()
""",
        mark=r"your code used `torch\.amp\.grad_scaler",
    ),
    LabAttack(
        "a-ledger-by-the-kit-s-meter",
        "MemoryLedger",
        "the kit's meter of bytes by kind does the learner's bookkeeping",
        """
import importlib
class MemoryLedger:
    def __init__(self, model, opt):
        meters = importlib.import_module("grader.meters")
        self._maker = meters.bytes_by_kind(model, opt)
    def __enter__(self):
        self._meter = self._maker.__enter__()
        return self
    def __exit__(self, *error): self._maker.__exit__(*error)
    def phase(self, name): self._meter.mark(name)
    @property
    def peak(self): return self._meter.peak
    @property
    def alive(self): return self._meter.alive
""",
        mark=r"student code opened one of the kit's own meters",
    ),
    LabAttack(
        "values-read-by-ctypes",
        "clip_grad_norm",
        "each gradient's norm comes to Python by its address, past every operator",
        _CTYPES.replace("READ", "_number"),
        mark=_READS,
    ),
    LabAttack(
        "values-read-by-dlpack",
        "clip_grad_norm",
        "the same through NumPy and DLPack",
        _CTYPES.replace("READ", "_by_dlpack"),
        mark=_READS,
    ),
    LabAttack(
        "gradients-clipped-by-the-library",
        "clip_grad_norm",
        "torch's function, from its code under another name",
        """
import types
import torch.nn.utils.clip_grad as _home
def _anew(f):
    code = f.__code__.replace(co_filename="train_single_gpu.py", co_name="mine")
    return types.FunctionType(code, {**f.__globals__, "__name__": "mine"}, "mine",
                              f.__defaults__, f.__closure__)
def clip_grad_norm(params, max_norm, error_if_nonfinite=False):
    f = _home.clip_grad_norm_
    f = getattr(f, "__wrapped__", f)
    return _anew(f)(list(params), max_norm, error_if_nonfinite=error_if_nonfinite)
""",
        mark=r"your code used `torch\.nn\.utils\.clip_grad",
    ),
]
