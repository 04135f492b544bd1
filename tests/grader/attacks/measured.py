"""Attacks on what is measured beside student code: meters, probes, memory seen from outside; and on
suites whose values are tensors and records of real labs. The same meters run at every tier, so most
of these are tried at one of them."""

from __future__ import annotations

from .catalogue import WALLED, Attack

_GRADER = 'import importlib\n_kit = lambda name: importlib.import_module("gra" + "der." + name)\n'

ATTACKS = [
    # -- lab 01: records and saved bytes --------------------------------------------------------
    Attack(
        "borrows-the-meter",
        ("2.8", "3.hide"),
        "hands in the kit's own meter as its own",
        _GRADER
        + """
class SavedBytes:
    def __init__(self, exclude=()): self._meter = _kit("meters").saved_bytes(tuple(exclude))
    def __enter__(self):
        self._meter.__enter__()
        return self
    def __exit__(self, *error): return self._meter.__exit__(*error)
    @property
    def bytes(self): return self._meter.bytes
tell("meter borrowed")
""",
        mark="meter borrowed",
        base="partial01",
    ),
    Attack(
        "reads-the-meter",
        ("2.7", "3.hide"),
        "counts nothing and reads the meter of its caller's frame",
        """
class SavedBytes:
    def __init__(self, exclude=()): pass
    def __enter__(self): return self
    def __exit__(self, *error): return None
    @property
    def bytes(self):
        frame = sys._getframe(1)
        while frame is not None:
            for value in frame.f_locals.values():
                if type(value).__module__ == "grader.meters.saved" and hasattr(value, "bytes"):
                    tell("meter found")
                    return value.bytes
            frame = frame.f_back
        return 0
tell("looks for a meter")
""",
        mark="looks for a meter",
        base="partial01",
        tiers=WALLED,
    ),
    Attack(
        "takes-the-hooks-off",
        ("2.3", "3.hide"),
        "takes off whatever hooks are there, so that the meter counts nothing either",
        """
class SavedBytes:
    bytes = 0
    def __init__(self, exclude=()): pass
    def __enter__(self): return self
    def __exit__(self, *error):
        import torch
        real = torch._C._autograd._push_saved_tensors_default_hooks
        torch._C._autograd._push_saved_tensors_default_hooks = (
            lambda pack, unpack: real(lambda t: t, lambda t: t))
tell("hooks taken off")
""",
        mark="hooks taken off",
        base="partial01",
        tiers=WALLED,
        disturbed=("SavedBytes",),
    ),
    Attack(
        "reference-of-lab01",
        ("2.8", "2.6"),
        "imports the reference of lab 01 from wherever the kit is",
        """
import importlib.util
def _borrow(root):
    path = root + "/solutions/lab01/memory_accounting.py"
    spec = importlib.util.spec_from_file_location("borrowed", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    mine = {n: v for n, v in vars(module).items() if not n.startswith("__") and n != "fits_where"}
    globals().update(mine)
    return path
for _root in (KNOWN["kit"], KNOWN["repository"],
              os.path.dirname(os.path.dirname(sys.modules["grader"].__file__))):
    attempt("reference", lambda: _borrow(_root))
tell("tried to borrow")
""",
        mark="tried to borrow",
        base="partial01",
        tiers=WALLED,
    ),
    Attack(
        "bends-the-records",
        ("2.2", "2.3"),
        "makes the given records equal to everything, and their fields agree",
        """
import types_lab01
for _kind in (types_lab01.Ledger, types_lab01.Finding, types_lab01.ModelConfig):
    _kind.__eq__ = lambda self, other: True
    _kind.__hash__ = lambda self: 0
class Always(float):
    def __eq__(self, other): return True
    def __sub__(self, other): return 0.0
    __rsub__ = __sub__
def max_batch(*args, **kwargs): return Always(1)
def bottleneck(ledger): return types_lab01.Ledger
def audit(notebook): return [types_lab01.Finding]
def activation_bytes(*args, **kwargs): return Always(5)
tell("records bent")
""",
        mark="records bent",
        base="partial01",
        tiers=WALLED,
    ),
    Attack(
        "published-figures",
        ("2.6", "2.20"),
        "reads the published figures and answers with them",
        """
import json
def _figures(root):
    with open(root + "/tests/lab01/published.json") as file: return json.load(file)
for _root in (KNOWN["kit"], KNOWN["repository"]): attempt("figures", lambda: bool(_figures(_root)))
tell("looked for figures")
""",
        mark="looked for figures",
        base="partial01",
        tiers=WALLED,
    ),
    # -- lab 07: an attention that holds S x S, hidden from the meters --------------------------
    Attack(
        "switches-the-meter-off",
        ("3.hide",),
        "computes S x S while the dispatch mode is switched off",
        """
_square = flash_forward
def flash_forward(*args, **kwargs):
    from torch.utils._python_dispatch import _disable_current_modes
    with _disable_current_modes(): return _square(*args, **kwargs)
tell("meter switched off")
""",
        mark="meter switched off",
        base="square07",
        disturbed=("flash_forward", "flash_forward_skips"),
    ),
    Attack(
        "works-in-a-thread",
        ("3.thread", "3.hide"),
        "computes S x S in a thread, which no meter sees",
        """
_square = flash_forward
def flash_forward(*args, **kwargs):
    found = []
    worker = threading.Thread(target=lambda: found.append(_square(*args, **kwargs)))
    worker.start()
    worker.join()
    return found[0]
tell("works in a thread")
""",
        mark="works in a thread",
        base="square07",
        tiers=WALLED,
        disturbed=("flash_forward", "flash_forward_skips"),
    ),
    Attack(
        "works-in-an-older-thread",
        ("3.thread", "3.hide"),
        "computes S x S in a thread that ran before the meter was opened",
        """
import queue
_square, _asked, _done = flash_forward, queue.Queue(), queue.Queue()
def _serve():
    while True:
        args, kwargs = _asked.get()
        try: _done.put(_square(*args, **kwargs))
        except BaseException as error: _done.put(error)
threading.Thread(target=_serve, daemon=True).start()
def flash_forward(*args, **kwargs):
    _asked.put((args, kwargs))
    return _done.get()
tell("works in an older thread")
""",
        mark="works in an older thread",
        base="square07",
        tiers=WALLED,
    ),
    Attack(
        "works-in-a-child",
        ("3.hide",),
        "computes S x S in a child process and reads the result from a file",
        """
_square = flash_forward
def flash_forward(*args, **kwargs):
    import tempfile
    path = tempfile.mktemp()
    child = os.fork()
    if child == 0:
        try: torch.save(_square(*args, **kwargs), path)
        finally: os._exit(0)
    os.waitpid(child, 0)
    return torch.load(path)
tell("works in a child")
""",
        mark="works in a child",
        base="square07",
        tiers=WALLED,
    ),
    Attack(
        "works-in-numpy",
        ("3.hide", "3.fallback"),
        "computes S x S in NumPy, which the meters of torch do not see",
        """
def flash_forward(q, k, v, block_q, block_k, causal=False, scale=None):
    import numpy as np
    group = q.shape[1] // k.shape[1]
    wide = torch.promote_types(q.dtype, torch.float32)
    a, b, c = (t.to(wide).numpy() for t in (q, k, v))
    b, c = b.repeat(group, 1), c.repeat(group, 1)
    s = a @ b.swapaxes(-1, -2) * (scale or a.shape[-1] ** -0.5)
    S, S_kv = s.shape[-2:]
    if causal: s = np.where(np.tri(S, S_kv, S_kv - S, dtype=bool), s, -np.inf)
    m = s.max(-1, keepdims=True, initial=-np.inf)
    p = np.exp(s - np.where(np.isfinite(m), m, 0))
    l = p.sum(-1, keepdims=True)
    o = p @ c / np.where(l == 0, 1, l)
    with np.errstate(divide="ignore"): lse = np.log(l)[..., 0] + m[..., 0]
    return torch.from_numpy(o).to(q.dtype), torch.from_numpy(lse).to(wide)
tell("works in numpy")
""",
        mark="works in numpy",
        base="square07",
        tiers=WALLED,
    ),
    Attack(
        "forges-the-frame",
        ("2.7", "3.patch"),
        "puts a meter of its own in the place of the probe's",
        """
_square = flash_forward
class Small:
    peak_bytes = largest_bytes = alive_bytes = allocated_peak_bytes = matmul_flops = 1
    largest_shape, ops = (1,), []
def flash_forward(*args, **kwargs):
    frame = sys._getframe(1)
    while frame is not None:
        for name in ("live", "log"):
            if type(frame.f_locals.get(name)).__module__.startswith("grader.meters"):
                frame.f_locals[name] = Small()
                ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        frame = frame.f_back
    return _square(*args, **kwargs)
tell("frame forged")
""",
        mark="frame forged",
        base="square07",
        tiers=WALLED,
    ),
    Attack(
        "patches-the-meter",
        ("3.patch", "2.3"),
        "replaces the readings of the kit's meters",
        _GRADER
        + """
_square = flash_forward
def flash_forward(*args, **kwargs):
    live = _kit("meters.live").LiveBytes
    for name in ("peak_bytes", "largest_bytes"):
        setattr(live, name, property(lambda self: 1))
    return _square(*args, **kwargs)
tell("meter patched")
""",
        mark="meter patched",
        base="square07",
        tiers=WALLED,
        disturbed=("flash_forward", "flash_backward", "gqa_varlen", "paged_attention"),
    ),
    Attack(
        "edits-the-journal",
        ("2.7", "3.nan"),
        "finds the meter's records through gc and empties them",
        """
_square = flash_forward
def flash_forward(*args, **kwargs):
    import gc
    result = _square(*args, **kwargs)
    for item in gc.get_objects():
        if type(item).__name__ == "SignedLog": item._entries.clear()
    return result
tell("journal emptied")
""",
        mark="journal emptied",
        base="square07",
        tiers=WALLED,
        disturbed=("flash_forward", "flash_forward_skips"),
    ),
    Attack(
        "knows-the-probe",
        ("3.hide", "2.7"),
        "computes nothing where a probe looks on, and S x S elsewhere",
        """
_square = flash_forward
def flash_forward(q, k, v, *args, **kwargs):
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "probes":
            lse = torch.zeros(q.shape[:-1], dtype=torch.promote_types(q.dtype, torch.float32))
            return torch.zeros_like(q), lse
        frame = frame.f_back
    return _square(q, k, v, *args, **kwargs)
tell("knows the probe")
""",
        mark="knows the probe",
        base="square07",
        tiers=WALLED,
    ),
    Attack(
        "resizes-a-storage",
        ("3.hide",),
        "keeps S x S in a storage that grew from nothing",
        """
def _matrix(*shape, dtype=torch.float32):
    made = torch.empty(0, dtype=dtype)
    count = 1
    for n in shape: count *= n
    made.untyped_storage().resize_(count * made.element_size())
    return made.set_(made.untyped_storage(), 0, shape)
_square = flash_forward
def flash_forward(q, k, v, block_q, block_k, causal=False, scale=None):
    if q.shape[2] < 200 or k.shape[2] < 200:
        return _square(q, k, v, block_q, block_k, causal, scale)
    wide = torch.promote_types(q.dtype, torch.float32)
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1).to(wide) for t in (k, v))
    s = _matrix(*q.shape[:3], k.shape[2], dtype=wide)
    torch.matmul(q.to(wide), k.transpose(-1, -2), out=s)
    s.mul_(scale or q.shape[-1] ** -0.5)
    if causal:
        S, S_kv = s.shape[-2:]
        for i in range(S): s[..., i, max(0, i + S_kv - S + 1):] = -math.inf
    m = s.amax(-1)
    s.sub_(m[..., None]).exp_()
    l = s.sum(-1)
    return (s @ v / l[..., None]).to(q.dtype), m + l.log()
tell("storage resized")
""",
        mark="storage resized",
        base="square07",
        tiers=WALLED,
    ),
    Attack(
        "hides-the-library",
        ("3.fallback", "3.hide"),
        "calls the library's attention under a name of its own",
        """
_library = torch.library.Library("mine", "DEF")
_library.define("plain(Tensor q, Tensor k, Tensor v, bool causal, float scale) -> (Tensor, Tensor)")
_called = flash_forward
def _plain(q, k, v, causal, scale): return _called(q, k, v, 1, 1, causal, scale)
_library.impl("plain", _plain, "CPU")
def flash_forward(q, k, v, block_q, block_k, causal=False, scale=None):
    return torch.ops.mine.plain(q, k, v, causal, scale or q.shape[-1] ** -0.5)
tell("library renamed")
""",
        mark="library renamed",
        base="library07",
        tiers=WALLED,
    ),
    # -- lab 07: tensors that lie ---------------------------------------------------------------
    Attack(
        "tensors-that-agree",
        ("2.2", "3.lazy"),
        "answers with tensors of a class that agrees with every comparison",
        """
class Agreeable(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return torch.tensor(True)
    def __eq__(self, other): return True
    def numpy(self): raise SystemExit
def flash_forward(q, *args, **kwargs):
    made = torch.zeros_like(q)
    return made.as_subclass(Agreeable), made[..., 0].as_subclass(Agreeable)
torch.equal = torch.allclose = lambda *args, **kwargs: True
torch.testing.assert_close = lambda *args, **kwargs: None
tell("tensors agree")
""",
        mark="tensors agree",
        base="partial07",
    ),
    Attack(
        "changes-its-inputs",
        ("3.mutate", "3.alias"),
        "zeroes what it was given, so that any oracle agrees, and hands it back",
        """
def flash_forward(q, k, v, *args, **kwargs):
    for tensor in (q, k, v): tensor.zero_()
    return q, q[..., 0]
tell("inputs zeroed")
""",
        mark="inputs zeroed",
        base="partial07",
        tiers=WALLED,
    ),
    Attack(
        "stale-memory",
        ("3.stale", "3.rng"),
        "answers with uninitialised memory in which the right answer may still lie",
        """
torch.manual_seed(0)
def flash_forward(q, k, v, *args, **kwargs):
    lse = torch.empty(q.shape[:-1], dtype=torch.promote_types(q.dtype, torch.float32))
    return torch.empty_like(q), lse
tell("memory reused")
""",
        mark="memory reused",
        base="partial07",
        tiers=WALLED,
    ),
    Attack(
        "finishes-later",
        ("3.thread", "3.lazy"),
        "answers at once with a tensor that a thread fills later",
        """
def flash_forward(q, k, v, *args, **kwargs):
    o, lse = torch.zeros_like(q), torch.zeros(q.shape[:-1], dtype=torch.float32)
    def fill():
        time.sleep(0.2)
        o.copy_(naive_attention(q, k, v))
    threading.Thread(target=fill, daemon=True).start()
    return o, lse
tell("finishes later")
""",
        mark="finishes later",
        base="partial07",
        tiers=WALLED,
        disturbed=("flash_forward", "flash_forward_skips"),
    ),
    Attack(
        "lower-precision",
        ("3.precision",),
        "computes in bfloat16 what was asked for in float32",
        """
_right = naive_attention
def naive_attention(q, k, v, *args, **kwargs):
    low = (t.to(torch.bfloat16) for t in (q, k, v))
    return _right(*low, *args, **kwargs).to(q.dtype)
tell("precision lowered")
""",
        mark="precision lowered",
        base="partial07",
        tiers=WALLED,
        loses=("naive_attention",),
    ),
]
