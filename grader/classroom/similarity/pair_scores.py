"""How much two authors share, for all pairs at once, and how few others have it.

Each fingerprint weighs `log2((authors + 1) / holders) ** 2`: of sixty authors, one that all have
weighs nothing, one that thirty have 1.0, and one that only two have 24.3. A pair's score is the sum
over what both have. Weights are whole sixty-fourths, so that no sum depends on its order. (The
square was chosen on invented classes; `benchmarks/similarity.py` measures what comes of it.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from grader.classroom.similarity.fingerprints import FilePrint, Hashes

Ids = npt.NDArray[np.int32]
Scores = npt.NDArray[np.float64]
Cover = npt.NDArray[np.bool_]
NOBODY_ELSES, BOILERPLATE = -1, -2
_WEIGHT_STEPS = 64
_MATRIX_CELLS = 4_000_000


@dataclass(frozen=True, eq=False)
class OwnFile:
    """A file of an author, with the id of each of its fingerprints: which one it is of those that
    several authors have, `NOBODY_ELSES` or `BOILERPLATE`."""

    printed: FilePrint
    ids: Ids

    def covered(self, fingerprints: Cover) -> int:
        """How many of the author's own characters lie in these fingerprints, one flag each."""
        return int(np.count_nonzero(self._characters(fingerprints) & self._own))

    @cached_property
    def own_characters(self) -> int:
        return int(np.count_nonzero(self._own))

    @cached_property
    def _own(self) -> Cover:
        """For each character, whether it lies in no boilerplate. (A fingerprint may begin in what
        the kit ships and end behind it.)"""
        own = self._characters(self.ids != BOILERPLATE)
        return own & ~self._characters(self.ids == BOILERPLATE)

    def _characters(self, fingerprints: Cover) -> Cover:
        """For each filtered character, whether it lies in one of these fingerprints."""
        steps = np.zeros(len(self.printed.lines) + 1, np.int32)
        starts = np.flatnonzero(fingerprints)
        steps[starts] += 1
        steps[starts + self.printed.k] -= 1
        return np.cumsum(steps)[:-1] > 0


class Language:
    """All files that one lexer reads, of all authors: a fingerprint is the same in each of them.
    `files[a]`: those of author `a`, whose number is the same in every language. Of the authors, the
    first `this_year` are compared with each other and with the rest."""

    def __init__(
        self,
        lexer: str,
        prints: Sequence[Sequence[FilePrint]],
        this_year: int,
        boilerplate: Hashes,
    ) -> None:
        self.lexer = lexer
        self.this_year = this_year
        mine = [
            np.setdiff1d(np.unique(np.concatenate(hashes)), boilerplate, assume_unique=True)
            if (hashes := [one.hashes for one in files])
            else np.zeros(0, np.int64)
            for files in prints
        ]
        known, counts = np.unique(np.concatenate(mine), return_counts=True)
        self.holders = counts[counts > 1]
        rarity = np.log2((len(prints) + 1) / self.holders)
        self._weights = np.round(_WEIGHT_STEPS * rarity**2)
        shared = known[counts > 1]
        self.files = [
            [OwnFile(one, _ids(one.hashes, shared, boilerplate)) for one in files]
            for files in prints
        ]

    @property
    def names(self) -> list[str]:
        return sorted({own.printed.name for files in self.files for own in files})

    def ids(self, author: int, name: str = "") -> Ids:
        """What an author has of the fingerprints that several have, in one file or in all."""
        wanted = [own.ids for own in self.files[author] if name in ("", own.printed.name)]
        found = np.unique(np.concatenate(wanted)) if wanted else np.zeros(0, np.int32)
        return found[found >= 0]

    def holds(self, author: int) -> Cover:
        """For each fingerprint that several have, whether this author is one of them."""
        flags = np.zeros(len(self.holders), np.bool_)
        flags[self.ids(author)] = True
        return flags

    def score(self, fingerprints: Ids) -> float:
        return float(self._weights[fingerprints].sum()) / _WEIGHT_STEPS

    def share(self, author: int, held: Cover, name: str = "") -> float:
        """Of the characters that are an author's own, in one file or in all, the share that lies in
        fingerprints which are `held`."""
        files = [own for own in self.files[author] if name in ("", own.printed.name)]
        own_characters = sum(own.own_characters for own in files)
        if not own_characters or not len(held):
            return 0.0
        return sum(own.covered((own.ids >= 0) & held[own.ids]) for own in files) / own_characters

    def scores(self, name: str = "") -> Scores:
        """(this year's authors, all authors): the score of every pair, in a file of that name or
        in all files."""
        having = [self.ids(author, name) for author in range(len(self.files))]
        total = np.zeros((self.this_year, len(having)))
        step = max(_MATRIX_CELLS // max(len(having), 1), 1)
        for first in range(0, len(self.holders), step):
            flags = np.zeros((len(having), min(step, len(self.holders) - first)))
            for row, ids in zip(flags, having, strict=True):
                low, high = np.searchsorted(ids, (first, first + step))
                row[ids[low:high] - first] = 1.0
            weighted = flags[: self.this_year] * self._weights[first : first + step]
            total += weighted @ flags.T
        return total / _WEIGHT_STEPS


def _ids(hashes: Hashes, shared: Hashes, boilerplate: Hashes) -> Ids:
    ids = np.full(len(hashes), NOBODY_ELSES, np.int32)
    if len(shared):
        at = np.minimum(np.searchsorted(shared, hashes), len(shared) - 1)
        ids = np.where(shared[at] == hashes, at, ids).astype(np.int32)
    ids[np.isin(hashes, boilerplate)] = BOILERPLATE
    return ids


def has_own(files: Sequence[FilePrint], boilerplate: Mapping[str, Hashes]) -> bool:
    """Whether any fingerprint in an author's files is not boilerplate."""
    return any(
        not np.isin(one.hashes, boilerplate.get(one.lexer, np.zeros(0, np.int64))).all()
        for one in files
    )


def by_language(
    prints: Sequence[Sequence[FilePrint]], this_year: int, boilerplate: Mapping[str, Hashes]
) -> list[Language]:
    """The languages of all authors' files. `prints[a]`: the files of author `a`."""
    lexers = sorted({one.lexer for files in prints for one in files})
    return [
        Language(
            lexer,
            [[one for one in files if one.lexer == lexer] for files in prints],
            this_year,
            boilerplate.get(lexer, np.zeros(0, np.int64)),
        )
        for lexer in lexers
    ]
