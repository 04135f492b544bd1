"""Passages of lab 04's reference, and other texts, that the wrong answers of several tasks name."""

import re

from grader.lab.skeleton import with_block


def edited(text, task, *changes):
    """The reference with pieces (old, new) of one task's block replaced."""
    found = re.search(rf"// BEGIN SOLUTION {task}\n(.*?)\n[ \t]*// END SOLUTION", text, re.DOTALL)
    body = found[1]
    for old, new in changes:
        if old not in body:
            raise ValueError(f"the reference of `{task}` has no {old!r}")
        body = body.replace(old, new)
    return with_block(text, task, body)


_LOAD = "sdata[tid] = i < n ? in[i] : 0.0f;\n    __syncthreads();"

_ADDS = "sdata[tid] += sdata[tid + s]"

_ATOMIC = "if (tid == 0) atomicAdd(out, sdata[0]);"

_HALVES = """    for (unsigned int left = blockDim.x, s; left > 1; left = s) {
        s = (left + 1) / 2;
        if (tid + s < left) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }"""
