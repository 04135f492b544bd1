"""Dockerfile and .devcontainer: what they copy, start and name is there. No container engine is
needed, so nothing here says that the images build."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "Dockerfile", ROOT / ".devcontainer" / "Dockerfile"]
INSTRUCTIONS = {
    *("FROM", "RUN", "CMD", "LABEL", "EXPOSE", "ENV", "ADD", "COPY", "ENTRYPOINT", "VOLUME"),
    *("USER", "WORKDIR", "ARG", "SHELL", "STOPSIGNAL", "HEALTHCHECK"),
}
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


def instructions(text: str) -> list[tuple[str, str]]:
    """Instruction and rest of each line, with continued lines joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    found = []
    for line in filter(str.strip, joined.splitlines()):
        word, _, rest = line.strip().partition(" ")
        found.append((word.upper(), rest.strip()))
    return found


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
    ignored = (ROOT / ".dockerignore").read_text().split()
    copied = [words for rest in of(FILES[0], "COPY") for words in shlex.split(rest)[:-1]]
    assert {"grader", "exercises", "solutions", "tests", "pyproject.toml"} <= set(copied)
    for source in copied:
        assert (ROOT / source).exists(), source
        assert not any(fnmatch.fnmatch(source, pattern) for pattern in ignored), source
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
