"""Lab 07, task 9: the tiled forward as ONE Triton kernel.

Shapes as in the rest of the lab: `q: (B, H, S, D)`, `k, v: (B, H_kv, S_kv, D)`, query head h reads
KV head `h // (H // H_kv)`, causal attention is aligned to the end, and a row that sees no key has
output 0 and lse -inf.

Tensors on a CPU are served by Triton's interpreter, tensors on a GPU by its compiler, and both run
the same kernel. This file alone needs Triton.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

HEAD_SIZES = (16, 32, 64, 128)


TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}


def operand_dtype(q: Tensor) -> tl.dtype:
    """The type of the operands of `tl.dot`: that of q, but float32 for bf16 on a CPU.

    Tensor cores multiply bf16. The interpreter cannot: NumPy has no such type. float32 holds every
    bf16 number and every product of two, so whoever rounds to bf16 where a GPU needs bf16, and
    converts to this type last, multiplies the same numbers in both places. On a GPU, and for the
    other types, that conversion does nothing.
    """
    return tl.float32 if q.dtype == torch.bfloat16 and not q.is_cuda else TYPES[q.dtype]


def check(q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> None:
    """ValueError for what the kernel is not made for: shapes, types, uneven groups, scale <= 0.

    A scale of None stands for the default.
    """
    B, H, _, D = q.shape
    if D not in HEAD_SIZES or k.shape != v.shape or (k.shape[0], k.shape[3]) != (B, D):
        shapes = ", ".join(str(list(x.shape)) for x in (q, k, v))
        raise ValueError(f"q, k, v are {shapes}: B and D must agree, D be one of {HEAD_SIZES}.")
    if k.shape[1] == 0 or H % k.shape[1]:
        raise ValueError(f"{H} query heads cannot share {k.shape[1]} KV heads evenly.")
    if q.dtype not in TYPES or not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k, v are {q.dtype}, {k.dtype}, {v.dtype}: one type, 16 or 32 bits.")
    if scale is not None and not scale > 0:
        raise ValueError(f"scale is {scale}; it must be positive.")


@triton.jit
def flash_program(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qh, stride_qs, stride_qd,
    stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd,
    S, S_kv, group, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    CAUSAL: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q rows of one query head against every key block that they see.

    The strides are those of q, k and v, in elements, for their axes (B, H, S, D); o: (B, H, S, D)
    and lse: (B, H, S) lie row by row. `group` is H // H_kv, `scale_log2` is scale * log2(e),
    OPERAND what `operand_dtype` gives. Change the parameters as you like, but keep the names of the
    five pointers: traffic is counted by them.
    """
    # TODO(lab07.flash_kernel): The tiled forward as a Triton kernel
    raise NotImplementedError("lab07.flash_kernel")


# Room for what the program calls: any @triton.jit function of your own.
# TODO(lab07.flash_kernel): The tiled forward as a Triton kernel


def flash_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    scale: float | None = None,
    block_q: int = 128,
    block_k: int = 64,
) -> tuple[Tensor, Tensor]:
    """Attention by ONE launch of a Triton kernel, in tiles of block_q rows by block_k keys.

    q: (B, H, S, D), k, v: (B, H_kv, S_kv, D), float16, bfloat16 or float32, with any strides; D is
    16, 32, 64 or 128, the blocks are powers of two from 16 on. Returns o: (B, H, S, D) in the dtype
    of q and lse: (B, H, S) in float32, the natural logarithm of the sum of exp(scores) of the row.
    Scores, statistics and accumulator are float32, whatever the inputs; the scale, which is
    positive, belongs to the scores, for q times the scale would be rounded. p may be rounded to the
    type of v before its product; l is the sum of the p that are not rounded. S and S_kv may be 0.
    Raises ValueError for what `check` refuses, also where there are no rows or no keys.
    For float32 inputs the products are float32 on a GPU, too, so give `tl.dot` an
    `input_precision` other than TF32, its default there. The interpreter multiplies in float32
    whatever it says, so no test on a CPU sees this.
    Measured: ceil(S / block_q) * B * H programs; each element of q is loaded once, each of o and
    lse stored once; a program loads a key block once, and only if one of its rows sees a key of it;
    the products are `tl.dot`'s, both over those key blocks alone, in whole tiles. Nothing is
    copied, cast, padded or repeated by torch: what comes before the launch is views and new
    tensors.
    Source: FlashAttention-2 (Dao 2023), Algorithm 1.
    """
    # TODO(lab07.flash_kernel): The tiled forward as a Triton kernel
    raise NotImplementedError("lab07.flash_kernel")
