"""Trace files as their publishers write them, from requests that were drawn."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def azure_lines(rows: list[tuple[int, int, int]], start: datetime, digits: int = 7) -> list[str]:
    """Rows of (time in units of 10**-digits s, prompt, out) as lines, header first."""
    unit = 10**digits
    lines = [HEADER]
    for ticks, prompt, out in rows:
        moment = start + timedelta(seconds=ticks // unit)
        fraction = f".{ticks % unit:0{digits}d}" if digits else ""
        lines.append(f"{moment:%Y-%m-%d %H:%M:%S}{fraction},{prompt},{out}")
    return lines


def mooncake_lines(requests: list[Any], offset_ms: int = 0) -> list[str]:
    """Requests with hashes as lines of JSON; times in milliseconds."""
    return [
        json.dumps(
            {
                "timestamp": offset_ms + round(1000 * row.t_arrival_s),
                "input_length": row.prompt_tokens,
                "output_length": row.out_tokens,
                "hash_ids": row.block_hashes,
            }
        )
        for row in requests
    ]


def hit_rates(requests: list[Any], block: int = 512) -> tuple[float, float, float]:
    """Of a cache without end: hits of all blocks, of full blocks, of tokens (never all of them)."""
    seen: set[int] = set()
    hit = blocks = full_hit = full_blocks = token_hit = tokens = 0
    for row in requests:
        run = 0
        while run < len(row.block_hashes) and row.block_hashes[run] in seen:
            run += 1
        full = row.prompt_tokens // block
        hit, blocks = hit + run, blocks + len(row.block_hashes)
        full_hit, full_blocks = full_hit + min(run, full), full_blocks + full
        token_hit += min(min(run, full) * block, row.prompt_tokens - 1)
        tokens += row.prompt_tokens
        seen.update(row.block_hashes)
    return hit / blocks, full_hit / full_blocks, token_hit / tokens
