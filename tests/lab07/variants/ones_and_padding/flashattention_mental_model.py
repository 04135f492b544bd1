"""A column of ones beside V makes l a part of the sum; last blocks are padded, and masked."""

import itertools
import math

import torch
from torch.nn.functional import pad


def statistics_dtype(x):
    return torch.promote_types(x.dtype, torch.float32)


def naive_attention(q, k, v, causal=False, scale=None):
    B, H, S, D = q.shape
    H_kv, S_kv = k.shape[1], k.shape[2]
    t = statistics_dtype(q)
    rows = q.to(t).reshape(B, H_kv, H // H_kv * S, D)
    logits = torch.matmul(rows, k.to(t).mT) * (D**-0.5 if scale is None else scale)
    if causal:
        last = torch.arange(S).repeat(H // H_kv).unsqueeze(1) + (S_kv - S)
        logits = torch.where(torch.arange(S_kv) <= last, logits, -torch.inf)
    lse = torch.logsumexp(logits, -1, keepdim=True)
    p = torch.where(lse == -torch.inf, 0.0, torch.exp(logits - lse))
    # as in half-precision code: the probabilities are cast before the second product
    o = torch.matmul(p.to(v.dtype).to(t), v.to(t))
    return o.reshape(B, H, S, D).to(q.dtype)


def online_softmax(x, block):
    """Each block is finished on its own, all at once; then neighbours are merged in pairs."""
    t = statistics_dtype(x)
    n = -(-x.shape[-1] // block)
    blocks = pad(x.to(t), (0, n * block - x.shape[-1]), value=-math.inf)
    blocks = blocks.unflatten(-1, (n, block))
    m = blocks.amax(-1)
    l = (blocks - _finite(m)[..., None]).exp().sum(-1)
    while m.shape[-1] > 1:
        if m.shape[-1] % 2:
            m, l = pad(m, (0, 1), value=-math.inf), pad(l, (0, 1))
        pairs = [(y[..., ::2], y[..., 1::2]) for y in (m, l)]
        m = torch.maximum(*pairs[0])
        l = sum(w * (part - _finite(m)).exp() for part, w in zip(*pairs))
    m, l = m[..., 0], l[..., 0]
    p = (x.to(t) - _finite(m)[..., None]).exp() / torch.where(l == 0, 1, l)[..., None]
    return p.to(x.dtype), m, l


def _finite(m):
    return torch.where(m == -math.inf, 0, m)


def merge(a, b):
    top = torch.fmax(a[0], b[0])
    both = [torch.where(s[0] == -math.inf, 0.0, torch.exp(s[0] - top)) for s in (a, b)]
    l = both[0] * a[1] + both[1] * b[1]
    return top, l, torch.addcmul(both[0][..., None] * a[2], both[1][..., None], b[2])


def flash_forward_skips(q_start, q_stop, k_start, k_stop, S, S_kv):
    last_row = q_stop - 1
    return last_row - k_start < S - S_kv


def _tiles(q, k, v, block_q, block_k, causal, scale):
    """q: (G, R, S, D) rows by KV head, k, v: (G, S_kv, D); gives o, lse with q's leading axes."""
    G, R, S, D = q.shape
    S_kv = k.shape[1]
    t = statistics_dtype(q)
    scale = D**-0.5 if scale is None else scale
    o, lse = q.new_empty(q.shape), q.new_empty((G, R, S), dtype=t)
    for i in range(0, S, block_q):
        rows = q[:, :, i : i + block_q].to(t).flatten(1, 2)
        stop = i + rows.shape[1] // R
        last = torch.arange(i, stop).repeat(R)[:, None] + (S_kv - S)
        m = torch.full(rows.shape[:2], -math.inf, dtype=t)
        acc = torch.zeros(*rows.shape[:2], D + 1, dtype=t)
        for j in range(0, S_kv, block_k):
            end = min(j + block_k, S_kv)
            if causal and flash_forward_skips(i, stop, j, end, S, S_kv):
                break
            fill = (0, 0, 0, min(block_k, S_kv) - (end - j))
            k_j = pad(k[:, j:end].to(t), fill)
            v_j = pad(pad(v[:, j:end].to(t), (0, 1), value=1.0), fill)
            s = scale * torch.bmm(rows, k_j.mT)
            key = torch.arange(j, j + k_j.shape[1])
            hidden = key >= S_kv
            if causal:
                hidden = hidden | (key > last)
            s = s.masked_fill(hidden, -math.inf)
            new = torch.maximum(m, s.amax(2))
            p = torch.exp(s - _finite(new)[..., None])
            acc = acc * torch.exp(m - _finite(new))[..., None] + torch.bmm(p, v_j)
            m = new
        l = acc[..., -1:]
        o_i = acc[..., :-1] / torch.where(l == 0, 1, l)
        o[:, :, i:stop] = o_i.unflatten(1, (R, stop - i)).to(q.dtype)
        lse[:, :, i:stop] = (m + l[..., 0].log()).unflatten(1, (R, stop - i))
    return o, lse


def flash_forward(q, k, v, block_q, block_k, causal=False, scale=None):
    B, H, S, D = q.shape
    H_kv = k.shape[1]
    rows = q.reshape(B * H_kv, H // H_kv, S, D)
    keys, weights = (
        (x.reshape(B * H_kv, -1, D) for x in (k, v))
        if k.shape[2]
        else (x.new_zeros(B * H_kv, 0, D) for x in (k, v))
    )
    o, lse = _tiles(rows, keys, weights, block_q, block_k, causal, scale)
    return o.reshape(B, H, S, D), lse.reshape(B, H, S)


def flash_backward(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    """Rows outside; p and ds are cast before their products."""
    (B, H, S, D), H_kv, S_kv = q.shape, k.shape[1], k.shape[2]
    R, t = H // H_kv, statistics_dtype(q)
    scale = D**-0.5 if scale is None else scale
    dq = torch.empty(q.shape, dtype=q.dtype)
    dk, dv = (torch.zeros(x.shape, dtype=t) for x in (k, v))
    D_row = (do.to(t) * o.to(t)).sum(-1)
    for i in range(0, S, block_q):
        stop = min(i + block_q, S)
        n = stop - i
        rows, grads = (x[:, :, i:stop].to(t).reshape(B, H_kv, R * n, D) for x in (q, do))
        norm, coupling = (x[:, :, i:stop].reshape(B, H_kv, R * n, 1) for x in (lse.to(t), D_row))
        sees = norm > -math.inf
        last = torch.arange(i, stop).repeat(R)[:, None] + (S_kv - S)
        dq_i = torch.zeros(rows.shape, dtype=t)
        for j in range(0, S_kv, block_k):
            k_j, v_j = k[:, :, j : j + block_k].to(t), v[:, :, j : j + block_k].to(t)
            visible = sees
            if causal:
                visible = sees & (torch.arange(j, j + k_j.shape[2]) <= last)
            p = torch.where(visible, torch.exp(scale * (rows @ k_j.mT) - norm), 0.0)
            ds = p * (grads @ v_j.mT - coupling)
            p, ds = p.to(v.dtype).to(t), ds.to(q.dtype).to(t)
            dv[:, :, j : j + block_k] += p.mT @ grads
            dk[:, :, j : j + block_k] += scale * (ds.mT @ rows)
            dq_i += ds @ k_j
        dq[:, :, i:stop] = (dq_i * scale).reshape(B, H, n, D).to(q.dtype)
    return dq, dk.to(k.dtype), dv.to(v.dtype)


def block_sizes(D, sram_elements):
    bc = (sram_elements + 4 * D - 1) // (4 * D)
    return bc, min(D, bc)


def io_model(S, D, sram_elements):
    bc, _ = block_sizes(D, sram_elements)
    tc = (S + bc - 1) // bc
    q_and_kv = S * D * (tc + 2)
    o_and_statistics = 2 * tc * (S * D + 2 * S)
    return 4 * S * S + 4 * S * D, q_and_kv + o_and_statistics


def gqa_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None):
    H, H_kv = q.shape[1], k.shape[1]
    outs, lses = [q[:0]], [q.new_empty(H, 0, dtype=statistics_dtype(q))]
    edges = torch.stack([cu_seqlens_q.long(), cu_seqlens_k.long()]).T.tolist()
    for (a, c), (b, d) in itertools.pairwise(edges):
        rows = q[a:b].transpose(0, 1).unflatten(0, (H_kv, H // H_kv))
        o, lse = _tiles(
            rows, k[c:d].transpose(0, 1), v[c:d].transpose(0, 1), block_q, block_k, causal, scale
        )
        outs.append(o.flatten(0, 1).transpose(0, 1))
        lses.append(lse.flatten(0, 1))
    return torch.cat(outs), torch.cat(lses, dim=1)


def split_kv_decode(q, k, v, num_splits, scale=None):
    """All workers in one batched product, their padding masked."""
    (B, H, _, D), H_kv, S_kv = q.shape, k.shape[1], k.shape[2]
    t, n = statistics_dtype(q), max(1, -(-k.shape[2] // num_splits))
    tail = (0, 0, 0, num_splits * n - S_kv)
    keys, weights = (pad(x.to(t), tail).unflatten(2, (num_splits, n)) for x in (k, v))
    rows = q.to(t).reshape(B, H_kv, 1, H // H_kv, D)
    s = rows @ keys.mT * (D**-0.5 if scale is None else scale)
    exists = (torch.arange(num_splits * n) < S_kv).view(num_splits, 1, n)
    s = s.masked_fill(~exists, -math.inf)
    m = s.amax(-1, keepdim=True)
    p = torch.exp(s - _finite(m))
    top = m.amax(2, keepdim=True)
    share = torch.where(m == -math.inf, 0, torch.exp(m - _finite(top)))
    l = (share * p.sum(-1, keepdim=True)).sum(2)
    o = (share * (p @ weights)).sum(2) / torch.where(l == 0, 1, l)
    return o.reshape(B, H, 1, D).to(q.dtype), (top[:, :, 0] + l.log()).reshape(B, H, 1)


def paged_attention(q, k_cache, v_cache, block_table, context_lens, scale=None):
    """Gather through flat slot numbers, then the plain softmax of one sequence."""
    _, H, D = q.shape
    size, H_kv = k_cache.shape[1:3]
    t = statistics_dtype(q)
    out = []
    for row, table, n in zip(q, block_table, context_lens.tolist()):
        blocks = table[: (n + size - 1) // size].long()
        k, v = (
            cache.index_select(0, blocks).flatten(0, 1)[:n].to(t) for cache in (k_cache, v_cache)
        )
        s = torch.einsum("grd,ngd->grn", row.to(t).view(H_kv, -1, D), k)
        s = s * (D**-0.5 if scale is None else scale)
        o = torch.einsum("grn,ngd->grd", torch.softmax(s, -1), v)
        out.append(o.reshape(H, D).to(q.dtype))
    return torch.stack(out)
