"""Blocks chosen by heuristics, grids that are functions or have two axes, masks by tl.where, a
softmax as exp(x - logsumexp), blocks twice as wide as they must be, a loss in two launches."""

import torch
import triton
import triton.language as tl

TWICE = {"BLOCK": lambda args: 2 * triton.next_power_of_2(args["N"])}
WIDTH = triton.heuristics(TWICE)
WIDTH_AND_WARPS = triton.heuristics(
    TWICE | {"num_warps": lambda args: max(1, min(32, args["BLOCK"] // 512))}
)


def traffic(M, N, itemsize, fused):
    row = (1, 1) if fused else (5, 3)
    statistics = 0 if fused else 2
    return tuple(itemsize * M * (share * N + statistics) for share in row)


def naive_softmax(x):
    top, _ = torch.max(x, -1, keepdim=True)
    numerator = torch.exp(torch.sub(x, top))
    return numerator * 1.0 if x.numel() == 0 else numerator / numerator.sum(-1, keepdim=True)


def table(x):
    return x.flatten(0, -2) if x.dim() > 1 else x[None]


@WIDTH_AND_WARPS
@triton.jit
def rows_kernel(x, out, M, N, sm, sn, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    s = tl.load(x + row * sm + c * sn, mask=c < N, other=0.0).to(tl.float32)
    s = tl.where(c < N, s, float("-inf"))
    top = tl.max(s, axis=0)
    lse = top + tl.log(tl.sum(tl.exp(s - top), axis=0))
    small = tl.abs(top) < 4.0
    # a logarithm of large logits would lose the digits that exp then needs
    p = tl.where(small, tl.exp(s - lse), tl.exp(s - top) / tl.sum(tl.exp(s - top), axis=0))
    tl.store(out + row * N + c, p.to(out.dtype.element_ty), mask=c < N)


def softmax(x):
    out = x.new_empty(x.shape)
    if x.numel():
        rows = table(x)
        rows_kernel[lambda meta: (meta["M"], 1)](rows, out, *rows.shape, *rows.stride())
    return out


@WIDTH
@triton.jit
def masked_kernel(x, mask, out, N, sm, sn, mm, mn, scale, KIND: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    real = c < N
    s = scale * tl.load(x + row * sm + c * sn, mask=real, other=0.0).to(tl.float32)
    if KIND == "boolean":
        real = real & tl.load(mask + row * mm + c * mn, mask=real, other=False)
    if KIND == "additive":
        s += tl.load(mask + row * mm + c * mn, mask=real, other=0.0)
    real = real & (s > float("-inf"))
    top = tl.max(tl.where(real, s, -3e38), axis=0)
    e = tl.where(real, tl.exp(tl.where(real, s, top) - top), 0.0)
    total = tl.sum(e, axis=0)
    p = tl.where(total > 0, e / tl.where(total > 0, total, 1.0), 0.0)
    tl.store(out + row * N + c, p.to(out.dtype.element_ty), mask=c < N)


def softmax_scaled_masked(x, scale=1.0, mask=None):
    out = x.new_empty(x.shape)
    if x.numel() == 0:
        return out
    kind = "none" if mask is None else "boolean" if mask.dtype is torch.bool else "additive"
    mask = torch.broadcast_to(x if mask is None else mask, x.shape)
    masked_kernel[(len(x),)](
        x, mask, out, x.shape[1], *x.stride(), *mask.stride(), float(scale), KIND=kind
    )
    return out


@WIDTH
@triton.jit
def backward_kernel(p, dp, dx, M, N, pm, pn, dm, dn, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    a = tl.where(c < N, tl.load(p + row * pm + c * pn, mask=c < N), 0.0).to(tl.float32)
    b = tl.where(c < N, tl.load(dp + row * dm + c * dn, mask=c < N), 0.0).to(tl.float32)
    tl.store(dx + row * N + c, (a * (b - tl.sum(a * b, 0))).to(dx.dtype.element_ty), mask=c < N)


def softmax_backward(p, dp):
    dx = p.new_empty(p.shape)
    if p.numel():
        a, b = table(p), table(dp)
        backward_kernel[(a.shape[0], 1, 1)](a, b, dx, *a.shape, *a.stride(), *b.stride())
    return dx


class SoftmaxFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.columns = x.shape[-1]
        p = softmax(x)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx, dp):
        p = ctx.saved_tensors[0]
        return softmax_backward(p, dp) if ctx.columns else None


@triton.jit
def online_kernel(x, out, N, sm, sn, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m = float("-inf")
    d = 0.0
    # from the last block to the first
    for start in range((N - 1) // BLOCK * BLOCK, -1, -BLOCK):
        c = start + tl.arange(0, BLOCK)
        s = tl.load(x + row * sm + c * sn, mask=c < N, other=float("-inf")).to(tl.float32)
        top = tl.max(s, axis=0)
        if top > float("-inf"):
            here = tl.sum(tl.exp(s - top), axis=0)
            new = tl.maximum(m, top)
            d = d * tl.exp(m - new) + here * tl.exp(top - new)
            m = new
    for start in range(0, N, BLOCK):
        c = start + tl.arange(0, BLOCK)
        s = tl.load(x + row * sm + c * sn, mask=c < N, other=float("-inf")).to(tl.float32)
        p = tl.where(d > 0, tl.exp(s - m) / d, 0.0)
        tl.store(out + row * N + c, p.to(out.dtype.element_ty), mask=c < N)


def online_softmax(x, block=1024):
    out = x.new_empty(x.shape)
    if x.numel():
        rows = table(x)
        online_kernel[(rows.shape[0],)](
            rows, out, rows.shape[1], *rows.stride(), BLOCK=block, num_warps=8, num_stages=3
        )
    return out


@triton.jit
def lse_kernel(logits, lse, V, sm, sv, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, V, BLOCK):
        c = start + tl.arange(0, BLOCK)
        s = tl.load(logits + row * sm + c * sv, mask=c < V, other=float("-inf")).to(tl.float32)
        new = tl.maximum(top, s)
        total = tl.where(new == s, 1.0, tl.exp(s - new)) + tl.where(
            new == top, total, total * tl.exp(top - new)
        )
        total = tl.where(new == float("-inf"), 0.0, total)
        top = new
    m = tl.max(top, axis=0)
    d = tl.sum(tl.where(total > 0, total * tl.exp(top - m), 0.0), axis=0)
    tl.store(lse + row, m + tl.log(d))


@triton.jit
def loss_kernel(logits, labels, lse, losses, M, sm, sv, sl, ignored, BLOCK: tl.constexpr):
    """BLOCK rows: the logit of each label, 64 bits of a label."""
    row = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    label = tl.load(labels + row * sl, mask=row < M, other=ignored)
    counts = (row < M) & (label != ignored)
    logit = tl.load(logits + row * sm + label * sv, mask=counts, other=0.0).to(tl.float32)
    value = tl.load(lse + row, mask=counts, other=0.0) - logit
    tl.store(losses + row, value, mask=row < M)


def log_softmax_cross_entropy(logits, labels, ignore_index=-100, block=4096):
    M, V = logits.shape
    lse, losses = (torch.empty(M, device=logits.device) for _ in range(2))
    if M:
        lse_kernel[(M,)](logits, lse, V, *logits.stride(), BLOCK=block)
        width = min(16, block)
        loss_kernel[(triton.cdiv(M, width),)](
            logits, labels, lse, losses, M, *logits.stride(), *labels.stride(), ignore_index,
            BLOCK=width,
        )  # fmt: skip
    counts = labels.ne(ignore_index)
    return losses[counts].mean(), lse


@WIDTH
@triton.jit
def dropout_kernel(x, out, p_out, M, N, sm, sn, rate, seed, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    s = tl.load(x + row.to(tl.int64) * sm + c * sn, mask=c < N, other=float("-inf"))
    p = tl.softmax(s.to(tl.float32))
    keep = (tl.rand(seed, row * N + c) >= rate).to(tl.float32)
    tl.store(p_out + row * N + c, p.to(out.dtype.element_ty), mask=c < N)
    tl.store(out + row * N + c, (p * keep / (1 - rate)).to(out.dtype.element_ty), mask=c < N)


def softmax_dropout(x, rate, seed):
    out, p = x.new_empty(x.shape), x.new_empty(x.shape)
    if x.numel():
        rows = table(x)
        dropout_kernel[(rows.shape[0],)](rows, out, p, *rows.shape, *rows.stride(), rate, seed)
    return out, p


@WIDTH
@triton.jit
def dropout_backward_kernel(p, g, dx, M, N, pm, pn, gm, gn, rate, seed, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    a = tl.load(p + row * pm + c * pn, mask=c < N, other=0.0).to(tl.float32)
    b = tl.load(g + row * gm + c * gn, mask=c < N, other=0.0).to(tl.float32)
    t = a * b * (tl.rand(seed, row * N + c) >= rate).to(tl.float32) / (1 - rate)
    tl.store(dx + row * N + c, (t - a * tl.sum(t, axis=0)).to(dx.dtype.element_ty), mask=c < N)


def softmax_dropout_backward(p, dout, rate, seed):
    dx = p.new_empty(p.shape)
    if p.numel():
        a, b = table(p), table(dout)
        dropout_backward_kernel[(a.shape[0],)](
            a, b, dx, *a.shape, *a.stride(), *b.stride(), rate, seed
        )
    return dx


@WIDTH
@triton.jit
def strided_kernel(x, out, M, N, sm, sn, BLOCK: tl.constexpr):
    """The first programs take one row more than the others."""
    me, many = tl.program_id(0), tl.num_programs(0)
    first = me * (M // many) + tl.minimum(me, M % many)
    count = M // many + (me < M % many).to(tl.int32)
    c = tl.arange(0, BLOCK)
    for row in range(first, first + count):
        s = tl.load(x + row * sm + c * sn, mask=c < N, other=float("-inf")).to(tl.float32)
        tl.store(out + row * N + c, tl.softmax(s).to(out.dtype.element_ty), mask=c < N)


class TunedSoftmax:
    def __init__(self, configs, measure):
        self.configs, self.measure, self.best = list(configs), measure, {}

    def __call__(self, x):
        if x.numel() == 0:
            return x.new_empty(x.shape)
        key = (x.shape[-1], x.dtype)
        if key not in self.best:
            self.best[key] = min(self.configs, key=lambda c: self.measure(lambda: self.run(x, c)))
        return self.run(x, self.best[key])

    def run(self, x, config):
        out, rows = x.new_empty(x.shape), table(x)
        programs, warps = config
        grid = (min(programs, rows.shape[0]),)
        strided_kernel[grid](rows, out, *rows.shape, *rows.stride(), num_warps=warps)
        return out
