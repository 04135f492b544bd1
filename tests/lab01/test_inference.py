"""inference_ledger and max_batch."""

from types_lab01 import real_config

from grader.suite import expect, task

from . import oracles

GIB = 1024**3


def _parts(config, batch, seq, dtype_bytes=2, overhead=0):
    """Weights, cache and the rest, from tensors listed with their shapes."""
    return (
        oracles.count(oracles.model_shapes(config)) * dtype_bytes,
        oracles.kv_bytes_listed(config, batch, seq, dtype_bytes),
        batch * config.vocab_size * 4 + overhead,
    )


_LEDGER = ("weights", "cache", "logits", "overhead", "params", "nothing_else")


@task("inference_ledger", holds=_LEDGER)
def test_llama_3_8b_by_hand(student):
    """Eight sequences of 8,192 tokens: 16.06 GB of weights, 8 GiB of cache, 4.1 MB of logits.
    Oracle: 2 x the published total; 2 x 32 x 8 x 128 x 2 x 65,536; 4 x 8 x 128,256."""
    ledger = student.inference_ledger(real_config("Llama-3-8B"), 8, 8192, overhead_bytes=GIB)
    expect.bytes(ledger.weights, 16_060_522_496, "every parameter at two bytes", "weights")
    expect.bytes(ledger.kv_cache, 8 * GIB, "131,072 bytes a token, 65,536 tokens", "kv_cache")
    expect.bytes(
        ledger.other,
        4_104_192 + GIB,
        "float32 logits of each sequence's last position, and the overhead",
        "other",
    )
    expect.bytes(
        ledger.total,
        16_060_522_496 + 8 * GIB + 4_104_192 + GIB,
        "inference has no gradients, optimizer or saved activations",
        "total",
    )
    expect.equal(ledger.params, 8_030_261_248, "the ledger says how many it counts", "params")


@task("inference_ledger", holds=_LEDGER)
def test_any_model_batch_and_dtype(student, rng):
    """Dense, expert and latent models at any batch, context and dtype.
    Oracle: tensors listed one by one."""
    makers = (oracles.random_config, oracles.random_moe, oracles.random_mla) * 2
    for make, dtype_bytes in zip(makers, (1, 2, 4, 2, 4, 1), strict=True):
        config = make(rng)
        batch, seq = int(rng.integers(2, 50)), int(rng.integers(2, 3000))
        overhead = int(rng.integers(0, 10**7))
        ledger = student.inference_ledger(config, batch, seq, dtype_bytes, overhead)
        weights, cache, other = _parts(config, batch, seq, dtype_bytes, overhead)
        because = "every expert is in memory, whichever a token uses"
        expect.bytes(ledger.weights, weights, because, "weights")
        expect.bytes(ledger.kv_cache, cache, "every sequence has its own cache", "kv_cache")
        expect.bytes(ledger.other, other, "one row of float32 logits a sequence", "other")
        because = "nothing is trained, and nothing is kept for a backward"
        expect.bytes(ledger.total, weights + cache + other, because, "total")
        expect.equal(
            ledger.params,
            oracles.count(oracles.model_shapes(config)),
            "the ledger says how many it counts",
            "params",
        )


@task("inference_ledger", holds=("windows", "cache"))
def test_a_window_ends_the_growth_of_the_cache(student, rng):
    """Beyond its window a layer holds no more, and which number is the batch's matters.
    Oracle: the cache's tensors listed layer by layer."""
    kinds = ("sliding_attention", "full_attention", "sliding_attention")
    config = oracles.random_config(
        rng, num_hidden_layers=3, sliding_window=int(rng.integers(50, 90)), layer_types=kinds
    )
    for model, batch, seq in (
        (real_config("Gemma-2-9B"), 3, 20_000),
        (config, 7, 400),
        (config, 400, 20),
        (config, 200, 95),
    ):
        ledger = student.inference_ledger(model, batch, seq)
        want = oracles.kv_bytes_listed(model, batch, seq, 2)
        expect.bytes(ledger.kv_cache, want, "a sliding layer keeps its window", "kv_cache")
        want = 4 * batch * model.vocab_size
        expect.bytes(ledger.other, want, "a row of logits for each sequence", "other")


@task("inference_ledger", gate=False, holds=("weights", "logits", "cache"))
def test_without_a_sequence_there_are_weights(student, rng):
    """A loaded model that serves nobody holds its weights and the overhead.
    Oracle: tensors listed one by one."""
    config = oracles.random_moe(rng)
    ledger = student.inference_ledger(config, 0, 100, overhead_bytes=12_345)
    weights = 2 * oracles.count(oracles.model_shapes(config))
    expect.bytes(ledger.weights, weights, "weights do not depend on the batch", "weights")
    expect.bytes(ledger.kv_cache, 0, "there is nothing to cache", "kv_cache")
    expect.bytes(ledger.other, 12_345, "there are no logits", "other")


@task("inference_ledger", gate=False, holds=("logits",))
def test_logits_of_a_long_prompt(student):
    """32,768 positions of Llama-3-8B's logits in float32 are 15.7 GiB.
    Oracle: published.json, mleng_llama3_8b_logits."""
    ledger = student.inference_ledger(real_config("Llama-3-8B"), 32_768, 1)
    expect.published(ledger.other / GIB, oracles.PUBLISHED["mleng_llama3_8b_logits"])


@task("inference_ledger", gate=False, holds=("cache",))
def test_twice_the_context_is_not_twice_the_memory(student):
    """Only the cache doubles with the context.
    Oracle: the difference of two ledgers is one cache."""
    config = real_config("Llama-2-7B")
    once, twice = (student.inference_ledger(config, 4, seq) for seq in (4096, 8192))
    expect.bytes(twice.total - once.total, 8 * GIB, "weights do not depend on the context")
    expect.within(twice.total / once.total, 1.38, 1.40, "20.6 GiB become 28.6")


@task("max_batch", holds=("largest", "to_the_byte", "all_of_it", "dtype_and_overhead"))
def test_it_inverts_the_ledger(student, rng):
    """The batch fits, one more would not; to the byte at the edge.
    Oracle: tensors listed one by one, summed for both batches."""
    for make in (oracles.random_config, oracles.random_moe, oracles.random_mla) * 3:
        # Short contexts and a large vocabulary: logits weigh as much as the cache.
        config = make(rng, vocab_size=int(rng.integers(4000, 9000)))
        seq, want = int(rng.integers(5, 60)), int(rng.integers(90, 300))
        dtype_bytes, overhead = int(rng.choice([1, 2])), int(rng.integers(0, 10**7))
        exact = sum(_parts(config, want, seq, dtype_bytes, overhead))
        step = sum(_parts(config, want + 1, seq, dtype_bytes, overhead)) - exact
        for gpu_bytes, batch in (
            (exact, want),
            (exact - 1, want - 1),
            (exact + int(step * float(rng.uniform(0.6, 0.9))), want),
        ):
            got = student.max_batch(config, gpu_bytes, seq, dtype_bytes, overhead)
            because = "weights and overhead go first, then sequences with their logits"
            expect.equal(got, batch, because, "sequences")


@task("max_batch", holds=("largest", "all_of_it"))
def test_llama_3_8b_on_a_gpu_of_80_gib(student):
    """Nine tenths of 80 GiB hold 55 sequences of 8,192 tokens beside the weights and 2 GiB.
    Oracle: (72 - 2) GiB less 16,060,522,496 bytes, over 1 GiB and 513,024 bytes, by hand."""
    gpu_bytes = 72 * GIB
    got = student.max_batch(real_config("Llama-3-8B"), gpu_bytes, 8192, overhead_bytes=2 * GIB)
    expect.equal(got, 55, "whole sequences only", "sequences")


@task("max_batch", holds=("however_large", "windows"))
def test_any_size_of_batch(student, rng):
    """Short sequences of a small model: thousands of them; and sequences beyond their window, each
    of which costs what the window lets it.
    Oracle: tensors listed one by one, summed for the batch and for one more."""
    kinds = ("sliding_attention", "full_attention")
    sliding = {"num_hidden_layers": 2, "sliding_window": 30, "layer_types": kinds}
    for fixed, seq, want in (
        ({}, 1, int(rng.integers(9000, 13_000))),
        (sliding, 400, int(rng.integers(40, 90))),
    ):
        config = oracles.random_config(rng, **fixed)
        exact = sum(_parts(config, want, seq))
        for gpu_bytes, batch in ((exact, want), (exact - 1, want - 1)):
            because = "the weights are paid once, and each sequence costs the same"
            got = student.max_batch(config, gpu_bytes, seq)
            expect.equal(got, batch, because, f"sequences of {seq} tokens")


@task("max_batch", gate=False, holds=("nine_tenths",))
def test_nine_tenths_of_a_gpu_may_be_a_fraction_of_a_byte(student, rng):
    """0.9 times a GPU's bytes is a float, between two whole numbers of bytes.
    Oracle: tensors listed one by one, summed for the batch."""
    config = oracles.random_config(rng)
    want = int(rng.integers(20, 90))
    exact = sum(_parts(config, want, 60))
    for gpu_bytes, batch in ((exact + 0.5, want), (exact - 0.5, want - 1)):
        got = student.max_batch(config, gpu_bytes, 60)
        expect.equal(got, batch, "half a byte does not hold one more", f"{gpu_bytes} bytes")


@task("max_batch", holds=("none", "to_the_byte"))
def test_nothing_fits_is_zero(student, rng):
    """A GPU smaller than the weights, or with no room for one sequence, holds none.
    Oracle: the contract: never negative."""
    config = real_config("Llama-3-8B")
    weights = 16_060_522_496
    for gpu_bytes in (weights // 3, weights - 40 * GIB // 8, weights, weights + GIB // 2):
        got = student.max_batch(config, gpu_bytes, 8192)
        expect.equal(got, 0, "there is no such thing as a negative batch", f"{gpu_bytes} bytes")
    small = oracles.random_config(rng)
    one = sum(_parts(small, 1, 100))
    for gpu_bytes, batch in ((one, 1), (one - 1, 0), (0, 0)):
        got = student.max_batch(small, gpu_bytes, 100)
        expect.equal(got, batch, "one sequence fits to the byte or not at all", f"{gpu_bytes:,}")
    got = student.max_batch(small, 10**12, 100, overhead_bytes=2 * 10**12)
    expect.equal(got, 0, "overhead alone can fill a GPU")


@task("max_batch", gate=False, holds=("all_of_it", "dtype_and_overhead"))
def test_more_room_never_holds_fewer(student, rng):
    """Monotone: up with the GPU, down with the context, the dtype and the overhead.
    Oracle: monotonicity."""
    config = oracles.random_config(rng)
    base = sum(_parts(config, 20, 500))
    by_gpu = [student.max_batch(config, base * part // 8, 500) for part in range(2, 17)]
    expect.equal(by_gpu, sorted(by_gpu), "a larger GPU holds at least as many")
    by_seq = [student.max_batch(config, base, seq) for seq in (100, 250, 500, 1000)]
    expect.equal(by_seq, sorted(by_seq, reverse=True), "longer sequences take more")
    two, one = (student.max_batch(config, base, 500, size) for size in (2, 1))
    expect.at_least(one, two, "8-bit weights and cache take half", "batch", unit="sequences")
