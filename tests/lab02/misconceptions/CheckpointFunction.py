import torch

from grader.suite import lines, misconception

INPUTS = "inputs = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]"
RESTORE = "                torch.set_rng_state(ctx.rng_state)\n"
FORK = "torch.enable_grad(), torch.random.fork_rng(devices=[], enabled=ctx.preserve_rng)"
BACKWARD = "torch.autograd.backward([out for out, _ in used], [g for _, g in used])"

another_dropout_mask = lines(
    """The generator is not set back, so the second run draws another dropout mask: the gradients
    belong to a forward that never was.""",
    (RESTORE, "                pass\n"),
)

LEFT_MOVED = """The generator stays where the second run left it, so whatever is drawn next
differs from a run without checkpointing: put it back (fork_rng)."""

leaves_the_generator_moved = lines(LEFT_MOVED, (FORK, "torch.enable_grad()"))

runs_again_without_gradients = lines(
    """The second run is made with gradients off, as a backward is by default, so it builds no
    graph and there is nothing to differentiate: torch.enable_grad().""",
    (
        "with torch.enable_grad(), torch.random",
        "with torch.random",
    ),
    ("and out.requires_grad", ""),
)

runs_again_and_finds_nothing = lines(
    """The second run is made with gradients off, as a backward is by default, so it builds no
    graph and there is nothing to differentiate: torch.enable_grad().""",
    (
        "with torch.enable_grad(), torch.random",
        "with torch.random",
    ),
    (BACKWARD, "if used:\n            " + BACKWARD),
)

inputs_lose_their_gradient = lines(
    """The inputs are detached and never asked for a gradient, so it ends at this segment: nothing
    before it learns. After detach() comes requires_grad_().""",
    (INPUTS, "inputs = [t.detach() for t in ctx.saved_tensors]"),
)

inputs_are_not_cut_off = lines(
    """The second run starts from the saved tensors themselves, so its backward runs on into what
    came before the segment, and the gradient arrives there twice or not at all: detach() first.""",
    (INPUTS, "inputs = list(ctx.saved_tensors)"),
)

ignores_the_incoming_gradient = lines(
    """Backward starts from ones instead of from dLoss/doutput, so the chain rule is cut: what
    comes after the segment has no say.""",
    ("[g for _, g in used]", "[torch.ones_like(out) for out, _ in used]"),
)

PARAMETERS = """Only the inputs' gradients are asked for (autograd.grad), so the segment's own
parameters never get one: backward() goes on to every leaf."""

parameters_lose_their_gradient = lines(
    PARAMETERS,
    (
        BACKWARD,
        "wanted = [t for t in inputs if t.requires_grad]\n"
        "        found = torch.autograd.grad(\n"
        "            [out for out, _ in used], wanted, [g for _, g in used], allow_unused=True\n"
        "        )\n"
        "        for t, g in zip(wanted, found, strict=True):\n"
        "            t.grad = g",
    ),
)

first_output_only = lines(
    """Only the first output sends its gradient back; the loss may use any of a segment's
    outputs.""",
    (BACKWARD, BACKWARD.replace("in used]", "in used[:1]]")),
)
a_backward_for_each_output = lines(
    """Every output has a backward of its own, so the graph in front of them is walked once for each
    and its gradients are rounded one by one: hand all outputs and their gradients to one call.""",
    (
        BACKWARD,
        "for out, g in used:\n            torch.autograd.backward(out, g, retain_graph=True)",
    ),
    gate=False,
)


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


RunsThreeTimes = lines(
    """The segment runs more than once in backward; one second run gives every gradient, and each
    run costs a whole forward.""",
    (
        "            outputs = ctx.fn(*inputs)\n",
        "            outputs = ctx.fn(*inputs)\n"
        "            if ctx.preserve_rng:\n"
        "                torch.set_rng_state(ctx.rng_state)\n"
        "            outputs = ctx.fn(*inputs)\n",
    ),
)


@misconception()
class LibraryCheckpoint:
    """torch.utils.checkpoint is called; it is what you are writing here."""

    @staticmethod
    def apply(fn, preserve_rng, *tensors):
        from torch.utils.checkpoint import checkpoint

        return checkpoint(fn, *tensors, use_reentrant=False, preserve_rng_state=preserve_rng)


every_output_has_a_gradient = lines(
    """Every output is handed to backward, with zeros where the loss sends nothing; but an output
    that is an integer or detached has no gradient, and autograd refuses it. Hand on only outputs
    that require a gradient and got one.""",
    (
        """        used = [
            (out, g)
            for out, g in zip(outputs, grads, strict=True)
            if g is not None and out.requires_grad
        ]
""",
        """        used = [
            (out, torch.zeros_like(out) if g is None else g)
            for out, g in zip(outputs, grads, strict=True)
        ]
""",
    ),
)
