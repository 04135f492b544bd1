from grader.suite import lines

master_is_rounded_every_step = lines(
    """The master is cast to bfloat16 after each step: updates below one bf16 ulp vanish at every
    step, and training stands still although the gradients are not 0.""",
    (
        "rounded = self.master.bfloat16()\n",
        "rounded = self.master.bfloat16()\n        self.master = rounded.float()\n",
    ),
)

_BF16_MOMENTS = """The moments are kept in bfloat16: with beta2 = 0.999 the second one takes in
    0.1 % of each new square, less than half a step of bfloat16 (0.2 to 0.4 %), and stops moving."""

moments_are_bfloat16 = lines(
    _BF16_MOMENTS,
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

master_is_a_view = lines(
    """The master is a slice of a float32 copy of everything, and a slice is a view: 4 bytes a
    parameter stay alive on every rank. Copy the slice, let go of the rest.""",
    (
        _OWN,
        """flat = nn.functional.pad(flat, (0, size * world_size - len(flat))).float()
        self.master = flat[rank * size : (rank + 1) * size]
""",
    ),
)

state_of_the_whole = lines(
    """Master and moments of all parameters are made on every rank, 12 bytes each, and one slice of
    them is used: values are right, and not a byte is saved.""",
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

parameters_take_the_update = lines(
    """The master is right, but the bfloat16 parameters get the update added to them instead of the
    master's value: each sum is rounded, small ones vanish, and the two drift apart.""",
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

others_keep_the_old_ones = lines(
    """Each rank rounds its own slice into its own parameters and tells nobody: every rank computes
    with new numbers in one slice and old ones in the others.""",
    (
        "flat = rounded.new_empty(len(rounded) * dist.get_world_size(self.pg))\n"
        "        dist.all_gather_into_tensor(flat, rounded, group=self.pg)\n",
        "flat = torch.cat([p.reshape(-1) for p in self.params])\n"
        "        lo = dist.get_rank(self.pg) * len(rounded)\n"
        "        flat[lo : lo + len(rounded)] = rounded[: len(flat[lo : lo + len(rounded)])]\n",
    ),
)

the_master_travels = lines(
    """The float32 master is gathered, and each rank rounds what it receives: the same parameters
    for twice the traffic, and a float32 copy of the whole model on every rank while it lasts.""",
    ("rounded = self.master.bfloat16()\n", "rounded = self.master\n"),
)

moments_are_bfloat16_and_stepped_in_it = lines(
    _BF16_MOMENTS,
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
        "self.exp_avg.mul_(beta1).add_(grad, alpha=1 - beta1)",
    ),
)

squares_are_taken_in_bfloat16 = lines(
    """The gradient is squared in bfloat16, where 8 bits of the square are left, before it goes into
    the second moment. Convert first, then square.""",
    ("grad = grad.float()\n", "square = (grad * grad).float()\n        grad = grad.float()\n"),
    ("addcmul_(grad, grad, value=1 - beta2)", "add_(square, alpha=1 - beta2)"),
)

averaged_again = lines(
    """The gradient that step() is given is the mean over the ranks already; divided by their number
    once more it is too small.""",
    ("grad = grad.float()\n", "grad = grad.float() / dist.get_world_size(self.pg)\n"),
)

every_step_is_the_first = lines(
    """The steps are not counted: bias correction divides by 1 - beta at every step, so that moments
    count up to 1 / (1 - beta) times too much.""",
    ("self.steps += 1\n", "self.steps = 1\n"),
)

moments_are_not_corrected = lines(
    """The moments are used as they are: they start at 0 and are too small at first, each by another
    factor, so with the default betas the first update has 3.2 times its size. Bias correction is
    missing.""",
    ("mean = self.exp_avg / (1 - beta1**self.steps)", "mean = self.exp_avg"),
    (
        "root = (self.exp_avg_sq / (1 - beta2**self.steps)).sqrt_().add_(self.eps)",
        "root = self.exp_avg_sq.sqrt().add_(self.eps)",
    ),
)

read_back_from_the_parameters = lines(
    """The master is read back from the rounded parameters at each step: what bfloat16 cannot hold
    is lost, and updates below half of its last bit vanish. Read the parameters once, in the
    constructor.""",
    (
        "self.steps += 1\n",
        "self.steps += 1\n"
        "        flat = torch.cat([p.reshape(-1) for p in self.params])\n"
        "        lo = dist.get_rank(self.pg) * len(self.master)\n"
        "        mine = flat[lo : lo + len(self.master)]\n"
        "        self.master[: len(mine)] = mine\n",
    ),
)

the_gradient_of_the_caller_is_squared = lines(
    """The gradient that step() is given is squared in place: a float32 one is not copied by
    .float(), and it belongs to the caller. Use operations that write into the moments.""",
    ("addcmul_(grad, grad, value=1 - beta2)", "add_(grad.square_(), alpha=1 - beta2)"),
)
