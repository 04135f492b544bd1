"""Given: the models and the cluster of lab 12, and what `topology_design_worksheet.md` asks for."""

from __future__ import annotations

from types_lab12 import Cluster, Model

# A DGX H100: 18 NVLink4 links of 25 GB/s each way, one 400 Gb/s network card a GPU. Of 80 GiB the
# plan may use 80 GB; CUDA, NCCL and fragments keep the rest.
H100_64 = Cluster(nodes=8, gpus=8)

LLAMA3_70B = Model(L=80, h=8192, heads=64, kv_heads=8, ffn=28672, vocab=128256, seq=8192)
LLAMA3_8B_LONG = Model(L=32, h=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256, seq=131072)
MIXTRAL_8X7B = Model(
    L=32,
    h=4096,
    heads=32,
    kv_heads=8,
    ffn=14336,
    vocab=32000,
    seq=4096,
    experts=8,
    topk=2,
    moe_ffn=14336,
)

# name: (model, sequences of a step). The worksheet's three designs are for these, on H100_64.
CASES: dict[str, tuple[Model, int]] = {
    "llama3-70b": (LLAMA3_70B, 128),
    "llama3-8b-128k": (LLAMA3_8B_LONG, 32),
    "mixtral-8x7b": (MIXTRAL_8X7B, 256),
}
