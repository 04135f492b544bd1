"""Known wrong answers of lab 02. Each runs inside a fresh copy of the reference module."""

import torch

from grader.suite import misconception

IGNORE_INDEX = -100
FILE = "train_single_gpu.py"


def _swapped(text, old, new):
    """The reference with one passage exchanged; it must stand there exactly once."""
    if text.count(old) != 1:
        raise ValueError(f"{text.count(old)} times in the reference: {old!r}")
    return text.replace(old, new)


# --- clip_grad_norm ----------------------------------------------------------------------------


@misconception("clip_grad_norm")
def each_tensor_for_itself(params, max_norm, error_if_nonfinite=False):
    """Each tensor is clipped by its own norm, which bends the step: the gradients are ONE vector,
    and all of them shrink by one factor."""
    grads = [p.grad for p in params if p.grad is not None]
    total = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
    for g in grads:
        g.mul_((max_norm / (g.norm() + 1e-6)).clamp(max=1.0))
    return total


@misconception("clip_grad_norm")
def returns_the_norm_after_clipping(params, max_norm, error_if_nonfinite=False):
    """The norm AFTER clipping comes back, which is max_norm whenever it matters; the norm before
    is what tells that a run is about to diverge."""
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
    for g in grads:
        g.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))


@misconception("clip_grad_norm")
def norms_are_added(params, max_norm, error_if_nonfinite=False):
    """The tensors' norms are added up; lengths of perpendicular parts add as squares: the norm of
    everything is the root of the sum of all squares."""
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.stack([g.norm() for g in grads]).sum()
    for g in grads:
        g.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


@misconception("clip_grad_norm")
def no_root(params, max_norm, error_if_nonfinite=False):
    """The sum of squares is taken for the norm: its root is missing."""
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.stack([g.square().sum() for g in grads]).sum()
    for g in grads:
        g.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


@misconception("clip_grad_norm")
def short_gradients_grow(params, max_norm, error_if_nonfinite=False):
    """Every gradient is brought to length max_norm, short ones too: clipping never makes a
    gradient longer, so the factor is at most 1."""
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
    for g in grads:
        g.mul_(max_norm / (norm + 1e-6))
    return norm


@misconception("clip_grad_norm")
def clips_values(params, max_norm, error_if_nonfinite=False):
    """Each element is cut to [-max_norm, max_norm]; that is clipping by value, which changes the
    direction of the step."""
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
    for g in grads:
        g.clamp_(-max_norm, max_norm)
    return norm


@misconception("clip_grad_norm")
def walks_the_generator_twice(params, max_norm, error_if_nonfinite=False):
    """The parameters are walked twice, but `model.parameters()` is a generator: the second walk
    finds nothing, so nothing is clipped."""
    norms = [p.grad.norm() for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    for p in params:
        if p.grad is not None:
            p.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


@misconception("clip_grad_norm")
def new_gradient_tensors(params, max_norm, error_if_nonfinite=False):
    """`.grad` is replaced by a new tensor; whoever else holds the gradient (a view of a DDP
    bucket, an optimizer's list) keeps the unclipped one. Multiply in place."""
    params = [p for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in params]))
    for p in params:
        p.grad = p.grad * (max_norm / (norm + 1e-6)).clamp(max=1.0)
    return norm


@misconception("clip_grad_norm")
def calls_the_library(params, max_norm, error_if_nonfinite=False):
    """torch.nn.utils.clip_grad_norm_ is called; it is what you are writing here."""
    return torch.nn.utils.clip_grad_norm_(params, max_norm, error_if_nonfinite=error_if_nonfinite)


# --- train_step --------------------------------------------------------------------------------


@misconception("train_step")
def zeroes_after_backward(model, opt, x, y, loss_fn, *, scaler=None, max_norm=None):
    """zero_grad stands between backward and step, so the step sees no gradient at all and nothing
    is learnt: zero first, then forward, backward, step."""
    loss = loss_fn(model(x), y)
    (loss if scaler is None else scaler.scale(loss)).backward()
    opt.zero_grad()
    norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
    return StepStats(loss.item(), norm, skipped, int((y != IGNORE_INDEX).sum()))


@misconception("train_step")
def zeroes_at_the_end(model, opt, x, y, loss_fn, *, scaler=None, max_norm=None):
    """Gradients are zeroed after the step only: what stood in .grad before the first step is
    learnt with it. Zero before the forward."""
    loss = loss_fn(model(x), y)
    (loss if scaler is None else scaler.scale(loss)).backward()
    norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
    opt.zero_grad()
    return StepStats(loss.item(), norm, skipped, int((y != IGNORE_INDEX).sum()))


@misconception("train_step")
def never_zeroes(model, opt, x, y, loss_fn, *, scaler=None, max_norm=None):
    """The gradients are never zeroed: backward adds to what stands in .grad, so each step uses the
    sum of all batches so far."""
    loss = loss_fn(model(x), y)
    (loss if scaler is None else scaler.scale(loss)).backward()
    norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
    return StepStats(loss.item(), norm, skipped, int((y != IGNORE_INDEX).sum()))


@misconception("train_step")
def returns_the_graph(model, opt, x, y, loss_fn, *, scaler=None, max_norm=None):
    """The loss that comes back is a tensor with its graph; a list of them keeps memory for every
    step that was ever taken. Return loss.item()."""
    opt.zero_grad(set_to_none=True)
    loss = loss_fn(model(x), y)
    (loss if scaler is None else scaler.scale(loss)).backward()
    norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
    return StepStats(loss, norm, skipped, int((y != IGNORE_INDEX).sum()))


@misconception("train_step")
def returns_the_scaled_loss(model, opt, x, y, loss_fn, *, scaler=None, max_norm=None):
    """The loss that comes back is multiplied by the loss scale; the scale is for the gradients'
    sake, and a curve of it jumps whenever the scale changes."""
    opt.zero_grad(set_to_none=True)
    loss = loss_fn(model(x), y)
    loss = loss if scaler is None else scaler.scale(loss)
    loss.backward()
    norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
    return StepStats(loss.item(), norm, skipped, int((y != IGNORE_INDEX).sum()))


@misconception("train_step")
def counts_masked_targets(model, opt, x, y, loss_fn, *, scaler=None, max_norm=None):
    """n_tokens counts padding as well; a throughput from it is too high by the share of masked
    targets."""
    opt.zero_grad(set_to_none=True)
    loss = loss_fn(model(x), y)
    (loss if scaler is None else scaler.scale(loss)).backward()
    norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
    return StepStats(loss.item(), norm, skipped, y.numel())


@misconception("train_step")
def counts_sequences(model, opt, x, y, loss_fn, *, scaler=None, max_norm=None):
    """n_tokens counts sequences; a step's targets are the elements of y that are not masked."""
    opt.zero_grad(set_to_none=True)
    loss = loss_fn(model(x), y)
    (loss if scaler is None else scaler.scale(loss)).backward()
    norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
    return StepStats(loss.item(), norm, skipped, len(y))


@misconception("train_step", replaces="finish_step")
def clips_before_unscaling(opt, *, scaler=None, max_norm=None):
    """The gradients are clipped while the loss scale is still in them: against 1024 times the
    gradient, max_norm is 1024 times too strict. Unscale, then clip."""
    params = [p for group in opt.param_groups for p in group["params"]]
    norm = clip_grad_norm(params, math.inf if max_norm is None else max_norm)
    if scaler is None:
        opt.step()
        return float(norm), False
    before = scaler.get_scale()
    scaler.unscale_(opt)
    scaler.step(opt)
    scaler.update()
    return float(norm) / before, scaler.get_scale() < before


@misconception("train_step", replaces="finish_step")
def clips_after_the_step(opt, *, scaler=None, max_norm=None):
    """The step uses gradients that nobody has clipped: max_norm is left out, or comes after step()
    has used them, which protects nothing."""
    params = [p for group in opt.param_groups for p in group["params"]]
    if scaler is None:
        opt.step()
        return float(clip_grad_norm(params, math.inf if max_norm is None else max_norm)), False
    before = scaler.get_scale()
    scaler.unscale_(opt)
    scaler.step(opt)
    norm = clip_grad_norm(params, math.inf if max_norm is None else max_norm)
    scaler.update()
    return float(norm), scaler.get_scale() < before


@misconception("train_step", replaces="finish_step")
def norm_of_the_clipped_gradient(opt, *, scaler=None, max_norm=None):
    """grad_norm is measured after clipping, where it is max_norm at most; the norm before clipping
    is the one that warns."""
    if scaler is not None:
        scaler.unscale_(opt)
    params = [p for group in opt.param_groups for p in group["params"]]
    clip_grad_norm(params, math.inf if max_norm is None else max_norm)
    norm = clip_grad_norm(params, math.inf)
    if scaler is None:
        opt.step()
        return float(norm), False
    before = scaler.get_scale()
    scaler.step(opt)
    scaler.update()
    return float(norm), scaler.get_scale() < before


@misconception("train_step", replaces="finish_step")
def steps_past_the_scaler(opt, *, scaler=None, max_norm=None):
    """opt.step() is called directly, so a step with infinite gradients is taken: with a scaler it
    is scaler.step(opt) that steps, or not."""
    if scaler is not None:
        scaler.unscale_(opt)
    params = [p for group in opt.param_groups for p in group["params"]]
    norm = clip_grad_norm(params, math.inf if max_norm is None else max_norm)
    opt.step()
    if scaler is None:
        return float(norm), False
    before = scaler.get_scale()
    scaler.update()
    return float(norm), scaler.get_scale() < before


@misconception("train_step", replaces="finish_step")
def never_says_skipped(opt, *, scaler=None, max_norm=None):
    """A skipped step is reported as taken; a learning-rate schedule and a log must know which
    steps there were."""
    if scaler is not None:
        scaler.unscale_(opt)
    params = [p for group in opt.param_groups for p in group["params"]]
    norm = clip_grad_norm(params, math.inf if max_norm is None else max_norm)
    if scaler is None:
        opt.step()
    else:
        scaler.step(opt)
        scaler.update()
    return float(norm), False


# --- AdamW -------------------------------------------------------------------------------------


@misconception("AdamW", replaces="AdamW.step")
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


@misconception("AdamW", replaces="AdamW.step")
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


@misconception("AdamW", replaces="AdamW.step")
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


@misconception("AdamW", replaces="AdamW.step")
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


@misconception("AdamW", replaces="AdamW.step")
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


@misconception("AdamW", replaces="AdamW.step")
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


@misconception("AdamW", replaces="AdamW.__init__")
def state_at_once(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, wd=1e-2):
    """The state is made with the optimizer: it then takes twice the parameters before the first
    step, and for parameters that never learn. Make it at a parameter's first step."""
    super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "wd": wd})
    for group in self.param_groups:
        for p in group["params"]:
            m, v = torch.zeros_like(p), torch.zeros_like(p)
            self.state[p] = {"step": 0, "m": m, "v": v}


@misconception("AdamW", replaces="AdamW.step")
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


@misconception("AdamW", replaces="AdamW.step")
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


@misconception("AdamW", replaces="AdamW.step")
def the_librarys_step(self):
    """PyTorch's own AdamW takes the step; it is what you are writing here."""
    if not hasattr(self, "other"):
        rows = [
            {**{k: v for k, v in g.items() if k != "wd"}, "weight_decay": g["wd"]}
            for g in self.param_groups
        ]
        self.other = torch.optim.AdamW(rows, foreach=False)
    self.other.step()


# --- accumulate --------------------------------------------------------------------------------


@misconception("accumulate")
def masked_batch_is_nan(model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None):
    """A micro-batch's mean times its number of targets is 0/0 x 0 = NaN when all of them are
    masked, and one NaN spoils every gradient: take the sum, which is 0."""
    opt.zero_grad(set_to_none=True)
    total, mean = sum(int((y != ignore_index).sum()) for _, y in micro), 0.0
    for x, y in micro:
        loss = token_loss(model(x), y, ignore_index) * (int((y != ignore_index).sum()) / total)
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    return mean


@misconception("accumulate")
def averages_averages(model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None):
    """Ragged micro-batches: you averaged averages, so short sequences weigh more. Add up sums and
    divide once, by the number of all targets."""
    opt.zero_grad(set_to_none=True)
    mean = 0.0
    for x, y in micro:
        loss = token_loss(model(x), y, ignore_index) / len(micro)
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    return mean


@misconception("accumulate")
def sums_by_the_number_of_micro_batches(
    model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None
):  # fmt: skip
    """The summed losses are divided by the number of micro-batches; a mean over targets is divided
    by the number of targets."""
    opt.zero_grad(set_to_none=True)
    mean = 0.0
    for x, y in micro:
        loss = token_loss(model(x), y, ignore_index, reduction="sum") / len(micro)
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    return mean


@misconception("accumulate")
def never_divides(model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None):
    """The micro-batches' mean losses are added and never divided: gradient and loss grow with
    their number, as if the learning rate did."""
    opt.zero_grad(set_to_none=True)
    mean = 0.0
    for x, y in micro:
        loss = token_loss(model(x), y, ignore_index)
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    return mean


@misconception("accumulate")
def weighs_padding(model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None):
    """The weights count every position, padding too: a micro-batch's weight is its number of
    targets that are not masked."""
    opt.zero_grad(set_to_none=True)
    total, mean = sum(y.numel() for _, y in micro), 0.0
    for x, y in micro:
        loss = token_loss(model(x), y, ignore_index) * (y.numel() / total)
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    return mean


@misconception("accumulate")
def zeroes_between(model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None):
    """zero_grad runs for every micro-batch, so only the last one's gradient is left: the effective
    batch is one micro-batch."""
    total, mean = sum(int((y != ignore_index).sum()) for _, y in micro), 0.0
    for x, y in micro:
        opt.zero_grad(set_to_none=True)
        loss = token_loss(model(x), y, ignore_index, reduction="sum") / total
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    return mean


@misconception("accumulate")
def does_not_zero_first(model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None):
    """The gradients of the step before are still there when the first micro-batch adds its own."""
    total, mean = sum(int((y != ignore_index).sum()) for _, y in micro), 0.0
    for x, y in micro:
        loss = token_loss(model(x), y, ignore_index, reduction="sum") / total
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    return mean


@misconception("accumulate")
def one_backward_at_the_end(
    model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None
):  # fmt: skip
    """The losses are added first and one backward runs at the end, so all graphs are in memory at
    once: that is the big batch again, with its activations."""
    opt.zero_grad(set_to_none=True)
    total = sum(int((y != ignore_index).sum()) for _, y in micro)
    loss = sum(token_loss(model(x), y, ignore_index, reduction="sum") for x, y in micro) / total
    (loss if scaler is None else scaler.scale(loss)).backward()
    return loss.item()


@misconception("accumulate")
def steps_too(model, opt, micro, ignore_index=IGNORE_INDEX, *, scaler=None):
    """accumulate takes the step as well; it leaves the gradients, so that the caller can unscale
    and clip them first."""
    opt.zero_grad(set_to_none=True)
    total, mean = sum(int((y != ignore_index).sum()) for _, y in micro), 0.0
    for x, y in micro:
        loss = token_loss(model(x), y, ignore_index, reduction="sum") / total
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    opt.step()
    return mean


# --- train -------------------------------------------------------------------------------------


@misconception("train")
def a_step_for_every_batch(model, opt, batches, *, scaler=None, accumulate=1, max_norm=None):
    """Every batch is a step of its own and `accumulate` is not used: the effective batch is one
    micro-batch."""
    stats = []
    for x, y in batches:
        loss = accumulate_gradients(model, opt, [(x, y)], scaler=scaler)
        norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
        stats.append(StepStats(loss, norm, skipped, int((y != IGNORE_INDEX).sum())))
    return stats


@misconception("train")
def drops_the_last_group(model, opt, batches, *, scaler=None, accumulate=1, max_norm=None):
    """The batches behind the last full group are left out; a smaller group is a step, too."""
    stats, stream = [], iter(batches)
    while len(micro := list(itertools.islice(stream, accumulate))) == accumulate:
        loss = accumulate_gradients(model, opt, micro, scaler=scaler)
        norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
        tokens = sum(int((y != IGNORE_INDEX).sum()) for _, y in micro)
        stats.append(StepStats(loss, norm, skipped, tokens))
    return stats


@misconception("train")
def reads_everything_first(model, opt, batches, *, scaler=None, accumulate=1, max_norm=None):
    """The whole stream is put into a list before the first step; a data set that does not fit in
    memory, or does not end, cannot be trained on like that."""
    stats, batches = [], list(batches)
    for i in range(0, len(batches), accumulate):
        micro = batches[i : i + accumulate]
        loss = accumulate_gradients(model, opt, micro, scaler=scaler)
        norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
        tokens = sum(int((y != IGNORE_INDEX).sum()) for _, y in micro)
        stats.append(StepStats(loss, norm, skipped, tokens))
    return stats


@misconception("train")
def keeps_loss_tensors(model, opt, batches, *, scaler=None, accumulate=1, max_norm=None):
    """The list of results holds tensors, so memory grows with the number of steps: keep numbers,
    not tensors."""
    stats, stream = [], iter(batches)
    while micro := list(itertools.islice(stream, accumulate)):
        loss = torch.tensor(accumulate_gradients(model, opt, micro, scaler=scaler)) * 1.0
        norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
        tokens = sum(int((y != IGNORE_INDEX).sum()) for _, y in micro)
        stats.append(StepStats(loss, norm, skipped, tokens))
    return stats


@misconception("train")
def tells_the_last_micro_batch(model, opt, batches, *, scaler=None, accumulate=1, max_norm=None):
    """The loss that is told is that of the group's last micro-batch; a step's loss is the mean
    over all its targets."""
    stats, stream = [], iter(batches)
    while micro := list(itertools.islice(stream, accumulate)):
        with torch.no_grad():
            loss = token_loss(model(micro[-1][0]), micro[-1][1]).item()
        accumulate_gradients(model, opt, micro, scaler=scaler)
        norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
        tokens = sum(int((y != IGNORE_INDEX).sum()) for _, y in micro)
        stats.append(StepStats(loss, norm, skipped, tokens))
    return stats


@misconception("train")
def tells_the_last_micro_batchs_tokens(
    model, opt, batches, *, scaler=None, accumulate=1, max_norm=None
):
    """n_tokens is that of the group's last micro-batch; a step's tokens are those of all of
    them."""
    stats, stream = [], iter(batches)
    while micro := list(itertools.islice(stream, accumulate)):
        loss = accumulate_gradients(model, opt, micro, scaler=scaler)
        norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
        stats.append(StepStats(loss, norm, skipped, int((micro[-1][1] != IGNORE_INDEX).sum())))
    return stats


@misconception("train")
def means_of_means_in_the_loop(model, opt, batches, *, scaler=None, accumulate=1, max_norm=None):
    """Each batch's mean loss is divided by the number of batches: ragged batches need one sum over
    all targets, divided once."""
    stats, stream = [], iter(batches)
    while micro := list(itertools.islice(stream, accumulate)):
        opt.zero_grad(set_to_none=True)
        mean = 0.0
        for x, y in micro:
            loss = token_loss(model(x), y) / len(micro)
            (loss if scaler is None else scaler.scale(loss)).backward()
            mean += loss.item()
        norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
        tokens = sum(int((y != IGNORE_INDEX).sum()) for _, y in micro)
        stats.append(StepStats(mean, norm, skipped, tokens))
    return stats


@misconception("train")
def the_loop_does_not_clip(model, opt, batches, *, scaler=None, accumulate=1, max_norm=None):
    """max_norm never reaches the end of the step: the loop trains unclipped."""
    stats, stream = [], iter(batches)
    while micro := list(itertools.islice(stream, accumulate)):
        loss = accumulate_gradients(model, opt, micro, scaler=scaler)
        norm, skipped = finish_step(opt, scaler=scaler)
        tokens = sum(int((y != IGNORE_INDEX).sum()) for _, y in micro)
        stats.append(StepStats(loss, norm, skipped, tokens))
    return stats


@misconception("train")
def the_loop_forgets_the_scaler(model, opt, batches, *, scaler=None, accumulate=1, max_norm=None):
    """The loss is not scaled but the gradients are unscaled: with a scaler, backward starts from
    scaler.scale(loss)."""
    stats, stream = [], iter(batches)
    while micro := list(itertools.islice(stream, accumulate)):
        loss = accumulate_gradients(model, opt, micro)
        norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
        tokens = sum(int((y != IGNORE_INDEX).sum()) for _, y in micro)
        stats.append(StepStats(loss, norm, skipped, tokens))
    return stats


# --- LossScaler --------------------------------------------------------------------------------


@misconception("LossScaler", replaces="LossScaler.step")
def steps_on_infinities(self, opt):
    """The step is taken although gradients are infinite: one such step makes the parameters NaN
    for good. Skip it."""
    if id(opt) not in self.found_inf:
        self.unscale_(opt)
    opt.step()
    return not self.found_inf[id(opt)]


@misconception("LossScaler", replaces="LossScaler.unscale_")
def never_skips(self, opt):
    """A step with infinite gradients is taken as if nothing were wrong: look at every gradient,
    and skip when one is infinite or NaN. A scaler that never skips is a multiplication."""
    if id(opt) in self.found_inf:
        raise RuntimeError("unscaled already")
    for p in (p for group in opt.param_groups for p in group["params"]):
        if p.grad is not None:
            p.grad.mul_(1 / self.current)
    self.found_inf[id(opt)] = False


@misconception("LossScaler", replaces="LossScaler.step")
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


@misconception("LossScaler", replaces="LossScaler.step")
def relies_on_the_caller(self, opt):
    """Gradients are stepped with the scale still in them when nobody called unscale_: step has to
    do it then."""
    if self.found_inf.get(id(opt), False):
        return False
    opt.step()
    self.found_inf.setdefault(id(opt), False)
    return True


@misconception("LossScaler", replaces="LossScaler.unscale_")
def looks_for_infinities_only(self, opt):
    """NaN is not looked for; inf - inf and 0 x inf give NaN, and isinf does not see it. Test
    isfinite."""
    if id(opt) in self.found_inf:
        raise RuntimeError("unscaled already")
    found = False
    for p in (p for group in opt.param_groups for p in group["params"]):
        if p.grad is not None:
            p.grad.mul_(1 / self.current)
            found = found or bool(torch.isinf(p.grad).any())
    self.found_inf[id(opt)] = found


@misconception("LossScaler", replaces="LossScaler.update")
def clean_steps_are_never_reset(self):
    """Clean steps are counted in all, not in a row: after a bad step the count starts again, or
    the scale is back at once."""
    if any(self.found_inf.values()):
        self.current *= self.backoff
    else:
        self.clean_steps += 1
        if self.clean_steps == self.interval:
            self.current *= self.growth
            self.clean_steps = 0
    self.found_inf.clear()


@misconception("LossScaler", replaces="LossScaler.update")
def grows_at_every_step_from_then_on(self):
    """The count of clean steps is not set to 0 after growth, so the scale grows at every step
    after the first `interval`."""
    if any(self.found_inf.values()):
        self.current *= self.backoff
        self.clean_steps = 0
    else:
        self.clean_steps += 1
        if self.clean_steps >= self.interval:
            self.current *= self.growth
    self.found_inf.clear()


@misconception("LossScaler", replaces="LossScaler.update")
def never_grows(self):
    """The scale only falls: after `interval` clean steps in a row it has to try a larger one, or
    small gradients stay lost for the rest of the run."""
    if any(self.found_inf.values()):
        self.current *= self.backoff
    self.found_inf.clear()


@misconception("LossScaler", replaces="LossScaler.update")
def never_backs_off(self):
    """The scale stays where it overflowed, so every following step is skipped, too: after an
    infinity multiply by backoff."""
    if any(self.found_inf.values()):
        self.clean_steps = 0
    else:
        self.clean_steps += 1
        if self.clean_steps == self.interval:
            self.current *= self.growth
            self.clean_steps = 0
    self.found_inf.clear()


@misconception("LossScaler", replaces="LossScaler.scale")
def scale_detaches(self, loss):
    """The scaled loss is no longer part of the graph: multiply the loss itself, not its value."""
    return loss + loss.detach() * (self.current - 1)


@misconception("LossScaler", replaces="LossScaler.unscale_")
def unscaling_twice_is_silent(self, opt):
    """A second unscale_ divides again without a word; remember that it was done, and raise
    RuntimeError."""
    found = False
    for p in (p for group in opt.param_groups for p in group["params"]):
        if p.grad is not None:
            p.grad.mul_(1 / self.current)
            found = found or not bool(torch.isfinite(p.grad).all())
    self.found_inf[id(opt)] = found


@misconception("LossScaler")
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


# --- save_state --------------------------------------------------------------------------------


@misconception("save_state", replaces="load_state")
def only_the_weights(path, model, opt, scaler, sampler):
    """Only the weights are loaded: the optimizer's means, the loss scale, the sampler's place and
    the random generators start anew, so the run is another one."""
    model.load_state_dict(torch.load(path, weights_only=True)["model"])


@misconception("save_state", replaces="load_state")
def starts_the_epoch_again(path, model, opt, scaler, sampler):
    """The sampler starts its epoch again at row 0: rows that were seen come twice. The offset in
    the epoch is part of the state."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    sampler.epoch, sampler.cursor = state["sampler"]["epoch"], 0
    torch.set_rng_state(state["rng"]["torch"])
    numpy.random.set_state(state["rng"]["numpy"])
    random.setstate(state["rng"]["python"])


@misconception("save_state", replaces="load_state")
def the_first_epoch_again(path, model, opt, scaler, sampler):
    """The cursor is restored and the epoch is not, so the rows come in the order of another
    epoch's shuffle."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    sampler.epoch, sampler.cursor = 0, state["sampler"]["cursor"]
    torch.set_rng_state(state["rng"]["torch"])
    numpy.random.set_state(state["rng"]["numpy"])
    random.setstate(state["rng"]["python"])


@misconception("save_state", replaces="load_state")
def generators_are_not_restored(path, model, opt, scaler, sampler):
    """The random generators are not restored: the first dropout mask after loading is another one,
    and every loss from there on."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    sampler.epoch, sampler.cursor = state["sampler"]["epoch"], state["sampler"]["cursor"]


@misconception("save_state", replaces="load_state")
def only_torchs_generator(path, model, opt, scaler, sampler):
    """Only torch's generator is restored; augmentation draws from NumPy's and Python's, which are
    generators of their own."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    sampler.epoch, sampler.cursor = state["sampler"]["epoch"], state["sampler"]["cursor"]
    torch.set_rng_state(state["rng"]["torch"])


@misconception("save_state", replaces="load_state")
def a_seed_instead_of_a_state(path, model, opt, scaler, sampler):
    """The generators are seeded again as at the start of the run, which repeats its first random
    numbers instead of going on: a seed is not a state."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    sampler.epoch, sampler.cursor = state["sampler"]["epoch"], state["sampler"]["cursor"]
    torch.manual_seed(1)
    numpy.random.seed(1)
    random.seed(1)


@misconception("save_state", replaces="load_state")
def without_the_optimizer(path, model, opt, scaler, sampler):
    """The optimizer's state is not restored: the first loss is right, and AdamW's next step starts
    from empty means, so the second is not."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    sampler.epoch, sampler.cursor = state["sampler"]["epoch"], state["sampler"]["cursor"]
    torch.set_rng_state(state["rng"]["torch"])
    numpy.random.set_state(state["rng"]["numpy"])
    random.setstate(state["rng"]["python"])


@misconception("save_state", replaces="load_state")
def without_the_scaler(path, model, opt, scaler, sampler):
    """The loss scaler starts anew: its scale and its count of clean steps are part of the run."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    sampler.epoch, sampler.cursor = state["sampler"]["epoch"], state["sampler"]["cursor"]
    torch.set_rng_state(state["rng"]["torch"])
    numpy.random.set_state(state["rng"]["numpy"])
    random.setstate(state["rng"]["python"])


@misconception("save_state")
def saves_live_objects(path, model, opt, scaler, sampler):
    """Whole objects are pickled; torch.load(weights_only=True) refuses them, for reading them
    would run code. Save state_dicts and plain data."""
    torch.save({"model": model.state_dict(), "rng": numpy.random.get_state(), "opt": opt}, path)


@misconception("save_state")
def forgets_keys(path, model, opt, scaler, sampler):
    """The file lacks parts of the state: model, opt, scaler, sampler and rng all belong in it."""
    torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, path)


# --- CheckpointFunction ------------------------------------------------------------------------


@misconception("CheckpointFunction", replaces="CheckpointFunction.backward")
@staticmethod
def another_dropout_mask(ctx, *grads):
    """The generator is not set back, so the second run draws another dropout mask: the gradients
    belong to a forward that never was."""
    inputs = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        outputs = ctx.fn(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    used = [(o, g) for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
    torch.autograd.backward([o for o, _ in used], [g for _, g in used])
    return None, None, *(t.grad for t in inputs)


@misconception("CheckpointFunction", replaces="CheckpointFunction.backward")
@staticmethod
def leaves_the_generator_moved(ctx, *grads):
    """The generator stays where the second run left it, so whatever is drawn next differs from a
    run without checkpointing: put it back (fork_rng)."""
    inputs = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
    with torch.enable_grad():
        if ctx.preserve_rng:
            torch.set_rng_state(ctx.rng_state)
        outputs = ctx.fn(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    used = [(o, g) for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
    torch.autograd.backward([o for o, _ in used], [g for _, g in used])
    return None, None, *(t.grad for t in inputs)


@misconception("CheckpointFunction", replaces="CheckpointFunction.backward")
@staticmethod
def runs_again_without_gradients(ctx, *grads):
    """The second run is made with gradients off, as a backward is by default, so it builds no
    graph and there is nothing to differentiate: torch.enable_grad()."""
    inputs = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
    with torch.random.fork_rng(devices=[], enabled=ctx.preserve_rng):
        if ctx.preserve_rng:
            torch.set_rng_state(ctx.rng_state)
        outputs = ctx.fn(*inputs)
    torch.autograd.backward(outputs, grads[0])
    return None, None, *(t.grad for t in inputs)


@misconception("CheckpointFunction", replaces="CheckpointFunction.backward")
@staticmethod
def inputs_lose_their_gradient(ctx, *grads):
    """The inputs are detached and never asked for a gradient, so it ends at this segment: nothing
    before it learns. After detach() comes requires_grad_()."""
    inputs = [t.detach() for t in ctx.saved_tensors]
    with torch.enable_grad(), torch.random.fork_rng(devices=[], enabled=ctx.preserve_rng):
        if ctx.preserve_rng:
            torch.set_rng_state(ctx.rng_state)
        outputs = ctx.fn(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    used = [(o, g) for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
    torch.autograd.backward([o for o, _ in used], [g for _, g in used])
    return None, None, *(None for _ in inputs)


@misconception("CheckpointFunction", replaces="CheckpointFunction.backward")
@staticmethod
def ignores_the_incoming_gradient(ctx, *grads):
    """Backward starts from ones instead of from dLoss/doutput, so the chain rule is cut: what
    comes after the segment has no say."""
    inputs = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
    with torch.enable_grad(), torch.random.fork_rng(devices=[], enabled=ctx.preserve_rng):
        if ctx.preserve_rng:
            torch.set_rng_state(ctx.rng_state)
        outputs = ctx.fn(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    used = [o for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
    torch.autograd.backward(used, [torch.ones_like(o) for o in used])
    return None, None, *(t.grad for t in inputs)


@misconception("CheckpointFunction", replaces="CheckpointFunction.backward")
@staticmethod
def parameters_lose_their_gradient(ctx, *grads):
    """Only the inputs' gradients are asked for (autograd.grad), so the segment's own parameters
    never get one: backward() goes on to every leaf."""
    inputs = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
    with torch.enable_grad(), torch.random.fork_rng(devices=[], enabled=ctx.preserve_rng):
        if ctx.preserve_rng:
            torch.set_rng_state(ctx.rng_state)
        outputs = ctx.fn(*inputs)
    wanted = [t for t in inputs if t.requires_grad]
    found = iter(torch.autograd.grad(outputs, wanted, grads[0]))
    return None, None, *(next(found) if t.requires_grad else None for t in inputs)


@misconception("CheckpointFunction")
class SavesEverything(torch.autograd.Function):
    """The forward builds the segment's graph and keeps it, so its activations stay in memory as
    ever: that is no checkpointing. Keep the inputs, and run again."""

    @staticmethod
    def forward(ctx, fn, preserve_rng, *tensors):
        ctx.inputs = [t.detach().requires_grad_(t.requires_grad) for t in tensors]
        with torch.enable_grad():
            outputs = fn(*ctx.inputs)
        ctx.outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        found = tuple(o.detach() for o in ctx.outputs)
        return found if isinstance(outputs, tuple) else found[0]

    @staticmethod
    def backward(ctx, *grads):
        used = [(o, g) for o, g in zip(ctx.outputs, grads) if g is not None and o.requires_grad]
        torch.autograd.backward([o for o, _ in used], [g for _, g in used])
        return None, None, *(t.grad for t in ctx.inputs)


@misconception("CheckpointFunction")
class RunsThreeTimes(torch.autograd.Function):
    """The segment runs more than once in backward; one second run gives every gradient, and each
    run costs a whole forward."""

    @staticmethod
    def forward(ctx, fn, preserve_rng, *tensors):
        ctx.fn, ctx.preserve_rng = fn, preserve_rng
        ctx.rng_state = torch.get_rng_state()
        ctx.save_for_backward(*tensors)
        return fn(*tensors)

    @staticmethod
    def backward(ctx, *grads):
        inputs = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
        for _ in range(2):
            with torch.enable_grad(), torch.random.fork_rng(devices=[], enabled=ctx.preserve_rng):
                if ctx.preserve_rng:
                    torch.set_rng_state(ctx.rng_state)
                outputs = ctx.fn(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        used = [(o, g) for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
        torch.autograd.backward([o for o, _ in used], [g for _, g in used])
        return None, None, *(t.grad for t in inputs)


@misconception("CheckpointFunction")
class LibraryCheckpoint:
    """torch.utils.checkpoint is called; it is what you are writing here."""

    @staticmethod
    def apply(fn, preserve_rng, *tensors):
        from torch.utils.checkpoint import checkpoint

        return checkpoint(fn, *tensors, use_reentrant=False, preserve_rng_state=preserve_rng)


# --- profile_run -------------------------------------------------------------------------------


@misconception("profile_run")
def forgets_prof_step(fn, wait, warmup, active, repeat, skip_first):
    """prof.step() is never called, so the profiler stays in its first step for ever: the schedule
    counts the steps that it is told of, not the calls of your function."""
    events = []

    def keep(prof):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            prof.export_chrome_trace(str(path))
            events.extend(json.loads(path.read_text())["traceEvents"])

    plan = torch.profiler.schedule(
        wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip_first
    )
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=plan, on_trace_ready=keep
    ):
        for _ in range(skip_first + repeat * (wait + warmup + active)):
            fn()
    return summarize_trace(events)


@misconception("profile_run", file=FILE)
def averages_the_warm_up(text):
    """Warm-up steps are recorded and averaged with the others; they pay for caches and for the
    profiler's own start, which is why the schedule throws them away."""
    return _swapped(text, "warmup=warmup, active=active,", "warmup=0, active=warmup + active,")


@misconception("profile_run", file=FILE)
def keeps_the_last_cycle(text):
    """Only the last cycle's trace is kept: on_trace_ready is called once a cycle, and each time the
    profiler has forgotten the cycle before."""
    return _swapped(text, "            events.extend(", "            events[:] = (")


@misconception("profile_run", file=FILE)
def skips_nothing(text):
    """skip_first is not passed on, so the very first steps, with their allocations and imports,
    are in the plan."""
    return _swapped(text, "repeat=repeat, skip_first=skip_first", "repeat=repeat")


@misconception("profile_run", file=FILE)
def one_cycle_only(text):
    """The run ends after one cycle: skip_first + repeat x (wait + warmup + active) steps belong to
    the plan."""
    return _swapped(
        text,
        "range(skip_first + repeat * (wait + warmup + active))",
        "range(skip_first + wait + warmup + active)",
    )


@misconception("profile_run", file=FILE)
def children_count_twice(text):
    """The whole duration of an operator is counted as its own, its children's included: linear,
    addmm and copy_ then add up to more than the time that passed."""
    return _swapped(
        text, '            self_us[around[-1]["name"]] -= op["dur"]', "            pass"
    )


@misconception("profile_run", file=FILE)
def all_descendants_are_subtracted(text):
    """Grandchildren are subtracted from an operator as well, whose time its child's already
    contains: subtract one level only."""
    return _swapped(
        text,
        """        if around:
            self_us[around[-1]["name"]] -= op["dur"]""",
        """        for outer in around:
            self_us[outer["name"]] -= op["dur"]""",
    )


@misconception("profile_run", file=FILE)
def threads_are_mixed(text):
    """An operator on another thread is taken for a child because it runs at the same time; a child
    is on its parent's thread."""
    return _swapped(text, '(op.get("pid"), op.get("tid"))', "(0, 0)")


@misconception("profile_run", file=FILE)
def counts_outside_the_steps(text):
    """Operators before, between and after the recorded steps are counted, too; only what starts
    inside a ProfilerStep belongs to a step."""
    return _swapped(
        text,
        'if not any(start <= op["ts"] < start + length for _, start, length in steps):',
        "if 0:",
    )


@misconception("profile_run", file=FILE)
def steps_are_numbered_anew(text):
    """The recorded steps are numbered 0, 1, 2, ...; the k of ProfilerStep#k counts every step of
    the run, the skipped ones too."""
    return _swapped(text, "        [k for k, _, _ in steps],", "        list(range(len(steps))),")


@misconception("profile_run", file=FILE)
def steps_in_the_order_of_the_file(text):
    """The steps come in the order in which the file has them; a trace is no sorted list: sort by
    k."""
    return _swapped(
        text,
        """    steps = sorted(
        (int(event""",
        """    steps = list(
        (int(event""",
    )


# --- MemoryLedger ------------------------------------------------------------------------------


@misconception("MemoryLedger", replaces="MemoryLedger._end_of_phase")
def lazy_state_is_temporary(self):
    """The optimizer's state, made in its first step, is counted as temporary: look into opt.state
    again after each phase, for it is empty before that step."""
    for p in self.model.parameters():
        record = p.grad is not None and self.living.get(p.grad.untyped_storage().data_ptr())
        if record and record[0] == "temp":
            record[0] = "grad"
    for record in self.living.values():
        if self.now == "fwd" and record[0] == "temp" and record[2] == "fwd":
            record[0] = "act"


@misconception("MemoryLedger", replaces="MemoryLedger._follow")
def views_count_again(self, tensor, kind):
    """Tensors are counted, not storages: a view of a tensor is counted as if it had memory of its
    own. Key by the storage."""
    key = id(tensor)
    record = [kind, tensor.nbytes, self.now]
    self.living[key] = record
    self.watched[key] = weakref.ref(tensor, lambda _: self._freed(key))
    self.course.append((self.now, record, +1))


@misconception("MemoryLedger", replaces="MemoryLedger._freed")
def nothing_is_ever_freed(self, address):
    """What dies is never taken off, so the ledger tells what was allocated in all and not what was
    alive: a weak reference to the storage tells its end."""
    self.living.pop(address, None)
    self.watched.pop(address, None)


@misconception("MemoryLedger", replaces="MemoryLedger.__torch_dispatch__")
def the_batch_is_counted(self, func, types, args=(), kwargs=None):
    """Views of tensors from before the block are taken for new memory: what an operator was given
    and shows again was not born there."""
    out = func(*args, **(kwargs or {}))
    for leaf in tree_leaves(out):
        if isinstance(leaf, Tensor):
            self._follow(leaf, "temp")
    return out


@misconception("MemoryLedger", replaces="MemoryLedger._end_of_phase")
def gradients_are_temporary(self):
    """Gradients are counted as temporary memory of the backward: the parameters' `.grad` keeps
    them until they are zeroed."""
    for record in self.living.values():
        if self.now == "fwd" and record[0] == "temp" and record[2] == "fwd":
            record[0] = "act"
    for state in self.opt.state.values():
        for leaf in tree_leaves(state):
            record = isinstance(leaf, Tensor) and self.living.get(leaf.untyped_storage().data_ptr())
            if record and record[0] == "temp":
                record[0] = "opt"


@misconception("MemoryLedger", replaces="MemoryLedger._end_of_phase")
def everything_of_the_forward_is_an_activation(self):
    """Every tensor that the forward makes is called an activation; those that die before it ends
    were temporary: an activation is what waits for the backward."""
    for kind, tensor in self._owned():
        self._follow(tensor, kind)
        record = self.living.get(tensor.untyped_storage().data_ptr())
        if record and record[0] == "temp":
            record[0] = kind
    for _, record, _ in self.course:
        if record and record[0] == "temp" and record[2] == "fwd":
            record[0] = "act"


@misconception("MemoryLedger", replaces="MemoryLedger.__exit__")
def each_kinds_own_peak(self, *error):
    """The peak of a phase is put together from moments that never were: each kind's own highest
    value. What ran out of memory is the sum at ONE moment."""
    TorchDispatchMode.__exit__(self, *error)
    self._end_of_phase()
    self.watched.clear()
    total = dict.fromkeys(KINDS, 0)
    for name, record, sign in self.course:
        if record is not None:
            total[record[0]] += sign * record[1]
        row = self.peak.setdefault(name, dict(total))
        self.peak[name] = {kind: max(row[kind], total[kind]) for kind in KINDS}
    self.alive = total


@misconception("MemoryLedger", replaces="MemoryLedger.__exit__")
def the_end_of_a_phase(self, *error):
    """What is told is what was alive when a phase ended, not its peak: the highest moment lies
    somewhere inside."""
    TorchDispatchMode.__exit__(self, *error)
    self._end_of_phase()
    self.watched.clear()
    total = dict.fromkeys(KINDS, 0)
    for name, record, sign in self.course:
        if record is not None:
            total[record[0]] += sign * record[1]
        self.peak[name] = dict(total)
    self.alive = total


@misconception("MemoryLedger", replaces="MemoryLedger.__enter__")
def only_what_is_born_inside(self):
    """What exists when the ledger opens is left out: parameters, and the optimizer's state from
    the second step on, are the larger part of the memory."""
    self.course.append((self.now, None, 0))
    TorchDispatchMode.__enter__(self)
    return self


# --- selective_checkpoint ----------------------------------------------------------------------


@misconception("selective_checkpoint")
def recomputes_everything(fn, *tensors):
    """Everything is computed again, the products too: that is plain checkpointing, and the
    products are what takes the time."""
    return checkpoint(fn, *tensors, use_reentrant=False)


@misconception("selective_checkpoint")
def keeps_everything(fn, *tensors):
    """Nothing is checkpointed at all: what is cheap to compute again is kept like the rest."""
    return fn(*tensors)


@misconception("selective_checkpoint", file=FILE)
def keeps_the_cheap_half(text):
    """The policy is turned round: it keeps what is cheap and computes the products again."""
    return _swapped(text, "kept = op in products", "kept = op not in products")


# --- summarize_snapshot ------------------------------------------------------------------------


@misconception("summarize_snapshot", file=FILE)
def only_the_documented_name(text):
    """Blocks that wait for another stream are taken for free ones: the documentation calls their
    state active_awaiting_free, and snapshots write active_pending_free."""
    return _swapped(
        text,
        'block["state"].replace("awaiting", "pending")',
        'block["state"].replace("active_pending_free", "inactive").replace("awaiting", "pending")',
    )


@misconception("summarize_snapshot", file=FILE)
def requested_of_everything(text):
    """requested counts free blocks as well: what was once asked for there is history."""
    return _swapped(
        text,
        """            if state == "active_allocated":
                requested +=""",
        """            if state != "inactive":
                requested +=""",
    )


@misconception("summarize_snapshot", file=FILE)
def reserved_is_what_is_used(text):
    """reserved leaves out what is free; it is all that was taken from the GPU, cached or not."""
    return _swapped(
        text,
        "reserved=sum(sizes.values()),",
        'reserved=sum(sizes.values()) - sizes["inactive"],',
    )
