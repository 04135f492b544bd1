"""Lab 02's models, and what both sides do with them: beside the learner's code, and in oracles."""

from __future__ import annotations

import torch
from torch.nn import functional


class Net(torch.nn.Module):
    """A causal language model with tied weights, a frozen parameter and dropout. x: (B, S)."""

    def __init__(self, vocab, hidden, width, dropout=0.0):
        super().__init__()
        self.embed = torch.nn.Embedding(vocab, hidden)
        self.frozen = torch.nn.Parameter(torch.zeros(hidden), requires_grad=False)
        self.up = torch.nn.Linear(hidden, width)
        self.down = torch.nn.Linear(width, hidden)
        self.dropout = dropout

    def forward(self, x):
        e = self.embed(x) * (1 + self.frozen)
        # a running mean over the sequence: what comes later changes nothing before it
        mixed = (
            e.cumsum(1) / torch.arange(1, x.shape[1] + 1, dtype=e.dtype, device=e.device)[:, None]
        )
        inner = functional.dropout(functional.gelu(self.up(mixed)), self.dropout, self.training)
        return functional.linear(mixed + self.down(inner), self.embed.weight)


def net(weights, dropout=0.0):
    """A Net with these weights, in their dtype."""
    vocab, hidden = weights["embed.weight"].shape
    made = Net(vocab, hidden, len(weights["up.bias"]), dropout).to(weights["up.bias"].dtype)
    made.load_state_dict(weights)
    return made


class RunNet(torch.nn.Module):
    """A Net behind which a batch norm stands: its buffers count in eval mode."""

    def __init__(self, net):
        super().__init__()
        self.net = net
        vocab, self.dtype = net.embed.num_embeddings, net.embed.weight.dtype
        self.norm = torch.nn.BatchNorm1d(vocab, affine=False, dtype=self.dtype)

    def forward(self, x):
        return self.norm(self.net(x).mT).mT


class Products(torch.nn.Module):
    """One product of each kind, forward: mm, addmm, bmm and baddbmm; between them dropout and a
    sine. Returns a tensor and integers."""

    def __init__(self, hidden):
        super().__init__()
        self.one = torch.nn.Parameter(torch.randn(hidden, hidden, dtype=torch.float64) / 2)
        self.two = torch.nn.Linear(hidden, hidden, dtype=torch.float64)

    def forward(self, x, shift):
        h = torch.dropout(torch.sin(torch.mm(x, self.one) + shift), 0.25, True)
        h = self.two(h)
        pair = torch.stack([h, 2 * h])
        scores = torch.bmm(pair, pair.mT)
        mixed = torch.baddbmm(pair, scores, pair)
        return mixed.tanh().sum(0), mixed[0].argmax(1)


def gapped(tensor):
    """A copy between whose elements and rows something else lies: no view of it is flat."""
    *rows, length = tensor.shape
    copy = torch.full((*rows, length + 1, 2), 7.0).to(tensor.dtype)[..., :length, 0]
    return copy.copy_(tensor)


def optimizer(model, kind, lr):
    """One of PyTorch's, over all parameters, frozen ones too."""
    if kind == "groups":
        params = list(model.parameters())  # the first of a Net is the frozen one
        rows = [
            {"params": params[1::2]},
            {"params": params[::2], "lr": 0.3 * lr, "betas": (0.8, 0.9)},
        ]
        return torch.optim.AdamW(rows, lr=lr, eps=1e-2, foreach=False)
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    # a large eps: no parameter's step hangs on the rounding of a tiny gradient
    return torch.optim.AdamW(model.parameters(), lr=lr, eps=1e-2, foreach=False)


def scaled_steps(scaler, opt, p, gradients, explicit):
    """A step of the optimizer for each gradient of the parameter `p`: of each the scaled gradient
    and what unscaling left of it, the parameter and the scale after it, what `step` returned, and
    the optimizer's own count. `explicit`: steps that call unscale_ themselves."""
    rows = []
    for index, g in enumerate(gradients):
        opt.zero_grad()
        scaler.scale((p * g).sum()).backward()
        raw = p.grad.clone()
        if index in explicit:
            scaler.unscale_(opt)
        taken = scaler.step(opt)
        scaler.update()
        state = opt.state[p]
        rows.append(
            {
                "raw": raw,
                "grad": p.grad.clone(),
                "param": p.detach().clone(),
                "scale": scaler.get_scale(),
                "taken": taken,
                "count": int(state["step"]) if "step" in state else 0,
            }
        )
    return rows


def grouped_scaled_steps(scaler_of, values, gradients, with_gaps=False):
    """Steps of SGD over two groups, the first of one parameter, with these scaled gradients (None:
    no gradient): of each step gradients, parameters, scale, what `step` returned, and whether the
    gradients are the same tensors. `scaler_of`: gives the scaler of a step."""
    params = [torch.nn.Parameter(v.clone()) for v in values]
    opt = torch.optim.SGD([{"params": params[:1]}, {"params": params[1:], "lr": 0.25}], lr=0.5)
    rows = []
    for step, row in enumerate(gradients):
        scaler = scaler_of(step)
        for p, g in zip(params, row, strict=True):
            p.grad = None if g is None else gapped(g) if with_gaps else g.clone()
        held = [p.grad for p in params]
        views = [None if g is None else g.view_as(g) for g in held]
        scaler.scale(torch.zeros(1))  # GradScaler makes its scale at the first loss
        taken = scaler.step(opt)
        scaler.update()
        rows.append(
            {
                "grads": [None if p.grad is None else p.grad.clone() for p in params],
                "params": [p.detach().clone() for p in params],
                "scale": scaler.get_scale(),
                "taken": taken,
                "same": unreplaced(params, held, views),
            }
        )
    return rows


def unreplaced(params, grads, views):
    """Whether the parameters have these gradients still, in the memory of these views."""
    return all(p.grad is g for p, g in zip(params, grads, strict=True)) and all(
        g is None or g.data_ptr() == view.data_ptr() for g, view in zip(grads, views, strict=True)
    )


class Segment(torch.nn.Module):
    """Wide inside, narrow at its ends, with dropout; counts its calls."""

    def __init__(self, up, down, dropout, shift):
        super().__init__()
        self.up, self.down, self.dropout, self.shift = up, down, dropout, shift
        self.calls = 0

    def forward(self, x, rows=None):
        self.calls += 1
        inner = functional.dropout(torch.tanh(self.up(x) + self.shift), self.dropout, True)
        out = x + self.down(inner)
        return out if rows is None else out[rows]


def segments(weights, dropout):
    """A stack of Segments; `shift` is frozen; segments with the same numbers share a layer."""
    layers = []
    for w_up, w_down in zip(weights["up"], weights["down"], strict=True):
        pair = []
        for w in (w_up, w_down):
            layer = torch.nn.Linear(w.shape[1], w.shape[0], bias=False, dtype=w.dtype)
            with torch.no_grad():
                layer.weight.copy_(w)
            pair.append(layer)
        layers.append(pair)
    layers += [layers[0]] if weights["tied"] else []
    width = weights["up"][0].shape[0]
    shift = torch.nn.Parameter(torch.full((width,), 0.1, dtype=w.dtype), requires_grad=False)
    return [Segment(up, down, dropout, shift) for up, down in layers]


class Wave(torch.nn.Module):
    """Two products, and between them what is cheap to compute again and large to keep."""

    def __init__(self, w_up, w_down):
        super().__init__()
        self.up, self.down = torch.nn.Parameter(w_up.clone()), torch.nn.Parameter(w_down.clone())

    def forward(self, x):
        return torch.sin(functional.gelu(x @ self.up)) @ self.down


def waves(ups, downs):
    return [Wave(up, down) for up, down in zip(ups, downs, strict=True)]


def through_waves(stack, run, x, weight):
    """Forward and backward through a stack: the gradients of the input and of the parameters."""
    h = leaf = x.clone().requires_grad_()
    for segment in stack:
        h = run(segment, h)
    (h * weight).sum().backward()
    return [leaf.grad, *(p.grad for segment in stack for p in segment.parameters())]


def mlp(hidden, width, dtype="float32"):
    torch.manual_seed(0)
    layers = (torch.nn.Linear(hidden, width), torch.nn.ReLU(), torch.nn.Linear(width, hidden))
    return torch.nn.Sequential(*layers).to(getattr(torch, dtype))
