"""Lab 02: questions of an interview with figures that can be done on paper."""

import math

import torch

from grader.suite.questions import Ask, question


def _clipped(code, norm_parts, max_norm):
    """Clip gradients of these norms: the norm that comes back, and the first one after it."""
    params = []
    for part in norm_parts:
        p = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        p.grad = torch.tensor([float(part)], dtype=torch.float64)
        params.append(p)
    norm = code.clip_grad_norm(params, max_norm)
    return float(norm), float(params[0].grad)


TRIPLES = ((3, 4, 5), (6, 8, 10), (5, 12, 13), (8, 15, 17))


@question("global_norm", task="clip_grad_norm", section="Line by line")
def global_norm(rng):
    """One vector of all gradients: squares are added, then the root is taken."""
    a, b, c = rng.choice(TRIPLES)
    return Ask(
        f"A model has two parameters; their gradients have the L2 norms {a} and {b}. What is the "
        "norm by which clip_grad_norm_ clips?",
        lambda code: _clipped(code, (a, b), 1e9)[0],
        working=[f"{a}^2 + {b}^2 = {a * a + b * b}", f"its root: {c}"],
        check=c,
        within=1e-6,
    )


@question("factor_of_clipping", task="clip_grad_norm")
def factor_of_clipping(rng):
    """One factor for all gradients, and 1 where the norm is small enough."""
    a, b, c = rng.choice(TRIPLES)
    most = rng.choice([1.0, 2.0, 2.0 * c])
    factor = min(1.0, most / c)
    return Ask(
        f"Gradients of the L2 norms {a} and {b} are clipped to a norm of at most {most:g}. By what "
        "factor is each of them multiplied?",
        lambda code: _clipped(code, (a, b), most)[1] / a,
        working=[
            f"the norm of both: {c}",
            f"min(1, {most:g} / {c}) = {factor:.4g}",
        ],
        check=factor,
        within=0.0005,
    )


class _Scores(torch.nn.Module):
    """Logits of a table: row x of it for token x."""

    def __init__(self, gaps):
        super().__init__()
        rows = [[gap, 0.0] for gap in gaps]
        self.table = torch.nn.Parameter(torch.tensor(rows, dtype=torch.float64))

    def forward(self, x):
        return self.table[x]


def _accumulated(code, micro):
    """`accumulate` over micro-batches of (loss of each token, how many of them)."""
    gaps, batches = [], []
    for loss, count in micro:
        # cross entropy of label 0 with logits (gap, 0) is ln(1 + e^-gap)
        gaps.append(-math.log(math.exp(loss) - 1))
        x = torch.full((1, count), len(gaps) - 1)
        batches.append((x, torch.zeros(1, count, dtype=torch.int64)))
    model = _Scores(gaps)
    return code.accumulate(model, torch.optim.SGD(model.parameters(), lr=0.0), batches)


@question("mean_over_micro_batches", task="accumulate", minutes=1.5, section="Line by line")
def mean_over_micro_batches(rng):
    """Every token counts the same: sums of losses over the number of tokens."""
    (a, na), (b, nb) = rng.choice(
        [((2.0, 10), (4.0, 30)), ((1.0, 30), (3.0, 10)), ((2.0, 8), (1.0, 24))]
    )
    mean = (a * na + b * nb) / (na + nb)
    return Ask(
        f"Gradients are accumulated over two micro-batches: one has {na} target tokens with a mean "
        f"loss of {a:g}, the other {nb} with {b:g}. What is the loss whose gradient one big batch "
        "would have?",
        lambda code: _accumulated(code, ((a, na), (b, nb))),
        working=[
            f"sums: {a:g} x {na} + {b:g} x {nb} = {a * na + b * nb:g}",
            f"over {na + nb} tokens: {mean:g}",
        ],
        check=mean,
        within=1e-6,
    )


def _scale(code, init, interval, steps):
    """The scale after these steps, of which False are bad ones."""
    scaler = code.LossScaler(init=init, interval=interval)
    p = torch.nn.Parameter(torch.zeros(1))
    opt = torch.optim.SGD([p], lr=0.0)
    for good in steps:
        p.grad = torch.full((1,), 1.0 if good else math.inf)
        scaler.step(opt)
        scaler.update()
    return scaler.get_scale()


@question("scale_after_steps", task="LossScaler", minutes=1.5, section="Line by line")
def scale_after_steps(rng):
    """Bad steps halve the scale and start the count again; so many clean ones double it."""
    init, interval = 2.0 ** rng.choice([10, 16]), rng.choice([2, 3])
    steps = [rng.random() < 0.7 for _ in range(rng.choice([4, 5, 6]))]
    scale, clean, said = init, 0, []
    for good in steps:
        if not good:
            scale, clean = scale / 2, 0
        else:
            clean += 1
            if clean == interval:
                scale, clean = scale * 2, 0
        said.append(f"{scale:,.0f}")
    row = ", ".join("clean" if good else "infinite" for good in steps)
    return Ask(
        f"A loss scaler begins at {init:,.0f}, halves the scale after a step with an infinity and "
        f"doubles it after {interval} clean steps in a row. The steps are: {row}. What is the "
        "scale then?",
        lambda code: _scale(code, init, interval, steps),
        working=["after each step: " + "; ".join(said), f"{scale:,.0f}"],
        check=scale,
    )


def _first_steps(code, grads, **settings):
    """A parameter of 1 after AdamW's steps with these gradients."""
    p = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    opt = code.AdamW([p], **settings)
    for grad in grads:
        p.grad = torch.tensor([grad], dtype=torch.float64)
        opt.step()
    return float(p.detach())


@question("first_step_of_adam", task="AdamW", minutes=1.5, section="Line by line")
def first_step_of_adam(rng):
    """Corrected moments of one gradient are that gradient and its square."""
    lr, grad = rng.choice([0.1, 0.01, 0.2]), rng.choice([0.5, 3.0, 100.0, -2.0])
    after = 1 - lr * math.copysign(1.0, grad)
    return Ask(
        f"A parameter is 1, its first gradient {grad:g}. What is it after AdamW's first step with "
        f"lr {lr:g}, no weight decay and a negligible eps?",
        lambda code: _first_steps(code, [grad], lr=lr, wd=0.0, eps=1e-12),
        working=[
            f"bias correction gives m = {grad:g} and v = {grad:g}^2, so m / sqrt(v) = "
            f"{math.copysign(1.0, grad):g}",
            f"1 - {lr:g} x {math.copysign(1.0, grad):g} = {after:g}",
        ],
        check=after,
        within=1e-6,
    )


@question("decay_of_adamw", task="AdamW")
def decay_of_adamw(rng):
    """Decoupled: the weight shrinks by lr x decay, whatever the gradient."""
    lr, wd = rng.choice([0.1, 0.01]), rng.choice([0.1, 0.5])
    after = (1 - lr * wd) - lr
    return Ask(
        f"A parameter is 1, its first gradient 3. What is it after AdamW's first step with lr "
        f"{lr:g}, weight decay {wd:g} and a negligible eps?",
        lambda code: _first_steps(code, [3.0], lr=lr, wd=wd, eps=1e-12),
        working=[
            f"decay: 1 x (1 - {lr:g} x {wd:g}) = {1 - lr * wd:g}",
            f"step: {1 - lr * wd:g} - {lr:g} x 1 = {after:g}",
        ],
        check=after,
        within=1e-6,
    )


@question("decay_of_a_gradient_of_zeros", task="AdamW", minutes=1.5)
def decay_of_a_gradient_of_zeros(rng):
    """A gradient of zeros is a gradient: the weight decays."""
    lr, wd, steps = rng.choice([(0.1, 1.0, 2), (0.1, 0.5, 2), (0.5, 0.2, 3)])
    after = (1 - lr * wd) ** steps
    return Ask(
        f"A parameter is 1 and its gradient 0 in each of {steps} AdamW steps with lr {lr:g} and "
        f"weight decay {wd:g}. What is the parameter then?",
        lambda code: _first_steps(code, [0.0] * steps, lr=lr, wd=wd),
        working=[
            "moments stay 0, so nothing but the decay changes it",
            f"(1 - {lr:g} x {wd:g})^{steps} = {1 - lr * wd:g}^{steps} = {after:g}",
        ],
        check=after,
        within=1e-6,
    )


@question("norm_after_clipping", task="clip_grad_norm")
def norm_after_clipping(rng):
    """A gradient that was small enough stays; otherwise the bound is what is left."""
    a, b, c = rng.choice(TRIPLES)
    most = rng.choice([1.0, 3.0, 30.0])
    after = a * min(1.0, most / c)
    return Ask(
        f"Gradients of the L2 norms {a} and {b} are clipped together to a norm of at most "
        f"{most:g}. What is the norm of the first one afterwards?",
        lambda code: _clipped(code, (a, b), most)[1],
        working=[
            f"the norm of both: {c}; the factor: min(1, {most:g} / {c}) = {min(1.0, most / c):.4g}",
            f"{a} x {min(1.0, most / c):.4g} = {after:.4g}",
        ],
        check=after,
        within=0.0005,
    )


def _events(rows):
    """A Chrome trace of one step with these operators: (name, start, duration)."""
    base = {"ph": "X", "pid": 1, "tid": 1}
    found = [base | {"name": "ProfilerStep#0", "cat": "user_annotation", "ts": 0.0, "dur": 1000.0}]
    return found + [
        base | {"name": name, "cat": "cpu_op", "ts": float(ts), "dur": float(dur)}
        for name, ts, dur in rows
    ]


@question("self_time", task="profile_run", unit="s", minutes=1.5)
def self_time(rng):
    """Its duration without those of the operators that it calls directly."""
    whole = rng.choice([200, 300, 400])
    a, inner, b = rng.choice([(100, 60, 40), (80, 30, 20), (50, 20, 60)])
    rows = [
        ("aten::linear", 10, whole),
        ("aten::addmm", 20, a),
        ("aten::copy_", 25, inner),
        ("aten::t", 130, b),
    ]
    own = whole - a - b
    return Ask(
        f"In a trace aten::linear runs {whole} us. It calls aten::addmm ({a} us, which itself "
        f"calls aten::copy_ for {inner} us) and aten::t ({b} us). What is aten::linear's self "
        "time?",
        lambda code: code.summarize_trace(_events(rows)).self_cpu_us["aten::linear"] * 1e-6,
        working=[
            f"its direct children: {a} + {b} = {a + b} us; what they call is in theirs",
            f"{whole} - {a + b} = {own} us",
        ],
        check=own * 1e-6,
        within=1e-6,
    )
