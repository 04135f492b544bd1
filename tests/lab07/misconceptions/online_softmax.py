from grader.suite import lines, misconception

l_is_not_rescaled = lines(
    """l is a sum measured from the old maximum; when m grows, l must be multiplied by exp(m_old -
    m_new) before the block is added ([1, 2, 3, 4] in blocks of 2: 2.7358 instead of 1.5530).""",
    ("l = l * torch.exp(m - shift) +", "l = l +"),
)

l_is_rescaled_the_wrong_way = lines(
    """The factor is exp(m_old - m_new), which is at most 1: a larger maximum makes the old terms
    SMALLER ([1, 2, 3, 4] in blocks of 2: 11.475 instead of 1.5530, or NaN where m_old is still
    -inf).""",
    ("torch.exp(m - shift)", "torch.exp(shift - torch.where(m == -math.inf, shift, m))"),
)

l_is_rescaled_the_wrong_way_from_the_first_block_on = lines(
    """The factor is exp(m_old - m_new), which is at most 1: a larger maximum makes the old terms
    SMALLER ([1, 2, 3, 4] in blocks of 2: 11.475 instead of 1.5530, or NaN where m_old is still
    -inf).""",
    ("torch.exp(m - shift)", "torch.exp(shift - m)"),
)

m_starts_at_zero = lines(
    """The running maximum starts at 0 instead of -inf: for logits far below 0 every exp
    underflows, l is 0 and p is 0/0.""",
    (
        "m = torch.full(x.shape[:-1], -math.inf, dtype=x_wide.dtype)",
        "m = torch.zeros(x.shape[:-1], dtype=x_wide.dtype)",
    ),
)

p_is_written_too_early = lines(
    """p of a block is written with the m and l of that moment; they change with every later block,
    so p can only be written from the final ones.""",
    ("    l = torch.zeros_like(m)\n", "    l, parts = torch.zeros_like(m), []\n"),
    (
        "        m = m_new\n",
        "        m = m_new\n        parts.append(torch.exp(x_j - shift[..., None])"
        " / l.masked_fill(l == 0, 1.0)[..., None])\n",
    ),
    (
        "p = torch.exp(x_wide - shift[..., None]) / l.masked_fill(l == 0, 1.0)[..., None]",
        "p = torch.cat(parts, dim=-1)",
    ),
)

l_is_measured_from_zero = lines(
    """l is the sum of exp(x), not of exp(x - m): it overflows float32 from x = 89 on, and does not
    belong to m.""",
    (
        "l * torch.exp(m - shift) + torch.exp(x_j - shift[..., None]).sum(dim=-1)",
        "l + torch.exp(x_j).sum(dim=-1)",
    ),
    ("torch.exp(x_wide - shift[..., None]) / l", "torch.exp(x_wide) / l"),
)

two_passes = lines(
    """The row is read twice, once for its maximum and once more for its sum; the online form takes
    both from each block, in one pass.""",
    ("m_new = torch.maximum(m, x_j.amax(dim=-1))", "m_new = x_wide.amax(dim=-1)"),
)

two_passes_block_by_block = lines(
    """The row is read twice, once for its maximum and once more for its sum; the online form takes
    both from each block, in one pass.""",
    (
        "    for x_j in x_wide.split(block, dim=-1):\n"
        "        m_new = torch.maximum(m, x_j.amax(dim=-1))\n",
        "    for x_j in x_wide.split(block, dim=-1):\n"
        "        m = torch.maximum(m, x_j.amax(dim=-1))\n"
        "    for x_j in x_wide.split(block, dim=-1):\n        m_new = m\n",
    ),
)

the_sum_is_taken_again = lines(
    """The row is read twice, once for its maximum and once more for its sum; the online form takes
    both from each block, in one pass.""",
    (
        "    p = torch.exp(",
        "    l = torch.exp(x_wide - shift[..., None]).sum(dim=-1)\n    p = torch.exp(",
    ),
)

statistics_in_16_bits = lines(
    """m and l are kept in the dtype of x: a float16 sum overflows beyond 65,504, and a bfloat16 sum
    of ones stops growing at 256, because 256 + 1 is rounded to 256.""",
    ("x_wide = x.to(statistics_dtype(x))", "x_wide = x"),
)

the_rest_of_the_row_is_lost = lines(
    """Only whole blocks are read: the last, shorter one belongs to the row as well.""",
    (
        "in x_wide.split(block, dim=-1)",
        "in x_wide[..., : x.shape[-1] // block * block or None].split(block, dim=-1)",
    ),
)

a_hidden_row_is_nan = lines(
    """A row or a block of -inf gives NaN: -inf - -inf is NaN, and 0/0 too; any finite shift and any
    divisor serve a row that has seen nothing.""",
    (
        "    shift = m.masked_fill(m == -math.inf, 0.0)\n"
        "    p = torch.exp(x_wide - shift[..., None]) / l.masked_fill(l == 0, 1.0)[..., None]",
        "    p = torch.exp(x_wide - m[..., None]) / l[..., None]",
    ),
)

a_hidden_block_is_nan = lines(
    """A row or a block of -inf gives NaN: -inf - -inf is NaN, and 0/0 too; any finite shift and any
    divisor serve a row that has seen nothing.""",
    ("shift = m_new.masked_fill(m_new == -math.inf, 0.0)", "shift = m_new"),
)


@misconception()
def library_softmax(x, block):
    """The library's softmax reads the whole row for its maximum and again for its sum; the task is
    to need one pass, a block at a time."""
    wide = x.to(statistics_dtype(x))
    m = wide.amax(-1)
    l = torch.exp(wide - m.masked_fill(m == -math.inf, 0.0)[..., None]).sum(-1)
    return torch.softmax(wide, -1).nan_to_num(0.0).to(x.dtype), m, l


p_is_divided_in_16_bits = lines(
    """exp(x - m) and l are rounded to the 16 bits of x before the division, so p is rounded three
    times, and an l beyond 65,504 is inf in float16. Divide in float32 and round the quotient.""",
    (
        "p = torch.exp(x_wide - shift[..., None]) / l.masked_fill(l == 0, 1.0)[..., None]",
        "p = torch.exp(x_wide - shift[..., None]).to(x.dtype)\n"
        "    p = p / l.masked_fill(l == 0, 1.0)[..., None].to(x.dtype)",
    ),
)
