"""Whether `infralens similarity` finds copies, and what honest pairs look like beside them.

    python benchmarks/similarity.py [--labs lab07 lab10] [--students 60] [--seeds 5] [--write]

Each class is invented (`invented_class.py` says how). Six pairs of it are copies: two with other
names, two with functions or statements in another order, two of which one half is copied. Each
class is compared twice. As shipped, the lab's variants are boilerplate. The honest submissions are
made from them, so much of their work does not count, as with a student who writes what a variant
says. Without the variants as boilerplate, all of it counts.

`--write` puts the page into `benchmarks/results/similarity.md`. Exit status 1: a copy of
whole files did not stand among the report's first hundred pairs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import results_page
from invented_class import Copy, Designs, invented_class

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "similarity.md"
sys.path.insert(0, str(ROOT))

from grader.classroom.grading.grading_run import DEFAULT_TIER  # noqa: E402
from grader.classroom.similarity import boilerplate  # noqa: E402
from grader.classroom.similarity.comparison import AlikePair, Comparison, compare  # noqa: E402
from grader.classroom.similarity.fingerprint_reader import FingerprintReader  # noqa: E402
from grader.classroom.similarity.similarity_page import (  # noqa: E402
    MAX_PAIRS_SHOWN,
    similarity_page,
)
from grader.lab.manifest import Lab, load_lab  # noqa: E402

WHOLE = 4  # so many of the planted copies are of whole files
AS_SHIPPED, WITHOUT_VARIANTS = "as shipped", "without variants"


@dataclass(frozen=True)
class Outcome:
    """One class, compared one way. `places`: of the copies, in the order they were planted;
    `alarms`: who they are, of each honest pair that stands out."""

    lab: str
    boilerplate: str
    seed: int
    planted: Sequence[Copy]
    places: Sequence[int]
    copies: Sequence[AlikePair]
    honest: Sequence[AlikePair]
    alarms: Sequence[str]
    longest_honest: int
    seconds: float
    page_bytes: int

    @property
    def marked(self) -> int:
        return sum(pair.stands_out for pair in self.copies)

    @property
    def shown(self) -> int:
        return sum(place <= MAX_PAIRS_SHOWN for place in self.places)


def outcome(lab: Lab, how: str, students: int, seed: int, reader: FingerprintReader) -> Outcome:
    designs: Designs = {}
    found, planted = invented_class(lab, students, seed, designs)
    shipped = boilerplate.kit_files(lab)
    if how == WITHOUT_VARIANTS:
        shipped = [path for path in shipped if "variants" not in path.parts]
    began = time.monotonic()
    compared = compare(lab, found, {}, reader, shipped)
    page = similarity_page(compared)
    seconds = time.monotonic() - began
    ends = [_ends(compared, pair) for pair in compared.pairs]
    places = [1 + ends.index(frozenset((one.original, one.copy))) for one in planted]
    honest = [pair for at, pair in enumerate(compared.pairs, 1) if at not in places]
    alarms = [
        _alarm([author.student for author in compared.ends(pair)], designs, planted)
        for pair in honest
        if pair.stands_out
    ]
    return Outcome(
        lab.id,
        how,
        seed,
        planted,
        places,
        [compared.pairs[place - 1] for place in places],
        honest,
        alarms,
        max(one.lines for pair in honest[:20] for one in compared.passages(pair)),
        seconds,
        len(page.encode()),
    )


def _alarm(students: Sequence[str], designs: Designs, planted: Sequence[Copy]) -> str:
    """Who the two of an honest pair are that stands out."""
    if not any(designs[student] for student in students):
        return "both follow the reference"
    if {*students} & {student for one in planted for student in (one.original, one.copy)}:
        return "one is of a planted pair"
    return "both follow variants or one the reference"


def _ends(compared: Comparison, pair: AlikePair) -> frozenset[str]:
    return frozenset(author.student for author in compared.ends(pair))


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    lines = [
        "| lab | boilerplate | seed | copies marked | copies among the first 100 | places of the "
        "copies | honest pairs marked | of | seconds | page (MB) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in outcomes:
        lines.append(
            f"| {one.lab} | {one.boilerplate} | {one.seed} | {one.marked} of {len(one.places)} "
            f"| {one.shown} of {len(one.places)} | {', '.join(map(str, sorted(one.places)))} "
            f"| {len(one.alarms)} | {len(one.honest):,} | {one.seconds:.1f} "
            f"| {one.page_bytes / 1e6:.1f} |"
        )
    return lines


def missed(outcomes: Sequence[Outcome]) -> list[str]:
    """The copies that were not marked, one a line."""
    return [
        f"- {one.lab}, {one.boilerplate}, seed {one.seed}, {copy.how}: place {place}, "
        f"z {pair.z or 0.0:.1f}, shares {100 * pair.whole.left:.0f} % and "
        f"{100 * pair.whole.right:.0f} %"
        for one in outcomes
        for copy, place, pair in zip(one.planted, one.places, one.copies, strict=True)
        if not pair.stands_out
    ]


def by_kind(outcomes: Sequence[Outcome]) -> list[str]:
    lines = [
        "| lab | boilerplate | copy | marked | worst place | share of the one / of the other "
        "(medians) | z (lowest) |",
        "|---|---|---|---|---|---|---|",
    ]
    for lab, how in dict.fromkeys((one.lab, one.boilerplate) for one in outcomes):
        here = [one for one in outcomes if (one.lab, one.boilerplate) == (lab, how)]
        for number, copy in enumerate(here[0].planted):
            pairs = [one.copies[number] for one in here]
            shares = " / ".join(
                f"{100 * statistics.median(share):.0f} %"
                for share in (
                    [max(p.whole.left, p.whole.right) for p in pairs],
                    [min(p.whole.left, p.whole.right) for p in pairs],
                )
            )
            lines.append(
                f"| {lab} | {how} | {copy.how} | {sum(p.stands_out for p in pairs)} of "
                f"{len(pairs)} | {max(one.places[number] for one in here)} | {shares} "
                f"| {min(p.z or 0.0 for p in pairs):.1f} |"
            )
    return lines


def honest_pairs(outcomes: Sequence[Outcome]) -> list[str]:
    lines = [
        "| lab | boilerplate | middle pair shares | one in a hundred shares | most alike pair "
        "shares | its z | longest passage |",
        "|---|---|---|---|---|---|---|",
    ]
    for lab, how in dict.fromkeys((one.lab, one.boilerplate) for one in outcomes):
        here = [one for one in outcomes if (one.lab, one.boilerplate) == (lab, how)]
        pairs = [pair for one in here for pair in one.honest]
        shares = sorted(max(pair.whole.left, pair.whole.right) for pair in pairs)
        lines.append(
            f"| {lab} | {how} | {100 * statistics.median(shares):.0f} % "
            f"| {100 * shares[-len(shares) // 100]:.0f} % | {100 * shares[-1]:.0f} % "
            f"| {max(pair.z or 0.0 for pair in pairs):.1f} "
            f"| {max(one.longest_honest for one in here)} lines |"
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--labs", nargs="+", default=["lab07", "lab10"])
    parser.add_argument("--students", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    labs = [load_lab(ROOT, lab) for lab in args.labs]
    with FingerprintReader(DEFAULT_TIER, [ROOT]) as reader:
        outcomes = [
            outcome(lab, how, args.students, seed, reader)
            for lab in labs
            for how in (AS_SHIPPED, WITHOUT_VARIANTS)
            for seed in range(1, args.seeds + 1)
        ]
    total = sum(len(one.places) for one in outcomes)
    marked, shown = sum(one.marked for one in outcomes), sum(one.shown for one in outcomes)
    alarms = Counter(alarm for one in outcomes for alarm in one.alarms)
    kinds = "; ".join(f"{count} times {what}" for what, count in alarms.most_common())
    honest = sum(len(one.honest) for one in outcomes)
    command = f"python benchmarks/similarity.py --labs {' '.join(args.labs)}"
    lines = [
        "# Copies found by `infralens similarity`",
        "",
        results_page.made(f"{command} --students {args.students} --seeds {args.seeds}")
        + f" Texts were read at tier {DEFAULT_TIER}. Seconds: from the files' bytes to the page.",
        "",
        "The classes are invented: `benchmarks/invented_class.py` says how. What stands here is "
        "whether planted copies are found beside such submissions, not how often real students "
        "copy, nor how alike real honest work is.",
        "",
        f"Marked: {marked} of {total} copies. Among the report's first {MAX_PAIRS_SHOWN}: {shown} "
        f"of {total}. Honest pairs marked: {alarms.total()} of {honest:,}: {kinds}.",
        "",
        "The reference is boilerplate, so little but the way of writing is left of those who "
        "follow it. Two of them may look alike for that; on the page such students stand as a "
        "group.",
        "",
        *(["Not marked:", "", *missed(outcomes), ""] if marked < total else []),
        *summary(outcomes),
        "",
        "## By kind of copy",
        "",
        *by_kind(outcomes),
        "",
        "## Honest pairs",
        "",
        "Longest passage: of the twenty most alike honest pairs of each class.",
        "",
        *honest_pairs(outcomes),
    ]
    faults = [
        f"{one.lab}, seed {one.seed}: a whole copy at place {max(one.places[:WHOLE])}"
        for one in outcomes
        if max(one.places[:WHOLE]) > MAX_PAIRS_SHOWN
    ]
    return results_page.told(lines, faults, RESULTS if args.write else None)


if __name__ == "__main__":
    sys.exit(main())
