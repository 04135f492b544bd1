"""Several rows a program in blocks of two axes, exponentials to base 2, lanes that keep running
maxima of their own, the label's logit picked out of the block, dropout in one kernel for both ways.
"""

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634
ROWS = 4


def matrix(x):
    return x if x.dim() == 2 else x.reshape(-1, x.shape[-1])


def traffic(M, N, itemsize, fused):
    once = M * N * itemsize
    column = M * itemsize
    return (once, once) if fused else (5 * once + 2 * column, 3 * once + 2 * column)


def naive_softmax(x):
    e = (x - x.max(dim=1, keepdim=True).values).exp_()
    return e.div_(e.sum(1, keepdim=True))


@triton.jit
def normalised(s):
    """Rows of a block of logits, base 2, padding and hidden ones at -inf."""
    top = tl.max(s, axis=1)
    top = tl.where(top == float("-inf"), 0.0, top)
    e = tl.exp2(s - top[:, None])
    total = tl.sum(e, axis=1)
    return e / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
def softmax_kernel(x, out, M, N, sm, sn, ROWS_: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS_ + tl.arange(0, ROWS_).to(tl.int64)
    c = tl.arange(0, BLOCK)
    on = (r[:, None] < M) & (c[None, :] < N)
    s = tl.load(x + r[:, None] * sm + c[None, :] * sn, mask=on, other=float("-inf"))
    p = normalised(s.to(tl.float32) * 1.4426950408889634)
    tl.store(out + r[:, None] * N + c[None, :], p.to(out.dtype.element_ty), mask=on)


def softmax(x):
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if out.numel():
        rows = matrix(x)
        M, N = rows.shape
        block = triton.next_power_of_2(N)
        few = max(1, min(ROWS, 8192 // block))
        softmax_kernel[(triton.cdiv(M, few),)](
            rows, out, M, N, *rows.stride(), ROWS_=few, BLOCK=block,
            num_warps=max(1, min(32, few * block // 256)),
        )  # fmt: skip
    return out


@triton.jit
def masked_kernel(
    x, mask, out, M, N, sm, sn, mm, mn, scale,
    KIND: tl.constexpr, ROWS_: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0) * ROWS_ + tl.arange(0, ROWS_).to(tl.int64)
    c = tl.arange(0, BLOCK)
    on = (r[:, None] < M) & (c[None, :] < N)
    seen = on
    if KIND == "boolean":  # hidden logits are not even loaded
        seen = on & (tl.load(mask + r[:, None] * mm + c[None, :] * mn, mask=on, other=0) != 0)
    s = tl.load(x + r[:, None] * sm + c[None, :] * sn, mask=seen, other=0.0).to(tl.float32)
    s = s * scale
    if KIND == "added":
        s += tl.load(mask + r[:, None] * mm + c[None, :] * mn, mask=on, other=0.0)
    s = tl.where(seen, s * 1.4426950408889634, float("-inf"))
    tl.store(out + r[:, None] * N + c[None, :], normalised(s).to(out.dtype.element_ty), mask=on)


def softmax_scaled_masked(x, scale=1.0, mask=None):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not out.numel():
        return out
    kind = "none" if mask is None else "boolean" if mask.dtype == torch.bool else "added"
    mask = (x if mask is None else mask).broadcast_to(x.shape)
    M, N = x.shape
    masked_kernel[(triton.cdiv(M, 2),)](
        x, mask, out, M, N, *x.stride(), *mask.stride(), scale,
        KIND=kind, ROWS_=2, BLOCK=triton.next_power_of_2(N),
    )  # fmt: skip
    return out


@triton.jit
def backward_kernel(
    p, dp, dx, M, N, pm, pn, dm, dn, ROWS_: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    r = tl.program_id(0) * ROWS_ + tl.arange(0, ROWS_).to(tl.int64)
    c = tl.arange(0, BLOCK)
    on = (r[:, None] < M) & (c[None, :] < N)
    weights = tl.load(p + r[:, None] * pm + c[None, :] * pn, mask=on, other=0.0).to(tl.float32)
    g = tl.load(dp + r[:, None] * dm + c[None, :] * dn, mask=on, other=0.0).to(tl.float32)
    terms = weights * g
    grad = terms - weights * tl.sum(terms, axis=1)[:, None]
    tl.store(dx + r[:, None] * N + c[None, :], grad.to(dx.dtype.element_ty), mask=on)


def softmax_backward(p, dp):
    dx = torch.empty(p.shape, dtype=p.dtype, device=p.device)
    if dx.numel():
        a, b = matrix(p), matrix(dp)
        M, N = a.shape
        backward_kernel[(triton.cdiv(M, ROWS),)](
            a, b, dx, M, N, *a.stride(), *b.stride(), ROWS_=ROWS, BLOCK=triton.next_power_of_2(N)
        )
    return dx


class SoftmaxFunction(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return softmax(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, dp):
        return softmax_backward(*ctx.saved_tensors, dp)


@triton.jit
def online_kernel(x, out, N, sm, sn, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    # each lane has a maximum and a sum of its own; they meet once, after the loop
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    d = tl.zeros([BLOCK], tl.float32)
    for k in range(tl.cdiv(N, BLOCK)):
        c = k * BLOCK + lane
        s = tl.load(x + r * sm + c * sn, mask=c < N, other=float("-inf")).to(tl.float32)
        s = s * 1.4426950408889634
        higher = tl.maximum(m, s)
        base = tl.where(higher == float("-inf"), 0.0, higher)
        d = d * tl.exp2(m - base) + tl.exp2(s - base)
        m = higher
    top = tl.max(m, axis=0)
    top = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(d * tl.exp2(m - top), axis=0)
    inverse = 1.0 / tl.where(total == 0.0, 1.0, total)
    for k in range(tl.cdiv(N, BLOCK) - 1, -1, -1):  # backwards: the last blocks are in the cache
        c = k * BLOCK + lane
        s = tl.load(x + r * sm + c * sn, mask=c < N, other=float("-inf")).to(tl.float32)
        p = tl.exp2(s * 1.4426950408889634 - top) * inverse
        tl.store(out + r * N + c, p.to(out.dtype.element_ty), mask=c < N)


def online_softmax(x, block=1024):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        rows = matrix(x)
        M, N = rows.shape
        online_kernel[(M,)](rows, out, N, *rows.stride(), BLOCK=block)
    return out


@triton.jit
def cross_entropy_kernel(
    logits, labels, losses, lse, V, sm, sv, sl, ignore_index, BLOCK: tl.constexpr
):
    r = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + r * sl)
    m = float("-inf")
    d = 0.0
    chosen = 0.0
    for start in range(0, V, BLOCK):
        c = start + tl.arange(0, BLOCK)
        s = tl.load(logits + r * sm + c * sv, mask=c < V, other=float("-inf")).to(tl.float32)
        chosen += tl.sum(tl.where(c == label, s, 0.0), axis=0)
        higher = tl.maximum(m, tl.max(s, axis=0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        d = d * tl.exp(m - base) + tl.sum(tl.exp(s - base), axis=0)
        m = higher
    row_lse = m + tl.log(d)
    tl.store(lse + r, row_lse)
    tl.store(losses + r, tl.where(label == ignore_index, 0.0, row_lse - chosen))


@triton.jit
def mean_kernel(losses, labels, loss, M, sl, ignore_index, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    count = tl.zeros([BLOCK], tl.float32)
    for start in range(0, M, BLOCK):
        r = start + tl.arange(0, BLOCK)
        counts = tl.load(labels + r * sl, mask=r < M, other=ignore_index) != ignore_index
        total += tl.load(losses + r, mask=counts, other=0.0)
        count += counts.to(tl.float32)
    tl.store(loss, tl.sum(total, axis=0) / tl.sum(count, axis=0))


def log_softmax_cross_entropy(logits, labels, ignore_index=-100, block=4096):
    M, V = logits.shape
    losses = torch.empty(M, device=logits.device)
    lse = torch.empty(M, device=logits.device)
    loss = torch.empty((), device=logits.device)
    if M:
        cross_entropy_kernel[(M,)](
            logits, labels, losses, lse, V, *logits.stride(), labels.stride(0), ignore_index,
            BLOCK=block,
        )  # fmt: skip
    mean_kernel[(1,)](losses, labels, loss, M, labels.stride(0), ignore_index, BLOCK=16)
    return loss, lse


@triton.jit
def dropout_kernel(
    a, b, first, second, N, am, an, bm, bn, rate, seed,
    BACKWARD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    on = c < N
    scale = tl.where(tl.rand(seed, r * N + c) < rate, 0.0, 1.0 / (1.0 - rate))
    if BACKWARD:
        p = tl.load(a + r * am + c * an, mask=on, other=0.0).to(tl.float32)
        g = tl.load(b + r * bm + c * bn, mask=on, other=0.0).to(tl.float32) * scale
        value = p * (g - tl.sum(p * g, axis=0))
    else:
        s = tl.load(a + r * am + c * an, mask=on, other=float("-inf")).to(tl.float32)
        e = tl.exp(s - tl.max(s, axis=0))
        p = e / tl.sum(e, axis=0)
        tl.store(second + r * N + c, p.to(second.dtype.element_ty), mask=on)
        value = p * scale
    tl.store(first + r * N + c, value.to(first.dtype.element_ty), mask=on)


def _dropout(a, b, first, second, rate, seed, backward):
    if first.numel():
        a, b = matrix(a), matrix(b)
        M, N = a.shape
        dropout_kernel[(M,)](
            a, b, first, second, N, *a.stride(), *b.stride(), rate, seed,
            BACKWARD=backward, BLOCK=triton.next_power_of_2(N),
        )  # fmt: skip


def softmax_dropout(x, rate, seed):
    out, p = torch.empty(2, *x.shape, dtype=x.dtype, device=x.device).unbind()
    _dropout(x, x, out, p, rate, seed, False)
    return out, p


def softmax_dropout_backward(p, dout, rate, seed):
    dx = torch.empty(p.shape, dtype=p.dtype, device=p.device)
    _dropout(p, dout, dx, dx, rate, seed, True)
    return dx


@triton.jit
def chunk_kernel(x, out, M, N, sm, sn, CHUNK, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)[None, :]
    first = tl.program_id(0) * CHUNK
    for r in range(first, tl.minimum(first + CHUNK, M)):
        s = tl.load(x + r * sm + c * sn, mask=c < N, other=float("-inf")).to(tl.float32)
        p = normalised(s * 1.4426950408889634)
        tl.store(out + r * N + c, p.to(out.dtype.element_ty), mask=c < N)


class TunedSoftmax:
    def __init__(self, configs, measure):
        self.configs, self.measure, self.best = configs, measure, {}

    def __call__(self, x):
        if not x.numel():
            return torch.empty_like(x)
        key = (x.shape[-1], x.dtype)
        if key not in self.best:
            least = float("inf")
            for config in self.configs:
                taken = self.measure(lambda config=config: self._run(x, config))
                if taken < least:
                    least, self.best[key] = taken, config
        return self._run(x, self.best[key])

    def _run(self, x, config):
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        rows = matrix(x)
        M, N = rows.shape
        programs = min(config[0], M)
        chunk_kernel[(programs,)](
            rows, out, M, N, *rows.stride(), triton.cdiv(M, programs),
            BLOCK=triton.next_power_of_2(N), num_warps=config[1],
        )  # fmt: skip
        return out
