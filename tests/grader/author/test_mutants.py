"""`infralens lint --mutants`: each operator makes what it says, a weak suite is found out, and what
a person has judged is held against what happens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grader.author import lint
from grader.author.lint_report import Thoroughness
from grader.author.mutants import equivalents, mutant_runner, mutants_table, python_operators
from grader.author.mutants.candidates import Mutant, block_spans, candidates, sample
from grader.author.mutants.edits import Edit
from grader.author.mutants.mutant_runner import Fate, MutantRunner
from grader.author.mutants.task_survey import SurveyPlan, judge, survey
from grader.errors import LabError
from grader.lab.manifest import load_lab
from grader.suite.model import Suite, load_suite
from grader.suite.run import generator, seed_of

from ..conftest import MiniKit

TASK = "running_mean"
SUITE = "test_running_mean.py"


def suite_of(kit: MiniKit) -> Suite:
    return load_suite(load_lab(kit.root, "lab90"))


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


# -- the operators --------------------------------------------------------------------------------

OPERATORS = [
    ("constant", "x = 4", ["x = 0", "x = 5", "x = 3", "x = 8", "x = 2"]),
    ("constant", "x = 0.5", ["x = 0.0", "x = 1.5", "x = 1.0", "x = 0.25"]),
    ("boolean", "f(flag=True)", ["f(flag=False)"]),
    ("boolean", "zip(a, b, strict=True)", []),
    ("key", "x = row['a']", ["x = row['a_']"]),
    ("key", "raise ValueError(row['a'])", []),
    ("comparison", "a < b", ["a <= b", "a >= b"]),
    ("comparison", "a == b", ["a != b", "a <= b", "a >= b"]),
    ("comparison", "a == 'none'", ["a != 'none'"]),
    ("comparison", "0 < a <= b", ["0 <= a <= b", "0 >= a <= b", "0 < a < b", "0 < a > b"]),
    ("boundary", "a <= b", ["a <= b + 1"]),
    ("boundary", "a < 3", []),
    ("none-test", "if x is None: y()", ["if not x: y()"]),
    ("none-test", "z = f(x) is not None", ["z = f(x)"]),
    ("and-or", "a and b", ["a or b"]),
    ("condition", "a or b", ["b", "a"]),
    ("condition", "z = not a", ["z = a"]),
    ("nan", "if not a > 0: b()", ["if a <= 0: b()"]),
    ("nan", "if not a == 0: b()", []),
    ("key-part", "z.sort(key=lambda a: (a.x, a.y))", ["lambda a: (a.y,))", "lambda a: (a.x,))"]),
    ("key-part", "z = x[:, 1]", []),
    ("sign", "z = -a", ["z = a"]),
    ("arithmetic", "z = a + b", ["z = a - b"]),
    ("operand", "z = (a - b) * c", ["z = a - b", "z = c", "z = (a) * c", "z = (b) * c"]),
    ("swap-operands", "z = a - b", ["z = b - a"]),
    ("swap-operands", "z = a + b", []),
    ("rounding", "z = a // b", ["z = -(-a // b)", "z = a / b", "z = int(a / b)"]),
    ("rounding", "z = a / b", ["z = a // b"]),
    ("rounding", "z = math.ceil(a)", ["z = math.floor(a)"]),
    ("rounding", "z = int(a)", ["z = round(a)"]),
    ("rounding", "z = ceil_div(a, b)", ["z = a // b", "z = a // b + 1"]),
    ("slice", "z = x[1:n]", ["z = x[:n]", "z = x[1 + 1:n]", "z = x[1:]", "z = x[1:n - 1]"]),
    ("branch", "if a: b()", ["if True: b()", "if False: b()"]),
    ("branch", "z = a if c else b", ["z = a", "z = b"]),
    ("branch", "while a: b()", ["while False: b()"]),
    ("branch", "z = [a for a in b if c]", ["z = [a for a in b if True]"]),
    ("drop-statement", "x.append(y)", ["pass"]),
    ("drop-statement", "def f(x):\n    x = g(x)\n    y = 1", ["def f(x):\n    pass\n    y = 1"]),
    ("drop-branch", "if a: b()\nelse: c()", ["if a: b()\nelse: pass"]),
    ("drop-raise", "raise ValueError('no')", ["pass"]),
    ("error-type", "raise ValueError('no')", ["raise Exception('no')"]),
    ("handler", "try: a()\nexcept (A, B): b()", ["except (B,): b()", "except (A,): b()"]),
    ("drop-with", "with no_grad(): a()", ["if True: a()"]),
    ("loop-exit", "for a in b: break", ["for a in b: continue", "for a in b: pass"]),
    ("first-for-all", "for a in b: c()", ["for a in list(b)[:1]: c()"]),
    ("first-for-all", "z = max(b)", ["z = list(b)[0]"]),
    (
        "all-but-one",
        "z = [c for a in b]",
        [f"z = [c for a in list(b)[{s}]]" for s in ("1:", ":-1")],
    ),
    ("order", "for a in b: c()", ["for a in list(b)[::-1]: c()", "for a in sorted(b): c()"]),
    ("order", "z = sum(a for a in b)", []),
    ("order", "z = sorted(b)", ["z = b", "z = sorted(b, reverse=True)"]),
    ("any-all", "z = any(b)", ["z = all(b)"]),
    ("min-max", "z = min(a, b)", ["z = max(a, b)"]),
    ("clamp", "z = max(0, a)", ["z = 0", "z = a"]),
    ("augmented", "a += b", ["a = b", "a -= b"]),
    ("in-place", "a = a + b", ["a += b"]),
    ("in-place", "z = x.exp()", ["z = x.exp_()"]),
    ("in-place", "def f(x: Tensor): return x * 2", ["def f(x: Tensor): return x.mul_(2)"]),
    ("unwrap", "z = list(b)", ["z = b"]),
    ("drop-keyword", "f(a, k=b, n=c)", ["f(a, n=c)", "f(a, k=b)"]),
    ("drop-keyword", "f(k=b, n=c)", ["f(n=c)", "f(k=b)"]),
    ("drop-keyword", "open(a, encoding=b)", []),
    ("drop-argument", "z = d.get(a, 0)", ["z = d.get(a)"]),
    ("swap-arguments", "f(a, b)", ["f(b, a)"]),
    ("swap-arguments", "max(a, b)", []),
    ("dtype", "x.to(torch.int64)", ["x.to(torch.int32)", "x.to(torch.int16)"]),
    ("cast", "z = (a * b).to(x.dtype)", ["z = a * b", "z = a.to(x.dtype) * b.to(x.dtype)"]),
    ("cast", "z = x.float()", ["z = x"]),
    ("drop-copy", "z = x.clone()", ["z = x"]),
    ("contiguous", "z = x.reshape(-1)", ["z = x.view(-1)"]),
    ("contiguous", "z = x.stride(0)", ["z = 1"]),
    ("float-for-int", "def f(x) -> int: return x", ["def f(x) -> int: return float(x)"]),
    ("reciprocal", "def f(x): return torch.sum(x) / n", ["torch.sum(x) * (1 / n)"]),
    ("reciprocal", "def f(x): return x / n", []),
    ("walked-twice", "def f(x: Iterable[int]): return [a for a in x]", ["in list(x) and x]"]),
    ("walked-twice", "def f(x: list[int]): return [a for a in x]", []),
    ("ignore-parameter", "def f(x, n=4): return x * n", ["def f(x, n=4): n = 4"]),
    ("ignore-parameter", "def f(x: bool): return x", ["x = False", "x = True"]),
    ("mask", "@triton.jit\ndef f(p): z = tl.load(p, mask=m)", ["z = tl.load(p, mask=None)"]),
    ("contiguous", "@triton.jit\ndef f(p, stride): z = p * stride", ["z = p * 1"]),
    ("block-size", "k[grid](x, BLOCK=b)", ["k[grid](x, BLOCK=128)", "k[grid](x, BLOCK=1024)"]),
    ("block-size", "k[grid](x, num_warps=w)", ["k[grid](x, num_warps=4)"]),
    (
        "block-size",
        "z = triton.next_power_of_2(n)",
        ["z = 128", "z = 1024", "z = min(triton.next_power_of_2(n), 4096)"],
    ),
]


@pytest.mark.parametrize(("operator", "code", "wanted"), OPERATORS)
def test_an_operator_makes_what_it_says(operator: str, code: str, wanted: list[str]) -> None:
    """Each text wanted is a mutant, or the part of one that changed, and there are no others."""
    found = python_operators.edits(code, [(0, len(code))])
    made = [edit.applied(code) for edit in found if edit.operator == operator]
    assert len(made) == len(wanted), made
    for text in wanted:
        assert any(text in mutant for mutant in made), (text, made)


def test_nothing_outside_of_the_blocks_changes(kit: MiniKit) -> None:
    lab = load_lab(kit.root, "lab90")
    text = (lab.solution / "running_mean.py").read_text(encoding="utf-8")
    ((start, end),) = block_spans(lab.solution / "running_mean.py", TASK)
    assert text[start:end].strip().startswith("means, total = [], 0.0")
    for mutant in candidates(lab, lab.task(TASK)):
        changed = mutant.edit.applied(text)
        assert changed.startswith(text[:start])
        assert changed.endswith(text[end:])
        compile(changed, "mutant", "exec")


def test_a_line_of_other_letters_has_its_place() -> None:
    code = 'name = {"größe": 1}["größe"] < limit'
    made = {edit.applied(code) for edit in python_operators.edits(code, [(0, len(code))])}
    assert 'name = {"größe": 1}["größe"] <= limit' in made


def test_two_ways_to_the_same_code_are_one_mutant(kit: MiniKit) -> None:
    """`a < 1` becomes `a < 0` by a constant; a dropped bracket is not a change at all."""
    change(kit.solution / "running_mean.py", "total += value", "total += (value)")
    lab = load_lab(kit.root, "lab90")
    mutants = candidates(lab, lab.task(TASK))
    lines = [(mutant.number, mutant.new) for mutant in mutants]
    assert len(set(lines)) == len(lines)
    assert (lines.count((20, "total += value"))) == 0


def test_an_edit_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="does not stand at character 1"):
        Edit("constant", 1, "4", "5").applied("4")


# -- samples --------------------------------------------------------------------------------------


def test_a_sample_has_each_operator_before_a_second_of_any(kit: MiniKit) -> None:
    lab = load_lab(kit.root, "lab90")
    mutants = candidates(lab, lab.task(TASK))
    kinds = {mutant.edit.operator for mutant in mutants}
    drawn = sample(mutants, len(kinds))
    assert {mutant.edit.operator for mutant in drawn} == kinds
    assert sample(mutants, len(mutants) + 1) == mutants


def test_a_line_that_moves_changes_no_draw(kit: MiniKit) -> None:
    lab = load_lab(kit.root, "lab90")
    before = [mutant.key for mutant in sample(candidates(lab, lab.task(TASK)), 7)]
    reference = kit.solution / "running_mean.py"
    change(reference, "def running_mean", "FIRST = 1\n\n\ndef running_mean")
    after = [mutant.key for mutant in sample(candidates(lab, lab.task(TASK)), 7)]
    assert sorted(before) == sorted(after)
    assert len(before) == 7


# -- the runs -------------------------------------------------------------------------------------


def planted(kit: MiniKit, new: str) -> Mutant:
    """A mutant whose loop does something else."""
    text = (kit.solution / "running_mean.py").read_text(encoding="utf-8")
    old = "total += value"
    edit = Edit("planted", text.index(old), old, new)
    return Mutant(TASK, "running_mean.py", edit, 1, old, new)


def fates(kit: MiniKit, *mutants: Mutant, jobs: int = 2) -> list[Fate]:
    suite = suite_of(kit)
    runner = MutantRunner(suite, suite.lab.task(TASK))
    runner.warm_up()
    found = {id(mutant): fate for mutant, fate in runner.run(mutants, jobs)}
    return [found[id(mutant)] for mutant in mutants]


def test_a_mutant_dies_at_the_first_case_that_refuses_it(kit: MiniKit) -> None:
    wrong, right = fates(kit, planted(kit, "total -= value"), planted(kit, "total = total + value"))
    assert (wrong.killer, wrong.status) == (
        "lab90/running_mean/test_every_prefix_has_its_mean[2]",
        "failed",
    )
    assert (wrong.gate, wrong.seed, wrong.cases) == (True, 0, 1)
    assert right.survived


HARMFUL = {
    "failed": "total += len(bytearray(64 << 30)) * value",  # MemoryError
    "crashed": "import os; os.abort()",
    "timeout": "while True: pass",
}
DEAF = (
    "import signal\n        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])"
    "\n        while True: pass"
)


@pytest.mark.parametrize("status", HARMFUL)
def test_a_mutant_that_harms_ends_alone(kit: MiniKit, status: str) -> None:
    harmful = planted(kit, HARMFUL[status])
    fate, other = fates(kit, harmful, planted(kit, "total = total + value"))
    assert fate.status == status
    assert other.survived


def test_a_mutant_that_no_alarm_reaches_is_ended_from_outside(kit: MiniKit) -> None:
    (fate,) = fates(kit, planted(kit, DEAF))
    assert (fate.status, fate.by_time) == ("timeout", True)


def test_memory_that_grows_and_grows_has_an_end(
    kit: MiniKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutant_runner, "SPARE_BYTES", 64 << 20)
    (fate,) = fates(kit, planted(kit, "hoard = [b'0']\n        while True: hoard += hoard"))
    assert fate.status == "failed"


def test_a_mutant_that_only_other_inputs_tell_is_told(kit: MiniKit) -> None:
    """Wrong for one value alone, which the second seed draws first, or none does."""
    case = suite_of(kit).cases_of(TASK)[0]
    first = generator(seed_of(case, b"public:1")).normal(5.0, 1.0, size=2)[0]
    unlucky = planted(kit, f"total += value + (value == {float(first)!r})")
    fate, other = fates(kit, unlucky, planted(kit, "total += value + (value > 1e9)"))
    assert (fate.killer, fate.seed) == (case.id, 1)
    assert other.survived


# -- the survivors --------------------------------------------------------------------------------


def weaken(kit: MiniKit) -> None:
    """A suite that does not look at the last mean."""
    change(kit.suite / SUITE, "expect.close(means, want,", "expect.close(means[:1], want[:1],")
    change(kit.suite / SUITE, "n=n)", 'n=n)\n    expect.equal(len(means), n, "one a value")')


def judgement(kit: MiniKit, count: int | None = None) -> tuple[list[str], list[str]]:
    """The new lines of the unlisted survivors, and the faults."""
    suite = suite_of(kit)
    entries = equivalents.judged(suite.lab)
    found = survey(suite, suite.lab.task(TASK), entries, SurveyPlan(count, jobs=2))
    verdicts = judge(found, entries)
    return [mutant.new for mutant in verdicts.unlisted], verdicts.faults


def list_all(kit: MiniKit, text: str) -> None:
    (kit.suite / equivalents.FILE).write_text(text, encoding="utf-8")


ENTRY = """[[running_mean]]
line = "{line}"
mutants = ["{new}"]
reason = "no value that a caller can give tells them apart"
kind = "{kind}"
"""


def test_a_strong_suite_leaves_no_survivor_and_a_weak_one_does(kit: MiniKit) -> None:
    assert judgement(kit) == ([], [])
    weaken(kit)
    survivors, faults = judgement(kit)
    assert "total = value" in survivors
    (told,) = [fault for fault in faults if fault.endswith("+ total = value")]
    assert told.splitlines()[1:] == ["    - total += value", "    + total = value"]
    assert "solutions/lab90/running_mean.py:14: a mutant (augmented) earns full points" in told


def test_a_reference_that_fails_says_nothing_about_mutants(kit: MiniKit) -> None:
    change(kit.solution / "running_mean.py", "(index + 1)", "(index + 2)")
    _, (fault,) = judgement(kit)
    assert fault.startswith("reference: lab90/running_mean/test_every_prefix_has_its_mean[2]: ")


def test_a_case_that_only_a_fork_fails_is_found(
    kit: MiniKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What refuses even the reference would refuse every mutant, and look like a strong suite."""
    monkeypatch.setattr(mutant_runner, "SPARE_BYTES", 1 << 20)
    change(
        kit.solution / "running_mean.py", "means, total", "bytearray(256 << 20)\n    means, total"
    )
    _, (fault,) = judgement(kit)
    assert fault.endswith("failed in a fork")


@pytest.mark.parametrize("kind", equivalents.KINDS)
def test_a_listed_survivor_is_no_fault(kit: MiniKit, kind: str) -> None:
    weaken(kit)
    before, _ = judgement(kit)
    list_all(kit, ENTRY.format(line="total += value", new="total = value", kind=kind))
    after, faults = judgement(kit)
    assert set(before) - set(after) == {"total = value"}
    assert len(faults) == len(after)


def test_a_listed_mutant_that_dies_is_refused(kit: MiniKit) -> None:
    list_all(kit, ENTRY.format(line="total += value", new="total = value", kind="equivalent"))
    _, (fault,) = judgement(kit)
    assert "lists a mutant, but lab90/running_mean/test_every_prefix_has_its_mean[2] " in fault
    assert "refuses it (failed)" in fault


def test_a_listed_mutant_that_does_not_exist_is_refused(kit: MiniKit) -> None:
    list_all(kit, ENTRY.format(line="total += worth", new="total = worth", kind="equivalent"))
    _, (fault,) = judgement(kit)
    assert "lists a mutant that does not exist" in fault


def test_a_sample_says_nothing_of_what_it_did_not_draw(kit: MiniKit) -> None:
    lab = load_lab(kit.root, "lab90")
    mutants = candidates(lab, lab.task(TASK))
    drawn = {mutant.key for mutant in sample(mutants, 3)}
    other = next(mutant for mutant in mutants if mutant.key not in drawn)
    list_all(kit, ENTRY.format(line=other.line, new=other.new, kind="equivalent"))
    assert judgement(kit, count=3) == ([], [])
    assert len(judgement(kit)[1]) == 1


REFUSED = {
    'reason = ""': "the reason is ''; say why no test refuses this",
    'kind = "other"': "kind is 'other'; write one of equivalent, arguable",
    "mutants = []": "mutants is []; list at least one",
    "mutants = [1]": "a mutant is 1; write the changed line as a text",
    "line = 1": "write the line and the reason as texts",
}


@pytest.mark.parametrize("row", REFUSED)
def test_an_entry_that_says_too_little_is_refused(kit: MiniKit, row: str) -> None:
    rows = ENTRY.format(line="a", new="b", kind="equivalent").splitlines()
    key = row.partition(" ")[0]
    list_all(kit, "\n".join(row if line.startswith(key) else line for line in rows))
    with pytest.raises(LabError) as caught:
        equivalents.judged(load_lab(kit.root, "lab90"))
    assert REFUSED[row] in str(caught.value)


def test_an_entry_of_no_task_and_one_that_stands_twice_are_refused(kit: MiniKit) -> None:
    entry = ENTRY.format(line="a", new="b", kind="arguable")
    list_all(kit, entry.replace("running_mean", "running_median"))
    lab = load_lab(kit.root, "lab90")
    with pytest.raises(LabError, match="no task `running_median`"):
        equivalents.judged(lab)
    list_all(kit, entry + entry)
    with pytest.raises(LabError, match="entry 2: it stands there twice"):
        equivalents.judged(lab)


def test_a_stub_with_a_reason_is_an_entry(kit: MiniKit) -> None:
    """Whatever stands in the lines: quotes of both kinds, backslashes, several lines."""
    lines = ["a", 'b = "x"', "b = 'x'", "b = \"x\" + 'y'", 'b = "\\n"', "b(\nc,\n)", "pass"]
    edit = Edit("drop-statement", 0, "", "")
    mutants = [Mutant(TASK, "running_mean.py", edit, 1, old, new) for old in lines for new in lines]
    text = equivalents.stubs(mutants).replace('reason = ""', 'reason = "none of them matters"')
    list_all(kit, text)
    found = {entry.key for entry in equivalents.judged(load_lab(kit.root, "lab90"))}
    assert found == {mutant.key for mutant in mutants}


# -- what is kept ---------------------------------------------------------------------------------


def kept(kit: MiniKit) -> int:
    suite = suite_of(kit)
    return survey(suite, suite.lab.task(TASK), [], SurveyPlan()).kept


def test_what_was_found_is_kept_until_something_changes(kit: MiniKit) -> None:
    assert kept(kit) == 0
    count = len(candidates(load_lab(kit.root, "lab90"), suite_of(kit).lab.task(TASK)))
    assert kept(kit) == count
    list_all(kit, "")
    with (kit.suite / "misconceptions/running_mean.py").open("a") as file:
        file.write("\n# a comment\n")
    assert kept(kit) == count, "neither is read by a case"
    with (kit.suite / SUITE).open("a") as file:
        file.write("\n# a comment\n")
    assert kept(kit) == 0
    change(kit.solution / "running_mean.py", "means, total = [], 0.0", "total, means = 0.0, []")
    assert kept(kit) == 0


def test_an_interrupted_survey_keeps_what_it_has(kit: MiniKit) -> None:
    suite = suite_of(kit)

    def stop(done: int, _of: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        survey(suite, suite.lab.task(TASK), [], SurveyPlan(), stop)
    assert kept(kit) == 3


# -- the commands ---------------------------------------------------------------------------------


def lint_(kit: MiniKit, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grader.cli", "lint", *options]
    return subprocess.run(command, cwd=kit.root, capture_output=True, text=True, check=False)


def test_the_command_prints_survivors_and_writes_stubs_and_the_table(kit: MiniKit) -> None:
    weaken(kit)
    done = lint_(kit, "--mutants", "--write", "--stubs", "stubs.toml")
    assert done.returncode == 1, done.stderr
    assert "    - total += value\n    + total = value\n" in done.stdout
    assert "[[running_mean]]" in (kit.root / "stubs.toml").read_text()
    table = (kit.root / "benchmarks/results/mutants.md").read_text()
    (row,) = [line for line in table.splitlines() if line.startswith("| lab90 |")]
    made, run = row.split("|")[5:7]
    assert made == run
    assert "- lab90: arithmetic 1 of 2, augmented 1 of 2, operand 2 of 4\n" in table
    one = lint_(kit, "--mutants", "lab90.running_mean", "--sample", "2")
    assert "lab90.running_mean: 2 of" in one.stdout


def test_the_table_keeps_rows_of_labs_that_were_not_surveyed(kit: MiniKit) -> None:
    first = mutants_table.table([mutants_table.LabRow("lab07", tasks=3)], None)
    both = mutants_table.table([mutants_table.LabRow("lab90", tasks=2)], 30, first)
    (seven,) = (line for line in first.splitlines() if line.startswith("| lab07 |"))
    assert seven in both.splitlines()
    assert "| lab90 | 2 | up to 30 |" in both


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("lab77",), "No lab `lab77` here"),
        (("lab90.median",), "lab90 has no task `median`"),
        (("--sample", "0"), "--sample is 0; give at least 1."),
        (("--jobs", "0"), "--jobs is 0; give at least 1."),
        (("--write", "lab90.running_mean"), "--write puts whole labs into the table"),
    ],
)
def test_a_wrong_call_is_a_sentence(kit: MiniKit, options: tuple[str, ...], sentence: str) -> None:
    done = lint_(kit, "--mutants", *options)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_the_daily_check_holds_a_lab_with_the_file_to_its_mutants(kit: MiniKit) -> None:
    weaken(kit)
    plan = Thoroughness(everything=False)
    assert lint.check(kit.root, "lab90", plan).mutants == 0
    list_all(kit, "")
    report = lint.check(kit.root, "lab90", plan)
    assert report.mutants > 10
    assert any("earns full points" in fault for fault in report.faults)
    shared = lint._shared_out(kit.root, ["lab90"], plan, jobs=2)
    assert next(iter(shared)).mutants == report.mutants


def test_notes_that_cannot_be_read_are_made_anew(kit: MiniKit) -> None:
    assert kept(kit) == 0
    (path,) = (kit.root / ".infralens/mutants").glob("*.json")
    for text in ("", "[]", json.dumps({"key": 1}), "\0"):
        path.write_text(text, encoding="utf-8")
        assert kept(kit) == 0
