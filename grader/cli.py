"""The `infralens` command: thin, over the packages beside it."""

from __future__ import annotations

import datetime
import errno
import os
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from grader.errors import CallError, LabError
from grader.lab import handed_out
from grader.lab.manifest import all_labs, clone_root, find_root, kit_root, lab_ids, load_lab
from grader.status import points_text

app = typer.Typer(
    add_completion=False,
    no_args_is_help=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="InfraLens Labs: AI infrastructure, learned by doing it.",
)


def main() -> None:
    """Entry point: a fault in the call is a sentence and exit status 2, never a traceback."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # lives as long as the process
    try:
        app()
    except (LabError, CallError) as error:
        typer.echo(f"infralens: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        typer.echo(f"infralens: {error.filename or 'the output'}: no space left.", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left unwritten is dropped
        sys.exit(2)


@app.callback(invoke_without_command=True)
def board(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="the version, and what was found here; then end")
    ] = False,
) -> None:
    """Without a command: the board, with every lab, its points and the next task."""
    if version:
        from grader.learner import found_here

        typer.echo("\n".join(found_here.lines()))
        raise typer.Exit
    if context.invoked_subcommand is not None:
        return
    from grader.learner import progress
    from grader.status import TaskStatus

    root = find_root()
    labs = all_labs(root)
    if not labs:
        raise LabError(f"{root / 'exercises'} holds no lab.")
    if text := progress.age(root):
        typer.echo(text)
    for lab in labs:
        rows = progress.tasks_of(lab)
        points = sum(row.points for row in rows)
        total = sum(row.task.points for row in rows)
        ran = any(row.status for row in rows)
        note = "" if ran else "   not run yet: pytest " + _relative(lab.exercise)
        typer.echo(f"{lab.id}  {lab.title:<36} {points_text(points)}/{total:g}{note}")
        for row in rows if ran else []:
            state = (row.status or TaskStatus.NOT_RUN).words
            changed = ", edited since" if row.changed else ""
            passes = state == TaskStatus.PUBLIC_ONLY.words
            worth = f"{'-' if passes else points_text(row.points)}/{row.task.points:g}"
            typer.echo(f"    {row.task.id:<26} {row.task.tier:<8} {worth:>7}  {state}{changed}")
    if handed_out.tests(root) == "public":
        typer.echo(handed_out.PUBLIC_TESTS_SAID)
    _say_next(root)


@app.command("next")
def next_() -> None:
    """The next task: where to read, which line to open, what to type."""
    _say_next(find_root())


def _say_next(root: Path) -> None:
    from grader.learner import progress

    row = progress.next_task(root)
    if row is None:
        typer.echo("Everything that can be verified here is done.")
        return
    task = row.task
    folder = root / "exercises" / task.lab
    path, _, line = progress.where(root, task).rpartition(":")
    typer.echo(f"\nnext   {task.name}: {task.title} ({task.tier}, about {task.minutes} minutes)")
    typer.echo(f"read   {_relative(folder / 'README.md')}")
    typer.echo(f"open   {_relative(Path(path))}:{line}")
    typer.echo(f"test   pytest {_relative(folder / task.file)}::{task.id}")
    typer.echo(f"hint   infralens hint {task.name}")


def _relative(path: Path) -> str:
    return os.path.relpath(path)


@app.command()
def hint(
    task: Annotated[str, typer.Argument(help="a task, as in lab07.merge")],
    level: Annotated[
        Optional[int], typer.Option(help="show the first 1, 2 or 3 hints at once")  # noqa: UP045
    ] = None,
) -> None:
    """One more hint for a task: the concept, the invariant, the place."""
    from grader.learner import hints

    root = find_root()
    lab, found = hints.find(root, task)
    texts = hints.shown(lab, found, level)
    for number, text in enumerate(texts, start=1):
        typer.echo(f"{number}. {text}")
    if len(texts) < 3:
        typer.echo(f"(the next one: infralens hint {found.name})")


@app.command()
def watch(
    target: Annotated[
        str, typer.Argument(help="a lab or a task; default: the lab of the next task")
    ] = "",
    plain: Annotated[bool, typer.Option("--plain", help="lines instead of a screen")] = False,
) -> None:
    """Stay open beside the editor and answer each save."""
    from grader.learner.watch import command

    raise typer.Exit(command.run(find_root(), target, plain))


@app.command()
def drill(
    lab: Annotated[str, typer.Argument(help="a lab; default: all")] = "",
    topic: Annotated[
        str, typer.Option(help="memory, training, kernels, profiling or serving")
    ] = "",
    role: Annotated[str, typer.Option(help="training, serving, kernels or all")] = "",
    minutes: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="how long; default: 10"),
    ] = None,
    new: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="new cards at most; 0: only those that are due"),
    ] = None,
    export: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="write the questions to a file.csv, or file.apkg for Anki"),
    ] = None,
    bugs: Annotated[
        bool, typer.Option("--bugs", help="with --export: those on bugs, too; minutes a lab")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="without colours")] = False,
) -> None:
    """Questions as interviewers ask them, the ones that are due first. A day has 20 new cards,
    unless you name a lab, a topic, minutes or --new."""
    from grader.learner.interview import drill as drills

    if export is not None:
        from grader.learner.interview import export as exports

        count = exports.write(drills.banks(find_root(), topic, lab, role), export, typer.echo, bugs)
        typer.echo(f"{count} cards are in {export}.")
        return
    raise typer.Exit(drills.run(find_root(), lab, topic, role, minutes, plain, typer.echo, new))


@app.command()
def interview(
    role: Annotated[str, typer.Option(help="training, serving, kernels or all")] = "all",
    minutes: Annotated[float, typer.Option(help="how long, from 5 to 240")] = 45.0,
    new: Annotated[bool, typer.Option("--new", help="begin another, though one is open")] = False,
    report: Annotated[bool, typer.Option("--report", help="the last one's report")] = False,
    feedback: Annotated[
        bool, typer.Option("--feedback", help="for practice: tell after each question")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="without colours")] = False,
) -> None:
    """A timed interview: questions, code from a blank file, and a report at its end."""
    from grader.learner.interview import mock

    status = mock.run(
        find_root(), role, minutes, new=new, report=report, feedback=feedback, plain=plain,
        say=typer.echo,
    )  # fmt: skip
    raise typer.Exit(status)


@app.command()
def plan(
    date: Annotated[str, typer.Option(help="the day of the interview, as in 2026-12-01")],
    role: Annotated[str, typer.Option(help="training, serving, kernels or all")] = "all",
    hours: Annotated[float, typer.Option(help="hours a day")] = 2.0,
    plain: Annotated[bool, typer.Option("--plain", help="without colours")] = False,
) -> None:
    """What to read, do and drill on which day up to an interview."""
    from grader.learner import paint
    from grader.learner.interview import standing, study_plan

    today = datetime.date.today()
    on = standing.day(date, today)
    made = study_plan.plan(find_root(), role, on, today, hours)
    for line in study_plan.lines(made, role, on, hours, paint.wants_colours(plain=plain)):
        typer.echo(line)


@app.command()
def ready(
    role: Annotated[str, typer.Option(help="training, serving, kernels or all")] = "all",
    date: Annotated[str, typer.Option(help="the day of the interview; default: today")] = "",
    plain: Annotated[bool, typer.Option("--plain", help="without colours")] = False,
) -> None:
    """Where you stand for a role, by topic, and what would help most."""
    from grader.learner import paint
    from grader.learner.interview import readiness, standing

    today = datetime.date.today()
    on = standing.day(date, today)
    for line in readiness.lines(find_root(), role, on, today, paint.wants_colours(plain=plain)):
        typer.echo(line)


@app.command("list")
def list_(
    lab: Annotated[str, typer.Argument(help="a lab; default: all")] = "",
    topic: Annotated[
        str, typer.Option(help="memory, training, kernels, profiling or serving")
    ] = "",
    needs: Annotated[
        str, typer.Option(help="tasks that need triton, cxx, gloo, gpu, data; or: nothing")
    ] = "",
    hide_difficulty: Annotated[
        bool, typer.Option("--hide-difficulty", help="without tier and minutes")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="without colours")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
) -> None:
    """Every task with tier, minutes, points and state."""
    from grader.learner import paint, task_list

    rows = task_list.find(find_root(), lab, topic, needs)
    if as_json:
        typer.echo(task_list.as_json(rows))
        return
    for text in task_list.lines(
        rows, paint.width(), paint.wants_colours(plain=plain), hide_difficulty
    ):
        typer.echo(text, color=True)


@app.command("progress")
def progress_(
    plain: Annotated[bool, typer.Option("--plain", help="without colours and bars")] = False,
    picture: Annotated[
        bool, typer.Option("--picture", help="an HTML file with points and hours over days")
    ] = False,
) -> None:
    """Minutes and points over time, by topic and by day."""
    from grader.learner import history_view, paint

    root = find_root()
    unicode = paint.speaks_unicode() and not plain
    for text in history_view.lines(root, paint.width(), paint.wants_colours(plain=plain), unicode):
        typer.echo(text, color=True)
    if picture:
        path = history_view.picture(root)
        typer.echo(_relative(path) if path else "A picture needs rounds of two days.")


@app.command()
def compare(
    task: Annotated[str, typer.Argument(help="a task, as in lab07.merge")],
    anyway: Annotated[
        bool, typer.Option("--anyway", help="before the task is done; the history keeps it")
    ] = False,
) -> None:
    """Your code beside the reference and beside other right ways, once the task is done."""
    from grader.learner import compare as comparing
    from grader.learner import hints, paint

    lab, found = hints.find(find_root(), task)
    if reason := comparing.refusal(lab, found):
        raise LabError(reason)
    if not anyway and not comparing.is_done(lab, found):
        question = (
            f"{found.name} is not done (or was edited since). Show the answer? "
            "Your history will say that you read it."
        )
        if not (sys.stdin.isatty() and typer.confirm(question)):
            typer.echo(f"Nothing shown. To see it all the same: infralens compare {task} --anyway")
            raise typer.Exit(1)
    comparing.note_reading(lab, found)
    ways = comparing.ways(lab, found)
    for text in comparing.lines(ways, paint.width(200), paint.speaks_unicode()):
        typer.echo(text)


@app.command()
def check(
    labs: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(help="labs; default: all"),
    ] = None,
    jobs: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="labs that run at a time; default: one a processor"),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="without colours")] = False,
) -> None:
    """Run every lab once and end with one table."""
    from grader.learner import check_labs

    raise typer.Exit(check_labs.run(find_root(), labs or [], jobs, plain))


@app.command()
def show(
    lab: Annotated[str, typer.Argument(help="a lab, as in lab04")],
    task: Annotated[str, typer.Argument(help="one task's pictures only")] = "",
    out: Annotated[Optional[Path], typer.Option("--out", help="the HTML file to write")] = None,  # noqa: UP045
    png: Annotated[bool, typer.Option("--png", help="each picture as a PNG, too")] = False,
    solution: Annotated[bool, typer.Option("--solution", help="from the reference's code")] = False,
) -> None:
    """Pictures of what your own code does, in one HTML file."""
    from grader.learner.pictures import page

    shown = page.show(load_lab(find_root(), lab), task, out, png, solution)
    for text in shown.sentences:
        typer.echo(text)
    for path in shown.files:
        typer.echo(_relative(path))
    raise typer.Exit(0 if shown.drawn else 1)


@app.command()
def kernel(
    file: Annotated[Path, typer.Argument(help="a .cu file")],
    name: Annotated[str, typer.Argument(help="one of its kernels")],
    arguments: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(help="what it is called with: 256, 0.5, f32[1024], f32[1]=0, i32[64]=iota"),
    ] = None,
    grid: Annotated[str, typer.Option(help="blocks, as in 8,8")] = "1",
    block: Annotated[str, typer.Option(help="threads of a block, as in 32,8")] = "32",
    shared: Annotated[int, typer.Option(help="bytes of dynamic shared memory")] = 0,
    seed: Annotated[int, typer.Option(help="other than 0: blocks and warps in another order")] = 0,
) -> None:
    """Launch a CUDA kernel on the CPU: requests, sectors, wavefronts and conflicts by line, and
    what is wrong with it."""
    from grader.kernels import launch_command

    code = launch_command.run(file, name, arguments or [], grid, block, shared, seed)
    raise typer.Exit(code)


@app.command()
def reset(lab: Annotated[str, typer.Argument(help="a lab, as in lab07")]) -> None:
    """A lab's files as they were shipped; what you wrote is kept in a folder that is named."""
    from grader.lab import reset as fresh

    found = load_lab(find_root(), lab)
    names, backup = fresh.reset(found)
    left = fresh.not_reset(found)
    for text in left:
        typer.echo(text)
    if names:
        typer.echo(f"Fresh again: {', '.join(names)}.")
    elif not left:
        typer.echo(f"{lab} is as it was shipped; nothing was changed.")
    if backup is not None:
        typer.echo(f"Your former files are kept in {_relative(backup)}.")


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="a new folder for your labs")],
) -> None:
    """Write the labs into a folder of your own: exercises and what runs them."""
    from grader.learner import init_workspace

    for text in init_workspace.run(folder):
        typer.echo(text)


@app.command()
def update(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would change")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="write without asking")] = False,
) -> None:
    """Bring a newer kit's corrections into your folder; what you wrote stays as it is."""
    from grader.learner import update_workspace

    raise typer.Exit(update_workspace.run(Path.cwd(), dry_run, yes, typer.echo))


@app.command("data")
def data_(
    names: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(help="files to fetch; default: list what is here and what is missing"),
    ] = None,
    everything: Annotated[bool, typer.Option("--fetch", help="fetch all that is missing")] = False,
) -> None:
    """Real traces that some checks want: what is here and what is missing; fetches them."""
    from grader.lab import datasets

    lines, code = datasets.show(names or [], everything)
    for text in lines:
        typer.echo(text)
    raise typer.Exit(code)


@app.command()
def sync(
    check: Annotated[bool, typer.Option("--check", help="change nothing, report")] = False,
    force: Annotated[bool, typer.Option("--force", help="overwrite edited skeletons")] = False,
) -> None:
    """Make exercises/ from solutions/; with --check, exit 1 if a committed file differs."""
    from grader.author import lab_tables, page_checks
    from grader.author import sync as syncing
    from grader.lab.manifest import all_labs
    from grader.learner.pictures import page_pictures

    root = clone_root("sync")
    syncing.refuse_a_release(root)
    misplaced = syncing.misplaced(root)
    for text in misplaced:
        typer.echo(text)
    changes = syncing.differing(root)
    old_tables = lab_tables.stale(root)
    for path in old_tables:
        typer.echo(f"{path.relative_to(root)} has a table that differs from the manifests")
    old_pages = page_checks.stale(root)
    for text in old_pages:
        typer.echo(text)
    drawn = {
        path: text for lab in all_labs(root) for path, text in page_pictures.stale(lab).items()
    }
    for path in drawn:
        typer.echo(f"{path.relative_to(root)} is not what the reference draws")
    for lab, names in changes:
        for name in names:
            typer.echo(f"{lab.id}/{name} differs from what solutions/{lab.id}/{name} demands")
    if check:
        if changes or old_tables or drawn or old_pages:
            typer.echo("Type: infralens sync", err=True)
        if changes or old_tables or drawn or old_pages or misplaced:
            raise typer.Exit(1)
        typer.echo(f"{len(lab_ids(root))} labs: every skeleton is what its reference demands.")
        return
    if not any((changes, old_tables, drawn, old_pages, misplaced)):
        typer.echo("Nothing to do.")
    lab_tables.write(root)
    unmade = []
    if old_pages:
        for path in page_checks.write(root):
            typer.echo(f"wrote {path.relative_to(root / 'exercises')}")
        unmade = page_checks.stale(root)
    for path, text in drawn.items():
        path.write_text(text, encoding="utf-8")
        typer.echo(f"wrote {path.relative_to(root / 'exercises')}")
    for text in syncing.write(changes, force):
        typer.echo(text)
    raise typer.Exit(1 if misplaced or unmade else 0)


@app.command()
def replay(
    labs: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(help="labs; default: all"),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="only say what is of another state of its lab")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="tasks at a time")] = 2,
) -> None:
    """Write what each misconception does in each test: a diagnosis then runs fewer of them."""
    from grader.author import replay_command

    root = clone_root("replay")
    raise typer.Exit(replay_command.run(root, labs or lab_ids(root), check, jobs))


@app.command()
def lint(
    labs: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(help="labs (with --mutants also tasks, as lab01.audit); default: all"),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="20 seeds, 1 and 2 threads, variants"),
    ] = False,
    cache: Annotated[bool, typer.Option(help="reuse results of untouched labs")] = True,
    jobs: Annotated[int, typer.Option(help="labs checked at a time")] = 2,
    messages: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="a file for the message that each misconception gives a learner"),
    ] = None,
    mutants: Annotated[
        bool, typer.Option("--mutants", help="instead: run small changes of the references")
    ] = False,
    sample: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="mutants of each task; default: 30, with --mutants all"),
    ] = None,
    variants: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="right answers of other shapes, of each lab; default: all"),
    ] = None,
    every: Annotated[
        int,
        typer.Option(min=1, help="wrong answers to every Nth task only, by turns"),
    ] = 1,
    stubs: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="with --mutants: a file for entries of equivalent.toml"),
    ] = None,
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="with --mutants, --printed or --questions: the table in benchmarks/results",
        ),
    ] = False,
    printed: Annotated[
        bool,
        typer.Option("--printed", help="instead: what pages and hints print of the answers"),
    ] = False,
    questions: Annotated[
        bool,
        typer.Option("--questions", help="instead: the questions of interviews; --all: every bug"),
    ] = False,
) -> None:
    """Check manifests, pages, suites, references, variants, misconceptions and fakes."""
    from grader.author import lint as linting
    from grader.author.lint_report import Thoroughness

    root = clone_root("lint")
    if printed:
        from grader.author import answers_printed

        raise typer.Exit(answers_printed.run(root, labs or [], write))
    if questions:
        from grader.author import question_checks

        raise typer.Exit(question_checks.run(root, labs or lab_ids(root), everything, write, jobs))
    if mutants:
        from grader.author.mutants import mutants_command
        from grader.author.mutants.task_survey import SurveyPlan

        plan = SurveyPlan(sample, jobs, cache)
        raise typer.Exit(mutants_command.run(root, labs or [], plan, stubs, write))
    wanted = labs or lab_ids(root)
    mutants_of_a_task = Thoroughness.mutants if sample is None else sample
    thorough = Thoroughness(everything, cache, mutants_of_a_task, variants, every)
    raise typer.Exit(linting.run(root, wanted, thorough, jobs, messages))


@app.command("new-lab")
def new_lab(
    lab: Annotated[str, typer.Argument(help="its id, as in lab14")],
    title: Annotated[str, typer.Option(help="its title")] = "A new lab",
) -> None:
    """The three folders of a lab, whole and small, ready to be rewritten."""
    from grader.author.new_lab import new_lab as start

    root = clone_root("new-lab")
    for path in start(root, lab, title):
        typer.echo(_relative(path))
    typer.echo(f"Next: pytest solutions/{lab}, then infralens lint {lab}")


@app.command("wrong-answers")
def wrong_answers(
    folder: Annotated[Path, typer.Argument(help="a new folder for the submissions")],
    wanted: Annotated[
        list[str], typer.Argument(help="labs, tasks or misconceptions: lab02, lab03.no_sync")
    ],
) -> None:
    """Known wrong answers as a folder of submissions, to see each of them refused."""
    from grader.author import wrong_answers as answers

    found = answers.write(kit_root(), folder, wanted)
    for answer in found:
        typer.echo(f"{answer.name} loses {answer.task.name}: {answer.sentence}")
    count = f"{len(found)} submission{'s' if len(found) > 1 else ''}"
    typer.echo(f"{count}. Next: infralens grade {_relative(folder)} --out RUN")


@app.command()
def probe() -> None:
    """What this machine offers to keep student code in, and the tier that it reaches."""
    from grader.classroom.grade_command import show_probe

    raise typer.Exit(show_probe())


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


course = typer.Typer(no_args_is_help=True, help="A course: begin its folder, check its files.")
app.add_typer(course, name="course")


@course.command("init")
def course_init(
    folder: Annotated[Path, typer.Argument(help="the course's folder; made if need be")],
    timezone: Annotated[str, typer.Option(help="its wall clock, as in Europe/Zurich")] = "UTC",
) -> None:
    """Write a course's file with every choice explained, a roster and a key."""
    from grader.classroom.course import course_command

    for path in course_command.init(folder, kit_root(), _now(), timezone):
        typer.echo(_relative(path))
    typer.echo(f"Next: fill in the roster and the deadlines, then infralens course check {folder}")


@course.command("check")
def course_check(
    folder: Annotated[Path, typer.Argument(help="the course's folder")] = Path(),
) -> None:
    """Read a course's file and its roster, and say what they say."""
    from grader.classroom.course import course_command

    for line in course_command.check(folder, kit_root(), _now()):
        typer.echo(line)


autograder = typer.Typer(
    no_args_is_help=True, help="Autograders that other systems run: Gradescope, GitHub Classroom."
)
app.add_typer(autograder, name="autograder")
GradedLabs = Annotated[str, typer.Option(help="the labs that it grades, as in lab07")]
AutograderKey = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="file with the secret behind the tests' seeds; it goes along"),
]
TorchIndex = Annotated[
    str, typer.Option(help="the index that PyTorch's install page names for its CPU build")
]
FeedbackLevel = Annotated[str, typer.Option(help="full, diagnosis or names")]


@autograder.command("gradescope")
def autograder_gradescope(
    out: Annotated[Path, typer.Argument(help="the zip to write")],
    labs: GradedLabs,
    course_key_file: AutograderKey = None,
    torch_index: TorchIndex = "",
    feedback: FeedbackLevel = "full",
) -> None:
    """Write the zip that Gradescope builds an autograder from."""
    from grader.classroom.autograder import gradescope_bundle

    code = gradescope_bundle.run(
        clone_root("autograder gradescope"), labs, out, typer.echo, key_file=course_key_file,
        torch_index=torch_index, feedback=feedback,
    )  # fmt: skip
    raise typer.Exit(code)


@autograder.command("github")
def autograder_github(
    out: Annotated[Path, typer.Argument(help="a new folder")],
    labs: GradedLabs,
    course_key_file: AutograderKey = None,
    torch_index: TorchIndex = "",
    feedback: FeedbackLevel = "full",
) -> None:
    """Write a workflow for GitHub Classroom, and the private repository that it grades with."""
    from grader.classroom.autograder import github_bundle

    code = github_bundle.run(
        clone_root("autograder github"), labs, out, typer.echo, key_file=course_key_file,
        torch_index=torch_index, feedback=feedback,
    )  # fmt: skip
    raise typer.Exit(code)


@app.command()
def release(
    out: Annotated[Path, typer.Argument(help="a new folder; with --zip a new file")],
    labs: Annotated[str, typer.Option(help="only these, as in lab01,lab07; default: all")] = "",
    tests: Annotated[str, typer.Option(help="public, all or none")] = "public",
    as_zip: Annotated[bool, typer.Option("--zip", help="as one zip")] = False,
    as_git: Annotated[bool, typer.Option("--git", help="as a git repository, one commit")] = False,
) -> None:
    """Write the labs as learners get them, without an answer in them."""
    from grader.classroom.release import release_command

    if as_zip and as_git:
        raise LabError("--zip and --git are two forms of a release; give one of them.")
    kind = "zip" if as_zip else "git" if as_git else "folder"
    raise typer.Exit(release_command.run(clone_root("release"), out, labs, tests, kind, typer.echo))


@app.command()
def intake(
    download: Annotated[
        Path,
        typer.Argument(
            help="what Gradescope, Canvas, Moodle or GitHub Classroom gave: an archive or a folder"
        ),
    ],
    lab: Annotated[str, typer.Option(help="the lab that was handed in")],
    course: Annotated[Path, typer.Option(help="the course's folder")] = Path(),
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", help="a new folder, for those who keep no gradebook"),
    ] = None,
    assignment: Annotated[
        str, typer.Option(help="of GitHub Classroom: what stands before each login")
    ] = "",
    at: Annotated[
        str,
        typer.Option(
            help="on the course's clock: when it was handed in, for a download without times"
        ),
    ] = "",
    only: Annotated[
        str, typer.Option(help="these students alone, as in s07,s09: with --at, their time")
    ] = "",
    correct: Annotated[
        bool, typer.Option("--correct", help="--at replaces an earlier time, too")
    ] = False,
    tier: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="the wall around students' archives: sandbox, contained or process"),
    ] = None,
) -> None:
    """Take a system's download into the gradebook, matched to the roster. Its columns canvas_id and
    moodle_id hold the numbers that these systems give their students."""
    from grader.classroom.course import intake_command
    from grader.classroom.grading.coordinator import DEFAULT_TIER

    request = intake_command.IntakeRequest(
        download, course, lab, out, assignment, at, tier or DEFAULT_TIER, only, correct
    )
    raise typer.Exit(intake_command.run(kit_root(), request, typer.echo, _now()))


@app.command()
def export(
    kind: Annotated[
        str,
        typer.Argument(
            help="csv, canvas or moodle (a table); gradescope, github, junit, prairielearn; all"
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="a file; a folder for one file a result")],
    run: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="the folder of `infralens grade --out`; without it, the gradebook"),
    ] = None,
    course: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="the course's folder: its gradebook, roster, weights and ids"),
    ] = None,
    lab: Annotated[str, typer.Option(help="this lab alone")] = "",
    worksheet: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="with moodle and --lab: a downloaded grading worksheet to fill in"),
    ] = None,
    handed_in: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(help="of a run: handed-in.csv of an intake, for penalties; again for each"),
    ] = None,
    changed_since: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="an earlier export: only labs whose marks differ from it"),
    ] = None,
) -> None:
    """Write the marks of a course, or of a run, as another system reads them."""
    from grader.classroom.export import export_command

    request = export_command.ExportRequest(
        kind, out, run, course, lab, worksheet, handed_in or [], changed_since
    )
    raise typer.Exit(export_command.run(kit_root(), request, typer.echo))


@app.command()
def grade(
    submissions: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="folder of folders or archives, one a student"),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", help="the run's folder; made if need be"),
    ] = None,
    course: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="instead of both: a course's folder, whose new attempts are graded"),
    ] = None,
    labs: Annotated[Optional[str], typer.Option(help="only these, as in lab01,lab07")] = None,  # noqa: UP045
    jobs: Annotated[int, typer.Option(help="units graded at a time")] = 1,
    tier: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="the wall: sandbox (Linux; the default there), contained or process"),
    ] = None,
    course_key_file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="file with the secret behind the tests' seeds"),
    ] = None,
    feedback: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="full, diagnosis or names; without it full, or the course's level"),
    ] = None,
    executor: Annotated[
        str, typer.Option(help="local: this machine's processes; dask: a cluster")
    ] = "local",
    scheduler: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="of the Dask cluster, as in tls://node1:8786; without it, one is started"
        ),
    ] = None,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="of the cluster that is started; default: one a processor"),
    ] = None,
    resources: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="what a Dask worker must offer, and a unit takes of it, as in GPU=1"),
    ] = None,
) -> None:
    """Grade a folder of submissions, or a course's new attempts; run again to go on after an
    interruption."""
    from grader.classroom import grade_command
    from grader.classroom.grading import cluster as clusters
    from grader.classroom.grading.coordinator import DEFAULT_TIER

    tier = tier or DEFAULT_TIER
    cluster = clusters.chosen(executor, scheduler, workers, resources, jobs)
    if course is not None:
        if submissions is not None or out is not None or course_key_file is not None:
            raise LabError(
                "--course goes without SUBMISSIONS, --out and --course-key-file: attempts, results "
                "and the key are the course's own. `infralens intake` takes submissions in."
            )
        code = grade_command.run_course(
            course, kit_root(), _now(), labs, jobs=jobs, tier=tier, feedback=feedback,
            cluster=cluster,
        )  # fmt: skip
    elif submissions is None or out is None:
        raise LabError("Name the folder of submissions and, with --out, the run's; or a --course.")
    else:
        code = grade_command.run(
            submissions=submissions,
            out=out,
            labs=labs,
            jobs=jobs,
            tier=tier,
            course_key_file=course_key_file,
            feedback=feedback or "full",
            cluster=cluster,
        )
    raise typer.Exit(code)


CourseFolder = Annotated[Path, typer.Option(help="the course's folder")]
Why = Annotated[str, typer.Option(help="the reason, for those who read the history")]
WhyForAll = Annotated[
    str, typer.Option(help="the reason: the student reads it, too, beside the points")
]


@app.command()
def status(
    lab: Annotated[str, typer.Option(help="this lab, student by student")] = "",
    course: CourseFolder = Path(),
) -> None:
    """How far a course is: handed in, to grade, marks, late."""
    from rich.console import Console

    from grader.classroom.course import status_command

    show = Console().print
    raise typer.Exit(status_command.run(kit_root(), course, lab, _now(), show, typer.echo))


@app.command()
def history(
    student: Annotated[str, typer.Argument(help="an id, login or e-mail address of the roster")],
    lab: Annotated[str, typer.Argument(help="as in lab07")],
    course: CourseFolder = Path(),
) -> None:
    """The story of a mark: attempts, results, corrections, each with who, when and why."""
    from grader.classroom.course import history_command

    raise typer.Exit(history_command.run(kit_root(), course, student, lab, typer.echo))


@app.command(context_settings={"ignore_unknown_options": True})
def adjust(
    student: Annotated[str, typer.Argument(help="an id, login or e-mail address of the roster")],
    target: Annotated[str, typer.Argument(help="a lab or a task, as in lab07.merge")],
    points: Annotated[str, typer.Argument(help="as in +1 or -0.5")],
    why: WhyForAll,
    course: CourseFolder = Path(),
) -> None:
    """Give or take points by hand; the history says who did it and why."""
    from grader.classroom.course import adjust_command

    code = adjust_command.run(kit_root(), course, student, target, points, why, _now(), typer.echo)
    raise typer.Exit(code)


@app.command()
def withdraw(
    lab: Annotated[str, typer.Argument(help="as in lab07")],
    why: Why,
    student: Annotated[
        str,
        typer.Argument(
            help="an id, login or e-mail address of the roster; without it, everything that the "
            "newest intake of the lab brought"
        ),
    ] = "",
    attempt: Annotated[
        int, typer.Option(help="the attempt's number in the history; without it, the newest")
    ] = 0,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    course: CourseFolder = Path(),
) -> None:
    """Take back what was taken in by mistake: it counts for nothing, and the history has it."""
    from grader.classroom.course import withdraw_command

    request = withdraw_command.WithdrawRequest(lab, student, attempt, why, yes)
    code = withdraw_command.run(kit_root(), course, request, _now(), typer.echo, typer.confirm)
    raise typer.Exit(code)


@app.command()
def regrade(
    lab: Annotated[str, typer.Option(help="the lab whose attempts are graded again")],
    why: Why,
    course: CourseFolder = Path(),
    dry_run: Annotated[bool, typer.Option(help="show what would change, and stop")] = False,
    never_lower: Annotated[
        bool, typer.Option(help="an attempt keeps a better result that it has")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="write without asking")] = False,
    jobs: Annotated[int, typer.Option(help="units graded at a time")] = 1,
    tier: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="the wall: sandbox (Linux; the default there), contained or process"),
    ] = None,
    feedback: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="full, diagnosis or names; without it full, or the course's level"),
    ] = None,
) -> None:
    """Grade a lab's attempts by the tests as they are now, and show every mark that changes."""
    from rich.console import Console

    from grader.classroom.course import regrade_command
    from grader.classroom.grading.coordinator import DEFAULT_TIER

    options = regrade_command.Options(
        why, dry_run, never_lower, yes, jobs, tier or DEFAULT_TIER, feedback
    )
    code = regrade_command.run(
        kit_root(), course, lab, options, _now(), show=Console().print, say=typer.echo,
        confirm=typer.confirm,
    )  # fmt: skip
    raise typer.Exit(code)


@app.command()
def report(
    run: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="the folder of `infralens grade --out`; without it, a --course"),
    ] = None,
    course: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="the course's folder, whose gradebook is shown"),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", help="the HTML file; default: report.html in the run or course"),
    ] = None,
    lab: Annotated[str, typer.Option(help="this lab alone")] = "",
    student: Annotated[
        str, typer.Option(help="a page for this student, without the names of others")
    ] = "",
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="numbers instead of names and ids")
    ] = False,
    csv: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--csv", help="a folder for the same as tables"),
    ] = None,
) -> None:
    """One page on a class: what to teach, who has what, and which tasks and tests to look at."""
    from grader.classroom.report import report_command

    request = report_command.ReportRequest(run, course, out, lab, student, anonymous, csv)
    raise typer.Exit(report_command.run(kit_root(), request, typer.echo))


@app.command()
def similarity(
    lab: Annotated[str, typer.Option(help="the lab to compare, as in lab07")],
    out: Annotated[Path, typer.Option("--out", help="the HTML file to write")],
    submissions: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="folder of folders or archives, one a student"),
    ] = None,
    course: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="instead: a course's folder; each student's last attempt"),
    ] = None,
    earlier: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(help="the submissions of an earlier year; again for each year"),
    ] = None,
    table: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--csv", help="a file for every pair"),
    ] = None,
    tier: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="where texts are read: sandbox (the default on Linux), contained, process"
        ),
    ] = None,
) -> None:
    """Show which submissions of a lab are alike: a report for a person, never a mark."""
    from grader.classroom.grading.coordinator import DEFAULT_TIER
    from grader.classroom.similarity import similarity_command

    request = similarity_command.SimilarityRequest(
        lab, out, submissions, course, earlier or [], table, tier or DEFAULT_TIER
    )
    raise typer.Exit(similarity_command.run(kit_root(), request, typer.echo))


@app.command()
def site(
    out: Annotated[Path, typer.Argument(help="the folder to write: new, empty, or a former site")],
    without_class: Annotated[
        bool,
        typer.Option("--without-class", help="faster: do not grade the class that Teach shows"),
    ] = False,
) -> None:
    """Build the kit's web site: pages, pictures, hints and results, to read without a network."""
    root = clone_root("site")
    if handed_out.is_release(root):
        raise LabError("`infralens site` needs the whole kit, and this folder is a release of it.")
    from grader.site import site_command

    raise typer.Exit(site_command.run(root, out, typer.echo, not without_class))


if __name__ == "__main__":
    main()
