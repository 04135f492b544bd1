"""What comes in as archives and folders: honest ones are read, hostile ones are told in a sentence.

Every hostile archive is made here, byte by byte where no tool would make it. `REFUSED` has those
that cost the student the file, `NOTED` those in which only something else is wrong.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader.author.new_lab import new_lab
from grader.classroom.grading.grading_run import GradingRun
from grader.classroom.intake import (
    archive_reader,
    archives,
    entries,
    submissions,
    unpacking,
    zip_entries,
)
from grader.classroom.intake.archive_reader import ArchiveReader
from grader.classroom.intake.entries import MAX_FILE_BYTES
from grader.classroom.intake.submissions import Submission, Submissions, Submitter
from grader.errors import CallError
from grader.lab.manifest import Lab, load_lab
from grader.sandbox.host_check import check_host
from tests.grader.classroom.conftest import RIGHT as RIGHT_TEXT
from tests.grader.conftest import needs_sandbox

TIER = pytest.mark.parametrize("tier", ["process", pytest.param("sandbox", marks=needs_sandbox)])
LAB, MEAN = "lab90", "running_mean.py"
PATH = f"{LAB}/{MEAN}"
RIGHT = RIGHT_TEXT.encode()
MIB = 2**20


# -- zips, row by row -----------------------------------------------------------------------------


@dataclass
class Row:
    """One entry of a zip. What begins with `own_` stands in the entry's own header instead."""

    name: bytes
    data: bytes = RIGHT
    method: int = zipfile.ZIP_STORED
    flags: int = 0
    mode: int = 0
    packed: bytes | None = None
    size: int | None = None
    crc: int | None = None
    offset: int | None = None
    extra: bytes = b""
    own_name: bytes | None = None
    own_size: int | None = None
    own_crc: int | None = None
    own_method: int | None = None
    own_extra: bytes = b""


def raw_zip(
    rows: Iterable[Row],
    *,
    count: int | None = None,
    comment: bytes = b"",
    before_end: bytes = b"",
    shift: int = 0,
    disk: int = 0,
) -> bytes:
    """A zip of these rows. `shift`: how far its offsets are from where things stand."""
    out, directory = io.BytesIO(), io.BytesIO()
    rows = list(rows)
    for row in rows:
        packed = row.data if row.packed is None else row.packed
        size = len(row.data) if row.size is None else row.size
        crc = zlib.crc32(row.data) if row.crc is None else row.crc
        offset = out.tell() + shift if row.offset is None else row.offset
        own_name = row.name if row.own_name is None else row.own_name
        own_size = size if row.own_size is None else row.own_size
        own_crc = crc if row.own_crc is None else row.own_crc
        own_method = row.method if row.own_method is None else row.own_method
        if row.offset is None:
            out.write(
                struct.pack(
                    "<4s5H3L2H", b"PK\3\4", 20, row.flags, own_method, 0, 33, own_crc, len(packed),
                    own_size, len(own_name), len(row.own_extra),
                )
                + own_name + row.own_extra + packed
            )  # fmt: skip
        directory.write(
            struct.pack(
                "<4s6H3L5H2L", b"PK\1\2", 3 << 8 | 20, 20, row.flags, row.method, 0, 33, crc,
                len(packed), size, len(row.name), len(row.extra), 0, 0, 0, row.mode << 16, offset,
            )
            + row.name + row.extra
        )  # fmt: skip
    start, listed = out.tell() + shift, directory.getvalue()
    count = len(rows) if count is None else count
    end = struct.pack(
        "<4s4H2LH", b"PK\5\6", disk, disk, count & 0xFFFF, count & 0xFFFF, len(listed), start,
        len(comment),
    )  # fmt: skip
    return out.getvalue() + listed + before_end + end + comment


def one(name: str | bytes = PATH, **row: Any) -> bytes:
    """A zip of one entry, that of the lab's file unless named otherwise."""
    raw = name if isinstance(name, bytes) else name.encode()
    flags = 0 if raw.isascii() or isinstance(name, bytes) else 0x800
    return raw_zip([Row(raw, **{"flags": flags} | row)])


def two(second: str) -> bytes:
    """A zip with the lab's file, and another entry."""
    return raw_zip([Row(PATH.encode()), Row(second.encode(), b"rival", flags=0x800)])


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def cut_row() -> bytes:
    """The last row of the directory claims a comment, which is not there."""
    packed = bytearray(one())
    packed[packed.index(b"PK\1\2") + 32] = 9
    return bytes(packed)


def quoted_overlap() -> bytes:
    """Fifield's bomb in small: the first entry's content is the second's header and content."""
    inner = one("lab90/kernel.txt", data=b"0" * 1000)
    header = inner[: 30 + len("lab90/kernel.txt") + 1000]
    first = Row(PATH.encode(), header)
    second = Row(b"lab90/kernel.txt", b"0" * 1000, offset=30 + len(PATH))
    return raw_zip([first, second])


# -- tars, block by block -------------------------------------------------------------------------


def member(name: str = PATH, data: bytes = RIGHT, *, form: int = tarfile.USTAR_FORMAT,
           patch: dict[int, bytes] | None = None, **fields: Any) -> bytes:  # fmt: skip
    """An entry of a tar: its header, with `patch` written over it at those offsets, and content."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    blocks = bytearray(info.tobuf(form, "utf-8", "surrogateescape"))
    last = len(blocks) - 512
    for offset, raw in (patch or {}).items():
        blocks[last + offset : last + offset + len(raw)] = raw
    blocks[last + 148 : last + 156] = b" " * 8
    total = sum(blocks[last : last + 512])
    blocks[last + 148 : last + 156] = b"%06o\0 " % total
    return bytes(blocks) + data + bytes(-len(data) % 512)


def tar(*members: bytes, end: bytes = bytes(1024)) -> bytes:
    return b"".join(members) + end


def pax(kind: bytes = b"x", **records: str) -> bytes:
    """An extended header."""
    data = b""
    for keyword, value in records.items():
        body = f" {keyword.replace('__', '.')}={value}\n".encode()
        length = len(body)
        while len(str(length)) + len(body) != length:
            length = len(str(length)) + len(body)
        data += str(length).encode() + body
    return raw_pax(data, kind)


def raw_pax(data: bytes, kind: bytes = b"x") -> bytes:
    return member("PaxHeaders/it", data, type=kind)


def link(kind: bytes, **fields: Any) -> bytes:
    return tar(member(data=b"", type=kind, linkname="/etc/passwd", **fields))


def greedy_xz(bits: int = 40) -> bytes:
    """An xz whose header asks for a dictionary of 4 GiB; with 28 bits, for one of 64 MiB."""
    packed = bytearray(lzma.compress(tar(member())))
    length = (packed[12] + 1) * 4
    at = packed.index(b"\x21\x01", 12, 12 + length) + 2
    packed[at] = bits
    packed[12 + length - 4 : 12 + length] = struct.pack("<L", zlib.crc32(packed[12 : 8 + length]))
    return bytes(packed)


def bomb(pack: Callable[[bytes], bytes]) -> bytes:
    """A tar of one file of 256 MiB of zeros, in compressed members of 16 MiB."""
    head = member(data=b"", patch={124: b"%011o\0" % (256 * MIB)})
    return pack(head) + 16 * pack(bytes(16 * MIB)) + pack(bytes(1024))


def many_in_tar() -> bytes:
    return gzip.compress(member("lab90/x", b"") * 100_000 + member() + bytes(1024), 1)


def many_in_zip(count: int | None = None) -> bytes:
    """100,000 rows of one directory, all for one entry."""
    honest = one()
    start = honest.index(b"PK\1\2")
    rows = honest[start:-22] * 100_000
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, *[count or 65_535] * 2, len(rows), start, 0)
    return honest[:start] + rows + end


# -- what is refused, and by which words ----------------------------------------------------------

FULLWIDTH = PATH.replace("r", "ｒ", 1)
ZIP64_LOCATOR = struct.pack("<4sLQL", b"PK\6\7", 0, 0, 1)
UNICODE_PATH = struct.pack("<2HBL", 0x7075, 5 + len("lab90/other.py"), 1, zlib.crc32(PATH.encode()))

REFUSED: dict[str, tuple[str, Callable[[], bytes], str]] = {
    # names
    "traversal": (".zip", lambda: one(f"../{PATH}"), "leads out of its folder"),
    "inner-traversal": (".zip", lambda: one(f"x/../{PATH}"), "leads out of its folder"),
    "traversal-beside": (".zip", lambda: two(f"../{PATH}"), "stands more than once"),
    "windows-traversal": (".zip", lambda: one(f"..\\lab90\\{MEAN}"), "backslash"),
    "absolute": (".zip", lambda: one(f"/{PATH}"), "has an absolute path"),
    "drive": (".zip", lambda: one(f"C:/{PATH}"), "drive letter"),
    "drive-relative": (".zip", lambda: one(f"C:{PATH}"), "drive letter"),
    "backslashes": (".zip", lambda: one(f"lab90\\{MEAN}"), "backslash"),
    "nul": (".zip", lambda: one(PATH.encode() + b"\0.txt"), "control characters"),
    "bell": (".zip", lambda: one("lab90/running\x07_mean.py"), "control characters"),
    "right-to-left": (".zip", lambda: one("lab90/running_mean\u202e.py"), "invisible"),
    "bad-utf8": (".zip", lambda: one(b"\xff/" + PATH.encode(), flags=0x800), "is damaged"),
    "two-names": (
        ".zip",
        lambda: one(extra=UNICODE_PATH + b"lab90/other.py"),
        "goes by two names",
    ),
    "tar-traversal": (".tar", lambda: tar(member(f"../{PATH}")), "leads out of its folder"),
    "tar-absolute": (".tar", lambda: tar(member(f"/{PATH}")), "has an absolute path"),
    "tar-backslashes": (".tar", lambda: tar(member(f"lab90\\{MEAN}")), "backslash"),
    # one file twice
    "twice": (".zip", lambda: two(PATH), "stands more than once"),
    "twice-by-case": (".zip", lambda: two("lab90/Running_Mean.py"), "stands more than once"),
    "twice-by-folder-case": (".zip", lambda: two(f"LAB90/{MEAN}"), "stands more than once"),
    "twice-by-form": (".zip", lambda: two(FULLWIDTH), "stands more than once"),
    "twice-by-dot": (".zip", lambda: two(f"{PATH}. "), "stands more than once"),
    "twice-by-dot-slash": (".zip", lambda: two(f"./{PATH}"), "stands more than once"),
    "file-and-folder": (".zip", lambda: two(f"{PATH}/inner.py"), "stands more than once"),
    "tar-twice": (".tar", lambda: tar(member(), member(data=b"rival")), "stands more than once"),
    "tar-link-and-file": (
        ".tar",
        lambda: tar(member(data=b"", type=tarfile.SYMTYPE, linkname="x"), member()),
        "stands more than once",
    ),
    # kinds
    "link": (".zip", lambda: one(mode=stat.S_IFLNK | 0o777), "is a symbolic link"),
    "device": (".zip", lambda: one(mode=stat.S_IFCHR | 0o666), "is a device"),
    "pipe": (".zip", lambda: one(mode=stat.S_IFIFO | 0o666), "is a device or a pipe"),
    "folder": (".zip", lambda: one(f"{PATH}/", data=b""), "is a folder"),
    "folder-with-file": (".zip", lambda: one(f"{PATH}/inner.py"), "is a folder"),
    "tar-link": (".tar", lambda: link(tarfile.SYMTYPE), "is a symbolic link"),
    "tar-hard-link": (".tar", lambda: link(tarfile.LNKTYPE), "is a hard link"),
    "tar-character-device": (".tar", lambda: link(tarfile.CHRTYPE), "is a device"),
    "tar-block-device": (".tar", lambda: link(tarfile.BLKTYPE), "is a device"),
    "tar-pipe": (".tar", lambda: link(tarfile.FIFOTYPE), "is a named pipe"),
    "tar-unknown-kind": (".tar", lambda: tar(member(type=b"Z")), "not a regular file"),
    "tar-contiguous": (".tar", lambda: tar(member(type=tarfile.CONTTYPE)), "not a regular file"),
    "tar-sparse": (".tar", lambda: tar(member(type=tarfile.GNUTYPE_SPARSE)), "sparse file"),
    "tar-sparse-map": (
        ".tar",
        lambda: tar(
            member(data=b"", type=tarfile.GNUTYPE_SPARSE, patch={482: b"\1"}),
            bytes(512),
        ),
        "sparse file",
    ),
    "tar-pax-sparse": (
        ".tar",
        lambda: tar(pax(GNU__sparse__size="99", GNU__sparse__map="0,9"), member()),
        "sparse file",
    ),
    "tar-pax-sparse-name": (
        ".tar",
        lambda: tar(pax(GNU__sparse__major="1", GNU__sparse__name="lab90/x"), member()),
        "sparse file",
    ),
    # how they are packed
    "encrypted": (".zip", lambda: one(flags=1), "is encrypted"),
    "strongly-encrypted": (".zip", lambda: one(flags=0x41), "is encrypted"),
    "patch": (".zip", lambda: one(flags=0x20), "as a patch"),
    "deflate64": (".zip", lambda: one(method=9), "compressed with Deflate64"),
    "bzip2": (".zip", lambda: one(method=12, packed=bz2.compress(RIGHT)), "with bzip2"),
    "lzma": (".zip", lambda: one(method=14), "compressed with LZMA"),
    "unknown-method": (".zip", lambda: one(method=77), "compressed with method 77"),
    # headers that disagree
    "own-name": (".zip", lambda: one(own_name=b"lab90/innocent_fns.py"), "described in two ways"),
    "own-size": (".zip", lambda: one(own_size=3), "described in two ways"),
    "own-crc": (".zip", lambda: one(own_crc=3), "described in two ways"),
    "own-method": (".zip", lambda: one(own_method=8), "described in two ways"),
    "size-below": (".zip", lambda: one(size=9), "described in two ways"),
    "size-above": (".zip", lambda: one(size=9999), "described in two ways"),
    "deflated-size-below": (
        ".zip",
        lambda: one(method=8, packed=deflated(RIGHT), size=9, crc=zlib.crc32(RIGHT[:9])),
        "described in two ways",
    ),
    "wrong-crc": (".zip", lambda: one(crc=9), "is damaged"),
    "no-deflate": (".zip", lambda: one(method=8), "is damaged"),
    "deflate-and-more": (
        ".zip",
        lambda: one(method=8, packed=deflated(RIGHT) + b"x"),
        "is damaged",
    ),
    "deflate-cut": (".zip", lambda: one(method=8, packed=deflated(RIGHT)[:-9]), "is damaged"),
    "overlap": (
        ".zip",
        lambda: raw_zip([Row(PATH.encode()), Row(b"lab90/spread.py", offset=0)]),
        "entries that overlap",
    ),
    "quoted-overlap": (".zip", quoted_overlap, "entries that overlap"),
    "overlap-by-own-header": (
        ".zip",
        lambda: raw_zip(
            [Row(PATH.encode(), own_extra=bytes(40)), Row(b"x", b"", offset=53 + len(RIGHT))]
        ),
        "overlap",
    ),
    "offset-outside": (".zip", lambda: raw_zip([Row(PATH.encode(), offset=2**31)]), "precedes"),
    "directory-too-short": (".zip", lambda: raw_zip([Row(PATH.encode())], count=2), "shorter"),
    "directory-too-long": (".zip", lambda: raw_zip([Row(PATH.encode())] * 2, count=1), "longer"),
    "prefix": (".zip", lambda: b"#!/bin/sh\n" + one(), "something precedes"),
    "adjusted-prefix": (
        ".zip",
        lambda: bytes(10) + raw_zip([Row(PATH.encode())], shift=10),
        "something precedes its first entry",
    ),
    "suffix": (".zip", lambda: one() + b"more", "something follows its end"),
    "end-in-comment": (
        ".zip",
        lambda: raw_zip([Row(PATH.encode())], comment=one()[-22:] + b"x"),
        "something follows its end",
    ),
    "zip64": (
        ".zip",
        lambda: raw_zip([Row(PATH.encode())], before_end=ZIP64_LOCATOR),
        "zip64",
    ),
    "volumes": (".zip", lambda: raw_zip([Row(PATH.encode())], disk=1), "zip in several files"),
    "large-extra": (".zip", lambda: one(extra=bytes(4096)), "holds more than names"),
    "large-directory": (
        ".zip",
        lambda: raw_zip([Row(PATH.encode()), *[Row(b"x" * 60_000, b"")] * 80]),
        "its directory claims 4,",
    ),
    "two-wrappers": (".zip", lambda: raw_zip([Row(b"a/lab90/running_mean.py"),
                     Row(b"b/lab90/running_mean.py")]), "more than once, as a/lab90 and b/lab90"),
    # tar's headers
    "tar-pax-renames": (
        ".tar",
        lambda: tar(pax(path="lab90/innocent.py"), member()),
        "goes by two names",
    ),
    "tar-pax-renames-to": (
        ".tar",
        lambda: tar(pax(path=PATH), member("lab90/innocent.py")),
        "goes by two names",
    ),
    "tar-long-name-renames": (
        ".tar",
        lambda: tar(member("././@LongLink", PATH.encode() + b"\0", type=b"L"), member("lab90/x")),
        "goes by two names",
    ),
    "tar-long-name-goes-on": (
        ".tar",
        lambda: tar(member("@", b"lab90/x", type=b"L", patch={124: b"%011o\0" % 5}), member()),
        "a header of it goes on after its end",
    ),
    "tar-pax-folder": (
        ".tar",
        lambda: tar(pax(path=f"{PATH}/"), member()),
        "a folder has content",
    ),
    "directory-row-cut": (".zip", cut_row, "longer"),
    "tar-prefix": (
        ".tar",
        lambda: tar(member(MEAN, form=tarfile.GNU_FORMAT, patch={345: b"lab90"})),
        "goes by two names",
    ),
    "tar-pax-size": (".tar", lambda: tar(pax(size="9"), member()), "has two sizes"),
    "tar-pax-no-size": (".tar", lambda: tar(pax(size="-9"), member()), "has two sizes"),
    "tar-pax-twice": (
        ".tar",
        lambda: tar(raw_pax(b"9 path=a\n9 path=b\n"), member()),
        "two names or sizes",
    ),
    "tar-pax-wrong": (".tar", lambda: tar(raw_pax(b"99 path=a\n"), member()), "pax header of it"),
    "tar-pax-records": (
        ".tar",
        lambda: tar(raw_pax(b"6 a=b\n" * 101), member()),
        "more than 100 records",
    ),
    "tar-pax-chain": (
        ".tar",
        lambda: tar(*[pax(path="a")] * 3000, member()),
        "two headers of one kind",
    ),
    "tar-pax-and-long-name": (
        ".tar",
        lambda: tar(pax(path="a"), member("@", b"b\0", type=b"L"), member()),
        "two headers name one entry",
    ),
    "tar-pax-alone": (".tar", lambda: tar(member(), pax(path="a")), "describes nothing"),
    "tar-global-name": (
        ".tar",
        lambda: tar(pax(b"g", path=PATH), member("lab90/x"), member()),
        "gives all its entries one name",
    ),
    "tar-huge-header": (
        ".tar",
        lambda: tar(member("@", b"", type=b"L", patch={124: b"77777777777\0"}), member()),
        "claims 8,589,934,591 bytes",
    ),
    "tar-negative-size": (
        ".tar",
        lambda: tar(member(patch={124: b"\xff" * 12})),
        "negative size",
    ),
    "tar-link-with-content": (
        ".tar",
        lambda: tar(member(type=tarfile.SYMTYPE, patch={124: b"%011o\0" % 512})),
        "that is not a file has content",
    ),
    "tar-folder-with-content": (
        ".tar",
        lambda: tar(member("lab90/", type=tarfile.REGTYPE)),
        "a folder has content",
    ),
    "tar-wrong-sum": (".tar", lambda: tar(b"x" + member()[1:]), "bad checksum"),
    "tar-goes-on": (".tar", lambda: tar(tar(member()), member()), "goes on after its end"),
    # sizes
    "large": (".zip", lambda: one(data=bytes(MAX_FILE_BYTES + 1)), "larger than 1 MiB"),
    "bomb": (
        ".zip",
        lambda: one(method=8, packed=deflated(bytes(100 * MIB)), size=100),
        "larger than 1 MiB",
    ),
    "tar-large": (".tar", lambda: tar(member(data=bytes(MAX_FILE_BYTES + 1))), "larger than 1 MiB"),
    "tar-gz-bomb": (".tar.gz", lambda: bomb(gzip.compress), "unpacks to more than 64 MiB"),
    "tar-bz2-bomb": (".tar.bz2", lambda: bomb(bz2.compress), "unpacks to more than 64 MiB"),
    "tar-xz-bomb": (".tar.xz", lambda: bomb(lzma.compress), "unpacks to more than 64 MiB"),
    "tar-xz-dictionary": (".tar.xz", greedy_xz, "Memory usage limit exceeded"),
    "archive-too-large": (".zip", lambda: bytes(33 * MIB), "larger than 32 MiB"),
    "many": (".zip", many_in_zip, "more than 10,000 entries"),
    "many-and-hidden": (".zip", lambda: many_in_zip(count=3), "its directory"),
        "one-too-many-in-tar": (
        ".tar",
        lambda: tar(member("lab90/x", b"") * 10_000, member()),
        "more than 10,000 entries",
    ),
    "many-in-tar": (".tgz", many_in_tar, "more than 10,000 entries"),
    "many-headers": (
        ".tar.gz",
        lambda: gzip.compress(pax(b"g", comment="x") * 40_001, 1),
        "two headers of one kind",
    ),
    "many-members": (
        ".tar.gz",
        lambda: gzip.compress(b"") * 5000 + gzip.compress(tar(member())),
        "compressed files in a row",
    ),
    # whole or not
    "empty": (".zip", lambda: b"", "is empty"),
    "empty-tar-gz": (".tar.gz", lambda: b"", "is empty"),
    "no-zip": (".zip", lambda: RIGHT, "is not a zip"),
    "zip-cut": (".zip", lambda: one()[:-30], "is not a zip, or is cut off"),
    "zip-without-start": (".zip", lambda: one()[30:], "something precedes"),
    "tar-in-a-zip-s-name": (".zip", lambda: tar(member()), "is not a zip"),
    "no-tar": (".tar", lambda: RIGHT * 9, "is damaged"),
    "tar-without-end": (".tar", lambda: tar(member(), end=b""), "is cut off"),
    "tar-cut-in-content": (".tar", lambda: tar(member())[:600], "is cut off"),
    "tar-cut-in-header": (".tar", lambda: tar(member())[:300], "is cut off"),
    "no-gz": (".tar.gz", lambda: tar(member()), "is damaged"),
    "gz-cut": (".tar.gz", lambda: gzip.compress(tar(member()))[:-9], "is cut off"),
    "gz-wrong-crc": (
        ".tar.gz",
        lambda: gzip.compress(tar(member()))[:-8] + bytes(8),
        "is damaged",
    ),
    "gz-and-more": (".tar.gz", lambda: gzip.compress(tar(member())) + b"more", "is damaged"),
    "bz2-cut": (".tar.bz2", lambda: bz2.compress(tar(member()))[:-9], "is cut off"),
    "xz-cut": (".tar.xz", lambda: lzma.compress(tar(member()))[:-9], "is cut off"),
}  # fmt: skip

LONG = "x" * 2000
NOTED: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "traversal": (".zip", lambda: two("../../etc/passwd"), "leads out of its folder"),
    "windows": (".zip", lambda: two("..\\..\\boot.ini"), "has a backslash"),
    "absolute": (".zip", lambda: two("/etc/cron.d/job"), "has an absolute path"),
    "drive": (".zip", lambda: two("C:/boot.ini"), "drive letter"),
    "long": (".zip", lambda: two(f"lab90/{LONG}"), "too long"),
    "no-name": (".zip", lambda: two(""), "an entry has no name"),
    "control": (".zip", lambda: two("lab90/a\x1b[2Jb"), "control characters"),
    "right-to-left": (".zip", lambda: two("lab90/\u202eyp.x"), "invisible"),
    "link": (
        ".zip",
        lambda: raw_zip([Row(PATH.encode()), Row(b"lab90/l", mode=stat.S_IFLNK)]),
        "lab90/l is a symbolic link",
    ),
    "encrypted": (
        ".zip",
        lambda: raw_zip([Row(PATH.encode()), Row(b"lab90/l", flags=1)]),
        "lab90/l is encrypted",
    ),
    "cp437": (
        ".zip",
        lambda: raw_zip([Row(PATH.encode()), Row(b"lab90/gr\x94\xe1e.py")]),
        "Ignored, because lab90 takes running_mean.py only: größe.py.",
    ),
    "nested": (
        ".zip",
        lambda: raw_zip([Row(PATH.encode()), Row(b"lab90/in.zip", one())]),
        "in.zip",
    ),
    "shadows": (
        ".zip",
        lambda: raw_zip([Row(PATH.encode()), Row(b"lab90/conftest.py"), Row(b"lab90/numpy/a.py")]),
        "only: conftest.py, numpy/.",
    ),
    "bomb-elsewhere": (
        ".zip",
        lambda: raw_zip([Row(PATH.encode()), Row(b"lab90/b", b"", 8, packed=deflated(bytes(MIB)))]),
        "only: b.",
    ),
    "tar-links": (
        ".tar",
        lambda: tar(
            member("lab90/l", b"", type=tarfile.SYMTYPE, linkname="../.."),
            member("lab90/h", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
            member("lab90/d", b"", type=tarfile.CHRTYPE),
            member("lab90/f", b"", type=tarfile.FIFOTYPE),
            member(),
        ),
        "lab90/l is a symbolic link; lab90/h is a hard link; lab90/d is a device; "
        "lab90/f is a named pipe",
    ),
    "tar-link-below-the-file": (
        ".tar",
        lambda: tar(member(), member("lab90", b"", type=tarfile.SYMTYPE, linkname="../bob")),
        "lab90 is a symbolic link",
    ),
    "tar-sparse": (
        ".tar",
        lambda: tar(member("lab90/s", b"", type=b"S", patch={482: b"\1"}), bytes(512), member()),
        "lab90/s is stored as a sparse file",
    ),
    "tar-many-doubts": (
        ".tar",
        lambda: tar(*[member(f"../{n}", b"") for n in range(40)], member()),
        "; and 28 more.",
    ),
    "both-places": (".zip", lambda: two(f"exercises/{PATH}"), "lab90/ is graded"),
}


# -- the class ------------------------------------------------------------------------------------


@dataclass
class Intake:
    """A mini kit, and a folder of submissions."""

    kit: Any
    folder: Path

    def pack(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path

    def hand_in(self, student: str, data: bytes = RIGHT, place: str = LAB) -> Path:
        folder = self.folder / student / place
        folder.mkdir(parents=True)
        (folder / MEAN).write_bytes(data)
        return folder

    def everybody(self, tier: str = "local") -> Submissions:
        """Read in this process, unless another tier is asked for."""
        return Submissions(self.folder, ArchiveReader(tier), self.labs())

    def take(self, student: str = "alice", tier: str = "local") -> Submission:
        with ArchiveReader(tier, [self.folder]) as reader:
            everybody = Submissions(self.folder, reader, self.labs())
            (found,) = [one for one in everybody.students if one.id == student]
            return everybody.take(found, load_lab(self.kit.root, LAB))

    def labs(self) -> list[Lab]:
        return [load_lab(self.kit.root, LAB)]

    def students(self) -> list[str]:
        return [student.id for student in self.everybody().students]


@pytest.fixture
def intake(kit: Any, tmp_path: Path) -> Intake:
    folder = tmp_path / "submissions"
    folder.mkdir()
    return Intake(kit, folder)


@cache
def made(name: str) -> bytes:
    """An archive of `REFUSED`; some take a second to make."""
    return REFUSED[name][1]()


def said(taken: Submission) -> str:
    return " ".join([*taken.refused.values(), *taken.notes])


# -- honest archives ------------------------------------------------------------------------------

PLACES = {
    "": PATH,
    "exercises": f"exercises/{PATH}",
    "wrapped": f"alice-main/{PATH}",
    "as-github-has-it": f"alice-main/exercises/{PATH}",
    "dot-slash": f"./{PATH}",
    "a-wrapper-that-is-no-ascii": f"Übung von Zoë/{PATH}",
}


def packed_by(suffix: str, name: str) -> bytes:
    """An archive as the standard library writes it, with the folders' own entries."""
    out = io.BytesIO()
    folders = [name[: at + 1] for at, char in enumerate(name) if char == "/" and at > 1]
    if suffix == ".zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for folder in folders:
                archive.writestr(folder, b"")
            archive.writestr(name, RIGHT)
    else:
        mode = {".tar": "w", ".tgz": "w:gz"}.get(suffix, f"w:{suffix[5:]}")
        with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
            for folder in folders:
                info = tarfile.TarInfo(folder)
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            info = tarfile.TarInfo(name)
            info.size = len(RIGHT)
            archive.addfile(info, io.BytesIO(RIGHT))
    return out.getvalue()


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz"])
@pytest.mark.parametrize("place", PLACES)
def test_an_archive_is_as_good_as_a_folder(intake: Intake, suffix: str, place: str) -> None:
    intake.pack(f"alice{suffix}", packed_by(suffix, PLACES[place]))
    intake.hand_in("bob")
    assert intake.students() == ["alice", "bob"]
    packed, plain = intake.take("alice"), intake.take("bob")
    assert packed.files == plain.files == {MEAN: RIGHT}
    assert packed.digest == plain.digest
    assert not packed.notes
    assert not packed.refused


def test_what_other_tools_write_is_read(intake: Intake) -> None:
    later = {"flags": 8, "own_size": 0, "own_crc": 0}
    sizes = struct.pack("<2H2Q", 1, 16, len(RIGHT), len(RIGHT))
    honest = {
        "streamed.zip": one(**later),
        "zip64-sizes.zip": one(own_size=2**32 - 1, own_extra=sizes),
        "upper.ZIP": one(),
        "unflagged.zip": one("Zoë/".encode() + PATH.encode()),
        "dos.zip": one(b"\x9abung/" + PATH.encode()),
        "comment.zip": raw_zip([Row(PATH.encode())], comment=b"by me"),
        "git.tar.gz": gzip.compress(tar(pax(b"g", comment="0" * 40), member())),
        "gnu.tar": tar(member(f"{'w' * 120}/{PATH}", form=tarfile.GNU_FORMAT)),
        "pax.tar": tar(member(f"{'w' * 120}/{PATH}", form=tarfile.PAX_FORMAT)),
        "mac.tar": tar(pax(LIBARCHIVE__xattr="x" * 500), member(f"lab90/._{MEAN}"), member()),
        "v7.tar": tar(member("lab90/", b"", type=tarfile.AREGTYPE), member(type=tarfile.AREGTYPE)),
        "padded.tar.gz": gzip.compress(tar(member())) + bytes(512),
        "members.tar.bz2": bz2.compress(tar(member())[:700]) + bz2.compress(tar(member())[700:]),
    }  # fmt: skip
    for name, data in honest.items():
        intake.pack(name, data)
    for name in honest:
        taken = intake.take(name.split(".")[0])
        assert (taken.files, said(taken)) == ({MEAN: RIGHT}, ""), name


def test_the_system_s_tar_is_read(intake: Intake, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "w" / LAB).mkdir(parents=True)
    (source / "w" / PATH).write_bytes(RIGHT)
    try:
        for form in ("gnu", "pax", "ustar", "v7"):
            command = ["tar", "-C", str(source), f"--format={form}", "-czf"]
            subprocess.run([*command, str(intake.folder / f"{form}.tgz"), "."], check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("there is no GNU tar here")
    for form in ("gnu", "pax", "ustar", "v7"):
        assert intake.take(form).files == {MEAN: RIGHT}, form


def test_a_missing_file_is_missing(intake: Intake) -> None:
    intake.pack("alice.zip", one("lab90/Running_Mean.py"))
    intake.pack("bob.zip", one("lab90/README.md"))
    for student in ("alice", "bob"):
        assert intake.take(student).missing == {MEAN}
    assert "only: Running_Mean.py." in said(intake.take("alice"))
    assert intake.take("bob").notes == ()


# -- outside a folder of the lab's name -----------------------------------------------------------

LOOSE = {
    "top": MEAN,
    "one-folder": f"hw/{MEAN}",
    "folders": f"homework/final/v2/{MEAN}",
    "other-case": f"Lab90/{MEAN}",
    "capitals": f"exercises/LAB90/{MEAN}",
    "a-space": f"Lab 90/{MEAN}",
    "deep": f"homework/final/v2/{PATH}",
}


@pytest.mark.parametrize("form", ["folder", ".zip", ".tar.gz", "archive in a folder"])
@pytest.mark.parametrize("place", LOOSE)
def test_a_file_is_found_where_it_is_plain_that_it_is_meant(
    intake: Intake, form: str, place: str
) -> None:
    path = LOOSE[place]
    if form == "folder":
        (intake.folder / "alice" / path).parent.mkdir(parents=True)
        (intake.folder / "alice" / path).write_bytes(RIGHT)
    elif form == "archive in a folder":
        (intake.folder / "alice").mkdir()
        intake.pack("alice/my work.zip", one(path))
    else:
        intake.pack(f"alice{form}", packed_by(form, path))
    everybody = intake.everybody()
    assert everybody.skipped == []
    assert everybody.has(everybody.students[0], LAB)
    taken = intake.take()
    assert (taken.files, said(taken)) == ({MEAN: RIGHT}, "")


def put(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def as_zip(files: dict[str, bytes]) -> bytes:
    return raw_zip([Row(name.encode(), data) for name, data in files.items()])


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize(
    ("places", "found"),
    [
        (("a/", "b/"), f"a/{MEAN} and b/{MEAN}"),
        (("", "old/"), f"{MEAN} and old/{MEAN}"),
        (("x/lab90/", "y/Lab90/"), f"x/{PATH} and y/Lab90/"),
        (("a/", "b/", "c/", "d/", "e/"), f"a/{MEAN} and b/{MEAN}"),
    ],
)
def test_of_files_that_differ_none_is_taken(
    intake: Intake, is_zip: bool, places: tuple[str, ...], found: str
) -> None:
    files = {f"{place}{MEAN}": RIGHT + b"#" * at for at, place in enumerate(places)}
    if is_zip:
        intake.pack("alice.zip", as_zip(files))
    else:
        put(intake.folder / "alice", files)
    taken = intake.take()
    assert (taken.files, taken.missing) == ({}, frozenset())
    sentence = taken.refused[MEAN]
    assert found in sentence
    assert sentence.endswith(f"hand in one of them, as {PATH}.")


def test_copies_of_one_content_are_one_file(intake: Intake) -> None:
    files = {f"{place}/{MEAN}": RIGHT for place in ("a", "b")}
    intake.pack("alice.zip", as_zip(files))
    put(intake.folder / "bob", files)
    assert intake.take("alice").files == intake.take("bob").files == {MEAN: RIGHT}


def test_the_lab_s_own_folder_comes_before_other_places(intake: Intake) -> None:
    files = {PATH: RIGHT, MEAN: b"old", f"draft/{MEAN}": b"older"}
    intake.pack("alice.zip", as_zip(files))
    put(intake.folder / "bob", files)
    assert intake.take("alice").files == intake.take("bob").files == {MEAN: RIGHT}


def test_another_lab_s_folder_and_a_kit_s_own_are_not_looked_into(intake: Intake) -> None:
    for number, place in enumerate(("lab91", "solutions/lab90", "tests", "__MACOSX")):
        intake.pack(f"s{number}.zip", one(f"{place}/{MEAN}"))
    put(intake.folder / "s4", {f"lab91/{MEAN}": RIGHT})
    everybody = intake.everybody()
    for student in everybody.students:
        taken = intake.take(student.id)
        assert (taken.files, taken.missing) == ({}, {MEAN})
        assert not everybody.has(student, LAB)
        assert f"it lies at {'' if student.id != 's4' else 'lab91'}" in taken.refused[MEAN]
        assert "was not handed in" not in taken.refused[MEAN]


@pytest.mark.parametrize(
    "name", ["Running_Mean.py", "running_mean (1).py", "running_mean.ipynb", "running mean.py.txt"]
)
@pytest.mark.parametrize("is_zip", [True, False])
def test_a_file_under_another_name_is_told(intake: Intake, name: str, is_zip: bool) -> None:
    if is_zip:
        intake.pack("alice.zip", one(f"lab90/{name}"))
    else:
        put(intake.folder / "alice", {f"lab90/{name}": RIGHT})
    taken = intake.take()
    assert taken.refused[MEAN] == (
        f"{MEAN} was not found: there is lab90/{name} under another name; hand it in as {PATH}."
    )


@pytest.mark.parametrize("suffix", ["", ".zip"])
def test_what_there_is_instead_is_told(intake: Intake, suffix: str) -> None:
    files = {"notes.txt": b"x", "data/a.csv": b"x"}
    if suffix:
        intake.pack("alice.zip", as_zip(files))
    else:
        put(intake.folder / "alice", files)
    everybody = intake.everybody()
    assert everybody.holds(everybody.students[0]) == "it holds data/, notes.txt"
    assert intake.take().refused[MEAN] == (
        f"{MEAN} was not handed in: alice{suffix} holds data/, notes.txt; hand it in as {PATH}."
    )


def test_archives_in_a_folder_are_told_apart(intake: Intake) -> None:
    other = RIGHT + b"# more\n"
    put(intake.folder, {
        "beside/hw.zip": one(MEAN), "beside/notes.zip": one("notes.txt"),
        "twice/a.zip": one(), "twice/b.zip": one(MEAN, data=other),
        "same/a.zip": one(), "same/b.zip": one(MEAN),
        "files/hw.zip": one(data=other), f"files/{MEAN}": RIGHT,
        "broken/hw.zip": b"PK", "broken/notes.zip": one("notes.txt"),
        "rar/hw.rar": b"Rar!",
        "inner/a.zip": one("b.zip", data=one()),
        **{f"many/{n}.zip": one() for n in range(9)},
    })  # fmt: skip
    for student in ("beside", "same", "files"):
        taken = intake.take(student)
        assert (taken.files, said(taken)) == ({MEAN: RIGHT}, ""), student
    refused = {
        "twice": "twice/a.zip and twice/b.zip hold different files of lab90: hand in one",
        "broken": "broken/hw.zip is not a zip, or is cut off",
        "rar": "hw.rar cannot be read; pack .zip or .tar.gz, or hand it in as",
        "inner": "inner/a.zip holds another archive (b.zip), which is not opened",
        "many": "many holds more than 5 archives, and none was opened: hand in one of them",
    }
    for student, words in refused.items():
        taken = intake.take(student)
        assert taken.files == {}
        assert words in taken.refused[MEAN]
    skipped = " ".join(intake.everybody().skipped)
    assert "broken/hw.zip is not a zip" in skipped


def test_no_link_is_followed_on_the_way_to_a_file(intake: Intake, tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", {MEAN: b"secret", "hw.zip": one(data=b"secret")})
    (intake.folder / "alice").mkdir()
    (intake.folder / "alice" / "hw").symlink_to(tmp_path / "elsewhere")
    (intake.folder / "alice" / "hw.zip").symlink_to(tmp_path / "elsewhere" / "hw.zip")
    (intake.folder / "bob").mkdir()
    (intake.folder / "bob" / MEAN).symlink_to(tmp_path / "elsewhere" / MEAN)
    intake.pack("carl.tar", link(tarfile.SYMTYPE, name=MEAN))
    assert intake.take("alice").files == {}
    assert intake.take("bob").refused[MEAN].startswith(f"{MEAN} is a link and was not taken")
    assert f"{MEAN} is a symbolic link in carl.tar" in intake.take("carl").refused[MEAN]


@pytest.mark.parametrize("name", [f"hw\\{MEAN}", f"../{MEAN}", f"/{MEAN}", f"C:/{MEAN}"])
def test_a_doubtful_path_is_refused_in_every_place(intake: Intake, name: str) -> None:
    intake.pack("alice.zip", one(name))
    taken = intake.take()
    assert (taken.files, taken.missing) == ({}, frozenset())
    assert "alice.zip and was not taken" in taken.refused[MEAN]


def test_only_a_part_of_a_very_large_folder_is_searched(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "MAX_ENTRIES", 20)
    put(intake.folder / "alice", {f"a/{n:03}": b"" for n in range(100)} | {f"b/{MEAN}": RIGHT})
    assert "was not found among the first 20 entries" in intake.take().refused[MEAN]
    put(intake.folder / "bob", {"/".join("d" * 40) + f"/{MEAN}": RIGHT})
    assert intake.take("bob").files == {}


def test_very_many_places_are_looked_at_in_part(intake: Intake) -> None:
    intake.pack("alice.zip", as_zip({f"{n}/{MEAN}": RIGHT for n in range(500)}))
    assert f"as 0/{MEAN} and 1/{MEAN}" in intake.take().refused[MEAN]


def test_given_files_are_compared(intake: Intake) -> None:
    intake.kit.give("limits.py", "COUNT_FROM = 1\n")
    other = Row(b"lab90/limits.py", b"COUNT_FROM = 7\n")
    intake.pack("alice.zip", raw_zip([Row(PATH.encode()), other]))
    same = Row(b"lab90/limits.py", b"COUNT_FROM = 1\n")
    intake.pack("bob.zip", raw_zip([Row(PATH.encode()), same]))
    intake.pack("carl.zip", raw_zip([Row(PATH.encode()), other, other]))
    assert intake.take("alice").notes == (
        "limits.py differs from the kit's; the kit's own was used.",
    )
    for student in ("bob", "carl"):
        assert intake.take(student).files == {MEAN: RIGHT}
        assert intake.take(student).notes == ()


def test_a_whole_kit_is_graded_by_its_exercises(intake: Intake) -> None:
    rows = [Row(f"{top}/{PATH}".encode(), top.encode()) for top in ("solutions", "tests")]
    intake.pack("alice.zip", raw_zip([*rows, Row(f"exercises/{PATH}".encode())]))
    intake.pack("bob.zip", raw_zip(rows))
    intake.pack("mac.zip", two(f"__MACOSX/{PATH}"))
    assert intake.take("alice").files == intake.take("mac").files == {MEAN: RIGHT}
    assert intake.take("bob").missing == {MEAN}


def test_an_archive_is_unpacked_once_to_look_and_once_to_take(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_lab(intake.kit.root, "lab91")
    intake.pack("alice.tar.gz", gzip.compress(tar(member(), member(f"lab91/{MEAN}"))))
    intake.pack("bob.tar.gz", gzip.compress(tar(member())))
    opened: list[str] = []
    real = archive_reader._bytes_of
    monkeypatch.setattr(
        archive_reader, "_bytes_of", lambda path: opened.append(path.name) or real(path)
    )
    everybody = intake.everybody()
    labs = [load_lab(intake.kit.root, lab_id) for lab_id in ("lab90", "lab91")]
    for student in everybody.students:
        for lab in labs:
            if everybody.has(student, lab.id):
                assert everybody.take(student, lab).files == {MEAN: RIGHT}
    assert sorted(opened) == ["alice.tar.gz"] * 2 + ["bob.tar.gz"] * 2
    assert not everybody.has(everybody.students[1], "lab91")


def test_a_broken_manifest_of_another_lab_does_not_matter(intake: Intake) -> None:
    new_lab(intake.kit.root, "lab91")
    (intake.kit.root / "exercises" / "lab91" / "lab.toml").write_text("id = 3")
    intake.pack("alice.zip", raw_zip([Row(PATH.encode()), Row(b"lab91/running_mean.py")]))
    assert intake.take().files == {MEAN: RIGHT}


# -- hostile archives -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_doubtful_is_refused_in_a_sentence(intake: Intake, name: str) -> None:
    suffix, _, words = REFUSED[name]
    intake.pack(f"alice{suffix}", made(name))
    taken = intake.take()
    assert taken.files == {}
    assert taken.missing == frozenset()
    sentence = taken.refused[MEAN]
    assert words in sentence
    assert sentence.startswith(f"{MEAN} ")
    assert f"alice{suffix}" in sentence
    assert sentence.endswith(".")
    assert ": " in sentence
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs") for char in sentence)


@pytest.mark.parametrize("name", NOTED)
def test_what_is_doubtful_elsewhere_is_a_note(intake: Intake, name: str) -> None:
    suffix, make, words = NOTED[name]
    intake.pack(f"alice{suffix}", make())
    taken = intake.take()
    assert taken.files == {MEAN: RIGHT}
    assert taken.refused == {}
    assert words in said(taken)
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs") for char in said(taken))


def test_the_rows_differ_from_what_is_taken(intake: Intake) -> None:
    """The builders themselves make honest archives: nothing is refused for their sake."""
    for name, data in {"a.zip": one(), "b.tar": tar(member())}.items():
        intake.pack(name, data)
    assert intake.take("a").files == intake.take("b").files == {MEAN: RIGHT}


def test_a_name_that_is_not_utf_8_is_not_guessed(intake: Intake) -> None:
    intake.kit.manifest(f'edit = ["{MEAN}"]', f'edit = ["{MEAN}", "größe.py"]')
    intake.kit.manifest("needs = []", 'needs = []\n[[task]]\nid = "size"\ntitle = "t"\n'
                        'tier = "core"\npoints = 1\nminutes = 1\nfile = "größe.py"')  # fmt: skip
    intake.pack("alice.zip", raw_zip([Row(PATH.encode()), Row(b"lab90/gr\x94\xe1e.py")]))
    intake.pack("bob.zip", raw_zip([Row(PATH.encode()), Row("lab90/größe.py".encode())]))
    taken = intake.take("alice")
    assert taken.files == {MEAN: RIGHT}
    assert "größe.py has a name that is not UTF-8 in alice.zip" in taken.refused["größe.py"]
    assert intake.take("bob").files == {MEAN: RIGHT, "größe.py": RIGHT}


def test_all_that_is_taken_of_a_zip_has_a_bound(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = replace(entries.SUBMISSION, unpacked_bytes=len(RIGHT) - 1)
    monkeypatch.setattr(entries, "SUBMISSION", limits)
    intake.pack("alice.zip", one())
    assert "unpacks to more than 0 MiB" in intake.take().refused[MEAN]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (RuntimeError, "is damaged (RuntimeError while it was read)"),
        (RecursionError, "is damaged (RecursionError while it was read)"),
        (struct.error, "is damaged (error while it was read)"),
        (MemoryError, "needs more memory than 384 MiB to read"),
    ],
)
def test_what_nobody_foresaw_is_a_refusal_too(
    intake: Intake, monkeypatch: pytest.MonkeyPatch, fault: type[Exception], words: str
) -> None:
    def fails(*_: object) -> Iterable[entries.Entry]:
        raise fault("unforeseen")

    monkeypatch.setattr(zip_entries, "zip_entries", fails)
    intake.pack("alice.zip", one())
    assert words in intake.take().refused[MEAN]


def test_an_archive_that_fails_when_it_is_read_is_read_once(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    intake.pack("alice.zip", REFUSED["overlap-by-own-header"][1]())
    everybody = intake.everybody()
    lab = load_lab(intake.kit.root, LAB)
    first = everybody.take(everybody.students[0], lab)
    monkeypatch.setattr(everybody.reader, "contents", None)
    assert everybody.take(everybody.students[0], lab) == first
    assert "overlap" in first.refused[MEAN]


def test_an_archive_in_an_archive_is_not_opened(intake: Intake) -> None:
    intake.pack("alice.zip", one("alice.zip", data=one()))
    everybody = intake.everybody()
    assert everybody.skipped == [
        "alice.zip holds no lab, but another archive (alice.zip), which is not opened: "
        "pack the labs' folders themselves."
    ]
    assert intake.take().missing == {MEAN}
    assert "alice.zip holds another archive (alice.zip)" in intake.take().refused[MEAN]


def test_one_damaged_file_costs_that_file_only(intake: Intake) -> None:
    intake.kit.manifest(f'edit = ["{MEAN}"]', f'edit = ["{MEAN}", "spread.py"]')
    intake.kit.manifest("needs = []", 'needs = []\n[[task]]\nid = "spread"\ntitle = "t"\n'
                        'tier = "core"\npoints = 1\nminutes = 1\nfile = "spread.py"')  # fmt: skip
    intake.pack("alice.zip", raw_zip([Row(PATH.encode()), Row(b"lab90/spread.py", crc=1)]))
    taken = intake.take()
    assert taken.files == {MEAN: RIGHT}
    assert taken.refused["spread.py"].startswith("spread.py is damaged in alice.zip")
    assert taken.digests["spread.py"] == "refused"


# -- who there is ---------------------------------------------------------------------------------


def test_a_folder_counts_before_an_archive(intake: Intake) -> None:
    intake.hand_in("alice")
    intake.pack("alice.zip", one(data=b"rival"))
    intake.pack("Alice.tgz", b"")
    everybody = intake.everybody()
    assert [student.folder for student in everybody.students] == ["alice"]
    assert everybody.skipped == [
        "Alice.tgz and alice.zip were skipped: the folder alice is there too, and counts."
    ]
    assert intake.take().files == {MEAN: RIGHT}


@pytest.mark.parametrize("rival", ["bob.tar", "Bob.zip", "bob.ZIP", "bo\u0308b.tar"])
def test_of_two_archives_of_one_student_neither_counts(intake: Intake, rival: str) -> None:
    first = "b\u00f6b.zip" if "\u0308" in rival else "bob.zip"
    intake.hand_in("alice")
    for name in (first, rival):
        intake.pack(name, one())
    everybody = intake.everybody()
    assert [student.id for student in everybody.students] == ["alice"]
    (sentence,) = everybody.skipped
    assert sentence.endswith("were skipped: they belong to one student; keep one of them.")


def test_a_folder_that_is_called_like_an_archive_is_a_folder(intake: Intake) -> None:
    intake.hand_in("alice.zip")
    intake.pack("alice.tar", tar(member()))
    assert intake.students() == ["alice", "alice.zip"]
    assert intake.take("alice.zip").files == {MEAN: RIGHT}


def test_what_is_nobody_s_is_told(intake: Intake) -> None:
    intake.hand_in("alice")
    (intake.folder / "link.zip").symlink_to(intake.pack("real.txt", one()))
    for name in ("carl.rar", "dora.7z", ".zip", ".hidden.zip"):
        intake.pack(name, b"x")
    everybody = intake.everybody()
    assert [student.id for student in everybody.students] == ["alice"]
    told = dict(sentence.split(" was skipped: ") for sentence in everybody.skipped)
    assert told["link.zip"] == "it is a link, not a folder."
    assert told["real.txt"] == "it is a file, not a student's folder or archive."
    assert told["carl.rar"].startswith("an archive of this kind is not read; .zip,")
    assert told[".zip"] == told[".hidden.zip"] == "its name starts with a dot."


def test_nobody_left_is_a_sentence_with_its_reasons(intake: Intake) -> None:
    intake.pack("bob.zip", one())
    intake.pack("bob.tar", tar(member()))
    with pytest.raises(CallError, match=r"holds no student's folder.*keep one of them"):
        intake.everybody()


def test_an_unreadable_archive_is_told_to_the_instructor(intake: Intake) -> None:
    intake.hand_in("alice")
    intake.pack("bob.zip", b"")
    everybody = intake.everybody()
    assert everybody.skipped == ["bob.zip is empty (0 bytes) and was not read: hand it in again."]
    assert not everybody.has(everybody.students[1], LAB)


def test_a_pipe_in_an_archive_s_place_does_not_hold_the_run(intake: Intake) -> None:
    os.mkfifo(intake.folder / "alice.zip")
    assert "alice.zip is not a regular file and was not read" in intake.take().refused[MEAN]


# -- what changes between listing and reading, and odd folders ------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("alice.zip", "was removed after the submissions were listed"),
        ("alice", "is missing or cannot be read"),
    ],
)
def test_what_vanished_meanwhile_is_a_sentence(intake: Intake, name: str, said: str) -> None:
    if name == "alice":
        folder = intake.hand_in("alice")
    else:
        intake.pack(name, one())
    everybody = intake.everybody()
    (student,) = everybody.students
    assert everybody.has(student, LAB)
    if name == "alice":
        (folder / MEAN).unlink()
        folder.rmdir()
        folder.parent.rmdir()
        assert not everybody.has(student, LAB)
    else:
        (intake.folder / name).unlink()
    taken = everybody.take(student, load_lab(intake.kit.root, LAB))
    assert taken.files == {}
    assert said in taken.refused[MEAN]
    assert taken.missing == frozenset()


def test_a_folder_that_becomes_a_link_is_not_followed(intake: Intake, tmp_path: Path) -> None:
    intake.hand_in("alice")
    everybody = intake.everybody()
    (intake.folder / "alice").rename(tmp_path / "moved")
    (intake.folder / "alice").symlink_to(tmp_path / "moved")
    taken = everybody.take(everybody.students[0], load_lab(intake.kit.root, LAB))
    assert taken.files == {}
    assert taken.refused


def test_an_unreadable_folder_is_a_sentence(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    intake.hand_in("alice")
    everybody = intake.everybody()
    real = os.open

    def refuses(path: Any, *rest: Any, **more: Any) -> int:
        if Path(path).name == "alice":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *rest, **more)

    monkeypatch.setattr(submissions.os, "open", refuses)
    taken = everybody.take(everybody.students[0], load_lab(intake.kit.root, LAB))
    assert "missing or cannot be read" in taken.refused[MEAN]
    assert not everybody.has(everybody.students[0], LAB)


def test_devices_in_a_folder_are_refused(intake: Intake) -> None:
    folder = intake.hand_in("alice")
    (folder / MEAN).unlink()
    try:
        os.mknod(folder / MEAN, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")
    assert "not a regular file" in intake.take().refused[MEAN]


def test_a_folder_of_very_many_entries_is_looked_at_in_part(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = intake.hand_in("alice")
    for number in range(300):
        (folder / f"{number:05}").touch()
    monkeypatch.setattr(submissions, "MAX_ENTRIES", 100)
    taken = intake.take()
    assert taken.files == {MEAN: RIGHT}
    (note,) = taken.notes
    assert "and at least 8" in note
    assert note.endswith(" more.")


def test_strays_of_an_archive_are_kept_in_part(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    strays = [Row(b"lab90/%05d" % number, b"") for number in range(300)]
    intake.pack("alice.zip", raw_zip([Row(PATH.encode()), *strays]))
    for module in (archives, submissions):
        monkeypatch.setattr(module, "MAX_STRAYS", 100)
    (note,) = intake.take().notes
    assert note.endswith("and at least 87 more.")


# -- a reading process that an archive took over --------------------------------------------------

_NOT_ASKED = "is damaged (the process that read it gave an unexpected answer)"
# What it does instead of answering, and what is said of the archive.
CONTENTS: dict[str, tuple[str, str]] = {
    "hangs": ("while True: pass", "takes too long to read"),
    "sleeps": ("time.sleep(999)", "takes too long to read"),
    "allocates": ("return len(bytes(2**40))", "needs more memory than 384 MiB to read"),
    "allocates-piece-by-piece": (
        "kept = []\n    while True: kept.append(bytes(2**20))",
        "needs more memory than 384 MiB to read",
    ),
    "raises": (
        "raise type('\x1b[2J', (Exception,), {})",
        "is damaged (\\x1b[2J while it was read)",
    ),
    "ends": (
        "os._exit(0)",
        "is damaged (the process that read it ended itself with exit status 0)",
    ),
    "crashes": ("os.kill(os.getpid(), 11)", "the process that read it was ended by SIGSEGV"),
    "is-killed": ("os.kill(os.getpid(), 9)", "the process that read it was ended by SIGKILL"),
    "nothing": ("return None", _NOT_ASKED),
    "a-number": ("return 7", _NOT_ASKED),
    "an-object": ("return object()", _NOT_ASKED),
    "an-index": ("return {'labs': {}}", _NOT_ASKED),
    "no-folder": ("return {'folders': []}", _NOT_ASKED),
    "two-folders": ("return {'folders': [{}, {}]}", _NOT_ASKED),
    "another-file": ("return {'folders': [{'files': {'conftest.py': b''}}]}", _NOT_ASKED),
    "a-path": ("return {'folders': [{'files': {'../running_mean.py': b''}}]}", _NOT_ASKED),
    "too-large": ("return {'folders': [{'files': {MEAN: bytes(2**20 + 1)}}]}", _NOT_ASKED),
    "text-for-bytes": ("return {'folders': [{'files': {MEAN: [1]}}]}", _NOT_ASKED),
    "taken-and-refused": (
        "return {'folders': [{'files': {MEAN: b''}, 'refused': {MEAN: ['is x', 'y']}}]}",
        _NOT_ASKED,
    ),
    "another-refused": ("return {'folders': [{'refused': {'x': ['is x', 'y']}}]}", _NOT_ASKED),
    "many-strays": ("return {'folders': [{'strays': list(map(str, range(2001)))}]}", _NOT_ASKED),
    "long-stray": ("return {'folders': [{'strays': ['x' * 102]}]}", _NOT_ASKED),
    "misleading-doubt": ("return {'folders': [{}], 'doubtful': ['\u202e']}", _NOT_ASKED),
    "many-doubts": ("return {'folders': [{}], 'doubtful': ['x'] * 13}", _NOT_ASKED),
    "misleading-refusal": ("return ['is \x1b[2J', 'y']", _NOT_ASKED),
    "long-refusal": ("return ['x' * 401, 'y']", _NOT_ASKED),
    "misleading-reason": (
        "return {'folders': [{'refused': {MEAN: ['is \x1b[2J', 'y']}}]}",
        _NOT_ASKED,
    ),
}
INDEX: dict[str, tuple[str, str]] = {
    "contents": ("return {'folders': []}", _NOT_ASKED),
    "no-lab": ("return {'labs': {'../x': [['../x']]}, 'rivals': {}, 'nested': ''}", _NOT_ASKED),
    "no-place": ("return {'labs': {'lab90': []}}", _NOT_ASKED),
    "another-place": ("return {'labs': {'lab90': [['lab91']]}}", _NOT_ASKED),
    "many-places": ("return {'labs': {'lab90': [['lab90']] * 6}}", _NOT_ASKED),
    "strange-rivals": ("return {'labs': {}, 'rivals': {'lab90': [['x']]}}", _NOT_ASKED),
    "another-name": ("return {'paths': {'x.py': [['x.py']]}}", _NOT_ASKED),
    "another-path": ("return {'paths': {MEAN: [['x.py']]}}", _NOT_ASKED),
    "no-path": ("return {'paths': {MEAN: []}}", _NOT_ASKED),
    "many-paths": ("return {'paths': {MEAN: [[MEAN]] * 33}}", _NOT_ASKED),
    "empty-alike": ("return {'alike': [[]]}", _NOT_ASKED),
    "long-top": ("return {'top': ['x' * 102]}", _NOT_ASKED),
    "misleading-nested": ("return {'labs': {}, 'nested': '\x1b'}", _NOT_ASKED),
    "hangs": ("while True: pass", "takes too long to read"),
}


@pytest.fixture
def take_over(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Have reading processes do something else when they are asked for that."""

    def change(what: str, act: str) -> None:
        source = (
            "import os, time\n"
            "from grader.classroom.intake import archives\n"
            f"MEAN = {MEAN!r}\n"
            "def confine(_, *limits): archives.confine(*limits)\n"
            "def answer(_, what, *rest):\n"
            f"    if what != {what!r}: return archives.answer(what, *rest)\n"
            f"    {act}\n"
        )
        kit = replace(archive_reader._KIT, probes=source)
        monkeypatch.setattr(archive_reader, "_KIT", kit)

    return change


@TIER
def test_what_a_reading_process_does_costs_its_archive_only(
    intake: Intake, monkeypatch: pytest.MonkeyPatch, take_over: Any, tier: str
) -> None:
    monkeypatch.setenv("INFRALENS_PATIENCE", "1")
    monkeypatch.setattr(archive_reader, "SECONDS", 4.0)
    path = intake.pack("alice.zip", one())
    honest, wanted = archive_reader._KIT, [((LAB,), (MEAN,))]
    with ArchiveReader(tier) as reader:
        asked: dict[str, Callable[[], Any]] = {
            "contents": lambda: reader.contents(path, wanted),
            "index": lambda: reader.index(path, [MEAN]),
        }
        for what, acts in (("contents", CONTENTS), ("index", INDEX)):
            for name, (act, words) in acts.items():
                take_over(what, act)
                with pytest.raises(entries.Unreadable) as refused:
                    asked[what]()
                assert words in str(refused.value), name
        take_over("contents", "raise MemoryError")
        assert "alice.zip needs more memory" in intake.take(tier=tier).refused[MEAN]
        monkeypatch.setattr(archive_reader, "_KIT", honest)
        assert reader.contents(path, wanted).folders[0].files == {MEAN: RIGHT}


@needs_sandbox
def test_a_reading_process_has_nothing_but_its_archive(intake: Intake, take_over: Any) -> None:
    intake.pack("alice.zip", one())
    secret = intake.folder / "bob"
    secret.mkdir()
    root = Path(submissions.__file__).parents[3]
    tries = {
        **{f"os.stat({str(path)!r})": "FileNotFoundError" for path in (
            secret, intake.kit.root, root / "solutions", root / "tests",
            root / "grader/suite", root / "grader/classroom/grading",
        )},
        "os.write(os.open('/private/tmp/the-readers', os.O_WRONLY | os.O_CREAT), b'x')": "OSError",
        "os.fork()": "BlockingIOError",
        "__import__('socket').create_connection(('192.0.2.1', 9), 1)": "OSError",
        "len([name for name in os.listdir('/proc') if name.isdigit()])": "2",
    }  # fmt: skip
    act = (
        "seen = []\n"
        f"    for code in {list(tries)!r}:\n"
        "        try: seen.append(str(eval(code)))\n"
        "        except Exception as error: seen.append(type(error).__name__)\n"
        "    return [' '.join(seen), 'y']"
    )
    take_over("contents", act)
    assert f"alice.zip {' '.join(tries.values())} and" in intake.take(tier="sandbox").refused[MEAN]


@TIER
def test_every_tier_reads_alike(intake: Intake, tier: str) -> None:
    """Other rows are read at the best tier of this machine among the neighbours of a class."""
    chosen = ("link", "cp437", "tar-links", "tar-many-doubts", "both-places")
    cases = {"honest": (".zip", one, ""), **{name: NOTED[name] for name in chosen}}
    for name, (suffix, make, _) in cases.items():
        intake.pack(name + suffix, make())
    with ArchiveReader(tier) as reader:
        there = Submissions(intake.folder, reader, intake.labs())
        here = intake.everybody()
        assert there.skipped == here.skipped
        lab = load_lab(intake.kit.root, LAB)
        for student in here.students:
            assert there.take(student, lab) == here.take(student, lab)


@TIER
def test_a_process_that_cannot_be_had_is_nobody_s_mark(
    intake: Intake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier: str
) -> None:
    intake.pack("alice.zip", one())
    kit = replace(archive_reader._KIT, probes="def confine(_, *limits): raise OSError('no limits')")
    monkeypatch.setattr(archive_reader, "_KIT", kit)
    with pytest.raises(CallError, match=r"no limits.*nothing was graded"):
        GradingRun(
            intake.folder, tmp_path / "out", root=intake.kit.root, tier=tier, labs=[LAB]
        ).grade()
    assert not list(tmp_path.glob("out/results/*/*.json"))


# -- bounds ---------------------------------------------------------------------------------------

GREEDY = [
    *("bomb", "tar-gz-bomb", "tar-bz2-bomb", "tar-xz-bomb", "tar-xz-dictionary", "tar-huge-header"),
    *("many", "many-and-hidden", "many-in-tar", "many-headers", "many-members", "tar-pax-chain"),
]


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_DATA")
def test_greedy_archives_are_refused_in_little_memory(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_reader, "MEMORY_BYTES", 160 * MIB)
    for name in GREEDY:
        intake.pack(name + REFUSED[name][0], made(name))
    everybody = intake.everybody("process")
    for student in everybody.students:
        taken = everybody.take(student, load_lab(intake.kit.root, LAB))
        assert REFUSED[student.id][2] in taken.refused[MEAN]


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_DATA")
def test_the_bound_on_memory_bites(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound below what one honest archive needs refuses it."""
    intake.pack("alice.tar.xz", greedy_xz(28))
    assert intake.take(tier="process").files == {MEAN: RIGHT}
    monkeypatch.setattr(archive_reader, "MEMORY_BYTES", 64 * MIB)
    refused = intake.take(tier="process").refused[MEAN]
    assert "alice.tar.xz needs more memory than 64 MiB to read and was not read" in refused


def test_a_thousand_submissions_cost_little_memory(intake: Intake) -> None:
    data = os.urandom(2**14).hex().encode()
    source = intake.pack("s0000.zip", one(data=data))
    for number in range(1, 1000):
        os.link(source, intake.folder / f"s{number:04}.zip")
    lab = load_lab(intake.kit.root, LAB)
    tracemalloc.start()
    everybody = intake.everybody()
    for student in everybody.students:
        assert everybody.take(student, lab).files[MEAN] == data
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(everybody.students) == 1000
    assert peak < 8 * MIB


def test_limits_are_those_that_are_promised() -> None:
    assert entries.MAX_FILE_BYTES == MIB
    assert entries.MAX_ARCHIVE_BYTES == 32 * MIB
    assert entries.MAX_UNPACKED_BYTES == 64 * MIB
    assert entries.MAX_ENTRIES == 10_000
    assert unpacking.MAX_MEMBERS == 4096


# -- any bytes at all -----------------------------------------------------------------------------

VALID = {
    ".zip": packed_by(".zip", f"alice-main/exercises/{PATH}"),
    ".tar": packed_by(".tar", f"{'w' * 120}/{PATH}")[:4096] + bytes(1024),
    ".tar.gz": packed_by(".tar.gz", PATH),
    ".tar.bz2": packed_by(".tar.bz2", PATH),
    ".tar.xz": packed_by(".tar.xz", PATH),
}


@pytest.mark.parametrize("suffix", VALID)
@settings(
    max_examples=150,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_mutated_archives_are_read_or_refused(
    intake: Intake, suffix: str, data: st.DataObject
) -> None:
    blob = bytearray(VALID[suffix])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(blob) - 1))
        match data.draw(st.sampled_from(["set", "bit", "cut", "insert", "zeros", "ones"])):
            case "set":
                blob[at] = data.draw(st.integers(0, 255))
            case "bit":
                blob[at] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del blob[at : at + data.draw(st.integers(0, 40))]
            case "insert":
                blob[at:at] = data.draw(st.binary(max_size=40))
            case "zeros":
                blob[at : at + 4] = bytes(len(blob[at : at + 4]))
            case _:
                blob[at : at + 4] = b"\xff" * len(blob[at : at + 4])
        if not blob:
            blob = bytearray(b"P")
    intake.pack(f"alice{suffix}", bytes(blob))
    taken = intake.take()
    assert {*taken.files} | {*taken.refused} == {MEAN}
    assert all(len(content) <= MAX_FILE_BYTES for content in taken.files.values())
    if suffix != ".tar":  # A tar has no check sum over contents; the others do.
        assert taken.files in ({}, {MEAN: RIGHT})


# -- a whole class --------------------------------------------------------------------------------


def test_hostile_neighbours_change_nobody_s_marks(intake: Intake, tmp_path: Path) -> None:
    intake.hand_in("alice")
    intake.pack("bob.tar.gz", packed_by(".tar.gz", PLACES["as-github-has-it"]))
    intake.pack("carl.zip", one(data=RIGHT.replace(b"start=1", b"start=2")))
    honest = ("alice", "bob", "carl")
    tier = check_host().tier
    call: dict[str, Any] = {"root": intake.kit.root, "jobs": 2, "tier": tier, "labs": [LAB]}
    alone = GradingRun(intake.folder, tmp_path / "alone", **call).grade()
    for name, (suffix, *_) in REFUSED.items():
        intake.pack(f"x-{name}{suffix}", made(name))
    os.mkfifo(intake.folder / "x-fifo.zip")
    together = GradingRun(intake.folder, tmp_path / "together", **call).grade()
    assert together.exit_code == 0
    marks = {record.student: record for record in together.records}
    for record in alone.records:
        other = marks[record.student]
        assert (other.key, other.score, other.tasks) == (record.key, record.score, record.tasks)
        assert [(row.id, row.status) for row in other.tests] == [
            (row.id, row.status) for row in record.tests
        ]
    assert [marks[student].score for student in honest] == [2.0, 2.0, 0.0]
    hostile = {student for student in marks if student not in honest}
    assert hostile == {f"x-{name}" for name in REFUSED} | {"x-fifo"}
    assert all(marks[student].score == 0.0 for student in hostile)
    assert not list(tmp_path.rglob("passwd"))


def test_students_are_told_apart_from_their_archives() -> None:
    assert Submitter("alice", "alice") != Submitter("alice", "alice.zip", is_archive=True)
