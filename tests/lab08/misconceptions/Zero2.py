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
    """The gradient was copied into the bucket and stays in .grad, too: reduced, and as large as
    before. Set it to None.""",
    ("        param.grad = None\n", ""),
)

buckets_are_all_reduced = lines(
    """Each bucket is all-reduced and then sliced: that is called a reduce-scatter by nobody who
    counts. Every rank received all of it, 3 Psi with the all-gather instead of 2.""",
    (
        "dist.reduce_scatter_tensor(shard, flat, group=self.pg)",
        "dist.all_reduce(flat, group=self.pg)\n"
        "        shard.copy_(flat[dist.get_rank(self.pg) * len(shard) :][: len(shard)])",
    ),
)

buckets_are_summed = lines(
    """The buckets are summed and never divided by the number of ranks: a shard is N times the
    mean, and a norm that is clipped by it, too.""",
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
