"""training_state_bytes, kv_bytes_per_token and kv_cache_bytes."""

from dataclasses import replace

import pytest
from types_lab01 import real_config

from grader.suite import expect, task

from . import oracles

GIB = 1024**3
LLAMA2_7B = 6_738_415_616
# What one parameter costs in weights, gradients and optimizer states: dtypes, tensor by tensor.
_PER_PARAM = {
    "fp32": (("fp32",), ("fp32",), ("fp32 m", "fp32 v")),
    "bf16_mixed": (("bf16",), ("bf16",), ("fp32 master", "fp32 m", "fp32 v")),
    "bf16_fp32grads": (("bf16",), ("fp32",), ("fp32 master", "fp32 m", "fp32 v")),
    "bf16_pure": (("bf16",), ("bf16",), ("bf16 m", "bf16 v")),
}


def _sizes(recipe):
    return tuple(
        sum(4 if tensor.startswith("fp32") else 2 for tensor in tensors)
        for tensors in _PER_PARAM[recipe]
    )


@task("training_state_bytes", holds=(*_PER_PARAM, "nothing_else", "a_count_in_floats"))
@pytest.mark.parametrize("recipe", list(_PER_PARAM))
def test_each_recipe_tensor_by_tensor(student, rng, recipe):
    """Weights, gradients and optimizer states of Llama-2-7B, of the notebook's 6.74e9 parameters,
    and of any other count.
    Oracle: the recipe's tensors, each with its dtype."""
    for n_params in (LLAMA2_7B, 6.74e9, int(rng.integers(10**6, 10**12))):
        ledger = student.training_state_bytes(n_params, recipe)
        weights, gradients, optimizer = _sizes(recipe)
        expect.bytes(
            ledger.weights,
            weights * n_params,
            f"{recipe} keeps one copy to compute with",
            "weights",
        )
        expect.bytes(
            ledger.gradients, gradients * n_params, f"{recipe} has gradients too", "gradients"
        )
        expect.bytes(
            ledger.optimizer,
            optimizer * n_params,
            f"{recipe} keeps {', '.join(_PER_PARAM[recipe][2])}",
            "optimizer",
        )
        expect.bytes(
            ledger.total,
            (weights + gradients + optimizer) * n_params,
            "states do not include activations or a cache",
            "total",
        )
        expect.equal(ledger.params, n_params, "the ledger says how many it counts", "params")


@task("training_state_bytes", holds=("fp32", "bf16_mixed", "bf16_fp32grads"))
def test_published_state_sizes(student):
    """ZeRO's 24 GB, Megatron's 112.96 GiB, accelerate's estimates for BERT.
    Oracle: published.json."""
    rows = oracles.PUBLISHED
    gpt2 = student.training_state_bytes(1_500_000_000, "bf16_mixed")
    expect.published(gpt2.total / 1e9, rows["zero_gpt2_15b_states"])
    megatron = student.training_state_bytes(LLAMA2_7B, "bf16_fp32grads")
    expect.published(megatron.total / GIB, rows["megatron_llama2_7b_states"])
    bert = student.training_state_bytes(108_310_272, "fp32")
    buffers = 8192  # int64 position and token-type ids
    expect.published((bert.weights + buffers) / 1024**2, rows["accelerate_bert_fp32"])
    expect.published(bert.total / GIB, rows["accelerate_bert_adam"])


@task(
    "training_state_bytes",
    gate=False,
    holds=("adam8bit", "scales", "last_block", "nothing_else", "a_count_in_floats"),
)
def test_eight_bit_adam_keeps_a_scale_a_block(student, rng):
    """Two one-byte moments and a float32 scale for every begun block of 256 of each.
    Oracle: the blocks counted one by one."""
    some = int(rng.integers(1000, 90_000))
    for n_params in (256 * 40, 256 * 40 + 1, 256 * 40 - 1, 1, some, float(some)):
        ledger = student.training_state_bytes(n_params, "adam8bit")
        scales = sum(2 * 4 for _start in range(0, int(n_params), 256))
        expect.bytes(ledger.weights, 2 * n_params, "weights are bf16", "weights")
        expect.bytes(ledger.gradients, 2 * n_params, "gradients are bf16", "gradients")
        expect.bytes(
            ledger.optimizer, 2 * n_params + scales, "no master copy, but scales", "optimizer"
        )
        expect.bytes(ledger.total, 6 * n_params + scales, "and nothing else", "total")
        expect.equal(ledger.params, n_params, "the ledger says how many it counts", "params")


@task("training_state_bytes", gate=False, holds=("fp32", "bf16_pure"))
@pytest.mark.parametrize(("recipe", "dtype"), [("bf16_pure", "bfloat16"), ("fp32", "float32")])
def test_a_real_adamw_agrees(student, recipe, dtype):
    """torch's AdamW keeps moments of the parameters' dtype.
    Oracle: a real torch.optim.AdamW after one step, its tensors measured."""
    student.training_state_bytes(1, recipe)
    n_params, sizes = oracles.measured_adamw(dtype)
    ledger = student.training_state_bytes(n_params, recipe)
    for name, size in sizes.items():
        got = getattr(ledger, name)
        expect.bytes(got, size, f"this is what torch allocates for {dtype}", name)


@task("training_state_bytes", gate=False, holds=("bf16_fp32grads",))
def test_megatron_s_loaded_shard_of_gpt_3(student):
    """GPT-3 on 8-way tensor and 8-way pipeline parallelism, without and with sharded optimizer.
    Oracle: published.json, Megatron's own tool; it counts no biases of linears."""
    h, vocab, ranks = 12288, 51200, 8
    block = 96 * (12 * h * h + 4 * h) + 2 * h
    shard = (block // ranks + vocab * h) // ranks
    ledger = student.training_state_bytes(shard, "bf16_fp32grads")
    rows = oracles.PUBLISHED
    expect.published(ledger.total / GIB, rows["megatron_gpt3_tp8pp8_states"])
    sharded = ledger.weights + ledger.gradients + ledger.optimizer / 8
    expect.published(sharded / GIB, rows["megatron_gpt3_tp8pp8_distopt8"])


@task("training_state_bytes", gate=False, holds=("bf16_mixed",))
def test_eleuther_s_calculator(student):
    """The calculator's own example: 76.79 GiB of optimizer states, 12 bytes a parameter.
    Oracle: published.json; the tool counts two embeddings, positions, 8h a layer in norms."""
    h, vocab, layers = 4096, 51200, 32
    params = 2 * vocab * h + 2048 * h + layers * (12 * h * h + 8 * h) + 2 * h
    ledger = student.training_state_bytes(params, "bf16_mixed")
    expect.published(ledger.optimizer / GIB, oracles.PUBLISHED["eai_pythia69_opt_total"])


_UNKNOWN = pytest.mark.parametrize(
    "recipe", ["bf16", "", "BF16_MIXED", "fp16", "fp32 ", "adam", "adam8bit_2"]
)


@task("training_state_bytes", gate=False, holds=("unknown",))
@_UNKNOWN
def test_an_unknown_recipe_is_refused(student, recipe):
    """A recipe that is not listed is a ValueError, not a guess.
    Oracle: the contract."""
    with expect.raises(ValueError, because="a guessed recipe gives a wrong ledger in silence"):
        student.training_state_bytes(1000, recipe)


@task("training_state_bytes", gate=False, holds=("names_them",))
@pytest.mark.parametrize("recipe", ["bf16", "zero"])
def test_the_refusal_lists_the_recipes(student, recipe):
    """The error's text names the five recipes that there are.
    Oracle: the contract."""
    because = "who has misspelt one recipe reads there how it is written"
    with expect.raises(ValueError, because=because, names=[*_PER_PARAM, "adam8bit"]):
        student.training_state_bytes(1000, recipe)


# --- KV cache -------------------------------------------------------------------------------------


@task("kv_bytes_per_token", holds=("all_layers", "key_value_heads", "dtype"))
def test_published_bytes_a_token(student):
    """Llama-3-8B 131,072, OPT-13B 819,200, Llama-3.1-405B 516,096, GPT-2 XL 300 KiB.
    Oracle: published.json: papers, vendors' documentation."""
    rows = oracles.PUBLISHED
    for row, model in (
        ("kv_llama3_8b", "Llama-3-8B"),
        ("kv_opt13b", "OPT-13B"),
        ("kv_llama31_405b", "Llama-3.1-405B"),
    ):
        expect.published(student.kv_bytes_per_token(real_config(model)), rows[row])
    xl = student.kv_bytes_per_token(real_config("GPT-2-XL"))
    expect.published(xl / 1024, rows["kv_gpt2_xl"])


@task("kv_bytes_per_token", holds=("all_layers", "key_value_heads", "dtype"))
def test_any_model_and_any_dtype(student, rng):
    """K and V of every key/value head, in every layer, at the cache's own dtype.
    Oracle: the cache's tensors listed layer by layer."""
    for dtype_bytes in (1, 2, 4) * 2:
        config = oracles.random_config(rng)
        expect.bytes(
            student.kv_bytes_per_token(config, dtype_bytes),
            oracles.kv_bytes_listed(config, 1, 1, dtype_bytes),
            "key/value heads times head_dim, twice, in every layer",
            f"{dtype_bytes} bytes a value",
        )


@task("kv_bytes_per_token", holds=("latent", "dtype"))
def test_latent_attention_keeps_one_small_vector(student, rng):
    """DeepSeek-V3 keeps 70,272 bytes a token: kv_lora_rank and the rotary part, once.
    Oracle: published.json; for random models the cache's tensors listed layer by layer."""
    for dtype_bytes in (1, 2):
        # Three key/value heads: one vector for each of them is not a factor 2.
        config = oracles.random_mla(rng, num_attention_heads=12, num_key_value_heads=3)
        want = oracles.kv_bytes_listed(config, 1, 1, dtype_bytes)
        got = student.kv_bytes_per_token(config, dtype_bytes)
        expect.bytes(got, want, "K and V are both made from the one latent vector")
    got = student.kv_bytes_per_token(real_config("DeepSeek-V3"))
    expect.published(got, oracles.PUBLISHED["kv_deepseek_v3"])


@task("kv_bytes_per_token", holds=("windows_do_not_count",))
def test_a_layer_with_a_window_grows_too(student, rng):
    """Gemma-2-9B adds 344,064 bytes a token, its sliding layers as much as the others.
    Oracle: 2 x 42 layers x 8 heads x 256 x 2 bytes, by hand; for random models the cache's tensors
    of one token, listed layer by layer."""
    kinds = ("sliding_attention",) * 3 + ("full_attention",) * 2
    for layer_types in (kinds, kinds[:1] * 5):
        config = oracles.random_config(
            rng, num_hidden_layers=5, sliding_window=8, layer_types=layer_types
        )
        want = oracles.kv_bytes_listed(config, 1, 1, 2)
        expect.bytes(student.kv_bytes_per_token(config), want, "the first token is in every layer")
    got = student.kv_bytes_per_token(real_config("Gemma-2-9B"))
    expect.bytes(got, 344_064, "a sliding layer keeps one more token until its window is full")


@task("kv_bytes_per_token", gate=False, holds=("all_layers", "key_value_heads"))
@pytest.mark.parametrize(
    ("row", "model"),
    [
        ("vllm_cpu_blocks_llama3_8b", "Llama-3-8B"),
        ("vllm_cpu_blocks_llama2_7b_llava", "Llama-2-7B"),
        ("vllm_cpu_blocks_llama2_13b", "Llama-2-13B"),
    ],
)
def test_blocks_that_vllm_logs(student, row, model):
    """As many blocks of 16 tokens fit into 4 GiB as vLLM printed.
    Oracle: published.json, vLLM's logs."""
    per_token = student.kv_bytes_per_token(real_config(model))
    expect.at_least(per_token, 1, "a cache that takes nothing has no blocks", unit="bytes")
    expect.published(4 * GIB // (16 * per_token), oracles.PUBLISHED[row])


@task("kv_bytes_per_token", gate=False, holds=("key_value_heads",))
def test_grouped_queries_divide_the_cache(student, rng):
    """A quarter of the key/value heads is a quarter of the cache; query heads do not matter.
    Oracle: proportionality."""
    config = oracles.random_config(rng, num_attention_heads=16, num_key_value_heads=16)
    full = student.kv_bytes_per_token(config)
    grouped = student.kv_bytes_per_token(replace(config, num_key_value_heads=4))
    expect.equal(4 * grouped, full, "the cache is proportional to the key/value heads")
    wider = replace(config, num_attention_heads=32)
    expect.equal(student.kv_bytes_per_token(wider), full, "queries are never cached")


@task("kv_cache_bytes", holds=("every_sequence", "dtype"))
def test_eight_sequences_of_llama_3_8b(student):
    """8 x 8,192 tokens of Llama-3-8B take exactly 8 GiB; the notebook's Llama-2-7B case as well.
    Oracle: 2 x 32 layers x 8 heads x 128 x 2 bytes x 65,536 tokens, worked out by hand."""
    got = student.kv_cache_bytes(real_config("Llama-3-8B"), 8, 8192)
    expect.bytes(got, 8 * GIB, "131,072 bytes a token, 65,536 tokens", "Llama-3-8B")
    got = student.kv_cache_bytes(real_config("Llama-2-7B"), 4, 4096)
    expect.bytes(got, 8 * GIB, "524,288 bytes a token, 16,384 tokens", "Llama-2-7B")


@task("kv_cache_bytes", holds=("every_sequence", "dtype", "no_window"))
def test_any_batch_context_and_dtype(student, rng):
    """Models of any shape, latent attention among them, at any batch, context and dtype.
    Oracle: the cache's tensors listed layer by layer."""
    for index, make in enumerate((oracles.random_config, oracles.random_mla) * 3):
        config = make(rng)
        batch, seq = int(rng.integers(2, 60)), int(rng.integers(2, 9000))
        dtype_bytes = (1, 2, 4)[index // 2]
        expect.bytes(
            student.kv_cache_bytes(config, batch, seq, dtype_bytes),
            oracles.kv_bytes_listed(config, batch, seq, dtype_bytes),
            "every sequence has its own cache",
            f"batch {batch}, {seq} tokens, {dtype_bytes} bytes a value",
        )


@task("kv_cache_bytes", holds=("window", "at_the_window", "no_window"))
def test_sliding_layers_stop_at_the_window(student, rng):
    """Gemma-2-9B: half the layers keep at most 4,096 tokens, the other half all of them.
    Oracle: the cache's tensors listed layer by layer."""
    gemma = real_config("Gemma-2-9B")
    for seq in (32_768, 4097, 4096, 1000):
        expect.bytes(
            student.kv_cache_bytes(gemma, 2, seq),
            oracles.kv_bytes_listed(gemma, 2, seq, 2),
            "a sliding layer drops what it can no longer look back at, the others keep growing",
            f"{seq} tokens",
        )
    for sliding in ((0, 1, 2, 3, 6), (4,), range(7)):
        window, dtype_bytes = int(rng.integers(50, 500)), int(rng.choice([1, 4]))
        kinds = ("sliding_attention" if i in sliding else "full_attention" for i in range(7))
        config = oracles.random_config(
            rng, num_hidden_layers=7, sliding_window=window, layer_types=tuple(kinds)
        )
        latent = oracles.random_mla(
            rng, num_hidden_layers=7, sliding_window=window, layer_types=config.layer_types
        )
        for seq in (window - 1, window, window + 1, 10 * window):
            for one, kind in ((config, "keys and values"), (latent, "a latent cache")):
                want = oracles.kv_bytes_listed(one, 3, seq, dtype_bytes)
                got = student.kv_cache_bytes(one, 3, seq, dtype_bytes)
                because = "each layer has its own window or none, whatever it keeps of a token"
                expect.bytes(got, want, because, f"{seq} tokens, {kind}")


@task("kv_cache_bytes", gate=False, holds=("none_at_all",))
def test_one_sequence_one_token_or_none(student, rng):
    """The smallest caches: one token of one sequence, no token, no sequence.
    Oracle: the cache's tensors listed layer by layer; without tokens they are empty."""
    for config in (oracles.random_config(rng), real_config("Gemma-2-9B")):
        for batch, seq in ((1, 1), (1, 2), (0, 500), (3, 0)):
            want = oracles.kv_bytes_listed(config, batch, seq, 2)
            got = student.kv_cache_bytes(config, batch, seq)
            expect.bytes(got, want, "nothing is reserved", f"batch {batch}, {seq} tokens")


@task("kv_cache_bytes", gate=False, holds=("every_sequence",))
@pytest.mark.parametrize(
    ("row", "model"), [("hfblog_8b", "Llama-3-8B"), ("hfblog_70b", "Llama-3-70B")]
)
def test_the_table_of_a_blog_post(student, row, model):
    """1,024, 16,000 and 128,000 tokens: the blog prints GB and means GiB.
    Oracle: published.json, Hugging Face's blog on Llama 3.1."""
    config = real_config(model)
    got = [student.kv_cache_bytes(config, 1, seq) / GIB for seq in (1024, 16_000, 128_000)]
    expect.published(got, oracles.PUBLISHED[row])


@task("kv_cache_bytes", gate=False, holds=("no_window", "window"))
def test_a_window_that_is_switched_off_does_nothing(student):
    """Qwen2.5's config names a window of 32,768 and does not use it; Mistral v0.1's is used.
    Oracle: linearity beyond the window, or a constant."""
    qwen, mistral = real_config("Qwen2.5-0.5B"), real_config("Mistral-7B-v0.1")
    once = student.kv_cache_bytes(qwen, 1, 65_536)
    expect.equal(student.kv_cache_bytes(qwen, 1, 131_072), 2 * once, "config.window() is None")
    at_window = student.kv_cache_bytes(mistral, 1, 4096)
    expect.equal(
        student.kv_cache_bytes(mistral, 1, 100_000), at_window, "every layer slides", "Mistral"
    )


@task("kv_cache_bytes", gate=False, holds=("every_sequence",))
def test_a_long_context_is_linear_and_not_quadratic(student, rng):
    """Twice the tokens, twice the cache.
    Oracle: linearity."""
    config = oracles.random_config(rng)
    seq = int(rng.integers(100, 5000))
    once = student.kv_cache_bytes(config, 3, seq)
    expect.equal(student.kv_cache_bytes(config, 3, 2 * seq), 2 * once, "each token adds the same")
    expect.equal(student.kv_cache_bytes(config, 6, seq), 2 * once, "each sequence adds the same")
