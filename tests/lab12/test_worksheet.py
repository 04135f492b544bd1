"""`topology_design_worksheet.md`: read on this side, held against a second planner.

The reference's planner takes no part: memory, time, rules and the best plan are those of
`oracle_planner`, which lists what the reference has formulas for.
"""

from __future__ import annotations

import pytest
from cases_lab12 import CASES

from grader.suite import expect, task
from grader.suite.markdown_answers import judged, judged_text

from . import worksheet_file


def _designs(student):
    text = student.read(worksheet_file.FILE)
    because = "each design is one fenced yaml block"
    blocks = judged_text(because, worksheet_file.FILE, worksheet_file.read, text)
    return judged("a plan is made of these keys and types", worksheet_file.designs, blocks)


@task(
    "worksheet",
    holds=(
        "keys",
        "optional_keys",
        "one_block",
    ),
)
def test_every_design_is_there(student):
    """Three yaml blocks with known keys and values of their types.   Oracle: PyYAML."""
    _designs(student)


@task("worksheet", holds=("no_rule",))
@pytest.mark.parametrize("case", CASES)
def test_a_cluster_could_start_it(student, case):
    """Every size divides what it has to.   Oracle: the rules, one by one, in numbers."""
    because = "Megatron-LM refuses it before the first step"
    judged(because, worksheet_file.starts, _designs(student)[case])


@task("worksheet", holds=("fits",))
@pytest.mark.parametrize("case", CASES)
def test_it_fits(student, case):
    """The fullest GPU holds no more than there is.   Oracle: a list of matrices and activations."""
    design = _designs(student)[case]
    judged("a plan has to be one that starts", worksheet_file.starts, design)
    judged("what does not fit needs no clock", worksheet_file.held, design)


@task("worksheet", holds=("nearly",))
@pytest.mark.parametrize("case", CASES)
def test_it_is_nearly_as_fast_as_the_best(student, case):
    """At most 10 % longer than the fastest plan that fits.
    Oracle: brute force over all plans, by a second planner."""
    design = _designs(student)[case]
    judged("a plan has to be one that starts", worksheet_file.starts, design)
    judged("what does not fit needs no clock", worksheet_file.held, design)
    judged(
        "the largest part beside the best plan's says what to change", worksheet_file.time, design
    )


@task(
    "worksheet",
    holds=(
        "claims",
        "peak",
        "bubble",
        "exposed",
        "exposed_s",
    ),
)
@pytest.mark.parametrize("case", CASES)
def test_the_claims_follow(student, case):
    """Peak memory, bubble and the longest wait are what this plan gives.
    Oracle: computed again by the second planner."""
    design = _designs(student)[case]
    for rule in (worksheet_file.starts, worksheet_file.held, worksheet_file.time):
        judged("a claim is about a plan that starts, fits and is fast", rule, design)
    for name, said, holds, true, because in worksheet_file.claimed(design):
        line = design.block.places[f"claims.{name}"]
        if not holds(said):
            text = f"{worksheet_file.FILE}:{line}: {case} claims {name} {said}; it is {true}"
            raise expect.Failure("property", [text], f"{name} {said}", because)


@task("worksheet", gate=False, holds=("why",))
def test_the_constraint_that_decided_is_named(student):
    """`why` names an axis of the plan, and a number.   Oracle: the page's list of constraints."""
    for design in _designs(student).values():
        because = "an interviewer asks for the constraint, not for the plan"
        judged(because, worksheet_file.explained, design)
