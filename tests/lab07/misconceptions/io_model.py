from grader.suite import lines, misconception

sram_in_bytes = lines(
    """M is counted in bytes; Algorithm 1 counts elements, so 192 KiB of fp16 give Bc = 384 at d =
    64, not 768.""",
    ("bc = -(-sram_elements // (4 * D))", "bc = -(-2 * sram_elements // (4 * D))"),
)

blocks_are_rounded_down = lines(
    """Bc is rounded down; Algorithm 1 takes the ceiling of M / 4d.""",
    ("bc = -(-sram_elements // (4 * D))", "bc = sram_elements // (4 * D)"),
)

query_blocks_as_large_as_key_blocks = lines(
    """Br is set to Bc; it is min(Bc, d), so that the Br x Bc scores fit beside the four blocks.""",
    ("return bc, min(bc, D)", "return bc, bc"),
)


@misconception()
def traffic_is_linear(S, D, sram_elements):
    """Memory is O(N), traffic is not: Q and O travel once for EVERY key block, so doubling N
    quadruples the traffic."""
    return 4 * S * S + 4 * S * D, 4 * S * D


@misconception()
def never_worse_than_standard(S, D, sram_elements):
    """The flash count is capped at the standard one; with small blocks Algorithm 1 really moves
    more (0.52x at N 8192, d 128, Bc 50)."""
    bc, _ = block_sizes(D, sram_elements)
    standard = 4 * S * S + 4 * S * D
    return standard, min(standard, 2 * S * D + -(-S // bc) * (3 * S * D + 4 * S))


@misconception()
def statistics_are_free(S, D, sram_elements):
    """l and m are forgotten: every round reads and writes both, 4N elements."""
    bc, _ = block_sizes(D, sram_elements)
    return 4 * S * S + 4 * S * D, 2 * S * D + -(-S // bc) * 3 * S * D


@misconception()
def output_stays_on_chip(S, D, sram_elements):
    """O is written once at the end as in FlashAttention-2; in Algorithm 1 the KEY loop is outside,
    so every round reads and writes all of O."""
    bc, _ = block_sizes(D, sram_elements)
    return 4 * S * S + 4 * S * D, 3 * S * D + -(-S // bc) * (S * D + 4 * S)


@misconception()
def scores_cross_twice(S, D, sram_elements):
    """The S x S matrix is counted twice; Algorithm 0 writes the scores, reads them, writes the
    probabilities and reads those: four times."""
    bc, _ = block_sizes(D, sram_elements)
    return 2 * S * S + 4 * S * D, 2 * S * D + -(-S // bc) * (3 * S * D + 4 * S)


@misconception()
def last_round_is_dropped(S, D, sram_elements):
    """Tc is rounded down: a ragged last key block needs a round like any other."""
    bc, _ = block_sizes(D, sram_elements)
    return 4 * S * S + 4 * S * D, 2 * S * D + S // bc * (3 * S * D + 4 * S)
