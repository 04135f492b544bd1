"""attention_params, ffn_params and total_params: exact counts."""

from dataclasses import replace

import pytest
from types_lab01 import CONFIGS, ModelConfig, real_config

from grader.suite import expect, task

from . import oracles

# Shapes with a published total that the lab does not ship: width, MLP, layers, heads, KV heads,
# vocabulary, tied, and what else the family has.
_LLAMA_LIKE = {
    "llama32_3b": ("llama", 3072, 8192, 28, 24, 8, 128256, True, {}),
    "qwen25_15b": ("qwen2", 1536, 8960, 28, 12, 2, 151936, True, {}),
    "qwen25_3b": ("qwen2", 2048, 11008, 36, 16, 2, 151936, True, {}),
    "qwen25_14b": ("qwen2", 5120, 13824, 48, 40, 8, 152064, False, {}),
    "qwen25_32b": ("qwen2", 5120, 27648, 64, 40, 8, 152064, False, {}),
    "qwen25_72b": ("qwen2", 8192, 29568, 80, 64, 8, 152064, False, {}),
    "qwen3_06b": ("qwen3", 1024, 3072, 28, 16, 8, 151936, True, {"head_dim": 128}),
    "qwen3_4b": ("qwen3", 2560, 9728, 36, 32, 8, 151936, True, {"head_dim": 128}),
    "gemma_2b": ("gemma", 2048, 16384, 18, 8, 1, 256000, True, {"head_dim": 256}),
    "gemma2_27b": (
        "gemma2",
        4608,
        36864,
        46,
        32,
        16,
        256000,
        True,
        {"head_dim": 128, "sliding_window": 4096},
    ),
    "qwen3_235b_a22b": (
        "qwen3_moe",
        4096,
        12288,
        94,
        64,
        4,
        151936,
        False,
        {
            "head_dim": 128,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 1536,
        },
    ),
}
_PYTHIA = {
    "pythia_70m": (512, 6, 8, 50304),
    "pythia_160m": (768, 12, 12, 50304),
    "pythia_410m": (1024, 24, 16, 50304),
    "pythia_1b": (2048, 16, 8, 50304),
    "pythia_1.4b": (2048, 24, 16, 50304),
    "pythia_2.8b": (2560, 32, 32, 50304),
    "pythia_6.9b": (4096, 32, 32, 50432),
    "pythia_12b": (5120, 36, 40, 50688),
}
_GPT = {
    "gpt2_medium": (1024, 24, 16, 50257, 1024),
    "gpt2_large": (1280, 36, 20, 50257, 1024),
    "gpt3_175b": (12288, 96, 96, 50257, 2048),
}
_GIVEN = {
    "llama2_7b": "Llama-2-7B",
    "llama2_13b": "Llama-2-13B",
    "llama2_70b": "Llama-2-70B",
    "llama3_8b": "Llama-3-8B",
    "llama3_70b": "Llama-3-70B",
    "llama31_405b": "Llama-3.1-405B",
    "llama32_1b": "Llama-3.2-1B",
    "mistral_7b_v01": "Mistral-7B-v0.1",
    "mistral_7b_v03": "Mistral-7B-v0.3",
    "gpt2_124m": "GPT-2",
    "gpt2_xl": "GPT-2-XL",
    "neox_20b": "GPT-NeoX-20B",
    "qwen25_05b": "Qwen2.5-0.5B",
    "qwen25_7b": "Qwen2.5-7B",
    "qwen3_8b": "Qwen3-8B",
    "gemma_7b": "Gemma-7B",
    "gemma2_9b": "Gemma-2-9B",
    "opt_13b": "OPT-13B",
}
_MOE_GIVEN = {"mixtral_8x7b_total": "Mixtral-8x7B", "qwen3_30b_a3b": "Qwen3-30B-A3B"}


def _config(name):
    if name in _GIVEN | _MOE_GIVEN:
        return real_config((_GIVEN | _MOE_GIVEN)[name])
    if name in _PYTHIA:
        hidden, layers, heads, vocab = _PYTHIA[name]
        hf = {
            "model_type": "gpt_neox",
            "hidden_size": hidden,
            "intermediate_size": 4 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "vocab_size": vocab,
            "tie_word_embeddings": False,
        }
    elif name in _GPT:
        hidden, layers, heads, vocab, positions = _GPT[name]
        hf = {
            "model_type": "gpt2",
            "n_embd": hidden,
            "n_layer": layers,
            "n_head": heads,
            "n_positions": positions,
            "vocab_size": vocab,
        }
    else:
        family, hidden, ffn, layers, heads, kv_heads, vocab, tied, more = _LLAMA_LIKE[name]
        hf = {
            "model_type": family,
            "hidden_size": hidden,
            "intermediate_size": ffn,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "vocab_size": vocab,
            "tie_word_embeddings": tied,
            **more,
        }
    return ModelConfig.from_hf(hf)


_DENSE = [*_GIVEN, *_PYTHIA, *_GPT, *(name for name in _LLAMA_LIKE if name != "qwen3_235b_a22b")]
_MOE = [*_MOE_GIVEN, "qwen3_235b_a22b"]


# --- attention ------------------------------------------------------------------------------------


@task("attention_params", holds=("query_channels", "kv_channels", "not_hidden", "no_layer_norms"))
@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("Llama-3-8B", 41_943_040),
        ("Llama-2-7B", 67_108_864),
        ("Gemma-7B", 50_331_648),
        ("Qwen3-8B", 41_943_296),
        ("Qwen2.5-7B", 29_364_736),
        ("GPT-2", 2_362_368),
    ],
)
def test_one_layer_of_a_real_model(student, model, params):
    """One layer's attention of six real models.
    Oracle: the sizes of the tensors in their checkpoints, added by hand."""
    got = student.attention_params(real_config(model))
    expect.equal(got, params, f"these are the projections of one layer of {model}", model)


@task("attention_params", holds=("query_channels", "kv_channels", "not_hidden", "biases"))
def test_any_heads_any_biases(student, rng):
    """Every projection and bias of any grouped-query shape.
    Oracle: every tensor of the layer listed with its shape."""
    flags = [(False, False), (True, False), (True, True), (False, True)]
    for qkv_bias, o_bias in flags * 2:
        config = oracles.random_config(rng, qkv_bias=qkv_bias, o_bias=o_bias)
        want = oracles.count(oracles.attention_shapes(config))
        expect.equal(
            student.attention_params(config),
            want,
            "q and o have heads * head_dim channels, k and v kv_heads * head_dim, each its bias",
            f"qkv_bias {qkv_bias}, o_bias {o_bias}",
        )


@task("attention_params", gate=False, holds=("qk_norm", "no_layer_norms"))
def test_norms_on_queries_and_keys(student, rng):
    """A norm on queries and one on keys add two head_dims, whatever the heads, the biases and the
    layer's own norms.
    Oracle: every tensor of the layer listed with its shape."""
    for bias, norm_bias, norms in ((False, False, 2), (True, False, 4), (False, True, 2)):
        config = oracles.random_config(
            rng,
            qk_norm=True,
            qkv_bias=bias,
            o_bias=bias,
            norm_bias=norm_bias,
            norms_per_layer=norms,
        )
        want = oracles.count(oracles.attention_shapes(config))
        expect.equal(student.attention_params(config), want, "the heads share one norm weight")


@task("attention_params", gate=False, holds=("latent",))
def test_latent_attention_of_deepseek_v3(student):
    """One layer of DeepSeek-V3's multi-head latent attention: 187,107,328.
    Oracle: the sizes of the tensors in the checkpoint, added by hand."""
    got = student.attention_params(real_config("DeepSeek-V3"))
    expect.equal(got, 187_107_328, "low-rank matrices down and up, two norms, one output")


@task(
    "attention_params",
    gate=False,
    holds=(
        "latent_without_biases",
        "latent_queries",
        "latent_query_matrix",
        "latent_down",
        "latent_up",
        "latent_output",
    ),
)
def test_latent_attention_of_any_width(student, rng):
    """Latent attention with five different widths, with and without compressed queries, has no
    biases, whatever the layer's norms and MLP have.
    Oracle: every tensor of the layer listed with its shape."""
    other = {"norm_bias": True, "mlp_bias": True, "qkv_bias": True, "o_bias": True}
    for fixed in ({}, {"q_lora_rank": None}, other, other | {"q_lora_rank": None}) * 2:
        config = oracles.random_mla(rng, **fixed)
        want = oracles.count(oracles.attention_shapes(config))
        what = "without q_lora_rank" if config.q_lora_rank is None else "with q_lora_rank"
        expect.equal(student.attention_params(config), want, "each width has its place", what)


@task("attention_params", gate=False, holds=("kv_channels",))
def test_4d2_becomes_2d2_1_plus_kv_over_h(student, rng):
    """With heads * head_dim = hidden, a layer has 2 d^2 (1 + kv/h) parameters.
    Oracle: the closed form; 4 d^2 is its case kv = h."""
    for kv_heads in (1, 2, 4, 8):
        head_dim = 4 * int(rng.integers(4, 30))
        d = 8 * head_dim
        config = oracles.random_config(
            rng,
            hidden_size=d,
            num_attention_heads=8,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
        )
        expect.equal(
            student.attention_params(config),
            2 * d * d * (8 + kv_heads) // 8,
            "key/value heads shrink k and v only",
            f"{kv_heads} key/value heads of 8",
        )


# --- MLP ------------------------------------------------------------------------------------------


@task("ffn_params", holds=("gated", "plain", "first_layer"))
@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("Llama-2-7B", 135_266_304),
        ("GPT-2", 4_722_432),
        ("Mixtral-8x7B", 1_409_318_912),
        ("Qwen3-30B-A3B", 604_241_920),
    ],
)
def test_one_layer_of_a_real_model_s_mlp(student, model, params):
    """One layer's MLP of two dense and two mixture-of-experts models.
    Oracle: the sizes of the tensors in their checkpoints, added by hand."""
    got = student.ffn_params(real_config(model))
    expect.equal(got, params, f"this is the MLP of one layer of {model}", model)


@task("ffn_params", holds=("gated", "plain", "biases", "first_layer"))
def test_gated_or_plain_with_or_without_biases(student, rng):
    """Dense MLPs of any width.
    Oracle: every tensor of the layer listed with its shape."""
    for gated in (True, False):
        for bias in (False, True):
            config = oracles.random_config(rng, gated_mlp=gated, mlp_bias=bias)
            want = oracles.count(oracles.ffn_shapes(config, 0))
            expect.equal(
                student.ffn_params(config),
                want,
                "three matrices if gated, else two, and one bias each as long as its output",
                f"gated_mlp {gated}, mlp_bias {bias}",
            )


@task("ffn_params", holds=("experts", "router", "same_kind"))
def test_experts_and_their_router(student, rng):
    """Every routed expert and the router's matrix count, in a gated and in a plain MLP.
    Oracle: every tensor of the layer listed with its shape."""
    for gated in (True, False) * 2:
        config = oracles.random_moe(rng, gated_mlp=gated)
        want = oracles.count(oracles.ffn_shapes(config, 1))
        expect.equal(student.ffn_params(config, 1), want, "all experts are in memory")


@task("ffn_params", gate=False, holds=("dense_layers", "shared", "router_bias", "same_kind"))
def test_first_layers_dense_shared_experts_router_bias(student, rng):
    """DeepSeek's three peculiarities: dense first layers, shared experts, a bias in the router.
    Oracle: every tensor of the layer listed with its shape."""
    for gated, mlp_bias, router_bias in (
        (True, False, True),
        (True, True, True),
        (False, False, True),
        (False, True, True),
        (True, True, False),
    ):
        config = oracles.random_moe(
            rng,
            first_k_dense_replace=2,
            n_shared_experts=int(rng.integers(2, 4)),
            router_bias=router_bias,
            gated_mlp=gated,
            mlp_bias=mlp_bias,
        )
        for layer in (0, 1, 2, config.num_hidden_layers - 1):
            want = oracles.count(oracles.ffn_shapes(config, layer))
            because = "layers before first_k_dense_replace have no experts, the others have all"
            expect.equal(student.ffn_params(config, layer), want, because, f"layer {layer}")


@task("ffn_params", gate=False, holds=("active",))
def test_one_token_uses_a_few_experts_and_the_whole_router(student, rng):
    """`active=True` leaves out the experts that a token is not sent to.
    Oracle: every tensor that one token meets, listed with its shape."""
    for shared, router, mlp in (
        (0, False, False),
        (2, False, False),
        (2, True, True),
        (1, False, True),
        (1, True, False),
    ):
        config = oracles.random_moe(
            rng,
            n_shared_experts=shared,
            first_k_dense_replace=1,
            router_bias=router,
            mlp_bias=mlp,
            gated_mlp=not mlp,
        )
        for layer in (0, 1):
            want = oracles.count(oracles.ffn_shapes(config, layer, active=True))
            got = student.ffn_params(config, layer, active=True)
            expect.equal(got, want, "the router scores all experts to choose a few", "active")


# --- the whole model ------------------------------------------------------------------------------


@task("total_params", holds=("exact", "head", "positions", "every_layer", "norm_bias"))
@pytest.mark.parametrize("model", _DENSE)
def test_published_totals(student, model):
    """Totals of real dense models, exact to the unit.
    Oracle: published.json: checkpoints' metadata, papers, models built by transformers."""
    row = oracles.PUBLISHED[f"p_{model}"]
    expect.published(student.total_params(_config(model)), row)


@task("total_params", holds=("exact", "every_layer"))
@pytest.mark.parametrize("model", _MOE)
def test_published_totals_of_mixtures_of_experts(student, model):
    """Memory holds every expert.
    Oracle: published.json: checkpoints' metadata."""
    expect.published(student.total_params(_config(model)), oracles.PUBLISHED[f"p_{model}"])


@task("total_params", holds=("exact", "head", "positions", "every_layer", "norm_bias"))
def test_any_model_tensor_by_tensor(student, rng):
    """Models that nobody has published, tied and untied, with and without positions and biases.
    Oracle: every tensor of the model listed with its shape."""
    makers = [oracles.random_config, oracles.random_gpt, oracles.random_moe]
    for make in makers * 2:
        for tied in (True, False):
            norms, bias, rows = (int(rng.choice(pair)) for pair in ((2, 4), (0, 1), (0, 77)))
            fixed = {"norm_bias": bool(bias), "position_rows": rows}
            config = make(rng, tie_word_embeddings=tied, norms_per_layer=norms, **fixed)
            want = oracles.count(oracles.model_shapes(config))
            expect.equal(
                student.total_params(config),
                want,
                "embedding, head unless tied, positions, every layer, one last norm",
                "tied" if tied else "untied",
            )


@task("total_params", gate=False, holds=("exact", "layers_differ"))
def test_deepseek_v3(student):
    """671,026,419,200: latent attention, three dense layers, 58 with 257 experts.
    Oracle: published.json, p_deepseek_v3."""
    got = student.total_params(real_config("DeepSeek-V3"))
    expect.published(got, oracles.PUBLISHED["p_deepseek_v3"])


@task("total_params", gate=False, holds=("layers_differ",))
def test_any_number_of_dense_first_layers(student, rng):
    """No layer, one, all but one, all of the layers are dense; there may be fewer layers than that.
    Oracle: every tensor of the model listed with its shape."""
    for _ in range(2):
        layers = int(rng.integers(3, 7))
        for dense in (0, 1, layers - 1, layers, layers + 2):
            config = oracles.random_moe(
                rng,
                num_hidden_layers=layers,
                first_k_dense_replace=dense,
                n_shared_experts=1,
            )
            for active in (False, True):
                expect.equal(
                    student.total_params(config, active),
                    oracles.count(oracles.model_shapes(config, active)),
                    "layer numbers below first_k_dense_replace have a dense MLP",
                    f"{dense} dense of {layers} layers, active={active}",
                )


@task("total_params", gate=False, holds=("active",))
def test_active_parameters(student, rng):
    """What one token uses: Qwen3-30B-A3B 3.35 B; DeepSeek-V3's 36.7 B leave the embedding out.
    Oracle: published.json; for random models every tensor that one token meets."""
    got = student.total_params(real_config("Qwen3-30B-A3B"), active=True)
    expect.published(got, oracles.PUBLISHED["p_qwen3_30b_a3b_active"])
    for _ in range(2):
        config = oracles.random_moe(rng, n_shared_experts=1, first_k_dense_replace=1)
        want = oracles.count(oracles.model_shapes(config, active=True))
        expect.equal(
            student.total_params(config, active=True), want, "the rest of the model is always on"
        )
    deepseek = real_config("DeepSeek-V3")
    got = student.total_params(deepseek, active=True) - deepseek.vocab_size * deepseek.hidden_size
    expect.published(got, oracles.PUBLISHED["p_deepseek_v3_active"])


@task("total_params", gate=False, holds=("head",))
@pytest.mark.parametrize("model", sorted(_PYTHIA))
def test_non_embedding_parameters(student, model):
    """Total less embedding and head is what the Pythia README calls non-embedding parameters.
    Oracle: published.json: "6.9B" and "6.4B" are the same model."""
    config = _config(model)
    got = student.total_params(config) - 2 * config.vocab_size * config.hidden_size
    expect.published(got, oracles.PUBLISHED[f"p_{model}_nonemb"])


@task("total_params", gate=False, holds=("head",))
def test_a_lost_tie_costs_one_embedding(student, rng):
    """Untying GPT-2 gives the 163,037,184 that tools print when they lose the tie.
    Oracle: published.json, p_gpt2_double_counted; for random models vocab * hidden."""
    got = student.total_params(replace(real_config("GPT-2"), tie_word_embeddings=False))
    expect.published(got, oracles.PUBLISHED["p_gpt2_double_counted"])
    config = oracles.random_config(rng, tie_word_embeddings=True)
    tied = student.total_params(config)
    untied = student.total_params(replace(config, tie_word_embeddings=False))
    expect.equal(untied - tied, config.vocab_size * config.hidden_size, "a head is one matrix")


@task("total_params", extra=("transformers",))
@pytest.mark.parametrize("model", list(CONFIGS))
def test_the_real_model_on_the_meta_device(student, model):
    """transformers builds the model without memory and counts the same.
    Oracle: transformers on the meta device."""
    got = student.total_params(real_config(model))
    expect.equal(got, oracles.transformers_params(CONFIGS[model]), "the library built it", model)


@task("total_params", extra=("transformers",))
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma", "gpt_neox"])
def test_an_invented_model_on_the_meta_device(student, rng, family):
    """transformers counts a model of a shape that nobody has trained the same.
    Oracle: transformers on the meta device."""
    kv_heads, groups = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    heads = kv_heads * groups
    hf = {
        "model_type": family,
        "hidden_size": 24 * heads,
        "intermediate_size": int(rng.integers(50, 300)),
        "num_hidden_layers": int(rng.integers(1, 4)),
        "num_attention_heads": heads,
        "vocab_size": int(rng.integers(100, 900)),
        "tie_word_embeddings": bool(rng.integers(2)),
    }
    if family != "gpt_neox":
        hf |= {"num_key_value_heads": kv_heads, "head_dim": 32}
    got = student.total_params(ModelConfig.from_hf(hf))
    expect.equal(got, oracles.transformers_params(hf), "the library built it", family)
