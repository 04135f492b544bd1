"""Known wrong answers of lab 08. Most are the reference with one line changed."""

from grader.skeleton import changed, changed_in
from grader.suite import misconception

LEDGER, SHARDING = "zero_memory_accounting.py", "zero_sharding.py"


# --- ledger: state_bytes --------------------------------------------------------------------------


def _stages(text, param="param", grad="grad", opt="opt"):
    """Other terms for what a stage leaves on a rank."""
    return changed(
        text,
        ("param * (shard if stage >= 3 else P)", param),
        ("grad * (shard if stage >= 2 else P)", grad),
        ("opt * (shard if stage >= 1 else P)", opt),
    )


def _stage(text, name, first):
    """That state is sharded from another stage on."""
    old = {"param": 3, "grad": 2, "opt": 1}[name]
    return changed(
        text,
        (
            f"{name} * (shard if stage >= {old} else P)",
            f"{name} * (shard if stage >= {first} else P)",
        ),
    )


def _recipe(text, name, prices):
    """Other prices of a recipe."""
    start = text.index(f'        "{name}": (')
    return text[:start] + f'        "{name}": {prices},' + text[text.index("\n", start) :]


@misconception("state_bytes", file=LEDGER)
def ledger_in_gib(text):
    """The dict is in bytes; GB and GiB are for printing, and differ by 7.4 %: 120 GB are 111.8
    GiB."""
    return changed(
        text,
        (
            'return held | {"total": sum(held.values())}',
            "held = {name: size / 1024**3 for name, size in held.items()}\n"
            '    return held | {"total": sum(held.values())}',
        ),
    )


@misconception("state_bytes", file=LEDGER)
def ledger_in_gb(text):
    """The dict is in bytes, not in GB: a caller who wants GB divides by 10**9 when it prints."""
    return changed(
        text,
        (
            'return held | {"total": sum(held.values())}',
            "held = {name: size / 10**9 for name, size in held.items()}\n"
            '    return held | {"total": sum(held.values())}',
        ),
    )


@misconception("state_bytes", file=LEDGER)
def gradients_sharded_at_stage_1(text):
    """Stage 1 shards the optimizer's states only: each rank still holds every gradient, which is
    the difference between 31.4 and 16.6 GB."""
    return _stage(text, "grad", 1)


@misconception("state_bytes", file=LEDGER)
def parameters_sharded_at_stage_2(text):
    """Stage 2 keeps every parameter on every rank, because forward needs them all; only stage 3
    gathers them when they are needed: 16.6 GB, not 1.88."""
    return _stage(text, "param", 2)


@misconception("state_bytes", file=LEDGER)
def everything_sharded_at_stage_1(text):
    """ZeRO-1 does not shard everything: parameters and gradients stay whole, 31.4 GB and not
    1.88."""
    return _stage(_stage(text, "grad", 1), "param", 1)


@misconception("state_bytes", file=LEDGER)
def gradients_whole_at_stage_2(text):
    """Stage 2 is the one that shards gradients: a gradient that was sent to its owner is freed,
    16.6 GB and not 31.4."""
    return _stage(text, "grad", 3)


@misconception("state_bytes", file=LEDGER)
def one_stage_one_state(text):
    """Stages add up: stage 3 shards parameters AND gradients AND the optimizer's states."""
    return _stages(
        text,
        "param * (shard if stage == 3 else P)",
        "grad * (shard if stage == 2 else P)",
        "opt * (shard if stage == 1 else P)",
    )


@misconception("state_bytes", file=LEDGER)
def optimizer_is_never_sharded(text):
    """The optimizer's states are what is sharded first, from stage 1 on: they are 12 of the 16
    bytes."""
    return changed(text, ("opt * (shard if stage >= 1 else P)", "opt * P"))


@misconception("state_bytes", file=LEDGER)
def no_master_copy(text):
    """Mixed precision keeps a float32 master copy of the parameters beside Adam's two moments: 12
    bytes, not 8. At N = 64 it hardly shows (30.9 against 31.4 GB), at N = 4 it is 45.0 against
    52.5."""
    return _recipe(text, "bf16_mixed", "(2, 2, 4 + 4)")


@misconception("state_bytes", file=LEDGER)
def master_copy_is_a_parameter(text):
    """The float32 master copy belongs to the optimizer, which alone reads it, and is sharded with
    it from stage 1 on; only the 16-bit copy is what forward computes with."""
    return _recipe(text, "bf16_mixed", "(2 + 4, 2, 4 + 4)")


@misconception("state_bytes", file=LEDGER)
def master_copy_stays_whole(text):
    """All of the optimizer's states are sharded, its master copy too: a rank that never steps an
    element has no use for that element's master."""
    return changed(
        text,
        (
            "opt * (shard if stage >= 1 else P)",
            "(opt - master) * (shard if stage >= 1 else P) + master * P",
        ),
        ("    held = {\n", '    master = 0 if recipe == "fp32" else 4\n    held = {\n'),
    )


@misconception("state_bytes", file=LEDGER)
def master_copy_of_float32(text):
    """Where the parameters are float32 already, they are their own master: 16 bytes in all, not
    20."""
    return _recipe(text, "fp32", "(4, 4, 4 + 4 + 4)")


@misconception("state_bytes", file=LEDGER)
def float32_gradients_come_on_top(text):
    """`bf16_fp32grads` keeps its gradients in float32 INSTEAD of bf16: 2 + 4 + 12 = 18 bytes, not
    20."""
    return _recipe(text, "bf16_fp32grads", "(2, 2 + 4, 4 + 4 + 4)")


@misconception("state_bytes", file=LEDGER)
def gradients_in_the_parameters_dtype(text):
    """In `bf16_fp32grads` gradients are accumulated in float32, 4 bytes although the parameters
    have 2; Megatron's 18 bytes instead of 16."""
    return _recipe(text, "bf16_fp32grads", "(2, 2, 4 + 4 + 4)")


@misconception("state_bytes", file=LEDGER)
def no_float32_copy_of_the_gradients(text):
    """With 16-bit gradients the optimizer makes a float32 copy of its share before it steps: 4 +
    16/N bytes, not 4 + 12/N."""
    return _recipe(text, "fp16_fp16grads", "(2, 2, 4 + 4 + 4)")


@misconception("state_bytes", file=LEDGER)
def float32_copy_is_a_gradient(text):
    """The float32 copy of the gradients is the optimizer's and is sharded with its states at stage
    1; counted as a gradient it would stay whole, 8 + 12/N bytes instead of 4 + 16/N."""
    return _recipe(text, "fp16_fp16grads", "(2, 2 + 4, 4 + 4 + 4)")


@misconception("state_bytes", file=LEDGER)
def deepspeed_keeps_gradients_at_stage_3(text):
    """DeepSpeed's stage 3 keeps 18 bytes a parameter, not 20: a layer's 16-bit gradients are gone
    when its backward ends, and are counted with the layer that is gathered (4 bytes of the
    largest)."""
    return _recipe(text, "deepspeed", "(2, 2, 4 + 4 + 4 + 4)")


@misconception("state_bytes", file=LEDGER)
def the_tail_is_dropped(text):
    """P // N drops up to N - 1 elements that no rank would step: the buffer is padded, a share is
    ceil(P / N)."""
    return changed(text, ("shard = -(-P // N)", "shard = P // N"))


@misconception("state_bytes", file=LEDGER)
def shares_are_fractions(text):
    """No rank holds a third of an element: the buffer is padded until N divides it, and every rank
    holds ceil(P / N) elements, a whole number of bytes."""
    return changed(text, ("shard = -(-P // N)", "shard = P / N"))


@misconception("state_bytes", file=LEDGER)
def bytes_are_rounded_up(text):
    """What is rounded up are elements, not bytes: 12 bytes of an element stay together, so a share
    is 12 * ceil(P / N) and not ceil(12 P / N)."""
    return _stages(
        text,
        "-(-param * P // (N if stage >= 3 else 1))",
        "-(-grad * P // (N if stage >= 2 else 1))",
        "-(-opt * P // (N if stage >= 1 else 1))",
    )


@misconception("state_bytes", file=LEDGER)
def bytes_of_all_ranks(text):
    """The dict is what ONE rank keeps; all ranks together keep N times as much."""
    return changed(
        text,
        (
            'return held | {"total": sum(held.values())}',
            "held = {name: N * size for name, size in held.items()}\n"
            '    return held | {"total": sum(held.values())}',
        ),
    )


@misconception("state_bytes", file=LEDGER)
def total_without_parameters(text):
    """`total` is the sum of all three, the parameters included."""
    return changed(text, ("sum(held.values())", 'held["grad"] + held["opt"]'))


# --- ledger: dim0_shard ---------------------------------------------------------------------------


@misconception("dim0_shard", file=LEDGER)
def rows_must_divide(text):
    """torch.chunk gives ceil-sized chunks; the last rank may be short or empty. FSDP2 takes 65 rows
    on 3 ranks without a complaint."""
    return changed(
        text,
        (
            "    rows = shape[0]\n",
            "    rows = shape[0]\n    if rows % N:\n"
            '        raise ValueError(f"{rows} rows do not divide by {N}")\n',
        ),
    )


@misconception("dim0_shard", file=LEDGER)
def floor_of_the_rows(text):
    """A chunk has ceil(rows / N) rows, not floor: with floor the last rows, 65 - 3 x 21 of them,
    belong to nobody."""
    return changed(text, ("each = -(-rows // N)\n    left", "each = rows // N\n    left"))


@misconception("dim0_shard", file=LEDGER)
def the_last_rank_takes_the_rest(text):
    """The first ranks hold ceil(rows / N) rows and the last what is left; floor rows with the rest
    on the last rank (21, 21, 23 of 65) is another partition."""
    return changed(
        text,
        ("each = -(-rows // N)\n    left", "each = rows // N\n    left"),
        (
            "(min(each, left), *shape[1:])",
            "(left if rank == N - 1 else each, *shape[1:])",
        ),
    )


@misconception("dim0_shard", file=LEDGER)
def spread_evenly(text):
    """That is numpy.array_split and torch.tensor_split, which make sizes differ by one at most: 3,
    2, 2 of 7. torch.chunk fills the first ranks: 3, 3, 1."""
    return changed(
        text,
        ("(min(each, left), *shape[1:])", "(rows // N + (rank < rows % N), *shape[1:])"),
    )


@misconception("dim0_shard", file=LEDGER)
def padded_rows_are_held(text):
    """All ranks 22 of 65 rows: that is the size that FSDP pads to for its collectives. What the
    last rank holds as parameter has 21."""
    return changed(text, ("(min(each, left), *shape[1:])", "(each, *shape[1:])"))


@misconception("dim0_shard", file=LEDGER)
def rows_below_zero(text):
    """When the rows are used up a rank holds 0 of them: rows - rank * ceil(rows / N) goes below
    zero on later ranks."""
    return changed(text, ("max(0, rows - rank * each)", "rows - rank * each"))


@misconception("dim0_shard", file=LEDGER)
def an_empty_shard_has_one_dimension(text):
    """An empty shard keeps its other dimensions, (0, 32): it is still part of a matrix with 32
    columns, and a checkpoint joins shards along dimension 0."""
    return changed(
        text,
        (
            "return (min(each, left), *shape[1:])",
            "return (min(each, left), *shape[1:]) if left else (0,)",
        ),
    )


@misconception("dim0_shard", file=LEDGER)
def no_rank_is_empty(text):
    """A rank may hold no row at all: 7 rows on 8 ranks leave one without, and a row that two ranks
    hold would be stepped twice."""
    return changed(text, ("left = max(0,", "left = max(1,"))


@misconception("dim0_shard", file=LEDGER)
def cut_along_the_last_dimension(text):
    """FSDP2 cuts dimension 0, the rows; columns are what some tensor-parallel layers cut."""
    return changed(
        text,
        ("rows = shape[0]", "rows = shape[-1]"),
        ("(min(each, left), *shape[1:])", "(*shape[:-1], min(each, left))"),
    )


@misconception("dim0_shard", file=LEDGER)
def flattened_first(text):
    """Elements are not rows: FSDP1 flattened parameters, FSDP2 keeps their dimensions and gives
    whole rows to a rank."""
    return changed(
        text,
        ("rows = shape[0]", "rows = math.prod(shape)"),
        ("(min(each, left), *shape[1:])", "(min(each, left),)"),
    )


# --- ledger: flat_partition -----------------------------------------------------------------------


@misconception("flat_partition", file=LEDGER)
def flat_tail_dropped(text):
    """With floor(total / N) elements each, the last elements belong to nobody and are never
    stepped: the buffer is padded until N divides it."""
    return changed(
        text,
        ("each = -(-total // (N * align)) * align", "each = total // (N * align) * align"),
        (
            "    for param, numel in [*enumerate(numels), (None, padding)]:\n        lo = 0\n",
            "    for param, numel in enumerate(numels):\n        lo = 0\n"
            "        numel = min(numel, max(0, N * each - begin))\n",
        ),
    )


@misconception("flat_partition", file=LEDGER)
def the_last_share_is_short(text):
    """Padding is held as well: reduce-scatter and all-gather take equal shares, so the last rank's
    buffer is as long as the others', with a Slice of `param` None for what is no parameter."""
    return changed(text, ("[*enumerate(numels), (None, padding)]", "enumerate(numels)"))


@misconception("flat_partition", file=LEDGER)
def whole_parameters(text):
    """Flat slices were asked for: a parameter is cut wherever a share ends. Whole parameters for
    each rank are what ZeroRedundancyOptimizer deals out, 18,432 and 17,472 bytes of the small MLP
    instead of 17,952 and 17,952."""
    return changed(
        text,
        (
            "    slices, begin = [], 0\n",
            "    held = [0] * N\n    owners = {}\n"
            "    for index in sorted(range(len(numels)), key=lambda i: -numels[i]):\n"
            "        owners[index] = held.index(min(held))\n"
            "        held[owners[index]] += numels[index]\n"
            "    whole = [Slice(owners[i], i, 0, n) for i, n in enumerate(numels) if n]\n"
            "    return sorted(whole, key=lambda piece: (piece.rank, piece.param))\n"
            "    slices, begin = [], 0\n",
        ),
    )


@misconception("flat_partition", file=LEDGER)
def the_rank_where_a_parameter_begins(text):
    """A parameter that crosses the end of a share is cut there; given whole to the rank in which it
    begins, shares are no longer equal and collectives do not fit."""
    return changed(text, ("hi = min(numel, lo + each - used)", "hi = numel"))


@misconception("flat_partition", file=LEDGER)
def every_parameter_cut_into_n(text):
    """That cuts every parameter into N parts, as FSDP2 does with rows; flat means one buffer of all
    parameters and N - 1 cuts in it."""
    return changed(
        text,
        (
            "    slices, begin = [], 0\n",
            "    parts = []\n"
            "    for rank in range(N):\n"
            "        for index, numel in enumerate(numels):\n"
            "            size = -(-numel // N)\n"
            "            lo, hi = min(numel, rank * size), min(numel, (rank + 1) * size)\n"
            "            parts += [Slice(rank, index, lo, hi)] if hi > lo else []\n"
            "    return parts\n"
            "    slices, begin = [], 0\n",
        ),
    )


@misconception("flat_partition", file=LEDGER)
def places_in_the_buffer(text):
    """lo and hi count within the parameter, from its own first element: p.view(-1)[lo:hi] must be
    what the rank holds. These count from the beginning of the buffer."""
    return changed(
        text, ("Slice(rank, param, lo, hi)", "Slice(rank, param, begin + lo, begin + hi)")
    )


@misconception("flat_partition", file=LEDGER)
def places_in_the_share(text):
    """lo and hi count within the parameter; these count from the beginning of the rank's own
    share."""
    return changed(text, ("Slice(rank, param, lo, hi)", "Slice(rank, param, used, used + hi - lo)"))


@misconception("flat_partition", file=LEDGER)
def hi_is_the_last_element(text):
    """hi is one past the last element, as in Python and in [0:4], [4:8], so that hi - lo is the
    size."""
    return changed(text, ("Slice(rank, param, lo, hi)", "Slice(rank, param, lo, hi - 1)"))


@misconception("flat_partition", file=LEDGER)
def shares_differ_by_one(text):
    """Shares are equal, the last one by padding; sizes that differ by one need no padding, and no
    collective with equal shares takes them."""
    return changed(
        text,
        (
            "    slices, begin = [], 0\n",
            "    if align == 1:\n"
            "        found, rank, room = [], 0, total // N + (total % N > 0)\n"
            "        for index, numel in enumerate(numels):\n"
            "            lo = 0\n"
            "            while lo < numel:\n"
            "                hi = min(numel, lo + room)\n"
            "                found.append(Slice(rank, index, lo, hi))\n"
            "                room, lo = room - (hi - lo), hi\n"
            "                if room == 0:\n"
            "                    rank += 1\n"
            "                    room = total // N + (rank < total % N)\n"
            "        return found\n"
            "    slices, begin = [], 0\n",
        ),
    )


@misconception("flat_partition", file=LEDGER)
def the_buffer_is_aligned(text):
    """Each SHARE is a multiple of `align` elements, so that every rank's buffer begins at an
    aligned place; that the whole buffer is one does not give that."""
    return changed(
        text,
        (
            "each = -(-total // (N * align)) * align",
            "each = -(-(-(-total // align) * align) // N)",
        ),
    )


@misconception("flat_partition", file=LEDGER)
def align_is_ignored(text):
    """`align` makes each rank's share a multiple of so many elements; here a share is ceil(total /
    N) whatever was asked for."""
    return changed(text, ("each = -(-total // (N * align)) * align", "each = -(-total // N)"))


@misconception("flat_partition", file=LEDGER)
def every_parameter_is_aligned(text):
    """The padding stands once, behind the last parameter: parameters follow each other without a
    gap, only the shares are aligned."""
    return changed(
        text,
        (
            "    total = sum(numels)\n",
            "    numels = [-(-numel // align) * align for numel in numels]\n"
            "    total = sum(numels)\n",
        ),
    )


@misconception("flat_partition", file=LEDGER)
def padding_belongs_to_the_last_parameter(text):
    """Padding is no part of a parameter: a Slice of `param` None, or the last parameter would seem
    to have elements that it has not."""
    return changed(
        text,
        (
            "[*enumerate(numels), (None, padding)]",
            "[*enumerate([*numels[:-1], numels[-1] + padding] if numels else [])]",
        ),
    )


@misconception("flat_partition", file=LEDGER)
def padding_in_front(text):
    """The padding stands behind the last parameter; in front it moves every cut."""
    return changed(
        text,
        ("[*enumerate(numels), (None, padding)]", "[(None, padding), *enumerate(numels)]"),
    )


@misconception("flat_partition", file=LEDGER)
def largest_first(text):
    """Parameters are concatenated in the order in which they come; sorted by size, every rank must
    know the order again, and a checkpoint of others does not fit."""
    return changed(
        text,
        (
            "[*enumerate(numels), (None, padding)]",
            "[*sorted(enumerate(numels), key=lambda item: -item[1]), (None, padding)]",
        ),
    )


# --- sharding -------------------------------------------------------------------------------------


REPLICATED_STEP = """
        total = sum(p.numel() for p in self.params)
        grads = torch.cat(
            [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in self.params]
        )
        grads /= self.world_size
        dist.all_reduce(grads, group=self.pg)
        return grads"""
REPLICATED_UPDATE = """
        flat = torch.cat([p.reshape(-1) for p in self.params])
        beta1, beta2 = self.betas
        self.steps += 1
        {avg}.mul_(beta1).add_(grad, alpha=1 - beta1)
        {sq}.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        m = {avg} / (1 - beta1**self.steps)
        v = {sq} / (1 - beta2**self.steps)
        flat.mul_(1 - self.lr * self.wd).addcdiv_(m, v.sqrt_().add_(self.eps), value=-self.lr)
        at = 0
        for p in self.params:
            p.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()"""


def _body(text, method, code, owner="Zero1AdamW"):
    """The body between the markers of one method of a class, exchanged."""
    start = text.index(f"    def {method}(", text.index(f"class {owner}"))
    begin = text.index(f"# BEGIN SOLUTION {owner}\n", start) + len(f"# BEGIN SOLUTION {owner}\n")
    end = text.index("        # END SOLUTION", begin)
    return text[:begin] + code.strip("\n") + "\n" + text[end:]


def _inside(text, owner, *pairs):
    """`changed`, in one class and nowhere else."""
    start = text.index(f"class {owner}")
    ends = [text.find(mark, start + 1) for mark in ("\nclass ", "\n# ---", "\ndef ")]
    end = min(at for at in [*ends, len(text)] if at > 0)
    return text[:start] + changed(text[start:end], *pairs) + text[end:]


@misconception("Zero1AdamW", file=SHARDING)
def replicated_adamw(text):
    """Every rank keeps the moments of every parameter and takes the whole step: that is DDP with
    AdamW, 8 bytes a parameter on each rank, and nothing is sharded but the name."""
    text = _inside(
        text,
        "Zero1AdamW",
        ("self.exp_avg = torch.zeros(self.shard_numel,", "self.exp_avg = torch.zeros(total,"),
        ("self.exp_avg_sq = torch.zeros(self.shard_numel,", "self.exp_avg_sq = torch.zeros(total,"),
    )
    text = _body(text, "reduce_gradients", REPLICATED_STEP)
    update = REPLICATED_UPDATE.format(avg="self.exp_avg", sq="self.exp_avg_sq")
    return _body(text, "step_shard", update)


@misconception("Zero1AdamW", file=SHARDING)
def replicated_beside_a_sharded_state_that_nobody_uses(text):
    """The object shows moments of a slice, but the step is taken with whole ones that live
    elsewhere: what a rank holds is what is alive in it, wherever that is kept."""
    update = REPLICATED_UPDATE.format(avg="AVG[id(self)]", sq="SQ[id(self)]").replace(
        "        self.steps += 1\n",
        "        self.steps += 1\n"
        "        AVG.setdefault(id(self), torch.zeros_like(flat))\n"
        "        SQ.setdefault(id(self), torch.zeros_like(flat))\n",
    )
    text = _body(text, "reduce_gradients", REPLICATED_STEP)
    text = _body(text, "step_shard", update)
    return text.replace("class Zero1AdamW:", "AVG, SQ = {}, {}\n\n\nclass Zero1AdamW:")


@misconception("Zero1AdamW", file=SHARDING)
def all_reduce_then_all_gather(text):
    """You moved 3 Psi: an all-reduce is a reduce-scatter AND an all-gather, and only the slice of
    its result was used. Reduce-scatter + all-gather is 2 Psi, the same as DDP."""
    return _inside(
        text,
        "Zero1AdamW",
        (
            "dist.reduce_scatter_tensor(shard, flat, group=self.pg)",
            "dist.all_reduce(flat, group=self.pg)\n"
            "        shard.copy_(flat[self.lo : self.lo + self.shard_numel])",
        ),
    )


@misconception("Zero1AdamW", file=SHARDING)
def sums_where_the_mean_is_meant(text):
    """A reduce-scatter adds up; the gradient of all rows is the mean over the ranks. AdamW hides
    most of a factor N, because it divides by the gradient's own size, but eps does not scale."""
    return _inside(text, "Zero1AdamW", ("        flat /= self.world_size\n", ""))


@misconception("Zero1AdamW", file=SHARDING)
def elements_of_nobody(text):
    """total // N elements a rank leave out up to N - 1 elements at the end, which are never
    trained: round up, and pad the last slice."""
    return _inside(
        text,
        "Zero1AdamW",
        ("-(-total // self.world_size)", "total // self.world_size"),
        (
            "flat = torch.zeros(self.world_size * self.shard_numel, dtype=self.dtype)\n"
            "        at = 0\n"
            "        for p in self.params:\n"
            "            if p.grad",
            "total = sum(p.numel() for p in self.params)\n"
            "        flat = torch.zeros(total, dtype=self.dtype)\n"
            "        at = 0\n"
            "        for p in self.params:\n"
            "            if p.grad",
        ),
        (
            "flat = torch.zeros(self.world_size * self.shard_numel, dtype=self.dtype)\n"
            "        at = 0\n"
            "        for p in self.params:\n"
            "            flat",
            "total = sum(p.numel() for p in self.params)\n"
            "        flat = torch.zeros(total, dtype=self.dtype)\n"
            "        at = 0\n"
            "        for p in self.params:\n"
            "            flat",
        ),
        (
            "dist.reduce_scatter_tensor(shard, flat,",
            "dist.reduce_scatter_tensor(shard, flat[: self.world_size * self.shard_numel],",
        ),
        (
            "dist.all_gather_into_tensor(flat, own,",
            "dist.all_gather_into_tensor(flat[: self.world_size * self.shard_numel], own,",
        ),
    )


@misconception("Zero1AdamW", file=SHARDING)
def weight_decay_in_the_gradient(text):
    """Weight decay was added to the gradient and divided by its root mean square with it: that is
    Adam with L2. AdamW's decay is decoupled: p *= 1 - lr * wd."""
    return _inside(
        text,
        "Zero1AdamW",
        (
            "        beta1, beta2 = self.betas\n",
            "        beta1, beta2 = self.betas\n        grad = grad + self.wd * own\n",
        ),
        ("own.mul_(1 - self.lr * self.wd).addcdiv_", "own.addcdiv_"),
    )


@misconception("Zero1AdamW", file=SHARDING)
def a_step_for_every_piece(text):
    """The step count moves once for every parameter that has a piece in the slice, so bias
    correction differs between ranks: a step() is one step of one count, whatever a slice holds."""
    return _inside(
        text,
        "Zero1AdamW",
        (
            "        self.steps += 1\n",
            "        ends = torch.tensor([p.numel() for p in self.params]).cumsum(0)\n"
            "        inside = (ends > self.lo) & (ends - ends.diff(prepend=ends.new_zeros(1))"
            " < self.lo + self.shard_numel)\n"
            "        self.steps += int(inside.sum())\n",
        ),
    )


@misconception("Zero1AdamW", file=SHARDING)
def without_the_gather(text):
    """Each rank updated its slice and kept it: without the all-gather the replicas differ from the
    first step on, each right in another Nth of the model."""
    return _inside(
        text,
        "Zero1AdamW",
        (
            "dist.all_gather_into_tensor(flat, own, group=self.pg)",
            "flat[self.lo : self.lo + self.shard_numel] = own",
        ),
    )


@misconception("Zero1AdamW", file=SHARDING)
def a_copy_from_the_constructor(text):
    """The own slice was copied once, in the constructor, and is stepped from there: what is loaded
    into the parameters later, a checkpoint say, is overwritten; and the copy is state, too."""
    return _inside(
        text,
        "Zero1AdamW",
        (
            "own = flat[self.lo : self.lo + self.shard_numel].clone()",
            "own = self.own",
        ),
        (
            "        self.exp_avg = torch.zeros(self",
            "        whole = torch.zeros(self.world_size * self.shard_numel, dtype=self.dtype)\n"
            "        whole[:total] = torch.cat([p.detach().reshape(-1) for p in self.params])\n"
            "        self.own = whole[self.lo : self.lo + self.shard_numel].clone()\n"
            "        self.exp_avg = torch.zeros(self",
        ),
    )


@misconception("Zero1AdamW", file=SHARDING)
def moments_are_views(text):
    """The moments are slices of buffers made whole: a view keeps all of its storage alive, so the
    rank still holds N shares."""
    return _inside(
        text,
        "Zero1AdamW",
        (
            "self.exp_avg = torch.zeros(self.shard_numel, dtype=self.dtype)",
            "self.exp_avg = torch.zeros(total, dtype=self.dtype)[: self.shard_numel]",
        ),
        (
            "self.exp_avg_sq = torch.zeros(self.shard_numel, dtype=self.dtype)",
            "self.exp_avg_sq = torch.zeros(total, dtype=self.dtype)[: self.shard_numel]",
        ),
    )


@misconception("Zero2", file=SHARDING)
def gradients_are_kept_until_the_step(text):
    """Only the reduce-scatter was cut into buckets, and it waits for the step: every full gradient
    is alive at the end of backward, which is ZeRO-1. Let a bucket go when it is full."""
    return _inside(
        text,
        "Zero2",
        (
            "        while self.reduced < len(self.buckets) and "
            "self.missing[self.reduced] == 0:\n            self._reduce_next()\n",
            "",
        ),
    )


@misconception("Zero2", file=SHARDING)
def grad_stays(text):
    """The gradient was copied into the bucket and stays in .grad, too: reduced, and as large as
    before. Set it to None."""
    return _inside(text, "Zero2", ("        param.grad = None\n", ""))


@misconception("Zero2", file=SHARDING)
def buckets_are_all_reduced(text):
    """Each bucket is all-reduced and then sliced: that is called a reduce-scatter by nobody who
    counts. Every rank received all of it, 3 Psi with the all-gather instead of 2."""
    return _inside(
        text,
        "Zero2",
        (
            "dist.reduce_scatter_tensor(shard, flat, group=self.pg)",
            "dist.all_reduce(flat, group=self.pg)\n"
            "        shard.copy_(flat[dist.get_rank(self.pg) * len(shard) :][: len(shard)])",
        ),
    )


@misconception("Zero2", file=SHARDING)
def buckets_are_summed(text):
    """The buckets are summed and never divided by the number of ranks: a shard is N times the
    mean, and a norm that is clipped by it, too."""
    return _inside(text, "Zero2", ("        flat /= dist.get_world_size(self.pg)\n", ""))


@misconception("Zero2", file=SHARDING)
def shards_are_views_of_their_buckets(text):
    """The shard is a slice of the bucket's own buffer: a view keeps the whole bucket alive, and no
    byte is freed."""
    return _inside(
        text,
        "Zero2",
        (
            "shard = torch.empty(self.optimizers[index].shard_numel, dtype=flat.dtype)",
            "shard = flat[dist.get_rank(self.pg) * self.optimizers[index].shard_numel :]\n"
            "        shard = shard[: self.optimizers[index].shard_numel]",
        ),
        (
            "dist.reduce_scatter_tensor(shard, flat, group=self.pg)",
            "dist.reduce_scatter_tensor(shard, flat.clone(), group=self.pg)",
        ),
    )


@misconception("Zero2", file=SHARDING)
def buckets_are_never_freed(text):
    """The flat bucket stays where it is after its reduce-scatter: at the end of backward all of
    them are there, as large as the gradients that they were made from."""
    return _inside(
        text,
        "Zero2",
        ("self.shards[index], self.flats[index] = shard, None", "self.shards[index] = shard"),
    )


@misconception("Zero2", file=SHARDING)
def a_bucket_that_waits_is_forgotten(text):
    """The bucket of a parameter without gradient is never reduced, and neither are those after it:
    finish() must let them go, with zeros for what did not come."""
    return _inside(
        text,
        "Zero2",
        (
            "        while self.reduced < len(self.buckets):\n            self._reduce_next()\n",
            "",
        ),
    )


@misconception("Zero2", file=SHARDING)
def one_bucket_for_all(text):
    """Everything is one bucket: it is full when backward is over, so every full gradient was alive
    at once, and none left before the last one came."""
    return _inside(
        text,
        "Zero2",
        ("plan_buckets(trainable[::-1], bucket_bytes)", "plan_buckets(trainable[::-1], 1 << 40)"),
    )


@misconception("Zero3Module", file=SHARDING)
def parameters_are_never_released(text):
    """The gathered parameters stay: numbers are right, and after one forward every rank holds the
    whole model again. Releasing is setting the storage to 0 bytes."""
    return _inside(
        text,
        "Zero3Module",
        ("            whole.untyped_storage().resize_(0)\n", "            pass\n"),
        (
            "            if whole.untyped_storage().nbytes() == 0:\n"
            "                whole.untyped_storage().resize_(whole.nbytes)\n",
            "            if True:\n",
        ),
    )


@misconception("Zero3Module", file=SHARDING)
def kept_from_forward_to_backward(text):
    """Parameters are kept after forward so that backward need not gather them: 2 Psi instead of 3,
    and when the last forward ends the whole model is there. That is ZeRO-2's bargain."""
    return _body(text, "after_forward", "        pass", "Zero3Module")


@misconception("Zero3Module", file=SHARDING)
def the_whole_model_at_once(text):
    """Every block that follows is gathered before the first one computes: the peak is the whole
    model, which is what was not to fit. Look ahead `prefetch` blocks, no further."""
    return _inside(
        text,
        "Zero3Module",
        ("self.next_blocks[: self.prefetch]", "self.next_blocks"),
        ("self.previous_blocks[: self.prefetch]", "self.previous_blocks"),
    )


@misconception("Zero3Module", file=SHARDING)
def not_released_after_backward(text):
    """After backward the parameters stay: peak and idle bytes grow block by block until the whole
    model is there. Backward ends as forward does, with a release."""
    return _inside(
        text, "Zero3Module", ("        self._release()\n        if not", "        if not")
    )


@misconception("Zero3Module", file=SHARDING)
def shards_hold_the_sum(text):
    """The reduce-scatter's sum goes to the shards undivided: the gradient of all rows is the mean
    over the ranks."""
    return _inside(text, "Zero3Module", ("        flat /= dist.get_world_size(self.pg)\n", ""))


@misconception("Zero3Module", file=SHARDING)
def gradients_are_all_reduced(text):
    """The gradients are all-reduced and sliced: each rank receives all of them to keep an Nth, 4
    Psi a step instead of 3."""
    return _inside(
        text,
        "Zero3Module",
        (
            "dist.reduce_scatter_tensor(grad, flat, group=self.pg)",
            "dist.all_reduce(flat, group=self.pg)\n"
            "        grad.copy_(flat[dist.get_rank(self.pg) * len(grad) :][: len(grad)])",
        ),
    )


@misconception("Zero3Module", file=SHARDING)
def full_gradients_stay(text):
    """The block's own .grad are left after their reduce-scatter: full gradients of the whole model
    at the end of backward, and the next backward adds to them."""
    return _inside(text, "Zero3Module", ("                p.grad = None\n", ""))


@misconception("Zero3Module", file=SHARDING)
def the_last_backward_wins(text):
    """A second backward overwrites the shard's gradient; as everywhere in torch, gradients add up
    until they are cleared."""
    return _inside(
        text,
        "Zero3Module",
        ("grad if shard.grad is None else shard.grad + grad", "grad"),
    )


@misconception("Zero3Module", file=SHARDING)
def gathered_once_and_for_all(text):
    """The gather before backward gives back what forward had, not what the shards hold: a copy of
    the whole block was kept somewhere, which is the memory that sharding was to save."""
    return _inside(
        text,
        "Zero3Module",
        (
            "        while self.pending:\n            self.pending.pop().wait()\n",
            "        while self.pending:\n            self.pending.pop().wait()\n"
            "        if torch._C._current_graph_task_id() == -1:\n"
            "            self.kept = [whole.clone() for whole in self.wholes]\n"
            "        else:\n"
            "            for whole, kept in zip(self.wholes, self.kept, strict=True):\n"
            "                whole.copy_(kept)\n",
        ),
    )


# --- state ----------------------------------------------------------------------------------------


@misconception("clip_grad_norm_sharded", file=SHARDING)
def every_rank_takes_its_own_norm(text):
    """Each rank clips by the norm of its own shard: no error, but shards are multiplied by
    different numbers, so the step goes where no gradient points and the run drifts away."""
    return changed_in(
        text, "clip_grad_norm_sharded", ("    dist.all_reduce(squares, group=pg)\n", "")
    )


@misconception("clip_grad_norm_sharded", file=SHARDING)
def norms_are_added(text):
    """The ranks' norms are added; norms do not add up, squares do: sqrt(3^2 + 4^2) is 5, not 7, and
    the error grows with the number of ranks."""
    return changed_in(
        text,
        "clip_grad_norm_sharded",
        (
            "dist.all_reduce(squares, group=pg)\n    norm = squares.sqrt()",
            "norm = squares.sqrt()\n    dist.all_reduce(norm, group=pg)",
        ),
    )


@misconception("clip_grad_norm_sharded", file=SHARDING)
def squares_are_averaged(text):
    """The mean over ranks is for gradients; shards are parts of one vector, whose squares are added
    up, or the norm is too small by the root of the number of ranks."""
    return changed_in(
        text,
        "clip_grad_norm_sharded",
        (
            "dist.all_reduce(squares, group=pg)",
            "dist.all_reduce(squares, op=dist.ReduceOp.AVG, group=pg)",
        ),
    )


@misconception("clip_grad_norm_sharded", file=SHARDING)
def padding_counts(text):
    """The padding behind the last element is part of the norm: whatever a buffer had there before
    makes every gradient smaller."""
    return changed_in(text, "clip_grad_norm_sharded", ("grad[:count] for", "grad for"))


@misconception("clip_grad_norm_sharded", file=SHARDING)
def tied_counts_twice(text):
    """A tied parameter is listed under both its names, but there is one gradient: counted twice the
    norm is too large, and multiplied twice that gradient is clipped twice."""
    return changed_in(
        text,
        "clip_grad_norm_sharded",
        (
            "{id(grad): grad[:count] for grad, count in zip(grads, real, strict=True)}",
            "{i: grads[i][: real[i]] for i in range(len(grads))}",
        ),
    )


@misconception("clip_grad_norm_sharded", file=SHARDING)
def tied_is_scaled_twice(text):
    """The norm counts a tied parameter once, but the loop over the list multiplies its gradient
    twice, once for each name: by the square of the coefficient."""
    return changed_in(
        text,
        "clip_grad_norm_sharded",
        (
            "for part in parts.values():\n        part.mul_(coefficient)",
            "for grad in grads:\n        grad.mul_(coefficient)",
        ),
    )


@misconception("clip_grad_norm_sharded", file=SHARDING)
def short_gradients_are_stretched(text):
    """The coefficient is not held to 1: gradients that are shorter than max_norm are made longer,
    and every step has the same length, however flat the loss is."""
    return changed_in(text, "clip_grad_norm_sharded", (".clamp(max=1.0)", ""))


@misconception("clip_grad_norm_sharded", file=SHARDING)
def clipped_before_the_reduction(text):
    """The norm that is returned is right, but the shard was multiplied by a coefficient of its own
    norm, from before the all-reduce: a log that looks well and gradients that are not."""
    return changed_in(
        text,
        "clip_grad_norm_sharded",
        ("dist.all_reduce(squares", "own = squares.sqrt()\n    dist.all_reduce(squares"),
        ("(norm + 1e-6)", "(own + 1e-6)"),
    )


@misconception("clip_grad_norm_sharded", file=SHARDING)
def shards_are_gathered(text):
    """The whole gradient travels to every rank for the sake of one number; that costs what sharding
    has saved, in traffic and in memory. Each rank can send its sum of squares."""
    return changed_in(
        text,
        "clip_grad_norm_sharded",
        (
            "squares += part.float().square().sum()",
            "squares += torch.cat(gathered(part)).float().square().sum()",
        ),
        (
            "    squares = torch.zeros(())\n",
            """    def gathered(part):
        counts = [torch.tensor(0) for _ in range(dist.get_world_size(pg))]
        dist.all_gather(counts, torch.tensor(len(part)), group=pg)
        longest = int(max(counts))
        mine = torch.zeros(longest, dtype=part.dtype)
        mine[: len(part)] = part
        pieces = [torch.zeros_like(mine) for _ in counts]
        dist.all_gather(pieces, mine, group=pg)
        return pieces

    squares = torch.zeros(())
""",
        ),
        ("    dist.all_reduce(squares, group=pg)\n", ""),
    )


@misconception("clip_grad_norm_sharded", file=SHARDING)
def squares_keep_the_dtype(text):
    """Squares are taken and added in the gradients' own dtype: bfloat16 leaves 8 bits of a sum, and
    in float16 the square of 256 and more is infinite."""
    return changed_in(text, "clip_grad_norm_sharded", ("part.float().square()", "part.square()"))


@misconception("full_state_dict", file=SHARDING)
def one_shard_is_saved(text):
    """Rank 0 saves what it has, the first of N shards; the file looks whole, and all that the other
    ranks own is lost with the job."""
    return changed_in(
        text,
        "full_state_dict",
        (
            "dist.gather(shard[key], parts, group=pg, group_dst=0)",
            "parts = parts and [shard[key], *(torch.zeros_like(part) for part in parts[1:])]",
        ),
    )


@misconception("full_state_dict", file=SHARDING)
def shards_are_interleaved(text):
    """Shards are put together element by element, one of each rank in turn; a rank holds a
    contiguous slice of the flat buffer, so they lie end to end."""
    return changed_in(
        text, "full_state_dict", ("torch.cat(parts)", "torch.stack(parts, dim=1).reshape(-1)")
    )


@misconception("full_state_dict", file=SHARDING)
def padding_is_saved(text):
    """The last parameter is given all that is left, the padding with it: a bias of 7 is saved with
    9 elements, and no model with another number of ranks can load it."""
    return changed_in(
        text,
        "full_state_dict",
        (
            "whole[key][name] = flat[begin : begin + p.numel()].view(p.shape).clone()",
            "end = None if name == [*params][-1] else begin + p.numel()\n"
            "                whole[key][name] = flat[begin:end].view(-1, *p.shape[1:]).clone()",
        ),
    )


@misconception("full_state_dict", file=SHARDING)
def step_is_not_saved(text):
    """The step counter is not in the file: AdamW corrects full-grown moments as if it were step 1,
    and with the default betas the first update has 0.32 times its size."""
    return changed_in(text, "full_state_dict", ('{"step": shard["step"], **moments}', "moments"))


@misconception("full_state_dict", file=SHARDING)
def moments_are_not_saved(text):
    """Only the step and the weights are saved; AdamW starts with empty moments, and the loss jumps
    at every restart."""
    return changed_in(
        text, "full_state_dict", ('{"step": shard["step"], **moments}', '{"step": shard["step"]}')
    )


@misconception("full_state_dict", file=SHARDING)
def keys_of_a_wrapper(text):
    """Keys begin with "module.": they are a wrapper's, and the plain model that evaluates or serves
    these weights finds none of its own."""
    return changed_in(text, "full_state_dict", ("state[name] =", 'state["module." + name] ='))


@misconception("full_state_dict", file=SHARDING)
def parameters_alone(text):
    """Only what an optimizer steps on is saved: running statistics, frozen layers and a tied
    weight's second name are missing, and load_state_dict refuses the file."""
    return changed_in(
        text,
        "full_state_dict",
        ('return {"model": state,', 'return {"model": whole["param"],'),
    )


@misconception("full_state_dict", file=SHARDING)
def second_name_is_stale(text):
    """A tied weight's second name is looked up in the model, where weights are stale or freed; both
    names must get the shard's numbers."""
    return changed_in(
        text,
        "full_state_dict",
        ("first_name.get(id(value))", "name if name in params else None"),
    )


@misconception("full_state_dict", file=SHARDING)
def checkpoints_are_float32(text):
    """Everything is saved in float32, whatever it was: a float64 run loses digits, and a bfloat16
    one gets a file twice the size that loads as another dtype."""
    return changed_in(text, "full_state_dict", ("torch.cat(parts)", "torch.cat(parts).float()"))


@misconception("full_state_dict", file=SHARDING)
def everybody_gathers(text):
    """all_gather brings the whole state to every rank, 12 bytes a parameter or more where only 1/N
    of that fits, and all but rank 0's is thrown away."""
    return changed_in(
        text,
        "full_state_dict",
        (" for _ in range(world_size)] if rank == 0 else None", " for _ in range(world_size)]"),
        (
            "dist.gather(shard[key], parts, group=pg, group_dst=0)",
            "dist.all_gather(parts, shard[key], group=pg)",
        ),
    )


@misconception("full_state_dict", file=SHARDING)
def everybody_returns_it(text):
    """Every rank returns the whole checkpoint, so N of them are in memory and N processes write the
    same file."""
    return changed_in(
        text,
        "full_state_dict",
        (" for _ in range(world_size)] if rank == 0 else None", " for _ in range(world_size)]"),
        (
            "dist.gather(shard[key], parts, group=pg, group_dst=0)",
            "dist.all_gather(parts, shard[key], group=pg)",
        ),
        ("    if rank != 0:\n        return None\n", ""),
    )


_CUT = """size = -(-len(flat) // world_size)
        mine = flat[rank * size : (rank + 1) * size]
        shard = flat.new_zeros(size)
        shard[: len(mine)] = mine
        return shard"""


@misconception("reshard", file=SHARDING)
def shards_of_unequal_size(text):
    """The last ranks get shorter shards than the first; all-gather and reduce-scatter exchange
    equal pieces, so the end is filled up with zeros."""
    return changed_in(text, "reshard", (_CUT, "return flat.tensor_split(world_size)[rank].clone()"))


@misconception("reshard", file=SHARDING)
def the_remainder_is_left_out(text):
    """floor(total / N) elements a rank: what is left over, up to N - 1 elements at the end of the
    last bias, is on no rank. Round up."""
    return changed_in(
        text, "reshard", ("-(-len(flat) // world_size)", "max(1, len(flat) // world_size)")
    )


@misconception("reshard", file=SHARDING)
def padded_one_by_one(text):
    """Every parameter is filled up to a multiple of N before they are put together: zeros stand
    between parameters, and all that follows is shifted. Padding stands once, at the very end."""
    return changed_in(
        text,
        "reshard",
        (
            "[tensors[name].reshape(-1) for name in optimizer",
            "[\n            nn.functional.pad(\n                tensors[name].reshape(-1), "
            "(0, -tensors[name].numel() % world_size)\n            )\n"
            "            for name in optimizer",
        ),
    )


@misconception("reshard", file=SHARDING)
def steps_start_again(text):
    """The new ranks begin at step 0: AdamW corrects full-grown moments as if it were step 1, and
    with the default betas the first update has 0.32 times its size."""
    return changed_in(text, "reshard", ('"step": optimizer["step"],', '"step": 0,'))


@misconception("reshard", file=SHARDING)
def moments_start_again(text):
    """The new ranks begin with empty moments; the parameters go on, but AdamW has forgotten how
    large gradients are, and its next steps are those of a new run."""
    return changed_in(
        text,
        "reshard",
        ('cut(optimizer["exp_avg"])', 'torch.zeros_like(cut(optimizer["exp_avg"]))'),
        ('cut(optimizer["exp_avg_sq"])', 'torch.zeros_like(cut(optimizer["exp_avg_sq"]))'),
    )


@misconception("reshard", file=SHARDING)
def a_view_of_the_whole(text):
    """The shard is a slice of the flat buffer, and a slice is a view: the whole stays in memory
    behind it on every rank, and nothing is saved."""
    return changed_in(
        text,
        "reshard",
        (
            """mine = flat[rank * size : (rank + 1) * size]
        shard = flat.new_zeros(size)
        shard[: len(mine)] = mine
        return shard""",
            """flat = nn.functional.pad(flat, (0, size * world_size - len(flat)))
        return flat[rank * size : (rank + 1) * size]""",
        ),
    )


@misconception("reshard", file=SHARDING)
def moments_in_the_parameters_dtype(text):
    """Moments are given the parameters' dtype: a bfloat16 second moment stops moving, because 0.001
    of a squared gradient is less than half a step of it."""
    return changed_in(
        text,
        "reshard",
        (
            "return shard\n",
            'return shard.to(full["model"][next(iter(optimizer["exp_avg"]))].dtype)\n',
        ),
    )


@misconception("reshard", file=SHARDING)
def in_the_order_of_the_alphabet(text):
    """Parameters are put together in the order of their sorted names; ranks read the buffer in the
    model's order, and weights end up in each other's places without an error."""
    return changed_in(
        text, "reshard", ('in optimizer["exp_avg"]]', 'in sorted(optimizer["exp_avg"])]')
    )


@misconception("reshard", file=SHARDING)
def everything_in_the_file_is_cut(text):
    """All of the model's entries go into the flat buffer, with running statistics, frozen layers
    and a tied weight twice; shards hold what is trained, each parameter once."""
    return changed_in(
        text,
        "reshard",
        (
            "[tensors[name].reshape(-1) for name in optimizer",
            "[value.reshape(-1) for value in tensors.values() if optimizer",
        ),
    )


@misconception("MasterWeights", file=SHARDING)
def master_is_rounded_every_step(text):
    """The master is cast to bfloat16 after each step: updates under one bf16 ulp vanish, each of
    them, and training stands still while the gradients say go on."""
    return changed_in(
        text,
        "MasterWeights",
        (
            "rounded = self.master.bfloat16()\n",
            "rounded = self.master.bfloat16()\n        self.master = rounded.float()\n",
        ),
    )


@misconception("MasterWeights", file=SHARDING)
def moments_are_bfloat16(text):
    """The moments are kept in bfloat16: with beta2 = 0.999 the second one takes in 0.1 % of each
    new square, less than half a step of bfloat16 (0.2 to 0.4 %), and stops moving."""
    return changed_in(
        text,
        "MasterWeights",
        (
            "self.exp_avg = torch.zeros_like(self.master)",
            "self.exp_avg = torch.zeros_like(self.master).bfloat16()",
        ),
        (
            "self.exp_avg_sq = torch.zeros_like(self.master)",
            "self.exp_avg_sq = torch.zeros_like(self.master).bfloat16()",
        ),
        (
            "self.exp_avg.lerp_(grad, 1 - beta1)",
            "first = self.exp_avg.float().lerp_(grad, 1 - beta1)",
        ),
        (
            "self.exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)",
            "second = self.exp_avg_sq.float().mul_(beta2)"
            ".addcmul_(grad, grad, value=1 - beta2)\n"
            "        self.exp_avg, self.exp_avg_sq = first.bfloat16(), second.bfloat16()",
        ),
    )


_OWN = """self.master = torch.zeros(size, dtype=torch.float32)
        self.master[: len(mine)] = mine
"""


@misconception("MasterWeights", file=SHARDING)
def master_is_a_view(text):
    """The master is a slice of a float32 copy of everything, and a slice is a view: 4 bytes a
    parameter stay alive on every rank. Copy the slice, let go of the rest."""
    return changed_in(
        text,
        "MasterWeights",
        (
            _OWN,
            """flat = nn.functional.pad(flat, (0, size * world_size - len(flat))).float()
        self.master = flat[rank * size : (rank + 1) * size]
""",
        ),
    )


@misconception("MasterWeights", file=SHARDING)
def state_of_the_whole(text):
    """Master and moments of all parameters are made on every rank, 12 bytes each, and one slice of
    them is used: values are right, and not a byte is saved."""
    return changed_in(
        text,
        "MasterWeights",
        (
            _OWN
            + """        self.exp_avg = torch.zeros_like(self.master)
        self.exp_avg_sq = torch.zeros_like(self.master)
""",
            """flat = nn.functional.pad(flat, (0, size * world_size - len(flat))).float()
        own = slice(rank * size, (rank + 1) * size)
        self.master, self.exp_avg = flat[own], torch.zeros_like(flat)[own]
        self.exp_avg_sq = torch.zeros_like(flat)[own]
""",
        ),
    )


@misconception("MasterWeights", file=SHARDING)
def parameters_take_the_update(text):
    """The master is right, but the bfloat16 parameters get the update added to them instead of the
    master's value: each sum is rounded, small ones vanish, and the two drift apart."""
    return changed_in(
        text,
        "MasterWeights",
        (
            "        self.exp_avg_sq = torch.zeros_like(self.master)\n",
            "        self.exp_avg_sq = torch.zeros_like(self.master)\n"
            "        self.own = self.master.bfloat16()\n",
        ),
        ("self.steps += 1\n", "self.steps += 1\n        before = self.master.clone()\n"),
        (
            "rounded = self.master.bfloat16()\n",
            "rounded = self.own.add_((self.master - before).bfloat16())\n",
        ),
    )


@misconception("MasterWeights", file=SHARDING)
def others_keep_the_old_ones(text):
    """Each rank rounds its own slice into its own parameters and tells nobody: every rank computes
    with new numbers in one slice and old ones in the others."""
    return changed_in(
        text,
        "MasterWeights",
        (
            "flat = rounded.new_empty(len(rounded) * dist.get_world_size(self.pg))\n"
            "        dist.all_gather_into_tensor(flat, rounded, group=self.pg)\n",
            "flat = torch.cat([p.reshape(-1) for p in self.params])\n"
            "        lo = dist.get_rank(self.pg) * len(rounded)\n"
            "        flat[lo : lo + len(rounded)] = rounded[: len(flat[lo : lo + len(rounded)])]\n",
        ),
    )


@misconception("MasterWeights", file=SHARDING)
def the_master_travels(text):
    """The float32 master is gathered and rounded by who receives it: the same parameters for twice
    the traffic, and a float32 copy of the whole model on every rank while it lasts."""
    return changed_in(
        text, "MasterWeights", ("rounded = self.master.bfloat16()\n", "rounded = self.master\n")
    )
