import torch

from grader.suite import misconception


@misconception(replaces="CheckpointFunction.backward")
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


@misconception(replaces="CheckpointFunction.backward")
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


@misconception(replaces="CheckpointFunction.backward")
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


@misconception(replaces="CheckpointFunction.backward")
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


@misconception(replaces="CheckpointFunction.backward")
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


@misconception(replaces="CheckpointFunction.backward")
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


@misconception()
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


@misconception()
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


@misconception()
class LibraryCheckpoint:
    """torch.utils.checkpoint is called; it is what you are writing here."""

    @staticmethod
    def apply(fn, preserve_rng, *tensors):
        from torch.utils.checkpoint import checkpoint

        return checkpoint(fn, *tensors, use_reentrant=False, preserve_rng_state=preserve_rng)
