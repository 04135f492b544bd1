"""What a confined process says about a download's archive: its entries, in frames on a pipe.

A frame is its kind, the length of its content, and the content. The files of an archive come one
after the other: `FILE`, any number of `BYTES`, then `END`, or `REFUSED` for one that is not taken.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import msgspec

from grader.classroom.intake import entries, names, tar_entries, unpacking, zip_entries
from grader.classroom.intake.archive_data import ArchiveFile
from grader.classroom.intake.entries import ArchiveLimits, Entry, EntryRefused, Unreadable

FILE, FOLDER, BYTES, END, REFUSED, UNREADABLE, DONE = b"f", b"d", b"b", b"e", b"r", b"u", b"."
HEAD = struct.Struct("<cI")
MOST_CONTENT = 2**17


class EntrySaid(NamedTuple):
    """An entry by its name. utf8: whether that name is. what: the clause why it is refused."""

    name: str
    utf8: bool = True
    what: str = ""


def send(
    line: int, archive: int, packing: str, spill: int, limits: ArchiveLimits, most: int
) -> None:
    """Everything that an archive holds, each file cut one byte beyond `most`. `archive`, `spill`:
    descriptors, of the archive and of an empty file for what a compressed tar unpacks to."""
    with open(line, "wb", buffering=MOST_CONTENT, closefd=False) as out:
        try:
            for entry in _entries(archive, packing, spill, limits):
                _send_entry(out, entry, most)
        except Unreadable as error:
            _say(out, UNREADABLE, error.refusal.what.encode())
        except MemoryError:
            _say(out, UNREADABLE, b"needs too much memory to read")
        except BrokenPipeError:
            raise
        except Exception as error:
            fault = entries.damaged(f"{type(error).__name__} while it was read")
            _say(out, UNREADABLE, fault.refusal.what.encode())
        else:
            _say(out, DONE)


def _entries(archive: int, packing: str, spill: int, limits: ArchiveLimits) -> Iterator[Entry]:
    data = ArchiveFile(archive)
    if packing == "zip":
        return zip_entries.zip_entries(data, limits)
    if packing:
        with open(spill, "wb", closefd=False) as file:
            for piece in unpacking.pieces(data, packing, limits):
                file.write(piece)
        data = ArchiveFile(spill)
    return tar_entries.tar_entries(data, limits)


def _send_entry(out: BinaryIO, entry: Entry, most: int) -> None:
    what = entry.refusal.what if entry.refusal else ""
    said = EntrySaid(entry.name[: names.MAX_PATH + 1], entry.utf8, what)
    if entry.refusal or entry.kind == entries.FOLDER:
        _say(out, REFUSED if entry.refusal else FOLDER, msgspec.json.encode(said))
        return
    _say(out, FILE, msgspec.json.encode(said))
    try:
        for piece in entry.pieces(most):
            _say(out, BYTES, piece)
    except EntryRefused as error:
        _say(out, REFUSED, msgspec.json.encode(said._replace(what=error.refusal.what)))
    else:
        _say(out, END)


def _say(out: BinaryIO, kind: bytes, content: bytes = b"") -> None:
    out.write(HEAD.pack(kind, len(content)) + content)
