from grader.suite import lines, misconception


@misconception()
def recomputes_everything(fn, *tensors):
    """Everything is computed again, the products too: that is plain checkpointing, and the
    products are what takes the time."""
    return checkpoint(fn, *tensors, use_reentrant=False)


@misconception()
def keeps_everything(fn, *tensors):
    """Nothing is checkpointed at all: what is cheap to compute again is kept like the rest."""
    return fn(*tensors)


keeps_the_cheap_half = lines(
    """The policy is turned round: it keeps what is cheap and computes the products again.""",
    ("kept = op in products", "kept = op not in products"),
)
