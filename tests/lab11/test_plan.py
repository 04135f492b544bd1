"""`quantization_comparison_plan.md`: read on this side, recomputed, and judged by dominance.

The oracles are closed forms over the model's shapes and the GPU's peaks; no list of right choices.
"""

from __future__ import annotations

from plans_lab11 import PROBLEM

from grader.suite import task
from grader.suite.markdown_answers import judged, judged_text

from . import plan_file


def _plan(student):
    text = student.read(plan_file.FILE)
    because = "both tables, one row for each scheme and for each regime"
    return judged_text(because, plan_file.FILE, plan_file.read, text, PROBLEM)


@task("plan", holds=("two_tables", "a_row_a_scheme", "a_row_a_regime", "columns"))
def test_both_tables_are_there(student):
    """Two tables with their columns, a row for each scheme and each regime.
    Oracle: the lists in plans_lab11.py."""
    _plan(student)


@task("plan", holds=("bytes", "unit", "digits", "near"))
def test_bytes_are_those_of_the_whole_model(student):
    """Linear layers with their scales, the rest in bf16.
    Oracle: codes, scales and shared floats summed over the shapes of Llama-3.1-8B."""
    plan = _plan(student)
    because = "every scale counts, and embedding, head and norms stay in bf16"
    judged(because, plan_file.judge_bytes, plan, PROBLEM)


@task("plan", holds=("bits", "near"))
def test_bits_a_weight_count_the_scales(student):
    """16 is only bf16; 4 is nobody.   Oracle: bits of the linear layers over their weights."""
    plan = _plan(student)
    because = "a group's scale is shared by its weights, and is part of their bits"
    judged(because, plan_file.judge_bits, plan, PROBLEM)


@task("plan", holds=("math", "bound", "ms", "digits", "near"))
def test_times_are_the_longer_of_two(student):
    """Bytes over bandwidth, or FLOPs over the peak of what is multiplied.
    Oracle: the roofline in closed form over all linear layers, and the head."""
    plan = _plan(student)
    because = "a pass takes the longer of two times: to read its weights, and to multiply them"
    judged(because, plan_file.judge_passes, plan, PROBLEM)


@task("plan", holds=("limit", "beaten", "speed_up", "more_than_one"))
def test_no_scheme_of_the_class_beats_the_choice(student):
    """A choice keeps its limit, is not dominated, and claims what the numbers give.
    Oracle: the limits, and every other scheme of its class in bytes and time."""
    plan = _plan(student)
    because = "a choice must be one that nothing of its kind beats, for what bounds the regime"
    judged(because, plan_file.judge_choices, plan, PROBLEM)


@task("plan", gate=False, holds=("why", "sentence"))
def test_each_choice_has_its_reason(student):
    """Why names what bounds the regime, by its word.   Oracle: the bound of the chosen scheme."""
    plan = _plan(student)
    because = "whoever serves it on another GPU has to know what the choice rested on"
    judged(because, plan_file.judge_reasons, plan, PROBLEM)
