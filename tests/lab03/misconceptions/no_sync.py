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
