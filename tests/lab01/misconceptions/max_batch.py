from grader.suite import lines, misconception

batch_of_util_times_free = lines(
    """gpu_bytes is what may be used already: taking nine tenths of what the weights leave free
    gives room away twice. A utilisation multiplies the whole GPU, before weights are
    subtracted.""",
    ("(gpu_bytes - empty) //", "0.9 * (gpu_bytes - empty) //"),
)


batch_of_absolute_room = lines(
    """When the weights do not fit, the room left is negative, and its absolute value is not room:
    the answer is 0.""",
    (
        "max(0, int((gpu_bytes - empty) // (one - empty)))",
        "int(abs(gpu_bytes - empty) // (one - empty))",
    ),
)


batch_below_zero = lines(
    """When the weights do not fit, the room left is negative: no sequence fits, so the answer is 0
    and never a negative batch.""",
    (
        "max(0, int((gpu_bytes - empty) // (one - empty)))",
        "int((gpu_bytes - empty) // (one - empty))",
    ),
)


batch_rounded = lines(
    """Nine tenths of a sequence do not fit: round down, never to the nearest.""",
    ("int((gpu_bytes - empty) // (one - empty))", "round((gpu_bytes - empty) / (one - empty))"),
)


batch_rounded_once_one_fits = lines(
    """Nine tenths of a sequence do not fit: round down, never to the nearest.""",
    (
        "max(0, int((gpu_bytes - empty) // (one - empty)))",
        "0 if gpu_bytes < one else round((gpu_bytes - empty) / (one - empty))",
    ),
)


batch_without_weights = lines(
    """The weights are in memory before the first sequence: they are subtracted from the GPU.""",
    ("max(0, int((gpu_bytes - empty) // (one - empty)))", "int(gpu_bytes // (one - empty))"),
)


batch_without_weights_but_overhead = lines(
    """The weights are in memory before the first sequence: they are subtracted from the GPU.""",
    (
        "max(0, int((gpu_bytes - empty) // (one - empty)))",
        "max(0, int((gpu_bytes - overhead_bytes) // (one - empty)))",
    ),
)


@misconception()
def batch_of_whole_ledgers(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """Sequences share the weights: dividing the GPU by a whole ledger of one sequence gives each
    of them a model of its own."""
    return int(gpu_bytes // inference_ledger(config, 1, seq, dtype_bytes, overhead_bytes).total)


@misconception()
def batch_without_logits(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """Each sequence costs its cache *and* its row of logits: at the edge the cache alone promises
    one sequence too many."""
    empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes).total
    return max(0, int((gpu_bytes - empty) // kv_cache_bytes(config, 1, seq, dtype_bytes)))


batch_of_at_least_one = lines(
    """When not even one sequence fits, the answer is 0: nobody can serve a batch of 1 then.""",
    ("max(0, int", "max(1, int"),
)


batch_with_a_byte_to_spare = lines(
    """A ledger that fills the GPU to the last byte fits: its total may be gpu_bytes.""",
    ("(gpu_bytes - empty) //", "(gpu_bytes - empty - 1) //"),
)


batch_strictly_below_the_gpu = lines(
    """A ledger that fills the GPU to the last byte fits: its total may be gpu_bytes.""",
    (
        "max(0, int((gpu_bytes - empty) // (one - empty)))",
        "max(0, int(-(-(gpu_bytes - empty) // (one - empty))) - 1)",
    ),
)


batch_rounded_up = lines(
    """A begun sequence does not fit: round down.""",
    ("int((gpu_bytes - empty) // (one - empty))", "int(-(-(gpu_bytes - empty) // (one - empty)))"),
)


batch_without_overhead = lines(
    """overhead_bytes is taken before the first sequence, like the weights.""",
    (
        "empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes)",
        "empty = inference_ledger(config, 0, seq, dtype_bytes)",
    ),
    (
        "one = inference_ledger(config, 1, seq, dtype_bytes, overhead_bytes)",
        "one = inference_ledger(config, 1, seq, dtype_bytes)",
    ),
)


batch_always_in_16_bit = lines(
    """dtype_bytes sets the size of the weights and of the cache: 8-bit ones leave room for
    more.""",
    (
        "empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes)",
        "empty = inference_ledger(config, 0, seq, 2, overhead_bytes)",
    ),
    (
        "one = inference_ledger(config, 1, seq, dtype_bytes, overhead_bytes)",
        "one = inference_ledger(config, 1, seq, 2, overhead_bytes)",
    ),
)


@misconception()
def batch_searched_up_to_4096(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """The GPU sets the end of the search, not a number chosen beforehand: short sequences of a
    small model fit by the thousand."""
    empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes).total
    one = inference_ledger(config, 1, seq, dtype_bytes, overhead_bytes).total
    return min(4096, max(0, int((gpu_bytes - empty) // (one - empty))))


batch_pays_the_overhead_each_time = lines(
    """The CUDA context and the workspaces are there once: overhead_bytes is taken before the first
    sequence, and no other sequence pays it again.""",
    ("// (one - empty)", "// (one - empty + overhead_bytes)"),
)


batch_step_of_a_whole_ledger = lines(
    """What one more sequence costs is the difference of two ledgers: a ledger of one sequence
    contains the weights, which are paid already.""",
    ("// (one - empty)", "// one"),
)


batch_step_without_a_cache = lines(
    """A sequence costs its cache beside its row of logits: the cache is by far the larger part.""",
    ("// (one - empty)", "// (4 * config.vocab_size)"),
)


batch_first_that_does_not_fit = lines(
    """The loop ends at the first batch that does not fit: the answer is the one before it.""",
    (
        "max(0, int((gpu_bytes - empty) // (one - empty)))",
        "max(0, int((gpu_bytes - empty) // (one - empty)) + 1)",
    ),
)


batch_refuses_when_nothing_fits = lines(
    """That not even one sequence fits is an answer and no error: 0.""",
    (
        "    return max(0,",
        "    if gpu_bytes < one:\n"
        '        raise ValueError("not even one sequence fits")\n'
        "    return max(0,",
    ),
)


batch_of_a_power_of_two = lines(
    """Any whole number of sequences counts, not only powers of two: between the last that fits and
    its double there is more to find.""",
    (
        "    return max(0, int((gpu_bytes - empty) // (one - empty)))",
        "    most = max(0, int((gpu_bytes - empty) // (one - empty)))\n"
        "    return 1 << (most.bit_length() - 1) if most else 0",
    ),
)


@misconception()
def batch_searched_up_to_1024(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """The GPU sets the end of the search, not a number chosen beforehand: short sequences of a
    small model fit by the thousand."""
    empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes).total
    one = inference_ledger(config, 1, seq, dtype_bytes, overhead_bytes).total
    return min(1024, max(0, int((gpu_bytes - empty) // (one - empty))))


@misconception()
def batch_searched_up_to_1000(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """The GPU sets the end of the search, not a number chosen beforehand: short sequences of a
    small model fit by the thousand."""
    empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes).total
    one = inference_ledger(config, 1, seq, dtype_bytes, overhead_bytes).total
    return min(1000, max(0, int((gpu_bytes - empty) // (one - empty))))


batch_of_nine_tenths_of_the_gpu = lines(
    """gpu_bytes is what may be used already: the caller who leaves a tenth free has subtracted it,
    so do not take nine tenths of it again.""",
    ("(gpu_bytes - empty) //", "(0.9 * gpu_bytes - empty) //"),
)


batch_pays_the_overhead_twice = lines(
    """overhead_bytes is part of the ledger's total: subtracted from the GPU as well, it is paid
    twice.""",
    ("(gpu_bytes - empty) //", "(gpu_bytes - overhead_bytes - empty) //"),
)


@misconception()
def batch_without_windows(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """Beyond its window a layer holds no more, so a long sequence costs less than its tokens times
    kv_bytes_per_token."""
    empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes).total
    each = seq * kv_bytes_per_token(config, dtype_bytes) + 4 * config.vocab_size
    return max(0, int((gpu_bytes - empty) // each))


batch_with_logits_of_every_token = lines(
    """A decoding sequence has logits of its last position only: one row of the vocabulary, not one
    for each token.""",
    ("// (one - empty)", "// (one - empty + 4 * (seq - 1) * config.vocab_size)"),
)


batch_with_logits_in_16_bit = lines(
    """Logits are float32, four bytes each: in 16 bits a sequence looks cheaper than it is.""",
    ("// (one - empty)", "// (one - empty - 2 * config.vocab_size)"),
)


@misconception()
def batch_of_active_weights(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """All experts are in memory, whichever a token uses: the weights that are subtracted are those
    of the whole model."""
    empty = total_params(config, active=True) * dtype_bytes + overhead_bytes
    one = kv_cache_bytes(config, 1, seq, dtype_bytes) + 4 * config.vocab_size
    return max(0, int((gpu_bytes - empty) // one))


@misconception()
def batch_with_a_cache_in_16_bit(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """dtype_bytes is the cache's dtype too: with 8 bits a sequence takes half of what it takes
    with 16."""
    empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes).total
    one = kv_cache_bytes(config, 1, seq) + 4 * config.vocab_size
    return max(0, int((gpu_bytes - empty) // one))


@misconception()
def batch_of_tokens(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    """The answer is a number of sequences: each of them holds `seq` tokens, so the room is divided
    by what all of these take."""
    empty = inference_ledger(config, 0, seq, dtype_bytes, overhead_bytes).total
    one = kv_cache_bytes(config, 1, 1, dtype_bytes) + 4 * config.vocab_size
    return max(0, int((gpu_bytes - empty) // one))
