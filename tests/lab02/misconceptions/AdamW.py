import torch

from grader.suite import misconception


@misconception(replaces="AdamW.step")
@torch.no_grad()
def decay_through_the_moments(self):
    """The decay is added to the gradient, so it passes through m and v and is divided by the root
    of v (that is Adam with L2). Decoupled decay multiplies the parameter by 1 - lr wd, apart."""
    for group in self.param_groups:
        lr, (b1, b2) = group["lr"], group["betas"]
        for p in group["params"]:
            if p.grad is None:
                continue
            s = self.state[p]
            if not s:
                s.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
            s["step"] += 1
            g = p.grad + group["wd"] * p
            s["m"].mul_(b1).add_(g, alpha=1 - b1)
            s["v"].mul_(b2).addcmul_(g, g, value=1 - b2)
            v_hat = s["v"] / (1 - b2 ** s["step"])
            p.addcdiv_(s["m"], v_hat.sqrt() + group["eps"], value=-lr / (1 - b1 ** s["step"]))


@misconception(replaces="AdamW.step")
@torch.no_grad()
def eps_under_the_root(self):
    """eps is added to v, under the root, where 1e-8 acts like 1e-4: it is added to the root."""
    for group in self.param_groups:
        lr, (b1, b2) = group["lr"], group["betas"]
        for p in group["params"]:
            if p.grad is None:
                continue
            s = self.state[p]
            if not s:
                s.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
            s["step"] += 1
            p.mul_(1 - lr * group["wd"])
            s["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
            s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
            root = (s["v"] / (1 - b2 ** s["step"]) + group["eps"]).sqrt()
            p.addcdiv_(s["m"], root, value=-lr / (1 - b1 ** s["step"]))


@misconception(replaces="AdamW.step")
@torch.no_grad()
def no_bias_correction(self):
    """m and v start at 0 and are too small at first (at step 1 v is 0.001 g^2 with b2 = 0.999);
    divide them by 1 - b^t."""
    for group in self.param_groups:
        lr, (b1, b2) = group["lr"], group["betas"]
        for p in group["params"]:
            if p.grad is None:
                continue
            s = self.state[p]
            if not s:
                s.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
            p.mul_(1 - lr * group["wd"])
            s["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
            s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
            p.addcdiv_(s["m"], s["v"].sqrt() + group["eps"], value=-lr)


@misconception(replaces="AdamW.step")
@torch.no_grad()
def decay_without_the_learning_rate(self):
    """The parameter is multiplied by 1 - wd; the decay of a step is lr wd, so that a schedule of
    the learning rate shrinks it, too."""
    for group in self.param_groups:
        lr, (b1, b2) = group["lr"], group["betas"]
        for p in group["params"]:
            if p.grad is None:
                continue
            s = self.state[p]
            if not s:
                s.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
            s["step"] += 1
            p.mul_(1 - group["wd"])
            s["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
            s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
            root = s["v"].div(1 - b2 ** s["step"]).sqrt().add(group["eps"])
            p.addcdiv_(s["m"], root, value=-lr / (1 - b1 ** s["step"]))


@misconception(replaces="AdamW.step")
@torch.no_grad()
def one_count_for_all(self):
    """All parameters share one step count; one that gets its first gradient later is corrected as
    if its m and v had been growing since step 1. Count a parameter's own steps."""
    self.count = getattr(self, "count", 0) + 1
    for group in self.param_groups:
        lr, (b1, b2) = group["lr"], group["betas"]
        for p in group["params"]:
            if p.grad is None:
                continue
            s = self.state[p]
            if not s:
                s.update(m=torch.zeros_like(p), v=torch.zeros_like(p))
            p.mul_(1 - lr * group["wd"])
            s["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
            s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
            root = s["v"].div(1 - b2**self.count).sqrt().add(group["eps"])
            p.addcdiv_(s["m"], root, value=-lr / (1 - b1**self.count))


@misconception(replaces="AdamW.step")
@torch.no_grad()
def no_gradient_is_a_gradient_of_zero(self):
    """A parameter without a gradient is treated as if its gradient were 0: it decays and its means
    fade. grad None means: leave it alone."""
    for group in self.param_groups:
        lr, (b1, b2) = group["lr"], group["betas"]
        for p in group["params"]:
            g = torch.zeros_like(p) if p.grad is None else p.grad
            s = self.state[p]
            if not s:
                s.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
            s["step"] += 1
            p.mul_(1 - lr * group["wd"])
            s["m"].mul_(b1).add_(g, alpha=1 - b1)
            s["v"].mul_(b2).addcmul_(g, g, value=1 - b2)
            root = s["v"].div(1 - b2 ** s["step"]).sqrt().add(group["eps"])
            p.addcdiv_(s["m"], root, value=-lr / (1 - b1 ** s["step"]))


@misconception(replaces="AdamW.__init__")
def state_at_once(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, wd=1e-2):
    """The state is made with the optimizer: it then takes twice the parameters before the first
    step, and for parameters that never learn. Make it at a parameter's first step."""
    super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "wd": wd})
    for group in self.param_groups:
        for p in group["params"]:
            m, v = torch.zeros_like(p), torch.zeros_like(p)
            self.state[p] = {"step": 0, "m": m, "v": v}


@misconception(replaces="AdamW.step")
@torch.no_grad()
def new_state_every_step(self):
    """m and v are made anew in each step and forget what they knew: they belong into
    self.state[p], where the next step finds them."""
    for group in self.param_groups:
        lr, (b1, b2) = group["lr"], group["betas"]
        for p in group["params"]:
            if p.grad is None:
                continue
            p.mul_(1 - lr * group["wd"])
            m, v = (1 - b1) * p.grad, (1 - b2) * p.grad**2
            root = v.div(1 - b2).sqrt().add(group["eps"])
            p.addcdiv_(m, root, value=-lr / (1 - b1))


@misconception(replaces="AdamW.step")
@torch.no_grad()
def keeps_the_old_gradients(self):
    """The state holds more than two tensors of the parameter's size: m and v are all that the next
    step needs."""
    for group in self.param_groups:
        lr, (b1, b2) = group["lr"], group["betas"]
        for p in group["params"]:
            if p.grad is None:
                continue
            s = self.state[p]
            if not s:
                s.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
            s["step"] += 1
            s["m_hat"] = s["m"].mul_(b1).add_(p.grad, alpha=1 - b1) / (1 - b1 ** s["step"])
            s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
            p.mul_(1 - lr * group["wd"])
            root = s["v"].div(1 - b2 ** s["step"]).sqrt().add(group["eps"])
            p.addcdiv_(s["m_hat"], root, value=-lr)


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
