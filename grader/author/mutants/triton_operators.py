"""Operators on Triton's kernels and their launches: masks, strides, blocks, warps."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.author.mutants.edits import Edit
from grader.author.mutants.python_source import Function, PythonSource


def edits_of(source: PythonSource) -> Iterator[Edit]:
    for node in source.nodes:
        if isinstance(node, ast.Call):
            yield from _launches(source, node)
            yield from _others(source, node)
        elif isinstance(node, ast.Name) and is_kernel(source.function_of(node)):
            yield from _strides(source, node)


def is_kernel(function: Function | None) -> bool:
    decorators = function.decorator_list if function else []
    return any(ast.unparse(part).startswith("triton.jit") for part in decorators)


def _strides(source: PythonSource, node: ast.Name) -> Iterator[Edit]:
    """A kernel that takes a stride for 1."""
    if "stride" in node.id.lower() and isinstance(node.ctx, ast.Load):
        yield source.expression("contiguous", node, "1")


def _others(source: PythonSource, node: ast.Call) -> Iterator[Edit]:
    """What a load gives where the mask is off. The mask itself is dropped as any keyword."""
    if not is_kernel(source.function_of(node)):
        return
    for word in node.keywords:
        if word.arg == "other":
            lowest = "inf" in source.code(word.value)
            for value in ("0.0", "1.0") if lowest else ("1.0", 'float("-inf")'):
                yield source.replaced("mask", word.value, value)
        if word.arg == "mask":
            yield source.replaced("mask", word.value, "None")


def _launches(source: PythonSource, node: ast.Call) -> Iterator[Edit]:
    """`kernel[grid](...)` with constants for what the caller or the data should decide."""
    if isinstance(node.func, ast.Subscript):
        for word in node.keywords:
            if word.arg and word.arg.isupper():
                for value in ("128", "1024"):
                    yield source.replaced("block-size", word.value, value)
            elif word.arg in ("num_warps", "num_stages"):
                yield source.replaced("block-size", word.value, "4")
    if ast.unparse(node.func) == "triton.next_power_of_2":
        for value in ("128", "1024", "4096"):
            yield source.replaced("block-size", node, value)
