"""The autograder for Gradescope: its zip, and its scripts run in a root file system as theirs."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grader.classroom.autograder import grader_kit, gradescope_bundle, gradescope_run
from grader.errors import LabError
from grader.lab.manifest import Lab, load_lab
from tests.grader.attacks.stage import Stage
from tests.grader.sandbox import made_container
from tests.grader.sandbox.made_container import ROOT, TRUSTED, ContainerSettings

METADATA = {
    "id": 1,
    "created_at": "2027-03-12T23:59:00Z",
    "assignment": {"due_date": "2027-03-12T23:59:00Z", "total_points": "7.0", "title": "lab91"},
    "users": [{"email": "ada@example.org", "id": 1, "name": "Ada"}],
    "previous_submissions": [],
}


# -- the zip --------------------------------------------------------------------------------------


def test_the_same_bytes_each_time(stage: Stage, tmp_path: Path) -> None:
    said: list[str] = []
    for name in ("one.zip", "two.zip"):
        gradescope_bundle.run(stage.kit, "lab91", tmp_path / name, said.append)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    assert "hand it to nobody" in said[-1]
    assert f"{load_lab(stage.kit, 'lab91').points:g} points" in said[1]
    assert (tmp_path / "one.zip").stat().st_mode & 0o777 == 0o600


def test_what_is_in_it(stage: Stage, lab: Lab, tmp_path: Path) -> None:
    gradescope_bundle.run(stage.kit, "lab91", tmp_path / "out.zip", print)
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        run = archive.read("run_autograder").decode()
    assert {"setup.sh", "run_autograder", "kit/pyproject.toml", "kit/grader/cli.py"} <= set(modes)
    assert {f"kit/tests/lab91/{p.name}" for p in lab.suite.glob("*.py")} <= set(modes)
    assert not [name for name in modes if "lab07" in name or "__pycache__" in name]
    assert "kit/grader/kernels/cuda/runtime" in "".join(modes)
    assert modes["run_autograder"] == modes["setup.sh"] == stat.S_IFREG | 0o755
    assert modes["kit/tests/lab91/test_answers.py"] == stat.S_IFREG | 0o600
    first = run.partition("<<'END'\n")[2].partition("\nEND\n")[0]
    assert json.loads(first) == gradescope_bundle.failed_results([lab], gradescope_bundle.FAILED)


@pytest.mark.parametrize("torch_index", ["", "https://example.org/simple; rm -rf /"])
def test_the_scripts_are_bash(stage: Stage, lab: Lab, torch_index: str) -> None:
    found = gradescope_bundle.bundle(stage.kit, [lab], torch_index=torch_index)
    for name in gradescope_bundle.PROGRAMS:
        subprocess.run(["bash", "-n"], input=found[name], check=True)
    setup = found["setup.sh"].decode()
    line = "--index-url 'https://example.org/simple; rm -rf /' 'torch>=2.6,<2.14'\n"
    assert (line in setup) == bool(torch_index)


def test_a_course_key_goes_along(stage: Stage, lab: Lab) -> None:
    found = gradescope_bundle.bundle(stage.kit, [lab], key_file=stage.key_file)
    assert found["course.key"] == stage.key_file.read_bytes()
    assert b"--course-key-file /autograder/source/course.key" in found["run_autograder"]


def test_what_cannot_be_written_is_said(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "there.zip").write_text("")
    with pytest.raises(LabError, match="is there already"):
        gradescope_bundle.run(stage.kit, "lab91", tmp_path / "there.zip", print)
    with pytest.raises(LabError, match="names no lab"):
        gradescope_bundle.run(stage.kit, ",", tmp_path / "new.zip", print)
    link = stage.kit / "tests" / "lab91" / "link.py"
    link.symlink_to("test_answers.py")
    try:
        with pytest.raises(LabError, match=r"link.py is a link"):
            grader_kit.files(stage.kit, [load_lab(stage.kit, "lab91")])
    finally:
        link.unlink()


# -- its scripts, in a root file system laid out as Gradescope's ----------------------------------

NO_CONTAINER = made_container.reason_against()
in_container = pytest.mark.skipif(bool(NO_CONTAINER), reason=f"no container: {NO_CONTAINER}")
READS = """
import os
def passphrase():
    found = []
    for place in ("/autograder/source/kit/tests/lab91/test_answers.py", "/autograder/submission",
                  "/autograder/results/results.json", "/autograder/submission_metadata.json"):
        try: os.listdir(place) if os.path.isdir(place) else open(place).read()
        except OSError as error: found.append(type(error).__name__)
        else: found.append("READ " + place)
    raise ValueError(" ".join(found))
"""


@dataclass
class Harness:
    """What became of each case."""

    answers: dict[str, dict[str, Any]]

    def results(self, name: str) -> dict[str, Any]:
        found = self.answers[name]["results"]
        assert found is not None, self.answers[name]["printed"]
        return dict(found)


def cases(stage: Stage) -> Iterator[tuple[str, dict[str, bytes], dict[str, Any], str]]:
    right = stage.right("lab91").encode()
    yield "right", {"answers.py": right}, METADATA, ""
    late = {**METADATA, "created_at": "2027-04-01T00:00:00Z"}
    late["assignment"] = {"late_due_date": "2027-03-13T00:00:00Z", "total_points": "100.0"}
    yield "late", {"answers.py": right}, late, ""
    users = [{"email": f"{n}@example.org", "id": n, "name": f"N{n}"} for n in range(3)]
    yield "group", {"answers.py": right}, {**METADATA, "users": users}, ""
    yield "half", {"answers.py": stage.armed("half", "", "control")}, METADATA, ""
    yield "nothing", {"notes.txt": b"I was ill"}, METADATA, ""
    yield "huge", {"answers.py": b"#" * 2**21}, METADATA, ""
    names = {"answers.py": right, "a\nb.py": b"", "-rf": b"", "=cmd|x": b"", "\u202ex.py": b""}
    yield "names", names, METADATA, ""
    yield "deep", {"my project/src/lab91/answers.py": right}, METADATA, ""
    yield "ends", {"answers.py": right + b"\nimport os\nos._exit(0)\n"}, METADATA, ""
    yield "reads", {"answers.py": right + READS.encode()}, METADATA, ""
    yield "ours", {"answers.py": right}, METADATA, "/bin/false"
    yield "metadata", {"answers.py": right}, {"assignment": None}, ""


@pytest.fixture(scope="module")
def harness(stage: Stage, lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Harness:
    folder = tmp_path_factory.mktemp("gradescope")
    for name in ("root", "cases", "source"):
        (folder / name).mkdir()
    zipped = folder / "autograder.zip"
    gradescope_bundle.run(stage.kit, "lab91", zipped, print)
    with zipfile.ZipFile(zipped) as archive:
        archive.extractall(folder / "source")
    for name in gradescope_bundle.PROGRAMS:  # `unzip` gives the modes, `extractall` does not
        (folder / "source" / name).chmod(0o755)
    made = {}
    for name, files, metadata, python in cases(stage):
        made[name] = folder / "cases" / name
        for path, data in files.items():
            target = made[name] / "submission" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        (made[name] / "metadata.json").write_text(json.dumps(metadata))
        if python:
            (made[name] / "python").write_text(python)
    with zipfile.ZipFile(folder / "handed-in.zip", "w") as archive:
        archive.writestr("lab91/answers.py", stage.right("lab91"))
    made["zip"] = folder / "cases" / "zip"
    (made["zip"] / "submission").mkdir(parents=True)
    (made["zip"] / "metadata.json").write_text(json.dumps(METADATA))
    (folder / "handed-in.zip").rename(made["zip"] / "submission" / "work.zip")
    module = "tests.grader.classroom.autograder.gradescope_harness"
    package = str(ROOT / "grader")
    done = made_container.run(
        ContainerSettings(
            root=str(folder / "root"),
            command=[sys.executable, "-m", module, "/cases", sys.executable],
            environment={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
            # As if it were installed: where everybody can read the package.
            shown={str(ROOT): TRUSTED, package: package},
            writable={
                str(folder / "cases"): "/cases",
                str(folder / "source"): "/autograder/source",
            },
        ),
        300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    read = {name: json.loads((path / "answer.json").read_text()) for name, path in made.items()}
    return Harness(read)


@in_container
@pytest.mark.parametrize("name", ["right", "late", "group", "deep", "names", "zip", "metadata"])
def test_a_right_answer_has_all_points(harness: Harness, lab: Lab, name: str) -> None:
    results = harness.results(name)
    assert results["score"] == lab.points, (results, harness.answers[name]["printed"])
    assert harness.answers[name]["code"] == 0
    assert results["extra_data"]["tier"] == "contained"
    assert "Graded at the tier contained." in results["output"]


@in_container
@pytest.mark.parametrize("name", ["late", "group"])
def test_nothing_of_the_metadata_decides(harness: Harness, name: str) -> None:
    def rows(found: str) -> list[Any]:
        results = harness.results(found)
        return [results["score"], results["tests"], results["output"]]

    assert rows(name) == rows("right")


@in_container
def test_other_points_of_the_assignment_are_said_to_the_instructor(harness: Harness) -> None:
    assert "The assignment has 100 points" in harness.answers["late"]["printed"]
    assert "The assignment has" not in harness.answers["metadata"]["printed"]


@in_container
def test_every_case_has_a_file_that_gradescope_takes(harness: Harness, lab: Lab) -> None:
    for name, answer in harness.answers.items():
        results = harness.results(name)
        assert answer["files"] == ["results.json"]
        assert sum(row["max_score"] for row in results["tests"]) == lab.points
        assert sum(row["score"] for row in results["tests"]) == results["score"]
        assert {row["visibility"] for row in results["tests"]} == {"visible"}, "hides the total"
        assert (results["visibility"], results["stdout_visibility"]) == ("visible", "hidden")
        assert all(row["status"] in ("passed", "failed") for row in results["tests"])
        assert "NaN" not in json.dumps(results)


@in_container
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "answers.py"),
        ("huge", "larger than"),
        ("ends", "ended itself"),
    ],
)
def test_a_bad_submission_has_no_points_and_a_reason(
    harness: Harness, name: str, said: str
) -> None:
    results = harness.results(name)
    assert (results["score"], harness.answers[name]["code"]) == (0.0, 0)
    assert said in results["output"] + "".join(row["output"] for row in results["tests"])


@in_container
def test_a_part_earns_its_part(harness: Harness, lab: Lab) -> None:
    results = harness.results("half")
    assert 0 < results["score"] < lab.points
    assert {row["status"] for row in results["tests"]} == {"passed", "failed"}


@in_container
def test_a_crash_of_ours_has_a_reason(harness: Harness, lab: Lab) -> None:
    assert harness.answers["ours"]["code"] == 1
    expected = gradescope_bundle.failed_results([lab], gradescope_bundle.FAILED)
    assert harness.results("ours") == expected
    assert "This is not a grade" in harness.results("ours")["output"]


@in_container
def test_a_submission_reads_nothing_of_the_autograder(harness: Harness) -> None:
    text = "".join(row["output"] for row in harness.results("reads")["tests"])
    assert "READ" not in text
    assert text.count("PermissionError") >= 4


def test_without_a_wall_there_is_no_grade(
    stage: Stage, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grader.classroom.autograder import one_submission
    from grader.sandbox.host_check import HostFinding, HostReport

    nothing = HostReport("process", (HostFinding("sandbox", False, "no namespaces"),))
    monkeypatch.setattr(one_submission, "check_host", lambda: nothing)
    for name in ("submission", "results"):
        (tmp_path / name).mkdir()
    assert gradescope_run.main(["lab91"], tmp_path, stage.kit) == 1
    results = json.loads((tmp_path / "results" / "results.json").read_text())
    assert results["score"] == 0.0
    assert "no namespaces" in results["output"]
    assert results["tests"][0]["max_score"] == lab.points
