from grader.suite import misconception


@misconception()
def mask_starts_at_the_first_key(q, k, v, causal=False, scale=None):
    """The causal mask is aligned to the first key; with fewer queries than keys (a cache) the
    queries are the last positions, so the diagonal moves right by S_kv - S."""
    s = q @ k.mT * (scale or 1 / math.sqrt(q.shape[3]))
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    return torch.softmax(s, -1) @ v


@misconception()
def no_scale(q, k, v, causal=False, scale=None):
    """The scores are not divided by sqrt(D): a dot product of D terms has variance D, and the
    softmax saturates."""
    s = q @ k.mT * (scale or 1.0)
    if causal:
        hidden = ~torch.ones(s.shape[-2:], dtype=torch.bool).tril(s.shape[-1] - s.shape[-2])
        s = s.masked_fill(hidden, -math.inf)
    return torch.softmax(s, -1) @ v


@misconception()
def scale_is_one_over_d(q, k, v, causal=False, scale=None):
    """The scale is 1/sqrt(D), not 1/D: the standard deviation of a dot product grows with the root
    of its length."""
    s = q @ k.mT * (scale or 1 / q.shape[3])
    if causal:
        hidden = ~torch.ones(s.shape[-2:], dtype=torch.bool).tril(s.shape[-1] - s.shape[-2])
        s = s.masked_fill(hidden, -math.inf)
    return torch.softmax(s, -1) @ v


@misconception()
def softmax_over_the_queries(q, k, v, causal=False, scale=None):
    """The softmax runs over the queries; each row, one query, must sum to 1 over its KEYS, the
    last axis."""
    s = q @ k.mT * (scale or 1 / math.sqrt(q.shape[3]))
    if causal:
        hidden = ~torch.ones(s.shape[-2:], dtype=torch.bool).tril(s.shape[-1] - s.shape[-2])
        s = s.masked_fill(hidden, -math.inf)
    return torch.softmax(s, -2) @ v


@misconception()
def mask_after_the_softmax(q, k, v, causal=False, scale=None):
    """Hidden keys are zeroed after the softmax, so they still stand in its denominator and a row
    sums to less than 1."""
    p = torch.softmax(q @ k.mT * (scale or 1 / math.sqrt(q.shape[3])), -1)
    return (p.tril(k.shape[2] - q.shape[2]) if causal else p) @ v


@misconception()
def hidden_scores_are_zero(q, k, v, causal=False, scale=None):
    """A hidden score is set to 0, which is a score like any other (weight exp(0) = 1); weight 0
    needs a score of -inf."""
    s = q @ k.mT * (scale or 1 / math.sqrt(q.shape[3]))
    return torch.softmax(s.tril(k.shape[2] - q.shape[2]) if causal else s, -1) @ v


@misconception()
def library_attention(q, k, v, causal=False, scale=None):
    """The library's attention is called; this task is to write the three steps that it fuses."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    if causal:
        mask = mask.tril(k.shape[2] - q.shape[2])
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
