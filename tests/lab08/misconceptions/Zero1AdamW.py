from grader.suite import lines, misconception

from ._passages import _body, _inside

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


@misconception(file="zero_sharding.py")
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


@misconception(file="zero_sharding.py")
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


all_reduce_then_all_gather = lines(
    """You moved 3 Psi: an all-reduce is a reduce-scatter AND an all-gather, and only the slice of
    its result was used. Reduce-scatter + all-gather is 2 Psi, the same as DDP.""",
    (
        "dist.reduce_scatter_tensor(shard, flat, group=self.pg)",
        "dist.all_reduce(flat, group=self.pg)\n"
        "        shard.copy_(flat[self.lo : self.lo + self.shard_numel])",
    ),
)

sums_where_the_mean_is_meant = lines(
    """A reduce-scatter adds up; the gradient of all rows is the mean over the ranks. AdamW hides
    most of the factor N, because it divides by the gradient's own size, but eps stays as it is.""",
    ("        flat /= self.world_size\n", ""),
)


@misconception(file="zero_sharding.py")
def elements_of_nobody(text):
    """With total // N elements per rank, up to N - 1 elements at the end are never trained: round
    up, and pad the last slice."""
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


weight_decay_in_the_gradient = lines(
    """Weight decay was added to the gradient and divided by its root mean square with it: that is
    Adam with L2. AdamW's decay is decoupled: p *= 1 - lr * wd.""",
    (
        "beta1, beta2 = self.betas",
        "beta1, beta2 = self.betas\n        grad = grad + self.wd * own",
    ),
    ("mul_(1 - self.lr * self.wd).", ""),
)

a_step_for_every_piece = lines(
    """The step count grows by one for every parameter that has a piece in the slice, so bias
    correction differs between ranks: a step() adds 1, however many pieces a slice holds.""",
    (
        "self.steps += 1",
        "ends = torch.tensor([p.numel() for p in self.params]).cumsum(0)\n"
        "        inside = (ends > self.lo) & (ends - ends.diff(prepend=ends.new_zeros(1)) "
        "< self.lo + self.shard_numel)\n"
        "        self.steps += int(inside.sum())",
    ),
)

without_the_gather = lines(
    """Each rank updated its slice and kept it: without the all-gather the replicas differ from the
    first step on, each right in another Nth of the model.""",
    (
        "dist.all_gather_into_tensor(flat, own, group=self.pg)",
        "flat[self.lo : self.lo + self.shard_numel] = own",
    ),
)

a_copy_from_the_constructor = lines(
    """This rank's slice was copied in the constructor and is stepped from that copy: it stays in
    memory beside the moments, and a checkpoint that is loaded into the parameters later is
    overwritten.""",
    (
        "self.lo = dist.get_rank(pg) * self.shard_numel",
        "self.lo = dist.get_rank(pg) * self.shard_numel\n"
        "        whole = torch.zeros(self.world_size * self.shard_numel, dtype=self.dtype)\n"
        "        whole[:total] = torch.cat([p.detach().reshape(-1) for p in self.params])\n"
        "        self.own = whole[self.lo : self.lo + self.shard_numel].clone()",
    ),
    ("own = flat[self.lo : self.lo + self.shard_numel].clone()", "own = self.own"),
)

_VIEWS = """The moments are slices of buffers made whole: a view keeps all of its storage alive, so
    the rank still holds N shares."""

moments_are_views = lines(
    _VIEWS,
    (
        "self.exp_avg = torch.zeros(self.shard_numel, dtype=self.dtype)\n"
        "        self.exp_avg_sq = torch.zeros(self.shard_numel, dtype=self.dtype)",
        "self.exp_avg = torch.zeros(total, dtype=self.dtype)[: self.shard_numel]\n"
        "        self.exp_avg_sq = torch.zeros(total, dtype=self.dtype)[: self.shard_numel]",
    ),
)

moments_are_views_of_the_padded_whole = lines(
    _VIEWS,
    (
        "self.exp_avg = torch.zeros(self.shard_numel, dtype=self.dtype)\n"
        "        self.exp_avg_sq = torch.zeros(self.shard_numel, dtype=self.dtype)",
        "all_of_it = self.world_size * self.shard_numel\n"
        "        self.exp_avg = torch.zeros(all_of_it, dtype=self.dtype)"
        "[self.lo : self.lo + self.shard_numel]\n"
        "        self.exp_avg_sq = torch.zeros(all_of_it, dtype=self.dtype)"
        "[self.lo : self.lo + self.shard_numel]",
    ),
)

the_flat_buffer_is_kept = lines(
    """The flat buffer of all parameters is kept from step to step: that is a second copy of the
    model on every rank. Let it go, or make the parameters views of it.""",
    (
        "dist.all_gather_into_tensor(flat, own, group=self.pg)",
        "self.gathered = flat\n        dist.all_gather_into_tensor(flat, own, group=self.pg)",
    ),
)

a_missing_gradient_takes_no_place = lines(
    """A parameter without gradient is skipped, and all that follow move up in the flat buffer: they
    are stepped with each other's gradients. Its place stays, and holds zeros.""",
    (
        "flat[at : at + p.numel()] = p.grad.reshape(-1)\n            at += p.numel()",
        "flat[at : at + p.numel()] = p.grad.reshape(-1)\n                at += p.numel()",
    ),
)

_STEP = "own.mul_(1 - self.lr * self.wd).addcdiv_(m, v.sqrt_().add_(self.eps), value=-self.lr)"

decay_comes_after_the_step = lines(
    """AdamW decays the parameter as it was before its step, p *= 1 - lr wd, and then takes the
    step; decayed afterwards, the step itself is decayed too.""",
    (
        _STEP,
        "own.addcdiv_(m, v.sqrt_().add_(self.eps), value=-self.lr).mul_(1 - self.lr * self.wd)",
    ),
)

eps_is_under_the_root = lines(
    """eps is added to the root, sqrt(v) + eps, not under it: sqrt(v + eps) is 1e-4 with the default
    eps where v is 0, ten thousand times as large.""",
    ("v.sqrt_().add_(self.eps)", "v.add_(self.eps).sqrt_()"),
)

_BIAS = """Both moments begin at 0 and are divided by 1 - beta^t for it; without that the first
    steps have another size."""

the_first_moment_is_not_corrected = lines(
    _BIAS, ("m = self.exp_avg / (1 - beta1**self.steps)", "m = self.exp_avg")
)

the_second_moment_is_not_corrected = lines(
    _BIAS, ("v = self.exp_avg_sq / (1 - beta2**self.steps)", "v = self.exp_avg_sq.clone()")
)

written_into_a_copy = lines(
    """The gathered values are written through p.reshape(-1), which is a copy where a parameter is
    not contiguous: that parameter is never updated. Copy into the parameter itself.""",
    (
        "p.copy_(flat[at : at + p.numel()].view_as(p))",
        "p.reshape(-1).copy_(flat[at:][: p.numel()])",
    ),
)


@misconception(file="zero_sharding.py", gate=False)
def no_gradient_no_step(text):
    """A rank that has no gradient leaves step() at once: its moments, weight decay and step count
    stand still, and ranks that do have gradients wait for it in the collective. A missing gradient
    counts as zeros."""
    return _inside(
        text,
        "Zero1AdamW",
        (
            "        self.step_shard(self.reduce_gradients())\n",
            "        if all(p.grad is None for p in self.params):\n            return\n"
            "        self.step_shard(self.reduce_gradients())\n",
        ),
    )


the_given_gradient_is_squared = lines(
    """The gradient that step_shard() is given is squared in place: it belongs to the caller, who
    may look at it afterwards. Use operations that write into the moments.""",
    ("addcmul_(grad, grad, value=1 - beta2)", "add_(grad.square_(), alpha=1 - beta2)"),
)
