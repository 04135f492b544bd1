from grader.lab.skeleton import changed
from grader.suite import lines, misconception


@misconception(file="train_ddp.py")
def backward_decides(text):
    """The gradient hook asks whether it is inside no_sync() NOW; the decision belongs to forward,
    so that a backward called outside the block still keeps its gradients to itself."""
    return changed(
        text,
        ("self.active = self.synced  #", "self.active = True  #"),
        ("        if not self.active:", "        if not self.synced:"),
    )


it_never_ends = lines(
    """The block does not give back what held before it: after the first no_sync() no gradient is
    ever exchanged again, and the replicas drift apart.""",
    ("            self.synced = before\n", "            pass\n"),
)

it_changes_nothing = lines(
    """Every micro-step exchanges its gradients: the result is nearly the same, for N times the
    bytes.""",
    ("before, self.synced = self.synced, False", "before = self.synced"),
)

not_after_an_error = lines(
    """What held before is put back only when the block ends well; an error in it skips that line,
    and from then on no gradient is exchanged. Put it back in a finally.""",
    (
        "        try:\n            yield\n        finally:\n            self.synced = before\n",
        "        yield\n        self.synced = before\n",
    ),
    gate=False,
)

always_on_afterwards = lines(
    """The end of a block switches the exchange on, whatever held before: an inner block then ends
    the outer one, too. Put back what held when the block began.""",
    ("before, self.synced = self.synced, False", "self.synced = False"),
    ("            self.synced = before\n", "            self.synced = True\n"),
    gate=False,
)


@misconception(file="train_ddp.py")
def evaluations_decide(text):
    """A forward under torch.no_grad() decides as well, although no backward belongs to it: an
    evaluation between a forward and its backward changes what that backward exchanges. Only a
    forward with gradients decides."""
    return changed(
        text,
        (
            "        if torch.is_grad_enabled():\n            self.active = self.synced  #",
            "        self.active = self.synced\n"
            "        if torch.is_grad_enabled():\n            pass  #",
        ),
    )
