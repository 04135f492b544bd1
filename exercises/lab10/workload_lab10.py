"""Given: requests drawn with the statistics of production traces, and the problem of `config`.

Each drawer is a seeded stand-in for one public trace, for machines that do not have it: numbers of
requests, lengths by their quantiles, arrivals, and for Mooncake which blocks are shared with which
earlier request. A length is drawn from the published quantiles, with straight lines between them,
one request for each of n equal shares of the distribution, in random order; so even a small draw
has them. Standard library only: a seed gives the same requests everywhere.

Sources: Azure LLM inference traces 2023, conversation and code (Azure/AzurePublicDataset, CC-BY;
Patel et al., Splitwise, ISCA 2024); Mooncake, conversation (kvcache-ai/Mooncake, Apache-2.0; Qin et
al., FAST 2025). Of the code trace only the number of requests, its duration, and median, mean and
99th percentile of both lengths are reproduced; what lies between them is filled in.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from types_lab10 import CostModel, Model, Req, Slo

Knots = Sequence[tuple[float, float]]
GIB = 1024**3


@dataclass(frozen=True)
class Shape:
    """What is known of a trace. `prompt`, `out`: (share, tokens) points of the distributions.
    `profile`: how busy each equal part of the duration is, relative to the others. `regularity`:
    arrivals within a part are a gamma process of this shape, 1 for Poisson, less for bursts."""

    requests: int
    duration_s: float
    prompt: Knots
    out: Knots
    profile: Sequence[float]
    regularity: float


# fmt: off
AZURE_CONVERSATION = Shape(
    19_366, 3501.7,
    ((0, 2), (.01, 29), (.03, 161), (.05, 181), (.1, 207), (.15, 372), (.2, 387), (.25, 396),
     (.3, 403), (.35, 414), (.38, 433), (.4, 703), (.42, 903), (.45, 984), (.5, 1020), (.6, 1071),
     (.7, 1130), (.75, 1189), (.8, 1315), (.82, 1368), (.85, 1876), (.88, 2401), (.9, 2734),
     (.92, 4073), (.95, 4083), (.98, 4098), (.99, 4142), (.995, 4831), (.999, 6179), (1, 14050)),
    ((0, 7), (.01, 16), (.05, 41), (.1, 54), (.2, 77), (.3, 91), (.4, 103), (.5, 129), (.55, 151),
     (.6, 177), (.65, 217), (.68, 375), (.7, 384), (.75, 395), (.8, 400), (.9, 424), (.95, 451),
     (.98, 540), (.99, 601), (.995, 643), (.999, 954), (1, 1000)),
    (246, 320, 282, 304, 313, 303, 356, 402, 443, 467, 441, 400, 325, 339, 345, 349, 277, 255, 256,
     240),
    0.91,
)
AZURE_CODE = Shape(
    8_819, 3436.0,
    ((0, 3), (.25, 640), (.5, 1469), (.75, 2261), (.99, 7436), (1, 7437)),
    ((0, 1), (.25, 8), (.5, 13), (.75, 25), (.9, 40), (.95, 80), (.99, 249), (1, 760)),
    (1,), 1.0,
)
MOONCAKE_NEW: Knots = (
    (0, 891), (.05, 897), (.1, 905), (.2, 1092), (.3, 1757), (.4, 3913), (.5, 5264), (.6, 7418),
    (.7, 10771), (.8, 15871), (.9, 25559), (.95, 38494), (.98, 67126), (.99, 89868), (.998, 118462),
    (1, 126195))
MOONCAKE_CONTINUED: Knots = (
    (0, 892), (.02, 1327), (.05, 1634), (.1, 2102), (.2, 3455), (.3, 5502), (.4, 7507), (.5, 9873),
    (.6, 12556), (.7, 15780), (.8, 20219), (.9, 28908), (.95, 40992), (.98, 65839), (.99, 79133),
    (.998, 113548), (1, 123194))
MOONCAKE_OUT: Knots = (
    (0, 1), (.02, 3), (.05, 10), (.1, 24), (.2, 100), (.3, 213), (.4, 291), (.5, 350), (.6, 399),
    (.7, 447), (.8, 504), (.9, 597), (.95, 698), (.98, 892), (.99, 1119), (.998, 2000), (1, 2000))
# Which part of a continued prompt's blocks is cached, and how many requests ago they were used.
MOONCAKE_SHARED: Knots = (
    (0, .015), (.02, .087), (.05, .143), (.1, .286), (.2, .5), (.3, .6), (.4, .7), (.5, .8),
    (.6, .867), (.7, .917), (.8, .944), (.9, .971), (.95, .983), (.98, 1), (1, 1))
MOONCAKE_BACK: Knots = (
    (0, 5), (.02, 62), (.05, 100), (.1, 141), (.2, 204), (.3, 257), (.4, 324), (.5, 422), (.6, 550),
    (.7, 757), (.8, 1087), (.9, 1661), (.95, 2129), (.98, 3488), (.99, 5105), (1, 10514))
# fmt: on
MOONCAKE_REQUESTS, MOONCAKE_BLOCK = 12_031, 512
MOONCAKE_CONTINUED_SHARE = 0.3872


def at(knots: Knots, share: float) -> float:
    """The value that this share of a distribution lies below."""
    place = min(bisect_right(knots, (share, float("inf"))), len(knots) - 1)
    (low, first), (high, last) = knots[place - 1], knots[place]
    return first + (last - first) * (share - low) / (high - low)


def spread(knots: Knots, n: int, draw: random.Random) -> list[float]:
    """n draws, one from each of n equal shares of the distribution, in random order."""
    values = [at(knots, (index + draw.random()) / n) for index in range(n)]
    draw.shuffle(values)
    return values


def azure(shape: Shape, n: int | None = None, seed: int = 0, speed: float = 1.0) -> list[Req]:
    """n requests (default: all) of a shape, in order of arrival, the first at 0. `speed`
    divides the times between them."""
    draw = random.Random(f"azure {seed}")
    n = shape.requests if n is None else n
    mean = sum(shape.profile) / len(shape.profile)
    gap = shape.duration_s / shape.requests / speed
    arrivals, now = [], 0.0
    for _ in range(n):
        arrivals.append(now)
        part = int(now * speed / shape.duration_s * len(shape.profile)) % len(shape.profile)
        step = draw.gammavariate(shape.regularity, 1 / shape.regularity)
        now += gap * step * mean / shape.profile[part]
    prompts, outs = spread(shape.prompt, n, draw), spread(shape.out, n, draw)
    return [
        Req(number, round(arrival, 7), max(1, round(prompt)), max(1, round(out)))
        for number, (arrival, prompt, out) in enumerate(zip(arrivals, prompts, outs, strict=True))
    ]


def mooncake(n: int | None = None, seed: int = 0) -> list[Req]:
    """n requests (default: all) with the hashes of their 512-token blocks, a last partly filled one
    included, as in Mooncake's conversation trace. Groups of requests arrive every 3 seconds."""
    draw = random.Random(f"mooncake {seed}")
    n = MOONCAKE_REQUESTS if n is None else n
    rate = MOONCAKE_REQUESTS / 3537
    continued = round(n * MOONCAKE_CONTINUED_SHARE)
    # The first turns of conversations must have been there: fewer go on at the beginning.
    weights = [0.55 + 0.45 * min(1.0, 6 * index / n) for index in range(n)]
    goes_on = set(sorted(range(1, n), key=lambda i: draw.random() ** (1 / weights[i]))[-continued:])
    lengths = {True: spread(MOONCAKE_CONTINUED, continued, draw)}
    lengths[False] = spread(MOONCAKE_NEW, n - len(goes_on), draw)
    shared = spread(MOONCAKE_SHARED, continued, draw)
    back = spread(MOONCAKE_BACK, continued, draw)
    outs = spread(MOONCAKE_OUT, n, draw)
    requests: list[Req] = []
    fresh, now = 1, 0.0
    for number in range(n):
        prompt = round(lengths[number in goes_on].pop())
        blocks = -(-prompt // MOONCAKE_BLOCK)
        hashes = [0]
        if number in goes_on:
            share = shared.pop()
            # A long prompt is long because most of it has been sent before.
            want = max(2, round((share**0.5 if blocks > 40 else share) * blocks))
            parent = _with_blocks(requests, number - round(back.pop()), min(want, blocks))
            hashes = (parent.block_hashes or [0])[: parent.prompt_tokens // MOONCAKE_BLOCK][:want]
            hashes = hashes[:blocks] or [0]
        hashes = hashes + list(range(fresh, fresh + blocks - len(hashes)))
        fresh += max(0, hashes[-1] + 1 - fresh)
        requests.append(Req(number, now // 3 * 3.0, prompt, max(1, round(outs[number])), hashes))
        now += draw.expovariate(rate)
    return requests


def _with_blocks(requests: list[Req], wanted: int, blocks: int) -> Req:
    """The earlier request nearest to that place which has so many full blocks, or the largest."""
    wanted = min(max(wanted, 0), len(requests) - 1)
    for distance in range(len(requests)):
        for place in (wanted - distance, wanted + distance):
            if 0 <= place < len(requests):
                request = requests[place]
                if request.prompt_tokens // MOONCAKE_BLOCK >= blocks:
                    return request
    return max(requests, key=lambda request: request.prompt_tokens)


# -- the problem of `config` ----------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """One model, one GPU, some requests, one promise to users; what a configuration must
    serve. All bytes are what is said here, not what a data sheet of yours may say."""

    name: str  # of the model
    model: Model
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    gpu_bytes: int  # what the driver lets a process have
    other_bytes: int  # CUDA context, captured graphs, NCCL
    most_utilization: float  # the rest of the card belongs to somebody else
    cost: CostModel
    slo: Slo
    requests: int
    seed: int

    def activation_bytes(self, max_num_batched_tokens: int, max_num_seqs: int) -> int:
        """The largest step's activations: gate and up projection and two hidden states a token in
        bf16, float32 logits a sequence. vLLM measures this once at start, with a step of
        max_num_batched_tokens tokens."""
        token = 2 * (2 * self.intermediate_size + 2 * self.hidden_size)
        return max_num_batched_tokens * token + max_num_seqs * 4 * self.vocab_size

    def trace(self) -> list[Req]:
        """The first requests of a drawn hour of Azure's conversation trace, always the same."""
        return azure(AZURE_CONVERSATION, self.requests, self.seed)


_PARAMS = 32_763_876_352  # Qwen2.5-32B, counted as in lab 01
PROBLEM = Problem(
    name="Qwen/Qwen2.5-32B-Instruct",
    model=Model(2 * _PARAMS, num_hidden_layers=64, num_key_value_heads=8, head_dim=128),
    hidden_size=5120,
    intermediate_size=27648,
    vocab_size=152064,
    gpu_bytes=79 * GIB,
    other_bytes=1 * GIB,
    most_utilization=0.95,
    cost=CostModel(
        weight_bytes=2 * _PARAMS,
        flops_per_token=2 * _PARAMS,
        kv_bytes_per_token=2 * 64 * 8 * 128 * 2,
        peak_flops=989e12,  # H100 SXM, dense bf16
        hbm_bytes_per_s=3.35e12,
        overhead_s=0.005,
    ),
    slo=Slo(ttft_ms=1000.0, tpot_ms=40.0),
    requests=600,
    seed=10,
)

# What a configuration is compared with: every combination that PROBLEM can start.
GRID = {
    "gpu_memory_utilization": (0.90, 0.92, 0.95),
    "max_num_batched_tokens": (256, 512, 1024, 2048, 8192),
    "max_num_seqs": (16, 32, 64, 128, 256),
}
