"""The figures of lab 03's page, in closed form; buckets by torch's rule, written here once more."""

from __future__ import annotations

from fractions import Fraction

from grader.author.page_claims import assumed, claim, fact, figures, measured, published
from grader.author.page_facts import FACTS

MIB = 2**20
FIRST, LATER = MIB, 25 * MIB  # torch 2.13: _DEFAULT_FIRST_BUCKET_BYTES, bucket_cap_mb
LLAMA = int(FACTS["Llama-2-7B parameters"].value)


def buckets(sizes, first=FIRST, later=LATER):
    """Bytes of each bucket: tensors in the order in which they are ready; one that reaches its cap
    is closed."""
    found, size = [], 0
    for nbytes in sizes:
        size += nbytes
        if size >= (later if found else first):
            found.append(size)
            size = 0
    return [*found, size] if size else found


def linears(count, width, bias=True):
    """Float32 gradients of equal layers, last layer first, each one's bias before its weight."""
    return [4 * width, 4 * width**2] * count if bias else [4 * width**2] * count


@figures
def what_travels(code):
    where = "**What has to travel.**"
    yield fact("Llama-2-7B parameters", where=where)
    yield claim(2 * LLAMA, "bytes", "Llama-2-7B's bf16 gradients", where=where)
    factor = 2 * Fraction(8 - 1, 8)
    sent = "With 8 ranks, Llama-2-7B's bf16 gradients"
    yield claim(factor * 2 * LLAMA, "bytes", "sent by each rank", where=sent)
    yield claim(factor, "", "times the gradients", where=sent)
    less = "2(W - 1)/W:"
    yield claim(100 * (1 - factor / 2), "%", "less than twice", where=less)
    missing = "**Three ways to learn that a rank is missing.**"
    yield published(30, "minutes", "torch.distributed, default_pg_timeout", where=missing)


@figures
def when_to_send(code):
    where = "**When to send it.**"
    ten = linears(10, 1024)
    source = "torch 2.13: _DEFAULT_FIRST_BUCKET_BYTES and bucket_cap_mb"
    yield published(FIRST, "bytes", source, where=where)
    yield published(LATER / MIB, "MiB", source, where=where)
    yield claim(sum(ten), "bytes", "ten layers", where=where)
    for size in buckets(ten):
        yield claim(size, "bytes", "a bucket of them", where=where)
        yield claim(size, "bytes", "a bucket", where="| 10 x Linear(1024, 1024) with bias, 40")
    yield claim(sum(ten), "bytes", "ten layers", where="| 10 x Linear(1024, 1024) with bias, 40")
    for size in buckets(linears(40, 512)):
        yield claim(size, "bytes", "a bucket", where="| 40 x Linear(512, 512) with bias |")
    eight = buckets(ten, 8 * MIB, 8 * MIB)
    if len(eight) != 5 or len(set(eight)) != 1:
        raise ValueError(f"the buckets under 8 MiB are {eight}")
    for passage in ("It replaces the first cap too", "| `bucket_cap_mb=8` |"):
        yield claim(eight[0], "bytes", "each of five", where=passage)
    second = buckets(ten)[1] / MIB
    yield claim(second, "", "MiB of the second bucket", where="There are 3: the first cap")
    yield published(FIRST / MIB, "MiB", source, where="There are 3: the first cap")
    wide = buckets(linears(4, 2560, bias=False))
    if len(wide) != 4 or len(set(wide)) != 1:
        raise ValueError(f"the buckets of four wide layers are {wide}")
    yield claim(wide[0], "bytes", "each of four", where="| 4 x Linear(2560, 2560) without bias |")


@figures
def the_script(code):
    where = "The script trains 5,313 parameters"
    printed = "python solutions/lab03/train_ddp.py, torch 2.13"
    yield measured(5313, "parameters", printed, where=where)
    for cap in (4, 8):
        yield assumed(cap, "KiB", "the script's caps", where=where)
    last = "and, of the last backward, two buckets"
    for size in (16.5, 4.25):
        yield measured(size, "KiB", printed, where=last)
