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
    """Sequences share the weights: dividing the GPU by a whole ledger of one sequence gives each of
    them a model of its own."""
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
