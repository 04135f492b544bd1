"""A submission's file as text: what is taken, and which of Pygments' lexers reads it."""

from __future__ import annotations

from pathlib import PurePath

MAX_TEXT_BYTES = 128 * 2**10
_LEXERS = {
    ".py": "python",
    ".cu": "cuda",
    ".sql": "sql",
    ".yaml": "yaml",
    ".yml": "yaml",
}
PLAIN = ""
"""In the place of a lexer's name. Markdown and shell are plain: to Pygments most of their words are
text, which copydetect drops."""
K_CODE = 25
K_PLAIN = 40


class NotCompared(Exception):
    """Why a file is not compared: the end of a sentence that begins with the file's name."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def lexer_of(name: str) -> str:
    return _LEXERS.get(PurePath(name).suffix.lower(), PLAIN)


def k_of(lexer: str) -> int:
    """How many characters in a row make a fingerprint."""
    return K_PLAIN if lexer == PLAIN else K_CODE


def text_of(data: bytes) -> str:
    """The text of a file, with plain line ends. Raises `NotCompared`."""
    if not data.strip():
        raise NotCompared("is empty")
    if len(data) > MAX_TEXT_BYTES:
        kib = MAX_TEXT_BYTES // 2**10
        raise NotCompared(f"has {len(data):,} bytes; at most {kib} KiB are compared")
    if b"\0" in data:
        raise NotCompared("is not text (it has zero bytes, as binary files and UTF-16 have)")
    text = data.decode("utf-8-sig", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")
