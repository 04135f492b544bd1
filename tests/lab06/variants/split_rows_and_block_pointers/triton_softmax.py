"""Block pointers with boundary checks, one kernel that serves tasks 3 and 4, a long row split over
several programs and put together by a second launch, losses summed by atomics."""

import torch
import triton
import triton.language as tl

STEPS = [  # operands and result of an unfused softmax: "x" is a matrix, "r" a number for each row
    ("x", "r"),
    ("xr", "x"),
    ("x", "x"),
    ("x", "r"),
    ("xr", "x"),
]


def traffic(M, N, itemsize, fused):
    size = {"x": M * N * itemsize, "r": M * itemsize}
    steps = [("x", "x")] if fused else STEPS
    read = sum(size[letter] for operands, _ in steps for letter in operands)
    return read, sum(size[result] for _, result in steps)


def naive_softmax(x):
    m = torch.amax(x, 1)[:, None]
    e = torch.sub(x, m).exp()
    return torch.div(e, torch.sum(e, 1)[:, None])


def flat(x):
    return x.reshape(x[..., 0].numel(), x.shape[-1])


@triton.jit
def weights_kernel(
    x, mask, out, M, N, sm, sn, mm, mn, scale, KIND: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    inside = (tl.arange(0, BLOCK) < N)[None, :]
    at = tl.make_block_ptr(x, (M, N), (sm, sn), (row, 0), (1, BLOCK), (1, 0))
    s = tl.load(at, boundary_check=(1,), padding_option="zero").to(tl.float32) * scale
    if KIND > 0:
        there = mask + row.to(tl.int64) * mm + tl.arange(0, BLOCK)[None, :] * mn
        if KIND == 1:
            inside = inside & (tl.load(there, mask=inside, other=0) > 0)
        else:
            s += tl.load(there, mask=inside, other=float("-inf"))
    s = tl.where(inside, s, float("-inf"))
    top = tl.maximum(tl.max(s, axis=1, keep_dims=True), -3.0e38)
    e = tl.where(s == float("-inf"), 0.0, tl.exp(s - top))
    total = tl.sum(e, axis=1, keep_dims=True)
    p = tl.where(total > 0.0, e / tl.maximum(total, 1.0e-30), 0.0)
    to = tl.make_block_ptr(out, (M, N), (N, 1), (row, 0), (1, BLOCK), (1, 0))
    tl.store(to, p.to(out.dtype.element_ty), boundary_check=(1,))


def _weights(x, out, scale, mask, kind):
    M, N = x.shape
    if M and N:
        block = triton.next_power_of_2(N)
        weights_kernel[(M,)](
            x, mask, out, M, N, *x.stride(), *mask.stride(), scale,
            KIND=kind, BLOCK=block, num_warps=4 if block < 2048 else 8 if block < 8192 else 16,
        )  # fmt: skip
    return out


def softmax(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        rows = flat(x)
        _weights(rows, out, 1.0, rows, 0)
    return out


def softmax_scaled_masked(x, scale=1.0, mask=None):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if mask is None:
        return _weights(x, out, scale, x, 0)
    spread = torch.broadcast_to(mask, x.shape)
    if mask.dtype == torch.bool:
        return _weights(x, out, scale, spread.view(torch.uint8), 1)
    return _weights(x, out, scale, spread, 2)


@triton.jit
def backward_kernel(p, dp, dx, N, pm, pn, dm, dn, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    a = tl.load(p + row * pm + c * pn, mask=c < N, other=0.0).to(tl.float32)
    b = tl.load(dp + row * dm + c * dn, mask=c < N, other=0.0).to(tl.float32)
    mean = tl.sum(a * b, axis=0)
    tl.store(dx + row * N + c, (a * (b - mean)).to(dx.dtype.element_ty), mask=c < N)


def softmax_backward(p, dp):
    dx = torch.empty(p.shape, dtype=p.dtype, device=p.device)
    if p.numel():
        a, b = flat(p), flat(dp)
        backward_kernel[(a.shape[0],)](
            a,
            b,
            dx,
            a.shape[1],
            *a.stride(),
            *b.stride(),
            BLOCK=triton.next_power_of_2(p.shape[-1]),
        )
    return dx


class SoftmaxFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        p = softmax(x)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dp):
        return softmax_backward(ctx.saved_tensors[0], dp)


@triton.jit
def part_kernel(x, tops, sums, N, sm, sn, LENGTH, BLOCK: tl.constexpr):
    """Program (row, part): maximum and sum of LENGTH columns of a row."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    m = float("-inf")
    d = 0.0
    end = tl.minimum(N, (part + 1) * LENGTH)
    for start in range(part * LENGTH, end, BLOCK):
        c = start + tl.arange(0, BLOCK)
        s = tl.load(x + row * sm + c * sn, mask=c < end, other=float("-inf")).to(tl.float32)
        top = tl.max(s, axis=0)
        if top > m:
            d = d * tl.exp(m - top)
            m = top
        if m > float("-inf"):
            d += tl.sum(tl.exp(s - m), axis=0)
    tl.store(tops + row * tl.num_programs(1) + part, m)
    tl.store(sums + row * tl.num_programs(1) + part, d)


@triton.jit
def whole_kernel(x, out, tops, sums, N, sm, sn, LENGTH, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Program (row, part): the parts' maxima and sums merged, and the part's columns stored."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    parts = tl.arange(0, PARTS)
    have = parts < tl.num_programs(1)
    m = tl.load(tops + row * tl.num_programs(1) + parts, mask=have, other=float("-inf"))
    d = tl.load(sums + row * tl.num_programs(1) + parts, mask=have, other=0.0)
    top = tl.max(m, axis=0)
    top = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(d * tl.exp(m - top), axis=0)
    total = tl.where(total == 0.0, 1.0, total)
    end = tl.minimum(N, (part + 1) * LENGTH)
    for start in range(part * LENGTH, end, BLOCK):
        c = start + tl.arange(0, BLOCK)
        s = tl.load(x + row * sm + c * sn, mask=c < end, other=float("-inf")).to(tl.float32)
        p = tl.exp(s - top) / total
        tl.store(out + row * N + c, p.to(out.dtype.element_ty), mask=c < end)


def online_softmax(x, block=1024):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not x.numel():
        return out
    rows = flat(x)
    M, N = rows.shape
    parts = max(1, min(8, N // max(4 * block, 512)))
    length = triton.cdiv(triton.cdiv(N, parts), block) * block
    parts = triton.cdiv(N, length)
    tops, sums = (torch.empty(M, parts, device=x.device) for _ in range(2))
    part_kernel[(M, parts)](rows, tops, sums, N, *rows.stride(), length, BLOCK=block)
    whole_kernel[(M, parts)](
        rows, out, tops, sums, N, *rows.stride(), length,
        PARTS=triton.next_power_of_2(parts), BLOCK=block,
    )  # fmt: skip
    return out


@triton.jit
def loss_kernel(logits, labels, totals, lse, V, sm, sv, sl, ignored, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row * sl)
    here = logits + row * sm
    m = tl.full([], float("-inf"), tl.float32)
    d = tl.zeros([], tl.float32)
    for block in range(tl.cdiv(V, BLOCK)):
        c = block * BLOCK + tl.arange(0, BLOCK)
        s = tl.load(here + c * sv, mask=c < V, other=float("-inf")).to(tl.float32)
        top = tl.maximum(m, tl.max(s, axis=0))
        finite = tl.where(top == float("-inf"), 0.0, top)
        d = tl.sum(tl.exp(s - finite), axis=0) + d * tl.exp(m - finite)
        m = top
    value = tl.log(d) + m
    tl.store(lse + row, value)
    if label != ignored:
        tl.atomic_add(totals, value - tl.load(here + label * sv).to(tl.float32))
        tl.atomic_add(totals + 1, 1.0)


def log_softmax_cross_entropy(logits, labels, ignore_index=-100, block=4096):
    M, V = logits.shape
    totals = torch.zeros(2, device=logits.device)
    lse = torch.empty(M, device=logits.device)
    if M:
        loss_kernel[(M,)](
            logits, labels, totals, lse, V, *logits.stride(), labels.stride(0), ignore_index,
            BLOCK=block,
        )  # fmt: skip
    return totals[0] / totals[1], lse


@triton.jit
def dropout_kernel(x, out, p_out, N, sm, sn, rate, seed, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    s = tl.load(x + row * sm + c * sn, mask=c < N, other=float("-inf")).to(tl.float32)
    p = tl.softmax(s)
    kept = p * (1.0 / (1.0 - rate))
    gone = tl.rand(seed, row * N + c) < rate
    tl.store(p_out + row * N + c, p.to(out.dtype.element_ty), mask=c < N)
    tl.store(out + row * N + c, tl.where(gone, 0.0, kept).to(out.dtype.element_ty), mask=c < N)


def softmax_dropout(x, rate, seed):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    p = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        rows = flat(x)
        M, N = rows.shape
        block = triton.next_power_of_2(N)
        dropout_kernel[(M,)](rows, out, p, N, *rows.stride(), rate, seed, BLOCK=block)
    return out, p


@triton.jit
def dropout_backward_kernel(p, g, dx, N, pm, pn, gm, gn, rate, seed, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    a = tl.load(p + row * pm + c * pn, mask=c < N, other=0.0).to(tl.float32)
    b = tl.load(g + row * gm + c * gn, mask=c < N, other=0.0).to(tl.float32)
    b = tl.where(tl.rand(seed, row * N + c) < rate, 0.0, b) / (1.0 - rate)
    tl.store(
        dx + row * N + c, (a * (b - tl.sum(a * b, axis=0))).to(dx.dtype.element_ty), mask=c < N
    )


def softmax_dropout_backward(p, dout, rate, seed):
    dx = torch.empty(p.shape, dtype=p.dtype, device=p.device)
    if p.numel():
        a, b = flat(p), flat(dout)
        M, N = a.shape
        dropout_backward_kernel[(M,)](
            a, b, dx, N, *a.stride(), *b.stride(), rate, seed, BLOCK=triton.next_power_of_2(N)
        )
    return dx


@triton.jit
def walking_kernel(x, out, M, N, sm, sn, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    while row < M:
        c = tl.arange(0, BLOCK)
        s = tl.load(x + row * sm + c * sn, mask=c < N, other=float("-inf")).to(tl.float32)
        e = tl.exp(s - tl.max(s, axis=0))
        tl.store(out + row * N + c, (e / tl.sum(e, axis=0)).to(out.dtype.element_ty), mask=c < N)
        row += tl.num_programs(0)


class TunedSoftmax:
    def __init__(self, configs, measure):
        self.configs = list(configs)
        self.measure = measure
        self.best = {}

    def __call__(self, x):
        if x.numel() == 0:
            return torch.empty_like(x)
        key = (int(x.shape[-1]), x.dtype)
        config = self.best.get(key)
        if config is None:
            timed = [
                (self.measure(lambda i=i: self._launch(x, self.configs[i])), i)
                for i in range(len(self.configs))
            ]
            config = self.best[key] = self.configs[min(timed)[1]]
        return self._launch(x, config)

    def _launch(self, x, config):
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        rows = flat(x)
        M, N = rows.shape
        walking_kernel[(min(M, config[0]),)](
            rows, out, M, N, *rows.stride(), BLOCK=triton.next_power_of_2(N), num_warps=config[1]
        )
        return out
