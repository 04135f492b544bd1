"""Real data by name and SHA-256, without a network: folders, and a server on this machine."""

from __future__ import annotations

import hashlib
import http.client
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grader.errors import LabError
from grader.lab import capabilities, datasets
from grader.lab.manifest import load_lab
from grader.learner.summary import build
from grader.suite.model import load_suite

from ..conftest import make_kit

NAME = "hta_alexnet.json.gz"
REAL_FOLDER = os.environ.get(datasets.VARIABLE, "")
CONTENT = b"not the trace, but a file with a known hash"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No data folder, an empty cache folder, and a small file behind one of the names."""
    monkeypatch.delenv(datasets.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    digest = hashlib.sha256(CONTENT).hexdigest()
    row = replace(datasets.FILES[NAME], sha256=digest, size_bytes=len(CONTENT))
    monkeypatch.setitem(datasets.FILES, NAME, row)
    capabilities.missing.cache_clear()
    yield tmp_path
    capabilities.missing.cache_clear()


def put(folder: Path, content: bytes = CONTENT) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_bytes(content)
    return folder / NAME


def test_every_file_has_a_hash_a_licence_and_an_address() -> None:
    assert len(datasets._ROWS) == 8
    for row in datasets._ROWS:
        assert len(row.sha256) == 64
        assert set(row.sha256) <= set("0123456789abcdef")
        assert row.licence in ("MIT", "Apache-2.0", "CC-BY-4.0")
        assert len(row.commit) == 40
        assert len(row.urls) == 2
        assert all(url.startswith("https://raw.githubusercontent.com/") for url in row.urls)
        assert row.citation
        assert 10_000 < row.size_bytes < 5_000_000


@pytest.mark.parametrize("name", sorted(datasets.FILES))
def test_the_files_in_the_data_folder_are_the_registered_ones(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = REAL_FOLDER
    if not folder or not (Path(folder) / name).is_file():
        pytest.skip(f"not verified here: {name} is not in {datasets.VARIABLE}")
    monkeypatch.undo()
    assert datasets.path(name) == Path(folder) / name


def test_a_file_is_found_in_the_named_folder_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert datasets.path(NAME) is None
    kept = put(datasets.cache_folder())
    assert datasets.path(NAME) == kept
    monkeypatch.setenv(datasets.VARIABLE, str(tmp_path / "named"))
    assert datasets.path(NAME) == kept
    named = put(tmp_path / "named")
    assert datasets.path(NAME) == named
    assert datasets.need(NAME) == named
    assert datasets.why_missing(NAME) == ""


def test_another_file_of_that_name_is_not_that_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(datasets.VARIABLE, str(tmp_path / "named"))
    wrong = bytes([CONTENT[0] ^ 1]) + CONTENT[1:]
    place = put(tmp_path / "named", wrong)
    assert datasets.path(NAME) is None
    assert "has a different SHA-256" in datasets.why_missing(NAME)
    assert str(place) in datasets.why_missing(NAME)
    right = put(datasets.cache_folder())
    assert datasets.path(NAME) == right


def test_a_file_that_changes_is_hashed_again(tmp_path: Path) -> None:
    place = put(datasets.cache_folder())
    assert datasets.path(NAME) == place
    place.write_bytes(CONTENT[::-1])
    os.utime(place, ns=(1, 1))
    assert datasets.path(NAME) is None


def test_a_hash_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(datasets.cache_folder())
    datasets._sha256.cache_clear()
    before = datasets._sha256.cache_info().misses
    for _ in range(5):
        assert datasets.path(NAME)
    assert datasets._sha256.cache_info().misses == before + 1


def test_an_absent_file_says_what_to_do() -> None:
    assert datasets.why_missing(NAME) == (
        f"{NAME} is not on this machine (type `infralens data {NAME}`, or set INFRALENS_DATA)"
    )
    with pytest.raises(datasets.DataError, match=r"^Not here: .*infralens data"):
        datasets.need(NAME)
    with pytest.raises(LabError, match="No data is called 'nothing'"):
        datasets.path("nothing")


def test_a_need_for_data_is_told_in_a_sentence() -> None:
    assert "8 of 8 files of real data are not on this machine" in capabilities.missing("data")
    assert capabilities.missing(f"data:{NAME}") == datasets.why_missing(NAME)
    put(datasets.cache_folder())
    capabilities.missing.cache_clear()
    assert capabilities.missing(f"data:{NAME}") == ""
    assert "7 of 8" in capabilities.missing("data")


# -- tests and tasks that want a file -------------------------------------------------------------


def with_extra(kit: Path, extra: str) -> None:
    path = kit / "tests/lab90/test_real.py"
    path.write_text(
        "from grader.lab import datasets\n"
        "from grader.suite import expect, task\n\n\n"
        f"@task('running_mean', extra=({extra!r},))\n"
        "def test_on_the_real_file(student):\n"
        '    """On the real file.   Oracle: its length."""\n'
        f"    assert datasets.need({NAME!r}).stat().st_size\n"
        "    expect.close(student.running_mean([1.0, 3.0]), [1.0, 2.0], because='means', n=2)\n"
    )


def graded(kit: Path, **environment: str) -> str:
    words = [sys.executable, "-m", "pytest", "-q", "-rs", "solutions/lab90"]
    here = {**os.environ, **environment}
    done = subprocess.run(words, cwd=kit, capture_output=True, text=True, check=False, env=here)
    return done.stdout


def test_a_test_without_its_file_is_not_verified_and_costs_nothing(tmp_path: Path) -> None:
    """The kit's own process knows the real hash only, so the file is missing there."""
    kit = make_kit(tmp_path).root
    with_extra(kit, f"data:{NAME}")
    seen = graded(kit)
    assert "1 not verified here" in seen
    assert "2 of 2 points" in seen
    assert "1 unscored checks need real data that is not here: infralens data" in seen
    assert "optional library" not in seen


def test_a_test_with_its_file_runs(tmp_path: Path) -> None:
    if not REAL_FOLDER or not (Path(REAL_FOLDER) / NAME).is_file():
        pytest.skip(f"not verified here: {NAME} is not in {datasets.VARIABLE}")
    kit = make_kit(tmp_path).root
    with_extra(kit, f"data:{NAME}")
    seen = graded(kit, INFRALENS_DATA=REAL_FOLDER)
    assert "not verified" not in seen
    assert "5 passed" in seen


def test_a_task_may_need_data(tmp_path: Path) -> None:
    kit = make_kit(tmp_path).root
    manifest = kit / "exercises/lab90/lab.toml"
    text = manifest.read_text()
    assert "needs = []" in text
    manifest.write_text(text.replace("needs = []", f'needs = ["data:{NAME}"]'))
    lab = load_lab(kit, "lab90")
    assert lab.tasks[0].needs == (f"data:{NAME}",)
    suite = load_suite(lab)
    rows = {
        case.id: {"status": "not_verified", "disturbed": False, "where": "", "once": "",
                  "import": "", "message": []}
        for case in suite.cases
    }  # fmt: skip
    lines = build(suite, lab.solution, rows).lines(kit)
    assert any(f"not verified here: 2 points: {NAME} is not on this" in line for line in lines)
    manifest.write_text(text.replace("needs = []", 'needs = ["data:nothing"]'))
    os.utime(manifest, ns=(1, 1))
    with pytest.raises(LabError, match="needs is"):
        load_lab(kit, "lab90")


# -- the command ----------------------------------------------------------------------------------


class Files(http.server.BaseHTTPRequestHandler):
    """Gives what the server holds, whole or cut off."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append(self.path)
        content = server.contents.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: server.give])

    def log_message(self, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    made.contents, made.asked, made.give = {}, [], None
    threading.Thread(target=made.serve_forever, daemon=True).start()
    monkeypatch.setattr(datasets, "_RAW", f"http://127.0.0.1:{made.server_port}")
    yield made
    made.shutdown()
    made.server_close()


def addresses() -> list[str]:
    return [url.partition(datasets._RAW)[2] for url in datasets.FILES[NAME].urls]


def stand_in() -> ModuleType:
    """What `pooch.retrieve` promises, for where pooch is not installed: to a file of another name
    first, and ValueError for another hash."""
    import logging
    import urllib.request

    def retrieve(url: str, known_hash: str, fname: str, path: Path, progressbar: bool) -> str:
        place = Path(path) / f"tmp-{fname}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                content = answer.read()
            place.write_bytes(content)
            if hashlib.sha256(content).hexdigest() != known_hash.removeprefix("sha256:"):
                raise ValueError("hash of downloaded file does not match")
            os.replace(place, Path(path) / fname)
        except http.client.IncompleteRead as error:
            raise OSError("cut off") from error
        finally:
            place.unlink(missing_ok=True)
        return str(Path(path) / fname)

    made: Any = ModuleType("pooch")
    made.retrieve, made.get_logger = retrieve, lambda: logging.getLogger("pooch-stand-in")
    return made


@pytest.fixture(params=["pooch", "stand-in"])
def pooch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real one where it is installed, and always one that promises the same."""
    if request.param == "pooch":
        pytest.importorskip("pooch")
    else:
        monkeypatch.setattr(datasets, "_pooch", stand_in)


def test_a_file_is_fetched_once(server: Any, pooch: None) -> None:
    server.contents = dict.fromkeys(addresses(), CONTENT)
    place = datasets.fetch(NAME)
    assert place == datasets.cache_folder() / NAME
    assert place.read_bytes() == CONTENT
    assert datasets.fetch(NAME) == place
    assert server.asked == addresses()[:1]


def test_a_moved_file_is_taken_from_the_main_branch(server: Any, pooch: None) -> None:
    server.contents = {addresses()[1]: CONTENT}
    assert datasets.fetch(NAME).read_bytes() == CONTENT
    assert server.asked == addresses()


def test_another_hash_leaves_nothing(server: Any, pooch: None) -> None:
    server.contents = dict.fromkeys(addresses(), CONTENT[::-1])
    with pytest.raises(datasets.DataError, match="has a SHA-256 other than"):
        datasets.fetch(NAME)
    assert list(datasets.cache_folder().iterdir()) == []


def test_half_a_file_leaves_nothing(server: Any, pooch: None) -> None:
    server.contents, server.give = dict.fromkeys(addresses(), CONTENT), 7
    with pytest.raises(datasets.DataError, match=f"{NAME} was not fetched"):
        datasets.fetch(NAME)
    assert list(datasets.cache_folder().iterdir()) == []


def test_without_a_network_it_says_so_and_where_the_file_comes_from(
    monkeypatch: pytest.MonkeyPatch, pooch: None
) -> None:
    monkeypatch.setattr(datasets, "_RAW", "http://127.0.0.1:9")
    with pytest.raises(datasets.DataError, match="could not be read") as caught:
        datasets.fetch(NAME)
    assert "https://github.com/facebookresearch/HolisticTraceAnalysis/blob/" in str(caught.value)
    assert list(datasets.cache_folder().iterdir()) == []


def test_without_pooch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(datasets.DataError, match=r"pip install -e '\.\[data\]'"):
        datasets.fetch(NAME)


def test_a_cache_folder_that_cannot_be_made_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(datasets, "_pooch", stand_in)
    with pytest.raises(datasets.DataError, match="cannot be made"):
        datasets.fetch(NAME)


def test_the_listing_says_what_is_here_and_what_is_missing() -> None:
    lines, code = datasets.show([], everything=False)
    assert code == 0
    assert lines[-1] == "8 of 8 are missing. Type: infralens data --fetch"
    put(datasets.cache_folder())
    lines, _ = datasets.show([], everything=False)
    row = next(line for line in lines if line.startswith(NAME))
    assert row.endswith(str(datasets.cache_folder() / NAME))
    assert lines[-1].startswith("7 of 8 are missing")


def test_fetching_all_goes_on_after_a_failure(server: Any, pooch: None) -> None:
    server.contents = dict.fromkeys(addresses(), CONTENT)
    lines, code = datasets.show([], everything=True)
    assert code == 1
    assert len(lines) == 8
    assert sum("was not fetched" in line for line in lines) == 7
    assert f"{NAME}: {datasets.cache_folder() / NAME}" in lines


def test_the_command(tmp_path: Path) -> None:
    shutil.rmtree(datasets.cache_folder(), ignore_errors=True)
    words = [sys.executable, "-m", "grader.cli", "data"]
    seen = subprocess.run(words, capture_output=True, text=True, check=False)
    assert seen.returncode == 0
    assert "hta_nccl_data.json.gz" in seen.stdout
    assert "missing" in seen.stdout
    wrong = subprocess.run([*words, "nothing"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("infralens: No data is called 'nothing'")
