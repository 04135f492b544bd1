"""Every pair as a row of a CSV file."""

from __future__ import annotations

import csv
import io

from grader import readable
from grader.classroom.similarity.comparison import AlikePair, Comparison


def pair_table(found: Comparison) -> str:
    """The most surprising pair first. Shares are from 0 to 1. `z` is empty where there are too few
    pairs to have one."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    names = [one.name for one in found.files]
    shares = [f"{name}: {what}" for name in names for what in ("share", "share of the other")]
    fixed = "place,student,other,other's year,stands out,z,score,pairs as alike,pairs"
    rows.writerow([*fixed.split(","), "share", "share of the other", *map(_cell, shares)])
    for place, pair in enumerate(found.pairs, start=1):
        rows.writerow(_row(found, place, pair, names))
    return text.getvalue()


def _row(found: Comparison, place: int, pair: AlikePair, names: list[str]) -> list[object]:
    one, other = found.authors[pair.left], found.authors[pair.right]
    parts = [pair.whole, *(pair.files.get(name) for name in names)]
    return [
        place,
        *map(_cell, (one.student, other.student, other.folder)),
        "yes" if pair.stands_out else "",
        "" if pair.z is None else f"{pair.z:.2f}",
        f"{pair.score:.1f}",
        pair.whole.as_alike,
        len(found.pairs),
        *(
            "" if part is None else f"{share:.3f}"
            for part in parts
            for share in ((part.left, part.right) if part else (0.0, 0.0))
        ),
    ]


def _cell(text: str) -> str:
    return readable.csv_cell(text)
