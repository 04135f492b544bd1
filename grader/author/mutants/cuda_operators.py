"""Mutants of CUDA C++: what goes wrong with barriers, guards, indices, types and warps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from grader.author.mutants.cuda_devices import OPERATORS as DEVICES
from grader.author.mutants.cuda_expressions import OPERATORS as EXPRESSIONS
from grader.author.mutants.cuda_scope import Scope
from grader.author.mutants.cuda_tokens import Listing, Statement
from grader.author.mutants.edits import Edit

_BARRIERS = ("__syncthreads", "__syncwarp")


def edits(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[Edit]:
    """Every mutation of the blocks, each resulting text once.

    Of a mutation that the compiler would refuse, some are left out; not all can be told.
    """
    listing = Listing(text)
    for begin, end in spans:
        scope, inside = Scope(listing, (begin, end)), text[begin:end]
        seen = {_words(inside)}
        for operator in (*STATEMENTS, *DEVICES, *EXPRESSIONS):
            for edit in operator(scope):
                if edit.start < begin or end < edit.start + len(edit.old):
                    continue  # the block ends within a statement
                words = _words(replace(edit, start=edit.start - begin).applied(inside))
                if words not in seen:
                    seen.add(words)
                    yield edit


def _words(text: str) -> tuple[str, ...]:
    return tuple(token.text for token in Listing(text).tokens)


def barriers(scope: Scope) -> Iterator[Edit]:
    """A barrier left out, for one warp only, or one statement earlier or later."""
    listing = scope.listing
    for row in scope.lists:
        for place, one in enumerate(row):
            if not _is_barrier(scope, one):
                continue
            yield scope.edit("barrier-dropped", one.first, one.last, "")
            if listing.word(one.first) == "__syncthreads":
                yield scope.edit("barrier-weakened", one.first, one.last, "__syncwarp();")
            if place and _uses_memory(scope, row[place - 1]):
                yield from _earlier(scope, row[place - 1], one)
            if place + 1 < len(row) and _uses_memory(scope, row[place + 1]):
                yield _exchanged(scope, "barrier-later", one, row[place + 1])
    for loop in scope.everything:
        if loop.kind in ("for", "while") and loop.parts[0].kind == "block":
            yield from _out_of(scope, loop)


def _is_barrier(scope: Scope, one: Statement) -> bool:
    return one.kind == "plain" and scope.listing.word(one.first) in _BARRIERS


def _uses_memory(scope: Scope, one: Statement) -> bool:
    """Whether a barrier on the other side of the statement could make a difference."""
    words = {scope.listing.word(k) for k in range(one.first, one.last)}
    pointers = {name.name for name in scope.names.values() if name.is_indirect}
    return bool(words & (pointers | {"[", "->", "return"}))


def _earlier(scope: Scope, before: Statement, barrier: Statement) -> Iterator[Edit]:
    """Before the statement in front of it, and into that one if it is conditional or a loop."""
    yield _exchanged(scope, "barrier-earlier", before, barrier)
    if before.kind not in ("if", "for", "while"):
        return
    operator = "barrier-conditional" if before.kind == "if" else "barrier-into-loop"
    listing = scope.listing
    call, body = listing.source(barrier.first, barrier.last), before.parts[0]
    if body.kind == "block":
        head = listing.source(before.first, body.last - 1)
        inside = f"{head} {call} }}{listing.source(body.last, before.last)}"
    else:
        head = listing.source(before.first, body.first)
        own = listing.source(body.first, body.last)
        inside = f"{head} {{ {own} {call} }} {listing.source(body.last, before.last)}"
    yield scope.edit(operator, before.first, barrier.last, inside.rstrip())


def _exchanged(scope: Scope, operator: str, one: Statement, other: Statement) -> Edit:
    listing = scope.listing
    between = listing.text[listing.tokens[one.last - 1].end : listing.tokens[other.first].start]
    first, second = listing.source(one.first, one.last), listing.source(other.first, other.last)
    return scope.edit(operator, one.first, other.last, second + between + first)


def _out_of(scope: Scope, loop: Statement) -> Iterator[Edit]:
    """A loop's last barrier behind the loop."""
    body = loop.parts[0]
    if len(body.parts) > 1 and _is_barrier(scope, body.parts[-1]):
        last = body.parts[-1]
        listing = scope.listing
        call = listing.source(last.first, last.last)
        kept = listing.source(loop.first, last.first)
        yield scope.edit("barrier-out-of-loop", loop.first, loop.last, f"{kept} }} {call}")


def guards(scope: Scope) -> Iterator[Edit]:
    """A condition that holds always, or never; a guard that sends threads home instead."""
    listing = scope.listing
    for one in scope.everything:
        if one.kind != "if":
            continue
        then = listing.source(one.parts[0].first, one.parts[0].last)
        others = [listing.source(part.first, part.last) for part in one.parts[1:]]
        yield scope.edit("guard-dropped", *one.head, "true")
        yield scope.edit("branch-dropped", one.first, one.last, others[0] if others else ";")
        if others:
            yield scope.edit("branch-dropped", one.parts[0].last, one.last, "")
    for one in scope.statements if scope.is_kernel else ():
        condition = listing.source(*one.head) if one.kind == "if" else ""
        if condition and len(one.parts) == 1 and one is not scope.statements[-1]:
            then = listing.source(one.parts[0].first, one.parts[0].last)
            yield scope.edit(
                "return-early", one.first, one.last, f"if (!({condition})) return; {then}"
            )
        elif one.kind == "plain":
            yield from _returning_choice(scope, one)


def _returning_choice(scope: Scope, one: Statement) -> Iterator[Edit]:
    """`x = c ? a : b;` as `if (!(c)) return; x = a;`."""
    listing = scope.listing
    at = {listing.word(k): k for k in reversed([*listing.at_depth(one.first, one.last)])}
    if "=" in at and "?" in at and ":" in at and not scope.is_declaration(one):
        target = listing.source(one.first, at["="] + 1)
        condition = listing.source(at["="] + 1, at["?"])
        value = listing.source(at["?"] + 1, at[":"])
        new = f"if (!({condition})) return; {target} {value};"
        yield scope.edit("return-early", one.first, one.last, new)


def statements(scope: Scope) -> Iterator[Edit]:
    """A statement left out, or one of several between commas; a loop's end for its next round."""
    listing = scope.listing
    for one in scope.everything:
        word = listing.word(one.first)
        if one.kind != "plain" or scope.is_declaration(one) or _is_barrier(scope, one):
            continue
        if word in ("break", "continue"):
            other = "continue" if word == "break" else "break"
            yield scope.edit("jump", one.first, one.first + 1, other)
        if one.last - one.first < 2 or (word == "return" and one.last - one.first > 2):
            continue
        yield scope.edit("statement-dropped", one.first, one.last, ";")
        for first, last in listing.commas(one.first, one.last - 1):
            if (first, last) == (one.first, one.last - 1):
                continue
            begin = first - 1 if first > one.first else first
            end = last if first > one.first else last + 1
            yield scope.edit("statement-dropped", begin, end, "")


STATEMENTS: tuple[Callable[[Scope], Iterator[Edit]], ...] = (barriers, guards, statements)
