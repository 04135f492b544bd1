"""The key of a unit: a hash over everything that its result depends on.

A unit whose key is in the gradebook is not graded again. That one rule is the cache, the resumption
after a crash and the incremental regrading.
"""

from __future__ import annotations

import hashlib
import hmac
import json

from grader.classroom.intake.submissions import Submission
from grader.sandbox.backends import patience
from grader.suite.suite_run import PUBLIC_SEED


def seed(course_key: bytes | None, taken: Submission, scope: str = "attempt") -> str:
    """The seed of a unit: HMAC(course key, submission), or the public one without a course key.
    scope: `lab` gives everyone who hands in that lab the same one, HMAC(course key, lab's id).

    A test's own seed is `grader.suite.run.seed_of` of it, so that
    `pytest exercises/labNN --seed <this>` repeats what a grading run did."""
    if course_key is None:
        return PUBLIC_SEED
    text = f"lab:{taken.lab}" if scope == "lab" else taken.digest
    return hmac.new(course_key, text.encode(), hashlib.sha256).hexdigest()


def unit_key(taken: Submission, suite_digest: str, seed: str, tier: str, feedback: str) -> str:
    rows = {
        "files": taken.digests,
        "refused": taken.refused,
        "suite": suite_digest,
        "seed": seed,
        "tier": tier,
        "feedback": feedback,
        "patience": patience(),
    }
    text = json.dumps(rows, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
