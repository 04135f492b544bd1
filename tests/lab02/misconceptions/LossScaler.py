import torch

from grader.suite import lines, misconception

LOOK = "                found = found or not bool(torch.isfinite(p.grad).all())\n"
DIVIDE = "                p.grad.div_(self.current)\n"
TWICE = (
    "        if id(opt) in self.found_inf:\n"
    "            raise RuntimeError("
    '"These gradients were unscaled already; call update() first.")\n'
)

steps_on_infinities = lines(
    """The step is taken although gradients are infinite: one such step makes the parameters NaN
    for good. Skip it.""",
    ("            return False\n        opt.step()\n        return True",
     "            opt.step()\n            return False\n        opt.step()\n        return True"),
)  # fmt: skip

never_skips = lines(
    """A step with infinite gradients is taken as if nothing were wrong: look at every gradient,
    and skip when one is infinite or NaN. A scaler that never skips is a multiplication.""",
    (LOOK, ""),
)

unscales_again = lines(
    """step unscales gradients that unscale_ had unscaled already: they are then too small by the
    whole scale.""",
    (
        "        if id(opt) not in self.found_inf:\n            self.unscale_(opt)\n",
        "        bad = self.found_inf.pop(id(opt), False)\n        self.unscale_(opt)\n"
        "        self.found_inf[id(opt)] = self.found_inf[id(opt)] or bad\n",
    ),
)

relies_on_the_caller = lines(
    """Gradients are stepped with the scale still in them when nobody called unscale_: step has to
    do it then.""",
    (
        "        if id(opt) not in self.found_inf:\n            self.unscale_(opt)\n",
        "        self.found_inf.setdefault(id(opt), False)\n",
    ),
)

looks_for_infinities_only = lines(
    """NaN is not looked for; inf - inf and 0 x inf give NaN, and isinf does not see it. Test
    isfinite.""",
    ("not bool(torch.isfinite(p.grad).all())", "bool(torch.isinf(p.grad).any())"),
)

looks_for_nan_only = lines(
    """Infinities are not looked for, and an overflow is one before it ever becomes NaN. Test
    isfinite.""",
    ("not bool(torch.isfinite(p.grad).all())", "bool(torch.isnan(p.grad).any())"),
)

looks_at_the_last_gradient = lines(
    """Only the gradient that was looked at last decides; one infinity in any of them makes the step
    a bad one.""",
    ("found = found or not bool", "found = not bool"),
)

FIRST_GROUP = """Only the optimizer's first group is unscaled and looked at: the parameters of
the others step with the scale still in their gradients."""

only_the_first_group = lines(
    FIRST_GROUP,
    ('(p for group in opt.param_groups for p in group["params"])', 'opt.param_groups[0]["params"]'),
)

clean_steps_are_never_reset = lines(
    """Clean steps are counted in all, not in a row: after a bad step the count starts again, or
    the scale is back at once.""",
    (
        "self.current *= self.backoff\n            self.clean_steps = 0",
        "self.current *= self.backoff",
    ),
)

grows_at_every_step_from_then_on = lines(
    """The count of clean steps is not set to 0 after growth, so the scale grows at every step
    after the first `interval`.""",
    ("if self.clean_steps == self.interval:", "if self.clean_steps >= self.interval:"),
    ("                self.clean_steps = 0\n", ""),
)

grows_once = lines(
    """The count of clean steps is not set to 0 after growth, so it never meets `interval` again and
    the scale grows only once.""",
    ("                self.clean_steps = 0\n", ""),
)

grows_one_step_late = lines(
    """The scale grows after interval + 1 clean steps in a row: the step that completes the interval
    is the one.""",
    ("self.clean_steps == self.interval", "self.clean_steps > self.interval"),
)

grows_one_step_early = lines(
    """The scale grows after interval - 1 clean steps in a row: count the step first, then
    compare.""",
    ("self.clean_steps == self.interval", "self.clean_steps >= max(1, self.interval - 1)"),
)

never_grows = lines(
    """The scale only falls: after `interval` clean steps in a row it has to try a larger one, or
    small gradients stay lost for the rest of the run.""",
    ("                self.current *= self.growth\n", ""),
)

never_backs_off = lines(
    """The scale stays where it overflowed, so every following step is skipped, too: after an
    infinity multiply by backoff.""",
    ("            self.current *= self.backoff\n", ""),
)

backs_off_for_each = lines(
    """The scale falls once for each optimizer that found an infinity; one update ends one step, and
    a bad step multiplies the scale by backoff once.""",
    (
        "self.current *= self.backoff",
        "self.current *= self.backoff ** sum(self.found_inf.values())",
    ),
)

all_must_overflow = lines(
    """The scale falls only if every optimizer found an infinity; one bad gradient in any of them is
    enough.""",
    ("if any(self.found_inf.values()):", "if self.found_inf and all(self.found_inf.values()):"),
)

the_scale_has_a_floor = lines(
    """The scale is kept at 1 or above. It has no floor: gradients that overflow at 1 need a scale
    below it.""",
    ("self.current *= self.backoff", "self.current = max(1.0, self.current * self.backoff)"),
)

scale_detaches = lines(
    """The scaled loss is no longer part of the graph: multiply the loss itself, not its value.""",
    ("return loss * self.current", "return loss + loss.detach() * (self.current - 1)"),
)

scales_in_place = lines(
    """scale() multiplies the loss itself, so the loss that is logged afterwards has the scale
    in it: give a new tensor.""",
    ("return loss * self.current", "return loss.mul_(self.current)"),
)

unscaling_twice_is_silent = lines(
    """A second unscale_ divides again without a word; remember that it was done, and raise
    RuntimeError.""",
    (TWICE, ""),
)
BESIDE = """Gradients beside an infinity keep the scale: unscale_ stops at the bad one, or divides
clean steps only. Who logs or clips them before step() sees numbers that are too large by the
whole scale."""

stops_at_the_first_infinity = lines(
    BESIDE, (DIVIDE, "                if found:\n                    break\n" + DIVIDE), gate=False
)

divides_clean_steps_only = lines(
    BESIDE,
    (DIVIDE, ""),
    (
        "        self.found_inf[id(opt)] = found\n",
        "        self.found_inf[id(opt)] = found\n"
        "        for p in (p for group in opt.param_groups for p in group['params']):\n"
        "            if p.grad is not None and not found:\n"
        "                p.grad.div_(self.current)\n",
    ),
    gate=False,
)

counts_optimizers = lines(
    """Each optimizer counts as a clean step of its own, so with two of them the scale grows twice
    as often: update() ends one step, however many optimizers took part.""",
    ("self.clean_steps += 1", "self.clean_steps += len(self.found_inf)"),
    ("if self.clean_steps == self.interval:", "if self.clean_steps >= self.interval:"),
)


@misconception()
class LibraryScaler(torch.amp.GradScaler):
    """PyTorch's GradScaler does the work; it is what you are writing here."""

    def __init__(self, init=65536.0, growth=2.0, backoff=0.5, interval=2000):
        super().__init__(
            "cpu",
            init_scale=init,
            growth_factor=growth,
            backoff_factor=backoff,
            growth_interval=interval,
        )

    def step(self, opt):
        self._per_optimizer_states[id(opt)]["stage"].value == 0 and self.unscale_(opt)
        found = self._per_optimizer_states[id(opt)]["found_inf_per_device"].values()
        clean = not any(float(number) for number in found)
        super().step(opt)
        return clean


OVERFLOWS = """Whether a gradient is finite is read from one number made of all its elements, its
norm or its sum; that overflows where the elements are large and finite, and a clean step is
skipped. Ask each element."""

judges_by_the_norm = lines(
    OVERFLOWS,
    ("torch.isfinite(p.grad).all()", "torch.isfinite(p.grad.norm())"),
    gate=False,
)

judges_by_the_sum = lines(
    OVERFLOWS,
    ("torch.isfinite(p.grad).all()", "torch.isfinite(p.grad.sum())"),
    gate=False,
)
