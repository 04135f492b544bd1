"""Many lines, looked for in a text at once: as words and signs, whatever white space stands between
them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
Words = tuple[str, ...]
_WORD = re.compile(r"\w+|[^\w\s]")
_FIRST = 3  # words by which lines are looked up


def words_of(text: str) -> Words:
    """A text as words and signs, without the white space between them."""
    return tuple(_WORD.findall(text))


class LineIndex(Generic[T]):
    """Lines, each with what is known of it; of two equal lines the first one counts."""

    def __init__(self, lines: Iterable[tuple[Words, T]] = ()) -> None:
        self._values: dict[Words, T] = {}
        lengths: dict[Words, set[int]] = defaultdict(set)
        for words, value in lines:
            self._values.setdefault(words, value)
            lengths[words[:_FIRST]].add(len(words))
        self._lengths = {start: sorted(found) for start, found in lengths.items()}
        self._short = {start[0] for start in lengths if len(start) < _FIRST}

    def found_in(self, text: str) -> Iterator[tuple[T, int]]:
        """Every line of the index that stands in a text, and the position where it begins."""
        found = list(_WORD.finditer(text))
        words = tuple(match[0] for match in found)
        padded = (*words, "", "")
        for index, start in enumerate(zip(words, padded[1:], padded[2:], strict=False)):
            lengths = self._lengths.get(start, [])
            if start[0] in self._short:
                for count in range(1, _FIRST):
                    lengths = [*lengths, *self._lengths.get(start[:count], ())]
            for length in lengths:
                line = words[index : index + length]
                if line in self._values:
                    yield self._values[line], found[index].start()
