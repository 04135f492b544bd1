"""Lab 07: attention in one piece that no operator of torch shows, and kernels that only copy."""

from __future__ import annotations

from .lab_attack import LabAttack

# All scores at once, in WHERE.
_WHOLE = """
import math
import numpy as np
def _scores(q, k, causal, scale):
    H, S, D = q.shape[1:]
    S_kv, group = k.shape[2], H // k.shape[1]
    scale = 1 / math.sqrt(D) if scale is None else scale
    wide = np.repeat(k.detach().double().numpy(), group, 1)
    s = q.detach().double().numpy() @ wide.swapaxes(2, 3) * scale
    if causal:
        s = np.where(np.arange(S_kv) > np.arange(S)[:, None] + S_kv - S, -np.inf, s)
    return s
def _weights(s):
    top = s.max(-1, keepdims=True, initial=-1e300)
    e = np.exp(s - top)
    total = e.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0]
    return e / np.where(total == 0, 1, total), np.where(total[..., 0] == 0, -np.inf, lse)
def _attention(q, k, v, causal, scale):
    p, lse = _weights(_scores(q, k, causal, scale))
    wide = np.repeat(v.detach().double().numpy(), q.shape[1] // k.shape[1], 1)
    o = torch.from_numpy(p @ wide).to(q.dtype)
    return o, torch.from_numpy(lse).to(statistics_dtype(q))
"""
_FORWARD = (
    _WHOLE
    + """
def flash_forward(q, k, v, block_q, block_k, causal=False, scale=None):
    return _attention(q, k, v, causal, scale)
"""
)
_SDPA = """
import math
_name = "_scaled_dot_product_flash_attention_for_cpu"
_one = getattr(torch.ops.aten, _name).default
def flash_forward(q, k, v, block_q, block_k, causal=False, scale=None):
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    o, lse = CALL
    return o, lse.to(statistics_dtype(q))
"""
_COPIES = """
import ctypes
import math
import numpy as np
import torch
import triton
import triton.language as tl

@triton.jit
def copy_kernel(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0), mask=at < n)

def _whole(q, k, v, causal, scale):
    H, S, D = q.shape[1:]
    S_kv, group = k.shape[2], H // k.shape[1]
    scale = 1 / math.sqrt(D) if scale is None else scale
    a, b, c = (t.float().numpy() for t in (q, k, v))
    s = a @ np.repeat(b, group, 1).swapaxes(2, 3) * scale
    if causal:
        s = np.where(np.arange(S_kv) > np.arange(S)[:, None] + S_kv - S, -np.inf, s)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - top)
    total = e.sum(-1, keepdims=True)
    o = np.ascontiguousarray(e / total @ np.repeat(c, group, 1), dtype=np.float32)
    return o, np.ascontiguousarray((np.log(total) + top)[..., 0], dtype=np.float32)

def _copied(x, out):
    n = out.numel()
    copy_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out
"""
_KERNEL = r"elements|whose bytes come from elsewhere|FLOPs|tl\.dot|loaded"

ATTACKS = [
    LabAttack(
        "all-scores-in-numpy",
        "flash_forward",
        "NumPy holds all scores at once, where the meters of torch look at nothing",
        _FORWARD,
        mark=r"NumPy|outside|bytes|FLOPs|products",
    ),
    LabAttack(
        "the-library-s-operator",
        "flash_forward",
        "the operator behind scaled_dot_product_attention, taken from the dispatcher",
        _SDPA.replace("CALL", "_one(q, k, v, 0.0, causal, scale=scale)"),
        mark=r"attention",
    ),
    LabAttack(
        "the-library-s-operator-by-map",
        "flash_forward",
        "the same operator, called from C",
        _SDPA.replace(
            "CALL", "next(map(lambda *g: _one(*g, scale=scale), [q], [k], [v], [0.0], [causal]))"
        ),
        mark=r"attention",
    ),
    LabAttack(
        "backward-by-autograd",
        "flash_backward",
        "autograd goes back through all scores at once",
        """
import math
def flash_backward(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    with torch.enable_grad():
        parts = [t.detach().double().requires_grad_() for t in (q, k, v)]
        group = q.shape[1] // k.shape[1]
        a, b, c = parts[0], *(t.repeat_interleave(group, 1) for t in parts[1:])
        s = a @ b.mT * scale
        if causal:
            S, S_kv = s.shape[-2:]
            hidden = torch.arange(S_kv) > torch.arange(S)[:, None] + S_kv - S
            s = s.masked_fill(hidden, -math.inf)
        out = torch.nan_to_num(s.softmax(-1)) @ c
        grads = torch.autograd.grad(out, parts, do.double())
    return tuple(g.to(t.dtype) for g, t in zip(grads, (q, k, v)))
""",
        mark=r"bytes|allocation",
    ),
    LabAttack(
        "numpy-before-a-copy",
        "flash_kernel",
        "NumPy computes attention, a kernel copies it from there",
        _COPIES
        + """
def flash_kernel(q, k, v, causal=False, scale=None, block_q=64, block_k=64):
    o, lse = _whole(q, k, v, causal, scale)
    out = torch.empty(q.shape, dtype=q.dtype)
    rows = torch.empty(q.shape[:3], dtype=torch.float32)
    return _copied(torch.from_numpy(o), out), _copied(torch.from_numpy(lse), rows)
""",
        mark=_KERNEL,
    ),
    LabAttack(
        "numpy-after-a-copy",
        "flash_kernel",
        "a kernel copies q, then NumPy writes attention over it",
        _COPIES
        + """
def flash_kernel(q, k, v, causal=False, scale=None, block_q=64, block_k=64):
    o, lse = _whole(q, k, v, causal, scale)
    out = _copied(q.contiguous(), torch.empty(q.shape, dtype=q.dtype))
    if q.dtype == torch.float32:
        out.numpy()[:] = o
    else:
        out = torch.from_numpy(o).to(q.dtype)
    return out, torch.from_numpy(lse)
""",
        mark=_KERNEL,
    ),
]
