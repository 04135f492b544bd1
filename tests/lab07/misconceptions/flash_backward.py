from grader.suite import misconception


@misconception()
def ds_without_the_d_term(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    """ds = p * dp lacks D = rowsum(do * o): raising one score lowers every other probability of
    the row, and D is what that costs."""
    scale, off = scale or 1 / math.sqrt(q.shape[3]), k.shape[2] - q.shape[2]
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for j in range(0, k.shape[2], block_k):
        for i in range(0, q.shape[2], block_q):
            rows, keys = slice(i, i + block_q), slice(j, j + block_k)
            p = torch.exp(q[:, :, rows] @ k[:, :, keys].mT * scale - lse[:, :, rows, None])
            p = p.tril(off + i - j) if causal else p
            ds = p * (do[:, :, rows] @ v[:, :, keys].mT) * scale
            dv[:, :, keys] += p.mT @ do[:, :, rows]
            dq[:, :, rows] += ds @ k[:, :, keys]
            dk[:, :, keys] += ds.mT @ q[:, :, rows]
    return dq, dk, dv


@misconception()
def d_of_the_tile_alone(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    """D is summed over the tile's keys only; it belongs to the whole row, and rowsum(do * o) gives
    it before any tile."""
    scale, off = scale or 1 / math.sqrt(q.shape[3]), k.shape[2] - q.shape[2]
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for j in range(0, k.shape[2], block_k):
        for i in range(0, q.shape[2], block_q):
            rows, keys = slice(i, i + block_q), slice(j, j + block_k)
            p = torch.exp(q[:, :, rows] @ k[:, :, keys].mT * scale - lse[:, :, rows, None])
            p = p.tril(off + i - j) if causal else p
            dp = do[:, :, rows] @ v[:, :, keys].mT
            ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
            dv[:, :, keys] += p.mT @ do[:, :, rows]
            dq[:, :, rows] += ds @ k[:, :, keys]
            dk[:, :, keys] += ds.mT @ q[:, :, rows]
    return dq, dk, dv


@misconception()
def scale_is_lost_on_the_way_back(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    """ds is the gradient of the SCALED score; dq and dk need the factor scale once more, by the
    chain rule."""
    scale, off = scale or 1 / math.sqrt(q.shape[3]), k.shape[2] - q.shape[2]
    delta = (do * o).sum(-1, keepdim=True)
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for j in range(0, k.shape[2], block_k):
        for i in range(0, q.shape[2], block_q):
            rows, keys = slice(i, i + block_q), slice(j, j + block_k)
            p = torch.exp(q[:, :, rows] @ k[:, :, keys].mT * scale - lse[:, :, rows, None])
            p = p.tril(off + i - j) if causal else p
            ds = p * (do[:, :, rows] @ v[:, :, keys].mT - delta[:, :, rows])
            dv[:, :, keys] += p.mT @ do[:, :, rows]
            dq[:, :, rows] += ds @ k[:, :, keys]
            dk[:, :, keys] += ds.mT @ q[:, :, rows]
    return dq, dk, dv


@misconception()
def the_tile_is_a_softmax_of_its_own(
    q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None
):
    """Each tile is normalised on its own; p of a tile is exp(s - lse) with the lse of the WHOLE
    row, and sums to less than 1."""
    scale, off = scale or 1 / math.sqrt(q.shape[3]), k.shape[2] - q.shape[2]
    delta = (do * o).sum(-1, keepdim=True)
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for j in range(0, k.shape[2], block_k):
        for i in range(0, q.shape[2], block_q):
            rows, keys = slice(i, i + block_q), slice(j, j + block_k)
            s = q[:, :, rows] @ k[:, :, keys].mT * scale
            if causal:
                s = s.masked_fill(
                    ~torch.ones_like(s[0, 0], dtype=torch.bool).tril(off + i - j), -math.inf
                )
            p = torch.softmax(s, -1).nan_to_num(0.0)
            ds = p * (do[:, :, rows] @ v[:, :, keys].mT - delta[:, :, rows]) * scale
            dv[:, :, keys] += p.mT @ do[:, :, rows]
            dq[:, :, rows] += ds @ k[:, :, keys]
            dk[:, :, keys] += ds.mT @ q[:, :, rows]
    return dq, dk, dv


@misconception()
def tiles_overwrite_each_other(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    """A tile assigns its part of the gradients instead of adding it: every key collects from all
    query blocks, every query from all key blocks."""
    scale, off = scale or 1 / math.sqrt(q.shape[3]), k.shape[2] - q.shape[2]
    delta = (do * o).sum(-1, keepdim=True)
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for j in range(0, k.shape[2], block_k):
        for i in range(0, q.shape[2], block_q):
            rows, keys = slice(i, i + block_q), slice(j, j + block_k)
            p = torch.exp(q[:, :, rows] @ k[:, :, keys].mT * scale - lse[:, :, rows, None])
            p = p.tril(off + i - j) if causal else p
            ds = p * (do[:, :, rows] @ v[:, :, keys].mT - delta[:, :, rows]) * scale
            dv[:, :, keys] = p.mT @ do[:, :, rows]
            dq[:, :, rows] += ds @ k[:, :, keys]
            dk[:, :, keys] = ds.mT @ q[:, :, rows]
    return dq, dk, dv


@misconception()
def backward_without_the_mask(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    """The causal mask is forgotten in the backward: exp(s - lse) of a hidden pair is not 0, it has
    to be masked again."""
    scale = scale or 1 / math.sqrt(q.shape[3])
    delta = (do * o).sum(-1, keepdim=True)
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for j in range(0, k.shape[2], block_k):
        for i in range(0, q.shape[2], block_q):
            rows, keys = slice(i, i + block_q), slice(j, j + block_k)
            p = torch.exp(q[:, :, rows] @ k[:, :, keys].mT * scale - lse[:, :, rows, None])
            ds = p * (do[:, :, rows] @ v[:, :, keys].mT - delta[:, :, rows]) * scale
            dv[:, :, keys] += p.mT @ do[:, :, rows]
            dq[:, :, rows] += ds @ k[:, :, keys]
            dk[:, :, keys] += ds.mT @ q[:, :, rows]
    return dq, dk, dv


@misconception()
def all_probabilities_are_kept(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    """The gradients are right and the S x S probabilities were held to get them; lse is kept so
    that each tile can be made again and thrown away."""
    scale = scale or 1 / math.sqrt(q.shape[3])
    group = heads_per_group(q, k)
    k_all, v_all = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    p = torch.exp(q @ k_all.mT * scale - lse[..., None])
    p = p.tril(k.shape[2] - q.shape[2]) if causal else p
    ds = p * (do @ v_all.mT - (do * o).sum(-1, keepdim=True)) * scale
    dk, dv = ds.mT @ q, p.mT @ do
    fold = (k.shape[1], group)
    return ds @ k_all, dk.unflatten(1, fold).sum(2), dv.unflatten(1, fold).sum(2)


@misconception()
def autograd_of_the_naive_forward(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    """The forward is run again under autograd, which saves the S x S probabilities (and more) for
    its backward."""
    with torch.enable_grad():
        leaves = [x.detach().double().requires_grad_() for x in (q, k, v)]
        out = naive_attention(*leaves, causal, scale)
    return tuple(
        g.to(x.dtype) for g, x in zip(torch.autograd.grad(out, leaves, do.double()), (q, k, v))
    )


@misconception()
def the_forward_is_run_again(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    """The output is computed once more although o and lse are given: D = rowsum(do * o) needs no
    second forward."""
    o, lse = flash_forward(q, k, v, block_q, block_k, causal, scale)
    scale, off = scale or 1 / math.sqrt(q.shape[3]), k.shape[2] - q.shape[2]
    delta = (do * o).sum(-1, keepdim=True)
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for j in range(0, k.shape[2], block_k):
        for i in range(0, q.shape[2], block_q):
            rows, keys = slice(i, i + block_q), slice(j, j + block_k)
            p = torch.exp(q[:, :, rows] @ k[:, :, keys].mT * scale - lse[:, :, rows, None])
            p = p.tril(off + i - j) if causal else p
            ds = p * (do[:, :, rows] @ v[:, :, keys].mT - delta[:, :, rows]) * scale
            dv[:, :, keys] += p.mT @ do[:, :, rows]
            dq[:, :, rows] += ds @ k[:, :, keys]
            dk[:, :, keys] += ds.mT @ q[:, :, rows]
    return dq, dk, dv
