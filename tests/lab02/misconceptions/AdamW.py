from grader.suite import lines, misconception

DECAY = '                p.mul_(1 - lr * group["wd"])\n'
MEANS = (
    "                m.mul_(b1).add_(p.grad, alpha=1 - b1)\n"
    "                v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)\n"
)
ROOT = 'denominator = v.div(1 - b2**t).sqrt_().add_(group["eps"])'
NO_GRADIENT = "                if p.grad is None:\n                    continue\n"

decay_through_the_moments = lines(
    """The decay is added to the gradient, so it passes through m and v and is divided by the root
    of v (that is Adam with L2). Decoupled decay multiplies the parameter by 1 - lr wd, apart.""",
    (
        DECAY + MEANS,
        '                g = p.grad + group["wd"] * p\n'
        "                m.mul_(b1).add_(g, alpha=1 - b1)\n"
        "                v.mul_(b2).addcmul_(g, g, value=1 - b2)\n",
    ),
)

EPS_UNDER = (
    """eps is added to v, under the root, where 1e-8 acts like 1e-4: it is added to the root."""
)

eps_under_the_root = lines(
    EPS_UNDER, (ROOT, 'denominator = v.div(1 - b2**t).add_(group["eps"]).sqrt_()')
)

eps_under_the_uncorrected_root = lines(
    EPS_UNDER, (ROOT, 'denominator = v.add(group["eps"]).div_(1 - b2**t).sqrt_()')
)

eps_before_the_correction = lines(
    """eps is added to the root of v before its bias correction, which then makes it larger (32
    times at step 1): correct v, take the root, add eps.""",
    (ROOT, 'denominator = v.sqrt().add_(group["eps"]).div_((1 - b2**t) ** 0.5)'),
)

NO_CORRECTION = """m and v start at 0 and are too small at first (at step 1 v is 0.001 g^2 with
b2 = 0.999); divide them by 1 - b^t."""

no_bias_correction = lines(
    NO_CORRECTION, ("v.div(1 - b2**t).sqrt_()", "v.sqrt()"), ("-lr / (1 - b1**t)", "-lr")
)

no_correction_of_v = lines(NO_CORRECTION, ("v.div(1 - b2**t).sqrt_()", "v.sqrt()"))

no_correction_of_m = lines(NO_CORRECTION, ("-lr / (1 - b1**t)", "-lr"))

counts_from_zero = lines(
    """The count of steps is increased after the update, so t is 0 in the first one, where 1 -
    b^t is 0: a parameter's first step has t = 1.""",
    ('                state["step"] += 1\n', ""),
    ("value=-lr / (1 - b1**t))", 'value=-lr / (1 - b1**t))\n                state["step"] += 1'),
)

decay_without_the_learning_rate = lines(
    """The parameter is multiplied by 1 - wd; the decay of a step is lr wd, so that a schedule of
    the learning rate shrinks it, too.""",
    ("p.mul_(1 - lr * group", "p.mul_(1 - group"),
)

decay_after_the_step = lines(
    """The parameter decays after its update, so the update of this step is shrunk as well: decay
    first, then step.""",
    (DECAY, ""),
    (
        "value=-lr / (1 - b1**t))",
        'value=-lr / (1 - b1**t))\n                p.mul_(1 - lr * group["wd"])',
    ),
)

no_decay = lines("""The parameters never decay: wd is not used.""", (DECAY, ""))

ONE_COUNT = """All parameters share one step count; one that gets its first gradient later is
corrected as if its m and v had been growing since step 1. Count a parameter's own steps."""

one_count_for_all = lines(
    ONE_COUNT,
    (
        "        for group in self.param_groups:",
        "        self.count = getattr(self, 'count', 0) + 1\n"
        "        for group in self.param_groups:",
    ),
    ('                    state["step"] = 0\n', ""),
    ('                state["step"] += 1\n', ""),
    ('state["v"], state["step"]', 'state["v"], self.count'),
)

one_count_a_group = lines(
    ONE_COUNT,
    ('group["betas"]\n', 'group["betas"]\n            group["t"] = group.get("t", 0) + 1\n'),
    ('                    state["step"] = 0\n', ""),
    ('                state["step"] += 1\n', ""),
    ('state["v"], state["step"]', 'state["v"], group["t"]'),
)

ZERO_GRADIENT = """A parameter without a gradient is treated as if its gradient were 0: it
decays and its means fade. grad None means: leave it alone."""

no_gradient_is_a_gradient_of_zero = lines(
    ZERO_GRADIENT,
    (NO_GRADIENT, "                g = torch.zeros_like(p) if p.grad is None else p.grad\n"),
    (
        MEANS,
        "                m.mul_(b1).add_(g, alpha=1 - b1)\n"
        "                v.mul_(b2).addcmul_(g, g, value=1 - b2)\n",
    ),
)

decays_without_a_gradient = lines(
    """A parameter without a gradient decays all the same. grad None means: leave it alone.""",
    (DECAY, ""),
    (NO_GRADIENT, DECAY + NO_GRADIENT),
)
zeros_are_no_gradient = lines(
    """A gradient that is all zeros is treated like none; but then the parameter neither decays nor
    follows its momentum in that step. Only a `.grad` of None leaves it alone.""",
    (NO_GRADIENT, NO_GRADIENT.replace("is None:", "is None or not bool(p.grad.any()):")),
    gate=False,
)

the_count_is_cast = lines(
    """t is a tensor that load_state_dict casts to the parameter's dtype: bfloat16 has no 257, so
    after a resumption the count stands still. Keep a Python number, or the key "step", which is
    not cast.""",
    ('state["step"] = 0', 'state["t"] = torch.tensor(0.0)'),
    ('state["step"] += 1', 'state["t"] += 1'),
    ('state["v"], state["step"]', 'state["v"], float(state["t"])'),
    gate=False,
)


@misconception(replaces="AdamW.__init__")
def state_at_once(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, wd=1e-2):
    """The state is made with the optimizer: it then takes twice the parameters before the first
    step, and for parameters that never learn. Make it at a parameter's first step."""
    super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "wd": wd})
    for group in self.param_groups:
        for p in group["params"]:
            m, v = torch.zeros_like(p), torch.zeros_like(p)
            self.state[p] = {"step": 0, "m": m, "v": v}


new_state_every_step = lines(
    """m and v are made anew in each step and forget what they knew: they belong into
    self.state[p], where the next step finds them.""",
    ("                if not state:\n", "                if True:\n"),
)

keeps_the_old_gradients = lines(
    """The state holds more than two tensors of the parameter's size: m and v are all that the next
    step needs.""",
    (
        "                # The one temporary, as large as the parameter\n",
        '                state["g"] = p.grad.clone()\n',
    ),
)

FLOAT32 = """m and v are float32 whatever the parameter's dtype: beside bf16 parameters they take 8
bytes together and not 4. State has the dtype of its parameter."""
ZEROS = 'state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)'

state_in_float32 = lines(
    FLOAT32,
    (
        ZEROS,
        'state["m"] = torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32))\n'
        '                    state["v"] = torch.zeros_like(state["m"])',
    ),
)

always_in_float32 = lines(
    FLOAT32,
    (
        ZEROS,
        'state["m"] = torch.zeros_like(p, dtype=torch.float32)\n'
        '                    state["v"] = torch.zeros_like(state["m"])',
    ),
)

a_dict_of_its_own = lines(
    """m and v stand in a dict that is not self.state: state_dict() does not find them, so a run
    that stops loses them. Put them into self.state[p].""",
    ("state = self.state[p]", 'state = self.__dict__.setdefault("own", {}).setdefault(p, {})'),
)

OTHERS_SETTINGS = """A setting is not the group's own: lr, betas, eps and wd stand in each group of
param_groups, where a group or a schedule may have changed them."""

settings_of_the_first_group = lines(
    OTHERS_SETTINGS,
    ('lr, (b1, b2) = group["lr"]', 'group = {**self.param_groups[0], "params": group["params"]}\n'
     '            lr, (b1, b2) = group["lr"]'),
)  # fmt: skip

lr_of_the_first_group = lines(
    OTHERS_SETTINGS, ('lr, (b1, b2) = group["lr"]', 'lr, (b1, b2) = self.param_groups[0]["lr"]')
)

lr_of_the_constructor = lines(
    OTHERS_SETTINGS, ('lr, (b1, b2) = group["lr"]', 'lr, (b1, b2) = self.defaults["lr"]')
)

betas_of_the_constructor = lines(OTHERS_SETTINGS, ('group["betas"]', 'self.defaults["betas"]'))

settings_of_the_constructor = lines(
    OTHERS_SETTINGS,
    ('lr, (b1, b2) = group["lr"]', 'group = {**self.defaults, "params": group["params"]}\n'
     '            lr, (b1, b2) = group["lr"]'),
)  # fmt: skip


@misconception(replaces="AdamW.step")
def the_librarys_step(self):
    """PyTorch's own AdamW takes the step; it is what you are writing here."""
    if not hasattr(self, "other"):
        rows = [
            {**{k: v for k, v in g.items() if k != "wd"}, "weight_decay": g["wd"]}
            for g in self.param_groups
        ]
        self.other = torch.optim.AdamW(rows, foreach=False)
    self.other.step()
