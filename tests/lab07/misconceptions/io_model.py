from grader.suite import lines

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

m_is_halved_for_fp16 = lines(
    """M is divided by the 2 bytes of an element; sram_elements counts elements already.""",
    ("bc = -(-sram_elements // (4 * D))", "bc = -(-sram_elements // (8 * D))"),
)

traffic_is_linear = lines(
    """Memory is O(N), traffic is not: Q and O travel once for EVERY key block, so doubling N
    quadruples the traffic.""",
    ("flash = 2 * S * D + rounds * (3 * S * D + 4 * S)", "flash = 4 * S * D"),
)

never_worse_than_standard = lines(
    """The flash count is capped at the standard one; with small blocks Algorithm 1 really moves
    more: at N 8192, d 128, Bc 50 standard attention moves 0.52 times as much.""",
    ("return standard, flash", "return standard, min(standard, flash)"),
)

statistics_are_free = lines(
    """l and m are forgotten: every round reads and writes both, 4N elements.""",
    ("rounds * (3 * S * D + 4 * S)", "rounds * (3 * S * D)"),
)

statistics_travel_once = lines(
    """l and m are read in each round and not written, or the other way round: every round reads and
    writes both, 4N elements.""",
    ("rounds * (3 * S * D + 4 * S)", "rounds * (3 * S * D + 2 * S)"),
)

output_stays_on_chip = lines(
    """O is written once at the end as in FlashAttention-2; in Algorithm 1 the KEY loop is outside,
    so every round reads and writes all of O.""",
    ("2 * S * D + rounds * (3 * S * D + 4 * S)", "3 * S * D + rounds * (S * D + 4 * S)"),
)

output_and_statistics_stay_on_chip = lines(
    """O is written once at the end as in FlashAttention-2; in Algorithm 1 the KEY loop is outside,
    so every round reads and writes all of O.""",
    ("2 * S * D + rounds * (3 * S * D + 4 * S)", "3 * S * D + rounds * S * D + 2 * S"),
)

keys_and_values_in_every_round = lines(
    """All of K and V are counted in every round; the outer loop walks over their blocks and loads
    each of them once, 2 N d in all.""",
    ("2 * S * D + rounds * (3 * S * D + 4 * S)", "rounds * (5 * S * D + 4 * S)"),
)

rounds_of_query_blocks = lines(
    """The rounds are counted with Br; the outer loop walks over key blocks, ceil(N / Bc) of
    them.""",
    ("bc, _ = block_sizes", "_, bc = block_sizes"),
)

scores_cross_twice = lines(
    """The S x S matrix is counted twice; Algorithm 0 writes the scores, reads them, writes the
    probabilities and reads those: four times.""",
    (
        "standard = (2 * S * D + S * S) + (S * S + S * S) + (S * S + S * D + S * D)",
        "standard = (2 * S * D + S * S) + (S * S + S * D + S * D)",
    ),
)

softmax_reads_without_writing = lines(
    """The S x S matrix is counted three times: the softmax reads the scores AND writes the
    probabilities, which the second product reads.""",
    ("+ (S * S + S * S) +", "+ S * S +"),
)

last_round_is_dropped = lines(
    """Tc is rounded down: a ragged last key block needs a round like any other.""",
    ("rounds = -(-S // bc)", "rounds = S // bc"),
)

rounds_by_a_float_quotient = lines(
    """The number of rounds is the ceiling of a float quotient, and a float has 53 bits: an S beyond
    2^53 may give another count. Divide integers, -(-S // Bc).""",
    ("rounds = -(-S // bc)", "rounds = math.ceil(S / bc)"),
    gate=False,
)

blocks_by_a_float_quotient = lines(
    """Bc is the ceiling of a float quotient, and a float has 53 bits: an M beyond 2^53 may give
    another count. Divide integers.""",
    ("bc = -(-sram_elements // (4 * D))", "bc = math.ceil(sram_elements / (4 * D))"),
    gate=False,
)
