from grader.suite import lines, misconception

from ._passages import first_block

sum_not_rescaled = lines(
    """d was measured from the old maximum; when m grows, d must be multiplied by exp(m_old - m_new)
    before the block is added ([1, 2, 3, 4] in twos: 2.7358 for 1.5530).""",
    ("d = d * tl.exp(m - shift) + ", "d = d + "),
)

rescaled_the_wrong_way = lines(
    """The factor is exp(m_old - m_new), at most 1: seen from a larger maximum the old terms are
    smaller.""",
    ("exp(m - shift)", 'where(m == -float("inf"), 0.0, tl.exp(shift - m))'),
)

block_rescaled_instead = lines(
    """The factor exp(m_old - m_new) is on the new block; the block is measured from m_new already,
    what has to be repaired is the old d.""",
    (
        "d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)",
        "d + tl.exp(m - shift) * tl.sum(tl.exp(x - shift), axis=0)",
    ),
)

ONLINE = "online_softmax"


@misconception(file="triton_softmax.py")
def a_softmax_for_each_block(text):
    """Each block is divided by its own sum; the denominator is that of the whole row, so nothing
    can be stored before the last block has been seen."""
    return first_block(
        text,
        ONLINE,
        """
    row = tl.program_id(0).to(tl.int64)
    x_row, out_row = x_ptr + row * x_stride_m, out_ptr + row * N
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_row + at * x_stride_n, mask=at < N, other=-float("inf")).to(tl.float32)
        top = tl.max(x, axis=0)
        e = tl.exp(x - tl.where(top == -float("inf"), 0.0, top))
        d = tl.sum(e, axis=0)
        p = e / tl.where(d == 0.0, 1.0, d)
        tl.store(out_row + at, p.to(out_ptr.dtype.element_ty), mask=at < N)
""",
    )


three_passes = lines(
    """A pass for the maximum, one for the sum and one for the result: with the sum rescaled
    whenever the maximum grows, the first two are one.""",
    (
        "        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)\n"
        "        m = m_new\n",
        "        m = m_new\n    for start in range(0, N, BLOCK):\n        at = start + cols\n"
        '        x = tl.load(x_row + at * x_stride_n, mask=at < N, other=-float("inf"))\n'
        "        d = d + tl.sum(tl.exp(x.to(tl.float32) - shift), axis=0)\n",
    ),
)

the_whole_row_at_once = lines(
    """The block is as long as the row: registers hold some 32,000 elements of a program, beyond
    that they spill to memory. `block` elements at a time are enough.""",
    ("BLOCK=block", "BLOCK=triton.next_power_of_2(max(N, 1))"),
)

last_block_left_out = lines(
    """A loop ends with the last whole block; the rest of the row is a block, too, a masked one.""",
    (
        "d = 0.0\n    for start in range(0, N, BLOCK):",
        "d = 0.0\n    for start in range(0, N - BLOCK + 1, BLOCK):",
    ),
    ("for start in range(0, N, BLOCK):", "for start in range(0, N - BLOCK + 1, BLOCK):"),
)

maximum_of_nothing_subtracted = lines(
    """While a row has shown nothing but -inf, its maximum is -inf and -inf - -inf is NaN, which
    stays in d for ever: subtract 0 instead.""",
    ('tl.where(m_new == -float("inf"), 0.0, m_new)', "m_new"),
    ('tl.where(m == -float("inf"), 0.0, m)', "m"),
)

online_padding_is_zero = lines(
    """other=0 in the last block: exp(0 - m) joins the sum for each padded lane, and in a row below
    0 the padding is the maximum. It is -inf.""",
    (
        "        x = tl.load(x_row + at * x_stride_n, mask=at < N, "
        'other=-float("inf")).to(tl.float32)\n'
        "        m_new = tl.maximum(m, tl.max(x, axis=0))",
        "        x = tl.load(x_row + at * x_stride_n, mask=at < N, "
        "other=0.0).to(tl.float32)\n"
        "        m_new = tl.maximum(m, tl.max(x, axis=0))",
    ),
    ('=-float("inf")', "=0.0"),
)

maximum_starts_at_zero = lines(
    """The running maximum starts at 0: in a row around -200 all exponentials underflow. The maximum
    of nothing is -inf.""",
    ('m = -float("inf")\n', "m = 0.0\n"),
)

sum_starts_at_one = lines(
    """d starts at 1; the sum of nothing is 0. (The first block's maximum adds its exp(0) = 1 by
    itself, and here the 1 vanishes only if the first factor is exp(-inf) = 0.)""",
    ("    d = 0.0\n", "    d = 0.0\n    count = 1.0\n"),
    ("/ d\n", "/ (d + count)\n"),
)


@misconception()
def task_three_again(x, block=1024):
    """This is task 3, which holds the whole row in one block; it ends where a row no longer
    fits."""
    return softmax(x)


@misconception()
def library_online(x, block=1024):
    """torch.softmax is called and no kernel of yours is launched; this task is to write the loop
    over blocks."""
    return torch.softmax(x, dim=-1)


maximum_starts_at_minus_1e4 = lines(
    """The running maximum starts at -1e4: in a row that lies below, all exponentials underflow. The
    maximum of nothing is -inf.""",
    ('m = -float("inf")\n', "m = -1e4\n"),
)

maximum_starts_at_minus_1e9 = lines(
    """The running maximum starts at -1e9: in a row that lies below, all exponentials underflow. The
    maximum of nothing is -inf.""",
    ('m = -float("inf")\n', "m = -1e9\n"),
)

block_is_ignored = lines(
    """The block has 1,024 lanes whatever `block` says; it is an argument, because the room that a
    program has depends on the GPU.""",
    ("BLOCK=block", "BLOCK=1024"),
)

online_copy_to_be_contiguous = lines(
    """.contiguous() reads and writes the whole tensor once more; a kernel that is given the strides
    needs no copy.""",
    ("rows = as_rows(x)", "rows = as_rows(x).contiguous()"),
)

divided_by_nothing = lines(
    """In a row of nothing but -inf the sum is 0, and 0 / 0 is NaN: such a row gives zeros, so
    divide by 1 there.""",
    ("    d = tl.where(d == 0.0, 1.0, d)\n", ""),
)

numerator_in_half_precision = lines(
    """The exponentials are rounded to the dtype of x before they are divided. All arithmetic is in
    float32, and only what is stored is rounded.""",
    (
        "p = tl.exp(x - shift) / d",
        "p = tl.exp(x - shift).to(x_ptr.dtype.element_ty).to(tl.float32) / d",
    ),
)

online_columns_are_one_apart = lines(
    """Neighbouring columns are taken to be neighbours in memory; in a transposed matrix they are
    x.stride(1) elements apart.""",
    (
        'x_row + at * x_stride_n, mask=at < N, other=-float("inf")).to(tl.float32)\n        m_new',
        'x_row + at, mask=at < N, other=-float("inf")).to(tl.float32)\n        m_new',
    ),
    ("x_row + at * x_stride_n", "x_row + at"),
)

longer_of_two_blocks = lines(
    """Each block replaces the sum of those before it instead of being added: d keeps the last block
    alone.""",
    ("d = d * tl.exp(m - shift) + tl.sum", "d = tl.sum"),
)

last_block_left_out_of_the_sum = lines(
    """A loop ends with the last whole block; the rest of the row is a block, too, a masked one.""",
    (
        "d = 0.0\n    for start in range(0, N, BLOCK):",
        "d = 0.0\n    for start in range(0, N - BLOCK + 1, BLOCK):",
    ),
)

last_block_not_stored = lines(
    """A loop ends with the last whole block; the rest of the row is a block, too, a masked one.""",
    (
        "d == 0.0, 1.0, d)\n    for start in range(0, N, BLOCK):",
        "d == 0.0, 1.0, d)\n    for start in range(0, N - BLOCK + 1, BLOCK):",
    ),
)

maximum_of_the_last_block = lines(
    """The running maximum is that of the newest block alone; it is the larger one of the old
    maximum and the block's, or a lower block makes the factor exp(m_old - m_new) overflow.""",
    ("m_new = tl.maximum(m, tl.max(x, axis=0))", "m_new = tl.max(x, axis=0)"),
)

second_pass_without_the_maximum = lines(
    """The second pass takes exp(x) without the maximum, though d is measured from it: subtract the
    m of the whole row there, too.""",
    ("p = tl.exp(x - shift) / d", "p = tl.exp(x) / d"),
)

second_pass_with_the_block_s_maximum = lines(
    """The second pass subtracts the maximum of each block; d is measured from that of the whole
    row, which is known by then.""",
    (
        "p = tl.exp(x - shift) / d",
        "top = tl.max(x, axis=0)\n"
        '        p = tl.exp(x - tl.where(top == -float("inf"), 0.0, top)) / d',
    ),
)

one_column_is_always_one = lines(
    """Rows of one column are filled with ones; one that is -inf sees nothing, and is 0.""",
    (
        "    online_softmax_kernel[(M,)](\n"
        "        rows, out, N, *rows.stride(), BLOCK=block, num_warps=warps_for(block)\n",
        "    if N == 1:\n"
        "        return torch.ones_like(out)\n"
        "    online_softmax_kernel[(M,)](\n"
        "        rows, out, N, *rows.stride(), BLOCK=block, num_warps=warps_for(block)\n",
    ),
)
