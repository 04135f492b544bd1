from grader.suite import lines, misconception

from ._passages import _body

parameters_are_never_released = lines(
    """The gathered parameters stay: numbers are right, and after one forward every rank holds the
    whole model again. Releasing is setting the storage to 0 bytes.""",
    (
        "if whole.untyped_storage().nbytes() == 0:\n"
        "                whole.untyped_storage().resize_(whole.nbytes)",
        "if True:",
    ),
    ("whole.untyped_storage().resize_(0)", "pass"),
)


@misconception(file="zero_sharding.py")
def kept_from_forward_to_backward(text):
    """Parameters are kept after forward so that backward need not gather them: 2 Psi instead of 3,
    but the whole model is in memory when the last forward ends, as in ZeRO-2."""
    return _body(text, "after_forward", "        pass", "Zero3Module")


the_whole_model_at_once = lines(
    """Every block that follows is gathered before the first one computes: the peak is the whole
    model, which sharding is there to avoid. Look ahead `prefetch` blocks, no further.""",
    ("next_blocks[: self.prefetch]", "next_blocks"),
    ("[: self.prefetch]", ""),
)

not_released_after_backward = lines(
    """After backward the parameters stay: peak and idle bytes grow block by block until the whole
    model is there. Backward ends as forward does, with a release.""",
    (
        "self._release()\n        ",
        "",
    ),
)

shards_hold_the_sum = lines(
    """The reduce-scatter's sum goes to the shards undivided: the gradient of all rows is the mean
    over the ranks.""",
    ("        flat /= dist.get_world_size(self.pg)\n", ""),
)

gradients_are_all_reduced = lines(
    """The gradients are all-reduced and sliced: each rank receives all of them to keep an Nth, 4
    Psi a step instead of 3.""",
    (
        "dist.reduce_scatter_tensor(grad, flat, group=self.pg)",
        "dist.all_reduce(flat, group=self.pg)\n"
        "        grad.copy_(flat[dist.get_rank(self.pg) * len(grad) :][: len(grad)])",
    ),
)

full_gradients_stay = lines(
    """The block's own .grad are left after their reduce-scatter: full gradients of the whole model
    at the end of backward, and the next backward adds to them.""",
    ("                p.grad = None\n", ""),
)

the_last_backward_wins = lines(
    """A second backward overwrites the shard's gradient; as everywhere in torch, gradients add up
    until they are cleared.""",
    ("shard.grad = grad if shard.grad is None else shard.grad + grad", "shard.grad = grad"),
)

gathered_once_and_for_all = lines(
    """The gather before backward gives back what forward had, not what the shards hold: a copy of
    the whole block was kept somewhere, which is the memory that sharding was to save.""",
    (
        "self.pending.pop().wait()",
        "self.pending.pop().wait()\n"
        "        if torch._C._current_graph_task_id() == -1:\n"
        "            self.kept = [whole.clone() for whole in self.wholes]\n"
        "        else:\n"
        "            for whole, kept in zip(self.wholes, self.kept, strict=True):\n"
        "                whole.copy_(kept)",
    ),
)

_NOTHING_BESIDE = """The gathers of the next blocks are waited for before this one computes: blocks
    are fetched earlier, and nothing runs beside the computation. Issue a gather with async_op=True,
    and let each block wait for its own."""

gathers_block = lines(
    _NOTHING_BESIDE,
    (
        ", group=self.pg, async_op=True\n                )\n"
        "                self.pending.append(work)\n",
        ", group=self.pg\n                )\n",
    ),
)

waits_for_what_it_prefetches = lines(
    _NOTHING_BESIDE,
    (
        "for module in [self, *self.next_blocks[: self.prefetch]]:\n"
        "            module._start_gather()\n        self._wait()",
        "for module in [self, *self.next_blocks[: self.prefetch]]:\n"
        "            module._start_gather()\n"
        "        for module in [self, *self.next_blocks[: self.prefetch]]:\n"
        "            module._wait()",
    ),
    (
        "for module in [self, *self.previous_blocks[: self.prefetch]]:\n"
        "            module._start_gather()\n        self._wait()",
        "for module in [self, *self.previous_blocks[: self.prefetch]]:\n"
        "            module._start_gather()\n"
        "        for module in [self, *self.previous_blocks[: self.prefetch]]:\n"
        "            module._wait()",
    ),
)

nothing_is_prefetched = lines(
    """While a block computes, no gather of the next one runs: each gathers itself when its turn
    comes, and computation waits for every gather. Issue those of the next `prefetch` blocks before
    this one computes.""",
    ("[self, *self.next_blocks[: self.prefetch]]", "[self]"),
    ("[self, *self.previous_blocks[: self.prefetch]]", "[self]"),
)

looks_ahead_in_backward = lines(
    """Backward runs through the blocks in reverse, so what comes next are the blocks BEFORE this
    one; those that follow are over, and gathering them again keeps them whole.""",
    ("self.previous_blocks[: self.prefetch]", "self.next_blocks[: self.prefetch]"),
)

_FROZEN_STAY = """Frozen parameters are gathered and never released: with LoRA these are nearly
    all, so that every rank soon holds the whole model again."""

frozen_stay_whole = lines(
    _FROZEN_STAY,
    (
        "for whole in self.wholes:\n            whole.untyped_storage().resize_(0)",
        "for whole in self.wholes[:1]:\n            whole.untyped_storage().resize_(0)",
    ),
)

all_frozen_stay_whole = lines(
    _FROZEN_STAY,
    (
        "for whole in self.wholes:\n            whole.untyped_storage().resize_(0)",
        "for whole, group in zip(self.wholes, self.groups, strict=True):\n"
        "            if group is self.trainable:\n"
        "                whole.untyped_storage().resize_(0)",
    ),
)

frozen_shards_require_gradients = lines(
    """The shard of the frozen parameters requires a gradient: an optimizer that is given all shards
    keeps moments for it, and its weight decay trains what is frozen.""",
    ("requires_grad=group is self.trainable", "requires_grad=True"),
)

gathers_the_first_values = lines(
    """What is gathered are the slices as they were in the constructor, not what the shards hold
    now: an optimizer steps on the shards, and forward never sees it.""",
    (
        "self.pending: list[dist.Work] = []\n",
        "self.pending: list[dist.Work] = []\n        self.first: list[Tensor] = []\n",
    ),
    (
        "own = whole[rank * each : (rank + 1) * each].clone()\n",
        "own = whole[rank * each : (rank + 1) * each].clone()\n"
        "            self.first.append(own.clone())\n",
    ),
    ("zip(self.wholes, self.shards, strict=True)", "zip(self.wholes, self.first, strict=True)"),
)

only_the_farthest_is_prefetched = lines(
    """Only the block that is `prefetch` further on is gathered ahead, not those between: where no
    block came before, at both ends of the chain, the direct neighbour is not on its way.""",
    ("next_blocks[: self.prefetch]", "next_blocks[max(0, self.prefetch - 1) : self.prefetch]"),
    (
        "previous_blocks[: self.prefetch]",
        "previous_blocks[max(0, self.prefetch - 1) : self.prefetch]",
    ),
)


@misconception(file="zero_sharding.py")
def released_in_training_only(text):
    """After a forward without gradients the parameters stay: the whole model is there after an
    evaluation, and the next forward computes with old values. Every forward ends with a release."""
    code = "        if torch.is_grad_enabled():\n            self._release()"
    return _body(text, "after_forward", code, "Zero3Module")


old_gradients_are_averaged_again = lines(
    """The new sum is added to the gradient that is there, and both are divided by the number of
    ranks: what was a mean already is divided once more with each backward.""",
    ("        flat /= dist.get_world_size(self.pg)\n", ""),
    (
        "shard.grad = grad if shard.grad is None else shard.grad + grad",
        "shard.grad = grad if shard.grad is None else shard.grad + grad\n"
        "        shard.grad /= dist.get_world_size(self.pg)",
    ),
)

no_gradient_nothing_sent = lines(
    """Where no parameter of the block has a gradient, nothing is reduced and the shard's .grad
    stays None: a missing gradient counts as zeros, and another rank may have some.""",
    (
        "        if not self.trainable:\n            return\n",
        "        if all(p.grad is None for p in self.trainable):\n            return\n",
    ),
    gate=False,
)
