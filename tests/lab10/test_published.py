"""match_prefix and published figures that are one line of arithmetic."""

from __future__ import annotations

from grader.suite import expect, task

from . import oracles_serving as oracles


@task("match_prefix", gate=False)
def test_a_prompt_that_is_sent_again(student):
    """Of 100 tokens in blocks of 16 96 come back, of 552 and of 979 in blocks of 528 528.
    Oracle: published.json, prefix_cache_full_blocks (a vLLM issue)."""
    held, queries = {}, []
    for tokens, size in ((100, 16), (552, 528), (979, 528)):
        hashes = [1000 * tokens + place for place in range(tokens // size)]
        held.update({content: len(held) + 1 + place for place, content in enumerate(hashes)})
        queries.append((hashes, tokens, size))
    found, _changes = student.probe.prefixes(list(held.items()), queries)
    lengths = [
        size * len(blocks) if isinstance(blocks, list) else None
        for blocks, (_hashes, _tokens, size) in zip(found, queries, strict=True)
    ]
    expect.published(lengths, oracles.PUBLISHED["prefix_cache_full_blocks"])
