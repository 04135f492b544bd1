import torch

from grader.suite import lines, misconception


@misconception(replaces="LossScaler.step")
def steps_on_infinities(self, opt):
    """The step is taken although gradients are infinite: one such step makes the parameters NaN
    for good. Skip it."""
    if id(opt) not in self.found_inf:
        self.unscale_(opt)
    opt.step()
    return not self.found_inf[id(opt)]


@misconception(replaces="LossScaler.unscale_")
def never_skips(self, opt):
    """A step with infinite gradients is taken as if nothing were wrong: look at every gradient,
    and skip when one is infinite or NaN. A scaler that never skips is a multiplication."""
    if id(opt) in self.found_inf:
        raise RuntimeError("unscaled already")
    for p in (p for group in opt.param_groups for p in group["params"]):
        if p.grad is not None:
            p.grad.mul_(1 / self.current)
    self.found_inf[id(opt)] = False


@misconception(replaces="LossScaler.step")
def unscales_again(self, opt):
    """step unscales gradients that unscale_ had unscaled already: they are then too small by the
    whole scale."""
    clean = not self.found_inf.pop(id(opt), False)
    self.unscale_(opt)
    if not clean or self.found_inf[id(opt)]:
        self.found_inf[id(opt)] = True
        return False
    opt.step()
    return True


@misconception(replaces="LossScaler.step")
def relies_on_the_caller(self, opt):
    """Gradients are stepped with the scale still in them when nobody called unscale_: step has to
    do it then."""
    if self.found_inf.get(id(opt), False):
        return False
    opt.step()
    self.found_inf.setdefault(id(opt), False)
    return True


looks_for_infinities_only = lines(
    """NaN is not looked for; inf - inf and 0 x inf give NaN, and isinf does not see it. Test
    isfinite.""",
    ("These gradients were unscaled already; call update() first.", "unscaled already"),
    ("not bool(torch.isfinite(p.grad).all())", "bool(torch.isinf(p.grad).any())"),
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


@misconception(replaces="LossScaler.update")
def never_grows(self):
    """The scale only falls: after `interval` clean steps in a row it has to try a larger one, or
    small gradients stay lost for the rest of the run."""
    if any(self.found_inf.values()):
        self.current *= self.backoff
    self.found_inf.clear()


never_backs_off = lines(
    """The scale stays where it overflowed, so every following step is skipped, too: after an
    infinity multiply by backoff.""",
    ("            self.current *= self.backoff\n", ""),
)

scale_detaches = lines(
    """The scaled loss is no longer part of the graph: multiply the loss itself, not its value.""",
    ("return loss * self.current", "return loss + loss.detach() * (self.current - 1)"),
)

unscaling_twice_is_silent = lines(
    """A second unscale_ divides again without a word; remember that it was done, and raise
    RuntimeError.""",
    (
        "        if id(opt) in self.found_inf:\n"
        '            raise RuntimeError("These gradients were unscaled already; call '
        'update() first.")\n',
        "",
    ),
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
