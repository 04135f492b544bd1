"""Pictures of the labs and diagrams of the site, as SVG inside a page, with their words."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from grader.learner.pictures.palette import COLOURS
from grader.site import text_parts

_STYLE = re.compile(r"<style>.*?</style>\n?", re.DOTALL)
_WORDS = re.compile(r'<svg\b[^>]*\baria-label="([^"]*)"')
_SIZE = re.compile(r'<svg\b[^>]*\bwidth="(\d+)"')


MOST_INSIDE = 20_000
"""Bytes of the largest drawing that a page holds itself. A larger one is a file beside it, which a
browser fetches when it comes into sight."""
_SCHEMES = ("light", "dark")


@dataclass
class Drawings:
    """The drawings that are files of their own, by their paths in the site. `up`: from the page to
    the site's folder."""

    up: str = ""
    files: dict[str, str] = field(default_factory=dict)

    def add(self, path: Path, svg: str, scheme: str) -> str:
        """The URL of a drawing on paper of that scheme."""
        name = f"assets/pictures/{path.parent.name}-{path.stem}-{scheme}.svg"
        self.files[name] = _as_file(svg, scheme)
        return f"{self.up}{name}#only-{scheme}"


def figure(path: Path, words: str, drawings: Drawings) -> str:
    """A picture with a caption and, folded, all that it shows in words. Without words of its own
    the picture keeps none: the build's check then refuses the page."""
    svg = _STYLE.sub("", text_parts.read(path)).strip()
    wide = int(size[1]) if (size := _SIZE.search(svg)) else 0
    said = found[1] if (found := _WORDS.search(svg)) else ""
    shorter = _shorter(svg, f"p{crc32(path.name.encode()):x}")
    if len(shorter) > MOST_INSIDE:
        shown = "".join(
            f'<img src="{drawings.add(path, svg, scheme)}" alt="{said}" width="{wide}" '
            'loading="lazy">'
            for scheme in _SCHEMES
        )
    else:
        width = f' style="max-width:{wide}px"' if wide else ""
        shown = shorter.replace("<svg ", f"<svg data-search-exclude{width} ", 1)
    caption = f"<figcaption>{html.escape(words)}</figcaption>" if words.strip() else ""
    folded = f"<details><summary>In words</summary><p>{said}</p></details>" if said.strip() else ""
    return (
        f'<figure class="picture">\n<div class="wide">{shown}</div>\n{caption}{folded}</figure>\n'
    )


def colours() -> str:
    """The style of all pictures: every colour, on light and on dark paper."""
    values = [
        f"[data-md-color-scheme={name}] .picture{{{_values(index)}}}"
        for name, index in (("default", 0), ("slate", 1))
    ]
    return "\n".join(values + [f".picture {rule}" for rule in _rules()])


def _rules() -> list[str]:
    return [
        f"{mark}-{name}{{{what}:var(--{name})}}"
        for name in COLOURS
        for mark, what in ((".f", "fill"), (".s", "stroke"))
    ]


def _values(index: int) -> str:
    return ";".join(f"--{name}:{pair[index]}" for name, pair in COLOURS.items())


def _as_file(svg: str, scheme: str) -> str:
    """A drawing as a file of its own, on light or on dark paper."""
    style = [
        f"svg{{{_values(_SCHEMES.index(scheme))};font-family:system-ui,sans-serif}}",
        "text{dominant-baseline:central}.m{text-anchor:middle}.r{text-anchor:end}",
        ".b{font-weight:600}",
        *_rules(),
    ]
    return svg.replace(">", "><style>" + "".join(style) + "</style>", 1)


_MARK = re.compile(
    r'<(?:path d="(?P<d>[^"]*)"(?P<path>[^>]*)/>'
    r'|text(?P<place> x="[^"]*" y="[^"]*")(?P<text>[^>]*)>(?P<words>.*</text>))$'
)
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')


def _shorter(svg: str, name: str) -> str:
    """The same drawing in fewer bytes: marks with the same attributes share a class of the drawing
    `name`, neighbours a path, and no place is finer than a tenth of a pixel."""
    classes: dict[str, str] = {}
    lines: list[str] = []
    for line in filter(None, svg.splitlines()):
        if not (found := _MARK.match(line)):
            lines.append(line)
            continue
        style = _style(found["path"] or found["text"] or "")
        one = classes.setdefault(style, f"c{len(classes)}")
        if not found["d"]:
            lines.append(f"<text{_tenths(found['place'])} class={one}>{found['words']}")
            continue
        end = f'" class={one} />'
        if lines[-1].startswith("<path") and lines[-1].endswith(end):
            lines[-1] = lines[-1].removesuffix(end) + _tenths(found["d"]) + end
        else:
            lines.append(f'<path d="{_tenths(found["d"])}{end}')
    rules = "".join(f".{name} .{one}{{{style}}}" for style, one in classes.items())
    lines[0] = lines[0].replace("<svg ", f'<svg class="{name}" ', 1)
    return "\n".join([lines[0], f"<style>{rules}</style>", *lines[1:]])


def _style(attributes: str) -> str:
    """A mark's attributes as CSS."""
    rules = []
    for name, value in _ATTRIBUTE.findall(attributes):
        if name == "class":
            for one in value.split():
                kind, _, colour = one.partition("-")
                known = {"f": f"fill:var(--{colour})", "s": f"stroke:var(--{colour})"}
                rules.append(known[kind] if colour else _TEXT[one])
        else:
            rules.append(f"{name}:{value}" + "px" * (name == "font-size"))
    return ";".join(rules)


_TEXT = {"m": "text-anchor:middle", "r": "text-anchor:end", "b": "font-weight:600"}


def _tenths(text: str) -> str:
    return re.sub(
        r"-?\d+\.\d\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), text
    )
