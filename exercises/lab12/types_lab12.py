"""Given: models, clusters, plans and what is computed from them in lab 12.

Nothing here is a task. Bytes are bytes (no multiple of 1024 or 1000), times are seconds, and a
bandwidth is bytes a second in *one* direction.
"""

from __future__ import annotations

from dataclasses import dataclass

AXES = ("tp", "cp", "ep", "dp", "pp")
DEFAULT_ORDER = "tp-cp-ep-dp-pp"  # Megatron's: the leftmost axis varies fastest over the ranks
RULES = (  # what a Violation's `rule` may be
    "value",
    "gpus",
    "tp_heads",
    "tp_kv_heads",
    "pp_layers",
    "vpp_pp",
    "vpp_micro",
    "gbs",
    "ep_experts",
    "expert_grid",
    "cp_seq",
    "sp_ep",
    "shard",
)


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer: RMSNorm, no biases, rotary positions, untied embeddings.

    L: layers. h: hidden size. heads: query heads, each h / heads wide. kv_heads: key/value heads.
    ffn: inner width of the MLP. vocab: rows of the embedding and of the head. seq: tokens of one
    training sequence. experts: experts a layer; 0 is a dense model, otherwise *every* layer's MLP
    is `experts` MLPs of inner width moe_ffn and a router, and a token goes to topk of them. gated:
    the MLP has three matrices (SwiGLU), otherwise two.
    """

    L: int
    h: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq: int
    experts: int = 0
    topk: int = 0
    moe_ffn: int = 0
    gated: bool = True


@dataclass(frozen=True)
class Cluster:
    """Equal nodes of equal GPUs; each GPU has a network card of its own.

    nodes: nodes. gpus: GPUs of *one* node. hbm_bytes: memory of a GPU that a plan may use.
    intra_Bps: what a GPU sends to its node's others, bytes a second one way (half of what a data
    sheet prints for NVLink). inter_Bps: what its network card sends, bytes a second one way. lat_s:
    seconds that each step of a collective takes before its first byte. flops: dense bf16 peak of a
    GPU, FLOP/s. reach: the share of it that large products reach while a model is trained.
    hbm_Bps: what a GPU reads and writes of its own memory, bytes a second. sms: its streaming
    multiprocessors, each of which computes one tile of a product at a time.
    """

    nodes: int = 8
    gpus: int = 8
    hbm_bytes: float = 80e9
    intra_Bps: float = 450e9
    inter_Bps: float = 50e9
    lat_s: float = 5e-6
    flops: float = 989e12
    reach: float = 0.6
    hbm_Bps: float = 3.35e12
    sms: int = 132


@dataclass(frozen=True)
class Plan:
    """How one training step is spread over GPUs.

    tp, pp, cp, dp: sizes of the dense grid's axes; dp is *dense* data parallelism. micro: sequences
    of one micro-batch on one data-parallel rank. gbs: sequences of a step, over all of them. ep:
    expert parallelism. etp: tensor parallelism inside an expert; None is tp. vpp: virtual stages
    of each pipeline rank, 1 is plain 1F1B. sp: sequence parallelism, in force where tp > 1.
    recompute: "none", "selective" (the attention core, as a fused kernel does) or "full" (every
    layer from its input). zero: what is sharded over the replicas, 0 nothing, 1 the optimizer
    states (Megatron's distributed optimizer), 2 gradients, too, 3 weights, too (FSDP). shard: over
    how many of the dp * cp replicas, neighbours in the order of ranks; None is all of them, fewer
    is hybrid sharding (HSDP with zero 3): each such group has the whole. count_embedding,
    count_loss: the split of the layers counts the embedding (on the first stage), the head and loss
    (on the last) as a layer each. layout: layers of each stage, pp numbers, where a split is
    written by hand; None splits evenly.
    """

    tp: int
    pp: int
    cp: int
    dp: int
    micro: int
    gbs: int
    ep: int = 1
    etp: int | None = None
    vpp: int = 1
    sp: bool = True
    recompute: str = "selective"
    zero: int = 1
    shard: int | None = None
    count_embedding: bool = False
    count_loss: bool = False
    layout: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Violation:
    """One rule that a plan breaks. rule: one of RULES. message: a sentence with the numbers."""

    rule: str
    message: str


@dataclass(frozen=True)
class StageBytes:
    """What one GPU of a pipeline stage holds, in bytes.

    param: weights, bf16, with those that zero 3 has gathered. grad: gradients, fp32, with those
    that wait to be sharded. opt: fp32 master weights and Adam's two moments.
    act: activations at their peak.
    """

    param: float
    grad: float
    opt: float
    act: float

    @property
    def total(self) -> float:
        return self.param + self.grad + self.opt + self.act


@dataclass(frozen=True)
class Slot:
    """One piece of work of a pipeline rank, from start to end (in the unit of tf and tb).

    stage: the rank, 0 to p - 1. kind: "F" or "B". micro: the micro-batch, 0 to m - 1. chunk: which
    of the rank's v virtual stages, 0 to v - 1; chunk c of rank s is the virtual stage c * p + s.
    """

    stage: int
    kind: str
    micro: int
    chunk: int
    start: float
    end: float


@dataclass(frozen=True)
class PipelineRun:
    """A simulated pipeline.

    slots: all work, rank by rank, in the order in which a rank does it. total: from the first start
    to the last end. bubble_of_ideal: a rank's idle time over the time of its work. bubble_of_total:
    the same over total. peak_in_flight: for each rank, the most chunks whose forward is done and
    whose backward is not, at any time (a chunk counts from its forward's start to its backward's
    end).
    """

    slots: tuple[Slot, ...]
    total: float
    bubble_of_ideal: float
    bubble_of_total: float
    peak_in_flight: tuple[int, ...]


# -- traffic, time, planner -----------------------------------------------------------------------


@dataclass(frozen=True)
class Op:
    """One kind of message that a GPU takes part in.

    kind: "all_reduce", "all_gather", "reduce_scatter", "all_to_all" or "send", as `coll_time` has
    them. axis: "tp", "cp", "pp", "dp-cp" and "replicate" of the dense grid; "ep", "etp" and "edp"
    of the experts' grid. bytes: the size of one, as `coll_time` wants it. count_per_step: how often
    in one training step. spans_nodes: whether any of the axis's groups has ranks on two nodes.
    ranks: how many a group has (2 for a send). per_node: how many of them are on each node, as
    `coll_time` wants it; 1 where that is not the same for all nodes and groups. Of a send per_node
    is 2 where no group of the axis leaves its node, and 1 otherwise.
    """

    kind: str
    axis: str
    bytes: float
    count_per_step: int
    spans_nodes: bool
    ranks: int
    per_node: int


@dataclass(frozen=True)
class Breakdown:
    """Where the time of a step goes, in seconds; the parts add up to total_s.

    compute_s: kernels. tp_s: tensor parallelism. cp_s: what of the ring is not hidden behind
    attention. ep_s: all-to-alls, and what etp gathers. pp_s: sends between stages. pp_bubble_s:
    waiting for the first and the last micro-batch. dp_exposed_s: what of the gradients' and
    weights' collectives is not hidden. mfu: model FLOPs over what the GPUs' peak allows in total_s,
    0 to 1.
    """

    compute_s: float
    tp_s: float
    cp_s: float
    ep_s: float
    pp_s: float
    pp_bubble_s: float
    dp_exposed_s: float
    total_s: float
    mfu: float
