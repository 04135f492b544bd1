"""Mutants of answers that are texts: YAML, Markdown and shell commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from grader.author.mutants.edits import Edit
from grader.author.mutants.markdown_operators import markdown_edits
from grader.author.mutants.shell_operators import shell_edits
from grader.author.mutants.text_pieces import Piece
from grader.author.mutants.yaml_operators import yaml_edits


def edits(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[Edit]:
    """Every mutation of the blocks, each resulting text once.

    A block whose marker is an HTML comment is Markdown; else a file with a `#!` line is for the
    shell, and any other YAML.
    """
    for begin, end in spans:
        block = Piece(text[begin:end].removesuffix("\n"), begin)
        seen = {block.text}
        for edit in _language(text, begin)(text, block):
            if edit.start < begin or end < edit.start + len(edit.old):
                continue
            inside = replace(edit, start=edit.start - begin).applied(text[begin:end])
            if inside.rstrip("\n") not in seen:
                seen.add(inside.rstrip("\n"))
                yield edit


def _language(text: str, begin: int) -> Callable[[str, Piece], Iterator[Edit]]:
    marker = text[:begin].rstrip("\n").rpartition("\n")[2]
    if marker.lstrip().startswith("<!--"):
        return markdown_edits
    return shell_edits if text.startswith("#!") else yaml_edits
