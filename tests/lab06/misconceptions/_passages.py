"""Passages of lab 06's reference, and other texts, that the wrong answers of several tasks name."""


def first_block(text, task, code):
    """The reference's text with other code in the first block of the task: that of its kernel."""
    before, begin, rest = text.partition(f"# BEGIN SOLUTION {task}\n")
    if not begin:
        raise ValueError(f"no block of `{task}`")
    return before + begin + code.strip("\n") + "\n    " + rest[rest.index("# END SOLUTION") :]
