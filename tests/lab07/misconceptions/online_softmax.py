from grader.suite import misconception


@misconception()
def l_is_not_rescaled(x, block):
    """l is a sum measured from the old maximum; when m grows, l must be multiplied by exp(m_old -
    m_new) before the block is added ([1, 2, 3, 4] in twos: 2.7358 for 1.5530)."""
    m = torch.full(x.shape[:-1], -math.inf, dtype=statistics_dtype(x))
    l = torch.zeros_like(m)
    for x_j in x.to(m.dtype).split(block, -1):
        m = torch.maximum(m, x_j.amax(-1))
        l = l + torch.exp(x_j - m[..., None]).sum(-1)
    return (torch.exp(x - m[..., None]) / l[..., None]).to(x.dtype), m, l


@misconception()
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


@misconception()
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


@misconception()
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


@misconception()
def l_is_measured_from_zero(x, block):
    """l is the sum of exp(x), not of exp(x - m): it overflows float32 from x = 89 on, and does not
    belong to m."""
    m = torch.full(x.shape[:-1], -math.inf, dtype=statistics_dtype(x))
    l = torch.zeros_like(m)
    for x_j in x.to(m.dtype).split(block, -1):
        m = torch.maximum(m, x_j.amax(-1))
        l = l + torch.exp(x_j).sum(-1)
    return (torch.exp(x) / l[..., None]).to(x.dtype), m, l


@misconception()
def library_softmax(x, block):
    """The library's softmax reads the whole row for its maximum and again for its sum; the task is
    to need one pass, a block at a time."""
    wide = x.to(statistics_dtype(x))
    m = wide.amax(-1)
    l = torch.exp(wide - m[..., None]).sum(-1)
    return torch.softmax(wide, -1).to(x.dtype), m, l


@misconception()
def two_passes(x, block):
    """The maximum of the whole row is taken first and the sum in a second pass: the row is read
    twice, which is what the online form avoids."""
    wide = x.to(statistics_dtype(x))
    m = wide.amax(-1)
    l = sum(torch.exp(x_j - m[..., None]).sum(-1) for x_j in wide.split(block, -1))
    return (torch.exp(wide - m[..., None]) / l[..., None]).to(x.dtype), m, l
