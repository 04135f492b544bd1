"""The same bytes as libraries make, where they can be imported: shown, never scored.

torchao 0.18, bitsandbytes 0.50 and compressed-tensors 0.20 are asked on their CPU paths.
"""

from __future__ import annotations

import numpy as np

from grader.suite import expect, task

from . import oracles_formats as oracles
from .test_formats import BLOCKS, _answer, _mx_case, _nf4, _nf4_case, _nvfp4, _same


def _full(shape, block):
    """A block with each -1 written out."""
    return tuple(n if size == -1 else size for n, size in zip(shape, block, strict=True))


@task("qparams", extra=("torchao",))
def test_torchao_has_the_same_integers(student, rng):
    """SYMMETRIC is amax/7.5 there; scales, zero points and codes are the same.
    Oracle: torchao's choose_qparams_affine and quantize_affine."""
    import torch
    from torchao.quantization import quant_primitives as torchao

    for bits in (4, 8):
        for sym in (True, False):
            kind = torchao.MappingType.SYMMETRIC if sym else torchao.MappingType.ASYMMETRIC
            dtype = torch.int8 if sym else torch.uint8
            low = -(2 ** (bits - 1)) if sym else 0
            for covers, block in BLOCKS.items():
                x, scale, zero = oracles.integer_case(rng, (12, 24), bits, sym, block, "amax/7.5")
                whole = _full(x.shape, block)
                ends = (low, low + 2**bits - 1)
                tensor = torch.from_numpy(x)
                theirs = torchao.choose_qparams_affine(tensor, kind, whole, dtype, *ends)
                codes = torchao.quantize_affine(tensor, whole, *theirs, dtype, *ends).numpy()
                row = (x, bits, sym, block, "amax/7.5")
                (answer,) = student.probe.many("qparams", [row])
                mine = _answer(answer, ("scale", "zero"), "torchao")
                because = f"torchao, {kind.name}, {bits} bits, a scale for {covers}"
                for name, got, want in zip(("scale", "zero"), mine, theirs, strict=True):
                    _same(got, want.reshape(got.shape).numpy(), because, name)
                (got,) = student.probe.many("quant", [(x, scale, zero, bits, sym)])
                _same(got, codes, because, "codes")


@task("qparams", extra=("compressed_tensors",))
def test_compressed_tensors_has_the_same_scales(student, rng):
    """Its symmetric scale is amax over half of the range, too: 7.5 for int4, 127.5 for int8.
    Oracle: compressed-tensors' calculate_qparams."""
    import torch
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.utils import calculate_qparams

    x = rng.standard_normal((12, 64)).astype(np.float32)
    for bits in (4, 8):
        args = QuantizationArgs(num_bits=bits, symmetric=True)
        low, high = (torch.from_numpy(end) for end in (x.min(1), x.max(1)))
        want, _zero = calculate_qparams(low, high, args)
        (answer,) = student.probe.many("qparams", [(x, bits, True, (1, -1), "amax/7.5")])
        scale, _zeros = _answer(answer, ("scale", "zero"), "compressed-tensors")
        expect.equal(scale.ravel(), want.numpy(), f"compressed-tensors, {bits} bits", "scale")


@task("pack_int4", extra=("torchao",))
def test_torchao_packs_the_low_nibble_first(student, rng):
    """MXFP4's and NVFP4's bytes in torchao.   Oracle: torchao's pack_uint4."""
    import torch
    from torchao.prototype.mx_formats.kernels import pack_uint4

    q = rng.integers(-8, 8, (6, 32)).astype(np.int8)
    want = pack_uint4(torch.from_numpy((q.astype(int) % 16).astype(np.uint8))).numpy()
    (got,) = student.probe.many("pack_int4", [(q, "low")])
    _same(got, want, "torchao's pack_uint4", "bytes")


@task("pack_int4", extra=("bitsandbytes",))
def test_bitsandbytes_packs_the_high_nibble_first(student):
    """A block with each codebook entry once has the codes 0 to 15 in order, high nibble first.
    Oracle: bitsandbytes' quantize_4bit."""
    import torch
    from bitsandbytes import functional

    book = np.tile(oracles.nf_codebook().astype(np.float32), 4)
    packed, _state = functional.quantize_4bit(torch.from_numpy(book), quant_type="nf4")
    codes = np.tile(np.arange(16), 4)
    signed = np.where(codes >= 8, codes - 16, codes).astype(np.int8)
    (got,) = student.probe.many("pack_int4", [(signed, "high")])
    expect.equal(got, packed.numpy().ravel(), "bitsandbytes' order of nibbles", "bytes")


@task("nf4", extra=("bitsandbytes",))
def test_bitsandbytes_has_the_same_nf4(student, rng):
    """Codes, maxima, offset and second scales are the same; of the second level's bytes those that
    bitsandbytes' lookup table rounds as the nearest.   Oracle: bitsandbytes' quantize_4bit."""
    import torch
    from bitsandbytes import functional

    w = _nf4_case(rng, (96, 512), 64)
    for got, double in zip(
        _nf4(student, [(w, 64, False), (w, 64, True)]), (False, True), strict=True
    ):
        packed, state = functional.quantize_4bit(
            torch.from_numpy(w), blocksize=64, compress_statistics=double, quant_type="nf4"
        )
        _same(got["codes"], packed.numpy().ravel(), "bitsandbytes", "codes")
        if not double:
            _same(got["absmax_q"], state.absmax.numpy(), "bitsandbytes", "absmax")
            continue
        expect.close(got["offset"], state.offset.numpy(), "bitsandbytes", n=64, dtype="float32")
        scale = state.state2.absmax.numpy()
        expect.close(got["absmax_scale"], scale, "bitsandbytes", n=64, dtype="float32")
        # Its CPU code looks places up in a table of 2^-15 wide steps, so that beside the middle of
        # two values it takes either.
        absmax = np.abs(w.reshape(-1, 64)).max(1) - float(state.offset)
        value = absmax / np.repeat(scale, 256)[: len(absmax)]
        middle = oracles.middles(oracles.dynamic_code())
        clear = np.abs(value[:, None] - middle).min(1) > 2.0**-15
        theirs = state.absmax.numpy()
        expect.equal(got["absmax_q"][clear], theirs[clear], "bitsandbytes", "absmax_q")
        expect.at_least(int(clear.sum()), 0.9 * len(clear), "most places are clear")


@task("to_mx", extra=("torchao",))
def test_torchao_has_the_same_mx(student, rng):
    """Scales and payloads in all modes, both elements.   Oracle: torchao's to_mx."""
    import torch
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.mx_tensor import to_mx

    dtypes = {"e2m1": torch.float4_e2m1fn_x2, "e4m3": torch.float8_e4m3fn}
    x = _mx_case(rng, (24, 64))
    rows = [(x, elem, mode) for elem in dtypes for mode in oracles.MODES]
    for (_x, elem, mode), answer in zip(rows, student.probe.many("to_mx", rows), strict=True):
        scales, payload = _answer(answer, ("scales", "payload"), "torchao")
        kind = ScaleCalculationMode[mode.upper()]
        theirs = [t.view(torch.uint8) for t in to_mx(torch.from_numpy(x), dtypes[elem], 32, kind)]
        because = f"torchao, {elem}, {mode}"
        expect.equal(scales.ravel(), theirs[0].numpy().ravel(), because, "scales")
        expect.equal(payload.ravel(), theirs[1].numpy().ravel(), because, "payload")


@task("to_nvfp4", extra=("torchao",))
def test_torchao_has_the_same_nvfp4(student, rng):
    """Global scale, scales and payload.   Oracle: torchao's nvfp4_quantize."""
    import torch
    from torchao.prototype.mx_formats import nvfp4_tensor as torchao

    x = oracles.nvfp4_case(rng, (24, 128))
    ((payload, scales, whole),) = _nvfp4(student, [x])
    tensor = torch.from_numpy(x)
    top = torchao.per_tensor_amax_to_scale(tensor.abs().max())
    theirs = torchao.nvfp4_quantize(tensor, 16, top)
    expect.equal(float(whole), float(top), "torchao", "global scale")
    expect.equal(scales, theirs[0].view(torch.uint8).numpy(), "torchao", "scales")
    expect.equal(payload, theirs[1].numpy(), "torchao", "payload")


@task("to_nvfp4", extra=("compressed_tensors",))
def test_compressed_tensors_stores_the_reciprocal(student, rng):
    """Its global scale is 2,688 / max |x|: one over this one.
    Oracle: compressed-tensors' generate_gparam."""
    import torch
    from compressed_tensors.quantization.utils import generate_gparam

    x = oracles.nvfp4_case(rng, (4, 32))
    ((_payload, _scales, whole),) = _nvfp4(student, [x])
    want = generate_gparam(torch.tensor(x.min()), torch.tensor(x.max()))
    got = 1 / float(whole)
    expect.close(got, float(want), "compressed-tensors", n=4, dtype="float32")
