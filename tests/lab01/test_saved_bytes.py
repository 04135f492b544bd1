"""SavedBytes: measured beside the kit's own meter and against closed forms of single operations."""

import pytest

from grader.suite import expect, task

# operation: (bytes for an (m, n) input and k outputs in float32, why)
_SINGLE = {
    "linear": (lambda m, n, k: 4 * m * n, "a Linear saves its input; its weight is a parameter"),
    "softmax": (lambda m, n, k: 4 * m * n, "softmax saves its output"),
    "exp": (lambda m, n, k: 4 * m * n, "exp saves its output"),
    "gelu": (lambda m, n, k: 4 * m * n, "GELU saves its input"),
    "add": (lambda m, n, k: 0, "the gradient of a sum needs no input"),
    "product": (lambda m, n, k: 2 * 4 * m * n, "a product saves both factors"),
    "bf16_exp": (lambda m, n, k: 2 * m * n, "an element of bf16 has two bytes"),
    "float64_exp": (lambda m, n, k: 8 * m * n, "an element of float64 has eight bytes"),
    "where": (lambda m, n, k: m * n, "a choice saves its mask, one byte an element"),
    "index_select": (lambda m, n, k: 8 * k, "rows are put back by their int64 numbers"),
    "scaled": (lambda m, n, k: 4, "the gradient of x * 3 needs the 3, a tensor of one float32"),
    "layer_norm": (
        lambda m, n, k: 4 * m * n + 8 * m,
        "a LayerNorm saves its input, and a mean and an rstd for each row",
    ),
    "expanded": (lambda m, n, k: 4 * n, "an expanded row is one row in memory"),
    "in_place": (lambda m, n, k: 4 * m * n, "both operations write to the one storage"),
}
# Storages of an MLP's inside that one layer saves: the activation's input or output, and the second
# Linear's input, which is that output.
_INSIDE = {"relu": 1, "sigmoid": 1, "tanh": 1, "exp": 1, "gelu": 2, "sin": 2, "cos": 2, "silu": 2}


def _saves(probe, args, want, because, what=None):
    """SavedBytes, and then the kit's meter, see that many bytes."""
    expect.bytes(probe("SavedBytes", *args), want, because, what)
    expect.bytes(probe("meter", *args), want, "the kit's meter sees the same", what)


@task("SavedBytes", holds=("each_operation", "in_place"))
@pytest.mark.parametrize("operation", list(_SINGLE))
def test_single_operations(student, rng, operation):
    """One operation saves what its derivative needs.
    Oracle: closed forms; the kit's meter on a second forward pass."""
    m, n, k = (int(x) for x in rng.integers(5, 60, 3))
    size, because = _SINGLE[operation]
    _saves(student.probe.single, (operation, m, n, k), size(m, n, k), because, operation)


@task("SavedBytes", holds=("storages", "views"))
def test_views_of_one_storage_count_once(student, rng):
    """Two views of one tensor keep one storage alive: all of it, once.
    Oracle: the storage's size; the kit's meter."""
    m, n = 2 * int(rng.integers(4, 30)), int(rng.integers(5, 60))
    for operation, storages, because in (
        ("two_views", 1, "both halves are views of the one tensor"),
        ("same_twice", 1, "the same tensor saved twice is in memory once"),
        ("half", 2, "half a tensor keeps the whole storage alive"),
        ("other_shapes", 1, "a tensor, its upper half and its transpose share one storage"),
    ):
        want = storages * 4 * m * n
        _saves(student.probe.views, (operation, m, n), want, because, operation)


@task("SavedBytes", holds=("exclude", "iterator", "shares_its_storage"))
def test_parameters_do_not_count(student, rng):
    """A saved weight, whole, transposed or in part, is in memory anyway, also where `exclude` holds
    a part of it; without `exclude` it counts.
    Oracle: closed form; the kit's meter."""
    m, n, k = (int(x) for x in rng.integers(5, 60, 3))
    for operation in (
        "linear",
        "matmul_transposed",
        "iterator",
        "excluded_by_a_view",
        "saved_as_a_view",
    ):
        _saves(
            student.probe.parameters,
            (operation, m, n, k),
            4 * m * n,
            "only the input is an activation",
            operation,
        )
    for operation, want, because in (
        ("not_excluded", 4 * (m * n + n * k), "nothing was excluded here"),
        ("input_excluded", 0, "any tensor can be excluded, the input too"),
    ):
        _saves(student.probe.parameters, (operation, m, n, k), want, because, operation)


@task("SavedBytes", holds=("while_open", "after_it"))
def test_only_while_it_is_open(student, rng):
    """Saves before and after the block, and graphs built elsewhere, do not count.
    Oracle: closed form of what the block itself saves."""
    m, n = (int(x) for x in rng.integers(5, 60, 2))
    inside, after, hooks_left = student.probe.scope(m, n)
    expect.bytes(inside, 4 * m * n, "exp inside the block saved one output", "inside")
    expect.bytes(after, 4 * m * n, "what is saved after the block is not its business", "after")
    expect.equal(hooks_left, 0, "the hooks go when the block ends", "hooks still called")


@task("SavedBytes", holds=("each_operation", "storages"))
def test_a_whole_network(student, rng):
    """Layers of random number, kind and width, with attention's reshapes and residuals.
    Oracle: the storages of each layer added up; the kit's meter."""
    for _ in range(3):
        a, b, c = (8 * int(x) for x in rng.integers(2, 12, 3))
        rows, heads = int(rng.integers(4, 30)), int(rng.choice([2, 4]))
        kinds = [str(kind) for kind in rng.choice(list(_INSIDE), int(rng.integers(1, 5)))]
        # A layer keeps its input too; attention two copies of q for the scores and one for the sum,
        # the probabilities, and what the last Linear reads.
        values = sum(a + _INSIDE[kind] * b for kind in kinds) + 3 * a + heads * rows + a
        because = "every layer saves what its derivative needs"
        _saves(student.probe.network, (rows, (a, b, c), heads, kinds), 4 * rows * values, because)


@task("SavedBytes", gate=False, holds=("gradients",))
def test_gradients_are_what_they_are_without_it(student, rng):
    """Backward, inside or after the block, gives the plain gradients.
    Oracle: autograd without SavedBytes."""
    m, n, k = (int(x) for x in rng.integers(5, 40, 3))
    plain, inside, after = student.probe.gradients(m, n, k)
    expect.close(inside, plain, "hooks must hand back what they were given", what="inside")
    expect.close(after, plain, "hooks must hand back what they were given", what="after")


@task("SavedBytes", gate=False, holds=("so_far",))
def test_it_counts_up_while_open(student, rng):
    """`bytes` can be read inside the block and grows with every save.
    Oracle: closed form: one output of exp more each time."""
    m, n = (int(x) for x in rng.integers(5, 60, 2))
    steps = student.probe.running(m, n, 3)
    want = [4 * m * n * step for step in (0, 1, 2, 3)]
    expect.equal(list(steps), want, "each exp saves one more output", "bytes so far")


@task("SavedBytes", gate=False, holds=("while_open",))
def test_each_block_counts_for_itself(student, rng):
    """A second block counts what it saves, also what the first has counted, and leaves the first's
    figure alone.
    Oracle: closed form: sin and cos save their input."""
    m, n = (int(x) for x in rng.integers(5, 60, 2))
    first, second, later = student.probe.one_after_the_other(m, n)
    expect.bytes(first, 4 * m * n, "sin saves its input", "the first block")
    expect.bytes(second, 4 * m * n, "cos saves the same input, in another block", "the second")
    expect.bytes(later, 4 * m * n, "it was closed by then", "the first block, read again")


@task("SavedBytes", gate=False, holds=("gone_graphs",))
def test_a_reused_address_is_another_tensor(student, rng):
    """Graphs that are dropped free their memory; the next save at that address counts again.
    Oracle: closed form: forty inputs saved, one at a time."""
    m = int(rng.integers(2000, 4000))
    got = student.probe.dropped(m, 40)
    expect.bytes(got, 40 * 4 * m, "forty different tensors were saved", "forty dropped graphs")


@task("SavedBytes", gate=False, holds=("gone_graphs", "after_it"))
def test_backward_takes_nothing_off(student, rng):
    """A graph that backward has walked and freed was saved all the same.
    Oracle: closed form: sin saves its input; cos of the same input adds nothing."""
    m, n = (int(x) for x in rng.integers(5, 60, 2))
    inside, after = student.probe.after_backward(m, n)
    because = "it counts what was saved, not what is still held"
    expect.bytes(inside, 4 * m * n, because, "after a backward in the block")
    expect.bytes(after, 4 * m * n, because, "after one behind it")


@task("SavedBytes", gate=False, holds=("error",))
def test_an_error_inside_comes_out_and_closes_it(student):
    """An exception in the block is not swallowed, and the hooks still go.
    Oracle: the contract of a context manager."""
    raised, hooks_left = student.probe.failing()
    expect.equal(raised, "ArithmeticError", "an error in the block is the caller's", "raised")
    expect.equal(hooks_left, 0, "the hooks go when the block ends", "hooks still called")


@task("SavedBytes", gate=False, holds=("each_operation",))
def test_checkpointing_keeps_the_input(student, rng):
    """A checkpointed block saves its input and nothing else.
    Oracle: closed form; the kit's meter."""
    m, n = (int(x) for x in rng.integers(5, 40, 2))
    _saves(student.probe.checkpointed, (m, n), 4 * m * n, "the rest is computed again in backward")


@task("SavedBytes", extra=("transformers",))
def test_a_real_llama_layer(student):
    """A Hugging Face LlamaDecoderLayer saves 46.04 bytes a token and hidden unit, not 14.
    Oracle: published.json, measured with transformers 5.23."""
    from . import oracles

    got = student.probe.llama_layer(8) / (1024 * 1024)
    expect.published(got, oracles.PUBLISHED["act_hf_llama_sdpa_mha"])
    grouped = student.probe.llama_layer(2) / (1024 * 1024)
    expect.within(grouped, 43.03, 43.05, "four query heads share a key/value head")
