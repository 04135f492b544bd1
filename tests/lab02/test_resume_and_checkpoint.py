"""Lab 02: a run that goes on where it stopped, and a backward that runs the forward again."""

from __future__ import annotations

import pytest
import torch

from grader.suite import expect, task

from . import oracles
from .oracles import PUBLISHED, normal

# --- save_state --------------------------------------------------------------------------------


def _resumed(student, rng, with_scaler="torch", drawn=1):
    weights, others = oracles.weights(rng), oracles.weights(rng)
    text = torch.from_numpy(rng.integers(0, 7, size=(10, 6)))
    # ten rows in threes: four steps end in the middle of the second epoch
    got = student.probe.resumed(weights, others, text, 4, 2, 5, with_scaler, drawn)
    expect.equal(got["missing"], [], because="save_state writes the file", what="files missing")
    return got


@task(
    "save_state",
    holds=("to_the_last_bit", "fills", "sampler", "scaler", "opt", "rng", "stock", "any_path"),
)
@pytest.mark.parametrize(
    ("drawn", "scaler"),
    [(0, "torch"), (1, "torch"), (1, "counting")],
    ids=["no number in stock", "a number in stock", "another scaler"],
)
def test_the_second_half_is_the_same_to_the_last_bit(student, rng, drawn, scaler):
    """Rows, scales, losses and parameters after the interruption, with dropout, augmentation, a
    schedule and two groups; normal numbers are drawn in pairs, of which one may be in stock. The
    scaler is torch's, or one that keeps scale and clean_steps as this lab's does; one clean step
    is counted when the state is saved.   Oracle: the run that was not interrupted, bitwise."""
    got = _resumed(student, rng, with_scaler=scaler, drawn=drawn)
    whole, again = got["whole"][4:], got["again"]
    expect.equal(
        [rows for _, rows, _ in again],
        [rows for _, rows, _ in whole],
        because="the sampler goes on in its epoch, behind the rows that were seen",
        what="rows of the batches",
    )
    expect.equal(
        [scale for *_, scale in again],
        [scale for *_, scale in whole],
        because="the loss scale and its count of clean steps are part of the state",
        what="loss scales",
    )
    expect.equal(
        again[0][0],
        whole[0][0],
        because="the first loss needs the weights and every random generator",
        what="first loss after loading",
    )
    expect.equal(
        [loss for loss, *_ in again],
        [loss for loss, *_ in whole],
        because="later losses need the optimizer's state, too",
        what="losses",
    )
    before, after = got["params"]
    for name, right in before.items():
        expect.equal(after[name], right, because="the same steps, the same bits", what=name)
    expect.equal(
        got["judged"][1],
        got["judged"][0],
        because="in eval mode a batch norm takes its buffers: they are part of the model's state",
        what="loss in eval mode at the end",
    )


@task("save_state", holds=("keys", "plain_data", "replaced", "sampler_keys", "buffers", "three"))
def test_the_file_is_plain_data_under_known_keys(student, rng):
    """Read with weights_only=True, which runs no code.   Oracle: the contract."""
    got = _resumed(student, rng)
    want = ["model", "opt", "rng", "sampler", "scaler"]
    expect.equal(got["keys"], want, because="another tool can read the file", what="keys")
    expect.equal(
        got["rng"],
        [*(["cuda"] if got["cuda"] else []), "numpy", "python", "torch"],
        because="three generators, each of its own, and a GPU's where there is one",
        what="rng",
    )
    expect.equal(
        got["names"][1], got["names"][0], because="parameters and buffers", what="names under model"
    )
    # four batches of three from ten rows: three in the first epoch, one in the second
    expect.equal(
        got["sampler"], {"epoch": 1, "cursor": 3}, because="where it stands, in two whole numbers"
    )


@task("save_state", gate=False, holds=("no_scaler",))
def test_without_a_scaler(student, rng):
    """scaler is None on both sides.   Oracle: the run that was not interrupted, bitwise."""
    got = _resumed(student, rng, with_scaler="")
    expect.equal(got["scaler"], False, because="None is what was there", what="a scaler in it")
    expect.equal(got["again"], got["whole"][4:], because="the same run, bit for bit")


@task("save_state", gate=False, holds=("bytes",))
def test_twelve_bytes_a_parameter(student):
    """float32 weights and AdamW's two means; GPT-2's file is 3.4 % larger than that.
    Oracle: 12 P; published.json, ckpt_gpt2_bytes."""
    params, size, same = student.probe.state_file_bytes(100, 400)
    expect.true(same, because="the file holds the weights")
    expect.within(
        size,
        12 * params,
        12 * params + 48_000,
        because="12 bytes a parameter, and the generators' states (5,056 and 2,500 bytes)",
        what="file",
        unit="bytes",
    )
    expect.published(12 * 124_337_664, PUBLISHED["ckpt_gpt2_bytes"])


# --- CheckpointFunction ------------------------------------------------------------------------


def _stack(rng, count=3, hidden=4, width=32, tied=False):
    return {
        "up": [normal(rng, width, hidden, size=0.5) for _ in range(count)],
        "down": [normal(rng, hidden, width, size=0.2) for _ in range(count)],
        "tied": tied,
    }


RERUN = "the second run of a segment must be the first one again: same inputs, same dropout mask"


def _same_bits(mine, right, what):
    expect.equal(len(mine), len(right), because="a gradient for each", what=what)
    for index, (g, want) in enumerate(zip(mine, right, strict=True)):
        name = "of the input" if index == 0 else f"of parameter {index - 1}"
        if want is None:
            expect.true(g is None, because="a frozen parameter has no gradient", observed=g)
        else:
            expect.equal(g, want, because=RERUN, what=f"{what} {name}")


@task("CheckpointFunction", holds=("gradients", "same_mask", "bit_for_bit"))
@pytest.mark.parametrize(
    ("dropout", "tied"), [(0.0, False), (0.3, False), (0.3, True)], ids=["plain", "dropout", "tied"]
)
def test_gradients_are_checkpoints_bit_for_bit(student, rng, dropout, tied):
    """With dropout, a frozen parameter and, tied, one segment used twice.
    Oracle: torch.utils.checkpoint(use_reentrant=False), bitwise; plain autograd in float64."""
    weights = _stack(rng, tied=tied)
    x, weight = normal(rng, 5, 4), normal(rng, 5, 4)
    got = student.probe.checkpointed(weights, x, weight, dropout, 11)
    out, grads = oracles.plain_segments(weights, x, weight, dropout, 11)
    mine, library = got["mine"], got["library"]
    for name, side in (("yours", mine), ("torch's", library)):
        expect.close(side["out"], out, because="the forward is the plain one", n=40, what=name)
        expect.equal(
            [g is not None for g in side["grads"]],
            [g is not None for g in grads],
            because="the input and every parameter that learns get a gradient",
            what=f"{name}, who has a gradient (the input first)",
        )
        for index, right in enumerate(grads):
            if right is not None:
                expect.close(
                    side["grads"][index],
                    right,
                    because=RERUN,
                    n=200,
                    what=f"{name}, gradient {index} (0 is the input's)",
                )
    _same_bits(mine["grads"], library["grads"], "gradient")


@task("CheckpointFunction", holds=("twice",))
def test_a_segment_runs_twice(student, rng):
    """Once forward, once in backward.
    Oracle: 2 calls a segment; plain autograd's gradients, which that takes."""
    weights = _stack(rng)
    x, weight = normal(rng, 5, 4), normal(rng, 5, 4)
    got = student.probe.checkpointed(weights, x, weight, 0.3, 3)
    expect.equal(
        got["mine"]["calls"],
        [3, 6],
        because="nothing of a segment's inside is kept, so backward must run it again, once",
        what="calls after the forward and after the backward",
    )
    _, grads = oracles.plain_segments(weights, x, weight, 0.3, 3)
    expect.close(got["mine"]["grads"][0], grads[0], because=RERUN, n=200, what="gradient of x")


@task("CheckpointFunction", holds=("inputs_only",))
def test_between_the_runs_only_inputs_are_kept(student, rng):
    """Segments 64 times as wide inside as at their ends.
    Oracle: inputs in bytes; the live-bytes meter, crossed with plain autograd's gradients."""
    weights = _stack(rng, count=3, hidden=8, width=512)
    x, weight = normal(rng, 40, 8), normal(rng, 40, 8)
    got = student.probe.checkpoint_bytes(weights, x, weight, 5)
    ends = 3 * x.nbytes
    generators = 3 * 8192
    expect.within(
        got["mine"],
        x.nbytes,
        ends + generators,
        because="a segment's inputs, and 5,056 bytes of its generator's state",
        what="alive after the forward",
        unit="bytes",
    )
    inside = 3 * 40 * 512 * 8
    expect.at_least(
        got["plain"], inside, because="the plain stack keeps its insides (the meter)", unit="bytes"
    )
    _, grads = oracles.plain_segments(weights, x, weight, 0.25, 5)
    for name in ("mine grad", "plain grad"):
        expect.close(got[name], grads[0], because=RERUN, n=2000, what="gradient of x")


@task("CheckpointFunction", holds=("generator",))
def test_the_generator_is_left_where_it_was(student, rng):
    """What is drawn after the backward is what a plain run would draw.
    Oracle: torch.utils.checkpoint in the same process; plain autograd's gradients."""
    weights = _stack(rng)
    x, weight = normal(rng, 5, 4), normal(rng, 5, 4)
    got = student.probe.checkpointed(weights, x, weight, 0.3, 7)
    expect.equal(
        got["mine"]["after"],
        got["library"]["after"],
        because="recomputation borrows the generator and gives it back",
        what="random numbers before and after the backward",
    )
    _, grads = oracles.plain_segments(weights, x, weight, 0.3, 7)
    expect.close(got["mine"]["grads"][0], grads[0], because=RERUN, n=200, what="gradient of x")


@task(
    "CheckpointFunction",
    holds=("tuple", "any_output", "without_gradient", "integers", "given_twice"),
)
@pytest.mark.parametrize("used", [(0,), (1,), (0, 1), (0, 1, 3)], ids=str)
def test_several_inputs_and_outputs(student, rng, used):
    """Inputs: integers, a constant, one tensor twice. Outputs: two, integers, and a detached one;
    the loss takes those of `used`.   Oracle: plain autograd of the same function, float64."""
    weights = _stack(rng)
    mine, plain = student.probe.checkpoint_extras(weights, normal(rng, 5, 4), 9, used)
    names = ("x, which is given twice", "the first parameter", "the second parameter")
    for name, got, right in zip(names, mine["grads"], plain["grads"], strict=True):
        expect.close(
            got,
            right,
            because="every output that the loss takes sends its gradient, a detached one none",
            n=400,
            what=f"gradient of {name}",
        )
    expect.equal(len(mine["outputs"]), 4, because="all outputs come back")
    for index, right in enumerate(plain["outputs"]):
        expect.close(
            mine["outputs"][index], right, because="as fn gives it", n=200, what=f"output {index}"
        )


@task("CheckpointFunction", gate=False, holds=("bit_for_bit", "zeros", "tuple"))
@pytest.mark.parametrize("factor", [1.0, 0.0], ids=["a loss", "a loss times 0"])
def test_two_outputs_of_one_product_bit_for_bit(student, rng, factor):
    """Two outputs that share a product, in float32; a loss that is 0 has gradients of zeros.
    Oracle: torch.utils.checkpoint and plain autograd, bitwise."""
    x, w = (normal(rng, *shape, dtype=torch.float32) for shape in ((24, 16), (16, 8)))
    mine, library, plain = student.probe.checkpoint_bits(x, w, factor)
    for index, name in enumerate(("x", "w")):
        expect.equal(library[index], plain[index], because="torch's checkpoint", what=name)
        expect.true(
            mine[index] is not None,
            because="a gradient of zeros is a gradient: the plain segment has one here",
            observed="None",
        )
        expect.equal(
            mine[index],
            plain[index],
            because="one backward from all outputs adds up in front of the product, as the plain "
            "segment does; a backward for each output adds up behind it",
            what=f"gradient of {name}",
        )


@task("CheckpointFunction", gate=False, holds=("tuple", "any_function", "same_mask"))
def test_a_checkpoint_inside_a_checkpoint(student, rng):
    """A function that gives a tuple of one, checkpointed inside another; a parameter of both, which
    has a gradient already.   Oracle: plain autograd of the same functions, float64."""
    mine, plain = student.probe.checkpoint_one_output(normal(rng, 4, 3), 5)
    for name, got, right in zip(("x", "the parameter"), mine, plain, strict=True):
        expect.close(got, right, because=RERUN, n=400, what=f"gradient of {name}")


@task("CheckpointFunction", gate=False, holds=("without",))
def test_without_preserve_rng(student, rng):
    """preserve_rng=False: the generator is used as it stands, which is right without dropout.
    Oracle: torch.utils.checkpoint(preserve_rng_state=False), bitwise."""
    weights = _stack(rng)
    x, weight = normal(rng, 5, 4), normal(rng, 5, 4)
    got = student.probe.checkpointed(weights, x, weight, 0.0, 13, preserve=False)
    _same_bits(got["mine"]["grads"], got["library"]["grads"], "gradient")
    with_dropout = student.probe.checkpointed(weights, x, weight, 0.5, 13, preserve=False)
    expect.equal(
        with_dropout["mine"]["after"],
        with_dropout["library"]["after"],
        because="nothing saves the generator, and nothing resets it",
        what="random numbers before and after the backward",
    )


@task("CheckpointFunction", extra=("gpu",))
@pytest.mark.gpu
def test_a_gpus_allocator_sees_inputs_only(student):
    """Eight segments, each four times as wide inside.
    Oracle: torch.cuda.memory_allocated; plain autograd on the same GPU."""
    rows = 4096
    (plain, right), (kept, got) = student.probe.checkpoint_bytes_on_gpu(rows)
    ends = 8 * rows * 256 * 4
    expect.at_least(
        plain, 8 * rows * 1024 * 4, because="plain autograd keeps the insides", unit="bytes"
    )
    expect.at_most(
        kept, ends + (64 << 10), because="a segment's input each", what="kept", unit="bytes"
    )
    expect.close(got, right, because=RERUN, n=4096, dtype="float32", what="gradient of x")


@task("save_state", holds=("keys", "sampler_keys"))
def test_what_a_file_holds_of_a_single_layer(student):
    """A linear layer of two weights and a bias, before its first step.   Oracle: the contract."""
    got = student.probe.saved_layer()
    want = ["model", "opt", "rng", "sampler", "scaler"]
    expect.equal(got["keys"], want, because="another tool can read the file", what="keys")
    expect.equal(got["model"], ["bias", "weight"], because="all parameters", what="under model")
    expect.equal(got["sampler"], {"epoch": 2, "cursor": 5}, because="where the sampler stands")
