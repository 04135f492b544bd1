"""Downloads as they come, archives: unpacked with limits, into a folder that does not stay.

What is not a plain file costs itself alone; what makes the archive doubtful costs the command one
sentence, and nothing is written.
"""

from __future__ import annotations

import csv
import io
import os
import random
import re
import signal
import stat
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from grader.classroom.course import intake_command
from grader.classroom.intake import unpacked_download
from grader.classroom.intake.archive_reader import ArchiveReader
from grader.classroom.intake.submissions import Submissions
from grader.errors import LabError
from grader.lab.manifest import load_lab

ROOT = Path(__file__).resolve().parents[4]
LAB = load_lab(ROOT, "lab09")
FILE = "trace_analysis.py"
NOW = datetime(2027, 4, 1, tzinfo=UTC)
ROSTER = (
    "id,name,email,github,canvas_id,moodle_id\n"
    "u1,Ann Lee,ann@x.org,ann-x,501,9001\n"
    "u2,Bob van Dijk,bob@x.org,bobby,502,9002\n"
    "u3,Zoë Müller,zoe@x.org,zoe,503,9003\n"
)
COURSE = 'name = "c"\ntimezone = "Europe/Zurich"\n[lab.lab09]\ndue = 2027-03-12T23:59:00\n'
LIST = """---
submission_11:
  :submitters:
  - :name: Ann Lee
    :sid: u1
    :email: ann@x.org
  :created_at: 2027-03-12 21:00:04.218560000 Z
submission_12:
  :submitters:
  - :name: Bob van Dijk
    :sid: u2
    :email: bob@x.org
  :created_at: 2027-03-13 12:00:00.000000000 Z
"""
GRADESCOPE = {
    "submission_metadata.yml": LIST,
    f"submission_11/{FILE}": "ann\n",
    f"submission_12/{FILE}": "bob\n",
}
CANVAS = {
    f"leeann_501_7001_{FILE}": "ann\n",
    "vandijkbob_LATE_502_7002_trace_analysis-2.py": "bob\n",
}
MOODLE = {
    f"Ann Lee_9001_assignsubmission_file_/{FILE}": "ann\n",
    f"Zoë Müller_42_assignsubmission_file_/{FILE}": "zoe\n",
}
Entries = dict[str, str | bytes]


@dataclass
class Told:
    code: int
    said: str
    files: dict[str, str]
    rows: list[dict[str, str]]


@dataclass
class Desk:
    """A teacher's desk: a course, a place for temporary folders, and what was taken in."""

    folder: Path
    temporary: Path
    outs: int = 0

    def pack(self, entries: Entries, name: str = "submissions.zip") -> Path:
        path = self.folder / name
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for entry, data in entries.items():
                file.writestr(entry, data)
        return path

    def take(self, download: Path, assignment: str = "", **options: str) -> Told:
        said: list[str] = []
        self.outs += 1
        out = self.folder / f"out{self.outs}"
        request = intake_command.IntakeRequest(
            download, self.folder / "course", "lab09", out, assignment, **options
        )
        code = intake_command.run(ROOT, request, said.append, NOW)
        assert self.left() == []
        files = {
            str(path.relative_to(out)): path.read_text()
            for path in sorted(out.rglob("*"))
            if path.is_file() and path.name != "handed-in.csv"
        }
        rows = list(csv.DictReader(io.StringIO((out / "handed-in.csv").read_text())))
        return Told(code, "\n".join(said), files, rows)

    def refusal(self, download: Path) -> str:
        """Why nothing is taken in; and nothing is written."""
        with pytest.raises(LabError) as error:
            self.take(download)
        assert self.left() == []
        assert not (self.folder / f"out{self.outs}").exists()
        return str(error.value)

    def left(self) -> list[str]:
        return os.listdir(self.temporary)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    (tmp_path / "course").mkdir()
    (tmp_path / "course" / "course.toml").write_text(COURSE)
    (tmp_path / "course" / "roster.csv").write_text(ROSTER)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    return Desk(tmp_path, temporary)


# -- as they come ---------------------------------------------------------------------------------


def test_gradescope_in_the_folder_that_it_wraps(desk: Desk) -> None:
    wrapped: Entries = {f"assignment_123_export/{name}": text for name, text in GRADESCOPE.items()}
    told = desk.take(desk.pack(wrapped))
    assert told.code == 0
    assert told.files == {
        f"submissions/u1/lab09/{FILE}": "ann\n",
        f"submissions/u2/lab09/{FILE}": "bob\n",
    }
    assert [row["days late"] for row in told.rows] == ["0", "1"]
    assert {row["time from"] for row in told.rows} == {"gradescope"}


def test_a_folder_that_was_unpacked_by_hand_with_its_wrapper(desk: Desk) -> None:
    for name, text in GRADESCOPE.items():
        path = desk.folder / "by hand" / "assignment_123_export" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert len(desk.take(desk.folder / "by hand").files) == 2


def test_canvas(desk: Desk) -> None:
    told = desk.take(desk.pack(dict(CANVAS)))
    assert told.files == {
        f"submissions/u1/lab09/{FILE}": "ann\n",
        f"submissions/u2/lab09/{FILE}": "bob\n",
    }
    assert "2 have no time in the download: --at TIME gives them one" in told.said
    assert [(row["handed in"], row["days late"]) for row in told.rows] == [("", ""), ("", "late")]


def test_moodle(desk: Desk) -> None:
    told = desk.take(desk.pack(dict(MOODLE)))
    assert told.files == {
        f"submissions/u1/lab09/{FILE}": "ann\n",
        f"submissions/u3/lab09/{FILE}": "zoe\n",
    }


@pytest.mark.parametrize("suffix", [".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tar.xz"])
def test_a_tar(desk: Desk, suffix: str) -> None:
    path = desk.folder / f"export{suffix}"
    kind = suffix.rpartition(".")[2].replace("tgz", "gz").replace("tar", "")
    with tarfile.open(path, f"w:{kind}") as file:  # type: ignore[call-overload]
        for name, text in GRADESCOPE.items():
            info = tarfile.TarInfo(f"./export/{name}")
            info.size = len(text)
            file.addfile(info, io.BytesIO(text.encode()))
        link = tarfile.TarInfo("export/submission_11/link.py")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(link)
    told = desk.take(path)
    assert told.code == 1
    assert len(told.files) == 2
    assert "Left out: export/submission_11/link.py is a symbolic link." in told.said


def test_what_macos_and_windows_leave_is_not_spoken_of(desk: Desk) -> None:
    more: Entries = {f"lab/{name}": text for name, text in CANVAS.items()}
    more |= {
        "__MACOSX/lab/._leeann_501_7001_trace_analysis.py": "x",
        "lab/.DS_Store": "x",
        "__MACOSX/._lab": "x",
        "lab/Thumbs.db": "x",
    }
    told = desk.take(desk.pack(more))
    assert (told.code, len(told.files)) == (0, 2)
    assert "Left out" not in told.said


def test_names_of_an_old_tool_are_read_and_said(desk: Desk) -> None:
    """Without the flag for UTF-8 a zip's names are in code page 437."""
    path = desk.pack({f"Zo? M?ller_42_assignsubmission_file_/{FILE}": "zoe\n"})
    path.write_bytes(path.read_bytes().replace(b"Zo? M?ller", b"Zo\x89 M\x81ller"))
    told = desk.take(path)
    assert told.files == {f"submissions/u3/lab09/{FILE}": "zoe\n"}
    assert "Names that are not UTF-8 were read as code page 437: 1, the first is Zoë" in told.said


def test_a_name_with_letters_that_join(desk: Desk) -> None:
    """Persian names hold zero-width joiners; a name of a person is not an attack."""
    name = f"Ann\u200c Lee_7_assignsubmission_file_/{FILE}"
    assert len(desk.take(desk.pack({name: "ann\n"})).files) == 1


# -- what is left out -----------------------------------------------------------------------------


def entry(name: str, **more: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    for key, value in more.items():
        setattr(info, key, value)
    return info


LEFT_OUT: dict[str, tuple[zipfile.ZipInfo | str, str]] = {
    "up": ("../submission_12/x.py", "has a name that leads out of its folder"),
    "inner up": (f"submission_11/../submission_12/{FILE}", "leads out of its folder"),
    "absolute": ("/etc/cron.d/x", "has an absolute path as its name"),
    "backslash": (f"submission_11\\lab09\\{FILE}", "has a backslash in its name"),
    "drive": ("C:/x.py", "begins with a drive letter"),
    "escape": ("submission_11/\x1b[31mx.py", "has invisible or control characters in its name"),
    "link": (
        entry("submission_11/x.py", external_attr=(stat.S_IFLNK | 0o777) << 16),
        "is a symbolic link",
    ),
    "device": (entry("submission_11/x", external_attr=stat.S_IFCHR << 16), "is a device or a pipe"),
    "case": (f"submission_11/{FILE.upper()}", "stands more than once, or under names that some"),
    "case of a folder": (f"SUBMISSION_12/{FILE}", "lies in a folder that some file systems do not"),
    "below a file": (f"submission_12/{FILE}/x.py", "lies in a folder that is a file, too,"),
    "long": (f"submission_11/{'x' * 300}.py", "has a name that is too long for a file system"),
    "deep": (f"submission_11/{'d/' * 40}x.py", "lies more than 32 folders deep"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_not_plain_costs_itself(desk: Desk, name: str) -> None:
    made, words = LEFT_OUT[name]
    path = desk.pack(dict(GRADESCOPE))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(made, "other\n")
    told = desk.take(path)
    assert told.code == 1
    assert words in told.said
    assert told.said.startswith("Left out: ")
    assert told.files[f"submissions/u2/lab09/{FILE}"] == "bob\n"
    assert "\x1b" not in told.said
    if name == "case":
        assert f"submissions/u1/lab09/{FILE}" not in told.files, "neither of two is taken"
    else:
        assert told.files[f"submissions/u1/lab09/{FILE}"] == "ann\n"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_two_of_one_name_neither_is_taken(desk: Desk) -> None:
    path = desk.pack(dict(GRADESCOPE))
    with zipfile.ZipFile(path, "a") as file:
        for text in ("second\n", "third\n"):
            file.writestr(f"submission_11/{FILE}", text)
    told = desk.take(path)
    assert list(told.files) == [f"submissions/u2/lab09/{FILE}"]
    assert "Without any file of lab09: u1." in told.said


def flagged(path: Path, name: str, bit: int) -> None:
    """Set a flag of one entry, in both of its headers."""
    data = bytearray(path.read_bytes())
    for mark, flags, at_name in ((b"PK\3\4", 6, 30), (b"PK\1\2", 8, 46)):
        at = -1
        while (at := data.find(mark, at + 1)) >= 0:
            if data[at + at_name :].startswith(name.encode()):
                data[at + flags] |= bit
    path.write_bytes(data)


def test_an_encrypted_entry(desk: Desk) -> None:
    path = desk.pack(dict(GRADESCOPE))
    flagged(path, f"submission_11/{FILE}", 1)
    told = desk.take(path)
    assert f"Left out: submission_11/{FILE} is encrypted." in told.said
    assert list(told.files) == [f"submissions/u2/lab09/{FILE}"]


def test_a_damaged_entry(desk: Desk) -> None:
    path = desk.folder / "submissions.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for name, text in GRADESCOPE.items():
            file.writestr(name, text)
    path.write_bytes(path.read_bytes().replace(b"ann\n", b"Ann\n"))
    told = desk.take(path)
    assert f"Left out: submission_11/{FILE} is damaged." in told.said
    assert list(told.files) == [f"submissions/u2/lab09/{FILE}"]


def test_a_dense_entry_costs_itself(desk: Desk) -> None:
    told = desk.take(desk.pack({**GRADESCOPE, "submission_11/zeros.bin": bytes(20 * 2**20)}))
    assert "zeros.bin unpacks to more than 200 times its size, as a zip bomb does" in told.said
    assert len(told.files) == 2


def test_many_are_counted(desk: Desk) -> None:
    more = {f"submission_11/../{n}.py": "x" for n in range(25)}
    told = desk.take(desk.pack({**GRADESCOPE, **more}))
    assert told.said.count("Left out: ") == 10
    assert "25 entries of the archive were left out in all." in told.said


# -- archives that are not taken ------------------------------------------------------------------


def test_a_file_that_is_not_an_archive(desk: Desk) -> None:
    path = desk.folder / "submissions.zip"
    path.write_text("<html>Log in again</html>")
    assert "is not a zip, or is cut off before its end: download it again" in desk.refusal(path)
    other = desk.folder / "notes.txt"
    other.write_text("x")
    assert "is neither a folder nor an archive" in desk.refusal(other)
    path.write_bytes(b"")
    assert "is not a zip" in desk.refusal(path)


def test_a_pipe_is_not_waited_for(desk: Desk) -> None:
    path = desk.folder / "submissions.zip"
    os.mkfifo(path)
    assert "is not a regular file" in desk.refusal(path)


@pytest.mark.parametrize("length", [10, 200, -1])
def test_a_download_that_broke_off(desk: Desk, length: int) -> None:
    path = desk.pack(dict(GRADESCOPE))
    path.write_bytes(path.read_bytes()[:length])
    assert "download it again, or unpack it yourself" in desk.refusal(path)


def test_entries_that_overlap(desk: Desk) -> None:
    """Many rows of the directory with one content, as in the zip bomb of D. Fifield."""
    path = desk.pack(dict(GRADESCOPE))
    data = path.read_bytes()
    at = data.rfind(b"PK\1\2")
    end = data.rfind(b"PK\5\6")
    row = data[at:end]
    rows = data[: data.find(b"PK\1\2")], data[data.find(b"PK\1\2") : end] + row
    tail = bytearray(data[end:])
    struct.pack_into("<2HL", tail, 8, 4, 4, len(rows[1]))
    path.write_bytes(rows[0] + rows[1] + tail)
    assert "has entries that overlap as in a zip bomb" in desk.refusal(path)


def limited(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    monkeypatch.setattr(unpacked_download, "LIMITS", replace(unpacked_download.LIMITS, **limits))


def test_limits_of_the_whole(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    path = desk.pack({**GRADESCOPE, "submission_11/noise": os.urandom(2**20)})
    with monkeypatch.context() as patch:
        limited(patch, unpacked_bytes=2**19)
        assert "unpacks to more than 0 MiB" in desk.refusal(path)
    with monkeypatch.context() as patch:
        limited(patch, entries=3)
        assert "holds more than 3 entries" in desk.refusal(path)
    with monkeypatch.context() as patch:
        patch.setattr(unpacked_download, "WALL_SECONDS", 0.0)
        assert "takes too long to read" in desk.refusal(path)
    assert unpacked_download.LIMITS.unpacked_bytes == 8 * 2**30
    assert unpacked_download.LIMITS.entries == 100_000


def test_a_tar_that_unpacks_to_very_much(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    path = desk.folder / "export.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        info = tarfile.TarInfo("zeros")
        info.size = 80 * 2**20
        file.addfile(info, io.BytesIO(bytes(info.size)))
    assert "unpacks to more than 200 times its size" in desk.refusal(path)


def confined_to(work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    def send(line: int, *_: object) -> None:
        try:
            said = f"damaged ({work()})"
        except BaseException as error:
            said = f"damaged ({type(error).__name__}, {getattr(error, 'errno', '')})"
        os.write(line, struct.pack("<cI", b"u", len(said)) + said.encode())

    monkeypatch.setattr(unpacked_download.entry_frames, "send", send)


@pytest.mark.parametrize(
    "work",
    [
        lambda: os.open("/etc/passwd", os.O_RDONLY),
        lambda: os.open("/tmp/of-a-confined-process", os.O_WRONLY | os.O_CREAT),
        lambda: os.pipe(),
        lambda: bytes(2**30),
        lambda: __import__("socket").socket(),
    ],
)
def test_what_reads_an_archive_can_open_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]
) -> None:
    confined_to(work, monkeypatch)
    said = desk.refusal(desk.pack(dict(GRADESCOPE)))
    assert "OSError, 24" in said or "MemoryError" in said


def test_what_reads_an_archive_has_nothing_else_open(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = desk.folder / "secret"
    secret.write_text("x")
    with secret.open() as file:
        confined_to(lambda: os.fstat(file.fileno()), monkeypatch)
        assert "OSError, 9" in desk.refusal(desk.pack(dict(GRADESCOPE)))


def test_no_place_for_temporary_files(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(desk.folder / "none"))
    with pytest.raises(LabError, match="No folder for temporary files can be made"):
        desk.take(desk.pack(dict(GRADESCOPE)))


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"x",
        struct.pack("<cI", b"b", 2**31),
        struct.pack("<cI", b"f", 2) + b"{}",
        struct.pack("<cI", b"f", 3) + b"\xff\xff\xff",
        struct.pack("<cI", b"f", 16) + b'["a","yes",true]',
    ],
)
def test_nothing_that_it_says_is_believed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(
        unpacked_download.entry_frames, "send", lambda line, *_: os.write(line, sent)
    )
    assert "is damaged" in desk.refusal(desk.pack(dict(GRADESCOPE)))


@pytest.mark.parametrize("name", ["../up.py", "/etc/x", "a/../../up.py", "a\\..\\b", "x\x00y"])
def test_no_name_that_it_says_leads_elsewhere(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    said = b'["%s",true,""]' % name.encode("unicode_escape").replace(b"\\x", b"\\u00")
    frames = struct.pack("<cI", b"f", len(said)) + said
    frames += struct.pack("<cI", b"b", 1) + b"x" + struct.pack("<cI", b"e", 0)
    frames += struct.pack("<cI", b".", 0)
    monkeypatch.setattr(
        unpacked_download.entry_frames, "send", lambda line, *_: os.write(line, frames)
    )
    assert "is not a download of Gradescope" in desk.refusal(desk.pack(dict(GRADESCOPE)))
    assert not (desk.temporary / "up.py").exists()


# -- the folder goes ------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_ended_command_leaves_nothing(desk: Desk, number: signal.Signals) -> None:
    path = desk.folder / "submissions.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for name, text in GRADESCOPE.items():
            file.writestr(name, text)
        for n in range(40):
            file.writestr(f"submission_11/{n}.bin", os.urandom(2**20) * 8)
    out = desk.folder / "out"
    command = subprocess.Popen(
        [
            *(sys.executable, "-m", "grader.cli", "intake", str(path), "--lab", "lab09"),
            *("--course", str(desk.folder / "course"), "--out", str(out)),
        ],
        env={**os.environ, "TMPDIR": str(desk.temporary)}, cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    until = time.monotonic() + 30
    while not any(desk.temporary.rglob("*.bin")) and time.monotonic() < until:
        time.sleep(0.005)
    assert command.poll() is None
    command.send_signal(number)
    _, errors = command.communicate(timeout=30)
    assert command.returncode not in (0, None)
    assert "Traceback" not in errors
    assert desk.left() == []
    assert not out.exists()


def test_what_a_killed_command_left_goes_with_the_next(desk: Desk) -> None:
    left = desk.temporary / f"{unpacked_download.PREFIX}left"
    (left / "download").mkdir(parents=True)
    path = desk.pack(dict(GRADESCOPE))
    with unpacked_download.opened(path) as first:
        assert not left.exists()
        with unpacked_download.opened(path):
            assert len(desk.left()) == 2
        assert first.folder.is_dir(), "that of a command that runs stays"
    assert desk.left() == []


def test_a_fault_names_the_download_and_not_the_folder(desk: Desk) -> None:
    said = desk.refusal(desk.pack({"a.txt": "x"}))
    assert said.startswith(f"{desk.folder / 'submissions.zip'} is not a download of Gradescope")
    said = desk.refusal(desk.pack({"submission_metadata.yml": "[]"}))
    assert said.startswith(f"{desk.folder / 'submissions.zip'}/submission_metadata.yml does not")


def test_the_folder_is_this_user_s_alone(desk: Desk) -> None:
    with unpacked_download.opened(desk.pack(dict(GRADESCOPE))) as opened:
        assert stat.S_IMODE(opened.folder.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE((opened.folder / f"submission_11/{FILE}").stat().st_mode) == 0o600
    assert desk.left() == []


# -- an archive in an archive ---------------------------------------------------------------------


def zipped(entries: Entries) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in entries.items():
            file.writestr(name, text)
    return data.getvalue()


def test_a_student_s_archive_is_passed_on_and_graded(desk: Desk) -> None:
    inner = zipped({f"lab09/{FILE}": "x = 1\n"})
    told = desk.folder / "out1" / "submissions"
    desk.pack({"leeann_501_7001_work.zip": inner})
    request = intake_command.IntakeRequest(
        desk.folder / "submissions.zip", desk.folder / "course", "lab09", desk.folder / "out1"
    )
    intake_command.run(ROOT, request, lambda _: None, NOW)
    with ArchiveReader("process") as reader:
        everybody = Submissions(told, reader)
        assert everybody.take(everybody.students[0], LAB).files == {FILE: b"x = 1\n"}


def test_an_archive_in_a_student_s_archive_is_refused_with_its_reason(desk: Desk) -> None:
    innermost = zipped({f"lab09/{FILE}": "x = 1\n"})
    desk.pack({
        "leeann_501_7001_work.zip": zipped({"work/really.zip": innermost}),
        "vandijkbob_502_7002_work.zip": innermost,
    })  # fmt: skip
    request = intake_command.IntakeRequest(
        desk.folder / "submissions.zip", desk.folder / "course", "lab09", desk.folder / "out1"
    )
    intake_command.run(ROOT, request, lambda _: None, NOW)
    with ArchiveReader("process") as reader:
        everybody = Submissions(desk.folder / "out1" / "submissions", reader)
    assert everybody.skipped == [
        "u1.zip holds no lab, but another archive (work/really.zip), which is not opened: pack the "
        "labs' folders themselves."
    ]


# -- chance ---------------------------------------------------------------------------------------


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to eight changes: bytes, runs, numbers of the headers, cuts, and swaps."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(found) or 1)
        kind = rng.randrange(7)
        if kind == 0:
            found[at : at + 1] = rng.randbytes(1)
        elif kind == 1:
            found[at : at + 4] = rng.choice([0, 1, 2**16, 2**31, 2**32 - 1]).to_bytes(4, "little")
        elif kind == 2:
            del found[at : at + rng.randint(1, 60)]
        elif kind == 3:
            found[at:at] = found[at : at + rng.randint(1, 60)]
        elif kind == 4 and len(marks := [m.start() for m in re.finditer(b"PK", found)]) > 1:
            field = rng.choice(marks) + rng.randrange(46)
            found[field : field + 2] = rng.randbytes(2)
        elif kind == 5:
            found[at : at + 8] = rng.choice(
                [b"../../x/", b"\\..\\..\\x", b"/etc/pas", b"\0\0\0\0aaaa"]
            )
        elif rng.random() < 0.2:
            del found[at:]
    return bytes(found)


CHANGES = int(os.environ.get("INFRALENS_CHANGES", "150"))


@pytest.mark.parametrize("system", ["gradescope", "canvas", "moodle"])
def test_random_changes_end_in_sentences(desk: Desk, system: str) -> None:
    entries = {"gradescope": GRADESCOPE, "canvas": CANVAS, "moodle": MOODLE}[system]
    good = desk.pack(dict(entries)).read_bytes()
    rng = random.Random(system)
    path = desk.folder / "mutated.zip"
    codes = {0: 0, 1: 0, 2: 0}
    longest = 0.0
    for _ in range(CHANGES):
        path.write_bytes(mutated(good, rng))
        start = time.monotonic()
        try:
            told = desk.take(path)
            codes[told.code] += 1
            said = told.said
        except LabError as error:
            codes[2] += 1
            said = str(error)
        longest = max(longest, time.monotonic() - start)
        assert said.endswith(("lab09", ".")), said
        assert desk.left() == []
    assert sum(codes.values()) == CHANGES
    assert all(codes.values()), f"the changes reach every end: {codes}"
    assert longest < 20.0
    outside = {"course", "temporary", "submissions.zip", "mutated.zip"}
    made = {path.name for path in desk.folder.iterdir()}
    assert all(name in outside or re.fullmatch(r"out\d+", name) for name in made)
