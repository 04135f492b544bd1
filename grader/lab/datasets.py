"""Real data by name and SHA-256: public files that labs are checked against, not shipped.

A file is looked for in the folder that the environment variable INFRALENS_DATA names, then in the
user's cache folder, into which `infralens data` fetches it. What does not have the registered hash
is not that file, wherever it lies. Trusted side only: student code gets such a file as a
`pathlib.Path` argument, which is copied, or as plain data.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from grader.errors import LabError
from grader.lab.user_cache import user_cache

VARIABLE = "INFRALENS_DATA"
_RAW = "https://raw.githubusercontent.com"
_HTA = "facebookresearch/HolisticTraceAnalysis"


class DataError(LabError):
    """A file that is not here or could not be fetched; the text says what to do."""


@dataclass(frozen=True)
class DataFile:
    """One public file: what it is, and the hash that identifies it.

    `urls` are tried in order: the commit at which the file was taken, then the main branch; the
    hash decides whether what came is the file."""

    name: str
    sha256: str
    size_bytes: int
    licence: str
    repository: str
    commit: str
    source: str
    what: str
    citation: str = ""

    @property
    def page(self) -> str:
        """Where people find it."""
        return f"https://github.com/{self.repository}/blob/{self.commit}/{self.source}"

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(
            f"{_RAW}/{self.repository}/{revision}/{self.source}"
            for revision in (self.commit, "HEAD")
        )


_CITE_HTA = "Holistic Trace Analysis, PyTorch, https://github.com/" + _HTA
_ROWS = (
    DataFile(
        "AzureLLMInferenceTrace_conv.csv",
        "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8",
        719_188,
        "CC-BY-4.0",
        "Azure/AzurePublicDataset",
        "790921015d50dd6aae7f7e47f39ba0e235ad6b08",
        "data/AzureLLMInferenceTrace_conv.csv",
        "19,366 chat requests to a production service within an hour",
        "Patel et al., Splitwise: Efficient Generative LLM Inference Using Phase Splitting, "
        "ISCA 2024",
    ),
    DataFile(
        "hta_alexnet.json.gz",
        "b9febb1abc8cc729a2890fb6a4171de9867ba72c944437ee046067e7c89912dc",
        24_808,
        "MIT",
        _HTA,
        "66e3c5475683bd5f2cc79884dfe9a60a085f5cb6",
        "tests/data/critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz",
        "Kineto trace of AlexNet on one GPU, with pageable copies",
        _CITE_HTA,
    ),
    DataFile(
        "hta_cupti_counters.json.gz",
        "07e7e02da9cfda66f5b6fc5fd17e1f93185321504496f4c00e8d375fb162bf84",
        44_132,
        "MIT",
        _HTA,
        "c6f397ba4b466f2b145c6de89dce8da81661b37c",
        "tests/data/cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz",
        "Kineto trace with FLOP counters of each kernel, A100",
        _CITE_HTA,
    ),
    DataFile(
        "hta_memory_timeline.raw.gz",
        "9298e87c3ee81bc00dd5f6df0fa3877e79c2e5ac86de3b09b8c6aaa2a756feb2",
        64_683,
        "MIT",
        _HTA,
        "786c7b6d30d520bb52c28e040e1573b41b28e4cc",
        "tests/data/memory_analysis/memory_timeline.raw.gz",
        "16,845 memory events: time, action, bytes, category",
        _CITE_HTA,
    ),
    DataFile(
        "hta_nccl_data.json.gz",
        "c1cf9c575fdcd7bdc6326ceab834f94b351f81ae55577a7471aa9e328fb8b58e",
        749_757,
        "MIT",
        _HTA,
        "3cb077c83144b564244b9fe869d16d92582e27c3",
        "tests/data/nccl_parser_config/nccl_data.json.gz",
        "Kineto trace of three DDP steps on 2 ranks, A100, NCCL 2.17.1",
        _CITE_HTA,
    ),
    DataFile(
        "hta_sampled_rank-0.json.gz",
        "71b98c30a2751cc56d9bf78f8fb76467acd56e0be6a1f0da23c600941d29aafd",
        124_247,
        "MIT",
        _HTA,
        "3efc27e2198d1d0d2f1ccf9fa825b5347b6cb55b",
        "tests/data/trace_filter/sampled_rank-0.json.gz",
        "Kineto trace of rank 0 of 128 of a recommender, 5 streams",
        _CITE_HTA,
    ),
    DataFile(
        "hta_sampled_rank-1.json.gz",
        "2f9a65fd5f319ec8e60468a22dc9a624eb4b40369c729f6f897259d587eca57e",
        119_799,
        "MIT",
        _HTA,
        "89bb65f00c0e8b731c9c019e72a19676caf9cc92",
        "tests/data/trace_filter/sampled_rank-1.json.gz",
        "the same job's rank 1",
        _CITE_HTA,
    ),
    DataFile(
        "mooncake_conversation_trace.jsonl",
        "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
        3_029_533,
        "Apache-2.0",
        "kvcache-ai/Mooncake",
        "a2a4b18ac537fd798d50e6e9f57031ce86419a37",
        "FAST25-release/traces/conversation_trace.jsonl",
        "12,031 chat requests with the hashes of their 512-token blocks",
        "Qin et al., Mooncake: Trading More Storage for Less Computation, FAST 2025",
    ),
)
FILES: dict[str, DataFile] = {row.name: row for row in _ROWS}


def path(name: str) -> Path | None:
    """Where the file of that name is on this machine, or None. Its hash was checked."""
    row = _row(name)
    return next((place for place in _places(row) if _is(row, place)), None)


def need(name: str) -> Path:
    """Like `path`, but raises `DataError` if the file is not here."""
    found = path(name)
    if found is None:
        raise DataError(f"Not here: {why_missing(name)}.")
    return found


def why_missing(name: str) -> str:
    """Why that file cannot be used here and what to do, as a clause; empty if it can."""
    row = _row(name)
    if path(name) is not None:
        return ""
    other = next((place for place in _places(row) if place.exists()), None)
    if other is not None:
        return (
            f"{other} has a different SHA-256 from the {name} that the kit knows; "
            f"type `infralens data {name}` for the right one"
        )
    return f"{name} is not on this machine (type `infralens data {name}`, or set {VARIABLE})"


def missing() -> list[str]:
    """Names of the files that are not here."""
    return [name for name in FILES if path(name) is None]


def why_any_missing() -> str:
    """Why a task that needs the real data cannot be verified here, or an empty string."""
    names = missing()
    if not names:
        return ""
    count = f"{len(names)} of {len(FILES)} files of real data are"
    return f"{count} not on this machine (type `infralens data --fetch`, or set {VARIABLE})"


def cache_folder() -> Path:
    """Where `fetch` puts files: `infralens/data` in the user's cache folder."""
    return user_cache() / "data"


def fetch(name: str) -> Path:
    """The file of that name; fetched into the cache folder unless it is here. What does not arrive
    whole and with the registered hash leaves no file behind. Raises `DataError`."""
    row = _row(name)
    if (here := path(name)) is not None:
        return here
    pooch = _pooch()
    faults = []
    for url in row.urls:
        try:
            pooch.retrieve(
                url=url,
                known_hash=f"sha256:{row.sha256}",
                fname=name,
                path=_writable(cache_folder()),
                progressbar=False,
            )
        except ValueError:
            faults.append(f"what {url} gives has a SHA-256 other than {row.sha256[:12]}...")
        except OSError as error:  # every fault of the network is one, in requests too
            faults.append(f"{url} could not be read ({_short(error)})")
        else:
            return need(name)
    raise DataError(
        f"{name} was not fetched: {'; '.join(faults)}. It can be put into the folder that "
        f"{VARIABLE} names, by hand; it comes from {row.page}"
    )


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder} cannot be made ({error}); set XDG_CACHE_HOME.") from None
    return folder


def _pooch() -> Any:
    if importlib.util.find_spec("pooch") is None:
        raise DataError(
            "Fetching needs pooch, which is not installed: pip install -e '.[data]', or put the "
            f"files into a folder and name it in {VARIABLE}."
        )
    import pooch

    pooch.get_logger().setLevel("ERROR")  # its notes would stand between the table's lines
    return pooch


def _row(name: str) -> DataFile:
    try:
        return FILES[name]
    except KeyError:
        raise DataError(f"No data is called {name!r}; there is: {', '.join(FILES)}.") from None


def _places(row: DataFile) -> list[Path]:
    named = os.environ.get(VARIABLE, "")
    folders = [Path(named).expanduser()] if named else []
    return [folder / row.name for folder in (*folders, cache_folder())]


def _is(row: DataFile, place: Path) -> bool:
    try:
        state = place.stat()
        if state.st_size != row.size_bytes:
            return False
        return _sha256(place, state.st_size, state.st_mtime_ns) == row.sha256
    except OSError:
        return False


@lru_cache(maxsize=64)
def _sha256(place: Path, _size: int, _mtime_ns: int) -> str:
    """Read once for each state of a file."""
    with place.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."


def listing() -> list[str]:
    """What is here and what is missing, a line a file."""
    width = max(map(len, FILES))
    lines = []
    for row in FILES.values():
        found = path(row.name)
        state = str(found) if found else "missing"
        size = f"{row.size_bytes / 1000:,.0f} kB"
        lines.append(f"{row.name:<{width}}  {size:>8}  {row.licence:<10}  {state}")
    return lines


def show(names: list[str], everything: bool) -> tuple[list[str], int]:
    """What `infralens data` says, and its exit status. Without names: the table."""
    for name in names:
        _row(name)
    if not names and not everything:
        absent = missing()
        if not absent:
            return listing(), 0
        end = f"{len(absent)} of {len(FILES)} are missing. Type: infralens data --fetch"
        return [*listing(), end], 0
    lines, failed = [], 0
    for name in names or list(FILES):
        try:
            lines.append(f"{name}: {fetch(name)}")
        except DataError as error:
            lines.append(str(error))
            failed = 1
    return lines, failed
