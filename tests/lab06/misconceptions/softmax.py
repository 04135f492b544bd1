from grader.lab.skeleton import changed_in
from grader.suite import lines, misconception

from ._passages import first_block

padding_is_zero = lines(
    """other=0: exp(0) = 1, so your padding joined the denominator, and in a row below 0 it is the
    maximum, too. The neutral element of a maximum is -inf, and exp(-inf) adds 0 to the sum.""",
    ('other=-float("inf")', "other=0.0"),
)

load_without_mask = lines(
    """The load has no mask: lanes beyond the row's end read the next row, and in the last row what
    lies behind the tensor. mask=cols < N switches them off.""",
    (', mask=inside, other=-float("inf")', ""),
)

store_without_mask = lines(
    """The store has no mask: lanes beyond the row's end write into the row of another program, and
    behind the tensor in the last one. mask=cols < N belongs to the store, too.""",
    ("element_ty), mask=inside)", "element_ty))"),
)

maximum_not_subtracted = lines(
    """exp(x) without the maximum of the row: exp(89) is infinite in float32, and inf / inf is
    NaN.""",
    ("tl.exp(x - tl.max(x, axis=0))", "tl.exp(x)"),
)

not_divided_by_the_sum = lines(
    """The exponentials are not divided by their sum, so a row does not sum to 1.""",
    ("e / tl.sum(e, axis=0)", "e"),
)

rows_are_n_apart = lines(
    """Row r is taken to begin at r * N: that holds for a contiguous matrix only. Pass x.stride(0)
    and multiply the row with that.""",
    ("row * x_stride_m", "row * N"),
)

columns_are_one_apart = lines(
    """Neighbouring columns are taken to be neighbours in memory; in a transposed matrix they are
    x.stride(1) elements apart.""",
    ("cols * x_stride_n", "cols"),
)

copies_to_be_contiguous = lines(
    """.contiguous() reads and writes the whole tensor once more, before the kernel has begun; a
    kernel that is given the strides needs no copy.""",
    ("rows = as_rows(x)", "rows = as_rows(x).contiguous()"),
)

result_strided_like_the_input = lines(
    """torch.empty_like(x) of a transposed x is transposed, too, and the kernel stores rows of N one
    after another: make the result with torch.empty(x.shape, ...), or pass out.stride() as well.""",
    ("torch.empty(x.shape, dtype=x.dtype, device=x.device)", "torch.empty_like(x)"),
)

a_program_for_each_column = lines(
    """The grid has N programs, one a column; a program owns a row, and there are M of them.""",
    ("[(M,)]", "[(N,)]"),
)

result_is_float32 = lines(
    """The result is made in float32; a result has the dtype of its input, or the next operation
    moves twice the bytes.""",
    ("dtype=x.dtype", "dtype=torch.float32"),
)


@misconception()
def library_softmax(x):
    """torch.softmax is called and no kernel of yours is launched; this task is to write the kernel
    that stands behind it."""
    return torch.softmax(x, dim=-1)


torch_divides = lines(
    """The kernel stores the exponentials and torch sums and divides: two more passes, of what the
    program had in its registers.""",
    ("e / tl.sum(e, axis=0)", "e"),
    (
        "warps_for(block))\n    return out\n",
        "warps_for(block))\n    return out / out.sum(-1, keepdim=True)\n",
    ),
)

loaded_twice = lines(
    """x is loaded for the maximum and loaded again for the exponentials; a block that has been
    loaded stays in registers, use it twice.""",
    (
        "x - tl.max",
        "tl.load(x_row + cols * x_stride_n, mask=inside, "
        'other=-float("inf")).to(tl.float32) - tl.max',
    ),
)


@misconception(file="triton_softmax.py")
def one_program_for_all_rows(text):
    """One program walks over all rows, so one multiprocessor of the GPU works and the others wait:
    launch a program for each row, a grid of (M,)."""
    text = first_block(
        text,
        "softmax",
        """
    cols = tl.arange(0, BLOCK).to(tl.int64)
    inside = cols < N
    for row in range(0, M):
        x_row = x_ptr + row * x_stride_m
        x = tl.load(x_row + cols * x_stride_n, mask=inside, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        p = e / tl.sum(e, axis=0)
        tl.store(out_ptr + row * N + cols, p.to(out_ptr.dtype.element_ty), mask=inside)
""",
    )
    text = text.replace(
        "softmax_kernel(x_ptr, out_ptr, N,", "softmax_kernel(x_ptr, out_ptr, M, N,", 1
    )
    return changed_in(text, "softmax", ("[(M,)](rows, out, N,", "[(1,)](rows, out, M, N,"))


@misconception(file="triton_softmax.py")
def three_launches(text):
    """Maxima, sums and quotients are made by launches of their own, and each reads the matrix
    again; fused means one launch in which a row stays on the chip."""
    text = first_block(
        text,
        "softmax",
        """
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    inside = cols < N
    x_row = x_ptr + row * x_stride_m
    x = tl.load(x_row + cols * x_stride_n, mask=inside, other=-float("inf")).to(tl.float32)
    if STEP == 0:
        tl.store(maxima_ptr + row, tl.max(x, axis=0))
    if STEP == 1:
        tl.store(sums_ptr + row, tl.sum(tl.exp(x - tl.load(maxima_ptr + row)), axis=0))
    if STEP == 2:
        p = tl.exp(x - tl.load(maxima_ptr + row)) / tl.load(sums_ptr + row)
        tl.store(out_ptr + row * N + cols, p.to(out_ptr.dtype.element_ty), mask=inside)
""",
    )
    head = "def softmax_kernel(x_ptr, out_ptr, N, x_stride_m, x_stride_n, "
    more = "maxima_ptr, sums_ptr, STEP: tl.constexpr, "
    call = (
        "softmax_kernel[(M,)](rows, out, N, *rows.stride(), BLOCK=block, "
        "num_warps=warps_for(block))"
    )
    three = (
        "maxima, sums = (torch.empty(M, device=x.device) for _ in range(2))\n"
        "    for step in range(3):\n"
        "        softmax_kernel[(M,)](rows, out, N, *rows.stride(), maxima, sums, step, block)"
    )
    return changed_in(text.replace(head, head + more, 1), "softmax", (call, three))


torch_makes_float32 = lines(
    """x.float() writes the whole of a half precision tensor once more, as float32, before the
    kernel has begun; convert what the kernel has loaded.""",
    ("rows = as_rows(x)", "rows = as_rows(x.float())"),
)

exponentials_in_half_precision = lines(
    """The exponentials are rounded to the dtype of x before they are summed and divided. All
    arithmetic is in float32, and only what is stored is rounded.""",
    (
        "e = tl.exp(x - tl.max(x, axis=0))",
        "e = tl.exp(x - tl.max(x, axis=0)).to(x_ptr.dtype.element_ty).to(tl.float32)",
    ),
)

block_of_at_most_4096 = lines(
    """The block is never wider than 4,096 lanes: longer rows are cut, and what lies beyond is
    neither summed nor stored. This task has one block for rows of up to 32,768.""",
    ("triton.next_power_of_2(N)", "min(4096, triton.next_power_of_2(N))"),
)

block_of_1024 = lines(
    """The block has 1,024 lanes whatever the row, as a CUDA block has threads; a longer row is cut.
    BLOCK is the number of elements, next_power_of_2(N), and num_warps that of the threads.""",
    ("triton.next_power_of_2(N)", "1024"),
)

result_over_the_input = lines(
    """A contiguous x is overwritten with its softmax: the result is a new tensor, x is the
    caller's.""",
    (
        "out = torch.empty(x.shape, dtype=x.dtype, device=x.device)",
        "out = x if x.is_contiguous() else torch.empty(x.shape, dtype=x.dtype, device=x.device)",
    ),
)

result_kept_for_the_next_call = lines(
    """The result's memory is kept and used again by the next call of that shape, which changes what
    the caller already has: allocate a new one in each call.""",
    (
        "out = torch.empty(x.shape, dtype=x.dtype, device=x.device)",
        "out = as_rows.__dict__.setdefault(\n"
        "        (x.shape, x.dtype), torch.empty(x.shape, dtype=x.dtype, device=x.device)\n    )",
    ),
)

padding_is_minus_1e4 = lines(
    """The padding is -1e4: in a row that lies below, it is the maximum, and all exponentials of the
    row underflow. Only -inf is below every logit.""",
    ('other=-float("inf")', "other=-1e4"),
)

padding_is_minus_1e9 = lines(
    """The padding is -1e9: in a row that lies below, it is the maximum, and all exponentials of the
    row underflow. Only -inf is below every logit.""",
    ('other=-float("inf")', "other=-1e9"),
)

powers_of_two = lines(
    """tl.exp2 gives powers of 2, not of e; it may stand for tl.exp once the exponent has been
    multiplied by log2(e) = 1.4427.""",
    ("tl.exp(", "tl.exp2("),
)

result_filled_with_zeros = lines(
    """torch.zeros writes M N zeros, which the kernel then overwrites: that is a pass more.
    torch.empty writes nothing.""",
    (
        "torch.empty(x.shape, dtype=x.dtype, device=x.device)",
        "torch.zeros(x.shape, dtype=x.dtype, device=x.device)",
    ),
)


@misconception(file="triton_softmax.py")
def blocks_of_the_flat_tensor(text):
    """A program takes BLOCK elements that follow each other, as a block of CUDA threads does: it
    takes the end of one row and the beginning of the next one together. A program owns a row."""
    text = first_block(
        text,
        "softmax",
        """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < M * N
    x = tl.load(
        x_ptr + at // N * x_stride_m + at % N * x_stride_n, mask=inside, other=-float("inf")
    ).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    p = e / tl.sum(e, axis=0)
    tl.store(out_ptr + at, p.to(out_ptr.dtype.element_ty), mask=inside)
""",
    )
    text = text.replace(
        "softmax_kernel(x_ptr, out_ptr, N,", "softmax_kernel(x_ptr, out_ptr, M, N,", 1
    )
    grid = "[(triton.cdiv(M * N, block),)](rows, out, M, N,"
    return changed_in(text, "softmax", ("[(M,)](rows, out, N,", grid))


difference_in_half_precision = lines(
    """The maximum is subtracted in the dtype of x, which rounds the exponents before exp makes that
    error relative. All arithmetic is in float32, and only what is stored is rounded.""",
    (
        "e = tl.exp(x - tl.max(x, axis=0))",
        "e = tl.exp((x - tl.max(x, axis=0)).to(x_ptr.dtype.element_ty).to(tl.float32))",
    ),
)

everything_in_half_precision = lines(
    """Difference, exponentials and sum are all rounded to the dtype of x: the block is not
    converted after the load. All arithmetic is in float32, and only what is stored is rounded.""",
    (
        "e = tl.exp(x - tl.max(x, axis=0))",
        "half = x_ptr.dtype.element_ty\n"
        "    e = tl.exp((x - tl.max(x, axis=0)).to(half).to(tl.float32)).to(half)",
    ),
)


load_without_other = lines(
    """The load has a mask and no `other`: what the lanes beyond the row's end hold is undefined
    then, and it takes part in maximum and sum. other=-inf changes neither.""",
    (', mask=inside, other=-float("inf")', ", mask=inside"),
)


padding_taken_out_of_the_sum_only = lines(
    """The padding is taken out of the sum, but before that its 0 is in the maximum: in a row around
    -200 all exponentials underflow. With -inf it is out of both.""",
    ('other=-float("inf")', "other=0.0"),
    (
        "e = tl.exp(x - tl.max(x, axis=0))",
        "e = tl.where(inside, tl.exp(x - tl.max(x, axis=0)), 0.0)",
    ),
)

mask_lets_column_n_through = lines(
    """The mask is cols <= N and lets one lane too many through: the columns are 0 to N - 1, and
    column N is the next row's, or nobody's.""",
    ("inside = cols < N", "inside = cols <= N"),
)

mask_ends_one_early = lines(
    """The mask is cols < N - 1 and switches off the last column, N - 1, too.""",
    ("inside = cols < N", "inside = cols < N - 1"),
)

block_is_as_wide_as_the_row = lines(
    """The block has N lanes; tl.arange and every block need a power of two, next_power_of_2(N), and
    the mask does the rest.""",
    ("triton.next_power_of_2(N)", "N"),
)

block_rounded_down = lines(
    """The block is the power of two below N, so that the end of the row has no lane: round up, a
    mask switches off what is too much.""",
    ("triton.next_power_of_2(N)", "1 << (N.bit_length() - 1)"),
)

CUT = """The block is not allowed to grow beyond a limit: longer rows are cut, and what lies beyond
    is neither summed nor stored. This task has one block for rows of up to 32,768."""


block_of_at_most_16384 = lines(
    CUT,
    ("triton.next_power_of_2(N)", "min(16384, triton.next_power_of_2(N))"),
)

long_rows_go_to_torch = lines(
    """Long rows are handed to torch.softmax; one block takes up to 32,768 elements, and the kernel
    is to do them.""",
    (
        "    softmax_kernel[",
        "    if N > 8192:\n        return torch.softmax(x, -1)\n    softmax_kernel[",
    ),
)

strides_exchanged = lines(
    """The two strides are exchanged: a row lies x.stride(0) elements after the one before it, a
    column x.stride(1) after its neighbour.""",
    ("*rows.stride()", "*rows.stride()[::-1]"),
)

every_program_reads_the_first_row = lines(
    """Each program loads row 0: the address lacks the program's own row, row * x.stride(0).""",
    ("x_ptr + row * x_stride_m", "x_ptr"),
)

every_program_writes_the_first_row = lines(
    """Each program stores into row 0 of the result: the address lacks the program's own row,
    row * N.""",
    ("out_ptr + row * N + cols", "out_ptr + cols"),
)

ROWS_OF_A_BLOCK = """Rows are taken to lie BLOCK elements apart; BLOCK is how many lanes a program
    has, and memory has no padding: the next row begins a stride later, in the result N
    elements."""

rows_of_x_are_a_block_apart = lines(
    ROWS_OF_A_BLOCK,
    ("row * x_stride_m", "row * BLOCK"),
)

rows_of_the_result_are_a_block_apart = lines(
    ROWS_OF_A_BLOCK,
    ("out_ptr + row * N", "out_ptr + row * BLOCK"),
)

stored_with_the_strides_of_x = lines(
    """The result is stored with the strides of x; it is a tensor of its own, contiguous, with rows
    N apart and columns 1 apart.""",
    ("out_ptr + row * N + cols", "out_ptr + row * x_stride_m + cols * x_stride_n"),
)

grid_divided_by_the_block = lines(
    """The grid is the number of rows divided by BLOCK; BLOCK counts the columns of a row, and each
    of the M rows needs a program.""",
    ("[(M,)]", "[(triton.cdiv(M, block),)]"),
)

TWO_AXES = """x is taken to have two axes; it may have any number, (N,) or (B, H, S, N), and all but
    the last count rows."""

only_two_axes = lines(
    TWO_AXES,
    ("    M, N = rows.shape\n", "    M, N = x.shape\n"),
)

rows_of_the_first_axis = lines(
    TWO_AXES,
    ("    M, N = rows.shape\n", "    M, N = x.shape[0], x.shape[-1]\n"),
)

strides_of_the_first_axis = lines(
    """The stride between rows is taken from the first axis of x; with three axes or more that is
    the distance of two matrices. Make rows of x first, and take their strides.""",
    ("*rows.stride()", "x.stride(0), x.stride(-1)"),
)

result_has_the_shape_of_the_rows = lines(
    """The result comes back as M rows of N; it has the shape of x, with all its leading axes.""",
    (
        "warps_for(block))\n    return out\n",
        "warps_for(block))\n    return out.reshape(M, N)\n",
    ),
)

torch_rounds_the_result = lines(
    """The kernel writes float32 and torch converts it afterwards, a pass more over the matrix: a
    store can round to the dtype of the result by itself.""",
    ("dtype=x.dtype", "dtype=torch.float32"),
    (
        "warps_for(block))\n    return out\n",
        "warps_for(block))\n    return out.to(x.dtype)\n",
    ),
)


log_sum_added_to_the_maximum = lines(
    """max + ln(sum) is rounded before it is subtracted from x: beside a maximum of 20,000 a
    logarithm has 3 digits, beside 1e30 none. Subtract the maximum first, or divide by the sum.""",
    (
        "p = e / tl.sum(e, axis=0)",
        "p = tl.exp(x - (tl.max(x, axis=0) + tl.log(tl.sum(e, axis=0))))",
    ),
)

the_row_s_minimum_is_subtracted = lines(
    """The row's minimum is subtracted before exp; the exponents are positive then and overflow
    where a row spans more than 88. With the maximum the largest exponent is 0.""",
    (
        "e = tl.exp(x - tl.max(x, axis=0))",
        'e = tl.exp(x - tl.min(tl.where(inside, x, float("inf")), axis=0))',
    ),
)


EMPTY = """A tensor without elements is not looked at by itself: there is no block of 0 lanes and no
    grid of 0 programs. It gives an empty result of its shape and dtype, without a launch."""

empty_tensors_are_launched = lines(
    EMPTY,
    ("    if x.numel() == 0:\n        return out\n", ""),
    gate=False,
)


rows_are_always_a_view = lines(
    """view() makes rows only where strides allow it; leading axes that cannot be merged need the
    one copy that is allowed, which reshape (or `as_rows`) makes.""",
    ("rows = as_rows(x)", "rows = x.view(math.prod(x.shape[:-1]), x.shape[-1])"),
    gate=False,
)
