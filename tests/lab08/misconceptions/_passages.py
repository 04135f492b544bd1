"""Passages of lab 08's reference, and other texts, that the wrong answers of several tasks name."""

from grader.lab.skeleton import changed


def _body(text, method, code, owner="Zero1AdamW"):
    """The body between the markers of one method of a class, exchanged."""
    start = text.index(f"    def {method}(", text.index(f"class {owner}"))
    begin = text.index(f"# BEGIN SOLUTION {owner}\n", start) + len(f"# BEGIN SOLUTION {owner}\n")
    end = text.index("        # END SOLUTION", begin)
    return text[:begin] + code.strip("\n") + "\n" + text[end:]


def _inside(text, owner, *pairs):
    """`changed`, in one class and nowhere else."""
    start = text.index(f"class {owner}")
    ends = [text.find(mark, start + 1) for mark in ("\nclass ", "\n# ---", "\ndef ")]
    end = min(at for at in [*ends, len(text)] if at > 0)
    return text[:start] + changed(text[start:end], *pairs) + text[end:]
