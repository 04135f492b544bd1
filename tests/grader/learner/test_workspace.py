"""`infralens init` and `infralens update`: a folder of one's own, and a newer kit's corrections."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from grader import durable
from grader.author.new_lab import new_lab
from grader.classroom.autograder import grader_kit
from grader.errors import LabError
from grader.lab import places, reset, shipped, skeleton
from grader.lab.manifest import clone_root, find_root, kit_root, load_lab
from grader.learner import init_workspace, update_workspace

HERE = Path(__file__).resolve().parents[3]
GIVEN = "exercises/lab90/types_lab90.py"
PAGE = "exercises/lab90/README.md"
TASKS = "exercises/lab90/running_mean.py"


@dataclass
class Shop:
    """An installed kit with one lab, of which a newer version can be made, and a learner's
    workspace of it."""

    kit: Path
    mine: Path
    version: str = "1.0.0"
    said: list[str] = field(default_factory=list)

    def init(self) -> None:
        list(init_workspace.run(self.mine))

    def ships(self, version: str, **texts: str) -> None:
        """A newer kit, in which these files have another end: GIVEN, PAGE, or the reference's
        part that everybody sees (TASKS)."""
        self.version = version
        for name, end in texts.items():
            path = self.kit / {"given": GIVEN, "page": PAGE, "tasks": TASKS}[name]
            if name == "tasks":
                path = self.kit / TASKS.replace("exercises", "solutions")
            path.write_text(path.read_text() + end)

    def update(self, dry_run: bool = False, yes: bool = True, start: Path | None = None) -> int:
        self.said = []
        return update_workspace.run(start or self.mine, dry_run, yes, self.said.append)

    def text(self, name: str) -> str:
        return (self.mine / name).read_text()

    def writes(self, name: str, text: str) -> None:
        (self.mine / name).write_text(text)

    def tells(self, *parts: str) -> bool:
        return any(all(part in line for part in parts) for line in self.said)

    def everything(self) -> dict[str, bytes]:
        return {
            path.relative_to(self.mine).as_posix(): path.read_bytes()
            for path in sorted(self.mine.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    kit = tmp_path / "package" / "kit"
    kit.mkdir(parents=True)
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(HERE / name, kit / name)
    new_lab(kit, "lab90")
    (kit / "exercises" / "README.md").write_text("# The labs\n")
    monkeypatch.setattr(places, "PACKAGED", kit)
    found = Shop(kit, tmp_path / "my-labs")
    for module in (init_workspace, update_workspace):
        monkeypatch.setattr(module, "version", lambda name: found.version)
    return found


# -- init -----------------------------------------------------------------------------------------


def test_a_workspace_has_the_exercises_and_no_answer(shop: Shop) -> None:
    shop.init()
    names = shop.everything()
    assert {GIVEN, PAGE, TASKS, "exercises/lab90/lab.toml", "exercises/README.md"} <= set(names)
    assert {"pyproject.toml", "conftest.py", ".gitignore", places.RECORD} <= set(names)
    assert b"NotImplementedError" in names[TASKS]
    assert not [name for name in names if name.startswith(("tests/", "solutions/", "grader/"))]


def test_a_lab_of_a_workspace_takes_suite_and_reference_from_the_package(shop: Shop) -> None:
    shop.init()
    lab = load_lab(find_root(shop.mine / "exercises"), "lab90")
    assert lab.exercise == shop.mine / "exercises" / "lab90"
    assert (lab.suite, lab.solution) == (shop.kit / "tests/lab90", shop.kit / "solutions/lab90")
    assert lab.shown(lab.suite / "probes.py") == "tests/lab90/probes.py"
    assert lab.shown(lab.exercise / "lab.toml") == "exercises/lab90/lab.toml"


def test_a_package_in_an_environment_inside_the_workspace_is_still_the_kit(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.init()
    inside = shop.mine / ".venv" / "kit"
    shutil.copytree(shop.kit, inside)
    monkeypatch.setattr(places, "PACKAGED", inside)
    lab = load_lab(shop.mine, "lab90")
    assert lab.shown(lab.suite / "probes.py") == "tests/lab90/probes.py"


def test_an_interrupted_init_goes_on(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    write, written = durable.write_atomically, []

    def ends(path: Path, text: str | bytes) -> None:
        written.append(path)
        if len(written) == 4:
            raise KeyboardInterrupt
        write(path, text)

    monkeypatch.setattr(durable, "write_atomically", ends)
    with pytest.raises(KeyboardInterrupt):
        shop.init()
    assert not places.is_workspace(shop.mine)
    shop.init()
    assert places.is_workspace(shop.mine)
    assert shop.update() == 0
    assert shop.tells("Nothing to do")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: p.write_text("x"), "is a file"),
        (lambda p: p.symlink_to("nowhere"), "is a link to nothing"),
        (lambda p: ((p / "exercises").mkdir(parents=True), (p / PAGE).parent.mkdir(),
                    (p / PAGE).write_text("my own")), "README.md is there already"),
        (lambda p: (p.mkdir(), (p / "exercises").symlink_to(p.parent)), "exercises is a link"),
        (lambda p: (p.mkdir(), (p / "exercises").touch()), "exercises is a file, not a folder"),
        (lambda p: (p.mkdir(), (p / "pyproject.toml").write_text("[project]\n")), "there already"),
        (lambda p: (p.mkdir(), (p / places.RECORD).write_text("{}")), "has labs already"),
        (lambda p: (p.parent / places.RECORD).write_text("{}"), "lies in the workspace"),
    ],
    ids=["file", "dead link", "page", "linked folder", "file for a folder", "project", "again",
         "nested"],
)  # fmt: skip
def test_init_writes_over_nothing(shop: Shop, make: Callable[[Path], object], said: str) -> None:
    make(shop.mine)
    before = shop.everything()
    with pytest.raises(LabError, match=said):
        shop.init()
    assert shop.everything() == before


def test_init_goes_into_a_folder_with_an_environment(shop: Shop) -> None:
    (shop.mine / ".venv").mkdir(parents=True)
    shop.init()
    assert places.is_workspace(shop.mine)


def test_init_inside_the_kit_is_refused(shop: Shop) -> None:
    shop.mine = shop.kit / "mine"
    with pytest.raises(LabError, match="lies in the kit itself"):
        shop.init()


# -- update: the cases ----------------------------------------------------------------------------


def test_nothing_to_do(shop: Shop) -> None:
    shop.init()
    before = shop.everything()
    assert shop.update() == 0
    assert shop.tells("Nothing to do", "1.0.0")
    assert shop.everything() == before


def test_what_nobody_touched_is_replaced_and_shown(shop: Shop) -> None:
    shop.init()
    shop.ships("1.0.1", given="MORE = 1\n", tasks="LATER = 2\n")
    assert shop.update() == 0
    assert shop.tells("corrected", GIVEN)
    assert shop.tells("corrected", TASKS, "not begun")
    assert shop.tells("+MORE = 1")
    assert "MORE = 1" in shop.text(GIVEN)
    assert "LATER = 2" in shop.text(TASKS)
    assert shipped.record(shop.mine).version == "1.0.1"


def test_an_edited_given_file_stays_and_the_new_one_lies_beside_it(shop: Shop) -> None:
    shop.init()
    shop.writes(GIVEN, "MINE = 1\n")
    shop.ships("1.0.1", given="MORE = 1\n")
    assert shop.update() == 0
    assert shop.tells("kept", GIVEN, "types_lab90.py.new")
    assert shop.text(GIVEN) == "MINE = 1\n"
    assert "MORE = 1" in shop.text(f"{GIVEN}.new")
    assert shop.update() == 0  # said once, and done
    assert shop.tells("Nothing to do")


def test_an_edited_file_that_the_kit_left_as_it_was_is_not_mentioned(shop: Shop) -> None:
    shop.init()
    shop.writes(GIVEN, "MINE = 1\n")
    shop.ships("1.0.1", page="More.\n")
    assert shop.update() == 0
    assert not shop.tells(GIVEN)
    assert shop.text(GIVEN) == "MINE = 1\n"


def test_begun_work_never_changes(shop: Shop) -> None:
    shop.init()
    shop.writes(TASKS, "def running_mean(values):\n    return values\n")
    shop.ships("1.0.1", tasks="LATER = 2\n")
    assert shop.update() == 0
    assert shop.tells("kept", TASKS, "new skeleton", "running_mean.py.new")
    assert shop.text(TASKS) == "def running_mean(values):\n    return values\n"
    beside = shop.text(f"{TASKS}.new")
    assert "LATER = 2" in beside
    assert "NotImplementedError" in beside


def test_a_version_that_lies_beside_is_followed_by_the_next(shop: Shop) -> None:
    """Over the kit's own, and over no other file."""
    shop.init()
    shop.writes(GIVEN, "MINE = 1\n")
    for number in (1, 2):
        shop.ships(f"1.0.{number}", given=f"MORE = {number}\n")
        assert shop.update() == 0
    assert "MORE = 2" in shop.text(f"{GIVEN}.new")
    assert not (shop.mine / f"{GIVEN}.new2").exists()
    shop.writes(f"{GIVEN}.new", "half merged\n")
    shop.ships("1.0.3", given="MORE = 3\n")
    assert shop.update() == 0
    assert shop.text(f"{GIVEN}.new") == "half merged\n"
    assert "MORE = 3" in shop.text(f"{GIVEN}.new2")


def test_a_new_lab_is_added(shop: Shop) -> None:
    shop.init()
    new_lab(shop.kit, "lab91")
    shop.version = "1.1.0"
    assert shop.update() == 0
    assert shop.tells("new", "exercises/lab91/lab.toml")
    assert load_lab(shop.mine, "lab91").suite.is_dir()


def test_what_the_learner_removed(shop: Shop) -> None:
    """A given file comes back, work does not."""
    shop.init()
    (shop.mine / GIVEN).unlink()
    (shop.mine / TASKS).unlink()
    assert shop.update() == 0
    assert shop.tells("restored", GIVEN)
    assert shop.tells("left", TASKS, "infralens reset lab90")
    assert (shop.mine / GIVEN).read_bytes() == (shop.kit / GIVEN).read_bytes()
    assert not (shop.mine / TASKS).exists()
    assert shop.update() == 0
    assert shop.tells("left", TASKS)
    reset.reset(load_lab(shop.mine, "lab90"))
    assert shop.update() == 0
    assert shop.tells("Nothing to do")


def test_what_the_kit_dropped(shop: Shop) -> None:
    shop.init()
    new_lab(shop.kit, "lab91")
    assert shop.update() == 0
    mine = shop.mine / "exercises" / "lab91" / "running_mean.py"
    mine.write_text("done = True\n")
    for tree in ("exercises", "solutions", "tests"):
        shutil.rmtree(shop.kit / tree / "lab91")
    shop.version = "2.0.0"
    assert shop.update() == 0
    assert shop.tells("removed", "lab91/lab.toml")
    assert shop.tells("left", "lab91/running_mean.py", "yours")
    assert mine.read_text() == "done = True\n"
    assert not (shop.mine / "exercises/lab91/lab.toml").exists()


def test_a_dry_run_and_a_call_without_yes_write_nothing(shop: Shop) -> None:
    shop.init()
    shop.ships("1.0.1", given="MORE = 1\n")
    before = shop.everything()
    assert shop.update(dry_run=True) == 0
    assert shop.tells("+MORE = 1")
    assert shop.update(yes=False) == 1
    assert shop.tells("infralens update --yes")
    assert shop.everything() == before


# -- update: interruptions and odd places ---------------------------------------------------------


@pytest.mark.parametrize("at", range(1, 6))
def test_an_interrupted_update_goes_on_and_loses_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Oracle: the same update without the interruption."""
    shop.init()
    shop.writes(TASKS, "mine = True\n")
    (shop.mine / "exercises/README.md").unlink()
    twin = Shop(shop.kit, shop.mine.with_name("twin"))
    shutil.copytree(shop.mine, twin.mine)
    shop.ships("1.0.1", given="MORE = 1\n", page="More.\n", tasks="LATER = 2\n")
    twin.update()
    write, written = durable.write_atomically, []

    def ends(path: Path, text: str | bytes) -> None:
        written.append(path)
        if len(written) == at:
            raise KeyboardInterrupt
        write(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "write_atomically", ends)
        with pytest.raises(KeyboardInterrupt):
            shop.update()
    assert shop.text(TASKS) == "mine = True\n"
    assert shop.update() == 0
    texts, wanted = shop.everything(), twin.everything()
    about = [json.loads(one.pop(places.RECORD)) for one in (texts, wanted)]
    assert texts == wanted
    assert about[0]["given"] == about[1]["given"]


def test_a_file_that_changes_while_the_question_waits_is_kept(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.init()
    shop.ships("1.0.1", tasks="LATER = 2\n", page="More.\n")

    def saves(say: update_workspace.Say) -> bool:
        shop.writes(TASKS, "begun = True\n")
        return True

    monkeypatch.setattr(update_workspace, "_agreed", saves)
    assert shop.update(yes=False) == 0
    assert shop.tells("left", TASKS, "changed meanwhile")
    assert shop.text(TASKS) == "begun = True\n"
    assert shop.update() == 0
    assert shop.tells("kept", TASKS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "is missing"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no `form`"),
        ('{"form": 1, "version": "1.0.0"}', "incomplete"),
        ('{"form": 1, "version": 1, "given": {}}', "incomplete"),
        ('{"form": 1, "version": "1.0.0", "given": {"../x": "y"}}', "incomplete"),
    ],
)
def test_without_a_whole_record_what_differs_is_the_learners(
    shop: Shop, text: str | None, said: str
) -> None:
    shop.init()
    shop.writes(TASKS, "mine = True\n")
    path = shop.mine / places.RECORD
    path.unlink() if text is None else path.write_text(text)
    shop.ships("1.0.1", given="MORE = 1\n")
    old = shop.text(GIVEN)
    assert shop.update() == 0
    assert shop.tells(said, "counts as yours")
    assert (shop.text(TASKS), shop.text(GIVEN)) == ("mine = True\n", old)
    assert "MORE = 1" in shop.text(f"{GIVEN}.new")
    assert shipped.record(shop.mine).version == "1.0.1"


def test_a_record_reaches_nothing_outside(shop: Shop) -> None:
    """Names in it are of files that a kit once had; one that leads away is not followed."""
    shop.init()
    victim = shop.mine.parent / "victim"
    victim.write_text("x")
    digest = shipped.sha256(b"x")
    known = shipped.record(shop.mine)
    known.given |= {"../victim": digest, str(victim): digest}
    known.write(shop.mine)
    assert shop.update() == 0
    assert victim.read_text() == "x"


@pytest.mark.parametrize("name", [GIVEN, "exercises/lab90", "exercises"])
def test_links_are_not_followed(shop: Shop, name: str) -> None:
    shop.init()
    path, elsewhere = shop.mine / name, shop.mine.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    before = (elsewhere if elsewhere.is_file() else shop.mine / GIVEN).read_bytes()
    shop.ships("1.0.1", given="MORE = 1\n")
    assert shop.update() == 0
    assert shop.tells("left", GIVEN, "link")
    assert (shop.mine / GIVEN).read_bytes() == before
    assert path.is_symlink()


def test_a_folder_in_the_place_of_a_file_is_said(shop: Shop) -> None:
    shop.init()
    (shop.mine / GIVEN).unlink()
    (shop.mine / GIVEN).mkdir()
    shop.ships("1.0.1", given="MORE = 1\n", page="More.\n")
    assert shop.update() == 0
    assert shop.tells("left", GIVEN, "not a plain file")
    assert "More." in shop.text(PAGE)


def test_a_folder_that_cannot_be_written_is_a_sentence(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.init()
    shop.ships("1.0.1", given="MORE = 1\n")
    before = shop.everything()

    def refused(path: Path, text: str | bytes) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(durable, "write_atomically", refused)
        with pytest.raises(LabError, match=r"types_lab90\.py cannot be written: Permission denied"):
            shop.update()
    assert shop.everything() == before


def test_a_workspace_that_is_newer_than_the_kit_is_left(shop: Shop) -> None:
    shop.version = "1.10.0"
    shop.init()
    shop.version = "1.9.0"
    before = shop.everything()
    with pytest.raises(LabError, match=r"1\.10\.0, and 1\.9\.0 is installed, which is older"):
        shop.update()
    assert shop.everything() == before
    assert "pip install --upgrade" in shipped.age(shop.mine, "1.9.0")
    assert "infralens update" in shipped.age(shop.mine, "1.11.0")
    assert shipped.age(shop.mine, "1.10.0") == ""


def test_a_record_of_a_newer_form_is_left(shop: Shop) -> None:
    shop.init()
    (shop.mine / places.RECORD).write_text('{"form": 2, "parts": []}')
    with pytest.raises(LabError, match="a newer kit wrote it"):
        shop.update()


def test_update_finds_the_workspace_above_and_refuses_other_places(
    shop: Shop, tmp_path: Path
) -> None:
    shop.init()
    assert shop.update(start=shop.mine / "exercises" / "lab90") == 0
    with pytest.raises(LabError, match="No workspace at or above"):
        shop.update(start=tmp_path)
    with pytest.raises(LabError, match="is not a workspace"):
        shop.update(start=shop.kit)


# -- the other commands ---------------------------------------------------------------------------


def test_a_release_is_not_shipped(shop: Shop) -> None:
    (shop.kit / "release.toml").write_text('tests = "public"\n')
    with pytest.raises(LabError, match="release of an instructor's"):
        shop.init()


def test_a_package_without_labs_says_how_to_mend_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "PACKAGED", shop.kit / "none")
    monkeypatch.setattr(places, "_PACKAGE", shop.kit.parent / "none")
    with pytest.raises(LabError, match="holds no labs"):
        shop.init()


def test_graders_take_the_package_and_authors_need_a_clone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.init()
    monkeypatch.chdir(shop.mine)
    assert kit_root() == shop.kit
    with pytest.raises(LabError, match=r"`infralens sync` needs a clone .* is a workspace"):
        clone_root("sync")
    monkeypatch.setattr(places, "clone", lambda: None)
    monkeypatch.chdir(shop.mine.parent)
    assert kit_root() == shop.kit
    with pytest.raises(LabError, match="there is none here"):
        clone_root("lint")
    with pytest.raises(LabError, match="infralens init my-labs"):
        find_root()


def test_an_autograder_takes_its_labs_from_the_clone_alone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a wheel is installed as well, its labs stay where they are."""
    package = Path(grader_kit.__file__).resolve().parents[2]
    monkeypatch.setattr(places, "PACKAGED", package / "kernels")  # in the place of grader/kit
    found = grader_kit.files(shop.kit, [load_lab(shop.kit, "lab90")])
    assert not [name for name in found if name.startswith("grader/kernels/")]
    assert {"grader/cli.py", "tests/lab90/probes.py"} <= found.keys()


def test_a_given_file_is_restored_by_update(shop: Shop) -> None:
    """What the messages promise holds."""
    shop.init()
    lab = load_lab(shop.mine, "lab90")
    assert reset.not_reset(lab) == []
    shop.writes(GIVEN, "MINE = 1\n")
    assert any("remove exercises/lab90/types_lab90.py, and" in row for row in reset.not_reset(lab))
    os.remove(shop.mine / GIVEN)
    assert any("missing" in row and "infralens update" in row for row in reset.not_reset(lab))
    shop.update()
    assert reset.not_reset(lab) == []
    assert list(skeleton.misplaced(lab)) == []
