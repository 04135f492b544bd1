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

FORGOTTEN = """Some kinds of matrix product are computed again: linear layers with a bias are
addmm, products of batches bmm and baddbmm. Keep all four."""
PRODUCTS = "{aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default}"

only_mm = lines(FORGOTTEN, (PRODUCTS, "{aten.mm.default}"))

without_baddbmm = lines(
    FORGOTTEN, (PRODUCTS, "{aten.mm.default, aten.addmm.default, aten.bmm.default}")
)

without_the_added_ones = lines(FORGOTTEN, (PRODUCTS, "{aten.mm.default, aten.bmm.default}"))

without_the_batches = lines(FORGOTTEN, (PRODUCTS, "{aten.mm.default, aten.addmm.default}"))

another_mask = lines(
    """The random generator is not kept for the second run, so dropout draws another mask: leave
    preserve_rng_state at True.""",
    ("use_reentrant=False,", "use_reentrant=False, preserve_rng_state=False,"),
)

products_by_their_names = lines(
    """Every operator with mm in its name is kept: so are lgamma and digamma, which are no products.
    Compare the operator itself with the four.""",
    ("kept = op in products", 'kept = "mm" in str(op)'),
    gate=False,
)

attention_is_kept = lines(
    """The fused attention is kept as if it were a product: what is kept are the four products,
    and all else is computed again.""",
    ("kept = op in products", 'kept = op in products or "scaled_dot_product" in str(op)'),
    gate=False,
)
