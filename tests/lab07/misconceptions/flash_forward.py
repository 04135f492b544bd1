from grader.suite import misconception


@misconception()
def lse_in_base_2(q, k, v, block_q, block_k, causal=False, scale=None):
    """lse is in base 2; a kernel that works with exp2 multiplies by ln 2 before it returns lse,
    because the backward uses exp."""
    S, S_kv, off = q.shape[2], k.shape[2], k.shape[2] - q.shape[2]
    o, lse = torch.zeros_like(q), q.new_zeros(q.shape[:3])
    for i in range(0, S, block_q):
        q_i = q[:, :, i : i + block_q] * (scale or 1 / math.sqrt(q.shape[3]))
        state = (q_i.new_full(q_i.shape[:3], -math.inf), q_i.new_zeros(q_i.shape[:3]), q_i * 0)
        for j in range(0, S_kv, block_k):
            s = q_i @ k[:, :, j : j + block_k].mT
            if causal:
                s = s.masked_fill(
                    ~torch.ones_like(s[0, 0], dtype=torch.bool).tril(off + i - j), -math.inf
                )
            m = s.amax(-1)
            p = torch.exp(s - m.masked_fill(m == -math.inf, 0.0)[..., None])
            state = merge(state, (m, p.sum(-1), p @ v[:, :, j : j + block_k]))
        o[:, :, i : i + block_q] = state[2] / state[1][..., None]
        lse[:, :, i : i + block_q] = state[0] / math.log(2) + torch.log2(state[1])
    return o, lse


@misconception()
def lse_without_the_maximum(q, k, v, block_q, block_k, causal=False, scale=None):
    """lse is ln(l) alone; l is measured from m, so the logarithm of the whole sum is m + ln(l)."""
    S, S_kv, off = q.shape[2], k.shape[2], k.shape[2] - q.shape[2]
    o, lse = torch.zeros_like(q), q.new_zeros(q.shape[:3])
    for i in range(0, S, block_q):
        q_i = q[:, :, i : i + block_q] * (scale or 1 / math.sqrt(q.shape[3]))
        state = (q_i.new_full(q_i.shape[:3], -math.inf), q_i.new_zeros(q_i.shape[:3]), q_i * 0)
        for j in range(0, S_kv, block_k):
            s = q_i @ k[:, :, j : j + block_k].mT
            if causal:
                s = s.masked_fill(
                    ~torch.ones_like(s[0, 0], dtype=torch.bool).tril(off + i - j), -math.inf
                )
            m = s.amax(-1)
            p = torch.exp(s - m.masked_fill(m == -math.inf, 0.0)[..., None])
            state = merge(state, (m, p.sum(-1), p @ v[:, :, j : j + block_k]))
        o[:, :, i : i + block_q] = state[2] / state[1][..., None]
        lse[:, :, i : i + block_q] = torch.log(state[1])
    return o, lse


@misconception()
def o_is_normalised_in_every_block(q, k, v, block_q, block_k, causal=False, scale=None):
    """The accumulator is divided by l after every key block and again at the end; as long as keys
    are to come it must stay a plain sum."""
    S, S_kv, off = q.shape[2], k.shape[2], k.shape[2] - q.shape[2]
    o, lse = torch.zeros_like(q), q.new_zeros(q.shape[:3])
    for i in range(0, S, block_q):
        q_i = q[:, :, i : i + block_q] * (scale or 1 / math.sqrt(q.shape[3]))
        state = (q_i.new_full(q_i.shape[:3], -math.inf), q_i.new_zeros(q_i.shape[:3]), q_i * 0)
        for j in range(0, S_kv, block_k):
            s = q_i @ k[:, :, j : j + block_k].mT
            if causal:
                s = s.masked_fill(
                    ~torch.ones_like(s[0, 0], dtype=torch.bool).tril(off + i - j), -math.inf
                )
            m = s.amax(-1)
            p = torch.exp(s - m.masked_fill(m == -math.inf, 0.0)[..., None])
            m, l, acc = merge(state, (m, p.sum(-1), p @ v[:, :, j : j + block_k]))
            state = (m, l, acc / l[..., None])
        o[:, :, i : i + block_q] = state[2] / state[1][..., None]
        lse[:, :, i : i + block_q] = state[0] + torch.log(state[1])
    return o, lse


@misconception()
def o_is_normalised_in_every_block_and_not_at_the_end(
    q, k, v, block_q, block_k, causal=False, scale=None
):
    """Every block's output is divided by the l of that moment and then added; outputs of blocks
    are averages with different weights and cannot simply be summed."""
    S, S_kv, off = q.shape[2], k.shape[2], k.shape[2] - q.shape[2]
    o, lse = torch.zeros_like(q), q.new_zeros(q.shape[:3])
    for i in range(0, S, block_q):
        q_i = q[:, :, i : i + block_q] * (scale or 1 / math.sqrt(q.shape[3]))
        state = (q_i.new_full(q_i.shape[:3], -math.inf), q_i.new_zeros(q_i.shape[:3]), q_i * 0)
        for j in range(0, S_kv, block_k):
            s = q_i @ k[:, :, j : j + block_k].mT
            if causal:
                s = s.masked_fill(
                    ~torch.ones_like(s[0, 0], dtype=torch.bool).tril(off + i - j), -math.inf
                )
            m = s.amax(-1)
            p = torch.exp(s - m.masked_fill(m == -math.inf, 0.0)[..., None])
            m, l, acc = merge(state, (m, p.sum(-1), p @ v[:, :, j : j + block_k]))
            state = (m, l, acc / l[..., None])
        o[:, :, i : i + block_q] = state[2]
        lse[:, :, i : i + block_q] = state[0] + torch.log(state[1])
    return o, lse


@misconception()
def l_is_rescaled_but_not_the_accumulator(q, k, v, block_q, block_k, causal=False, scale=None):
    """When m grows, l is rescaled and the accumulator is not; both are measured from m and need
    the same factor exp(m_old - m_new)."""
    S, S_kv, off = q.shape[2], k.shape[2], k.shape[2] - q.shape[2]
    o, lse = torch.zeros_like(q), q.new_zeros(q.shape[:3])
    for i in range(0, S, block_q):
        q_i = q[:, :, i : i + block_q] * (scale or 1 / math.sqrt(q.shape[3]))
        m, l, acc = q_i.new_full(q_i.shape[:3], -math.inf), q_i.new_zeros(q_i.shape[:3]), q_i * 0
        for j in range(0, S_kv, block_k):
            s = q_i @ k[:, :, j : j + block_k].mT
            if causal:
                s = s.masked_fill(
                    ~torch.ones_like(s[0, 0], dtype=torch.bool).tril(off + i - j), -math.inf
                )
            m_new = torch.maximum(m, s.amax(-1))
            shift = m_new.masked_fill(m_new == -math.inf, 0.0)
            p = torch.exp(s - shift[..., None])
            l = l * torch.exp(m - shift) + p.sum(-1)
            acc = acc + p @ v[:, :, j : j + block_k]
            m = m_new
        o[:, :, i : i + block_q] = acc / l[..., None]
        lse[:, :, i : i + block_q] = m + torch.log(l)
    return o, lse


@misconception()
def padded_keys_score_zero(q, k, v, block_q, block_k, causal=False, scale=None):
    """The last key block is filled up with zeros and not masked; a key of zeros scores 0 and takes
    weight exp(0 - m) from the real ones."""
    S, S_kv, off = q.shape[2], k.shape[2], k.shape[2] - q.shape[2]
    pad = torch.nn.functional.pad
    k, v = (pad(x, (0, 0, 0, -S_kv % block_k)) for x in (k, v))
    o, lse = torch.zeros_like(q), q.new_zeros(q.shape[:3])
    for i in range(0, S, block_q):
        q_i = q[:, :, i : i + block_q] * (scale or 1 / math.sqrt(q.shape[3]))
        state = (q_i.new_full(q_i.shape[:3], -math.inf), q_i.new_zeros(q_i.shape[:3]), q_i * 0)
        for j in range(0, S_kv, block_k):
            s = q_i @ k[:, :, j : j + block_k].mT
            if causal:
                hidden = ~torch.ones_like(s[0, 0], dtype=torch.bool).tril(off + i - j)
                hidden[:, max(S_kv - j, 0) :] = False
                s = s.masked_fill(hidden, -math.inf)
            m = s.amax(-1)
            p = torch.exp(s - m.masked_fill(m == -math.inf, 0.0)[..., None])
            state = merge(state, (m, p.sum(-1), p @ v[:, :, j : j + block_k]))
        o[:, :, i : i + block_q] = state[2] / state[1][..., None]
        lse[:, :, i : i + block_q] = state[0] + torch.log(state[1])
    return o, lse


@misconception()
def ragged_last_block_is_dropped(q, k, v, block_q, block_k, causal=False, scale=None):
    """Only whole key blocks are visited: S_kv // block_k of them forget the last, shorter one;
    range(0, S_kv, block_k) does not."""
    S, S_kv, off = q.shape[2], k.shape[2], k.shape[2] - q.shape[2]
    o, lse = torch.zeros_like(q), q.new_zeros(q.shape[:3])
    for i in range(0, S, block_q):
        q_i = q[:, :, i : i + block_q] * (scale or 1 / math.sqrt(q.shape[3]))
        state = (q_i.new_full(q_i.shape[:3], -math.inf), q_i.new_zeros(q_i.shape[:3]), q_i * 0)
        for j in range(0, S_kv // block_k * block_k, block_k):
            s = q_i @ k[:, :, j : j + block_k].mT
            if causal:
                s = s.masked_fill(
                    ~torch.ones_like(s[0, 0], dtype=torch.bool).tril(off + i - j), -math.inf
                )
            m = s.amax(-1)
            p = torch.exp(s - m.masked_fill(m == -math.inf, 0.0)[..., None])
            state = merge(state, (m, p.sum(-1), p @ v[:, :, j : j + block_k]))
        o[:, :, i : i + block_q] = state[2] / state[1][..., None]
        lse[:, :, i : i + block_q] = state[0] + torch.log(state[1])
    return o, lse


@misconception()
def tiles_are_masked_from_the_first_key(q, k, v, block_q, block_k, causal=False, scale=None):
    """The mask of a tile compares row i with key j and forgets S_kv - S: with fewer queries than
    keys the queries are the last positions."""
    S, S_kv = q.shape[2], k.shape[2]
    o, lse = torch.zeros_like(q), q.new_zeros(q.shape[:3])
    for i in range(0, S, block_q):
        q_i = q[:, :, i : i + block_q] * (scale or 1 / math.sqrt(q.shape[3]))
        state = (q_i.new_full(q_i.shape[:3], -math.inf), q_i.new_zeros(q_i.shape[:3]), q_i * 0)
        for j in range(0, S_kv, block_k):
            s = q_i @ k[:, :, j : j + block_k].mT
            if causal:
                s = s.masked_fill(
                    ~torch.ones_like(s[0, 0], dtype=torch.bool).tril(i - j), -math.inf
                )
            m = s.amax(-1)
            p = torch.exp(s - m.masked_fill(m == -math.inf, 0.0)[..., None])
            state = merge(state, (m, p.sum(-1), p @ v[:, :, j : j + block_k]))
        o[:, :, i : i + block_q] = state[2] / state[1][..., None]
        lse[:, :, i : i + block_q] = state[0] + torch.log(state[1])
    return o, lse


@misconception()
def all_scores_at_once(q, k, v, block_q, block_k, causal=False, scale=None):
    """The answer is right and the S x S scores were held to get it: that matrix is the very thing
    that tiling removes."""
    s = q @ k.repeat_interleave(heads_per_group(q, k), 1).mT * (scale or 1 / math.sqrt(q.shape[3]))
    if causal:
        hidden = ~torch.ones(s.shape[-2:], dtype=torch.bool).tril(s.shape[-1] - s.shape[-2])
        s = s.masked_fill(hidden, -math.inf)
    return naive_attention(q, k, v, causal, scale), torch.logsumexp(s, -1)


@misconception()
def one_block_of_rows_against_all_keys(q, k, v, block_q, block_k, causal=False, scale=None):
    """Query rows are tiled and keys are not: block_q x S_kv scores at once need no online softmax,
    and on a chip they do not fit."""
    S, S_kv = q.shape[2], k.shape[2]
    o, lse = torch.zeros_like(q), q.new_zeros(q.shape[:3])
    for i in range(0, S, block_q):
        s = q[:, :, i : i + block_q] @ k.mT * (scale or 1 / math.sqrt(q.shape[3]))
        if causal:
            s = s.masked_fill(
                ~torch.ones_like(s[0, 0], dtype=torch.bool).tril(S_kv - S + i), -math.inf
            )
        o[:, :, i : i + block_q] = torch.softmax(s, -1) @ v
        lse[:, :, i : i + block_q] = torch.logsumexp(s, -1)
    return o, lse


@misconception()
def the_whole_mask_is_built_first(q, k, v, block_q, block_k, causal=False, scale=None):
    """The scores are tiled but the mask is not: S x S booleans are still quadratic; a tile makes
    its own from its row and key numbers."""
    S, S_kv = q.shape[2], k.shape[2]
    hidden = torch.ones(S, S_kv, dtype=torch.bool).triu(S_kv - S + 1)
    o, lse = torch.zeros_like(q), q.new_zeros(q.shape[:3])
    for i in range(0, S, block_q):
        q_i = q[:, :, i : i + block_q] * (scale or 1 / math.sqrt(q.shape[3]))
        state = (q_i.new_full(q_i.shape[:3], -math.inf), q_i.new_zeros(q_i.shape[:3]), q_i * 0)
        for j in range(0, S_kv, block_k):
            s = q_i @ k[:, :, j : j + block_k].mT
            if causal:
                s = s.masked_fill(hidden[i : i + block_q, j : j + block_k], -math.inf)
            m = s.amax(-1)
            p = torch.exp(s - m.masked_fill(m == -math.inf, 0.0)[..., None])
            state = merge(state, (m, p.sum(-1), p @ v[:, :, j : j + block_k]))
        o[:, :, i : i + block_q] = state[2] / state[1][..., None]
        lse[:, :, i : i + block_q] = state[0] + torch.log(state[1])
    return o, lse


@misconception()
def library_kernel_is_called(q, k, v, block_q, block_k, causal=False, scale=None):
    """The library's flash kernel is called; this task is to write what it does."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    mask = None
    if causal and q.shape[2] != k.shape[2]:
        mask = torch.full((q.shape[2], k.shape[2]), -math.inf, dtype=q.dtype)
        mask = mask.triu(k.shape[2] - q.shape[2] + 1)
    return kernel(q, k, v, 0.0, causal and mask is None, attn_mask=mask, scale=scale)
