"""Lab 09, beside the learner's code: what would be too much to send back."""

from __future__ import annotations

from collections import Counter


def refusal(student, path):
    """What load_trace says of a file with a ValueError, or None where it returns."""
    try:
        student.load_trace(path)
    except ValueError as error:
        return str(error)
    return None


def counted(student, path):
    """A real trace as load_trace reads it: events a category, and base_ns."""
    trace = student.load_trace(path)
    return dict(Counter(event.cat for event in trace.events)), trace.base_ns


# === nsys_queries, roofline, diagnose, commands ===
