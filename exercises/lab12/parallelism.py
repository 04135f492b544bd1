"""Lab 12: where each of 64 GPUs stands, what it holds, what it sends, and how long a step takes."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
from dataclasses import replace

from kernels_lab12 import kernel_times
from types_lab12 import (
    DEFAULT_ORDER,
    Breakdown,
    Cluster,
    Model,
    Op,
    PipelineRun,
    Plan,
    Slot,
    StageBytes,
    Violation,
)

# -- groups, rules, memory, pipeline --------------------------------------------------------------


def rank_groups(
    sizes: dict[str, int], order: str = DEFAULT_ORDER, token: str = "dp"
) -> list[list[int]]:
    """The groups in which the ranks 0, 1, ... communicate along `token`.

    sizes: the size of each parallel axis; an axis that is missing has size 1, and the world is the
    product of all. order: the axes joined by "-"; a rank is a number in mixed radix whose digits
    are the rank's places along them, and the *leftmost* axis is the digit that changes fastest. An
    axis may have any name without a "-", also one that is a part of another's ("tp" and "etp").
    token: one axis ("dp") or several joined by "-", in any order ("dp-cp"). A group is the ranks
    that differ in the token's digits only. Ranks of a group ascend, groups ascend by their first
    rank.
    Raises ValueError for an axis that comes twice or is not in `order` (in token; in sizes with a
    size above 1), and for a size below 1.
    Source: Megatron-LM, megatron/core/parallel_state.py, RankGenerator.
    """
    # TODO(lab12.rank_groups): Who talks to whom
    raise NotImplementedError("lab12.rank_groups")


def expert_groups(
    sizes: dict[str, int],
    ep: int,
    etp: int | None = None,
    token: str = "ep",
    order: str = DEFAULT_ORDER,
) -> list[list[int]]:
    """The groups of a model's experts, which stand on the ranks of the dense grid.

    sizes: the dense grid's tp, cp, dp and pp, an axis that is missing having size 1. ep, etp:
    ranks over which experts are dealt out and cut; etp None is tp. token: one of "etp", "ep",
    "edp" and "pp", or several joined by "-". The experts' grid is etp, ep, edp, pp on the same
    world, edp being what is left; its axes stand in `order` where tp, ep, dp and pp stand, and cp
    has no place in it. Groups come as in `rank_groups`.
    Raises ValueError for an ep or etp below 1, where etp * ep does not divide tp * cp * dp, for
    another token or one that comes twice, and where the two grids would have other pipeline groups
    (which an order that ends in pp never does).
    Source: Megatron-LM, megatron/core/parallel_state.py, initialize_model_parallel.
    """
    # TODO(lab12.expert_groups): The experts' own grid
    raise NotImplementedError("lab12.expert_groups")


def coll_time(op: str, nbytes: float, n: int, per_node: int, cluster: Cluster) -> float:
    """Seconds that one collective takes.

    op, and what `nbytes` is: "all_reduce" (the tensor), "all_gather" (what each rank has in the
    end), "reduce_scatter" (what each rank has in the beginning), "all_to_all" (what each rank has
    in the beginning; the nth part goes to each rank, itself included), "send" (the message; n is
    2). n: ranks of the group. per_node: how many of them stand on each node that the group touches,
    so n is a multiple of it and the group spans n / per_node nodes.

    On one link (per_node is n or 1) of B bytes a second one way, cluster.intra_Bps inside a node
    and cluster.inter_Bps between nodes:

        reduce_scatter, all_gather, all_to_all    (n-1)/n * nbytes / B + (n-1) * lat_s
        all_reduce                                a reduce_scatter, then an all_gather
        send                                      nbytes / B + lat_s

    Otherwise, with g = per_node and N = n / g, in stages one after the other:

        reduce_scatter    nbytes over g ranks inside, then nbytes/g over N ranks between nodes
        all_gather        nbytes/g over N between, then nbytes over g inside
        all_reduce        such a reduce_scatter, then such an all_gather
        all_to_all        (g-1)/n of nbytes inside, (n-g)/n between, and (n-1) * lat_s

    One rank alone takes 0 s, whatever the operation; 0 bytes among several still take the latency.
    Raises ValueError for another op, for n or per_node below 1, for an n that per_node does not
    divide, and for a "send" of n > 2. All of that is asked of one rank alone, too.
    Source: nccl-tests, doc/PERFORMANCE.md (the factors of bus bandwidth).
    """
    # TODO(lab12.coll_time): Seconds of a collective
    raise NotImplementedError("lab12.coll_time")


def validate(plan: Plan, model: Model, cluster: Cluster) -> list[Violation]:
    """Every rule that `plan` breaks, at most one Violation for each; a plan that can be started
    has none. Each message gives the numbers that do not go together, in digits: what is dealt out
    and to how many ("gpus": the plan's product and the cluster's; "sp_ep": tp and ep).

    rule "value": a size (tp, pp, cp, dp, micro, gbs, ep, vpp, etp, shard) is 1 at least, recompute
        is "none", "selective" or "full", zero is 0, 1, 2 or 3. Where one is broken, nothing else is
        judged.
    "gpus": the dense grid tp, pp, cp, dp takes all GPUs of the cluster.
    "tp_heads": each tensor rank has equally many query heads.
    "tp_kv_heads": each has equally many key/value heads, or each head has equally many ranks.
    "pp_layers": each of the pp * vpp virtual stages has equally many layers, where the embedding
        (count_embedding) and the head (count_loss) are counted as a layer each. With a layout
        instead: pp numbers from 1 on that add up to L, each a multiple of vpp; a layout counts
        layers only, whatever count_embedding and count_loss are.
    "vpp_pp": virtual stages need a pipeline.
    "vpp_micro": with vpp > 1 a rank's micro-batches come in whole rounds of pp; the message gives
        their number. A plan that breaks "gbs" has no such number, so it cannot break this rule.
    "gbs": the global batch is a whole number of micro-batches on each data-parallel rank.
    "ep_experts": each expert-parallel rank has equally many experts (a dense model has no ep).
    "expert_grid": in a model with experts, the etp * ep ranks that share a layer's experts tile the
        tp * cp * dp ranks of a stage.
    "cp_seq": with cp > 1 each rank takes two equal pieces of a sequence, an early and a late one.
    "sp_ep": tp > 1 with ep > 1 needs sp.
    "shard": a shard is an equal part of the dp * cp replicas, in a model without experts, and zero
        is not 0: something has to be sharded.
    Source: Megatron-LM, arguments.py and transformer_config.py, and its parallelism guide.
    """
    # TODO(lab12.validate): What cannot be started
    raise NotImplementedError("lab12.validate")


def stage_layers(plan: Plan, model: Model) -> list[int]:
    """Given: how many layers each pipeline stage of a plan has that `validate` accepts."""
    if plan.layout is not None:
        return list(plan.layout)
    share = (model.L + plan.count_embedding + plan.count_loss) // plan.pp
    layers = [share] * plan.pp
    layers[0] -= plan.count_embedding
    layers[-1] -= plan.count_loss
    return layers


def memory(plan: Plan, model: Model) -> list[StageBytes]:
    """What one GPU of each pipeline stage holds, in bytes, for a plan that `validate` accepts.

    Parameters of a layer on one GPU, with t = tp and a head of h / heads:
        q and output projections      2 * h * h / t
        k and v                       2 * h * kv, with kv = (h / heads) * max(kv_heads / t, 1):
                                      where there are more tensor ranks than heads, each holds a
                                      copy of one head
        dense MLP                     3 (gated) or 2 matrices of h * ffn / t
        experts instead               3 or 2 matrices of h * moe_ffn / etp for each of the
                                      experts / ep here, and a router h * experts, not split
        two norms                     2 * h, not split
    The first stage adds the embedding vocab * h / t, the last the head vocab * h / t and a norm h.
    States of a parameter: 2 bytes weight, 4 gradient, 12 optimizer. With zero 1 the 12 are divided
    by the number of its replicas, with zero 2 the 4, too, with zero 3 the 2, too. Replicas are
    dp * cp, or `shard` where it is set, and for an expert's weight tp * cp * dp / (etp * ep).
    What zero shards is whole for a moment, by units: a unit is a layer with its experts, the
    embedding, or the head with its norm. With zero 2 and 3 a stage adds the gradients of its
    largest unit (4 bytes a parameter), with zero 3 the weights of its two largest (2 bytes): the
    one that is used and the one that is gathered meanwhile.

    Activations of a layer for one micro-batch, with n = seq / cp * micro tokens:
        10 * n * h, divided by t with sp: what norms, attention and MLP read (8), and two dropout
            masks of a byte each
        n * (4 * h / t + 4 * kv): q, k and v, and what the output projection reads
        n * 4 * ffn / t, gated 6: inside of a dense MLP
        n * topk * (2 * h + 4 or 6 * moe_ffn) / t instead: experts, tokens spread evenly (over all
            ranks of the stage, so neither ep nor etp changes it)
        5 * heads * n * seq / t: scores, with recompute "none" only: softmax's output (2), and the
            mask (1) and the output (2) of its dropout
    Every layer is counted with dropout, as the source does, also one of a model that is trained
    without, as Llama is: there the 10 would be 8, and the 5 would be 2.
    With "full" recompute only its input is kept, 2 * n * h, divided by t with sp.
    Stage s (0 is the first) of p holds them for as many micro-batches as are in flight at once:
    min(m, p - s) of m; with v = vpp > 1, min(m * v, 2 * (p - s - 1) + (v - 1) * p + 1) chunks
    of 1/v of its layers. The last stage adds, once, n * 4 * h (divided by t with sp) and
    n * 4 * vocab / t: what norm and head read, and the logits in fp32.
    Source: Korthikanti et al. 2022, arXiv 2205.05198, table 2 (a GPT layer with ffn = 4h:
    sbh(34 + 5as/h));
    Megatron-LM, theoretical_memory_usage.py.
    """
    # TODO(lab12.memory): What each stage holds
    raise NotImplementedError("lab12.memory")


def simulate_pipeline(schedule: str, p: int, m: int, v: int, tf: float, tb: float) -> PipelineRun:
    """A pipeline of p ranks and m micro-batches, event by event.

    schedule: "gpipe", "1f1b" (v is 1 in both) or "interleaved" (v chunks a rank; chunk c of rank s
    is the virtual stage c * p + s of p * v). tf, tb: what a rank's whole forward and backward of a
    micro-batch takes; a chunk takes the vth part. Sending takes no time.

    A rank does its work in a fixed order, each piece as soon as the one before is done and what it
    needs is there: a forward needs that of the virtual stage before, a backward that of the stage
    behind (on the last its own forward). The order on rank s:
        gpipe          all forwards, then all backwards, both by ascending micro-batch.
        1f1b           min(m, p - s - 1) forwards; then one forward and one backward in turn; then
                       the backwards that are left. Both by ascending micro-batch.
        interleaved    the same with warm-up min(m * v, 2 * (p - s - 1) + (v - 1) * p) chunks.
                       Forwards go through chunks 0 to v - 1 for p micro-batches, then for the next
                       p, and so on; backwards the same with chunks v - 1 to 0.
    Returns the slots, rank by rank, and what follows from them (PipelineRun). At most 128 ranks
    with 512 micro-batches are asked for, 131,072 slots: look at each of them once.
    Raises ValueError for another schedule, for sizes below 1, for v > 1 outside of "interleaved",
    and there for p or v below 2 and for an m that is no multiple of p.
    Source: Narayanan et al. 2021, section 2.2; Megatron-LM, pipeline_parallel/schedules.py.
    """
    # TODO(lab12.simulate_pipeline): A pipeline, event by event
    raise NotImplementedError("lab12.simulate_pipeline")


# -- traffic, time, planner -----------------------------------------------------------------------


def comm(plan: Plan, model: Model, cluster: Cluster) -> list[Op]:
    """What a GPU sends in one training step, for a plan that `validate` accepts.

    The GPU is one of the stage with the most layers (L_s of them); ranks are placed in Megatron's
    default order, tp-cp-dp-pp in the dense grid and etp-ep-edp-pp in the experts'. Weights and
    activations are bf16, gradients are summed in fp32. There are m = gbs / (dp * micro)
    micro-batches; n = seq / cp * micro tokens are a sequence rank's, n / tp a GPU's between blocks
    with sp. A micro-batch makes P = 2 passes through each layer, forward and backward, and 3 with
    "full" recompute. An operation whose group is one rank alone is left out.

        axis    what, how large                                        how often in a step
        tp      two blocks a layer (attention, MLP), 2 * n * h bytes:  2 * P * L_s * m
                an all_gather before and a reduce_scatter behind each
                with sp, one all_reduce behind (forward) or before
                (backward) without
        cp      send: K and V of this GPU's heads around the ring,     (P * (cp-1) + cp) * L_s * m
                4 * n * (h / heads) * max(kv_heads / tp, 1) bytes; the
                backward sends their gradients as well, all the way home
        ep      all_to_all: a GPU's tokens to topk experts, and back,  2 * P * L_s * m
                2 * (n / tp with sp) * topk * h bytes
        etp     all_gather of what the all_to_all brought to the etp   P * L_s * m
                ranks of an expert, and reduce_scatter: etp times those
                bytes
        pp      send: 2 * n * h bytes, divided by tp with sp           2 * m * vpp; with pp 2
                                                                       m * (2 * vpp - 1)
        dp-cp   zero 0: all_reduce of 4 bytes a parameter              1
                zero 1 to 3: reduce_scatter of 4 bytes a parameter     1; m with zero 2 and 3
                and all_gather of 2                                    1; 2 * m with zero 3
                Parameters: all but the experts', in the stage that
                has the most of all. With a shard the groups are
                `shard` neighbours of the dp-cp ranks
        replicate    with a shard: all_reduce of what a shard has,     1
                4 bytes a parameter over `shard`, by the
                dp * cp / shard ranks that have the same
        edp     as dp-cp, of the experts' parameters in that stage,
                over tp * cp * dp / (etp * ep) ranks

    With experts the MLP block is ep's and etp's, not tp's, unless tp > 1 runs without sp (then it
    is cut like a dense one and there is no etp). Embedding, head, router and norms send nothing
    here, and a backward that gathers its input anew is not counted. Two entries of the same kind,
    axis and bytes are as good as one with the sum of their counts.
    Source: Narayanan et al. 2021, section 3.2; Korthikanti et al. 2022, section 4.2.2.
    """
    # TODO(lab12.comm): What a GPU sends in a step
    raise NotImplementedError("lab12.comm")


# TODO(lab12.step_time): Where a step's time goes


def step_time(plan: Plan, model: Model, cluster: Cluster) -> Breakdown:
    """How long a training step takes, and what it is made of, for a plan that `validate` accepts.

    How long kernels run is given: `kernel_times` of kernels_lab12.py, for one micro-batch on one
    GPU. A stage's forward is its layers' and, on the last, the head's. Its backward is theirs, and
    what is done again: with "selective" recompute each layer's attention, with "full" each layer's
    forward.

        compute_s     m micro-batches on the stage whose forward and backward take longest
        tp_s          all of tp's operations (`comm`, `coll_time`): nothing hides them
        ep_s          all of ep's and etp's
        pp_s          all of pp's sends
        cp_s          the ring's sends minus the attention of the stage with the most layers, behind
                      which they hide (once forward, twice that backward, and once more where it is
                      done again); 0 if that is longer
        pp_bubble_s   (pp-1) / (vpp * m) of the sum of the five above
        dp_exposed_s  what is longer than it may hide behind, each at 0 at least, F and B being
                      compute_s of one micro-batch, forward and backward; "all" is dp-cp and edp:
                      zero 0, 1   gradients (all reduce_scatter, all_reduce) behind B, and weights
                                  (all all_gather) behind F, once a step
                      zero 2      each micro-batch's reduce_scatter behind its B, the weights behind
                                  one F
                      zero 3      each micro-batch's first all_gather behind its F, its second and
                                  its reduce_scatter together behind its B
                      A shard's all_reduce (replicate) adds to the last micro-batch's gradients
        total_s       the sum of the seven
        mfu           model FLOPs of the step over total_s * flops of all GPUs of the plan. A
                      token's forward takes 2 for each weight that it meets and 4 * h * seq for each
                      layer's attention (both halves of the square, as the papers count). It meets
                      all weights of the matrices of a layer (of the experts, topk and the router)
                      and the head; the embedding and norms are free. The step takes 3 times that,
                      what is done again left out

    These rules are those of a good schedule, not of a program that was measured: compare plans with
    them.
    Source: Narayanan et al. 2021, section 5.1; Korthikanti et al. 2022, appendix A.
    """
    # TODO(lab12.step_time): Where a step's time goes
    raise NotImplementedError("lab12.step_time")


def plan_search(model: Model, cluster: Cluster, gbs: int, objective: str = "time") -> list[Plan]:
    """The plans for all GPUs of a cluster that no other plan beats, of those that fit.

    Tried are all plans with
        tp * pp * cp * dp = nodes * gpus,
        vpp 1, 2, 3 or 4 that divides L / pp (1 for pp 1), micro 1, 2 or 4, each recompute,
        ep a divisor of experts and etp 1 or tp (for a dense model ep 1 and etp None; with experts
        etp is always a number),
        zero 1, zero 3, and for a dense model zero 3 with shard gpus / tp, the ranks of one node,
        where tp divides gpus (a node's) and that shard is above 1 and divides dp * cp, which is
        larger,
        gbs as given and everything else as Plan has it,
    that `validate` accepts and whose fullest GPU (`memory`) has at most hbm_bytes. One plan beats
    another if it is no worse in both step_time's total_s and the bytes of the fullest GPU, and
    better in one of them; all those are returned that none beats, each of them once (with tp 1,
    etp 1 and etp tp are one plan). objective: "time" puts the fastest first, "bytes" the smallest;
    plans that are equal in both come in any order. A step of 4,096 GPUs should not take minutes:
    ask first what is cheap to ask.
    Raises ValueError for another objective or a gbs below 1.
    """
    # TODO(lab12.plan_search): All plans that no other beats
    raise NotImplementedError("lab12.plan_search")


def emit(plan: Plan, model: Model, cluster: Cluster) -> list[str]:
    """The command that starts Megatron-LM with this plan, word by word.

    torchrun --nnodes N --nproc-per-node G pretrain_gpt.py, then the options, each option and each
    value a word of its own. There is no option for dp: Megatron divides the ranks that torchrun
    starts by tp * pp * cp.

        --tensor-model-parallel-size, --pipeline-model-parallel-size, --context-parallel-size,
        --micro-batch-size (a rank's), --global-batch-size (of all ranks together)
        --sequence-parallel                       where sp is on and tp > 1 (with tp 1 it
                                                  is switched off, with a warning)
        --num-virtual-stages-per-pipeline-rank    where vpp > 1
        --use-distributed-optimizer, --overlap-grad-reduce, --overlap-param-gather    with zero 1
                                                  to 3; --overlap-grad-reduce alone with zero 0
        --use-megatron-fsdp, --no-gradient-accumulation-fusion and
        --data-parallel-sharding-strategy         with zero 2 (optim_grads) and 3
                                                  (optim_grads_params)
        --num-distributed-optimizer-instances     dp * cp / shard, where shard is set
        --recompute-granularity                   "selective", or "full" together with
                                                  --recompute-method uniform and
                                                  --recompute-num-layers 1; not with "none"
        --expert-model-parallel-size, --expert-tensor-parallel-size, --num-experts,
        --moe-router-topk, --moe-ffn-hidden-size  for a model with experts
        --account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split    where
                                                  the plan counts them
        --num-layers, --hidden-size, --num-attention-heads, --ffn-hidden-size, --seq-length,
        --max-position-embeddings (seq)
        --group-query-attention, --num-query-groups    where kv_heads < heads
        --swiglu                                  where gated
        --bf16, --normalization RMSNorm, --disable-bias-linear, --position-embedding-type rope,
        --untie-embeddings-and-output-weights     always

    Data, tokenizer, learning rate and checkpoints are another matter. Raises ValueError for a plan
    with a layout, which has a language of its own, for a plan that does not take all GPUs, and for
    zero 2 or 3 with pp > 1: Megatron-FSDP is documented with TP, CP and EP.
    Source: Megatron-LM, megatron/training/arguments.py; Megatron Core's guide, "Megatron FSDP".
    """
    # TODO(lab12.emit): The command that starts it
    raise NotImplementedError("lab12.emit")


def show(plan: Plan, model: Model, cluster: Cluster) -> None:
    """Given: prints what the functions above say of a plan."""
    for violation in (broken := validate(plan, model, cluster)):
        print(f"refused, {violation.rule}: {violation.message}")
    if broken:
        return
    stages = memory(plan, model)
    for s in sorted({0, len(stages) - 1}):
        one = stages[s]
        parts = (one.param, one.grad, one.opt, one.act, one.total)
        words = "weights {:.1f}, gradients {:.1f}, optimizer {:.1f}, activations {:.1f}: {:.1f} GB"
        print(f"stage {s}: " + words.format(*(part / 1e9 for part in parts)))
    for op in comm(plan, model, cluster):
        seconds = coll_time(op.kind, op.bytes, op.ranks, op.per_node, cluster)
        where = "across nodes" if op.spans_nodes else "in the node"
        print(
            f"{op.axis:>6} {op.kind:<14} {op.count_per_step:>8,} x {op.bytes / 1e6:>9,.1f} MB "
            f"{where:<13} {op.count_per_step * seconds:8.3f} s"
        )
    for name, value in vars(step_time(plan, model, cluster)).items():
        print(f"{name:>13} {value:8.4f}")


def main() -> None:
    """Given: one design of the worksheet, or with --search all that no other beats."""
    from cases_lab12 import CASES, H100_64

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--design", choices=CASES, default="llama3-70b")
    parser.add_argument("--search", action="store_true")
    for name in ("tp", "pp", "cp", "dp", "micro", "ep", "vpp", "zero"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--etp", type=int)
    parser.add_argument("--shard", type=int)
    parser.add_argument("--recompute", default="selective")
    parser.add_argument("--no-sp", dest="sp", action="store_false")
    values = vars(parser.parse_args())
    model, gbs = CASES[values.pop("design")]
    if values.pop("search"):
        for plan in plan_search(model, H100_64, gbs):
            peak = max(stage.total for stage in memory(plan, model)) / 1e9
            print(f"{step_time(plan, model, H100_64).total_s:8.3f} s {peak:6.1f} GB  {plan}")
    else:
        show(Plan(gbs=gbs, **values), model, H100_64)
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # `--search | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
