"""`memory_optimization.md`: read on this side, and held against the toy pipeline, measured.

No list of right words: oracles_knobs.py runs the pipeline with and without each knob and meters
it. A learner's functions have no part in it.
"""

from __future__ import annotations

from grader.suite import task
from grader.suite.markdown_answers import judged, judged_text

from . import knob_file


def _judge(student, because, rule=None):
    """The first fault that a rule finds, as a failure."""
    text = student.read(knob_file.FILE)
    rows = judged_text(because, knob_file.FILE, knob_file.read, text)
    if rule:
        from . import oracles_knobs

        judged(because, rule, rows, oracles_knobs.facts())


@task("knob_table", holds=("one_table", "names"))
def test_the_table_has_a_row_for_each_knob(student):
    """One table with its columns, and twelve rows.   Oracle: the lists of the file's own text."""
    _judge(student, "one table, one row for each knob")


@task("knob_table", holds=("does", "tensor", "each_kind", "of", "each_part", "many"))
def test_what_each_knob_does_to_which_tensor(student):
    """Moved, shrunk, cut or computed again: which tensor, of which part.
    Oracle: bytes of weights, scores and activations of each part, with the knob and without."""
    because = "a knob is known when one can say which tensor it moves, shrinks, tiles or recomputes"
    _judge(student, because, knob_file.judge_what)


@task("knob_table", holds=("gains",))
def test_what_one_image_gains(student):
    """Whether the peak of any part falls at batch 1.
    Oracle: weights in fast memory and live activations of each part."""
    because = "a knob that cuts along the batch has nothing to cut at batch 1"
    _judge(student, because, knob_file.judge_gains)


@task("knob_table", holds=("copies",))
def test_how_often_the_weights_cross_the_link(student):
    """Copies of the denoiser's weights in a run of four steps.   Oracle: bytes that hooks moved."""
    because = "what leaves after every call has to come back for the next one"
    _judge(student, because, knob_file.judge_copies)


@task("knob_table", holds=("image", "gradients"))
def test_whether_the_image_is_the_same(student):
    """Moving and cutting change nothing but rounding, fewer bits and tiles do.
    Oracle: the images (for training, the gradients) with the knob and without."""
    because = "fewer bits and statistics of a tile change the image, a copy does not"
    _judge(student, because, knob_file.judge_image)


@task("knob_table", holds=("costs", "nothing"))
def test_what_each_knob_costs(student):
    """Link, compute, quality or launches: nothing is free but a better kernel.
    Oracle: bytes moved, FLOPs and operations counted, images compared."""
    because = "every knob taxes one resource, and an offload always the link"
    _judge(student, because, knob_file.judge_costs)
