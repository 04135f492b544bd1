"""Drives SavedBytes beside the kit's meter. Runs next to student code; holds no expected value.

Every forward pass is made twice: once under the student's context manager and once under the
meter, because autograd calls only the innermost pair of hooks.
"""


def _torch(student):
    """torch, imported only for a class that can be made: a fresh skeleton stays lean."""
    student.SavedBytes()
    import torch

    return torch


def _both(student, forward, exclude=()):
    """The student's bytes and the meter's for two runs of `forward`, its graph alive in each."""
    from grader import meters

    with student.SavedBytes(exclude=exclude) as saved:
        kept = forward()
    got = saved.bytes
    del kept
    with meters.saved_bytes(exclude=tuple(exclude)) as meter:
        kept = forward()
    measured = meter.bytes
    del kept
    return got, measured


def single(student, operation, m, n, k):
    torch = _torch(student)
    torch.manual_seed(m * n)
    x = torch.randn(m, n, requires_grad=True)
    if operation == "linear":
        layer = torch.nn.Linear(n, k)
        return _both(student, lambda: layer(x), list(layer.parameters()))
    if operation == "bf16_exp":
        half = x.detach().bfloat16().requires_grad_()
        return _both(student, lambda: half.exp())
    if operation == "product":
        other = torch.randn(m, n, requires_grad=True)
        return _both(student, lambda: x * other)
    if operation == "add":
        other = torch.randn(m, n, requires_grad=True)
        return _both(student, lambda: x + other)
    if operation == "layer_norm":
        norm = torch.nn.LayerNorm(n)
        return _both(student, lambda: norm(x), list(norm.parameters()))
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
    return _both(student, forward)


def views(student, operation, m, n):
    torch = _torch(student)
    x = torch.randn(m, n, requires_grad=True)
    if operation == "two_views":
        return _both(student, lambda: x[: m // 2] * x[m // 2 :])
    if operation == "same_twice":
        return _both(student, lambda: (x * x.view(n, m).view(m, n)) + x.sin())
    if operation == "other_shapes":
        return _both(student, lambda: x.cos().sum() + x[: m // 2].sin().sum() + x.t().sin().sum())
    # Half of a whole tensor and a factor of its own, as large as a whole tensor.
    factor = torch.randn(m, n, requires_grad=True)
    return _both(student, lambda: x[1::2] * factor[::2])


def parameters(student, operation, m, n, k):
    torch = _torch(student)
    layer = torch.nn.Linear(n, k, bias=False)
    x = torch.randn(m, n, requires_grad=True)
    if operation == "matmul_transposed":
        return _both(student, lambda: x @ layer.weight.t(), [layer.weight])
    if operation == "not_excluded":
        return _both(student, lambda: layer(x))
    if operation == "excluded_by_a_view":
        return _both(student, lambda: layer(x), [layer.weight.detach()[1:]])
    if operation == "saved_as_a_view":
        return _both(student, lambda: x @ layer.weight[1:].t(), [layer.weight])
    if operation == "input_excluded":
        return _both(student, lambda: layer(x), [layer.weight, x])
    if operation == "iterator":
        from grader import meters

        with student.SavedBytes(exclude=layer.parameters()) as saved:
            first, second = layer(x), layer(x)
        with meters.saved_bytes(exclude=layer.parameters()) as meter:
            first, second = layer(x), layer(x)
        del first, second
        return saved.bytes, meter.bytes
    return _both(student, lambda: layer(x), list(layer.parameters()))


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


def network(student, rows, widths):
    torch = _torch(student)
    a, b, c = widths
    up, down, out = torch.nn.Linear(a, b), torch.nn.Linear(b, a), torch.nn.Linear(a, c)
    heads = 2

    def forward():
        x = torch.ones(rows, a, requires_grad=True)
        hidden = torch.relu(up(x))
        x = x + down(hidden)
        q = x.reshape(rows, heads, a // heads).transpose(0, 1)
        scores = torch.softmax(q.contiguous() @ q.contiguous().transpose(1, 2), dim=-1)
        return out((scores @ q.contiguous()).transpose(0, 1).reshape(rows, a))

    every = [p for layer in (up, down, out) for p in layer.parameters()]
    got, meter = _both(student, forward, every)
    return got, meter, _listed(forward, every)


def _listed(forward, exclude):
    """Bytes of distinct storages in the finished graph, walked from its end through `_saved_*`."""
    end = forward()
    skip = {tensor.untyped_storage().data_ptr() for tensor in exclude}
    sizes, seen, todo = {}, set(), [end.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if not name.startswith("_saved_"):
                continue
            value = getattr(node, name)
            if hasattr(value, "untyped_storage"):
                storage = value.untyped_storage()
                if storage.data_ptr() not in skip:
                    sizes[storage.data_ptr()] = storage.nbytes()
        todo.extend(parent for parent, _ in node.next_functions)
    return sum(sizes.values())


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


def checkpointed(student, m, n):
    torch = _torch(student)
    from torch.utils.checkpoint import checkpoint

    first, second = torch.nn.Linear(n, 3 * n), torch.nn.Linear(3 * n, n)
    x = torch.randn(m, n, requires_grad=True)
    every = [*first.parameters(), *second.parameters()]

    def block(value):
        return second(torch.relu(first(value)))

    return _both(student, lambda: checkpoint(block, x, use_reentrant=False), every)


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
