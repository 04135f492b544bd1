"""All pairs of a class, the most surprising first, and what is expected of a pair.

`compare` takes plain data, so that it does not matter where the files come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from grader import readable
from grader.classroom.similarity import boilerplate
from grader.classroom.similarity.fingerprint_reader import FingerprintReader
from grader.classroom.similarity.fingerprints import Author, FilePrint
from grader.classroom.similarity.pair_scores import Language, by_language, has_own
from grader.classroom.similarity.passages import Passage, passages
from grader.errors import CallError
from grader.lab.manifest import Lab

MAX_PAIRS = 1_000_000
STANDS_OUT = 3.0
MIN_PAIRS = 10
"""Fewer pairs do not make a distribution, so none of them is marked."""
_MIN_SPREAD = 10.0
_MAX_NAME = 60
_NOTHING_WRITTEN = "There is nothing to compare but comments, strings and the skeleton."
_OF_THE_KIT = (
    "All that was written stands in the kit's reference or its variants, names apart. A copy of "
    "them looks like this, and so does very little work."
)
_TO_SIGMA = 1.4826  # of a normal distribution, from its median absolute deviation

Files = Mapping[str, bytes]
ClassFiles = Mapping[str, Files]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SharedPart:
    """What two authors share of one file, or of all: the shares of each one's own characters, and
    how many of the pairs are as alike as this in it, this one included."""

    left: float
    right: float
    as_alike: int


@dataclass(frozen=True)
class AlikePair:
    """Two authors. `left` is of this year. `z`: how far above the middle pair they are, in robust
    standard deviations of the square root of the score; None where there are too few pairs."""

    left: int
    right: int
    score: float
    z: float | None
    whole: SharedPart
    files: Mapping[str, SharedPart] = field(repr=False)

    @property
    def stands_out(self) -> bool:
        return self.z is not None and self.z >= STANDS_OUT


@dataclass(frozen=True)
class ComparedFile:
    """A file's name, how many authors' were compared, the lexer that read it, and what the middle
    one shares of the pairs that share any of it (the larger of both shares)."""

    name: str
    authors: int
    lexer: str
    middle_share: float


@dataclass(frozen=True)
class Comparison:
    """`pairs`: the most surprising first. `texts`: of each author's files, in lines. `left_out`:
    sentences on what was not compared, by author. `kit_files`: how many count as boilerplate."""

    lab: Lab
    authors: Sequence[Author]
    this_year: int
    pairs: Sequence[AlikePair]
    files: Sequence[ComparedFile]
    middle_share: float
    left_out: Mapping[Author, Sequence[str]]
    kit_files: int
    has_reference: bool
    languages: Sequence[Language] = field(repr=False)

    def with_left_out(self, left_out: Mapping[Author, Sequence[str]]) -> Comparison:
        return replace(self, left_out=left_out)

    def ends(self, pair: AlikePair) -> tuple[Author, Author]:
        return self.authors[pair.left], self.authors[pair.right]

    def groups(self) -> list[list[Author]]:
        """Three authors or more whom pairs that stand out connect, the largest group first."""
        group = {author: {author} for author in range(len(self.authors))}
        for pair in self.pairs:
            if pair.stands_out and group[pair.left] is not group[pair.right]:
                joined = group[pair.left] | group[pair.right]
                group |= dict.fromkeys(joined, joined)
        found = {min(one): sorted(one) for one in group.values() if len(one) > 2}
        ordered = sorted(found.values(), key=lambda one: (-len(one), one))
        return [[self.authors[author] for author in one] for one in ordered]

    def passages(self, pair: AlikePair) -> list[Passage]:
        """What matches, the most surprising first."""
        found = [
            passage
            for language in self.languages
            for passage in passages(language, pair.left, pair.right)
        ]
        return sorted(found, key=lambda one: (-one.score, one.left.file, one.left.first))

    def lines(self, author: int, name: str) -> list[str]:
        """The lines of an author's file."""
        for language in self.languages:
            for own in language.files[author]:
                if own.printed.name == name:
                    return own.printed.text.split("\n")
        raise KeyError(name)


def compare(
    lab: Lab,
    this_year: ClassFiles,
    earlier: Mapping[str, ClassFiles],
    reader: FingerprintReader,
    shipped: Sequence[Path] | None = None,
) -> Comparison:
    """Compare the files of one lab: this year's submissions with each other, and with those of
    earlier years, which are not compared with each other. `this_year`: by student, then by file;
    `earlier`: the same by the name of the year; `shipped`: the files that are boilerplate, by
    default all that the kit has of the lab."""
    files = {Author("", student): found for student, found in sorted(this_year.items())}
    for year, submissions in sorted(earlier.items()):
        files |= {Author(year, student): found for student, found in sorted(submissions.items())}
    _check_count(lab, len(this_year), len(files) - len(this_year))
    prints: dict[Author, list[FilePrint]] = {}
    left_out: dict[Author, list[str]] = {}
    for author, contents in files.items():
        read = reader.read({name: contents[name] for name in lab.edit if name in contents})
        taken = [one for one in read.values() if isinstance(one, FilePrint)]
        sentences = [
            f"{name} {why.reason}." for name, why in read.items() if not isinstance(why, FilePrint)
        ]
        if sentences:
            left_out[author] = sentences
        if taken:
            prints[author] = taken
    shipped = boilerplate.kit_files(lab) if shipped is None else shipped
    known = boilerplate.boilerplate(shipped, reader)
    without = [author for author, taken in prints.items() if not has_own(taken, known)]
    skeleton = [path for path in shipped if path.is_relative_to(lab.exercise)]
    handed_out = boilerplate.boilerplate(skeleton, reader) if without else {}
    for author in without:
        is_written = has_own(prints.pop(author), handed_out)
        left_out.setdefault(author, []).append(_OF_THE_KIT if is_written else _NOTHING_WRITTEN)
    authors = list(prints)
    count = sum(not author.folder for author in authors)
    _check_count(lab, count, len(authors) - count, left_out)
    languages = by_language(list(prints.values()), count, known)
    table = _Table(languages, authors, count)
    return Comparison(
        lab=lab,
        authors=authors,
        this_year=count,
        pairs=table.pairs(),
        files=table.compared_files(),
        middle_share=_middle(table.shares[""]),
        left_out=left_out,
        kit_files=len(shipped),
        has_reference=lab.has_solution,
        languages=languages,
    )


def _check_count(
    lab: Lab, this_year: int, earlier: int, left_out: Mapping[Author, Sequence[str]] | None = None
) -> None:
    if this_year + earlier < 2 or not this_year:
        first = [
            f" {readable.line(author.name, _MAX_NAME)}: {readable.line(sentences[0])}"
            for author, sentences in list((left_out or {}).items())[:3]
        ]
        raise CallError(
            f"Two submissions of {lab.id} are needed, one of them of this year: there are "
            f"{this_year} of this year that can be compared, and {earlier} of earlier ones."
            + "".join(first)
        )
    pairs = this_year * (this_year - 1) // 2 + this_year * earlier
    if pairs > MAX_PAIRS:
        raise CallError(
            f"These are {pairs:,} pairs; at most {MAX_PAIRS:,} are compared at a time: "
            "give fewer of the earlier years' folders."
        )


class _Table:
    """Scores and shares of all compared pairs, one array each."""

    def __init__(
        self, languages: Sequence[Language], authors: Sequence[Author], count: int
    ) -> None:
        self.languages = languages
        self.authors = authors
        self.left, self.right = np.triu_indices(count, 1, len(authors))
        self.ends = self.left.tolist(), self.right.tolist()
        self.names = {name: one for one in languages for name in one.names}
        parts = ["", *self.names]
        self.scores = {part: np.zeros(len(self.left)) for part in parts}
        self.shares = {part: np.zeros((2, len(self.left))) for part in parts}
        for language in languages:
            self.scores[""] += language.scores()[self.left, self.right]
            for name in language.names:
                self.scores[name] = language.scores(name)[self.left, self.right]
        self._fill_shares()

    def _fill_shares(self) -> None:
        own = {
            (language.lexer, author): sum(one.own_characters for one in language.files[author])
            for language in self.languages
            for author in range(len(self.authors))
        }
        total = [
            max(sum(own[one.lexer, author] for one in self.languages), 1)
            for author in range(len(self.authors))
        ]
        for language in self.languages:
            held = [language.holds(author) for author in range(len(self.authors))]
            for number, (left, right) in enumerate(zip(*self.ends, strict=True)):
                for side, (one, other) in enumerate(((left, right), (right, left))):
                    weight = own[language.lexer, one] / total[one]
                    share = language.share(one, held[other])
                    self.shares[""][side, number] += weight * share
                    for name in language.names:
                        share = language.share(one, held[other], name)
                        self.shares[name][side, number] = share

    def pairs(self) -> list[AlikePair]:
        z = _robust_z(self.scores[""])
        ranks = {part: _as_alike(scores) for part, scores in self.scores.items()}

        def part(name: str, at: int) -> SharedPart:
            left, right = self.shares[name][:, at]
            return SharedPart(float(left), float(right), int(ranks[name][at]))

        found = [
            AlikePair(
                left=int(self.left[at]),
                right=int(self.right[at]),
                score=float(self.scores[""][at]),
                z=None if z is None else float(z[at]),
                whole=part("", at),
                files={name: part(name, at) for name in self._common(at)},
            )
            for at in range(len(self.left))
        ]
        return sorted(found, key=lambda pair: (-pair.score, pair.left, pair.right))

    def _common(self, at: int) -> Iterator[str]:
        """The files that both authors of a pair have."""
        for name, language in self.names.items():
            files = [language.files[author] for author in (self.left[at], self.right[at])]
            if all(any(own.printed.name == name for own in one) for one in files):
                yield name

    def compared_files(self) -> list[ComparedFile]:
        return [
            ComparedFile(
                name,
                sum(any(own.printed.name == name for own in files) for files in language.files),
                language.lexer,
                _middle(self.shares[name]),
            )
            for name, language in self.names.items()
        ]


def _as_alike(scores: Numbers) -> npt.NDArray[np.int64]:
    """For each pair, how many pairs have its score or a higher one."""
    return len(scores) - np.searchsorted(np.sort(scores), scores, "left")


def _robust_z(scores: Numbers) -> Numbers | None:
    """By the pairs that share anything: many who did little would make all others stand out."""
    if np.count_nonzero(scores) < MIN_PAIRS:
        return None
    roots = np.sqrt(scores)
    middle = np.median(roots[scores > 0])
    spread = _TO_SIGMA * float(np.median(np.abs(roots[scores > 0] - middle)))
    z: Numbers = (roots - middle) / max(spread, _MIN_SPREAD)
    return z


def _middle(shares: Numbers) -> float:
    """What the middle one shares of the pairs that share anything: the larger of both shares."""
    larger = shares.max(axis=0)
    return float(np.median(larger[larger > 0])) if larger.any() else 0.0
