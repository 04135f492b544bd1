"""capacity: how many blocks a GPU has left.

Oracles: tensors of a block counted one by one; figures by hand; published rows; monotonicity.
"""

from __future__ import annotations

import pytest
from types_lab10 import Model

from grader.suite import expect, task

from . import oracles_serving as oracles

GIB = 1024**3
LLAMA3_8B = Model(2 * 8_030_261_248, 32, 8, 128)
LLAMA31_70B = Model(2 * 70_553_706_496, 80, 8, 128)
NO_WEIGHTS = {
    "kv_opt13b": Model(0, 40, 40, 128),
    "kv_llama3_8b": Model(0, 32, 8, 128),
    "kv_llama31_405b": Model(0, 126, 8, 128),
    "kv_qwen25_72b": Model(0, 80, 8, 128),
    "kv_gpt2_xl": Model(0, 48, 25, 64),
    "vllm_cpu_blocks_llama3_8b": Model(0, 32, 8, 128),
    "vllm_cpu_blocks_llama2_7b_llava": Model(0, 32, 32, 128),
    "vllm_cpu_blocks_llama2_13b": Model(0, 40, 40, 128),
}
WEIGHTS = "each GPU holds its part of the weights"
BLOCK = "K and V of every layer, of this GPU's key/value heads, for block_size tokens"
LEFT = (
    "of utilization * GPU: less this GPU's part of the weights, the activations and the rest; "
    "whole blocks"
)
CONCURRENCY = "a request of max_model_len tokens takes whole blocks"


def _check(got, blocks, block_bytes, concurrency):
    whole = isinstance(got.num_blocks, int) and isinstance(got.kv_bytes_per_block, int)
    kinds = f"{type(got.num_blocks).__name__} and {type(got.kv_bytes_per_block).__name__}"
    expect.true(whole, "num_blocks and kv_bytes_per_block are ints", kinds)
    expect.bytes(got.kv_bytes_per_block, block_bytes, BLOCK, "kv_bytes_per_block")
    expect.equal(got.num_blocks, blocks, LEFT, "num_blocks")
    expect.close(got.max_concurrency, concurrency, CONCURRENCY, n=4, what="max_concurrency")


@task("capacity", holds=("utilization", "uses", "block", "concurrency", "ints"))
def test_llama_3_8b_on_80_gib(student):
    """80 GiB, 0.9, activations 5 GiB, other 1 GiB: 72 - 14.96 - 6 GiB are 26,133 blocks of 2 MiB.
    Oracle: by hand."""
    got = student.capacity(
        LLAMA3_8B, 80 * GIB, 8192, 0.9, activation_bytes=5 * GIB, other_bytes=1 * GIB
    )
    _check(got, 26_133, 2 * 1024**2, 26_133 / 512)


@task("capacity", holds=("weights", "uses", "block", "heads", "replicated", "concurrency"))
@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_any_model_on_any_number_of_gpus(student, rng, tp):
    """Weights and heads are split; a head is the least that a GPU has.
    Oracle: a block's tensors one by one, the budget built up from the blocks."""
    for _ in range(4):
        heads = int(rng.choice([2, 4, 8]))
        layers, head_dim = int(rng.integers(3, 90)), 8 * int(rng.integers(5, 30))
        size, dtype_bytes = int(rng.choice([8, 16, 32, 64])), int(rng.choice([1, 2]))
        model = Model(tp * int(rng.integers(10**9, 9 * 10**9)), layers, heads, head_dim)
        per_block = oracles.block_bytes(model, size, dtype_bytes, tp)
        want = int(rng.integers(200, 30_000))
        activation, other = (int(n) for n in rng.integers(10**8, 4 * 10**9, 2))
        util = float(rng.choice([0.85, 0.9, 0.92, 0.95]))
        # The middle third of the last block, so that no rounding decides.
        need = model.weight_bytes // tp + activation + other
        room = need + int((want + float(rng.uniform(0.3, 0.7))) * per_block)
        length = int(rng.integers(100, 20_000))
        got = student.capacity(
            model,
            round(room / util),
            length,
            gpu_memory_utilization=util,
            tensor_parallel_size=tp,
            kv_dtype_bytes=dtype_bytes,
            block_size=size,
            activation_bytes=activation,
            other_bytes=other,
        )
        _check(got, want, per_block, want / -(-length // size))


@task("capacity", holds=("defaults",))
def test_what_is_not_said(student):
    """Utilization 0.92, one GPU, 2 bytes a value, 16 tokens a block, nothing beside the weights.
    Oracle: by hand: 73.6 GiB less 14.957 GiB in blocks of 2 MiB."""
    got = student.capacity(LLAMA3_8B, 80 * GIB, 16 * 1000)
    left = 0.92 * 80 * GIB - 2 * 8_030_261_248
    _check(got, int(left // 2**21), 2**21, int(left // 2**21) / 1000)


@task("capacity", holds=("whole_numbers", "exactly", "concurrency"))
def test_at_the_bound(student):
    """Exactly three blocks, a byte less, a byte more; exactly one; a request that ends with a block
    and one that begins another.
    Oracle: by hand, in bytes that floats have exactly."""
    model = Model(4096, 2, 4, 8)
    block = 2 * 2 * 4 * 8 * 2 * 16
    fixed = 4096 + 100 + 20
    for spare, blocks in (
        (3 * block, 3),
        (3 * block - 1, 2),
        (3 * block + 1, 3),
        (block, 1),
        (block - 1, 0),
        (0, 0),
        (-1, 0),
        (-block, 0),
        (-4000, 0),
    ):
        for length, each in ((32, 2), (33, 3), (1, 1), (16, 1), (17, 2), (31, 2)):
            got = student.capacity(
                model, fixed + spare, length, 1.0, activation_bytes=100, other_bytes=20
            )
            _check(got, blocks, block, blocks / each)
    # Half of the card, and half of the weights on each of two GPUs, which have two heads each.
    got = student.capacity(model, 2 * (2048 + 5 * block // 2), 16, 0.5, 2)
    _check(got, 5, block // 2, 5.0)


@task("capacity", holds=("zero",))
def test_nothing_left_is_no_block(student):
    """A budget below zero: no blocks, concurrency 0.
    Oracle: published.json, vllm_negative_kv: -1.05 GiB."""
    gpu = 8 * GIB
    model = Model(round(5.2 * GIB), 28, 4, 128)
    got = student.capacity(
        model,
        gpu,
        2048,
        0.7,
        activation_bytes=round(1.42 * GIB),
        other_bytes=round(0.03 * GIB),
    )
    expect.equal(got.num_blocks, 0, "there is no such thing as a negative block", "num_blocks")
    expect.equal(got.max_concurrency, 0, "and nobody is served", "max_concurrency")
    left = 0.7 * 8.0 - 5.2 - 1.42 - 0.03
    expect.published(left, oracles.PUBLISHED["vllm_negative_kv"])


@task("capacity", gate=False, holds=("block", "heads"))
def test_published_bytes_of_a_token(student):
    """OPT-13B, Llama-3-8B, Llama-3.1-405B, Qwen2.5-72B, GPT-2 XL; K of Qwen3-235B over 4 GPUs.
    Oracle: published.json."""
    for name in ("kv_opt13b", "kv_llama3_8b", "kv_llama31_405b", "kv_qwen25_72b", "kv_gpt2_xl"):
        block = student.capacity(NO_WEIGHTS[name], 100 * GIB, 2048).kv_bytes_per_block
        got = block / 16 / (1024 if name == "kv_gpt2_xl" else 1)
        expect.published(got, oracles.PUBLISHED[name])
    block = student.capacity(NO_WEIGHTS["kv_opt13b"], 100 * GIB, 2048).kv_bytes_per_block
    expect.published(block * 128 / GIB, oracles.PUBLISHED["kv_opt13b_2048"])
    for name, layers in (("hfblog_8b", 32), ("hfblog_70b", 80)):
        block = student.capacity(Model(0, layers, 8, 128), 100 * GIB, 2048).kv_bytes_per_block
        got = [block / 16 * tokens / GIB for tokens in (1024, 16_000, 128_000)]
        expect.published(got, oracles.PUBLISHED[name])
    # Where this formula is not the model's, or the published figure is wrong: see the page.
    twice = student.capacity(Model(0, 126, 16, 128), 100 * GIB, 2048).kv_bytes_per_block
    got = [twice / 16 * tokens / GIB for tokens in (1024, 16_000, 128_000)]
    expect.published(got, oracles.PUBLISHED["hfblog_405b_wrong"])
    block = student.capacity(Model(0, 32, 32, 128), 100 * GIB, 2048).kv_bytes_per_block
    expect.published(block / 2 * 4 * 4097 / 16 / GIB, oracles.PUBLISHED["eai_kv_bug"])
    expect.published(61 * (512 + 64) * 2, oracles.PUBLISHED["kv_deepseek_v3"])
    weights = LLAMA3_8B.weight_bytes + 8192 * 128 * 2
    expect.published(weights / GIB, oracles.PUBLISHED["vllm_l3_8b_weights"])
    qwen = Model(0, 94, 4, 128)
    block = student.capacity(qwen, 100 * GIB, 2048, tensor_parallel_size=4).kv_bytes_per_block
    keys = 367_404 * block / 16 / 2 / GIB
    expect.published(keys, oracles.PUBLISHED["sglang_qwen3_235b_k"])
    block = student.capacity(LLAMA3_8B, 100 * GIB, 2048, tensor_parallel_size=4).kv_bytes_per_block
    cache = 52.89 * 40_000 * block / 16 / GIB
    expect.published(cache, oracles.PUBLISHED["vllm_l31_8b_tp4_conc"])


@task("capacity", gate=False, holds=("whole_numbers",))
def test_published_blocks(student):
    """vLLM's old logs of CPU blocks, 4 GiB of them; PagedAttention's token slots.
    Oracle: published.json."""
    for suffix in ("llama3_8b", "llama2_7b_llava", "llama2_13b"):
        name = f"vllm_cpu_blocks_{suffix}"
        got = student.capacity(NO_WEIGHTS[name], 4 * GIB, 2048, 1.0).num_blocks
        expect.published(got, oracles.PUBLISHED[name])
    for name, model, gib in (
        ("paged_opt13b_slots", Model(0, 40, 40, 128), 12),
        ("paged_opt66b_slots", Model(0, 64, 72, 128), 21),
    ):
        got = 16 * student.capacity(model, gib * GIB, 2048, 1.0).num_blocks
        expect.published(got, oracles.PUBLISHED[name])


@task("capacity", gate=False, holds=("concurrency",))
def test_published_concurrency(student):
    """1,381 blocks at 2,048 tokens are 10.79x, 33,660 at 4,096 131.48x, 6,739 at 32,768 3.29x.
    Oracle: vLLM's logs in published.json."""
    block = 2 * 32 * 8 * 128 * 2 * 16
    for name, blocks, length in (
        ("vllm_70b_w8a8_conc", 1381, 2048),
        ("vllm_granite_conc", 33_660, 4096),
        ("vllm_dsv3_conc", 6739, 32_768),
    ):
        gpu_bytes = blocks * block + block // 2
        got = student.capacity(Model(0, 32, 8, 128), gpu_bytes, length, 1.0).max_concurrency
        expect.published(got, oracles.PUBLISHED[name])


@task("capacity", gate=False, holds=("utilization", "bad_utilization", "neither_divides"))
def test_more_room_more_blocks(student):
    """Up with the utilization, twice as many with an 8-bit cache, fewer with longer requests.
    Oracle: monotonicity."""
    blocks = [
        student.capacity(LLAMA3_8B, 40 * GIB, 8192, part / 100).num_blocks
        for part in range(30, 101, 5)
    ]
    expect.equal(blocks, sorted(blocks), "a larger part of the card holds at least as many")
    two, one = (
        student.capacity(LLAMA3_8B, 40 * GIB, 8192, kv_dtype_bytes=size).num_blocks
        for size in (2, 1)
    )
    expect.within(one - 2 * two, 0, 1, "a block of half the size fits twice", "blocks")
    for util in (0.0, -0.1, 1.01, 92, 1.0 + 2**-52, 0, 2, float("nan"), float("inf")):
        with expect.raises(ValueError, because="the utilization is a part of the card"):
            student.capacity(LLAMA3_8B, 40 * GIB, 8192, util)
    for util in (1.0, 1, 1e-9):
        left = max(0, util * 40 * GIB - LLAMA3_8B.weight_bytes)
        got = student.capacity(LLAMA3_8B, 40 * GIB, 8192, util).num_blocks
        expect.equal(got, left // 2**21, "the whole card is allowed, and any part of it", "blocks")
    for heads, gpus in ((8, 3), (8, 12), (4, 6), (6, 4), (2, 3), (3, 2), (25, 10)):
        with expect.raises(ValueError, f"{heads} heads cannot be shared out over {gpus} GPUs"):
            student.capacity(Model(0, 2, heads, 64), GIB, 8192, tensor_parallel_size=gpus)
    for heads, gpus, here in ((1, 8, 1), (8, 8, 1), (25, 5, 5), (3, 6, 1), (1, 1, 1), (6, 2, 3)):
        got = student.capacity(Model(0, 2, heads, 64), GIB, 8192, tensor_parallel_size=gpus)
        want = 2 * 2 * here * 64 * 2 * 16
        expect.bytes(got.kv_bytes_per_block, want, BLOCK, f"{heads} heads on {gpus} GPUs")
