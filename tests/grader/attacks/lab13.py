"""Lab 13: memory that the meters do not look at, movers whose record is written by the learner."""

from __future__ import annotations

from .lab_attack import LabAttack

_NUMPY_SCORES = """
import numpy as np
def sliced_attention(q, k, v, heads_per_slice, queries_per_slice):
    if min(heads_per_slice, queries_per_slice) < 1: raise ValueError("none")
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    a, b, c = (t.detach().to(wide).numpy() for t in (q, k, v))
    s = a @ b.swapaxes(2, 3) * a.shape[3] ** -0.5
    e = np.exp(s - s.max(-1, keepdims=True))
    return torch.from_numpy(e / e.sum(-1, keepdims=True) @ c).to(q.dtype)
"""
_FORGED = """
class SequentialOffload:
    def __init__(self, module, to_fast, to_slow):
        self.module, self.link = module, to_fast.__self__
        DEED
    def remove(self):
        pass
"""

ATTACKS = [
    LabAttack(
        "the-batch-in-a-thread",
        "sliced_decode",
        "the whole batch is decoded at once in a thread, which a meter does not see",
        """
import threading
def sliced_decode(decoder, z):
    if z.dim() != 4 or len(z) == 0: raise ValueError("shape")
    out = []
    grad = torch.is_grad_enabled()
    def work():
        with torch.set_grad_enabled(grad):
            for _ in range(len(z) - 1): decoder(z[:1])
            out.append(decoder(z))
    thread = threading.Thread(target=work)
    thread.start(), thread.join()
    return out[0]
""",
        mark=r"a thread was started|shape|calls",
    ),
    LabAttack(
        "the-batch-in-an-older-thread",
        "sliced_decode",
        "the same in a thread that began at import; the calls that count are for show",
        """
from concurrent.futures import ThreadPoolExecutor
_pool = ThreadPoolExecutor(1)
_pool.submit(int).result()
def sliced_decode(decoder, z):
    if z.dim() != 4 or len(z) == 0: raise ValueError("shape")
    grad = torch.is_grad_enabled()
    def work():
        with torch.set_grad_enabled(grad):
            return torch.cat([decoder(one) for one in z.split(1)])
    def whole():
        with torch.set_grad_enabled(grad):
            return torch.cat([decoder(z), decoder(z)])[: len(z)]
    kept = getattr(decoder, "calls", None)
    out = _pool.submit(work if kept is not None else whole).result()
    return out
""",
        mark=r"thread|meter|bytes",
        passes=("test_each_latent_is_decoded_alone",),
    ),
    LabAttack(
        "all-scores-in-numpy",
        "sliced_attention",
        "NumPy holds all scores at once, where the meters of torch look at nothing",
        _NUMPY_SCORES,
        mark=r"products|FLOPs",
    ),
    LabAttack(
        "all-scores-in-numpy-and-slices-for-show",
        "sliced_attention",
        "NumPy's answer, beside slices in torch whose results nobody uses",
        _NUMPY_SCORES.replace(
            "    return torch",
            """    for h in range(0, q.shape[1], heads_per_slice):
        for n in range(0, q.shape[2], queries_per_slice):
            some, rows = slice(h, h + heads_per_slice), slice(n, n + queries_per_slice)
            x = (q[:, some, rows] * q.shape[3] ** -0.5) @ k[:, some].mT
            x.softmax(-1) @ v[:, some]
            del x
    return torch""",
        ),
        mark=r"NumPy|outside|elsewhere|bytes",
    ),
    LabAttack(
        "fused-attention-from-the-dispatcher",
        "sliced_attention",
        "the operator behind scaled_dot_product_attention",
        """
_one = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu").default
def sliced_attention(q, k, v, heads_per_slice, queries_per_slice):
    if min(heads_per_slice, queries_per_slice) < 1: raise ValueError("none")
    return _one(q, k, v)[0]
""",
        mark=r"attention",
    ),
    LabAttack(
        "a-record-of-moves-that-is-written",
        "SequentialOffload",
        "nothing moves, and the mover's own record and measure say that it did",
        _FORGED.replace(
            "DEED",
            """link = self.link
        type(link).fast_bytes = lambda self: 0
        for tensor in [*module.parameters(), *module.buffers()]:
            link._note("slow", tensor, tensor.nbytes)""",
        ),
        mark=r"was replaced",
    ),
    LabAttack(
        "a-measure-on-the-instance",
        "SequentialOffload",
        "the same where only the one mover that the learner was given is changed",
        _FORGED.replace(
            "DEED",
            """self.total = self.link.fast_bytes()
        self.link.fast_bytes = lambda: 0
        for tensor in [*module.parameters(), *module.buffers()]:
            self.link._note("slow", tensor, tensor.nbytes)
        for part in module.modules():
            own = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
            part.register_forward_pre_hook(lambda m, a, own=own: self.tell("fast", own))
            part.register_forward_hook(lambda m, a, o, own=own: self.tell("slow", own))

    def tell(self, way, own):
        size = sum(t.nbytes for t in own)
        self.link.fast_bytes = lambda: size if way == "fast" else 0
        for tensor in own:
            self.link._note(way, tensor, tensor.nbytes)
""",
        ),
        mark=r"attribute 'fast_bytes' is read-only",
    ),
]
