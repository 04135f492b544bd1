from grader.lab.skeleton import changed
from grader.suite import lines, misconception

buckets_that_are_not_full_never_leave = lines(
    """Rank 1 waits for a bucket rank 0 will never fill.""",
    (
        "        self.missing = [0] * len(self.buckets)\n        self._launch_full_buckets()\n",
        "        self.buckets = self.buckets[: len(self.running)]\n",
    ),
    (
        "        params = [p for bucket in self.buckets for p in bucket]\n        users",
        "        return set(self.fresh)\n        params = []\n        users",
    ),
)

zeros_for_everybody = lines(
    """A parameter that no rank used gets a gradient of zeros instead of None; weight decay and
    momentum then move a layer that took no part.""",
    (
        "return {p for p, count in zip(params, users.tolist(), strict=True) if count}",
        "return set(params)",
    ),
)

only_who_used_it_gets_the_mean = lines(
    """The mean is written only on the ranks that used the parameter; the others keep None, do not
    step, and the replicas drift apart.""",
    (
        "return {p for p, count in zip(params, users.tolist(), strict=True) if count}",
        "return set(self.fresh)",
    ),
)

the_mean_is_over_the_users = lines(
    """The sum is divided by the number of ranks that used the parameter; a mean over the global
    batch counts the others' rows too, as zeros.""",
    (
        "        return {p for p, count",
        "        counts = dict(zip(params, users.tolist()))\n"
        "        for (flat, work), bucket in zip(self.running, self.buckets):\n"
        "            work.wait()\n"
        "            pieces = flat.split([p.numel() for p in bucket])\n"
        "            for p, piece in zip(bucket, pieces):\n"
        "                piece.mul_(dist.get_world_size() / max(counts[p], 1))\n"
        "        return {p for p, count",
    ),
)

what_is_there_counts_as_use = lines(
    """A parameter counts as used because there is something in its `.grad`, which an earlier step
    may have left there. Used is what got a gradient in this backward, or in one under no_sync
    before it.""",
    ("[p in self.fresh for p in params]", "[p.grad is not None for p in params]"),
)


@misconception(file="train_ddp.py", gate=False)
def each_forward_forgets(text):
    """The record of used parameters begins anew at each forward, so what was used under no_sync
    only counts as unused and its sum is never averaged. It begins anew after an exchange."""
    return changed(
        text,
        (
            "            self.callback_queued = False\n",
            "            self.callback_queued = False\n            self.fresh.clear()\n",
        ),
    )
