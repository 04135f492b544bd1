"""Given: what goes into and comes out of a serving engine in lab 10.

Nothing here is a task. Times are seconds from the trace's own zero, lengths are tokens, and blocks
are KV-cache blocks of `block_size` tokens, known by their number.
"""

from __future__ import annotations

from dataclasses import dataclass

NULL_BLOCK = 0  # the block that stands for "no block"; it is never handed out
GENERATED_TOKEN = 7  # what every request here generates: a scheduler decides by numbers of tokens


@dataclass(slots=True)
class Req:
    """One request, as a trace has it. No other one has its id.

    prompt_tokens: the prompt's token ids, or only how many there are. out_tokens: how many tokens
    it generates; it ends after exactly so many. block_hashes: with a number of prompt tokens, a
    hash for each block of the prompt if the trace has them (a last one for a block that is only
    partly filled is not used); with token ids, None. A prompt that is a number without hashes
    has a content that nobody knows: no block of it is ever hashed. salt: requests share cached
    blocks only where their salts are the same; used with token ids.
    """

    id: int
    t_arrival_s: float
    prompt_tokens: int | list[int]
    out_tokens: int
    block_hashes: list[int] | None = None
    salt: str | None = None


@dataclass(slots=True, frozen=True)
class SchedulerConfig:
    """The limits that a scheduler keeps, under the names that vLLM gives them.

    num_blocks: blocks of the pool, the null block among them. block_size: tokens a block.
    max_num_batched_tokens: tokens a step. max_num_seqs: requests that run at once.
    enable_prefix_caching: full blocks are hashed and found again. reserve_full_isl: a request is
    admitted only if all of its tokens fit now, and not merely its first chunk (vLLM:
    scheduler_reserve_full_isl).
    """

    num_blocks: int
    block_size: int
    max_num_batched_tokens: int
    max_num_seqs: int
    enable_prefix_caching: bool = True
    reserve_full_isl: bool = True


@dataclass(slots=True)
class Step:
    """What one step of the engine did.

    scheduled: tokens computed a request, by its id, in the order in which they were scheduled.
    preempted: ids of requests that lost their blocks, in that order. finished: ids of requests
    that generated their last token. free_blocks: blocks in the free queue after the step, those of
    finished requests included. generated: ids of requests that generated a token, in the order of
    `scheduled`; a chunk that leaves prompt tokens to compute generates none. context_tokens: tokens
    that the scheduled requests' KV cache holds once the step has run, those just computed included.
    """

    scheduled: dict[int, int]
    preempted: list[int]
    finished: list[int]
    free_blocks: int
    generated: list[int]
    context_tokens: int


# -- traces, metrics, capacity, simulate ----------------------------------------------------------


@dataclass(slots=True)
class Output:
    """What a benchmark client saw of one request.

    ttft_s: from sending the request to its first token. itl_s: the times between one token and the
    next, output_tokens - 1 of them if each token came alone. latency_s: from sending the request to
    its last token. A request without success counts in no figure.
    """

    prompt_tokens: int
    output_tokens: int
    ttft_s: float
    itl_s: list[float]
    latency_s: float
    success: bool = True


@dataclass(slots=True, frozen=True)
class Slo:
    """A service level objective in milliseconds, as `vllm bench serve --goodput ttft:200 tpot:50`;
    what is None is not asked for. A value that is just reached is good."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2el_ms: float | None = None


@dataclass(slots=True, frozen=True)
class Model:
    """What a model's memory depends on. weight_bytes: all weights, on however many GPUs.
    kv_dtype_bytes is not here: the cache may have another dtype than the weights."""

    weight_bytes: int
    num_hidden_layers: int
    num_key_value_heads: int
    head_dim: int


@dataclass(slots=True, frozen=True)
class Capacity:
    """The KV cache of one GPU. num_blocks: whole blocks, of `kv_bytes_per_block` each on this GPU.
    max_concurrency: how many requests of the greatest length fit at once."""

    num_blocks: int
    kv_bytes_per_block: int
    max_concurrency: float


@dataclass(slots=True, frozen=True)
class CostModel:
    """What a step costs on a GPU, see `step_seconds`. Bytes, FLOPs, bytes and FLOPs a second.

    flops_per_token is a constant, the weights' 2 FLOPs a parameter: attention's own FLOPs, which
    grow with the context, are left out."""

    weight_bytes: float
    flops_per_token: float
    kv_bytes_per_token: float
    peak_flops: float
    hbm_bytes_per_s: float
    overhead_s: float = 0.0


@dataclass(slots=True)
class Result:
    """One simulated request. ttft_s: from its arrival to its first token. itl_s: the times between
    its tokens. e2el_s: from its arrival to its last token."""

    id: int
    ttft_s: float
    itl_s: list[float]
    e2el_s: float
