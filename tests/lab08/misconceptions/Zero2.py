from grader.suite import lines, misconception

from ._passages import _inside

gradients_are_kept_until_the_step = lines(
    """Only the reduce-scatter was cut into buckets, and it waits for the step: every full gradient
    is alive at the end of backward, which is ZeRO-1. Let a bucket go when it is full.""",
    (
        "        while self.reduced < len(self.buckets) and self.missing[self.reduced] == "
        "0:\n"
        "            self._reduce_next()\n",
        "",
    ),
)

grad_stays = lines(
    """The gradient was copied into the bucket and stays in .grad as well, as large as before, so no
    memory is saved. Set .grad to None.""",
    ("        param.grad = None\n", ""),
)

buckets_are_all_reduced = lines(
    """Each bucket is all-reduced and then sliced: every rank receives all of it, 3 Psi a step with
    the all-gather instead of 2. A reduce-scatter sends each rank its slice only.""",
    (
        "dist.reduce_scatter_tensor(shard, flat, group=self.pg)",
        "dist.all_reduce(flat, group=self.pg)\n"
        "        shard.copy_(flat[dist.get_rank(self.pg) * len(shard) :][: len(shard)])",
    ),
)

buckets_are_summed = lines(
    """The buckets are summed and never divided by the number of ranks: a shard is N times the mean,
    and so is the norm that clipping computes from the shards.""",
    ("        flat /= dist.get_world_size(self.pg)\n", ""),
)

shards_are_views_of_their_buckets = lines(
    """The shard is a slice of the bucket's own buffer: a view keeps the whole bucket alive, and no
    byte is freed.""",
    (
        "shard = torch.empty(self.optimizers[index].shard_numel, dtype=flat.dtype)\n"
        "        dist.reduce_scatter_tensor(shard, flat, group=self.pg)",
        "shard = flat[dist.get_rank(self.pg) * self.optimizers[index].shard_numel :]\n"
        "        shard = shard[: self.optimizers[index].shard_numel]\n"
        "        dist.reduce_scatter_tensor(shard, flat.clone(), group=self.pg)",
    ),
)

buckets_are_never_freed = lines(
    """The flat bucket stays where it is after its reduce-scatter: at the end of backward all of
    them are there, as large as the gradients that they were made from.""",
    ("self.shards[index], self.flats[index] = shard, None", "self.shards[index] = shard"),
)

a_bucket_that_waits_is_forgotten = lines(
    """The bucket of a parameter without gradient is never reduced, and neither are those after it:
    finish() must let them go, with zeros for what did not come.""",
    (
        "        while self.reduced < len(self.buckets):\n            self._reduce_next()\n",
        "",
    ),
)


@misconception(file="zero_sharding.py")
def one_bucket_for_all(text):
    """Everything is one bucket: it is full when backward is over, so every full gradient was alive
    at once, and none left before the last one came."""
    return _inside(
        text,
        "Zero2",
        ("plan_buckets(trainable[::-1], bucket_bytes)", "plan_buckets(trainable[::-1], 1 << 40)"),
    )


leaves_whatever_the_order = lines(
    """A bucket leaves when it is full, also before an earlier one: ranks whose gradients come in
    another order send other buckets, and collectives meet by their order, not by their content.""",
    (
        "        while self.reduced < len(self.buckets) and self.missing[self.reduced] == "
        "0:\n"
        "            self._reduce_next()\n",
        "        if self.missing[index] == 0:\n"
        "            self.reduced = index\n"
        "            self._reduce_next()\n",
    ),
    (
        "        while self.reduced < len(self.buckets):\n            self._reduce_next()\n",
        "        for index, shard in enumerate(self.shards):\n"
        "            if shard is None:\n"
        "                self.reduced = index\n"
        "                self._reduce_next()\n",
    ),
)

_ONCE = """        if param in self.arrived:
            raise RuntimeError("A second gradient came before step(): one backward a step.")
"""

a_second_gradient_is_taken = lines(
    """A second gradient of a parameter is taken without a word: it overwrites the first one, or its
    bucket has left and it goes nowhere. That must be an error.""",
    (_ONCE, "        if param in self.arrived:\n            self.missing[index] += 1\n"),
)

noticed_when_the_bucket_has_left = lines(
    """A second gradient is noticed only when its bucket has left; while the bucket waits for
    others, it overwrites the first one.""",
    (
        _ONCE,
        _ONCE.replace("if param in self.arrived:", "if self.shards[index] is not None:")
        + "        if param in self.arrived:\n            self.missing[index] += 1\n",
    ),
)

old_gradients_stay_in_their_bucket = lines(
    """A gradient that waited in a bucket is still there after zero_grad(): a parameter that gets no
    gradient in the next backward counts with its old one, not as zeros.""",
    (
        "        self.flats: list[Tensor | None] = [None] * len(self.buckets)\n",
        '        if not hasattr(self, "flats"):\n'
        "            self.flats: list[Tensor | None] = [None] * len(self.buckets)\n",
    ),
)

one_bucket_a_hook = lines(
    """A hook sends one bucket at most: a full one that waited for an earlier bucket stays, with its
    whole gradients, until the next gradient or finish(). Go on until a bucket is not full.""",
    (
        "while self.reduced < len(self.buckets) and self.missing[self.reduced] == 0:",
        "if self.reduced < len(self.buckets) and self.missing[self.reduced] == 0:",
    ),
)

an_untouched_bucket_is_not_sent = lines(
    """A bucket that got no gradient on this rank is not reduced: the other ranks, which may have
    some for it, wait in a collective to which this rank does not come. Send zeros.""",
    (
        "        while self.reduced < len(self.buckets):\n            self._reduce_next()\n",
        "        while self.reduced < len(self.buckets):\n"
        "            if self.flats[self.reduced] is not None:\n"
        "                self._reduce_next()\n"
        "                continue\n"
        "            shard = torch.zeros_like(self.optimizers[self.reduced].exp_avg)\n"
        "            self.shards[self.reduced] = shard\n"
        "            self.reduced += 1\n",
    ),
)
