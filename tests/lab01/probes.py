"""Drives SavedBytes, or the kit's meter. Runs next to student code; holds no expected value.

A forward pass is made under `who`: the student's context manager, or the meter. Each is a request
of its own, so that the student's figure has crossed the wall before there is a meter's.
"""


def _torch(student):
    """torch, imported only for a class that can be made: a fresh skeleton stays lean."""
    student.SavedBytes()
    import torch

    return torch


def _saved(student, who, forward, exclude=()):
    """Bytes that `forward` saves, by the context manager `who`; its graph is alive meanwhile."""
    from grader import meters

    make = {"SavedBytes": student.SavedBytes, "meter": meters.saved_bytes}[who]
    with make(exclude=exclude) as saved:
        kept = forward()
    size = saved.bytes
    del kept
    return size


def single(student, who, operation, m, n, k):
    torch = _torch(student)
    torch.manual_seed(m * n)
    x = torch.randn(m, n, requires_grad=True)
    if operation == "linear":
        layer = torch.nn.Linear(n, k)
        return _saved(student, who, lambda: layer(x), list(layer.parameters()))
    if operation == "bf16_exp":
        half = x.detach().bfloat16().requires_grad_()
        return _saved(student, who, lambda: half.exp())
    if operation == "product":
        other = torch.randn(m, n, requires_grad=True)
        return _saved(student, who, lambda: x * other)
    if operation == "add":
        other = torch.randn(m, n, requires_grad=True)
        return _saved(student, who, lambda: x + other)
    if operation == "layer_norm":
        norm = torch.nn.LayerNorm(n)
        return _saved(student, who, lambda: norm(x), list(norm.parameters()))
    mask, rows = torch.rand(m, n) > 0.5, torch.randint(m, (k,))
    double = x.detach().double().requires_grad_()
    scale, row = torch.tensor(3.0), torch.randn(1, n, requires_grad=True)
    forward = {
        "softmax": lambda: torch.softmax(x, dim=-1),
        "exp": lambda: x.exp(),
        "gelu": lambda: torch.nn.functional.gelu(x),
        "float64_exp": lambda: double.exp(),
        "where": lambda: torch.where(mask, x, 0.0),
        "index_select": lambda: x.index_select(0, rows),
        "scaled": lambda: x * scale,
        "expanded": lambda: row.expand(m, n).sin(),
        "in_place": lambda: (x + 1).sigmoid_().tanh_(),
    }[operation]
    return _saved(student, who, forward)


def views(student, who, operation, m, n):
    torch = _torch(student)
    x = torch.randn(m, n, requires_grad=True)
    if operation == "two_views":
        return _saved(student, who, lambda: x[: m // 2] * x[m // 2 :])
    if operation == "same_twice":
        return _saved(student, who, lambda: (x * x.view(n, m).view(m, n)) + x.sin())
    if operation == "other_shapes":
        parts = (x[: m // 2], x.t())
        return _saved(student, who, lambda: x.cos().sum() + sum(part.sin().sum() for part in parts))
    # Half of a whole tensor and a factor of its own, as large as a whole tensor.
    factor = torch.randn(m, n, requires_grad=True)
    return _saved(student, who, lambda: x[1::2] * factor[::2])


def parameters(student, who, operation, m, n, k):
    torch = _torch(student)
    layer = torch.nn.Linear(n, k, bias=False)
    x = torch.randn(m, n, requires_grad=True)
    if operation == "matmul_transposed":
        return _saved(student, who, lambda: x @ layer.weight.t(), [layer.weight])
    if operation == "not_excluded":
        return _saved(student, who, lambda: layer(x))
    if operation == "excluded_by_a_view":
        return _saved(student, who, lambda: layer(x), [layer.weight.detach()[1:]])
    if operation == "saved_as_a_view":
        return _saved(student, who, lambda: x @ layer.weight[1:].t(), [layer.weight])
    if operation == "input_excluded":
        return _saved(student, who, lambda: layer(x), [layer.weight, x])
    if operation == "iterator":
        return _saved(student, who, lambda: (layer(x), layer(x)), layer.parameters())
    return _saved(student, who, lambda: layer(x), list(layer.parameters()))


def _hooks_left(block):
    """Run `block` under a pair of hooks of our own: 0 when they are on top again afterwards, 1 when
    something still lies on them."""
    import torch

    calls = []
    ours = torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: calls.append(1) or tensor, lambda tensor: tensor
    )
    ours.__enter__()
    try:
        block()
    except BaseException:
        ours.__exit__()
        raise
    calls.clear()
    torch.ones(2, requires_grad=True).exp()
    left = 0 if calls else 1
    for _ in range(1 + left):  # the first exit takes a forgotten pair off, the second ours
        ours.__exit__()
    return left


def scope(student, m, n):
    torch = _torch(student)
    x = torch.randn(m, n, requires_grad=True)
    before = x.sin()
    sizes = []

    def block():
        saved = student.SavedBytes()
        early = x.tan()
        with saved:
            y = x.exp()
        del early
        sizes.append(saved.bytes)
        after = (x.cos(), x.tanh())
        sizes.append(saved.bytes)
        del y, after

    left = _hooks_left(block)
    del before
    return sizes[0], sizes[1], left


def network(student, who, rows, widths, heads, activations):
    """Residual MLPs with these activations, self-attention of one projection, and a last Linear."""
    torch = _torch(student)
    a, b, c = widths
    ups = [torch.nn.Linear(a, b) for _ in activations]
    downs = [torch.nn.Linear(b, a) for _ in activations]
    out = torch.nn.Linear(a, c)

    def forward():
        x = torch.ones(rows, a, requires_grad=True)
        for up, name, down in zip(ups, activations, downs, strict=True):
            activation = getattr(torch, name, None) or getattr(torch.nn.functional, name)
            x = x + down(activation(up(x)))
        q = x.reshape(rows, heads, a // heads).transpose(0, 1)
        scores = torch.softmax(q.contiguous() @ q.contiguous().transpose(1, 2), dim=-1)
        return out((scores @ q.contiguous()).transpose(0, 1).reshape(rows, a))

    every = [p for layer in (*ups, *downs, out) for p in layer.parameters()]
    return _saved(student, who, forward, every)


def gradients(student, m, n, k):
    torch = _torch(student)
    torch.manual_seed(k)
    layer = torch.nn.Linear(n, k)
    x = torch.randn(m, n)

    def backward(loss):
        layer.zero_grad()
        loss.backward()
        return layer.weight.grad.clone().numpy()

    def forward():
        return torch.softmax(layer(x), dim=-1).square().sum()

    plain = backward(forward())
    with student.SavedBytes(exclude=layer.parameters()):
        inside = backward(forward())
    with student.SavedBytes(exclude=layer.parameters()):
        loss = forward()
    return plain, inside, backward(loss)


def running(student, m, n, steps):
    torch = _torch(student)
    x = torch.randn(m, n, requires_grad=True)
    kept, sizes = [], []
    with student.SavedBytes() as saved:
        sizes.append(saved.bytes)
        for _ in range(steps):
            kept.append(x.exp())
            sizes.append(saved.bytes)
    return sizes


def one_after_the_other(student, m, n):
    torch = _torch(student)
    x = torch.randn(m, n, requires_grad=True)
    with student.SavedBytes() as first:
        kept = [x.sin()]
    before = first.bytes
    with student.SavedBytes() as second:
        kept.append(x.cos())
    del kept
    return before, second.bytes, first.bytes


def after_backward(student, m, n):
    """Its figure inside of the block and after it, when the graph has been walked and freed."""
    torch = _torch(student)
    x = torch.randn(m, n, requires_grad=True)
    with student.SavedBytes() as saved:
        x.sin().sum().backward()
        inside = saved.bytes
        later = x.cos().sum()
    later.backward()
    return inside, saved.bytes


def dropped(student, m, graphs):
    torch = _torch(student)
    x = torch.randn(m, requires_grad=True)
    with student.SavedBytes() as saved:
        for _ in range(graphs):
            # An operation that saves its input: one that saves its result keeps itself alive.
            (x + 1).sin()
    return saved.bytes


def failing(student):
    torch = _torch(student)
    x = torch.ones(3, requires_grad=True)
    raised = []

    def block():
        try:
            with student.SavedBytes():
                x.exp()
                raise ArithmeticError("in the block")
        except ArithmeticError as error:
            raised.append(type(error).__name__)

    left = _hooks_left(block)
    return (raised or ["nothing"])[0], left


def checkpointed(student, who, m, n):
    torch = _torch(student)
    from torch.utils.checkpoint import checkpoint

    first, second = torch.nn.Linear(n, 3 * n), torch.nn.Linear(3 * n, n)
    x = torch.randn(m, n, requires_grad=True)
    every = [*first.parameters(), *second.parameters()]

    def block(value):
        return second(torch.relu(first(value)))

    return _saved(student, who, lambda: checkpoint(block, x, use_reentrant=False), every)


def llama_layer(student, kv_heads):
    torch = _torch(student)
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    hidden = 1024
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=2752,
        num_attention_heads=8,
        num_key_value_heads=kv_heads,
        attn_implementation="sdpa",
    )
    layer = LlamaDecoderLayer(config, 0).to(torch.bfloat16)
    x = torch.randn(1, hidden, hidden, dtype=torch.bfloat16, requires_grad=True)
    places = torch.arange(hidden)[None]
    turns = LlamaRotaryEmbedding(config)(x, places)
    # The rotary tables are saved too, half a byte of the figure; all layers share them.
    with student.SavedBytes(exclude=layer.parameters()) as saved:
        y = layer(x, position_embeddings=turns, position_ids=places)
    del y
    return saved.bytes


def gpu_step(student, layers, heads, hidden, vocab, batch, seq):
    """Peak bytes that a GPU allocated during one bf16 training step of a GPT without dropout, and
    the model's parameters. Gradients and states of an earlier step are in memory."""
    import torch
    from torch.nn import functional as F

    make = {"dtype": torch.bfloat16, "device": "cuda"}
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1 = torch.nn.LayerNorm(hidden, **make)
            self.norm2 = torch.nn.LayerNorm(hidden, **make)
            self.qkv = torch.nn.Linear(hidden, 3 * hidden, **make)
            self.out = torch.nn.Linear(hidden, hidden, **make)
            self.up = torch.nn.Linear(hidden, 4 * hidden, **make)
            self.down = torch.nn.Linear(4 * hidden, hidden, **make)

        def forward(self, x):
            parts = self.qkv(self.norm1(x)).reshape(batch, seq, 3, heads, hidden // heads)
            context = F.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4), is_causal=True)
            x = x + self.out(context.transpose(1, 2).reshape(batch, seq, hidden))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    embed = torch.nn.Embedding(vocab, hidden, **make)
    blocks = torch.nn.ModuleList(Block() for _ in range(layers))
    norm = torch.nn.LayerNorm(hidden, **make)
    parameters = [*embed.parameters(), *blocks.parameters(), *norm.parameters()]
    # Fused: the others make temporaries as large as the parameters.
    optimizer = torch.optim.AdamW(parameters, fused=True)
    tokens = torch.randint(vocab, (batch, seq), device="cuda")

    def step():
        x = embed(tokens)
        for block in blocks:
            x = block(x)
        logits = (norm(x) @ embed.weight.t()).float()
        F.cross_entropy(logits.reshape(-1, vocab), tokens.reshape(-1)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    return peak, sum(p.numel() for p in parameters)
