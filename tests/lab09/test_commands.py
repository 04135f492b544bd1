"""`profile_commands.sh`, read as text and judged by properties: many scripts are right.

The oracles are the tools' own documentation, as the table `flags.json` has it with versions, the
signatures of torch.profiler, and the shell's rules for words.
"""

from __future__ import annotations

from grader.suite import apart, expect, task

from . import profilers, shell

FILE = "profile_commands.sh"


def _script(student):
    """What the learner's script would start."""
    return _read(profilers.read, student.read(FILE))


def _read(reader, text, *more):
    try:
        return apart.read(reader, text, *more)
    except shell.Unreadable as error:
        line = f"{FILE}:{error.line}: {error.text}"
        raise expect.Failure("property", [line], f"unreadable: {error.text}", SHELL) from None
    except apart.TooMuch as error:
        raise expect.Failure("property", [f"{FILE}: {error}"], str(error), SHELL) from None


SHELL = "a profiler gets its words from the shell, so the shell's rules come first"


def _keep(rule, student, because):
    """The rule has no fault to find in the learner's script. It runs apart, too: it may search
    with an expression that stands in the script."""
    _script(student)  # what cannot be read at all is not tried with each rule
    _say(_read(profilers.faults, student.read(FILE), rule), because)


def _say(faults, because):
    if not faults:
        return
    lines = [f"{FILE}:{f.line}: {f.text}" if f.line else f"{FILE}: {f.text}" for f in faults[:3]]
    lines = [line if len(line) <= 400 else f"{line[:400]} ..." for line in lines]
    if len(faults) > 3:
        lines.append(f"({len(faults) - 3} more of the kind)")
    raise expect.Failure("property", lines, faults[0].key, because)


@task("commands", holds=("as_bash",))
def test_a_shell_reads_every_line_as_meant(student):
    """Continuations, comments, quotes: each line starts a program that there is.
    Oracle: the shell's rules for words and operators."""
    _keep(profilers.readable, student, SHELL)


@task("commands", holds=("as_bash",))
def test_the_tools_know_every_option(student):
    """Options and their values.   Oracle: flags.json, from nsys' and ncu's documentation."""
    because = "a misspelt option ends the run before it began, and an old one may be gone"
    _keep(profilers.options, student, because)


@task("commands", holds=("timeline", "traced", "measured", "to_its_end", "named"))
def test_the_timeline_is_of_measured_steps(student):
    """CUDA, NVTX and OS calls of steps 20 to 24, and the program goes on.
    Oracle: nsys' documentation of --capture-range and its default end."""
    because = "start-up and warm-up are not what you want to make faster"
    _keep(profilers.timeline, student, because)


@task("commands", holds=("eight_ranks", "each_runs", "one_profiled"))
def test_one_rank_of_eight_is_profiled(student):
    """Eight ranks run, one of them under nsys.
    Oracle: the script walked through for each value of RANK."""
    because = "a profiler slows its rank, and in a job of ranks all wait for the slowest"
    _keep(profilers.one_rank, student, because)


@task("commands", holds=("any_order", "export", "stats"))
def test_the_report_becomes_tables(student):
    """Exported to SQLite, summed as CSV.   Oracle: nsys' list of reports and formats."""
    because = "a number that a script can read can be compared tomorrow"
    _keep(profilers.reports, student, because)


@task("commands", holds=("ncu", "names", "skipped", "few"))
def test_ncu_replays_few_launches(student):
    """Kernels by name, after warm-up, at most 50.
    Oracle: ncu's documentation of its filters; the expression is tried on kernels' names."""
    because = "ncu runs each profiled launch again and again, so it must be told which few"
    _keep(profilers.few_launches, student, because)


@task("commands", holds=("metrics", "kept", "clocks"))
def test_counters_and_clocks_are_chosen(student):
    """The metrics by name, the clocks explained.   Oracle: names in flags.json."""
    because = "a counter explains what the timeline has shown, under clocks that you know"
    _keep(profilers.counters, student, because)


@task("commands", holds=("profiler", "schedule", "stepped", "no_warm_up", "any_later", "written"))
def test_torch_profiler_has_a_schedule(student):
    """wait, warmup, active; step() in the loop; a trace written.
    Oracle: the signatures of torch.profiler.profile and schedule; Python's own parser."""
    because = "the profiler records steps that its schedule names, and only step() moves it"

    _say(list(profilers.torch_profiler(_script(student), student.probe.python_text)), because)


@task("commands", holds=("boxes", "order"))
def test_the_checklist_goes_from_symptom_to_gain(student):
    """Boxes in the order in which one works.
    Oracle: the order of the page: symptom, timeline, counter, one change, gain."""
    because = "each step decides what the next one looks at"
    _keep(profilers.checklist, student, because)
