"""Lab 12, beside the learner's code."""

from __future__ import annotations

# -- groups, rules, memory, pipeline --------------------------------------------------------------


def bubbles(student, cases, tf, tb):
    """simulate_pipeline of each (schedule, p, m, v), without the slots: (bubble_of_ideal,
    bubble_of_total, total, peak_in_flight)."""
    found = []
    for case in cases:
        run = student.simulate_pipeline(*case, tf, tb)
        found.append((run.bubble_of_ideal, run.bubble_of_total, run.total, run.peak_in_flight))
    return found


# -- traffic, time, planner -----------------------------------------------------------------------


def tiny_run(student, runs):
    """Two ranks over gloo train a tiny transformer once for each run, and count what they send.

    runs: name (its first two letters are the axis) to (sizes, micro-batches, sp, zero, chunks).
    Returns, for each rank, name to {"bytes": payload bytes of what it sent, by operation,
    "wrong": the largest relative difference from what one process computes}.
    """
    import torch
    import torch.distributed as dist
    from torch.nn import functional

    from grader import meters, ranks

    half = torch.bfloat16  # what is sent; sums are made in fp32, so that rounding stays small

    def every(x):
        out = x.new_empty(2 * x.shape[0], x.shape[1]).to(half)
        dist.all_gather_into_tensor(out, x.to(half))
        return out.float()

    def shares(x):
        out = x.new_empty(x.shape[0] // 2, x.shape[1]).to(half)
        dist.reduce_scatter_tensor(out, x.to(half))
        return out.float()

    def total(x):
        out = x.to(half)
        dist.all_reduce(out)
        return out.float()

    def pair(there, back):
        """An operation whose backward is another one."""

        class Both(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return there(x)

            @staticmethod
            def backward(ctx, grad):
                return back(grad)

        return Both.apply

    same = torch.clone
    enter = {True: pair(every, shares), False: pair(same, total)}
    leave = {True: pair(shares, every), False: pair(total, same)}

    def norm(x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)

    def weights(sizes):
        """All parameters of a model, by layer; the same on every rank."""
        h, ffn, made = sizes["h"], sizes["ffn"], torch.Generator().manual_seed(7)

        def new(*shape):
            return (0.4 * torch.randn(*shape, generator=made)).requires_grad_()

        layers = [
            [new(h, h) for _ in range(4)] + [new(ffn, h), new(ffn, h), new(h, ffn), new(h), new(h)]
            for _ in range(sizes["L"])
        ]
        return layers, [new(sizes["vocab"], h), new(sizes["vocab"], h), new(h)]

    def layer(x, w, heads, into=same, out=same):
        """x: (tokens, h); with the rows and columns of `w` that are this rank's."""
        q, k, v, o, up, gate, down, first, second = w
        y = into(norm(x) * first)
        q, k, v = (
            functional.linear(y, m).unflatten(-1, (heads, -1)).transpose(0, 1) for m in (q, k, v)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + out(functional.linear(mixed.transpose(0, 1).flatten(1), o))
        y = into(norm(x) * second)
        inner = functional.silu(functional.linear(y, gate)) * functional.linear(y, up)
        return x + out(functional.linear(inner, down))

    def inputs(sizes, count):
        made = torch.Generator().manual_seed(8)
        return [torch.randn(sizes["seq"], sizes["h"], generator=made) for _ in range(count)]

    def alone(sizes, xs):
        layers, _ends = weights(sizes)
        outs, grads = [], []
        for x in xs:
            x = x.clone().requires_grad_()
            y = x
            for w in layers:
                y = layer(y, w, 2)
            y.square().mean().backward()
            outs.append(y.detach())
            grads.append(x.grad)
        return outs, grads, layers

    def wrong(got, want):
        return float((got - want).abs().max() / want.abs().max())

    def tensor(rank, sizes, count, sp):
        xs = inputs(sizes, count)
        outs, grads, _layers = alone(sizes, xs)
        layers, _ends = weights(sizes)
        mine = []
        for q, k, v, o, up, gate, down, *norms in layers:
            rows = [m.detach().chunk(2, 0)[rank] for m in (q, k, v)]
            rows += [o.detach().chunk(2, 1)[rank]]
            rows += [m.detach().chunk(2, 0)[rank] for m in (up, gate)]
            rows += [down.detach().chunk(2, 1)[rank], *(n.detach() for n in norms)]
            mine.append([m.contiguous().requires_grad_() for m in rows])
        worst = 0.0
        with meters.collectives() as log:
            for x, out, grad in zip(xs, outs, grads):
                here = (lambda t: t.chunk(2, 0)[rank]) if sp else same
                x = here(x).clone().requires_grad_()
                y = x
                for w in mine:
                    y = layer(y, w, 1, enter[sp], leave[sp])
                (y.square().sum() / out.numel()).backward()
                worst = max(worst, wrong(y.detach(), here(out)), wrong(x.grad, here(grad)))
        return log, worst

    def pipeline(rank, sizes, count, chunks):
        xs = inputs(sizes, count)
        outs, grads, _layers = alone(sizes, xs)
        layers, _ends = weights(sizes)
        each = sizes["L"] // (2 * chunks)
        last, worst, held = 2 * chunks - 1, 0.0, {}

        def received(x):
            box = torch.empty_like(x).to(half)
            dist.recv(box, 1 - rank)
            return box.float()

        with meters.collectives() as log:
            for i, x in enumerate(xs):
                for stage in range(rank, 2 * chunks, 2):
                    x_in = (x if stage == 0 else received(x)).clone().requires_grad_()
                    y = x_in
                    for w in layers[stage * each : (stage + 1) * each]:
                        y = layer(y, w, 2)
                    held[i, stage] = x_in, y
                    if stage < last:
                        dist.send(y.detach().to(half), 1 - rank)
            for i, (x, out, grad) in enumerate(zip(xs, outs, grads)):
                for stage in reversed(range(rank, 2 * chunks, 2)):
                    x_in, y = held[i, stage]
                    if stage == last:
                        y.square().mean().backward()
                        worst = max(worst, wrong(y.detach(), out))
                    else:
                        y.backward(received(x))
                    if stage > 0:
                        dist.send(x_in.grad.to(half), 1 - rank)
                    else:
                        worst = max(worst, wrong(x_in.grad, grad))
        return log, worst

    def data(rank, sizes, count, zero):
        xs = inputs(sizes, 2 * count)
        _outs, _grads, whole = alone(sizes, xs)
        want = torch.cat([w.grad.reshape(-1) for row in whole for w in row])
        layers, ends = weights(sizes)
        params = [w for row in layers for w in row] + ends
        with meters.collectives() as log:
            for x in xs[rank::2]:
                y = x
                for w in layers:
                    y = layer(y, w, 2)
                y.square().mean().backward()
            flat = torch.cat(
                [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in params]
            )
            if zero:
                mine = torch.empty(len(flat) // 2)
                dist.reduce_scatter_tensor(mine, flat)
                new = torch.empty(len(flat), dtype=half)
                dist.all_gather_into_tensor(new, mine.to(half))
                flat = new.float()
            else:
                dist.all_reduce(flat)
        return log, wrong(flat[: len(want)], want)

    def rank_does(rank, size):
        found = {}
        for name, (sizes, count, sp, zero, chunks) in runs.items():
            if name.startswith("tp"):
                log, worst = tensor(rank, sizes, count, sp)
            elif name.startswith("pp"):
                log, worst = pipeline(rank, sizes, count, chunks)
            else:
                log, worst = data(rank, sizes, count, zero)
            sums = {}
            for call in log.calls:
                if call.operation != "recv":
                    sums[call.operation] = sums.get(call.operation, 0) + call.payload_bytes
            found[name] = {"bytes": sums, "wrong": worst}
        return found

    return ranks.outcome(rank_does, 2, (), timeout_s=15.0)
