"""Known wrong answers of lab 07. Each runs inside a fresh copy of the reference module."""

from grader.suite import misconception

# --- naive_attention ---------------------------------------------------------------------------


@misconception("naive_attention")
def mask_starts_at_the_first_key(q, k, v, causal=False, scale=None):
    """The causal mask is aligned to the first key; with fewer queries than keys (a cache) the
    queries are the last positions, so the diagonal moves right by S_kv - S."""
    s = q @ k.mT * (scale or 1 / math.sqrt(q.shape[3]))
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    return torch.softmax(s, -1) @ v


@misconception("naive_attention")
def no_scale(q, k, v, causal=False, scale=None):
    """The scores are not divided by sqrt(D): a dot product of D terms has variance D, and the
    softmax saturates."""
    s = q @ k.mT * (scale or 1.0)
    if causal:
        hidden = ~torch.ones(s.shape[-2:], dtype=torch.bool).tril(s.shape[-1] - s.shape[-2])
        s = s.masked_fill(hidden, -math.inf)
    return torch.softmax(s, -1) @ v


@misconception("naive_attention")
def scale_is_one_over_d(q, k, v, causal=False, scale=None):
    """The scale is 1/sqrt(D), not 1/D: the standard deviation of a dot product grows with the root
    of its length."""
    s = q @ k.mT * (scale or 1 / q.shape[3])
    if causal:
        hidden = ~torch.ones(s.shape[-2:], dtype=torch.bool).tril(s.shape[-1] - s.shape[-2])
        s = s.masked_fill(hidden, -math.inf)
    return torch.softmax(s, -1) @ v


@misconception("naive_attention")
def softmax_over_the_queries(q, k, v, causal=False, scale=None):
    """The softmax runs over the queries; each row, one query, must sum to 1 over its KEYS, the
    last axis."""
    s = q @ k.mT * (scale or 1 / math.sqrt(q.shape[3]))
    if causal:
        hidden = ~torch.ones(s.shape[-2:], dtype=torch.bool).tril(s.shape[-1] - s.shape[-2])
        s = s.masked_fill(hidden, -math.inf)
    return torch.softmax(s, -2) @ v


@misconception("naive_attention")
def mask_after_the_softmax(q, k, v, causal=False, scale=None):
    """Hidden keys are zeroed after the softmax, so they still stand in its denominator and a row
    sums to less than 1."""
    p = torch.softmax(q @ k.mT * (scale or 1 / math.sqrt(q.shape[3])), -1)
    return (p.tril(k.shape[2] - q.shape[2]) if causal else p) @ v


@misconception("naive_attention")
def hidden_scores_are_zero(q, k, v, causal=False, scale=None):
    """A hidden score is set to 0, which is a score like any other (weight exp(0) = 1); weight 0
    needs a score of -inf."""
    s = q @ k.mT * (scale or 1 / math.sqrt(q.shape[3]))
    return torch.softmax(s.tril(k.shape[2] - q.shape[2]) if causal else s, -1) @ v


@misconception("naive_attention")
def library_attention(q, k, v, causal=False, scale=None):
    """The library's attention is called; this task is to write the three steps that it fuses."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    if causal:
        mask = mask.tril(k.shape[2] - q.shape[2])
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


# --- online_softmax ----------------------------------------------------------------------------


@misconception("online_softmax")
def l_is_not_rescaled(x, block):
    """l is a sum measured from the old maximum; when m grows, l must be multiplied by exp(m_old -
    m_new) before the block is added ([1, 2, 3, 4] in twos: 2.7358 for 1.5530)."""
    m = torch.full(x.shape[:-1], -math.inf, dtype=statistics_dtype(x))
    l = torch.zeros_like(m)
    for x_j in x.to(m.dtype).split(block, -1):
        m = torch.maximum(m, x_j.amax(-1))
        l = l + torch.exp(x_j - m[..., None]).sum(-1)
    return (torch.exp(x - m[..., None]) / l[..., None]).to(x.dtype), m, l


@misconception("online_softmax")
def l_is_rescaled_the_wrong_way(x, block):
    """The factor is exp(m_old - m_new), which is at most 1: a larger maximum makes the old terms
    SMALLER ([1, 2, 3, 4] in twos: 11.475 for 1.5530)."""
    first, *rest = x.to(statistics_dtype(x)).split(block, -1)
    m = first.amax(-1)
    l = torch.exp(first - m[..., None]).sum(-1)
    for x_j in rest:
        m_new = torch.maximum(m, x_j.amax(-1))
        l = l * torch.exp(m_new - m) + torch.exp(x_j - m_new[..., None]).sum(-1)
        m = m_new
    return (torch.exp(x - m[..., None]) / l[..., None]).to(x.dtype), m, l


@misconception("online_softmax")
def m_starts_at_zero(x, block):
    """The running maximum starts at 0 instead of -inf: for logits far below 0 every exp
    underflows, l is 0 and p is 0/0."""
    m = torch.zeros(x.shape[:-1], dtype=statistics_dtype(x))
    l = torch.zeros_like(m)
    for x_j in x.to(m.dtype).split(block, -1):
        m_new = torch.maximum(m, x_j.amax(-1))
        l = l * torch.exp(m - m_new) + torch.exp(x_j - m_new[..., None]).sum(-1)
        m = m_new
    return (torch.exp(x - m[..., None]) / l[..., None]).to(x.dtype), m, l


@misconception("online_softmax")
def p_is_written_too_early(x, block):
    """p of a block is written with the m and l of that moment; they change with every later block,
    so p can only be written from the final ones."""
    m = torch.full(x.shape[:-1], -math.inf, dtype=statistics_dtype(x))
    l = torch.zeros_like(m)
    parts = []
    for x_j in x.to(m.dtype).split(block, -1):
        m_new = torch.maximum(m, x_j.amax(-1))
        l = l * torch.exp(m - m_new) + torch.exp(x_j - m_new[..., None]).sum(-1)
        m = m_new
        parts.append(torch.exp(x_j - m[..., None]) / l[..., None])
    return torch.cat(parts, -1).to(x.dtype), m, l


@misconception("online_softmax")
def l_is_measured_from_zero(x, block):
    """l is the sum of exp(x), not of exp(x - m): it overflows float32 from x = 89 on, and does not
    belong to m."""
    m = torch.full(x.shape[:-1], -math.inf, dtype=statistics_dtype(x))
    l = torch.zeros_like(m)
    for x_j in x.to(m.dtype).split(block, -1):
        m = torch.maximum(m, x_j.amax(-1))
        l = l + torch.exp(x_j).sum(-1)
    return (torch.exp(x) / l[..., None]).to(x.dtype), m, l


@misconception("online_softmax")
def library_softmax(x, block):
    """The library's softmax reads the whole row for its maximum and again for its sum; the task is
    to need one pass, a block at a time."""
    wide = x.to(statistics_dtype(x))
    m = wide.amax(-1)
    l = torch.exp(wide - m[..., None]).sum(-1)
    return torch.softmax(wide, -1).to(x.dtype), m, l


@misconception("online_softmax")
def two_passes(x, block):
    """The maximum of the whole row is taken first and the sum in a second pass: the row is read
    twice, which is what the online form avoids."""
    wide = x.to(statistics_dtype(x))
    m = wide.amax(-1)
    l = sum(torch.exp(x_j - m[..., None]).sum(-1) for x_j in wide.split(block, -1))
    return (torch.exp(wide - m[..., None]) / l[..., None]).to(x.dtype), m, l


# --- merge -------------------------------------------------------------------------------------


@misconception("merge")
def o_is_rescaled_but_not_l(a, b):
    """o is rescaled to the common maximum and l is not; both are sums of exp(s - m) and change
    with m in the same way."""
    m = torch.maximum(a[0], b[0])
    shift = m.masked_fill(m == -math.inf, 0.0)
    w_a, w_b = torch.exp(a[0] - shift), torch.exp(b[0] - shift)
    return m, a[1] + b[1], w_a[..., None] * a[2] + w_b[..., None] * b[2]


@misconception("merge")
def l_is_rescaled_but_not_o(a, b):
    """l is rescaled to the common maximum and o is not; o is the same sum with v as weights and
    needs the same factor."""
    m = torch.maximum(a[0], b[0])
    shift = m.masked_fill(m == -math.inf, 0.0)
    return m, torch.exp(a[0] - shift) * a[1] + torch.exp(b[0] - shift) * b[1], a[2] + b[2]


@misconception("merge")
def infinity_minus_infinity(a, b):
    """Where both parts are empty the factor is exp(-inf - -inf) = NaN; any finite shift serves
    such a row."""
    m = torch.maximum(a[0], b[0])
    w_a, w_b = torch.exp(a[0] - m), torch.exp(b[0] - m)
    return m, w_a * a[1] + w_b * b[1], w_a[..., None] * a[2] + w_b[..., None] * b[2]


@misconception("merge")
def factors_have_the_wrong_sign(a, b):
    """The factor of a part is exp(m_part - m), at most 1; exp(m - m_part) makes the smaller part
    the heavier one."""
    m = torch.maximum(a[0], b[0])
    w_a, w_b = torch.exp(m - a[0]), torch.exp(m - b[0])
    return m, w_a * a[1] + w_b * b[1], w_a[..., None] * a[2] + w_b[..., None] * b[2]


@misconception("merge")
def o_is_divided_by_l(a, b):
    """The merged o is divided by l; a state keeps o unnormalised, otherwise the next merge weighs
    it as if its l were 1."""
    m = torch.maximum(a[0], b[0])
    shift = m.masked_fill(m == -math.inf, 0.0)
    w_a, w_b = torch.exp(a[0] - shift), torch.exp(b[0] - shift)
    l = w_a * a[1] + w_b * b[1]
    return m, l, (w_a[..., None] * a[2] + w_b[..., None] * b[2]) / l[..., None]


@misconception("merge")
def o_is_taken_for_an_average(a, b):
    """o is weighed with l as if it were normalised; o is already the sum over the keys, so its
    only factor is exp(m_part - m)."""
    m = torch.maximum(a[0], b[0])
    shift = m.masked_fill(m == -math.inf, 0.0)
    w_a, w_b = torch.exp(a[0] - shift) * a[1], torch.exp(b[0] - shift) * b[1]
    return m, w_a + w_b, w_a[..., None] * a[2] + w_b[..., None] * b[2]


@misconception("merge")
def measured_from_the_first_part(a, b):
    """The first part's maximum is kept as the common one; if the second part's is larger, exp(m_b
    - m_a) grows without bound."""
    w_b = torch.exp(b[0] - a[0])
    return a[0], a[1] + w_b * b[1], a[2] + w_b[..., None] * b[2]


# --- flash_forward -----------------------------------------------------------------------------


@misconception("flash_forward")
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


@misconception("flash_forward")
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


@misconception("flash_forward")
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


@misconception("flash_forward")
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


@misconception("flash_forward")
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


@misconception("flash_forward")
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


@misconception("flash_forward")
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


@misconception("flash_forward")
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


@misconception("flash_forward")
def all_scores_at_once(q, k, v, block_q, block_k, causal=False, scale=None):
    """The answer is right and the S x S scores were held to get it: that matrix is the very thing
    that tiling removes."""
    s = q @ k.repeat_interleave(heads_per_group(q, k), 1).mT * (scale or 1 / math.sqrt(q.shape[3]))
    if causal:
        hidden = ~torch.ones(s.shape[-2:], dtype=torch.bool).tril(s.shape[-1] - s.shape[-2])
        s = s.masked_fill(hidden, -math.inf)
    return naive_attention(q, k, v, causal, scale), torch.logsumexp(s, -1)


@misconception("flash_forward")
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


@misconception("flash_forward")
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


@misconception("flash_forward")
def library_kernel_is_called(q, k, v, block_q, block_k, causal=False, scale=None):
    """The library's flash kernel is called; this task is to write what it does."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    mask = None
    if causal and q.shape[2] != k.shape[2]:
        mask = torch.full((q.shape[2], k.shape[2]), -math.inf, dtype=q.dtype)
        mask = mask.triu(k.shape[2] - q.shape[2] + 1)
    return kernel(q, k, v, 0.0, causal and mask is None, attn_mask=mask, scale=scale)


# --- flash_forward_skips -----------------------------------------------------------------------


@misconception("flash_forward_skips", replaces="flash_forward")
def tiles_are_masked_but_not_skipped(q, k, v, block_q, block_k, causal=False, scale=None):
    """flash_forward does not ask: hidden tiles are loaded, multiplied and then masked away, which
    is twice the work."""
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
        m, l, acc = state
        o[:, :, i : i + block_q] = acc / l.masked_fill(l == 0, 1.0)[..., None]
        lse[:, :, i : i + block_q] = m + torch.log(l)
    return o, lse


@misconception("flash_forward_skips")
def nothing_is_skipped(q_start, q_stop, k_start, k_stop, S, S_kv):
    """No tile is ever skipped: the mask makes the upper half invisible, but it is still computed
    and loaded."""
    return False


@misconception("flash_forward_skips")
def the_diagonal_is_skipped(q_start, q_stop, k_start, k_stop, S, S_kv):
    """A tile that the diagonal cuts is skipped whole; it holds visible pairs and must be computed
    and masked."""
    return k_stop - 1 > q_start + S_kv - S


@misconception("flash_forward_skips")
def the_first_row_decides(q_start, q_stop, k_start, k_stop, S, S_kv):
    """The tile's first row is asked; the LAST row sees furthest, and if it sees the first key the
    tile is needed."""
    return k_start > q_start + S_kv - S


@misconception("flash_forward_skips")
def the_offset_is_forgotten(q_start, q_stop, k_start, k_stop, S, S_kv):
    """The diagonal is taken to start at key 0; aligned to the end it starts at key S_kv - S."""
    return k_start > q_stop - 1


@misconception("flash_forward_skips")
def one_pair_too_many(q_start, q_stop, k_start, k_stop, S, S_kv):
    """Off by one: q_stop is the first row AFTER the tile, its last row is q_stop - 1, and a key AT
    the diagonal is visible."""
    return k_start >= q_stop - 1 + S_kv - S


@misconception("flash_forward_skips")
def a_tile_may_reach_its_own_end(q_start, q_stop, k_start, k_stop, S, S_kv):
    """q_stop is taken for the tile's last row: tiles that start one key beyond the diagonal are
    computed for nothing."""
    return k_start > q_stop + S_kv - S


# --- flash_backward ----------------------------------------------------------------------------


@misconception("flash_backward")
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


@misconception("flash_backward")
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


@misconception("flash_backward")
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


@misconception("flash_backward")
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


@misconception("flash_backward")
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


@misconception("flash_backward")
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


@misconception("flash_backward")
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


@misconception("flash_backward")
def autograd_of_the_naive_forward(q, k, v, o, lse, do, block_q, block_k, causal=False, scale=None):
    """The forward is run again under autograd, which saves the S x S probabilities (and more) for
    its backward."""
    with torch.enable_grad():
        leaves = [x.detach().double().requires_grad_() for x in (q, k, v)]
        out = naive_attention(*leaves, causal, scale)
    return tuple(
        g.to(x.dtype) for g, x in zip(torch.autograd.grad(out, leaves, do.double()), (q, k, v))
    )


@misconception("flash_backward")
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


# --- io_model ----------------------------------------------------------------------------------


@misconception("io_model", replaces="block_sizes")
def sram_in_bytes(D, sram_elements):
    """M is counted in bytes; Algorithm 1 counts elements, so 192 KiB of fp16 give Bc = 384 at d =
    64, not 768."""
    bc = -(-2 * sram_elements // (4 * D))
    return bc, min(bc, D)


@misconception("io_model", replaces="block_sizes")
def blocks_are_rounded_down(D, sram_elements):
    """Bc is rounded down; Algorithm 1 takes the ceiling of M / 4d."""
    bc = sram_elements // (4 * D)
    return bc, min(bc, D)


@misconception("io_model", replaces="block_sizes")
def query_blocks_as_large_as_key_blocks(D, sram_elements):
    """Br is set to Bc; it is min(Bc, d), so that the Br x Bc scores fit beside the four blocks."""
    bc = -(-sram_elements // (4 * D))
    return bc, bc


@misconception("io_model")
def traffic_is_linear(S, D, sram_elements):
    """Memory is O(N), traffic is not: Q and O travel once for EVERY key block, so doubling N
    quadruples the traffic."""
    return 4 * S * S + 4 * S * D, 4 * S * D


@misconception("io_model")
def never_worse_than_standard(S, D, sram_elements):
    """The flash count is capped at the standard one; with small blocks Algorithm 1 really moves
    more (0.52x at N 8192, d 128, Bc 50)."""
    bc, _ = block_sizes(D, sram_elements)
    standard = 4 * S * S + 4 * S * D
    return standard, min(standard, 2 * S * D + -(-S // bc) * (3 * S * D + 4 * S))


@misconception("io_model")
def statistics_are_free(S, D, sram_elements):
    """l and m are forgotten: every round reads and writes both, 4N elements."""
    bc, _ = block_sizes(D, sram_elements)
    return 4 * S * S + 4 * S * D, 2 * S * D + -(-S // bc) * 3 * S * D


@misconception("io_model")
def output_stays_on_chip(S, D, sram_elements):
    """O is written once at the end as in FlashAttention-2; in Algorithm 1 the KEY loop is outside,
    so every round reads and writes all of O."""
    bc, _ = block_sizes(D, sram_elements)
    return 4 * S * S + 4 * S * D, 3 * S * D + -(-S // bc) * (S * D + 4 * S)


@misconception("io_model")
def scores_cross_twice(S, D, sram_elements):
    """The S x S matrix is counted twice; Algorithm 0 writes the scores, reads them, writes the
    probabilities and reads those: four times."""
    bc, _ = block_sizes(D, sram_elements)
    return 2 * S * S + 4 * S * D, 2 * S * D + -(-S // bc) * (3 * S * D + 4 * S)


@misconception("io_model")
def last_round_is_dropped(S, D, sram_elements):
    """Tc is rounded down: a ragged last key block needs a round like any other."""
    bc, _ = block_sizes(D, sram_elements)
    return 4 * S * S + 4 * S * D, 2 * S * D + S // bc * (3 * S * D + 4 * S)


# --- gqa_varlen --------------------------------------------------------------------------------


@misconception("gqa_varlen")
def heads_are_dealt_in_turn(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """Query head h is given KV head h % H_kv; groups are NEIGHBOURING heads, h // (H // H_kv)."""
    o, lse = torch.zeros_like(q), q.new_full((q.shape[1], q.shape[0]), -math.inf)
    H_kv = k.shape[1]
    a, b = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for n in range(len(a) - 1):
        for h in range(q.shape[1]):
            parts = (
                q[a[n] : a[n + 1], h],
                k[b[n] : b[n + 1], h % H_kv],
                v[b[n] : b[n + 1], h % H_kv],
            )
            o_n, lse_n = flash_forward(
                *(x[None, None] for x in parts), block_q, block_k, causal, scale
            )
            o[a[n] : a[n + 1], h], lse[h, a[n] : a[n + 1]] = o_n[0, 0], lse_n[0, 0]
    return o, lse


@misconception("gqa_varlen")
def heads_are_repeated(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """K and V are repeated H // H_kv times in memory (repeat_interleave, or expand and then a
    matmul that copies): the saving of grouped heads is gone."""
    o, lse = torch.zeros_like(q), q.new_full((q.shape[1], q.shape[0]), -math.inf)
    a, b = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    group = q.shape[1] // k.shape[1]
    for n in range(len(a) - 1):
        k_n, v_n = (x[b[n] : b[n + 1]].repeat_interleave(group, 1) for x in (k, v))
        parts = (x.transpose(0, 1)[None] for x in (q[a[n] : a[n + 1]], k_n, v_n))
        o_n, lse_n = flash_forward(*parts, block_q, block_k, causal, scale)
        o[a[n] : a[n + 1]], lse[:, a[n] : a[n + 1]] = o_n[0].transpose(0, 1), lse_n[0]
    return o, lse


@misconception("gqa_varlen")
def the_pack_is_one_sequence(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """The pack is treated as one long sequence: its members attend to each other; cu_seqlens are
    walls."""
    o, lse = flash_forward(
        *(x.transpose(0, 1)[None] for x in (q, k, v)), block_q, block_k, causal, scale
    )
    return o[0].transpose(0, 1), lse[0]


@misconception("gqa_varlen")
def keys_are_cut_like_queries(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """Keys are cut with cu_seqlens_q; with a cache a sequence has more keys than queries and its
    own edges, cu_seqlens_k."""
    o, lse = torch.zeros_like(q), q.new_full((q.shape[1], q.shape[0]), -math.inf)
    a = cu_seqlens_q.tolist()
    for n in range(len(a) - 1):
        rows = slice(a[n], a[n + 1])
        parts = (x[rows].transpose(0, 1)[None] for x in (q, k, v))
        o_n, lse_n = flash_forward(*parts, block_q, block_k, causal, scale)
        o[rows], lse[:, rows] = o_n[0].transpose(0, 1), lse_n[0]
    return o, lse


@misconception("gqa_varlen")
def packed_mask_starts_at_the_first_key(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """Each sequence's mask is aligned to its first key; new tokens after a cache are the last
    positions of their sequence."""
    o, lse = torch.zeros_like(q), q.new_full((q.shape[1], q.shape[0]), -math.inf)
    a, b = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for n in range(len(a) - 1):
        rows = slice(a[n], a[n + 1])
        keys = slice(b[n], min(b[n + 1], b[n] + a[n + 1] - a[n]) if causal else b[n + 1])
        parts = (x.transpose(0, 1)[None] for x in (q[rows], k[keys], v[keys]))
        o_n, lse_n = flash_forward(*parts, block_q, block_k, causal, scale)
        o[rows], lse[:, rows] = o_n[0].transpose(0, 1), lse_n[0]
    return o, lse


@misconception("gqa_varlen")
def sequences_are_padded(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """Every sequence is padded to the longest: the padding is masked away and paid for in full,
    which is what packing avoids."""
    o, lse = torch.zeros_like(q), q.new_full((q.shape[1], q.shape[0]), -math.inf)
    a, b = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    H, H_kv = q.shape[1], k.shape[1]
    longest_q = int(cu_seqlens_q.diff().max())
    longest_k = int(cu_seqlens_k.diff().max())
    scale = scale or 1 / math.sqrt(q.shape[2])
    for n in range(len(a) - 1):
        S, S_kv = a[n + 1] - a[n], b[n + 1] - b[n]
        q_n = q.new_zeros(longest_q, H, q.shape[2])
        k_n, v_n = (k.new_zeros(longest_k, H_kv, q.shape[2]) for _ in range(2))
        q_n[:S], k_n[:S_kv], v_n[:S_kv] = q[a[n] : a[n + 1]], k[b[n] : b[n + 1]], v[b[n] : b[n + 1]]
        grouped = q_n.transpose(0, 1).unflatten(0, (H_kv, H // H_kv))
        s = torch.einsum("hgqd,khd->hgqk", grouped, k_n) * scale
        hidden = torch.ones(longest_q, longest_k, dtype=torch.bool)
        seen = torch.ones(S, S_kv, dtype=torch.bool)
        hidden[:S, :S_kv] = ~(seen.tril(S_kv - S) if causal else seen)
        s = s.masked_fill(hidden, -math.inf)
        p = torch.softmax(s, -1).nan_to_num(0.0)
        o[a[n] : a[n + 1]] = (
            torch.einsum("hgqk,khd->hgqd", p, v_n).flatten(0, 1)[:, :S].transpose(0, 1)
        )
        lse[:, a[n] : a[n + 1]] = torch.logsumexp(s, -1).flatten(0, 1)[:, :S]
    return o, lse


@misconception("gqa_varlen")
def one_mask_over_the_whole_pack(
    q, k, v, cu_seqlens_q, cu_seqlens_k, block_q, block_k, causal=False, scale=None
):
    """One block-diagonal mask over all tokens of the pack: right, but every pair of strangers is
    multiplied before it is hidden."""
    H, H_kv = q.shape[1], k.shape[1]
    grouped = q.transpose(0, 1).unflatten(0, (H_kv, H // H_kv))
    s = torch.einsum("hgqd,khd->hgqk", grouped, k) * (scale or 1 / math.sqrt(q.shape[2]))
    hidden = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool)
    a, b = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for n in range(len(a) - 1):
        seen = torch.ones(a[n + 1] - a[n], b[n + 1] - b[n], dtype=torch.bool)
        seen = seen.tril(seen.shape[1] - seen.shape[0]) if causal else seen
        hidden[a[n] : a[n + 1], b[n] : b[n + 1]] = ~seen
    s = s.masked_fill(hidden, -math.inf)
    o = torch.einsum("hgqk,khd->hgqd", torch.softmax(s, -1).nan_to_num(0.0), v)
    return o.flatten(0, 1).transpose(0, 1), torch.logsumexp(s, -1).flatten(0, 1)


# --- split_kv_decode ---------------------------------------------------------------------------


@misconception("split_kv_decode")
def workers_count_alike(q, k, v, num_splits, scale=None):
    """The workers' outputs are averaged with equal weights; a worker whose keys score high carries
    more of the softmax, exp(lse_worker)."""
    n = -(-k.shape[2] // num_splits)
    parts = [
        flash_forward(q, k[:, :, j : j + n], v[:, :, j : j + n], 1, n, scale=scale)
        for j in range(0, k.shape[2], n)
    ]
    o = sum(o for o, _ in parts) / len(parts)
    return o, torch.logsumexp(torch.stack([lse for _, lse in parts]), 0)


@misconception("split_kv_decode")
def lse_of_the_largest_worker(q, k, v, num_splits, scale=None):
    """The merged lse is the largest worker's; it is the logarithm of the SUM of all
    exp(lse_worker)."""
    n = -(-k.shape[2] // num_splits)
    parts = [
        flash_forward(q, k[:, :, j : j + n], v[:, :, j : j + n], 1, n, scale=scale)
        for j in range(0, k.shape[2], n)
    ]
    lse = torch.stack([lse for _, lse in parts])
    w = torch.softmax(lse, 0)
    return sum(w_n[..., None] * o for w_n, (o, _) in zip(w, parts)), lse.amax(0)


@misconception("split_kv_decode")
def one_worker_does_it_all(q, k, v, num_splits, scale=None):
    """All keys go through one product: with one query row there is then one block of work for the
    whole GPU."""
    return flash_forward(q, k, v, 1, max(k.shape[2], 1), scale=scale)


# --- paged_attention ---------------------------------------------------------------------------


@misconception("paged_attention")
def the_last_block_is_used_whole(q, k_cache, v_cache, block_table, context_lens, scale=None):
    """The last block is used beyond context_len; its other slots belong to nobody yet, and a NaN
    there survives a weight of 0."""
    o = torch.zeros_like(q)
    for b, length in enumerate(context_lens.tolist()):
        blocks = block_table[b, : -(-length // k_cache.shape[1])].long()
        k, v = (x[blocks].flatten(0, 1).transpose(0, 1)[None] for x in (k_cache, v_cache))
        o[b] = flash_forward(q[b, :, None][None], k, v, 1, 16, scale=scale)[0][0, :, 0]
    return o


@misconception("paged_attention")
def the_table_is_ignored(q, k_cache, v_cache, block_table, context_lens, scale=None):
    """Block n of a sequence is read from pool block n; where it lies is block_table[b, n]."""
    o = torch.zeros_like(q)
    for b, length in enumerate(context_lens.tolist()):
        k, v = (x.flatten(0, 1)[:length].transpose(0, 1)[None] for x in (k_cache, v_cache))
        o[b] = flash_forward(q[b, :, None][None], k, v, 1, 16, scale=scale)[0][0, :, 0]
    return o


@misconception("paged_attention")
def the_pool_is_copied(q, k_cache, v_cache, block_table, context_lens, scale=None):
    """The whole pool is copied (cast, or repeated for the query heads) for the sake of a few
    blocks; gather through the table first."""
    o = torch.zeros_like(q)
    k_cache, v_cache = k_cache.double(), v_cache.double()
    for b, length in enumerate(context_lens.tolist()):
        blocks = block_table[b, : -(-length // k_cache.shape[1])].long()
        k, v = (x[blocks].flatten(0, 1)[:length].transpose(0, 1)[None] for x in (k_cache, v_cache))
        o[b] = flash_forward(q[b, :, None][None].double(), k, v, 1, 16, scale=scale)[0][0, :, 0]
    return o


# --- flash_kernel ------------------------------------------------------------------------------


def _edited(text, *changes):
    """The reference's text with each (old, new) of `changes` made; old must stand there."""
    for old, new in changes:
        if old not in text:
            raise ValueError(f"the reference has no {old!r}")
        text = text.replace(old, new)
    return text


@misconception("flash_kernel", file="flash_kernel.py")
def padding_keys_score_zero(text):
    """Keys beyond S_kv are loaded as 0 and then score 0, which is a score like any other: the last
    block needs -inf there, with and without the causal mask."""
    return _edited(text, ("S_kv - 1, tl.int32", "S_kv - 1 + BLOCK_K, tl.int32"))


@misconception("flash_kernel", file="flash_kernel.py")
def kernel_mask_starts_at_the_first_key(text):
    """The causal mask is aligned to the first key; the queries are the last positions, so row i
    sees the keys up to i + (S_kv - S)."""
    return _edited(
        text,
        ("rows + (S_kv - S)", "rows"),
        ("1 + (S_kv - S)", "1"),
        ("BLOCK_Q + (S_kv - S)", "BLOCK_Q"),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def rows_do_not_see_themselves(text):
    """The mask hides the diagonal too; with S = S_kv row i sees key i, so the comparison is <=."""
    return _edited(text, ("rows + (S_kv - S))", "rows + (S_kv - S) - 1)"))


@misconception("flash_kernel", file="flash_kernel.py")
def mask_drops_the_diagonal_block(text):
    """The loop ends before the block that the diagonal cuts; its keys up to the diagonal are
    visible, so it is computed, with a mask."""
    return _edited(
        text,
        (
            "stop = tl.minimum(S_kv, first + BLOCK_Q + (S_kv - S))",
            "stop = tl.maximum(tl.minimum(S_kv, first + (S_kv - S)), 0)",
        ),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def mask_without_skipping(text):
    """Every program loads all keys and masks most of them; the loop of a causal program can end at
    its last row's last key, which saves nearly half of the loads and products."""
    return _edited(text, ("first + BLOCK_Q + (S_kv - S))", "S_kv)"))


@misconception("flash_kernel", file="flash_kernel.py")
def kernel_lse_in_base_two(text):
    """The statistics of a kernel that uses exp2 are in units of log2; lse is a natural logarithm,
    so it takes a factor ln(2) at the end."""
    return _edited(text, ("tl.log2(l_safe)) * 0.6931471805599453", "tl.log2(l_safe))"))


@misconception("flash_kernel", file="flash_kernel.py")
def exp2_without_log2_e(text):
    """exp2(x) is no exp(x): exp(x) = exp2(x * log2(e)), and that factor, 1.4427, is missing."""
    return _edited(
        text,
        ("scale * math.log2(math.e)", "scale"),
        ("tl.log2(l_safe)) * 0.6931471805599453", "tl.log(l_safe))"),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def accumulator_is_not_rescaled(text):
    """l is rescaled when m grows and acc is not; both are sums measured from the old maximum."""
    return _edited(text, ("acc * decay[:, None]", "acc"))


@misconception("flash_kernel", file="flash_kernel.py")
def kernel_l_is_not_rescaled(text):
    """acc is rescaled when m grows and l is not; both are sums measured from the old maximum."""
    return _edited(text, ("l = l * decay + ", "l = l + "))


@misconception("flash_kernel", file="flash_kernel.py")
def kernel_m_starts_at_zero(text):
    """The running maximum starts at 0: for scores far below 0 every exp underflows, and l is 0.
    The maximum of nothing is -inf."""
    return _edited(
        text,
        (
            'm = tl.full([BLOCK_Q], -float("inf"), tl.float32)',
            "m = tl.zeros([BLOCK_Q], tl.float32)",
        ),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def exp_without_the_maximum(text):
    """Scores go into exp as they are; without the running maximum a score of 1000 overflows and a
    row of scores near -1000 sums to 0."""
    return _edited(
        text,
        ("m_new = tl.maximum(m, tl.max(s, axis=1) * scale_log2)", "m_new = m"),
        (
            'm = tl.full([BLOCK_Q], -float("inf"), tl.float32)',
            "m = tl.zeros([BLOCK_Q], tl.float32)",
        ),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def normalised_in_every_key_block(text):
    """acc is divided by the l of the moment in each key block; divided numbers cannot be added to
    later ones, so the division comes once, after the last block."""
    return _edited(
        text,
        ("p = p.to(v.dtype)", "p = (p / l[:, None]).to(v.dtype)"),
        ("o = acc / l_safe[:, None]", "o = acc"),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def kernel_without_a_scale(text):
    """The scores are not divided by sqrt(D): where no scale is given it is 1/sqrt(D), not 1."""
    return _edited(text, ("1 / math.sqrt(D) if scale is None", "1.0 if scale is None"))


@misconception("flash_kernel", file="flash_kernel.py")
def scale_goes_into_q(text):
    """q is multiplied by the scale and rounded to 16 bits once more before the product, which shows
    in every score; multiply the scores by it, which are float32."""
    return _edited(
        text,
        (
            "other=0.0).to(OPERAND)\n    m =",
            "other=0.0)\n    q = (q.to(tl.float32) * scale_log2).to(q_ptr.dtype.element_ty)"
            ".to(OPERAND)\n    m =",
        ),
        ("tl.max(s, axis=1) * scale_log2", "tl.max(s, axis=1)"),
        ("s * scale_log2 - shift", "s - shift"),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def strides_of_q_for_all(text):
    """K and V are read with the strides of q; each tensor has four strides of its own, and with
    grouped heads, a cache or views they differ."""
    return _edited(text, ("*k.stride(), *v.stride()", "*q.stride(), *q.stride()"))


@misconception("flash_kernel", file="flash_kernel.py")
def strides_of_k_for_v(text):
    """V is read with the strides of k; equal shapes do not make equal strides."""
    return _edited(text, ("*k.stride(), *v.stride()", "*k.stride(), *k.stride()"))


@misconception("flash_kernel", file="flash_kernel.py")
def rows_lie_one_behind_the_other(text):
    """Elements of a row are taken to be neighbours; the stride of the last axis is 1 for a
    contiguous tensor only, and any view may have another."""
    return _edited(
        text,
        ("dims[:, None] * stride_kd", "dims[:, None]"),
        ("dims[None, :] * stride_vd", "dims[None, :]"),
        ("dims[None, :] * stride_qd", "dims[None, :]"),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def output_with_the_strides_of_q(text):
    """o is stored with the strides of q, but lies row by row: a new tensor is contiguous,
    whatever view q is."""
    return _edited(
        text,
        (
            "o_ptrs = o_ptr + out[:, None] * D + dims[None, :]",
            "o_ptrs = o_ptr + batch * stride_qb + head * stride_qh"
            " + rows[:, None] * stride_qs + dims[None, :] * stride_qd",
        ),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def stores_without_a_mask(text):
    """The stores have no mask: rows beyond S of the last block land in the next head's rows, or
    beyond the tensor."""
    return _edited(
        text, ("element_ty), mask=exists[:, None])", "element_ty))"), ("lse, mask=exists)", "lse)")
    )


@misconception("flash_kernel", file="flash_kernel.py")
def q_without_a_mask(text):
    """The load of q has no mask: the last block of rows reads beyond S, the next head's rows or
    memory that is nobody's."""
    return _edited(
        text,
        ("mask=exists[:, None], other=0.0).to(OPERAND)\n    m =", "\n    m ="),
        ("tl.load(q_ptrs, ", "tl.load(q_ptrs).to(OPERAND)"),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def keys_without_a_mask(text):
    """The loads of k and v have no mask: a score of -inf for a key that does not exist comes too
    late, it has been read by then."""
    return _edited(
        text,
        (", mask=exists[None, :], other=0.0", ""),
        ("tl.load(v_ptrs, mask=exists[:, None], other=0.0)", "tl.load(v_ptrs)"),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def kv_head_is_the_query_head(text):
    """Query head h reads KV head h; there are only H_kv of them, and H // H_kv neighbouring query
    heads share one: h // (H // H_kv)."""
    return _edited(text, ("(h // group)", "h"))


@misconception("flash_kernel", file="flash_kernel.py")
def kv_heads_in_turn(text):
    """KV heads are dealt out in turn, h % H_kv; a group is H // H_kv NEIGHBOURING query heads."""
    return _edited(text, ("(h // group)", "(h % (tl.num_programs(1) // group))"))


@misconception("flash_kernel", file="flash_kernel.py")
def kv_heads_are_repeated(text):
    """KV heads are repeated in memory before the launch, H // H_kv times K and V; the program finds
    its KV head by an index and needs no copy."""
    return _edited(
        text,
        (
            "    o = torch.empty(",
            "    k, v = (x.repeat_interleave(H // x.shape[1], 1)"
            " for x in (k, v))\n    o = torch.empty(",
        ),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def inputs_made_wide_by_torch(text):
    """q, k and v are cast to float32 by torch: each is read and written once more, in a wider type,
    and the tensor cores' fast types are lost. Products of 16-bit numbers add up in float32
    anyway."""
    return _edited(
        text,
        (
            "    o = torch.empty(q.shape, dtype=q.dtype",
            "    kind, q, k, v = q.dtype, q.float(), k.float(), v.float()\n"
            "    o = torch.empty(q.shape, dtype=kind",
        ),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def views_are_made_contiguous(text):
    """The inputs are made contiguous first, which copies every view; the kernel is given their
    strides and needs no copy."""
    return _edited(
        text,
        (
            "    o = torch.empty(q.shape",
            "    q, k, v = (x.contiguous() for x in (q, k, v))\n    o = torch.empty(q.shape",
        ),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def q_is_loaded_for_every_key_block(text):
    """The rows of q are loaded anew for every key block; they do not change, and belong in
    registers before the loop."""
    return _edited(
        text,
        (
            "        at = tl.cast(start, tl.int64)\n",
            "        at = tl.cast(start, tl.int64)\n"
            "        q = tl.load(q_ptrs, mask=exists[:, None], other=0.0)"
            ".to(OPERAND)\n",
        ),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def a_launch_for_each_head(text):
    """The kernel is launched once for each head; a launch costs microseconds and fills part of the
    GPU only, while heads and batch can be axes of one grid."""
    return _edited(
        text,
        (
            "    grid = (triton.cdiv(S, block_q), H, B)\n",
            "    if B * H > 1:\n"
            "        group = H // k.shape[1]\n"
            "        for b in range(B):\n"
            "            for h in range(H):\n"
            "                heads = (q[b, h], k[b, h // group], v[b, h // group])\n"
            "                one = flash_kernel(*(x[None, None] for x in heads),"
            " causal, scale, block_q, block_k)\n"
            "                o[b, h], lse[b, h] = one[0][0, 0], one[1][0, 0]\n"
            "        return o, lse\n"
            "    grid = (triton.cdiv(S, block_q), H, B)\n",
        ),
    )


@misconception("flash_kernel")
def torchs_attention_for_the_kernel(q, k, v, causal=False, scale=None, block_q=128, block_k=64):
    """The library's attention is called; this task is to write the kernel, and no launch of one was
    seen."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    if causal:
        mask = mask.tril(k.shape[2] - q.shape[2])
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    s = (q @ k.mT).float() * (scale or 1 / math.sqrt(q.shape[3]))
    return o, torch.logsumexp(s.masked_fill(~mask, -math.inf), -1)


@misconception("flash_kernel", file="flash_kernel.py")
def statistics_in_the_type_of_q(text):
    """lse is stored in the type of q; float16 keeps 10 bits of a number, and the backward takes the
    exponential of s - lse."""
    return _edited(
        text,
        (
            "lse = torch.empty((B, H, S), dtype=torch.float32",
            "lse = torch.empty((B, H, S), dtype=q.dtype",
        ),
        ("lse, mask=exists)", "lse.to(lse_ptr.dtype.element_ty), mask=exists)"),
    )


@misconception("flash_kernel", file="flash_kernel.py")
def products_without_tl_dot(text):
    """Scores are made by multiplying and summing blocks of three axes; only tl.dot reaches the
    tensor cores, which do nearly all of a GPU's FLOPs."""
    return _edited(
        text,
        (
            's = tl.dot(q, k.to(OPERAND), input_precision="tf32x3")',
            "s = tl.sum(q.to(tl.float32)[:, :, None] * k.to(tl.float32)[None, :, :], axis=1)",
        ),
    )
