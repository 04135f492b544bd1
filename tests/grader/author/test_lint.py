"""`infralens lint` on a small lab: clean as it should be, and a sentence for every fault."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.author import lint, lint_runs
from grader.author.clauses import contract, unquoted
from grader.author.lint_report import ALL_SEEDS, LintReport, Thoroughness, line
from grader.author.lint_sources import static_faults
from grader.lab.manifest import load_lab
from grader.suite.model import Case
from grader.suite.replays import Replays
from grader.suite.run import Outcome
from grader.suite.splice import Misconception

from ..conftest import make_kit

PLAN = Thoroughness(everything=False)
LAB = "lab90"
WRONG = f"tests/{LAB}/misconceptions/running_mean.py"
SUITE = f"tests/{LAB}/test_running_mean.py"


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A kit of one small lab whose page is written."""
    make_kit(tmp_path)
    page = tmp_path / "exercises" / LAB / "README.md"
    text = page.read_text().replace("TODO(author): write this section.", "Text on `running_mean`.")
    page.write_text(text)
    return tmp_path


def faults(kit: Path) -> list[str]:
    return lint.check(kit, LAB, PLAN).faults


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_whole_lab_is_clean(kit: Path) -> None:
    report = lint.check(kit, LAB, PLAN)
    assert report.faults == []
    assert (report.tasks, report.tests, report.misconceptions, report.variants) == (1, 2, 1, 2)
    assert report.fakes >= 9
    assert report.runs == 3


STEP = """
from grader.suite import misconception

@misconception(gate=False)
def of_nothing_is_a_mean(values):
    \"\"\"Of no values there is no mean: a list without entries, not one zero.\"\"\"
    return [sum(values[: i + 1]) / (i + 1) for i in range(len(values))] or [0.0]
"""


def test_a_misconception_that_only_a_step_refuses(kit: Path) -> None:
    with (kit / WRONG).open("a") as file:
        file.write(STEP)
    report = lint.check(kit, LAB, PLAN)
    assert report.faults == []
    assert report.misconceptions == 2
    assert any(row["name"] == "of_nothing_is_a_mean" for row in report.messages)


def _step_that_a_gate_refuses(kit: Path) -> None:
    edit(kit / WRONG, '"total / max(index, 1)"),', '"total / max(index, 1)"), gate=False,')


def _step_that_nothing_refuses(kit: Path) -> None:
    with (kit / WRONG).open("a") as file:
        file.write(STEP.replace(" or [0.0]", ""))


def _gate_that_only_a_step_refuses(kit: Path) -> None:
    with (kit / WRONG).open("a") as file:
        file.write(STEP.replace("gate=False", ""))


def _page_without_a_section(kit: Path) -> None:
    edit(kit / f"exercises/{LAB}/README.md", "## Mental model\n", "")


def _few_points(kit: Path) -> None:
    edit(kit / f"exercises/{LAB}/README.md", "- [ ] With the fifth", "With the fifth")


def _no_question(kit: Path) -> None:
    edit(kit / f"exercises/{LAB}/README.md", '### "Four', '"Four')


def _no_page(kit: Path) -> None:
    (kit / f"exercises/{LAB}/README.md").unlink()


def _stray_file(kit: Path) -> None:
    (kit / f"exercises/{LAB}/notes.txt").write_text("mine")


def _second_copy(kit: Path) -> None:
    edit(kit / f"exercises/{LAB}/lab.toml", "given = []", 'given = [{ file = "limits.py" }]')
    for track in ("exercises", "solutions"):
        (kit / track / LAB / "limits.py").write_text("FIRST = 1\n")


def _no_given_file(kit: Path) -> None:
    edit(kit / f"exercises/{LAB}/lab.toml", "given = []", 'given = [{ file = "limits.py" }]')


def _edited_skeleton(kit: Path) -> None:
    edit(kit / f"exercises/{LAB}/running_mean.py", "Means of prefixes", "Means of prefixes!")


def _bare_assert(kit: Path) -> None:
    suite = kit / f"tests/{LAB}/test_running_mean.py"
    edit(suite, "    means = student", "    assert n\n    means = student")


def _allclose(kit: Path) -> None:
    suite = kit / f"tests/{LAB}/test_running_mean.py"
    edit(suite, "import pytest", "import math as np\nimport pytest\n\nCHECK = lambda: np.allclose")


def _no_oracle(kit: Path) -> None:
    suite = kit / f"tests/{LAB}/test_running_mean.py"
    suite.write_text(suite.read_text().replace("Oracle:", "Compared with"))


def _no_gate(kit: Path) -> None:
    suite = kit / f"tests/{LAB}/test_running_mean.py"
    edit(suite, '@task("running_mean", holds', '@task("running_mean", gate=False, holds')


def _gate_that_accepts_anything(kit: Path) -> None:
    suite = kit / f"tests/{LAB}/test_running_mean.py"
    edit(suite, "    expect.close(means, want,", "    expect.close(want, want,")


def _wrong_reference(kit: Path) -> None:
    reference = kit / f"solutions/{LAB}/running_mean.py"
    edit(reference, "total / (index + 1)", "total / (index + 2)")


def _wrong_variant(kit: Path) -> None:
    variant = kit / f"tests/{LAB}/variants/update_rule/running_mean.py"
    edit(variant, "start=1", "start=2")


def _one_variant(kit: Path) -> None:
    folder = kit / f"tests/{LAB}/variants/update_rule"
    (folder / "running_mean.py").unlink()
    folder.rmdir()


def _no_misconception(kit: Path) -> None:
    (kit / WRONG).unlink()


def _right_misconception(kit: Path) -> None:
    edit(kit / WRONG, "max(index, 1)", "(1 + index)")


def _add_twins(kit: Path, *sentences: str) -> None:
    """Misconceptions that are what the first is, each under a sentence of its own."""
    row = (kit / WRONG).read_text().partition("divides_by_the_index")[2]
    with (kit / WRONG).open("a") as file:
        for index, sentence in enumerate(sentences):
            file.write(f"\ntwin{index}{row.replace('After value i', sentence)}")


def _twin_misconceptions(kit: Path) -> None:
    _add_twins(kit, "Quite another", "A third one")


def _name_twice(kit: Path) -> None:
    with (kit / WRONG).open("a") as file:
        file.write("\n\n" + (kit / WRONG).read_text().partition("\n\n")[2])


def _misconceptions_of_no_task(kit: Path) -> None:
    (kit / WRONG).rename((kit / WRONG).with_name("running_median.py"))


def _row_without_a_place(kit: Path) -> None:
    edit(kit / WRONG, '"total / (index + 1)"', '"total / index"')


def _block_of_no_task(kit: Path) -> None:
    edit(kit / f"solutions/{LAB}/running_mean.py", "SOLUTION running_mean", "SOLUTION other")


def _thin_docstring(kit: Path) -> None:
    path = kit / f"solutions/{LAB}/running_mean.py"
    path.write_text(
        re.sub(r'"""Mean of the first.*?"""', '"""Mean."""', path.read_text(), flags=re.S)
    )


def _probes_with_an_oracle(kit: Path) -> None:
    (kit / f"tests/{LAB}/probes.py").write_text("from .oracles import WANT\n")


def _models_with_the_kit(kit: Path) -> None:
    text = "import torch.nn\nfrom grader.suite import expect\n"
    (kit / f"tests/{LAB}/models.py").write_text(text)


def _append(kit: Path, name: str, text: str) -> None:
    with (kit / name).open("a") as file:
        file.write(f"\n\n{text}\n")


def _no_reference(kit: Path) -> None:
    (kit / f"solutions/{LAB}/running_mean.py").unlink()


def _reference_that_is_not_python(kit: Path) -> None:
    _append(kit, f"solutions/{LAB}/running_mean.py", "def (")


def _suite_that_is_not_python(kit: Path) -> None:
    _append(kit, SUITE, "def (")


def _suite_that_exits(kit: Path) -> None:
    _append(kit, SUITE, "raise SystemExit(0)")


def _suite_that_does_not_import(kit: Path) -> None:
    _append(kit, SUITE, "from grader.suite import nothing")


def _test_of_no_task(kit: Path) -> None:
    _append(kit, SUITE, "@task()\ndef test_nothing(student):\n    pass")


def _extra_as_a_text(kit: Path) -> None:
    _append(kit, SUITE, '@task("running_mean", extra="gpu")\ndef test_it(student):\n    pass')


def _misconceptions_that_are_not_python(kit: Path) -> None:
    _append(kit, WRONG, "def (")


def _misconceptions_that_exit(kit: Path) -> None:
    _append(kit, WRONG, "raise SystemExit(0)")


def _misconception_without_a_sentence(kit: Path) -> None:
    _append(kit, WRONG, 'other = lines("", ("total += value", "total -= value"))')


def _row_with_its_sentence_forgotten(kit: Path) -> None:
    _append(kit, WRONG, 'other = lines(("total += value", "total -= value"))')


def _mark_without_parentheses(kit: Path) -> None:
    head = "from grader.suite import misconception\n\n\n@misconception\n"
    _append(kit, WRONG, head + "def other(values):\n    return values")


def _misconception_in_no_file(kit: Path) -> None:
    head = 'from grader.suite import misconception\n\n\n@misconception(file="a.cu")\n'
    _append(kit, WRONG, head + "def other(text):\n    return text")


def _misconception_that_is_not_python(kit: Path) -> None:
    _append(kit, WRONG, 'other = lines("""A sum.""", ("total += value", "total += ("))')


CLAUSES = f"tests/{LAB}/clauses.toml"


def _clause_without_a_test(kit: Path) -> None:
    _append(kit, CLAUSES, 'length = "for every i"')


def _clause_that_only_an_extra_holds(kit: Path) -> None:
    mark = '@task("running_mean", gate=False, holds=("empty",))'
    edit(kit / SUITE, mark, mark.replace("gate=False", 'extra=("transformers",)'))


def _clause_of_nowhere(kit: Path) -> None:
    edit(kit / CLAUSES, "`[]` gives `[]`", "`[]` gives None")


def _sentence_without_a_clause(kit: Path) -> None:
    for track in ("solutions", "exercises"):
        edit(kit / f"{track}/{LAB}/running_mean.py", "Source:", "Never negative. Source:")


def _explanation_of_nothing(kit: Path) -> None:
    edit(kit / CLAUSES, "the definition of the mean", "a book")


def _holds_what_is_no_clause(kit: Path) -> None:
    edit(kit / SUITE, 'holds=("each_prefix",)', 'holds=("each_prefix", "order")')


def _holds_as_a_text(kit: Path) -> None:
    edit(kit / SUITE, 'holds=("each_prefix",)', 'holds="each_prefix"')


def _clauses_of_no_task(kit: Path) -> None:
    edit(kit / CLAUSES, "[running_mean]", "[running_median]")


def _clause_that_is_a_number(kit: Path) -> None:
    _append(kit, CLAUSES, "length = 3")


def _clauses_that_are_not_toml(kit: Path) -> None:
    _append(kit, CLAUSES, "length =")


def _no_clauses(kit: Path) -> None:
    (kit / CLAUSES).unlink()


def _figures_without_attacks(kit: Path) -> None:
    (kit / "tests" / "grader" / "attacks").mkdir(parents=True)
    (kit / "tests" / LAB / "probes.py").write_text("from grader import meters\n")


def _too_few_attacks(kit: Path) -> None:
    _figures_without_attacks(kit)
    attacks = kit / "tests" / "grader" / "attacks" / f"{LAB}.py"
    attacks.write_text("ATTACKS = [one(), two(), three()]\n")


FAULTS: dict[Callable[[Path], None], str] = {
    _page_without_a_section: "lacks the sections ['Mental model']",
    _no_page: "README.md is missing",
    _few_points: 'the mean now?" has 2 key points (`- [ ] ...`); give at least three.',
    _no_question: 'has no question; write each as `### "..."`.',
    _stray_file: "stray file exercises/lab90/notes.txt",
    _second_copy: "solutions/lab90/limits.py is a second copy of a given file",
    _no_given_file: "exercises/lab90/limits.py is missing, but lab90's manifest lists it",
    _edited_skeleton: "running_mean.py is not what its reference demands: infralens sync",
    _bare_assert: "a bare assert explains nothing",
    _allclose: "allclose has no error model",
    _no_oracle: "no scored test names its oracle",
    _no_gate: "has no scored gate",
    _gate_that_accepts_anything: "passes every gate",
    _wrong_reference: "reference, seed 0, 1 threads: lab90/running_mean/test_every_prefix",
    _wrong_variant: "variant update_rule",
    _one_variant: "holds 1 variants; it needs at least two",
    _no_misconception: "has no misconception",
    _step_that_a_gate_refuses: "divides_by_the_index fails the gate test_every_prefix_has_its_mean",
    _step_that_nothing_refuses: "of_nothing_is_a_mean passes every step of `running_mean`",
    _gate_that_only_a_step_refuses: "of_nothing_is_a_mean passes every gate of `running_mean`",
    _right_misconception: "divides_by_the_index passes every gate",
    _twin_misconceptions: "twin1 dies, but not with its sentence: "
    "['test_every_prefix_has_its_mean[2]: failed'",
    _name_twice: "running_mean.py:9: divides_by_the_index is already the name of what stands at",
    _misconceptions_of_no_task: "misconceptions/running_median.py: lab90 has no task",
    _row_without_a_place: "does not fit into running_mean.py: 0 places in the reference read "
    "'total / index'.",
    _block_of_no_task: "no task `other`",
    _thin_docstring: "`running_mean` has no docstring that is a contract",
    _probes_with_an_oracle: "probes.py:1: imports .oracles.WANT; beside the learner's code there",
    _models_with_the_kit: "models.py:2: imports grader.suite.expect; beside the learner's code ",
    _no_reference: "running_mean.py is missing, but lab90's manifest lists it",
    _reference_that_is_not_python: "solutions/lab90/running_mean.py is not Python: invalid syntax",
    _suite_that_is_not_python: "test_running_mean.py is not Python: invalid syntax",
    _suite_that_exits: "test_running_mean.py does not import: SystemExit: 0 (at ",
    _suite_that_does_not_import: "cannot import name 'nothing'",
    _test_of_no_task: "@task() names no task",
    _extra_as_a_text: "write extra=('gpu',) (at test_running_mean.py:",
    _misconceptions_that_are_not_python: "running_mean.py is not Python: invalid syntax",
    _misconceptions_that_exit: "misconceptions/running_mean.py does not import: SystemExit: 0",
    _misconception_without_a_sentence: "other: its sentence has fewer than five words",
    _row_with_its_sentence_forgotten: "the sentence that a learner reads comes first",
    _mark_without_parentheses: "write @misconception() (at running_mean.py:",
    _misconception_in_no_file: "other changes `a.cu`, which is not in `edit`",
    _clause_without_a_test: "no scored test holds the clause 'length' (\"for every i\")",
    _clause_that_only_an_extra_holds: "no scored test holds the clause 'empty'",
    _clause_of_nowhere: "the clause 'empty' quotes \"`[]` gives None\", which stands neither in",
    _sentence_without_a_clause: 'no clause quotes "Never negative." of its contract',
    _explanation_of_nothing: '`_explains` quotes "Source: a book.", which the contract does not',
    _holds_what_is_no_clause: "holds 'order', which is not a clause of `running_mean`",
    _holds_as_a_text: "write holds=('each_prefix',) (at test_running_mean.py:",
    _clauses_of_no_task: "clauses.toml: lab90 has no task",
    _clause_that_is_a_number: 'under [running_mean] stand lines `id = "words of the contract"`',
    _clauses_that_are_not_toml: "clauses.toml: Invalid value (at line",
    _figures_without_attacks: "tests/lab90/probes.py opens a meter beside student code, and "
    "tests/grader/attacks/lab90.py has 0 attacks",
    _too_few_attacks: "tests/grader/attacks/lab90.py has 3 attacks in ATTACKS on what it measures",
    _no_clauses: "holds clauses, but tests/lab90/clauses.toml is missing",
    _misconception_that_is_not_python: "other makes of running_mean.py what is not Python",
}


@pytest.mark.parametrize("spoil", FAULTS, ids=lambda spoil: spoil.__name__.strip("_"))
def test_every_fault_has_its_sentence(kit: Path, spoil: Callable[[Path], None]) -> None:
    spoil(kit)
    found = faults(kit)
    assert any(FAULTS[spoil] in fault for fault in found), found


def test_two_that_no_test_tells_apart_are_noted(kit: Path) -> None:
    _add_twins(kit, "Quite another")
    report = lint.check(kit, LAB, PLAN)
    assert report.faults == []
    one, other = "divides_by_the_index", "twin0"
    end = "does, and a learner reads both sentences."
    assert report.notes == [
        f"`running_mean`: {one} fails as {other} {end}",
        f"`running_mean`: {other} fails as {one} {end}",
    ]
    assert len(report.messages) == 2


def test_a_short_check_runs_some_of_the_variants(kit: Path) -> None:
    folder = kit / f"tests/{LAB}/variants"
    for number in (0, 1, 2):
        report = lint.check(kit, LAB, Thoroughness(everything=False, variants=number))
        assert (report.faults, report.variants, report.runs) == ([], number, 1 + number)
    (folder / "third").mkdir()
    (folder / "third/running_mean.py").write_text(
        (folder / "update_rule/running_mean.py").read_text()
    )
    assert lint.check(kit, LAB, Thoroughness(everything=False)).variants == 3


def test_wrong_answers_to_every_third_task_by_turns(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for turn, misconceptions in ((0, 1), (1, 0), (2, 0), (3, 1)):
        monkeypatch.setattr(lint, "_turn", lambda lab, turn=turn: turn)
        report = lint.check(kit, LAB, Thoroughness(everything=False, every=3))
        assert (report.faults, report.misconceptions) == ([], misconceptions)
        assert (report.fakes > 0) == (misconceptions > 0)


def test_two_variants_under_one_sentence_are_in_order(kit: Path) -> None:
    _add_twins(kit, "After value i")
    report = lint.check(kit, LAB, PLAN)
    assert (report.faults, report.notes, len(report.messages)) == ([], [], 2)


def test_a_misconception_that_also_forgets_a_check_is_noted(kit: Path) -> None:
    """Dividing by what is left of the values fails on one value, where only a division raises."""
    case = """

@task("running_mean", gate=False)
def test_one_value_is_its_mean(student):
    \"\"\"One value is its mean.   Oracle: the definition.\"\"\"
    expect.equal(student.running_mean([3.0]), [3.0], "one value")
"""
    with (kit / SUITE).open("a") as file:
        file.write(case)
    edit(kit / WRONG, "total / max(index, 1)", "total / (index or len(values) - 1)")
    report = lint.check(kit, LAB, PLAN)
    assert report.faults == []
    assert report.notes == [
        "`running_mean`: divides_by_the_index may be wider than its sentence: "
        "it also raises, or does not refuse, in test_one_value_is_its_mean."
    ]


@pytest.mark.parametrize("everything", [False, True])
def test_a_misconception_is_run_on_a_case_once(
    kit: Path, monkeypatch: pytest.MonkeyPatch, everything: bool
) -> None:
    _add_twins(kit, "Quite another")
    runs: list[tuple[str, str]] = []
    real = Replays.run

    def counted(self: Replays, wrong: Misconception, case: Case, seed: bytes) -> Outcome:
        runs.append((wrong.name, case.id))
        return real(self, wrong, case, seed)

    monkeypatch.setattr(Replays, "run", counted)
    lint.check(kit, LAB, Thoroughness(everything))
    assert len(runs) == len(set(runs)) == 8


def test_a_quick_check_leaves_heavy_cases_once_the_sentence_is_certain(
    kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []
    real = Replays.run

    def counted(self: Replays, wrong: Misconception, case: Case, seed: bytes) -> Outcome:
        runs.append(case.id)
        return real(self, wrong, case, seed)

    monkeypatch.setattr(Replays, "run", counted)
    monkeypatch.setattr(lint_runs, "LIGHT_SECONDS", -1.0)
    report = lint.check(kit, LAB, PLAN)
    assert (report.faults, len(report.messages)) == ([], 1)
    assert 1 <= len(runs) < 4


def test_a_probe_may_import_what_the_sandbox_shows(kit: Path) -> None:
    probes = "from grader import kernels, meters, ranks\n\nimport models\nimport torch\n"
    (kit / f"tests/{LAB}/probes.py").write_text(probes)
    (kit / f"tests/{LAB}/models.py").write_text("import numpy\n")
    assert list(static_faults(load_lab(kit, LAB))) == []


def test_every_fake_reaches_the_gates(kit: Path) -> None:
    """Where gates accept anything, each fake is found: none is refused for another reason, such as
    being made by the kit."""
    _gate_that_accepts_anything(kit)
    report = lint.check(kit, LAB, PLAN)
    passed = re.compile(r"fake: `running_mean` .* passes every gate of `running_mean`\.")
    assert sum(bool(passed.match(fault)) for fault in report.faults) == report.fakes >= 9


def _contract(tmp_path: Path, name: str, text: str) -> list[str]:
    """The sentences of the contract of a task `scale` that lies in such a file."""
    make_kit(tmp_path)
    manifest = tmp_path / f"exercises/{LAB}/lab.toml"
    manifest.write_text(manifest.read_text().replace("running_mean.py", name))
    edit(manifest, 'id = "running_mean"', 'id = "scale"')
    (tmp_path / f"solutions/{LAB}/{name}").write_text(text)
    lab = load_lab(tmp_path, LAB)
    return [row for part in contract(lab, lab.task("scale")) for row in unquoted(part, [])]


CONTRACTS = {
    "scale.py": (
        'class scale:\n    """What scales. Et al. 2022 did.\n\n    - `a`: one;\n      two. Three:\n'
        '    b: more words.\n    """\n\n    def run(self):\n        """Runs it, once."""\n'
        "        # BEGIN SOLUTION scale\n        # END SOLUTION\n\n    def _own(self):\n"
        '        """Not a promise at all."""\n',
        ["What scales.", "Et al. 2022 did.", "- `a`: one; two.", "b: more words.",
         "Runs it, once."],
    ),
    "scale.cu": (
        "// About the file.\n\n// Doubles x. Every element\n// once.\n"
        'extern "C" __global__ void scale(float *x) {\n    // BEGIN SOLUTION scale\n'
        "    // END SOLUTION\n}\n",
        ["Doubles x.", "Every element once."],
    ),
    "scale.yaml": (
        "# Write one key a line. No more.\n# BEGIN SOLUTION scale\na: 1  # mine\n"
        "# END SOLUTION\n",
        ["Write one key a line.", "No more."],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_contract_is_what_stands_outside_of_the_answer(tmp_path: Path, name: str) -> None:
    text, sentences = CONTRACTS[name]
    assert _contract(tmp_path, name, text) == sentences


def test_a_lab_whose_clauses_nobody_has_listed_says_so(kit: Path) -> None:
    (kit / CLAUSES).unlink()
    text = re.sub(r", holds=\(.*?\)", "", (kit / SUITE).read_text())
    (kit / SUITE).write_text(text)
    report = lint.check(kit, LAB, PLAN)
    assert (report.faults, report.clauses) == ([], None)
    assert "clauses not listed" in line(report)


def test_a_skeleton_that_gives_the_answer_away_is_found(kit: Path) -> None:
    reference = kit / f"solutions/{LAB}/running_mean.py"
    text = reference.read_text()
    text = text.replace("    # BEGIN SOLUTION running_mean\n", "").replace(
        "    # END SOLUTION\n", ""
    )
    text += "\n\ndef _unused():\n    # BEGIN SOLUTION running_mean\n    pass\n    # END SOLUTION\n"
    reference.write_text(text)
    (kit / f"exercises/{LAB}/running_mean.py").write_text(text)
    assert any(fault.startswith("skeleton: ") for fault in faults(kit))


def test_a_suite_that_refuses_the_reference_on_some_seeds_is_found(kit: Path) -> None:
    suite = kit / f"tests/{LAB}/test_running_mean.py"
    unlucky = '    expect.true(min(values) > 2.5, "this depends on the draw")\n    want = ['
    edit(suite, "    want = [", unlucky)
    found = lint.check(kit, LAB, Thoroughness(everything=True)).faults
    seeds = {int(match[1]) for fault in found if (match := re.search(r"seed (\d+),", fault))}
    assert 0 < len(seeds) < ALL_SEEDS


def test_a_thorough_check_runs_every_seed_and_both_numbers_of_threads() -> None:
    plan = Thoroughness(everything=True)
    assert len(set(plan.runs())) == 2 * ALL_SEEDS
    for number in (1, 2, 3):
        runs = plan.runs(number)
        assert sorted(seed for _, seed in runs) == list(range(ALL_SEEDS))
        assert {threads for threads, _ in runs} == {1, 2}
        assert len({*runs, *plan.runs(number + 1)}) == 2 * ALL_SEEDS


def _lint(kit: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grader.cli", "lint", *options]
    return subprocess.run(command, cwd=kit, capture_output=True, text=True, check=False)


def test_an_untouched_lab_comes_from_the_cache_and_a_touched_one_does_not(kit: Path) -> None:
    first = _lint(kit)
    assert first.returncode == 0, first.stdout
    assert "from cache" not in first.stdout
    assert "from cache" in _lint(kit).stdout
    assert "from cache" not in _lint(kit, "--no-cache").stdout
    _wrong_variant(kit)
    touched = _lint(kit)
    assert touched.returncode == 1
    assert "1 labs, 1 with faults" in touched.stdout
    assert _lint(kit).returncode == 1, "a fault is never served from the cache as clean"


def _copied(kit: Path, lab_id: str) -> None:
    """The lab again, under another id."""
    for track in ("exercises", "solutions", "tests"):
        shutil.copytree(kit / track / LAB, kit / track / lab_id)
    for file in kit.rglob(f"{lab_id}/**/*"):
        if file.is_file() and file.suffix != ".pyc":
            file.write_text(file.read_text().replace(LAB, lab_id))


def test_labs_checked_in_shares_have_the_same_reports(kit: Path) -> None:
    """A lab with faults in all of its shares, one whose reference fails, and a clean one. Which
    case shows a mistake first depends on how long each took the reference, so of a message only
    the sentence is compared."""
    for number, lab_id in enumerate(("lab91", "lab92")):
        _copied(kit, lab_id)
        suite = kit / f"tests/{lab_id}"
        if number:
            edit(kit / f"solutions/{lab_id}/running_mean.py", "(index + 1)", "(index + 2)")
            continue
        edit(suite / "variants/update_rule/running_mean.py", "start=1", "start=2")
        edit(
            suite / "test_running_mean.py", "expect.close(means, want,", "expect.close(want, want,"
        )
        (kit / f"exercises/{lab_id}/notes.txt").write_text("mine")
    labs = ["lab91", "lab92", LAB]
    alone = [lint.check(kit, lab_id, PLAN) for lab_id in labs]
    shared = {report.lab: report for report in lint._shared_out(kit, labs, PLAN, jobs=2)}
    assert set(shared) == set(labs)
    for want in alone:
        assert _without_times(shared[want.lab]) == _without_times(want)
    assert [bool(report.faults) for report in alone] == [True, True, False]
    for part in ("stray file", "passes every gate", "fake: "):
        assert any(part in fault for fault in shared["lab91"].faults), part
    assert shared["lab92"].variants == shared["lab92"].misconceptions == 0


def _without_times(report: LintReport) -> LintReport:
    told = [{**row, "message": row["message"].splitlines()[-1]} for row in report.messages]
    return dataclasses.replace(report, seconds=0.0, suite_seconds=0.0, messages=told)


def test_what_was_done_before_an_interruption_is_not_done_again(
    kit: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second lab is stopped by Ctrl-C: the first one was said and is kept."""
    _copied(kit, "lab91")
    whole = lint.check

    def stopped(root: Path, lab_id: str, plan: Thoroughness) -> LintReport:
        if lab_id == "lab91":
            raise KeyboardInterrupt
        return whole(root, lab_id, plan)

    monkeypatch.setattr(lint, "check", stopped)
    with pytest.raises(KeyboardInterrupt):
        lint.run(kit, [LAB, "lab91"], PLAN, jobs=1)
    assert f"{LAB}: 1 tasks" in capsys.readouterr().out
    monkeypatch.setattr(lint, "check", whole)
    lint.run(kit, [LAB, "lab91"], PLAN, jobs=1)
    first, second, pages, _ = capsys.readouterr().out.splitlines()
    assert pages.startswith("The figures on 0 of 2 labs' pages are checked; nobody has claimed")
    assert first.startswith(LAB)
    assert "from cache" in first
    assert second.startswith("lab91")
    assert "from cache" not in second


def test_the_thorough_check_writes_its_table(kit: Path) -> None:
    """The row of a lab that was checked on another day stays; one of another form goes."""
    path = kit / "benchmarks/results/lint-all.md"
    path.parent.mkdir(parents=True)
    kept = "| lab80 | 3 | 4 | 5 | 6 | 7 | 2 | 120 | 1.00 | 0 | 0 | 2026-01-31 |"
    path.write_text(f"| lab | tasks |\n{kept}\n| lab81 | 3 |\n| {LAB} |{' 9 |' * 11}\n")
    done = _lint(kit, "--all")
    assert done.returncode == 0, done.stdout
    table = path.read_text()
    assert kept in table
    assert "lab81" not in table
    assert table.count(f"| {LAB} |") == 1
    runs = 2 * 20 + 2 * 2 * 20
    assert f"| {LAB} | 1 | 2 | 2 | 1 |" in table
    assert f"| {runs} |" in table


def test_what_learners_read_is_written_down(kit: Path) -> None:
    page = kit / "messages.md"
    _lint(kit, "--messages", str(page))
    (row,) = [line for line in page.read_text().splitlines() if line.startswith("| running_mean |")]
    (wrong,) = lint.check(kit, LAB, PLAN).messages
    assert wrong["name"] in row
    called, *_, sentence = wrong["message"].splitlines()
    assert called.partition("(")[0] in row
    assert sentence in row
    assert "expected" in row


def test_an_unknown_lab_is_a_sentence(kit: Path) -> None:
    done = _lint(kit, "lab77")
    assert done.returncode == 2
    assert "No lab `lab77` here" in done.stderr
    assert "Traceback" not in done.stderr
