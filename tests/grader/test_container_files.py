"""Dockerfile and .devcontainer: what they copy, start and name is there; and the logic by which
`benchmarks/container_files.py` runs all of their commands, which takes minutes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from benchmarks.dockerfile import Command, ImageBuild, expand, ignored, instructions
from tests.grader.sandbox import made_container
from tests.grader.sandbox.made_container import ContainerSettings

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "Dockerfile", ROOT / ".devcontainer" / "Dockerfile"]
INSTRUCTIONS = {
    *("FROM", "RUN", "CMD", "LABEL", "EXPOSE", "ENV", "ADD", "COPY", "ENTRYPOINT", "VOLUME"),
    *("USER", "WORKDIR", "ARG", "SHELL", "STOPSIGNAL", "HEALTHCHECK"),
}
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


def of(path: Path, word: str) -> list[str]:
    return [rest for name, rest in instructions(path.read_text()) if name == word]


@each_file
def test_it_is_a_dockerfile_on_a_pinned_image(path: Path) -> None:
    found = instructions(path.read_text())
    assert {word for word, _ in found} <= INSTRUCTIONS
    assert found[0][0] == "FROM"
    for image in of(path, "FROM"):
        assert re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d+-[\w.-]+", image), f"{image} is not a version"


@each_file
def test_the_python_is_one_that_the_kit_runs_on(path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    low, high = re.findall(r"3\.(\d+)", project["requires-python"])
    (image,) = of(path, "FROM")
    found = re.search(r"python:3\.(\d+)\.", image)
    assert found
    assert int(low) <= int(found[1]) < int(high)


@each_file
def test_its_shell_lines_are_sound(path: Path) -> None:
    for line in of(path, "RUN"):
        subprocess.run(["sh", "-n"], input=line.encode(), check=True)
        if "apt-get install" in line:
            assert "apt-get update" in line, "an old layer would keep an old list"
            assert "--no-install-recommends" in line
            assert "rm -rf /var/lib/apt/lists/*" in line
        if "pip install" in line:
            assert "--no-cache-dir" in line


def test_everything_that_is_copied_is_there() -> None:
    patterns = (ROOT / ".dockerignore").read_text().split()
    copied = [words for rest in of(FILES[0], "COPY") for words in shlex.split(rest)[:-1]]
    assert {"grader", "exercises", "solutions", "tests", "pyproject.toml"} <= set(copied)
    for source in copied:
        assert (ROOT / source).exists(), source
        assert not ignored(source, patterns), source
    assert not of(FILES[1], "COPY"), "learners work on the checkout itself"


def test_what_it_starts_is_a_command_of_the_kit() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    (entry,) = map(json.loads, of(FILES[0], "ENTRYPOINT"))
    (command,) = map(json.loads, of(FILES[0], "CMD"))
    assert entry[0] in scripts
    from grader import cli

    names = {
        each.name or each.callback.__name__.rstrip("_") for each in cli.app.registered_commands
    }
    assert command[0] in names


def test_extras_that_are_installed_are_the_kit_s() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    texts = [*(path.read_text() for path in FILES), (ROOT / ".devcontainer/install.sh").read_text()]
    named = [name for text in texts for row in re.findall(r"\.\[([\w,]+)\]", text)
             for name in row.split(",")]  # fmt: skip
    assert named
    assert set(named) <= set(extras)


def test_torch_is_held_to_the_same_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (torch,) = [row for row in project["dependencies"] if row.startswith("torch")]
    for path in (FILES[0], ROOT / ".devcontainer" / "install.sh"):
        assert f'"{torch}"' in path.read_text()


def test_the_grader_s_kit_is_root_s_alone() -> None:
    (folder,) = of(FILES[0], "WORKDIR")
    assert any(f"chmod 700 {folder}" in line for line in of(FILES[0], "RUN"))
    last = [word for word, _ in instructions(FILES[0].read_text())]
    assert "USER" not in last, "the tier `contained` needs root"


def test_the_container_of_learners() -> None:
    folder = ROOT / ".devcontainer"
    data = json.loads((folder / "devcontainer.json").read_text())
    path = folder / data["build"]["dockerfile"]
    assert path == FILES[1]
    assert of(path, "USER")[-1] == data["remoteUser"] != "root"
    assert any(f"useradd --create-home --shell /bin/bash {data['remoteUser']}" in line
               for line in of(path, "RUN"))  # fmt: skip
    words = shlex.split(data["postCreateCommand"])
    assert words[0] == "bash"
    assert (ROOT / words[1]).is_file()
    subprocess.run(["bash", "-n", str(ROOT / words[1])], check=True)
    home = f"/home/{data['remoteUser']}/.venv/bin"
    assert data["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"] == (
        f"{home}/python"
    )
    assert any(home in line for line in of(path, "ENV"))


# -- instructions carried out ---------------------------------------------------------------------

DOCKERFILE = """
# A comment
FROM image:1
ARG INDEX=""
ARG GIVEN=default
ENV LAST=x PATH=/own/bin:$PATH
run echo one \\
    # a comment between
    && echo two
WORKDIR /kit
WORKDIR inner
COPY a.txt b.txt ./
COPY folder folder
USER learner
RUN ["true", "$LAST"]
ENTRYPOINT ["infralens"]
CMD ["probe"]
"""


def made(tmp_path: Path, text: str) -> tuple[ImageBuild, list[Command]]:
    """An image, and what ran while it was made; RUN itself does nothing."""
    context = tmp_path / "context"
    (context / "folder" / "deep" / "__pycache__").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "folder/c.txt", "folder/deep/__pycache__/c.pyc"):
        (context / name).write_text(name)
    (context / "a.txt").chmod(0o755)
    (context / ".dockerignore").write_text("# none of it\n**/__pycache__\n")
    ran: list[Command] = []
    build = ImageBuild(tmp_path / "root", context, ran.append, {"PATH": "/bin"}, {"GIVEN": "7"})
    for word, rest in instructions(text):
        build.carry_out(word, rest)
    return build, ran


def test_instructions_are_carried_out_in_order(tmp_path: Path) -> None:
    build, (first, second) = made(tmp_path, DOCKERFILE)
    assert first.words[:2] == ["/bin/sh", "-c"]
    assert first.words[2].split() == ["echo", "one", "&&", "echo", "two"]
    assert (first.cwd, first.user) == ("/", "root")
    assert first.environment == {"INDEX": "", "GIVEN": "7", "LAST": "x", "PATH": "/own/bin:/bin"}
    assert (second.words, second.cwd, second.user) == (["true", "$LAST"], "/kit/inner", "learner")
    started = build.started(["grade", "/in"])
    assert started.words == ["infralens", "grade", "/in"]
    assert build.started().words == ["infralens", "probe"]
    assert started.environment == {"LAST": "x", "PATH": "/own/bin:/bin"}, "ARG ends with the build"


def test_copies_are_of_the_context_without_what_is_ignored(tmp_path: Path) -> None:
    made(tmp_path, DOCKERFILE)
    inner = tmp_path / "root/kit/inner"
    found = {str(path.relative_to(inner)) for path in inner.rglob("*") if path.is_file()}
    assert found == {"a.txt", "b.txt", "folder/c.txt"}
    assert (inner / "a.txt").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    "line",
    ["ADD a.txt /", "COPY --chown=1 a.txt /", "COPY *.txt /", "COPY absent /", "FROM b AS c",
     "COPY folder/deep/__pycache__ x"],
)  # fmt: skip
def test_what_is_not_understood_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        made(tmp_path, f"FROM image:1\n{line}\n")


@pytest.mark.parametrize(
    ("path", "out"),
    [("a", False), ("build", True), ("build/x", True), ("x/build", False), ("deep/x/y.pyc", True),
     ("y.pyc", True), ("build/kept", False), ("a/b/cache/c", True), ("xcache", False)],
)  # fmt: skip
def test_ignored_paths(path: str, out: bool) -> None:
    assert ignored(path, ["build", "**/*.pyc", "**/cache", "!build/kept"]) is out


def test_values_are_put_in() -> None:
    values = {"A": "1", "EMPTY": ""}
    assert expand("$A/${A}b $NONE${EMPTY:-c}${A:+d}${EMPTY:+e}${A:-f}", values) == "1/1b cd1"


def test_the_index_of_torch_is_named_where_it_is_given(tmp_path: Path) -> None:
    """Through a shell, with a pip that shows what it was called with."""
    pip = tmp_path / "pip"
    pip.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    pip.chmod(0o755)
    (line,) = [line for line in of(FILES[0], "RUN") if "TORCH_INDEX" in line]
    for index, named in (
        ("", []),
        ("https://index.example/a b", ["--index-url", "https://index.example/a b"]),
    ):
        done = subprocess.run(
            ["sh", "-c", line],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", "TORCH_INDEX": index},
            capture_output=True,
            text=True,
            check=True,
        )
        install, cache, *between, torch = done.stdout.splitlines()
        assert (install, cache) == ("install", "--no-cache-dir")
        assert between == named
        assert torch.startswith("torch>=")


# -- a root file system to run them in ------------------------------------------------------------

NO_CONTAINER = made_container.reason_against()
LOOK = """
id -u; id -g; cut -d: -f1 /proc/net/dev | tail -n +3 | wc -l
touch /etc/made 2>/dev/null && echo wrote
echo x >/shown/file 2>/dev/null && echo wrote what is shown
grep CapEff /proc/self/status; unshare -m true 2>/dev/null && echo namespace
ls /proc | grep -c '^[0-9]'; echo to a device >/dev/null; cat /shown/file
"""


@pytest.mark.skipif(bool(NO_CONTAINER), reason=f"no container: {NO_CONTAINER}")
@pytest.mark.parametrize("user", [(0, 0), (4321, 4322)], ids=["root", "user"])
def test_a_whole_root_file_system(tmp_path: Path, user: tuple[int, int]) -> None:
    """Changes in it stay; it has Docker's rights, or a user's, its own processes, no network."""
    root = tmp_path / "root"
    for name in ("dev", "proc", "sys", "etc"):
        (root / name).mkdir(parents=True)
    (tmp_path / "file").write_text("shown\n")
    programs = [name for name in ("/bin", "/lib", "/lib64", "/usr") if Path(name).exists()]
    shown = {**{name: name for name in programs}, str(tmp_path / "file"): "/shown/file"}
    settings = ContainerSettings(
        root=str(root), command=["/bin/sh", "-c", LOOK], environment={"PATH": "/usr/bin:/bin"},
        cwd="/", shown=shown, whole=True, user=user,
    )  # fmt: skip
    done = made_container.run(settings, 60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [*map(str, user), "1"], "the loopback alone"
    rights = sum(1 << number for number in made_container.DOCKERS_CAPABILITIES)
    if user == (0, 0):
        assert lines[3:5] == ["wrote", f"CapEff:\t{rights:016x}"]
        assert (root / "etc/made").is_file()
    else:
        assert lines[3] == f"CapEff:\t{0:016x}"
    assert int(lines[-2]) < 8, "only its own processes"
    assert lines[-1] == "shown"
    assert len(lines) == (7 if user == (0, 0) else 6), lines
