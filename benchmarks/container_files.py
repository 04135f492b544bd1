"""Every command of `Dockerfile` and `.devcontainer`, run in order in a fresh root file system.

    python benchmarks/container_files.py [--work FOLDER] [--python PYTHON] [--only graders,learners]
                                         [--labs lab03,lab04,lab06] [--write [NAME]]

No container engine is needed. debootstrap makes Debian's smallest root, and `--python` (this one
without it) is copied into its /usr/local: the two stand in for the image after FROM. Each RUN, and
what the images are for, then runs in a container as Docker gives: its own processes, Docker's
capabilities and refusals, no network but while an image is built. For graders: `probe`, and a class
of five in lab 01 at tier `contained`, whose results must be those of this machine; the references
of `--labs` must have all points. For learners: the container's install script, `infralens next`, a
fresh lab, and `--labs` with the references. INFRALENS_PATIENCE, for a busy machine, goes along.

Debian's mirror is the one that apt is set up with, and pip gets this machine's settings.
`FOLDER/base` is made once. `--write` puts the page into `benchmarks/results/container-files.md`, or
into NAME's.
Exit status 1: a fault was found. Linux, as root.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import results_page
from compare_results import comparable, differences, load
from dockerfile import Command, ImageBuild, instructions

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.grader.sandbox import made_container  # noqa: E402
from tests.grader.sandbox.made_container import ContainerSettings  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
# What an image of Python has beside Debian's smallest root: what its modules are linked with.
PACKAGES = (
    *("ca-certificates", "netbase", "tzdata", "libssl3", "libffi8", "libsqlite3-0", "libbz2-1.0"),
    *("liblzma5", "libreadline8", "zlib1g", "libuuid1", "libncursesw6", "libexpat1"),
)
MODULES = "import bz2, ctypes, lzma, readline, sqlite3, ssl, uuid, zlib"
LAB, FILE = "lab01", "memory_accounting.py"
WORKSPACE = "/workspaces/infralens-labs"
MINUTES_15 = 900.0


class StepFailed(Exception):
    """A command of an image ended with an exit status that it should not end with."""


@dataclass(frozen=True)
class MachinesPip:
    """This machine's pip settings for a root: the environment, the configuration file's text, and
    the paths that the two name."""

    environment: Mapping[str, str]
    configuration: str
    paths: Sequence[str]


@dataclass
class Page:
    """What was run, and what was wrong."""

    rows: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def expect(self, right: bool, fault: str) -> None:
        if not right:
            self.faults.append(fault)


# -- FROM -----------------------------------------------------------------------------------------


def output(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def mirror() -> tuple[str, str]:
    """Debian's mirror and release, as apt is set up here."""
    shown = output("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)")
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    for row in shown.splitlines():
        site, name, component = row.split()
        if (name, component) == (release, "main"):
            return site, release
    raise SystemExit(f"apt is set up with no mirror of {release}: run `apt-get update` first.")


def make_base(folder: Path, python: str) -> None:
    """Debian's smallest root with this Python in /usr/local and pip beside it."""
    if (folder / "usr/local/bin/python").exists():
        return
    site, release = mirror()
    include = f"--include={','.join(PACKAGES)}"
    subprocess.run(
        ["debootstrap", "--variant=minbase", include, release, str(folder), site],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    shutil.rmtree(folder / "var/cache/apt/archives")
    asked = "import sys; print(sys.base_prefix, '%d.%d' % sys.version_info[:2])"
    prefix, version = output(python, "-c", asked).split()
    if prefix == "/usr":
        raise SystemExit(f"{python} is Debian's: give one with a folder of its own.")
    left_out = shutil.ignore_patterns("site-packages", "test", "__pycache__", "*.a")
    local = folder / "usr/local"
    for name in (f"lib/python{version}", f"include/python{version}"):
        shutil.copytree(Path(prefix, name), local / name, symlinks=True, ignore=left_out)
    (local / f"lib/python{version}/site-packages").mkdir()
    shutil.copy(Path(prefix, f"bin/python{version}"), local / "bin")
    for library in Path(prefix, "lib").glob("libpython*.so*"):
        shutil.copy(library, local / "lib", follow_symlinks=False)
    (local / "bin/python3").symlink_to(f"python{version}")
    for command in (
        ["ldconfig"],
        ["python3", "-c", MODULES],
        ["python3", "-m", "ensurepip", "--default-pip"],
    ):
        done = contained(folder, Command(command, {"PATH": PATH}, "/", "root"))
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} in the base: {done.stdout}{done.stderr}")
    (local / "bin/python").symlink_to("python3")  # last: the base is whole


# -- containers -----------------------------------------------------------------------------------


def user_of(root: Path, name: str) -> tuple[int, int, str]:
    """uid, gid and home of a user of a root."""
    for row in (root / "etc/passwd").read_text(encoding="utf-8").splitlines():
        fields = row.split(":")
        if fields[0] == name:
            return int(fields[2]), int(fields[3]), fields[5]
    raise SystemExit(f"{root} has no user {name}")


def contained(
    root: Path,
    command: Command,
    shown: Mapping[str, str] | None = None,
    writable: Mapping[str, str] | None = None,
    network: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command in a container whose files are a root's."""
    uid, gid, home = user_of(root, command.user)
    patience = {name: os.environ[name] for name in ("INFRALENS_PATIENCE",) if name in os.environ}
    settings = ContainerSettings(
        root=str(root),
        command=command.words,
        environment={"HOME": home, **patience, **command.environment},
        cwd=command.cwd,
        shown=shown or {},
        writable=writable or {},
        whole=True,
        network=network,
        user=(uid, gid),
    )
    return made_container.run(settings, MINUTES_15)


def machines_pip() -> MachinesPip:
    """pip's settings here: of its files as one text, of its environment as they are."""
    environment = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    sections: dict[str, list[str]] = {}
    values = [*environment.values()]
    for row in output(sys.executable, "-m", "pip", "config", "list").splitlines():
        name, _, quoted = row.partition("=")
        section, _, option = name.partition(".")
        if section != ":env:":
            value = ast.literal_eval(quoted)
            sections.setdefault(section, []).append(f"{option} = {' '.join(value.split())}")
            values.append(value)
    lines = [line for name, rows in sections.items() for line in (f"[{name}]", *rows)]
    words = [word for value in values for word in value.split()]
    # An index of files links to its neighbours.
    paths = [str(Path(urlsplit(word).path).parent) for word in words if word.startswith("file:")]
    paths += [word for word in words if word.startswith("/")]
    return MachinesPip(
        environment,
        "\n".join(lines) + "\n",
        sorted({path for path in paths if os.path.exists(path)}),
    )


@contextmanager
def reaching_registries() -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Environment and shown paths with which a root's apt and pip reach what this machine's do."""
    pip = machines_pip()
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(pip.configuration)
        file.flush()
        os.chmod(file.name, 0o644)
        shown = {path: path for path in (*pip.paths, "/etc/hosts", "/etc/resolv.conf")}
        yield dict(pip.environment), {**shown, file.name: "/etc/pip.conf"}


# -- images ---------------------------------------------------------------------------------------


class Runner:
    """Runs commands in one image's root, times them, and keeps what they printed."""

    def __init__(self, name: str, root: Path, logs: Path, page: Page) -> None:
        self.name = name
        self.root = root
        self.log = logs / f"{name}.log"
        self.log.write_text("", encoding="utf-8")
        self.page = page

    def built(self, command: Command) -> None:
        """RUN: with the network and this machine's settings. Raises StepFailed."""
        with reaching_registries() as (environment, shown):
            words = Command(
                command.words,
                {**command.environment, **environment},
                command.cwd,
                command.user,
            )
            self.ran(words, shown=shown, network=True, text=f"RUN {command.words[-1]}")

    def ran(
        self,
        command: Command,
        expected: int = 0,
        text: str = "",
        shown: Mapping[str, str] | None = None,
        writable: Mapping[str, str] | None = None,
        network: bool = False,
    ) -> str:
        """What it printed. Raises StepFailed for an exit status other than the expected one."""
        started = time.monotonic()
        done = contained(self.root, command, shown, writable, network)
        seconds = time.monotonic() - started
        text = " ".join((text or " ".join(command.words)).split())
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"$ {text}\n{done.stdout}{done.stderr}\n[{done.returncode}]\n")
        row = f"| {self.name} | `{text}` | {command.user} | {done.returncode} | {seconds:.0f} |"
        self.page.rows.append(row.replace("||", "\\|\\|"))
        print(row, flush=True)
        if done.returncode != expected:
            raise StepFailed(
                f"{self.name}: `{text}` ended with {done.returncode}, not {expected}; the end of "
                f"{self.log}: {(done.stdout + done.stderr)[-2000:]}"
            )
        return done.stdout + done.stderr


def make_image(runner: Runner, path: Path, context: Path, base: Path) -> ImageBuild:
    """All instructions of a Dockerfile, in order, on a copy of the base."""
    shutil.rmtree(runner.root, ignore_errors=True)
    subprocess.run(["cp", "-a", str(base), str(runner.root)], check=True)
    build = ImageBuild(runner.root, context, runner.built, {"PATH": PATH})
    for word, rest in instructions(path.read_text(encoding="utf-8")):
        build.carry_out(word, rest)
    return build


def megabytes(folder: Path) -> int:
    return int(output("du", "-sm", "--one-file-system", str(folder)).split()[0])


# -- graders --------------------------------------------------------------------------------------


def write_class(folder: Path, labs: Sequence[str]) -> None:
    """The references, a wrong answer of the kit's class, a fresh skeleton, a syntax error, and one
    that would have all points if it could read the references."""
    for lab in labs:
        shutil.copytree(ROOT / "solutions" / lab, folder / "right" / lab)
    right = (ROOT / "solutions" / LAB / FILE).read_text(encoding="utf-8")
    places = [f"/kit/solutions/{LAB}/{FILE}", str(ROOT / "solutions" / LAB / FILE)]
    marek = ROOT / "tests" / "grader" / "submissions" / "marek" / LAB / FILE
    spy = (
        f"for path in {places!r}:\n"
        "    try:\n"
        "        exec(open(path).read(), globals())\n"
        "    except OSError:\n"
        "        pass\n"
    )
    for name, text in {
        "right": right,
        "wrong": marek.read_text(encoding="utf-8"),
        "fresh": (ROOT / "exercises" / LAB / FILE).read_text(encoding="utf-8"),
        "broken": right.replace("def ", "def def ", 1),
        "spy": spy,
    }.items():
        (folder / name / LAB).mkdir(parents=True)
        (folder / name / LAB / FILE).write_text(text, encoding="utf-8")


def of_graders(base: Path, work: Path, labs: Sequence[str], page: Page) -> None:
    runner = Runner("graders", work / "graders", work, page)
    build = make_image(runner, ROOT / "Dockerfile", ROOT, base)
    page.notes.append(f"The root of graders has {megabytes(runner.root):,} MB.")
    said = runner.ran(build.started())
    page.expect("Tier reached: contained." in said, f"graders: probe says {said}")
    with tempfile.TemporaryDirectory(dir=work) as name:
        place = Path(name)
        write_class(place / "in", labs)
        (place / "out").mkdir()
        runner.ran(
            build.started(["grade", "/in", "--out", "/out", "--tier", "contained"]),
            shown={str(place / "in"): "/in"},
            writable={str(place / "out"): "/out"},
        )
        subprocess.run(
            [
                *(sys.executable, "-m", "grader.cli", "grade", str(place / "in")),
                *("--out", str(place / "here"), "--tier", "process", "--labs", LAB),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        compare(load(place / "out"), load(place / "here"), page)


def compare(there: Mapping[str, dict], here: Mapping[str, dict], page: Page) -> None:
    """The container's results with those of tier `process` here: they are equal but the spy's,
    which reads the references here."""
    scores = {name: result["score"] for name, result in there.items()}
    listed = ", ".join(f"{name} {score:g}" for name, score in scores.items())
    page.notes.append(f"Points at tier `contained`: {listed}.")
    for name in {name for name in there if name.endswith(f"/{LAB}")} | here.keys():
        if name not in there or name not in here:
            page.faults.append(f"{name}: graded in one place only")
        elif not name.startswith("spy/"):
            both = [comparable(each[name], {}, False) for each in (there, here)]
            for each in both:
                del each["tier"]
            page.faults += [f"{name}: {line}" for line in differences(*both, "")]
    for name, result in there.items():
        if name.startswith("right/"):
            full = result["score"] == result["max_score"] > 0
            page.expect(full, f"{name}: the reference has not all points")
    spy = here[f"spy/{LAB}"]
    page.expect(scores[f"spy/{LAB}"] == 0, "a submission read the references")
    page.expect(spy["score"] == spy["max_score"], "the spy cannot spy: it shows nothing")


# -- learners -------------------------------------------------------------------------------------


def of_learners(base: Path, work: Path, labs: Sequence[str], page: Page) -> None:
    runner = Runner("learners", work / "learners", work, page)
    folder = ROOT / ".devcontainer"
    settings = json.loads((folder / "devcontainer.json").read_text(encoding="utf-8"))
    build = make_image(runner, folder / settings["build"]["dockerfile"], folder, base)
    user = settings["remoteUser"]
    uid, gid, _ = user_of(runner.root, user)
    checkout = runner.root / WORKSPACE.lstrip("/")
    checkout.mkdir(parents=True)
    files = output("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others",
                   "--exclude-standard").split("\0")  # fmt: skip
    for name in filter(None, files):
        if (ROOT / name).exists():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, checkout / name)
    # The tool that makes the container gives its user the uid of the checkout's owner.
    subprocess.run(["chown", "-R", f"{uid}:{gid}", str(runner.root / "workspaces")], check=True)

    def typed(line: str) -> Command:
        return Command(["/bin/bash", "-c", line], build.environment, WORKSPACE, user)

    containers = dict.fromkeys(settings["containerEnv"], "")  # unset where it is made
    install = typed(settings["postCreateCommand"])
    with reaching_registries() as (environment, shown):
        command = Command(
            install.words, {**install.environment, **containers, **environment}, WORKSPACE, user
        )
        text = settings["postCreateCommand"]
        said = runner.ran(command, text=text, shown=shown, network=True)
    page.expect("pytest exercises/lab01" in said, "learners: the script does not end with a lab")
    page.notes.append(f"The root of learners has {megabytes(runner.root):,} MB.")
    runner.ran(typed("infralens next"), text="infralens next")
    said = runner.ran(typed(f"pytest exercises/{LAB}"), 1, f"pytest exercises/{LAB}")
    page.expect("where one starts" in said, f"learners: the board of {LAB} is not a fresh one")
    for lab in labs:
        for path in (checkout / "solutions" / lab).iterdir():
            if path.is_file():
                shutil.copy(path, checkout / "exercises" / lab)
        text = f"pytest exercises/{lab}"
        runner.ran(typed(text), text=f"{text} # with the reference")


def page_lines(page: Page, python: str, base: Path) -> list[str]:
    version = output(python, "-c", "import platform; print(platform.python_version())").strip()
    release = platform.freedesktop_os_release()["PRETTY_NAME"]
    image = re.search(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert image
    patience = os.environ.get("INFRALENS_PATIENCE")
    stretched = f"INFRALENS_PATIENCE={patience} " if patience else ""
    return [
        "# The files for containers, executed",
        "",
        results_page.made(f"{stretched}python benchmarks/container_files.py"),
        "",
        "Every instruction of `Dockerfile` and `.devcontainer/Dockerfile` in order, then what the "
        "images are for. No container engine ran: this shows that the commands work, not that an "
        "engine builds the images.",
        "",
        f"- In place of `{image[1]}`: debootstrap's minbase root of {release}, with Python "
        f"{version} copied into its `/usr/local` and ensurepip's pip: {megabytes(base):,} MB.",
        "- In place of an engine: namespaces, Docker's default capabilities, and what its filter "
        "refuses about namespaces and mounts. Without a network but while an image is built.",
        "- `TORCH_INDEX` was empty: pip found a CPU build of PyTorch by this machine's settings.",
        "- In place of the tool that makes a devcontainer: a checkout of the kit that belongs to "
        "the user of `devcontainer.json`, and its `postCreateCommand`.",
        "",
        "| image | command | user | exit status | s |",
        "|---|---|---|---|---|",
        *page.rows,
        "",
        *(f"- {note}" for note in page.notes),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--labs", default="lab03,lab04,lab06")
    parser.add_argument("--only", default="graders,learners")
    parser.add_argument("--write", nargs="?", const="container-files", metavar="NAME")
    options = parser.parse_args()
    if reason := made_container.reason_against():
        raise SystemExit(f"No container can be made here: {reason}.")
    page = Page()
    labs = options.labs.split(",")
    with tempfile.TemporaryDirectory() as name:
        work = (options.work or Path(name)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        base = work / "base"
        make_base(base, options.python)
        try:
            if "graders" in options.only:
                of_graders(base, work, labs, page)
            if "learners" in options.only:
                of_learners(base, work, labs, page)
        except StepFailed as error:
            page.faults.append(str(error))
        lines = page_lines(page, options.python, base)
    target = RESULTS / f"{options.write}.md" if options.write else None
    raise SystemExit(results_page.told(lines, page.faults, target))


if __name__ == "__main__":
    main()
