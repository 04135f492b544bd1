"""The figures of lab 01's page, each computed with the reference or in closed form."""

from __future__ import annotations

import dataclasses

from grader.author.page_claims import assumed, claim, fact, figures, measured, published, table
from grader.author.page_figures import plain, written

from . import oracles

GIB = 2**30


def notebook_ledger(code):
    """The notebook's one-line ledger in its own words: products, in bytes."""
    n = code.NOTEBOOK
    states = code.training_state_bytes(int(n.params), "bf16_mixed").total
    activations = code.simple_activation_bytes(n.batch, n.seq, n.layers, n.hidden)
    weights = n.precision_bytes * int(n.params)
    cache = n.batch * n.seq * n.layers * n.heads * n.head_dim * 2 * n.precision_bytes
    return states, activations, weights, cache


def gib(value, decimals=1):
    return written(value, "GiB", decimals).removesuffix(" GiB")


@table("one-line-ledger")
def one_line_ledger(code):
    n = code.NOTEBOOK
    states, activations, weights, cache = notebook_ledger(code)
    size = f"{n.params / 1e9:g}e9"
    kept = (n.batch, n.seq, n.layers, n.hidden, n.precision_bytes, int(n.activation_scale))
    held = (n.batch, n.seq, n.layers, n.heads, n.head_dim, 2, n.precision_bytes)
    yield "", "bytes", "GiB"
    yield "weights, gradients, Adam", f"{n.state_bytes} x {size}", gib(states)
    yield "activations", " x ".join(map(plain, kept)), gib(activations)
    yield "**training**", "", f"**{gib(states + activations)}**"
    yield "weights", f"{n.precision_bytes} x {size}", gib(weights)
    yield "KV cache", " x ".join(map(plain, held)), gib(cache)
    yield "**inference**", "", f"**{gib(weights + cache)}**"


@table("caches")
def caches(code):
    seq = 32_768
    yield "model", "bytes a token", f"{seq:,} tokens"

    def row(label, name, without=None, said=""):
        config = code.real_config(name)
        full = code.kv_cache_bytes(config, 1, seq)
        more = said.format(gib(without(config))) if without else ""
        return label, plain(code.kv_bytes_per_token(config)), f"{gib(full)} GiB{more}"

    llama2, llama3 = code.real_config("Llama-2-7B"), code.real_config("Llama-3-8B")
    gemma, deepseek = code.real_config("Gemma-2-9B"), code.real_config("DeepSeek-V3")
    yield row(f"Llama-2-7B ({llama2.num_key_value_heads} KV heads)", "Llama-2-7B")
    heads = f"{llama3.num_key_value_heads} KV heads of {llama3.num_attention_heads}"
    yield row(f"Llama-3-8B ({heads})", "Llama-3-8B")
    yield row(
        f"Gemma-2-9B (window {gemma.sliding_window:,} in half the layers)",
        "Gemma-2-9B",
        lambda c: seq * code.kv_bytes_per_token(c),
        ", not {}",
    )
    latent = deepseek.kv_lora_rank + deepseek.qk_rope_head_dim
    yield row(
        f"DeepSeek-V3 (latent {latent}, {deepseek.num_hidden_layers} layers)",
        "DeepSeek-V3",
        lambda c: seq * as_heads(c),
        f", not the {{}} of {deepseek.num_attention_heads} heads",
    )


def as_heads(config):
    """Bytes a token of DeepSeek-V3 if it cached K and V of every head, in bf16."""
    widths = config.qk_nope_head_dim + config.qk_rope_head_dim + config.v_head_dim
    return config.num_hidden_layers * config.num_attention_heads * widths * 2


# What a GPT layer keeps: (what, bytes of each tensor, split by tensor parallelism, factor).
KEPT = (
    ("inputs of the two LayerNorms", (2, 2), False, ""),
    ("inputs of QKV and of the MLP", (2, 2), False, ""),
    ("masks of the two residual dropouts", (1, 1), False, ""),
    ("Q, K, V", (2, 2, 2), True, ""),
    ("input of the output projection", (2,), True, ""),
    ("inputs of GELU and of the second linear, 4h wide", (8, 8), True, ""),
    ("softmax's output, its dropout mask, dropout's output", (2, 1, 2), True, " a s / h"),
)


def layer(code, seq=1, hidden=1, heads=1, layers=1, **options):
    """The activations of one GPT layer and one sequence, of any shape."""
    config = dataclasses.replace(
        code.real_config("GPT-2"),
        hidden_size=hidden, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=heads,
    )  # fmt: skip
    return code.activation_bytes(config, 1, seq, **options)


def rates(code, **options):
    """Bytes a (token, hidden) of a GPT layer: the linear part, and the factor of a s / h."""
    one, two = (layer(code, seq, 64, 1, **options) / (64 * seq) for seq in (64, 128))
    return round(2 * one - two), round(two - one)


@table("kept")
def kept(code):
    yield "kept for backward", "bytes", "tensor parallelism splits it"
    for what, sizes, split, factor in KEPT:
        tensors = " + ".join(map(str, sizes))
        yield what, f"({tensors}){factor}" if factor else tensors, "yes" if split else "no"
    whole = sum(sum(sizes) for _, sizes, _, factor in KEPT if not factor)
    square = sum(sum(sizes) for _, sizes, _, factor in KEPT if factor)
    if (whole, square) != rates(code):
        raise ValueError(f"the table adds up to {whole} and {square}, code has {rates(code)}")


def notebook_rate(code, **options):
    """Bytes a (token, layer, hidden) for the notebook's own case, and all of them."""
    n = code.NOTEBOOK
    config = dataclasses.replace(
        code.real_config("GPT-2"),
        hidden_size=n.hidden, num_hidden_layers=n.layers,
        num_attention_heads=n.heads, num_key_value_heads=n.heads,
    )  # fmt: skip
    whole = code.activation_bytes(config, n.batch, n.seq, **options)
    return whole / units(code), whole


def units(code):
    n = code.NOTEBOOK
    return n.batch * n.seq * n.layers * n.hidden


HF_LLAMA = oracles.PUBLISHED["act_hf_llama_sdpa_mha"]["expected"]


@table("activations")
def activations(code):
    n = code.NOTEBOOK
    square = n.heads * n.seq // n.hidden
    fused, of_fused = notebook_rate(code, attention="sdpa")
    of_eager, of_without = notebook_rate(code)[1], notebook_rate(code, dropout=False)[1]
    of_full = notebook_rate(code, recompute="full")[1]
    simple = code.simple_activation_bytes(n.batch, n.seq, n.layers, n.hidden)
    zero = code.simple_activation_bytes(n.batch, n.seq, n.layers, n.hidden, scale=12)
    yield "what keeps activations", "bytes a (token, layer, hidden)", "GiB"
    yield "the notebook's rule", plain(simple / units(code)), gib(simple)
    yield "ZeRO, footnote 3", plain(zero / units(code)), gib(zero)
    linear, factor = rates(code)
    yield "GPT layer, eager, dropout", f"{linear} + {factor * square}", gib(of_eager)
    linear, factor = rates(code, dropout=False)
    yield "the same without dropout", f"{linear} + {factor * square}", gib(of_without)
    yield "fused attention (sdpa, flash) with dropout", plain(fused, 2), gib(of_fused)
    llama = "Hugging Face Llama layer, sdpa (measured, transformers 5.23)"
    yield llama, plain(HF_LLAMA, 2), gib(HF_LLAMA * units(code))
    yield "full checkpointing", plain(of_full / units(code)), gib(of_full)


# -- prose -----------------------------------------------------------------------------------------


@figures
def units_of_memory(code):
    where = "Papers print GB"
    yield claim(code.GIB, "bytes", "a GiB", where=where)
    yield published(10**9, "bytes", "SI: the prefix giga", where=where)
    yield claim((code.GIB / 1000**3 - 1) * 100, "%", "GiB over GB", where="of them for the same")


@figures
def the_notebook(code):
    n = code.NOTEBOOK
    states, kept_bytes, weights, cache = notebook_ledger(code)
    where = "The one-line ledger"
    yield claim(n.params, "parameters", "the notebook's model", where=where)
    yield claim(n.seq, "tokens", "the notebook's context", where=where)
    printed = "With the notebook's inputs it prints"
    for value, what in (
        (states + kept_bytes, "training"),
        (states, "states"),
        (kept_bytes, "activations"),
        (weights + cache, "inference"),
        (weights, "weights"),
        (cache, "KV cache"),
    ):
        yield claim(value, "bytes", f"the notebook's {what}", where=printed)
    for tokens in (512 * 2**power for power in range(6)):
        size = n.batch * tokens * n.layers * n.heads * n.head_dim * 2 * n.precision_bytes
        yield claim(size, "bytes", f"the notebook's cache at {tokens} tokens", where=printed)
    yield assumed(512, "tokens", "where the plot begins", where=printed)
    yield assumed(16_384, "tokens", "where the plot ends", where=printed)
    doubling = "Doubling the context does not double"
    yield claim(weights + cache, "bytes", "the notebook's inference", where=doubling)
    yield claim(weights + 2 * cache, "bytes", "the same at twice the context", where=doubling)
    more = 100 * cache / (weights + cache)
    yield claim(more, "%", "inference at twice the context", where=doubling)
    last = "says the notebook's prose"
    yield claim(more, "%", "inference at twice the context", where=last)
    yield claim((states + kept_bytes) / GIB, "", "GiB of the notebook's training", where=last)
    yield claim(kept_bytes / GIB, "", "GiB of the notebook's activations", where=last)
    yield claim(states / GIB, "", "GiB of the notebook's states", where=last)
    for ranks in (8, 16, 32, 50):
        each = kept_bytes + states / ranks
        yield claim(each, "bytes", f"a rank of {ranks}", where=last)


@figures
def where_it_breaks(code):
    llama2, llama3 = code.real_config("Llama-2-7B"), code.real_config("Llama-3-8B")
    big = code.real_config("Llama-2-70B")
    where = "Four matrices of d x d"
    square = 4 * llama3.hidden_size**2
    one = code.attention_params(llama3)
    yield claim(one, "parameters", "attention of one Llama-3-8B layer", where=where)
    yield claim(square, "parameters", "four matrices of d x d", where=where)
    gemma = code.real_config("Gemma-7B")
    channels = gemma.num_attention_heads * gemma.head_dim
    yield claim(channels, "", "channels of Gemma-7B's queries", where=where)
    yield claim(gemma.hidden_size, "", "Gemma-7B's width", where=where)
    for name in ("GPT-2", "Llama-2-7B", "Llama-3-8B", "Gemma-7B"):
        config = code.real_config(name)
        matrices = 3 if config.gated_mlp else 2
        factor = matrices * config.intermediate_size / config.hidden_size
        yield claim(factor, "", f"multiplier of {name}'s MLP", where="One multiplier for the MLP")

    def simple(config):
        factor = 3 * config.intermediate_size / config.hidden_size
        heads, width = config.num_attention_heads, config.head_dim
        return code.simple_ledger(
            config.num_hidden_layers, config.hidden_size, factor, config.vocab_size,
            1, 1, heads, width, 2, 12,
        ).params  # fmt: skip

    embedding = "One embedding"
    norms = (2 * llama2.num_hidden_layers + 1) * llama2.hidden_size
    head = llama2.vocab_size * llama2.hidden_size
    yield claim(simple(llama2), "", "Llama-2-7B by the line", where=embedding)
    yield claim(head, "", "Llama-2-7B's head", where=embedding)
    yield claim(norms, "", "Llama-2-7B's norms", where=embedding)
    for where in (embedding, "Exactness is worth the trouble"):
        yield claim(
            code.total_params(llama2), "parameters", "Llama-2-7B",
            of="Llama-2-7B parameters", where=where,
        )  # fmt: skip
    cancel = "Errors that cancel"
    over = llama3.num_hidden_layers * (square - one)
    yield claim(over, "parameters", "attention counted too high", where=cancel)
    missing = llama3.vocab_size * llama3.hidden_size
    yield claim(missing, "parameters", "Llama-3-8B's head", where=cancel)
    for config in (llama3, big):
        yield claim(simple(config), "parameters", "by the line", where=cancel)
        yield claim(code.total_params(config), "parameters", "exactly", where=cancel)
    recipes = "is one recipe of several"
    for recipe in ("bf16_mixed", "bf16_fp32grads", "bf16_pure"):
        yield claim(code.training_state_bytes(1, recipe).total, "bytes", recipe, where=recipes)
    rule = "matches no implementation"
    yield claim(2 * code.NOTEBOOK.activation_scale, "bytes", "the notebook's rule", where=rule)
    n = code.NOTEBOOK
    linear, factor = rates(code)
    yield claim(linear, "", "an eager GPT layer, its linear part", where=rule)
    square = factor * n.heads * n.seq / n.hidden
    yield claim(square, "", "its scores in the notebook's case", where=rule)
    yield measured(HF_LLAMA, "", "transformers 5.23, LlamaDecoderLayer", where=rule)
    floor = "Weights are the floor"
    yield claim(code.training_state_bytes(1, "bf16_mixed").total, "bytes", "states", where=floor)


@figures
def training(code):
    llama2, big = (code.total_params(code.real_config(n)) for n in ("Llama-2-7B", "Llama-2-70B"))
    where = "need 107.8 GB to train"
    yield assumed(7e9, "parameters", "the class of Llama-2-7B by its name", where=where)
    yield assumed(70e9, "parameters", "the class of Llama-2-70B by its name", where=where)
    states = {
        recipe: code.training_state_bytes(llama2, recipe)
        for recipe in ("bf16_mixed", "bf16_fp32grads")
    }
    mixed = states["bf16_mixed"]
    yield claim(mixed.total, "bytes", "training Llama-2-7B", where=where)
    yield claim(mixed.weights / 1e9, "", "GB of Llama-2-7B's weights", where=where)
    yield claim(
        code.training_state_bytes(big, "bf16_mixed").total,
        "bytes", "training Llama-2-70B", where=where,
    )  # fmt: skip
    card = "14 GB is the bf16 weights"
    seven = code.training_state_bytes(7e9, "bf16_mixed").weights
    yield claim(seven, "bytes", "7 billion bf16 weights", where=card)
    without_master = mixed.total - 4 * llama2
    yield claim(without_master, "bytes", "without the float32 master copy", where=card)
    yield claim(mixed.total, "bytes", "with it", where=card)
    yield claim(states["bf16_fp32grads"].total, "bytes", "Megatron's", where=card)
    pure = code.training_state_bytes(1, "bf16_pure").optimizer
    yield claim(pure, "bytes", "AdamW's states", where="They have the dtype of")
    aloud = "Seven billion of them are"
    yield claim(16 * 7e9, "bytes", "seven billion of 16 bytes", where=aloud)
    yield claim(llama2, "parameters", "Llama-2-7B", where=aloud)
    yield claim(mixed.total, "bytes", "training Llama-2-7B", where=aloud)
    said = "Megatron Core"
    megatron = "Megatron Core's documentation, distributed optimizer, theoretical memory"
    yield published(20, "bytes", f"{megatron}: fp16 parameters, fp16 gradients", where=said)
    yield published(18, "bytes", f"{megatron}: bf16 parameters, fp32 gradients", where=said)
    yield published(16, "bytes", f"{megatron}: fp32 parameters, fp32 gradients", where=said)
    adam = "bitsandbytes' recipes"
    megatron = code.training_state_bytes(1, "bf16_fp32grads").total
    yield claim(megatron, "bytes", "Megatron's recipe", where=adam)
    eight = code.training_state_bytes(2048 * 1000, "adam8bit").total / (2048 * 1000)
    yield claim(eight, "", "bytes a parameter with 8-bit Adam", where=adam)


@figures
def experts(code):
    where = "Total is memory, active is compute"
    mixtral, qwen = code.real_config("Mixtral-8x7B"), code.real_config("Qwen3-30B-A3B")
    total = code.total_params(mixtral)
    mistral = code.total_params(code.real_config("Mistral-7B-v0.1"))
    yield claim(total, "parameters", "Mixtral-8x7B", where=where, of="Mixtral-8x7B parameters")
    yield claim(code.total_params(mixtral, active=True), "parameters", "active", where=where)
    yield claim(2 * code.total_params(qwen), "bytes", "Qwen3-30B-A3B in bf16", where=where)
    yield claim(2 * code.total_params(qwen, active=True), "bytes", "active in bf16", where=where)
    once = "Attention, embeddings and norms exist once"
    yield claim(total, "parameters", "Mixtral-8x7B", where=once)
    yield claim(mistral, "parameters", "Mistral-7B", where=once, of="Mistral-7B-v0.1 parameters")
    yield claim(8 * mistral / 1e9, "", "billions of eight Mistral-7B", where=once)


@figures
def misunderstandings(code):
    llama2, llama3 = code.real_config("Llama-2-7B"), code.real_config("Llama-3-8B")
    gemma, deepseek = code.real_config("Gemma-7B"), code.real_config("DeepSeek-V3")
    total = code.total_params(llama2)
    d, layers, width = llama2.hidden_size, llama2.num_hidden_layers, llama2.intermediate_size
    heads = total + layers * 31 * 4 * d**2
    where = "Heads share the d channels"
    yield claim(heads, "parameters", "attention times 32", where=where)
    third = "It has a third matrix"
    yield claim(total - layers * d * width, "parameters", "with two matrices", where=third)
    wide = total + layers * 3 * d * (4 * d - width)
    yield claim(wide, "parameters", "with three of width 4d", where=third)
    every = dataclasses.replace(llama3, num_key_value_heads=llama3.num_attention_heads)
    for where in ("It shrinks k and v projections too", "The k and v projections shrink too"):
        yield claim(code.total_params(every), "parameters", "without GQA", where=where)
        yield fact("Llama-3-8B parameters", where=where)
    narrow = dataclasses.replace(gemma, head_dim=gemma.hidden_size // gemma.num_attention_heads)
    yield claim(code.total_params(narrow), "parameters", "head_dim d / heads", where="Often.")
    yield claim(code.total_params(gemma), "", "Gemma-7B", where="Often.")
    once = rates_of_checkpointing(code)
    yield claim(once, "bytes", "a checkpointed layer", where="It replaces the activations column")
    latent = "It caches a latent vector"
    yield claim(as_heads(deepseek), "bytes", "DeepSeek-V3 with heads", where=latent)
    token = code.kv_bytes_per_token(deepseek)
    yield claim(token, "bytes", "DeepSeek-V3's cache", where=latent)
    yield claim(2 * token, "bytes", "K and V of a latent", where=latent)


def rates_of_checkpointing(code):
    return layer(code, 128, 64, recompute="full") / (128 * 64)


@figures
def aloud(code):
    llama3 = code.real_config("Llama-3-8B")
    linear, _ = rates(code)
    yield claim(linear, "bytes", "a GPT layer", where="in a GPT layer 34 bytes")
    where = "A K and a V of every key/value head"
    seq = 8192
    yield claim(code.kv_bytes_per_token(llama3), "bytes", "a token of Llama-3-8B", where=where)
    yield claim(code.kv_cache_bytes(llama3, 1, seq), "bytes", f"{seq} tokens", where=where)
    yield assumed(seq, "tokens", "the context of the example", where=where)
    card = "with a tenth left free"
    yield assumed(80 * GIB, "bytes", "the card of the example", where=card)
    yield assumed(2 * GIB, "bytes", "the overhead of the example", where=card)
    fits = code.max_batch(llama3, 72 * GIB, seq, overhead_bytes=2 * GIB)
    yield claim(fits, "", "sequences that fit", where=card)
    yield claim(2 * code.total_params(llama3) / GIB, "", "GiB of weights", where=card)
    sixty, weights = 60e9, "of weights in 16 bit"
    mixed = code.training_state_bytes(int(sixty / 2), "bf16_mixed")
    yield assumed(sixty, "bytes", "the question's model", where=weights)
    yield claim(sixty / 2, "parameters", "60 GB at 2 bytes each", where=weights)
    yield claim(mixed.gradients, "bytes", "the gradients", where="Backward adds the gradients")
    # in float32 the optimizer holds the moments alone; what bf16 holds besides is the master copy
    moments = code.training_state_bytes(int(sixty / 2), "fp32").optimizer
    for size, what, where in (
        (moments, "two moments", "AdamW would make its two float32 moments"),
        (mixed.optimizer - moments, "the master copy", "A float32 master copy, 4 bytes each"),
    ):
        yield claim(size / (sixty / 2), "bytes", f"{what}, a parameter", where=where)
        yield claim(size, "bytes", what, where=where)


@figures
def appendix(code):
    n = code.NOTEBOOK
    yield claim(units(code), "bytes", "one byte of the rate", where="for the notebook's own case")
    loss = 4 * n.batch * n.seq * code.real_config("Llama-2-7B").vocab_size
    where = "The logits come on top"
    yield claim(loss, "bytes", "float32 logits", where=where)
    yield claim(loss * 1.5 / GIB, "", "GiB with the bf16 copy", where=where)
    llama2 = code.real_config("Llama-2-7B")
    h, f = llama2.hidden_size, llama2.intermediate_size
    gated = "A gated MLP, tensor by tensor"
    yield claim(2 * h + 8 * f, "bytes", "a gated MLP", where=gated)
    yield claim((2 * h + 8 * f) / h, "", "h of it", where=gated)
    yield claim(2 * h + 6 * f, "bytes", "with SiLU computed again", where=gated)
    split = "On t ranks"
    whole, shared = (
        sum(sum(sizes) for _, sizes, divided, factor in KEPT if not factor and divided is part)
        for part in (False, True)
    )
    yield claim(whole, "bytes", "whole on every rank", where=split)
    yield claim(shared, "", "bytes that are split", where=split)
    gpt3 = {"seq": 2048, "hidden": 12_288, "heads": 96, "tp": 8}
    yield claim(layer(code, **gpt3), "bytes", "a layer of GPT-3 on 8 ranks", where=split)
    parallel = layer(code, **gpt3, sp=True)
    yield claim(parallel, "bytes", "with sequence parallelism", where=split)
    selective = layer(code, **gpt3, sp=True, recompute="selective")
    yield claim(selective, "bytes", "and selective recomputation", where=split)
    statistics = "Statistics."
    for size in (2, 4):
        yield claim(2 * 2 * size, "bytes", "mean and rstd of two norms", where=statistics)
    lost = "A tool can be wrong by one embedding"
    gpt2 = code.real_config("GPT-2")
    total = code.total_params(gpt2)
    untied = total + gpt2.vocab_size * gpt2.hidden_size
    yield claim(untied, "parameters", "GPT-2 with its embedding twice", where=lost)
    yield claim(total, "parameters", "GPT-2", where=lost, of="GPT-2 parameters")
    attention = "the 41.9 M of Llama-3-8B"
    llama3 = code.real_config("Llama-3-8B")
    yield claim(code.attention_params(llama3), "parameters", "attention", where=attention)
    yield claim(4 * llama3.hidden_size**2, "parameters", "four matrices", where=attention)
    deepseek = code.real_config("DeepSeek-V3")
    latent = deepseek.kv_lora_rank + deepseek.qk_rope_head_dim
    yield claim(latent, "", "DeepSeek-V3's latent", where="For a latent cache")
