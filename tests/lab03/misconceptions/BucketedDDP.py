from grader.lab.skeleton import changed
from grader.suite import lines, misconception

one_all_reduce_after_the_last_gradient = lines(
    """All buckets leave at the end of backward: every gradient waits for the last one, and the
    whole exchange is exposed.""",
    ("        self._launch_full_buckets()\n", ""),
    (
        "        used = self._count_unused_as_zeros() if self.find_unused else self.fresh",
        "        self._launch_full_buckets()\n"
        "        used = self._count_unused_as_zeros() if self.find_unused else self.fresh",
    ),
)


@misconception(file="train_ddp.py")
def one_blocking_all_reduce(text):
    """All gradients travel in ONE blocking all-reduce when backward is over: nothing is left to
    compute beside it, so this is plain data parallelism and no overlap, whatever it is called."""
    return changed(
        text,
        ("        self._launch_full_buckets()\n        # END SOLUTION", "        # END SOLUTION"),
        (
            "        used = self._count_unused",
            """        every = [p for bucket in self.buckets for p in bucket]
        flat = torch.cat([p.grad.reshape(-1) for p in every])
        dist.all_reduce(flat.mul_(1 / dist.get_world_size()))
        for p, mean in zip(every, flat.split([p.numel() for p in every])):
            p.grad.copy_(mean.view_as(p))
        self.fresh.clear()
        self.active = False
        return
        used = self._count_unused""",
        ),
    )


waits_in_the_gradient_hook = lines(
    """Each bucket is waited for where it is launched: the backward stands still until the bucket
    is back, and asynchronous becomes a word.""",
    (
        "self.running.append((flat, dist.all_reduce(flat, async_op=True)))",
        "self.running.append((flat, dist.all_reduce(flat, async_op=True)))\n"
        "            self.running[-1][1].wait()",
    ),
)

buckets_leave_when_they_are_ready = lines(
    """Buckets leave in the order in which they get ready, and that order is not the same on every
    rank: rank 0's left branch meets rank 1's right branch. Launch in index order.""",
    (
        "        while len(self.running) < len(self.buckets) and "
        "self.missing[len(self.running)] == 0:\n            index = len(self.running)\n",
        "        for index in [i for i, n in enumerate(self.missing) if n == 0]:\n"
        "            self.missing[index] = -1\n",
    ),
    (
        "self.running.append((flat,",
        "self.sent = [*self.sent, index] if self.running else [index]\n"
        "            self.running.append((flat,",
    ),
    (
        "bucket = self.buckets[index]\n            for",
        "bucket = self.buckets[self.sent[index]]\n            for",
    ),
)

parameters_are_broadcast_instead = lines(
    """Rank 0's parameters are sent before every forward and gradients stay local: the replicas are
    equal, but W - 1 ranks compute for nothing, because only rank 0's rows train the model.""",
    (
        "            self.active = self.synced  #",
        "            sync_module_(self.module)\n            self.active = False  #",
    ),
)

gradients_are_summed = lines(
    """The buckets are summed and never scaled: gradients are W times the mean.""",
    ("            flat.mul_(1 / dist.get_world_size())\n", ""),
)

replicas_begin_unequal = lines(
    """The constructor does not send rank 0's parameters: equal gradients keep the replicas exactly
    as far apart as they began.""",
    ("        sync_module_(module)\n        params", "        params"),
)

statistics_begin_unequal = lines(
    """The constructor sends rank 0's parameters and no buffer: training never reads BatchNorm's
    running statistics, so nothing shows until each rank evaluates another model.""",
    (
        "        sync_module_(module)\n        params",
        "        for p in module.parameters():\n            dist.broadcast(p.data, src=0)\n"
        "        params",
    ),
)

a_bucket_for_each_parameter = lines(
    """Every parameter is a bucket of its own: the latency of an all-reduce is paid for each of
    them, and small ones never use the bandwidth.""",
    ("assign_buckets(nbytes, caps)]", "[[i] for i in range(len(nbytes))]]"),
)

buckets_in_parameter_order = lines(
    """The buckets are planned from the first parameter on, but gradients come from the last one:
    bucket 0 is full when backward is over, and index order holds all others back until then.""",
    ("reversed(list(module.parameters()))", "list(module.parameters())"),
)

nobody_waits = lines(
    """backward returns while buckets are still on their way, and .grad keeps this rank's own
    gradients: the end of backward must wait and write the means back.""",
    ("queue_callback(self._on_backward_end)", "queue_callback(lambda: None)"),
)

exchanges_in_training_mode_only = lines(
    """The mode of the module is asked where the forward decides on an exchange; eval() changes
    dropout and batch statistics, and gradients come and travel as before. What counts is whether
    gradients are on.""",
    ("if torch.is_grad_enabled():", "if self.training:"),
    gate=False,
)

divides_by_the_world_size = lines(
    """Each gradient is divided by world_size; x / 3 and x times 1 / 3 are different floats, and the
    contract, like DDP's reducer, multiplies by the reciprocal.""",
    ("flat.mul_(1 / dist.get_world_size())", "flat.div_(dist.get_world_size())"),
    gate=False,
)
