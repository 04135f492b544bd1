from grader.lab.skeleton import changed, changed_in
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

everything_rescaled = lines(
    """The factor exp(m_old - m_new) is on the whole of old sum and new block; the block is measured
    from m_new already, only the old d has to be repaired.""",
    (
        "d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)",
        'tl.where(m == -float("inf"), 1.0, tl.exp(m - shift)) '
        "* (d + tl.sum(tl.exp(x - shift), axis=0))",
    ),
)

factor_as_a_quotient = lines(
    """The factor is computed as exp(m_old) / exp(m_new): both are infinite beyond 88 and 0 far
    below 0. Subtract first, then one exp.""",
    ("d * tl.exp(m - shift)", "d * (tl.exp(m) / tl.exp(shift))"),
)


OWN_MAXIMUM = """The new block is measured from its own maximum; it has to be measured from the
    larger one of that and the old maximum, or its terms and those of d have different units."""

block_measured_from_its_own_maximum = lines(
    OWN_MAXIMUM,
    (
        "tl.sum(tl.exp(x - shift), axis=0)",
        'tl.sum(tl.exp(x - tl.where(tl.max(x, axis=0) == -float("inf"), 0.0, tl.max(x, axis=0))), '
        "axis=0)",
    ),
)

sums_of_all_blocks_added_up = lines(
    """The blocks' sums, each measured from its block's own maximum, are added up as they are; terms
    can be added only when they are measured from the same maximum.""",
    (
        "d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)",
        'd + tl.sum(tl.exp(x - tl.where(tl.max(x, axis=0) == -float("inf"), 0.0, '
        "tl.max(x, axis=0))), axis=0)",
    ),
)


online_maximum_not_subtracted = lines(
    """exp is taken of the logits without their maximum, in both passes: exp(89) is infinite in
    float32, and inf / inf is NaN.""",
    ('tl.where(m_new == -float("inf"), 0.0, m_new)', "m_new * 0.0"),
    ("d * tl.exp(m - shift)", "d"),
    ('tl.where(m == -float("inf"), 0.0, m)', "0.0"),
)

online_not_divided = lines(
    """The exponentials are not divided by their sum, so a row does not sum to 1.""",
    ("p = tl.exp(x - shift) / d", "p = tl.exp(x - shift)"),
)

online_log_sum_added_to_the_maximum = lines(
    """m + ln(d) is rounded before it is subtracted from x: beside a maximum of 20,000 a logarithm
    has 3 digits, beside 1e30 none. Subtract m first, and divide by d.""",
    ("p = tl.exp(x - shift) / d", "p = tl.exp(x - (shift + tl.log(d)))"),
)


@misconception(file="triton_softmax.py")
def stored_in_the_first_pass(text):
    """The first pass stores exponentials measured from the maximum so far, and the second one only
    divides them: what was stored before the maximum grew is too large, and is x's size of traffic
    more. The second pass loads x again."""
    return first_block(
        text,
        ONLINE,
        """
    row = tl.program_id(0).to(tl.int64)
    x_row, out_row = x_ptr + row * x_stride_m, out_ptr + row * N
    m = -float("inf")
    d = 0.0
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_row + at * x_stride_n, mask=at < N, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        e = tl.exp(x - shift)
        d = d * tl.exp(m - shift) + tl.sum(e, axis=0)
        m = m_new
        tl.store(out_row + at, e.to(out_ptr.dtype.element_ty), mask=at < N)
    d = tl.where(d == 0.0, 1.0, d)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK).to(tl.int64)
        p = tl.load(out_row + at, mask=at < N, other=0.0).to(tl.float32) / d
        tl.store(out_row + at, p.to(out_ptr.dtype.element_ty), mask=at < N)
""",
    )


FIRST_BLOCK = """A loop begins with the second block: range(0, N, BLOCK) has the first one, too."""

first_block_left_out_of_the_sum = lines(
    FIRST_BLOCK,
    (
        "d = 0.0\n    for start in range(0, N, BLOCK):",
        "d = 0.0\n    for start in range(BLOCK, N, BLOCK):",
    ),
)


FIRST_PASS = (
    "        x = tl.load(x_row + at * x_stride_n, mask=at < N, "
    'other=-float("inf")).to(tl.float32)\n'
    "        m_new"
)
FIRST_AT = "d = 0.0\n    for start in range(0, N, BLOCK):\n        at = start + cols\n"
SECOND_AT = "d == 0.0, 1.0, d)\n    for start in range(0, N, BLOCK):\n        at = start + cols\n"

LANES = """The mask compares the lane with N, not the column: the last block has columns beyond the
    row's end in lanes far below N. It is start + lane < N."""

masks_of_lanes = lines(
    LANES,
    (FIRST_PASS, FIRST_PASS.replace("at < N", "cols < N")),
    ("at < N, other", "cols < N, other"),
    ("element_ty), mask=at < N)", "element_ty), mask=cols < N)"),
)


SAME_BLOCK = """Each turn of a loop reads the first block again: the columns lack `start`, where the
    block begins."""

always_the_first_block = lines(
    SAME_BLOCK,
    (FIRST_AT, FIRST_AT.replace("start + cols", "cols")),
    (SECOND_AT, SECOND_AT.replace("start + cols", "cols")),
)


blocks_overlap = lines(
    """A block begins at its number, not at its number times BLOCK, so that blocks overlap and the
    end of the row is never reached.""",
    (FIRST_AT, FIRST_AT.replace("start + cols", "start // BLOCK + cols")),
    (SECOND_AT, SECOND_AT.replace("start + cols", "start // BLOCK + cols")),
)

online_load_without_mask = lines(
    """The loads have no mask: lanes of the last block beyond the row's end read the next row, and
    in the last row what lies behind the tensor.""",
    (
        FIRST_PASS,
        FIRST_PASS.replace(', mask=at < N, other=-float("inf")', ""),
    ),
    (', mask=at < N, other=-float("inf")', ""),
)

online_load_without_other = lines(
    """The load of the first pass has a mask and no `other`: what its lanes beyond the row's end
    hold is undefined then, and it takes part in maximum and sum. other=-inf changes neither.""",
    (FIRST_PASS, FIRST_PASS.replace(', other=-float("inf")', "")),
)

online_store_without_mask = lines(
    """The store has no mask: lanes of the last block beyond the row's end write into the next row,
    and behind the tensor in the last one.""",
    ("element_ty), mask=at < N)", "element_ty))"),
)

online_padding_in_the_maximum_only = lines(
    """The padding is taken out of the sum, but before that its 0 is in the maximum: in a row around
    -200 all exponentials underflow. With -inf it is out of both.""",
    (FIRST_PASS, FIRST_PASS.replace('-float("inf")', "0.0")),
    (
        "tl.sum(tl.exp(x - shift), axis=0)",
        "tl.sum(tl.where(at < N, tl.exp(x - shift), 0.0), axis=0)",
    ),
)

online_rows_are_n_apart = lines(
    """Row r is taken to begin at r * N: that holds for a contiguous matrix only. Pass x.stride(0)
    and multiply the row with that.""",
    ("row * x_stride_m", "row * N"),
)


online_result_strided_like_x = lines(
    """torch.empty_like(x) of a transposed x is transposed, too, and the kernel stores rows of N one
    after another: make the result with torch.empty(x.shape, ...), or pass its strides as well.""",
    ("torch.empty(x.shape, dtype=x.dtype, device=x.device)", "torch.empty_like(x)"),
)

online_result_is_float32 = lines(
    """The result is made in float32; a result has the dtype of its input, or the next operation
    moves twice the bytes.""",
    ("dtype=x.dtype", "dtype=torch.float32"),
)

online_result_filled_with_zeros = lines(
    """torch.zeros writes M N zeros, which the kernel then overwrites: that is a pass more.
    torch.empty writes nothing.""",
    (
        "torch.empty(x.shape, dtype=x.dtype, device=x.device)",
        "torch.zeros(x.shape, dtype=x.dtype, device=x.device)",
    ),
)

online_made_float32_by_torch = lines(
    """x.float() writes the whole of a half precision tensor once more, as float32; convert what the
    kernel has loaded.""",
    ("rows = as_rows(x)", "rows = as_rows(x.float())"),
)

running_sum_in_half_precision = lines(
    """The running sum is rounded to the dtype of x after each block; maximum and sum are float32
    whatever the input, or later blocks add nothing.""",
    (
        "        m = m_new\n",
        "        d = d.to(x_ptr.dtype.element_ty).to(tl.float32)\n        m = m_new\n",
    ),
)

exponents_in_half_precision = lines(
    """The maximum is subtracted in the dtype of x, which rounds the exponents before exp makes that
    error relative. All arithmetic is in float32, and only what is stored is rounded.""",
    (
        "tl.sum(tl.exp(x - shift), axis=0)",
        "tl.sum(tl.exp((x - shift).to(x_ptr.dtype.element_ty).to(tl.float32)), axis=0)",
    ),
    (
        "p = tl.exp(x - shift) / d",
        "p = tl.exp((x - shift).to(x_ptr.dtype.element_ty).to(tl.float32)) / d",
    ),
)


hidden_rows_are_uniform = lines(
    """A row of nothing but -inf gets equal weights; there is nothing to share out, and such a row
    gives zeros.""",
    (
        "p = tl.exp(x - shift) / d",
        'p = tl.where(m == -float("inf"), 1.0 / N, tl.exp(x - shift) / d)',
    ),
)

online_nan_replaced_by_torch = lines(
    """torch replaces the NaN of hidden rows afterwards, a pass more over the whole result; the
    program knows already that such a row's maximum is -inf.""",
    ("    d = tl.where(d == 0.0, 1.0, d)\n", ""),
    ("    )\n    return out", "    )\n    return torch.nan_to_num(out)"),
)

short_rows_in_one_block = lines(
    """Rows that one program can hold are given to task 3, in one block: `block` says how much is
    loaded at a time, and a row of nothing but -inf is NaN there.""",
    (
        "    M, N = rows.shape\n",
        "    M, N = rows.shape\n    if 0 < N <= 32768:\n        return softmax(x)\n",
    ),
)

block_of_at_most_1024 = lines(
    """The block is never longer than 1,024 elements, though `block` asks for more: it is the caller
    who knows what a program has room for.""",
    ("BLOCK=block", "BLOCK=min(block, 1024)"),
)


ONLINE_AXES = """x is taken to have two axes; it may have any number, (N,) or (B, H, S, N), and all
    but the last count rows."""

online_two_axes_only = lines(
    ONLINE_AXES,
    ("    M, N = rows.shape\n", "    M, N = x.shape\n"),
)


online_result_has_the_shape_of_the_rows = lines(
    """The result comes back as M rows of N; it has the shape of x, with all its leading axes.""",
    ("    )\n    return out", "    )\n    return out.reshape(M, N)"),
)


@misconception(file="triton_softmax.py")
def one_program_walks_over_all_rows(text):
    """One program walks over all rows and all their blocks, so one multiprocessor of the GPU works
    and the others wait: launch a program for each row, a grid of (M,)."""
    text = first_block(
        text,
        ONLINE,
        """
    cols = tl.arange(0, BLOCK).to(tl.int64)
    for row in range(0, M):
        x_row, out_row = x_ptr + row * x_stride_m, out_ptr + row * N
        m = -float("inf")
        d = 0.0
        for start in range(0, N, BLOCK):
            at = start + cols
            x = tl.load(x_row + at * x_stride_n, mask=at < N, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        shift = tl.where(m == -float("inf"), 0.0, m)
        d = tl.where(d == 0.0, 1.0, d)
        for start in range(0, N, BLOCK):
            at = start + cols
            x = tl.load(x_row + at * x_stride_n, mask=at < N, other=-float("inf")).to(tl.float32)
            p = tl.exp(x - shift) / d
            tl.store(out_row + at, p.to(out_ptr.dtype.element_ty), mask=at < N)
""",
    )
    head = "def online_softmax_kernel(x_ptr, out_ptr, N,"
    text = changed(text, (head, head.replace(" N,", " M, N,")))
    return changed_in(text, ONLINE, ("[(M,)]", "[(1,)]"), ("rows, out, N,", "rows, out, M, N,"))
