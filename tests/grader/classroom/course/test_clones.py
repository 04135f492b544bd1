"""GitHub Classroom's clones: when the last commit was made, without running git beside it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import zlib
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import Path

import pytest

from grader.classroom.intake import downloads, git_commit
from grader.classroom.intake.git_commit import NoCommit, last_commit

WHEN = datetime(2027, 3, 12, 21, 0, 4, tzinfo=UTC)
FILE = "trace_analysis.py"


def git(folder: Path, *arguments: str, at: str = "") -> str:
    """Git itself, for what the tests make."""
    settings = ["-c", "user.name=A", "-c", "user.email=a@x.org", "-c", "commit.gpgsign=false"]
    given = {
        **os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_COMMITTER_DATE": at or f"{int(WHEN.timestamp())} +0530",
    }  # fmt: skip
    done = subprocess.run(
        ["git", *settings, *arguments], cwd=folder, env=given, check=True, capture_output=True,
        text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with one commit, of a student ten and a half time zones to the east."""
    folder = tmp_path / "download" / "lab09-ann-x"
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / FILE).write_text("x = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "mine")
    return folder


def why(clone: Path) -> str:
    with pytest.raises(NoCommit) as error:
        last_commit(clone)
    return str(error.value)


def damaged(path: Path, at: int, value: bytes) -> None:
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    path.write_bytes(data)


def loose(clone: Path) -> Path:
    name = git(clone, "rev-parse", "HEAD")
    return clone / ".git" / "objects" / name[:2] / name[2:]


# -- clones as they are ---------------------------------------------------------------------------


def test_a_loose_commit(clone: Path) -> None:
    found = last_commit(clone)
    assert found == (git(clone, "rev-parse", "HEAD"), WHEN)


def test_a_packed_commit_and_a_packed_ref(clone: Path) -> None:
    git(clone, "gc", "-q")
    assert not loose(clone).exists()
    assert not (clone / ".git/refs/heads/main").exists()
    assert last_commit(clone).at == WHEN


def test_commits_that_are_deltas_of_others(clone: Path) -> None:
    for number in range(60):
        git(clone, "commit", "-q", "--allow-empty", "-m", f"{number} " + "the same words " * 50)
    names = git(clone, "rev-list", "--all").split()
    git(clone, "gc", "-q", "--aggressive")
    listed = git(clone, "verify-pack", "-v", *map(str, (clone / ".git/objects/pack").glob("*.idx")))
    deltas = [row for row in listed.splitlines() if " commit " in row and len(row.split()) == 7]
    assert len(deltas) > 20, "this is what the test is about"
    for name in names:
        (clone / ".git/HEAD").write_text(f"{name}\n")
        assert last_commit(clone) == (name, WHEN)


def test_a_detached_head_a_shallow_clone_and_sha256(clone: Path, tmp_path: Path) -> None:
    git(clone, "commit", "-q", "--allow-empty", "-m", "more")
    git(clone, "checkout", "-q", "--detach")
    assert last_commit(clone).at == WHEN
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{clone}", "shallow")
    assert (tmp_path / "shallow/.git/shallow").exists()
    assert last_commit(tmp_path / "shallow").at == WHEN
    git(tmp_path, "init", "-q", "--object-format=sha256", "wide")
    git(tmp_path / "wide", "commit", "-q", "--allow-empty", "-m", "x")
    assert last_commit(tmp_path / "wide").at == WHEN


@pytest.mark.parametrize("offset", ["+0000", "-0330", "+1400", "+5130"])
def test_an_offset_does_not_move_the_moment(clone: Path, offset: str) -> None:
    at = f"{int(WHEN.timestamp())} {offset}"
    git(clone, "commit", "-q", "--allow-empty", "-m", "x", at=at)
    assert last_commit(clone).at == WHEN


def test_it_is_when_it_was_committed_and_not_when_it_was_written(clone: Path) -> None:
    git(clone, "commit", "-q", "--allow-empty", "-m", "x", "--date", "2001-01-01T00:00:00Z")
    assert last_commit(clone).at == WHEN


# -- clones as nobody wants them ------------------------------------------------------------------


def test_a_clone_without_a_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "empty")
    assert why(tmp_path / "empty") == "has no commit"


def test_a_configuration_starts_nothing(clone: Path, tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {witness}\n")
    script.chmod(0o755)
    with (clone / ".git/config").open("a") as file:
        file.write(
            f'[core]\nfsmonitor = {script}\npager = {script}\nhooksPath = {tmp_path}\n'
            f'sshCommand = {script}\n[gpg]\nprogram = {script}\n[include]\npath = {script}\n'
            f'[alias]\nlog = !{script}\n[extensions]\npartialClone = origin\n'
        )  # fmt: skip
    assert last_commit(clone).at == WHEN
    assert [part.at for part in downloads.parts(clone.parent, "lab09")] == [WHEN]
    assert not witness.exists()


def test_a_git_folder_elsewhere_is_not_followed(clone: Path, tmp_path: Path) -> None:
    (clone / ".git").rename(tmp_path / "elsewhere")
    (clone / ".git").write_text(f"gitdir: {tmp_path / 'elsewhere'}\n")
    assert why(clone) == "keeps its commits elsewhere (.git is not a folder), and is not followed"
    (clone / ".git").unlink()
    (clone / ".git").symlink_to(tmp_path / "elsewhere")
    assert "is not a folder" in why(clone)


@pytest.mark.parametrize("name", ["HEAD", "objects", "refs", "refs/heads/main"])
def test_no_link_is_followed(clone: Path, tmp_path: Path, name: str) -> None:
    (clone / ".git" / name).rename(tmp_path / "elsewhere")
    (clone / ".git" / name).symlink_to(tmp_path / "elsewhere")
    why(clone)


def test_a_pipe_is_not_waited_for(clone: Path) -> None:
    (clone / ".git/HEAD").unlink()
    os.mkfifo(clone / ".git/HEAD")
    assert why(clone) == "has something else where a file should be"


@pytest.mark.parametrize(
    ("head", "clause"),
    [
        ("", "has a HEAD that names no commit"),
        ("0" * 39, "has a HEAD that names no commit"),
        ("0" * 40, "lacks the commit that it names"),
        ("ref: ../../../etc/passwd", "has a HEAD that does not name a branch"),
        ("ref: refs/../../../etc/passwd", "has a HEAD that does not name a branch"),
        ("ref: refs/heads/none", "has no commit"),
        ("ref: refs/heads/.invalid", "has no commit"),
        ("ref: refs/heads", "has something else where a file should be"),
        ("ref: refs/heads/main\x00/x", "does not name a branch"),
        ("ref: refs/" + "a" * 300, "cannot be read"),
        ("\x1b[31m" * 2000, "has a HEAD that names no commit"),
    ],
)
def test_an_odd_head(clone: Path, head: str, clause: str) -> None:
    (clone / ".git/HEAD").write_text(head)
    assert clause in why(clone)


def test_branches_that_name_each_other(clone: Path) -> None:
    (clone / ".git/refs/heads/main").write_text("ref: refs/heads/other")
    (clone / ".git/refs/heads/other").write_text("ref: refs/heads/main")
    assert why(clone) == "has branches that name each other"


def test_a_damaged_commit(clone: Path) -> None:
    damaged(loose(clone), 10, b"\xff\xff")
    assert "damaged" in why(clone)


def test_a_commit_with_another_time_than_its_hash_says(clone: Path) -> None:
    path = loose(clone)
    data = zlib.decompress(path.read_bytes()).replace(b"18", b"17")
    path.chmod(0o600)
    path.write_bytes(zlib.compress(data))
    assert why(clone) == "has a damaged commit"


def written(clone: Path, kind: bytes, data: bytes) -> None:
    whole = b"%s %d\0" % (kind, len(data)) + data
    name = sha1(whole).hexdigest()
    path = clone / ".git/objects" / name[:2] / name[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(zlib.compress(whole))
    (clone / ".git/HEAD").write_text(name)


def test_objects_that_are_no_answer(clone: Path) -> None:
    written(clone, b"blob", b"committer A <a> 1 +0000\n")
    assert why(clone) == "has a HEAD that is not a commit"
    written(clone, b"commit", bytes(2 * 2**20))
    assert why(clone) == "has a commit of more than 1 MiB"
    far = b"committer A <a> 9" + b"9" * 19 + b" +0000"
    for text in (b"", b"\n\ncommitter A <a> 1 +0000\n", far):
        written(clone, b"commit", text)
        assert last_commit(clone).at is None


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_pack_is_a_clause(clone: Path, seed: int) -> None:
    """Every byte of the pack and of its index in turn, by threes: never an error of another kind,
    and never another commit."""
    git(clone, "commit", "-q", "--allow-empty", "-m", "more")
    git(clone, "gc", "-q", "--aggressive")
    (pack,) = (clone / ".git/objects/pack").glob("*.pack")
    for path in (pack, pack.with_suffix(".idx")):
        path.chmod(0o600)
        good = path.read_bytes()
        for at in range(seed, len(good), 3):
            damaged(path, at, bytes([good[at] ^ (0xFF, 0x80, 0x01)[seed]]))
            with contextlib.suppress(NoCommit):
                assert last_commit(clone).at == WHEN
            path.write_bytes(good)
        path.write_bytes(good[: len(good) // 2])
        why(clone)
        path.write_bytes(good)


# -- in a download --------------------------------------------------------------------------------


def test_whose_clock_it_is(clone: Path) -> None:
    (part,) = downloads.parts(clone.parent, "lab09")
    assert (part.at, part.at_from, part.note) == (WHEN, "last commit", "")


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("@0 +0000", "was committed in 1970, by a clock that is wrong: its time is not known"),
        ("@631151999 +0000", "was committed in 1989, by a clock that is wrong"),
    ],
)
def test_a_clock_that_is_wrong(clone: Path, at: str, words: str) -> None:
    git(clone, "commit", "-q", "--allow-empty", "-m", "x", at=at)
    (part,) = downloads.parts(clone.parent, "lab09")
    assert part.at is None
    assert words in part.note


def test_a_clone_that_is_a_link_is_not_looked_at(clone: Path, tmp_path: Path) -> None:
    clone.rename(tmp_path / "elsewhere")
    clone.symlink_to(tmp_path / "elsewhere")
    (clone.parent / "lab09-bobby" / ".git").mkdir(parents=True)
    (part,) = downloads.parts(clone.parent, "lab09")
    assert part.login == "bobby"
    assert "is not known" in part.note


def test_limits() -> None:
    assert git_commit.MOST_COMMIT_BYTES == 2**20
    assert datetime(1990, 1, 1, tzinfo=UTC) == downloads.OLDEST
