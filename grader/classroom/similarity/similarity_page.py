"""The report as one HTML file that needs no other and no script.

Every name and every line of a submission goes through `readable`. The number of pairs, passages,
lines and characters is capped, and so is the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from grader import readable
from grader.classroom.similarity import comparison as comparing
from grader.classroom.similarity import source_text
from grader.classroom.similarity.comparison import AlikePair, Comparison, SharedPart
from grader.classroom.similarity.fingerprints import Author
from grader.classroom.similarity.passages import LineRange, Passage

MAX_PAIRS_SHOWN = 100
MAX_PASSAGES = 8
MAX_PASSAGE_LINES = 60
MAX_LINE_CHARACTERS = 160
MAX_NAME = 60
MAX_LEFT_OUT = 200
MAX_GROUP = 40
MAX_PAGE_BYTES = 8 * 2**20
_BARS, _BAR_HIGH = 40, 90
_STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--soft:#5b636d;--faint:#d9dde2;
--off:#f3f5f7;--blue:#0a5fa8;--mark:#b8322a;--bar:#7f98ae}
@media (prefers-color-scheme:dark){:root{--paper:#15181d;--ink:#e8eaed;--soft:#a3abb5;
--faint:#353b43;--off:#1e232a;--blue:#5aaeea;--mark:#ff7a66;--bar:#587089}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:84rem;padding:1.25rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .5rem}h2{font-size:1.25rem;margin:2.5rem 0 .5rem}
h3{font-size:1.05rem;margin:0}h4{font-size:.95rem;margin:1.25rem 0 .25rem}
p,ul{margin:.4rem 0;max-width:46rem}a{color:var(--blue)}
a:focus-visible,summary:focus-visible,.wide:focus-visible{outline:3px solid var(--blue);
outline-offset:2px}
.note{border-left:4px solid var(--blue);padding:.25rem .9rem;max-width:46rem}
.soft{color:var(--soft);font-size:.9rem}.out{color:var(--mark);font-weight:600}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
.list th,.list td{padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--faint);text-align:left;
vertical-align:top;overflow-wrap:normal}.list td.name{min-width:9rem;overflow-wrap:anywhere}
.list .num{text-align:right;white-space:nowrap}
.list td:last-child{min-width:8rem}.list td.num:last-child{min-width:0}
.list thead th{font-size:.85rem;color:var(--soft);font-weight:600}
article{border-top:2px solid var(--faint);padding:1.1rem 0;margin-top:1.1rem}
summary{cursor:pointer;padding:.4rem 0}
.sides{display:grid;grid-template-columns:1fr 1fr;gap:.75rem}
@media (max-width:46rem){.sides{grid-template-columns:1fr}body{padding:.75rem}
.list th,.list td{padding-right:.5rem}.list td.name{min-width:6rem}}
.side{min-width:0}.side>p{margin:.2rem 0;font-size:.85rem;color:var(--soft)}
.code{background:var(--off);border-radius:6px;padding:.4rem 0}
.code table{width:100%;table-layout:fixed;font:12.5px/1.5 ui-monospace,Menlo,Consolas,monospace}
.code td{padding:0 .5rem;vertical-align:top;white-space:pre-wrap;overflow-wrap:anywhere}
.code td:first-child{width:3.8rem;text-align:right;color:var(--soft);user-select:none}
svg{display:block;max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;
fill:var(--soft)}.bar{fill:var(--bar)}.bar.out{fill:var(--mark)}.line{stroke:var(--mark)}
.axis{stroke:var(--faint)}
@media print{details>*{display:block}}
""".strip()


@dataclass(frozen=True)
class _Shown:
    """A pair as it stands on the page. `place`: from 1, the most surprising is the first."""

    place: int
    pair: AlikePair
    passages: Sequence[Passage]

    @property
    def longest(self) -> int:
        return max((passage.lines for passage in self.passages), default=0)


def similarity_page(found: Comparison) -> str:
    """The whole page. The same comparison gives the same text."""
    pairs = [pair for pair in found.pairs[:MAX_PAIRS_SHOWN] if pair.score > 0]
    shown = [_Shown(place, pair, found.passages(pair)) for place, pair in enumerate(pairs, start=1)]
    title = f"How alike: {readable.html(found.lab.id)} {readable.html(found.lab.title)}"
    head = "\n".join([_summary(found, shown), _expected(found), _overview(found, shown)])
    tail = "\n".join([_left_out(found), _how(found)])
    room = MAX_PAGE_BYTES - len(head.encode()) - len(tail.encode())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{_STYLE}
</style>
</head>
<body>
<header>
<h1>{title}</h1>
</header>
<main>
{head}
{_articles(found, shown, room)}
{tail}
</main>
</body>
</html>
"""


# -- words ----------------------------------------------------------------------------------------


def rank_sentence(as_alike: int, total: int) -> str:
    """Where a pair stands among all."""
    if total == 1:
        return "It is the only pair."
    if as_alike == 1:
        return f"No other of the {total:,} pairs is as alike."
    return f"{as_alike:,} of {total:,} pairs are as alike as this or more."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _name(author: Author) -> str:
    return f"<bdi>{readable.html(readable.line(author.name, MAX_NAME))}</bdi>"


def _names(found: Comparison, pair: AlikePair) -> str:
    return " and ".join(map(_name, found.ends(pair)))


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


# -- the parts ------------------------------------------------------------------------------------


def _summary(found: Comparison, shown: Sequence[_Shown]) -> str:
    years = sorted({author.folder for author in found.authors if author.folder})
    earlier = len(found.authors) - found.this_year
    beside = (
        f" and {_count(earlier, 'submission', 'submissions')} of earlier years "
        f"({', '.join(map(readable.html, years))}), which were compared with this year's only"
        if earlier
        else ""
    )
    outstanding = sum(pair.stands_out for pair in found.pairs)
    if found.pairs[0].z is None:
        said = (
            f"With fewer than {comparing.MIN_PAIRS} pairs no distribution says what is usual: "
            "no pair is marked, and the list is only an order."
        )
    elif outstanding:
        said = (
            f'<span class="out">{_count(outstanding, "pair stands", "pairs stand")} out</span> '
            "of what is usual in this class, and "
            f"{'is' if outstanding == 1 else 'are'} marked."
        )
    else:
        said = "No pair stands out of what is usual in this class."
    return f"""<p class="note"><strong>This is a report for a person, never a mark.</strong>
It shows where texts match. It does not know why: two students may have worked together with leave,
had the same tutor, book or assistant, or found the only short way. Read the passages, and talk with
both before you conclude anything.</p>
<p>{_count(found.this_year, "submission", "submissions")}{beside}:
{_count(len(found.pairs), "pair", "pairs")}. {said}
The {_count(len(shown), "most surprising pair is", "most surprising pairs are")} below.</p>"""


def _expected(found: Comparison) -> str:
    rows = "\n".join(
        f'<tr><td class="name">{readable.html(one.name)}</td><td class="num">{one.authors:,}</td>'
        f'<td class="num">{_percent(one.middle_share)}</td>'
        f"<td>{_lexer_words(one.lexer)}</td></tr>"
        for one in found.files
    )
    return f"""<h2>What is expected here</h2>
<p>Honest answers to a short task look alike. So each pair is held against all pairs of this class.
Of those that share anything, the middle pair shares {_percent(found.middle_share)} (the larger of
both shares). What the kit itself ships does not count, and what many have counts little.</p>
{_distribution(found)}
<div class="wide" tabindex="0" role="region" aria-label="Files">
<table class="list"><thead><tr><th>file</th><th class="num">submissions</th>
<th class="num">middle pair shares</th><th>read</th></tr></thead>
<tbody>
{rows}
</tbody></table>
</div>"""


def _lexer_words(lexer: str) -> str:
    if lexer == source_text.PLAIN:
        return "as plain text: letters and signs, without blanks"
    return f"by Pygments' lexer <code>{readable.html(lexer)}</code>"


def _distribution(found: Comparison) -> str:
    """How many pairs have which score, on a scale of roots, as bars."""
    roots = np.sqrt([pair.score for pair in found.pairs])
    top = max(float(roots.max()), 1.0)
    bins = np.minimum((roots / top * _BARS).astype(int), _BARS - 1)
    counts = np.bincount(bins, minlength=_BARS)
    outside = {int(bins[at]) for at, pair in enumerate(found.pairs) if pair.stands_out}
    heights = np.ceil(np.sqrt(counts / counts.max()) * _BAR_HIGH).astype(int)
    bars = "".join(
        f'<rect class="bar{" out" if at in outside else ""}" x="{at * 15 + 1}" '
        f'y="{_BAR_HIGH - high}" width="13" height="{high}"/>'
        for at, high in enumerate(heights.tolist())
        if high
    )
    wide = _BARS * 15
    words = (
        f"Distribution of {len(found.pairs):,} pairs, from nothing alike on the left to the most "
        f"alike on the right; {sum(pair.stands_out for pair in found.pairs):,} stand out."
    )
    return f"""<svg role="img" aria-label="{words}" viewBox="0 0 {wide} {_BAR_HIGH + 22}"
width="{wide}" height="{_BAR_HIGH + 22}">{bars}
<line class="axis" x1="0" y1="{_BAR_HIGH}" x2="{wide}" y2="{_BAR_HIGH}"/>
<text x="0" y="{_BAR_HIGH + 16}">nothing alike</text>
<text x="{wide}" y="{_BAR_HIGH + 16}" text-anchor="end">the most alike pair</text></svg>
<p class="soft">All pairs by score; a bar's height is the root of its number of pairs, so that one
pair can be seen.</p>"""


def _overview(found: Comparison, shown: Sequence[_Shown]) -> str:
    rest = sum(pair.score > 0 for pair in found.pairs) - len(shown)
    more = f"<p>{_count(rest, 'pair', 'pairs')} more: see the CSV (--csv).</p>" if rest else ""
    if not shown:
        return "<h2>Pairs</h2>\n<p>No pair shares anything that the kit does not ship.</p>"
    first = [one for one in shown if one.pair.stands_out]
    others = [one for one in shown if not one.pair.stands_out]
    listed = _overview_table(found, first, "Pairs that stand out") if first else ""
    if others:
        table = _overview_table(found, others, "Other pairs")
        what = f"{_count(len(others), 'pair', 'pairs')} that {_do(len(others))} not stand out"
        opened = "" if first else " open"
        listed += f"\n<details{opened}><summary>{what}</summary>\n{table}\n</details>"
    return f'<h2 id="pairs">Pairs</h2>\n{_groups(found)}{listed}\n{more}'


def _groups(found: Comparison) -> str:
    """Those whom pairs that stand out connect: one source of many is seen as one."""
    rows = [
        f"<li>{', '.join(map(_name, group[:MAX_GROUP]))}"
        f"{f' and {len(group) - MAX_GROUP} more' if len(group) > MAX_GROUP else ''}</li>"
        for group in found.groups()
    ]
    if not rows:
        return ""
    return (
        "<p>Pairs that stand out connect these. They may have one source in common, or a member "
        f"that two others are like:</p>\n<ul>{''.join(rows)}</ul>\n"
    )


def _do(number: int) -> str:
    return "does" if number == 1 else "do"


def _overview_table(found: Comparison, shown: Sequence[_Shown], label: str) -> str:
    rows = "\n".join(_overview_row(found, one) for one in shown)
    return f"""<div class="wide" tabindex="0" role="region" aria-label="{label}">
<table class="list"><thead><tr><th class="num">place</th><th>pair</th>
<th class="num">shared</th><th class="num">longest passage</th></tr></thead>
<tbody>
{rows}
</tbody></table>
</div>"""


def _overview_row(found: Comparison, one: _Shown) -> str:
    whole = one.pair.whole
    return (
        f'<tr><td class="num">{one.place}</td>'
        f'<td class="name"><a href="#pair-{one.place}">{_names(found, one.pair)}</a></td>'
        f'<td class="num">{_percent(whole.left)} / {_percent(whole.right)}</td>'
        f'<td class="num">{_count(one.longest, "line", "lines")}</td></tr>'
    )


def _articles(found: Comparison, shown: Sequence[_Shown], room: int) -> str:
    """Each pair with its passages, as long as there is room on the page."""
    articles: list[str] = []
    for one in shown:
        text = _article(found, one)
        size = len(text.encode())
        if size > room:
            articles.append(
                f"<p>The page is full: {_count(len(shown) - len(articles), 'pair', 'pairs')} more "
                "of the list above have no passages here.</p>"
            )
            break
        room -= size
        articles.append(text)
    return "\n".join(articles)


def _article(found: Comparison, one: _Shown) -> str:
    pair = one.pair
    first, second = map(_name, found.ends(pair))
    mark = ' <span class="out">stands out</span>' if pair.stands_out else ""
    return f"""<article id="pair-{one.place}">
<h3>{one.place}. {_names(found, pair)}{mark}</h3>
<p>{rank_sentence(pair.whole.as_alike, len(found.pairs))}
Of {first}'s own text {_percent(pair.whole.left)} also stands in {second}'s files; of {second}'s,
{_percent(pair.whole.right)} in {first}'s. The middle pair shares {_percent(found.middle_share)}.
{_same_person(found, pair)}</p>
{_file_rows(found, pair)}
<details{" open" if one.place <= 3 else ""}><summary>{_passage_count(one)}</summary>
{"".join(_passage(found, pair, passage) for passage in one.passages[:MAX_PASSAGES])}
</details>
<p><a href="#pairs">All pairs</a></p>
</article>"""


def _same_person(found: Comparison, pair: AlikePair) -> str:
    one, other = found.ends(pair)
    if one.student != other.student:
        return ""
    return "Both have the same name: it may be one person who takes the course again."


def _file_rows(found: Comparison, pair: AlikePair) -> str:
    if len(found.files) < 2:
        return ""
    middle = {one.name: one.middle_share for one in found.files}

    def row(name: str, part: SharedPart) -> str:
        alike = rank_sentence(part.as_alike, len(found.pairs))
        return (
            f'<tr><td class="name">{readable.html(name)}</td>'
            f'<td class="num">{_percent(part.left)}</td>'
            f'<td class="num">{_percent(part.right)}</td>'
            f'<td class="num">{_percent(middle[name])}</td><td>{alike}</td></tr>'
        )

    rows = "\n".join(row(name, part) for name, part in pair.files.items())
    return f"""<div class="wide" tabindex="0" role="region" aria-label="By file">
<table class="list"><thead><tr><th>file</th><th class="num">of the first</th>
<th class="num">of the second</th><th class="num">middle pair</th><th></th></tr></thead>
<tbody>
{rows}
</tbody></table>
</div>"""


def _passage_count(one: _Shown) -> str:
    count = _count(len(one.passages), "passage", "passages")
    more = len(one.passages) - MAX_PASSAGES
    shown = f"; the {MAX_PASSAGES} most surprising are shown" if more > 0 else ""
    return f"{count}, the longest of {_count(one.longest, 'line', 'lines')}{shown}"


def _passage(found: Comparison, pair: AlikePair, passage: Passage) -> str:
    others = passage.holders - 2
    who = (
        "in nobody else's files"
        if others <= 0
        else f"most of it also in {_count(others, 'other submission', 'other submissions')}"
    )
    sides = "".join(
        _side(found, author, span)
        for author, span in ((pair.left, passage.left), (pair.right, passage.right))
    )
    lines = _count(passage.lines, "line", "lines")
    return f"""<h4>{lines}, {who}</h4>
<div class="sides">{sides}</div>
"""


def _side(found: Comparison, author: int, span: LineRange) -> str:
    lines = found.lines(author, span.file)
    last = min(span.last, span.first + MAX_PASSAGE_LINES - 1)
    rows = "".join(
        f"<tr><td>{at + 1}</td><td>{readable.html(lines[at], MAX_LINE_CHARACTERS)}</td></tr>"
        for at in range(span.first, last + 1)
    )
    cut = span.last - last
    more = f'<p class="soft">{_count(cut, "more line", "more lines")} match.</p>' if cut else ""
    place = f"{readable.html(span.file)}, lines {span.first + 1} to {span.last + 1}"
    where = _definitions(lines, span) if span.file.endswith(".py") else []
    named = ", ".join(f"<code>{readable.html(name, MAX_NAME)}</code>" for name in where[:4])
    rest = f" and {len(where) - 4} more" if len(where) > 4 else ""
    inside = f", in {named}{rest}" if where else ""
    return (
        f'<div class="side"><p>{_name(found.authors[author])}: {place}{inside}</p>'
        f'<div class="code"><table>{rows}</table></div>{more}</div>'
    )


def _definitions(lines: Sequence[str], span: LineRange) -> list[str]:
    """The names of the functions and classes at the margin in which these lines stand."""
    found: list[str] = []
    for at in range(span.last, -1, -1):
        if name := _defined(lines[at][: 4 * MAX_NAME]):
            found.append(name)
            if at <= span.first:
                break
    return list(dict.fromkeys(reversed(found)))


def _defined(line: str) -> str:
    for word in ("def ", "class ", "async def "):
        if line.startswith(word):
            return line.removeprefix(word).split("(")[0].split(":")[0].strip()
    return ""


def _left_out(found: Comparison) -> str:
    if not found.left_out:
        return ""
    rows = list(_left_out_rows(found))
    more = len(rows) - MAX_LEFT_OUT
    rest = f"\n<li>And {more:,} more.</li>" if more > 0 else ""
    return f"<h2>Not compared</h2>\n<ul>\n{chr(10).join(rows[:MAX_LEFT_OUT])}{rest}\n</ul>"


def _left_out_rows(found: Comparison) -> Iterator[str]:
    for author, sentences in found.left_out.items():
        name = f"{_name(author)}: " if author.student else ""
        for sentence in sentences:
            yield f"<li>{name}{readable.html(sentence, 400)}</li>"


def _how(found: Comparison) -> str:
    reference = (
        "the skeleton, the given files, the reference and its variants"
        if found.has_reference
        else "the skeleton and the given files; this checkout has no reference, so what everybody "
        "copies from it counts"
    )
    return f"""<h2>How this was made</h2>
<p>copydetect replaces every name by one letter and every string by another, and drops comments and
blanks. So other names, other comments and another layout change nothing. Each
{source_text.K_CODE} characters in a row of what is left are a fingerprint
({source_text.K_PLAIN} in plain text). Fingerprints of
{_count(found.kit_files, "file", "files")} of the kit do not count: {reference}.</p>
<p>A fingerprint weighs the more the fewer have it, and a pair's score is the sum over what both
have, in all files. A pair stands out where the root of its score lies
{comparing.STANDS_OUT:g} robust standard deviations or more above the middle pair's. Shares are of
a student's own text, without what the kit ships. A passage may bridge lines that differ, at most
two at a time.</p>
<p>What this does not see: a solution written anew from another's idea, and a copy whose every
statement was rewritten.</p>"""
