"""The tables of a course's gradebook, and the revision of its form.

What happened is kept: rows of `attempt`, `result`, `record`, `adjustment` and `event` are never
changed, with one exception: `attempt.present` says which of an attempt's results counts, and every
change of it is an `event`. Moments are microseconds since 1970 in UTC, the same on every database.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

REVISION = "0001"
"""The newest revision in `migrations/versions`."""

_DIGEST = String(64)
metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)

about = Table(
    "about",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("value", Text, nullable=False),
)

student = Table(
    "student",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),  # as in the roster
)

content = Table(
    "content",
    metadata,
    Column("digest", _DIGEST, primary_key=True),  # SHA-256 of what `data` unpacks to
    Column("data", LargeBinary, nullable=False),  # zlib
)

attempt = Table(
    "attempt",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("student", ForeignKey("student.number"), nullable=False),
    Column("lab", Text, nullable=False),
    Column("at", BigInteger),  # when it was handed in; NULL where nobody said
    Column("is_given", Boolean, nullable=False),  # by the one who took it in, not by a system
    Column("digest", _DIGEST, nullable=False),  # of the lab's files: the same files again, or not
    Column("files", Text, nullable=False),  # JSON: attempts.Stored
    Column("source", Text, nullable=False),  # where it was taken in from
    Column("taken_in", BigInteger, nullable=False),
    # no foreign key: the two tables would refer to each other, which SQLite cannot add later
    Column("present", Integer),  # result.number
    Index("ix_attempt_lab_student", "lab", "student"),
    Index("ix_attempt_digest", "digest"),
)

layout = Table(
    "layout",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("digest", _DIGEST, nullable=False, unique=True),
    Column("lab", Text, nullable=False),
    Column("names", Text, nullable=False),  # JSON: results.Layout
)

result = Table(
    "result",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("attempt", ForeignKey("attempt.number"), nullable=False),
    Column("key", _DIGEST, nullable=False),  # grading.keys.unit_key
    Column("score", Float, nullable=False),
    Column("max_score", Float, nullable=False),
    Column("not_verified", Float, nullable=False),
    Column("graded", BigInteger, nullable=False),
    Column("layout", ForeignKey("layout.number"), nullable=False),
    Column("outcomes", Text, nullable=False),  # a letter a test, in the layout's order
    Column("points", Text, nullable=False),  # a number a task, in the layout's order
    UniqueConstraint("attempt", "key"),
)

record = Table(
    "record",
    metadata,
    Column("result", ForeignKey("result.number"), primary_key=True),
    Column("data", LargeBinary, nullable=False),  # zlib of the record's JSON
)

adjustment = Table(
    "adjustment",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("student", ForeignKey("student.number"), nullable=False),
    Column("lab", Text, nullable=False),
    Column("task", Text, nullable=False),  # empty: of the whole lab
    Column("points", Float, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("who", Text, nullable=False),
    Column("why", Text, nullable=False),
    Index("ix_adjustment_student_lab", "student", "lab"),
)

event = Table(
    "event",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("who", Text, nullable=False),
    Column("what", Text, nullable=False),  # history.What
    Column("student", ForeignKey("student.number")),
    Column("lab", Text),
    Column("attempt", ForeignKey("attempt.number")),
    Column("old", ForeignKey("result.number")),
    Column("new", ForeignKey("result.number")),
    Column("why", Text, nullable=False),
    Index("ix_event_student_lab", "student", "lab"),
)
