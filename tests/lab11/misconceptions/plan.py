from grader.suite import lines, misconception


def _cells(text, **columns):
    """The plan with other texts in the cells of one column: scheme with _ for blanks to text."""
    column = columns.pop("column")
    out = []
    for line in text.split("\n"):
        cells = line.split("|")
        key = cells[1].strip().replace(" ", "_") if len(cells) > 5 else ""
        if key in columns:
            cells[column] = f" {columns[key]} "
        out.append("|".join(cells))
    return "\n".join(out)


BYTES, BITS, MATH, BOUND_1, MS_1, BOUND_N, MS_N = range(2, 9)


@misconception(file="quantization_comparison_plan.md")
def four_bits_are_four_bits(text):
    """Four bits a weight leave out the scales. With an fp16 scale for 128 weights it is 4.125 bits,
    and more the smaller the groups are."""
    return _cells(text, column=BITS, W4A16_g128="4.00", NF4="4.00", MXFP4="4.00", NVFP4="4.00")


@misconception(file="quantization_comparison_plan.md")
def all_bytes_at_four_bits(text):
    """8.03e9 parameters at 4 bits are 4.02 GB, and no such file exists: embedding and head stay in
    bf16, 2.1 GB of them, and the scales are stored."""
    return _cells(text, column=BYTES, W4A16_g128="4.015 GB", NF4="4.015 GB", MXFP4="4.015 GB")


@misconception(file="quantization_comparison_plan.md")
def embeddings_are_quantized(text):
    """Embedding and head were counted at the format's bits. They stay in bf16 in every one of these
    schemes, 2.1 GB of this model."""
    return _cells(
        text, column=BYTES, int8_W8A8="8.036 GB", fp8_W8A8="8.036 GB", W4A16_g128="4.141 GB"
    )


@misconception(file="quantization_comparison_plan.md")
def embeddings_in_four_bits(text):
    """Embedding and head were counted at the format's bits. They stay in bf16 in every one of these
    schemes, 2.1 GB of this model."""
    return _cells(text, column=BYTES, W4A16_g128="4.141 GB")


@misconception(file="quantization_comparison_plan.md")
def gib_called_gb(text):
    """The figures are GiB with GB written beside them, 7 % too low. 16,060,522,496 bytes are 16.06
    GB or 14.96 GiB."""
    return _cells(text, column=BYTES, bf16="14.96 GB", int8_W8A8="8.463 GB", fp8_W8A8="8.463 GB")


@misconception(file="quantization_comparison_plan.md")
def bytes_without_a_unit(text):
    """Bytes stand there without a unit. GB and GiB differ by 7 %, which is more than some schemes
    do: write it."""
    return _cells(text, column=BYTES, bf16="16.061")


@misconception(file="quantization_comparison_plan.md")
def a_small_b(text):
    """Gb is a billion bits to most readers, an eighth of what is meant: a byte is a capital B."""
    return _cells(text, column=BYTES, bf16="16.061 Gb")


@misconception(file="quantization_comparison_plan.md")
def decimal_commas(text):
    """A number has a decimal comma. Here a point stands before decimals, and a comma between
    thousands: 4,480 would be a thousand times 4.480."""
    text = _cells(text, column=BYTES, bf16="16,06 GB")
    text = _cells(text, column=BITS, W4A16_g128="4,1250", NVFP4="4,5")
    return _cells(text, column=MS_1, bf16="4,48", NVFP4="1,49")


@misconception(file="quantization_comparison_plan.md")
def weight_only_speeds_up_prefill(text):
    """W4A16 was given a quarter of the prefill's time: weights shrink, FLOPs do not; batch-1 decode
    gains, large-batch prefill does not. The weights are brought back to bf16 and multiplied
    there."""
    return _cells(text, column=MS_N, W4A16_g128="29.2", NF4="29.2", MXFP4="29.2", NVFP4="29.2")


@misconception(file="quantization_comparison_plan.md")
def sparse_peaks(text):
    """The peaks are those with sparsity, twice as high. They hold for weights of which two in four
    are zero; dense ones are multiplied at 989 and 1,979 TFLOP/s."""
    text = _cells(text, column=MS_N, bf16="58.1", W4A16_g128="58.1", NF4="58.1")
    return _cells(text, column=MS_N, int8_W8A8="29.2", fp8_W8A8="29.2")


@misconception(file="quantization_comparison_plan.md")
def fp4_tensor_cores(text):
    """An H100 has no FP4 tensor cores. There NVFP4 and MXFP4 save bytes, like int4, and are
    multiplied in bf16."""
    return _cells(text, column=MATH, MXFP4="fp4", NVFP4="fp4")


@misconception(file="quantization_comparison_plan.md")
def batch_one_computes(text):
    """Batch 1 was called bound by compute. One token does 2 FLOPs for each weight that it reads,
    and an H100 could do 295 a byte: it waits for memory."""
    return _cells(text, column=BOUND_1, bf16="compute", int8_W8A8="compute", W4A16_g128="compute")


@misconception(file="quantization_comparison_plan.md")
def prefill_waits_for_memory(text):
    """Prefill was called bound by memory. 8,192 tokens share each weight that is read, far above
    the 295 FLOPs a byte at which an H100 becomes bound by compute."""
    return _cells(text, column=BOUND_N, bf16="memory", int8_W8A8="memory", W4A16_g128="memory")


@misconception(file="quantization_comparison_plan.md")
def head_costs_no_time(text):
    """The head is missing in the time of a step. Its 1.05 GB in bf16 are read for every token, 0.31
    ms, as much as 30 % of W4A16's linear layers."""
    return _cells(text, column=MS_1, bf16="4.167", int8_W8A8="2.085", W4A16_g128="1.074")


@misconception(file="quantization_comparison_plan.md")
def whole_file_is_read(text):
    """The whole file was divided by the bandwidth. Of the embedding a token reads one row, a
    lookup; its 1.05 GB stay where they are."""
    return _cells(text, column=MS_1, bf16="4.794", int8_W8A8="2.712", W4A16_g128="1.702")


@misconception(file="quantization_comparison_plan.md")
def two_digits(text):
    """A time has two significant digits. Rounded so it is up to 5 % off, more than schemes of one
    class differ: give three, with trailing zeros."""
    return _cells(text, column=MS_1, bf16="4.5", int8_W8A8="2.4", fp8_W8A8="2.4")


CHOICE, SPEED, WHY = range(2, 5)


@misconception(file="quantization_comparison_plan.md")
def int4_for_prefill(text):
    """W4A16 was chosen for prefill. Its weights are multiplied in bf16, so it takes as long as bf16
    and misses the limit: weights shrink, FLOPs do not."""
    return _cells(text, column=CHOICE, prefill="W4A16 g128")


@misconception(file="quantization_comparison_plan.md")
def bf16_at_batch_one(text):
    """bf16 was kept at batch 1, where 16 GB a token take 4.5 ms and 2.5 are allowed. Whatever
    halves the bytes halves the time there."""
    return _cells(text, column=CHOICE, batch_1="bf16")


@misconception(file="quantization_comparison_plan.md")
def finest_blocks_at_batch_one(text):
    """NVFP4 was chosen on a GPU that cannot multiply it. There it is a weight format with a scale
    for each 16 weights: more bytes and more time than groups of 128, in the same class."""
    return _cells(text, column=CHOICE, batch_1="NVFP4")


@misconception(file="quantization_comparison_plan.md")
def speed_up_is_the_ratio_of_bits(text):
    """16 over 4.125 bits was claimed as the speed-up. The head stays in bf16, so the step is faster
    by 3.23, not by 3.88: divide the two times of your table."""
    return _cells(text, column=SPEED, batch_1="3.88")


a_scheme_is_missing = lines(
    """NVFP4 has no row. That the hardware cannot multiply a format is a result, and belongs into
    the table: with its bytes, and bf16 as its math.""",
    (
        "| NVFP4      |  6.028 GB |       4.500 | bf16 | memory        |      1.486 | "
        "compute       |      115.9 |\n",
        "",
    ),
)

pipe_in_a_sentence = lines(
    """A | within a sentence ends its cell, and the row has one too many. In a table it is written
    \\|.""",
    ("8,192 tokens are bound", "8,192 | tokens are bound"),
)

no_line_of_dashes = lines(
    """Without the line of dashes under its header a table is a paragraph of pipes to Markdown.""",
    ("|---------|------------|---------:|-----|\n", ""),
)
