"""Fingerprints of one text. This runs beside the text, in a process that has nothing else.

copydetect makes the fingerprints. Two of its ways are not taken. It hashes with Python's own
`hash`, which differs from process to process. And its package imports pyplot, which builds a cache
of fonts; its tokenizer needs none of that.
"""

from __future__ import annotations

import sys
from hashlib import blake2b
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

from grader.classroom.similarity import source_text

# All fingerprints count. A wider window keeps a part of them, to save room that is not short here.
_WINDOW = 1


def _copydetect() -> Any:
    """`copydetect.utils`, without what the package itself imports."""
    if "copydetect" not in sys.modules:
        spec = find_spec("copydetect")
        if spec is None or spec.submodule_search_locations is None:
            raise ModuleNotFoundError("copydetect is not installed")
        package = ModuleType("copydetect")
        package.__path__ = [*spec.submodule_search_locations]
        sys.modules["copydetect"] = package
    from copydetect import utils

    utils.hash = _same_everywhere  # read before the builtin of that name
    return utils


def preload() -> None:
    """What every process needs, before it is forked."""
    _copydetect()
    _filtered("class A: pass\n", "python")


def _same_everywhere(characters: str) -> int:
    digest = blake2b(characters.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def answer(data: bytes, lexer: str) -> dict[str, bytes]:
    """`hashes` (int64): of every `k` characters in a row of the filtered text. `lines` (int32): of
    every filtered character, its line in the text, from 0. Raises `NotCompared`."""
    text = source_text.text_of(data)
    # Pygments drops empty lines at the beginning, which would shift every place.
    body = text.lstrip("\n")
    filtered, places = _plain(body) if lexer == source_text.PLAIN else _filtered(body, lexer)
    utils = _copydetect()
    hashes = np.zeros(0, np.int64)
    if len(filtered) >= (k := source_text.k_of(lexer)):
        hashes, _ = utils.winnow(utils.hashed_kgrams(filtered, k), _WINDOW, remove_duplicates=False)
    ends = np.flatnonzero(np.frombuffer(body.encode("utf-32-le"), np.uint32) == ord("\n"))
    lines = np.searchsorted(ends, places) + len(text) - len(body)
    return {
        "hashes": hashes.astype("<i8").tobytes(),
        "lines": lines.astype("<i4").tobytes(),
    }


def _plain(text: str) -> tuple[str, Any]:
    """A text without blanks, in lower case, and the place of each character that is left."""
    kept = [(char, at) for at, char in enumerate(text) if not char.isspace()]
    filtered = "".join(char.lower()[:1] for char, _ in kept)
    return filtered, np.array([at for _, at in kept], np.int64)


def _filtered(text: str, lexer: str) -> tuple[str, Any]:
    """What copydetect leaves of a text, and the place of each character that is left."""
    filtered, offsets = _copydetect().filter_code(text, "", lexer)
    at = np.arange(len(filtered))
    if not len(offsets):
        return filtered, at
    starts, removed = offsets[:, 0], offsets[:, 1].copy()
    # copydetect writes the length of a class's name where its offset belongs.
    for row in range(1, len(removed)):
        following = removed[row + 1] if row + 1 < len(removed) else len(text)
        if not removed[row - 1] <= removed[row] <= following:
            removed[row] = removed[row - 1]
    rows = np.searchsorted(starts, at)
    last = max(len(text) - len(filtered), 0)
    places = at + np.append(removed, last)[rows]
    return filtered, np.clip(np.maximum.accumulate(places), 0, max(len(text) - 1, 0))
