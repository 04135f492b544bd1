"""Students, attempts with their files, results, adjustments, and what happened."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_DIGEST = sa.String(64)


def upgrade() -> None:
    op.create_table(
        "about",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_about"),
    )
    op.create_table(
        "student",
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_student"),
        sa.UniqueConstraint("id", name="uq_student_id"),
    )
    op.create_table(
        "content",
        sa.Column("digest", _DIGEST, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_content"),
    )
    op.create_table(
        "layout",
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("digest", _DIGEST, nullable=False),
        sa.Column("lab", sa.Text, nullable=False),
        sa.Column("names", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_layout"),
        sa.UniqueConstraint("digest", name="uq_layout_digest"),
    )
    op.create_table(
        "attempt",
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("student", sa.Integer, nullable=False),
        sa.Column("lab", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger),
        sa.Column("is_given", sa.Boolean, nullable=False),
        sa.Column("digest", _DIGEST, nullable=False),
        sa.Column("files", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("taken_in", sa.BigInteger, nullable=False),
        # no foreign key: the two tables refer to each other, and SQLite cannot add one later
        sa.Column("present", sa.Integer),
        sa.PrimaryKeyConstraint("number", name="pk_attempt"),
        sa.ForeignKeyConstraint(["student"], ["student.number"], name="fk_attempt_student"),
    )
    op.create_index("ix_attempt_lab_student", "attempt", ["lab", "student"])
    op.create_index("ix_attempt_digest", "attempt", ["digest"])
    op.create_table(
        "result",
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("key", _DIGEST, nullable=False),
        sa.Column("score", sa.Float, nullable=False),
        sa.Column("max_score", sa.Float, nullable=False),
        sa.Column("not_verified", sa.Float, nullable=False),
        sa.Column("graded", sa.BigInteger, nullable=False),
        sa.Column("layout", sa.Integer, nullable=False),
        sa.Column("outcomes", sa.Text, nullable=False),
        sa.Column("points", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_result"),
        sa.ForeignKeyConstraint(["attempt"], ["attempt.number"], name="fk_result_attempt"),
        sa.ForeignKeyConstraint(["layout"], ["layout.number"], name="fk_result_layout"),
        sa.UniqueConstraint("attempt", "key", name="uq_result_attempt"),
    )
    op.create_table(
        "record",
        sa.Column("result", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("result", name="pk_record"),
        sa.ForeignKeyConstraint(["result"], ["result.number"], name="fk_record_result"),
    )
    op.create_table(
        "adjustment",
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("student", sa.Integer, nullable=False),
        sa.Column("lab", sa.Text, nullable=False),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("points", sa.Float, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_adjustment"),
        sa.ForeignKeyConstraint(["student"], ["student.number"], name="fk_adjustment_student"),
    )
    op.create_index("ix_adjustment_student_lab", "adjustment", ["student", "lab"])
    op.create_table(
        "event",
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("student", sa.Integer),
        sa.Column("lab", sa.Text),
        sa.Column("attempt", sa.Integer),
        sa.Column("old", sa.Integer),
        sa.Column("new", sa.Integer),
        sa.Column("why", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_event"),
        sa.ForeignKeyConstraint(["student"], ["student.number"], name="fk_event_student"),
        sa.ForeignKeyConstraint(["attempt"], ["attempt.number"], name="fk_event_attempt"),
        sa.ForeignKeyConstraint(["old"], ["result.number"], name="fk_event_old"),
        sa.ForeignKeyConstraint(["new"], ["result.number"], name="fk_event_new"),
    )
    op.create_index("ix_event_student_lab", "event", ["student", "lab"])
