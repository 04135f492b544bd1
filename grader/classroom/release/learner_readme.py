"""The first page of a release: what is in it, and what to type."""

from __future__ import annotations

from collections.abc import Sequence

from grader.lab import handed_out
from grader.lab.handed_out import Tests
from grader.lab.manifest import Lab

_TESTS: dict[Tests, str] = {
    "all": (
        "The whole test suites are here, as the grader runs them, but for its secret inputs. "
        "`tests/labNN/known-mistakes.md` lists what is often misunderstood."
    ),
    "public": (
        f"{handed_out.PUBLIC_TESTS_SAID} A task that passes them has the right shape; it has its "
        "points when the hidden tests pass, too."
    ),
    "none": (
        "This release holds no tests. Write your answers and hand them in: your instructor's "
        "grader has the tests. `pytest exercises` and `infralens watch` say so."
    ),
}


def text(labs: Sequence[Lab], tests: Tests) -> str:
    """The page."""
    first = labs[0]
    run = f"pytest exercises/{first.id}" if tests != "none" else "infralens list"
    lines = [
        "# InfraLens Labs",
        "",
        "Each lab is a page, and files with TODOs that you fill in. Linux, Python 3.11 to 3.13, no "
        "GPU needed.",
        "",
        "```bash",
        f"python3 -m venv .venv && . .venv/bin/activate && pip install -e . && {run}",
        "```",
        "",
        "On Linux, PyPI's `torch` brings 2.7 GB of CUDA libraries. Without a GPU, install the CPU",
        "build first, from the index that",
        "[PyTorch's install page](https://pytorch.org/get-started/locally/) names for your system.",
        "",
        "| lab | topic | you write |",
        "|---|---|---|",
        *map(_row, labs),
        "",
        "## Tests",
        "",
        _TESTS[tests],
        "",
        "## Commands",
        "",
        "```bash",
        *_commands(first, tests),
        "```",
        "",
        "[exercises/README.md](exercises/README.md) tells more. The references are not here, so",
        "`infralens compare`, `drill` and `interview` have nothing to ask. A newer release goes",
        "into a new folder: copy your own files over, those in the table above.",
        "",
        "Licence: Apache-2.0.",
        "",
    ]
    return "\n".join(lines)


def _row(lab: Lab) -> str:
    files = ", ".join(f"`{name}`" for name in lab.edit)
    return f"| [{lab.id}](exercises/{lab.id}/README.md) | {lab.title} | {files} |"


def _commands(lab: Lab, tests: Tests) -> list[str]:
    task = lab.tasks[0]
    running = [
        f"pytest exercises/{lab.id}            # a lab, once",
        f"pytest exercises/{lab.id}/{task.file}::{task.id}    # one task",
        f"infralens watch {lab.id}             # answers each save",
        "infralens                         # the board: every lab, and the next task",
    ]
    return [
        *(running if tests != "none" else []),
        "infralens list                    # every task: minutes, points, state",
        f"infralens hint {task.name}    # one hint more each time",
        f"infralens reset {lab.id}             # the skeleton again; your files are kept",
    ]
