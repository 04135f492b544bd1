"""vLLM's own scheduler, without a GPU: what it decides, step by step.

vLLM's scheduler is plain Python: it needs no kernel and no model, only a configuration. Beside an
installed torch, `pip install --no-deps vllm==0.33.0` and the pure-Python packages that it imports
are enough. Each request generates token 7 and ends at its `max_tokens`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VERSION = "0.33.0"
_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 65536,
}


class Engine:
    """vLLM with a scheduler only. One for a process: imports take most of a minute."""

    def __init__(self) -> None:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        import vllm
        from vllm.config import DeviceConfig, ModelConfig
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import init_none_hash

        self.version = vllm.__version__
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(_MODEL))
            self._model = ModelConfig(model=folder, skip_tokenizer_init=True, dtype="float16")
        self._device = DeviceConfig("cpu")
        self._hash = sha256
        init_none_hash(sha256)

    def scheduler(self, config: Any) -> Any:
        """A `Scheduler` of vLLM with the limits of `config`."""
        import torch
        from vllm.config import CacheConfig, SchedulerConfig, VllmConfig
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        limits = SchedulerConfig(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_model_len=self._model.max_model_len,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            scheduler_reserve_full_isl=config.reserve_full_isl,
            async_scheduling=False,
        )
        cache = CacheConfig(
            block_size=config.block_size, enable_prefix_caching=config.enable_prefix_caching
        )
        cache.num_gpu_blocks = config.num_blocks
        whole = VllmConfig(
            model_config=self._model,
            scheduler_config=limits,
            cache_config=cache,
            device_config=self._device,
        )
        spec = FullAttentionSpec(
            block_size=config.block_size, num_kv_heads=4, head_size=16, dtype=torch.float16
        )
        return Scheduler(
            vllm_config=whole,
            kv_cache_config=KVCacheConfig(
                num_blocks=config.num_blocks,
                kv_cache_tensors=[],
                kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
            ),
            structured_output_manager=StructuredOutputManager(whole),
            block_size=config.block_size,
            log_stats=False,
        )

    def _request(self, number: int, prompt: list[int], row: Any, size: int) -> Any:
        from vllm import SamplingParams
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher
        from vllm.v1.request import Request

        return Request(
            request_id=str(number),
            prompt_token_ids=list(prompt),
            sampling_params=SamplingParams(max_tokens=row.out_tokens, ignore_eos=True),
            pooling_params=None,
            cache_salt=row.salt,
            block_hasher=get_request_block_hasher(size, self._hash),
        )

    def steps(
        self, config: Any, rows: Sequence[Any], prompts: Sequence[list[int]], tables: bool = False
    ) -> list[dict[str, Any]]:
        """Every step until all requests are done, as a dict with the fields of `Step`; `tables`
        adds each running request's block ids and the free queue."""
        from vllm.v1.outputs import ModelRunnerOutput

        scheduler = self.scheduler(config)
        pool = scheduler.kv_cache_manager.block_pool
        log: list[dict[str, Any]] = []
        added = 0
        while added < len(rows) or scheduler.has_unfinished_requests():
            while added < len(rows) and rows[added].arrival <= len(log):
                row = rows[added]
                scheduler.add_request(self._request(added, prompts[added], row, config.block_size))
                added += 1
            running_before = list(scheduler.running)
            decided = scheduler.schedule()
            requests = {name: scheduler.requests[name] for name in decided.num_scheduled_tokens}
            done = [name for name, r in requests.items() if r.num_computed_tokens >= r.num_tokens]
            context = sum(r.num_computed_tokens for r in requests.values())
            lost = [r for r in running_before if r not in scheduler.running]
            blocks = {
                int(r.request_id): scheduler.kv_cache_manager.get_block_ids(r.request_id)[0]
                for r in scheduler.running
            }
            names = list(requests)
            scheduler.update_from_output(
                decided,
                ModelRunnerOutput(
                    req_ids=names,
                    req_id_to_index={name: i for i, name in enumerate(names)},
                    sampled_token_ids=[[7] if name in done else [] for name in names],
                ),
            )
            step = {
                "scheduled": {int(k): v for k, v in decided.num_scheduled_tokens.items()},
                # The last of the running goes first.
                "preempted": [int(r.request_id) for r in reversed(lost)],
                "finished": [int(name) for name in done if name not in scheduler.requests],
                "free_blocks": pool.get_num_free_blocks(),
                "generated": [int(name) for name in done],
                "context_tokens": context,
            }
            if tables:
                step["tables"] = blocks
                step["free_queue"] = [
                    b.block_id for b in pool.free_block_queue.get_all_free_blocks()
                ]
            log.append(step)
            if len(log) > 20_000:
                raise RuntimeError(f"{config}: no end in sight")
        return log


def pool_record(seed: int, operations: int = 120) -> dict[str, Any]:
    """A random life of vLLM's own `BlockPool`: operations in the words of lab 10's BlockPool, and
    after each what it returned and how many blocks were free. Needs an `Engine` in the process."""
    import random

    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id

    pick = random.Random(seed)
    num_blocks = pick.choice([2, 6, 12, 20, 40])
    pool = BlockPool(num_blocks, enable_caching=True, hash_block_size=16)
    tables: list[list[Any]] = []
    record: list[list[Any]] = []

    def name(content: int) -> bytes:
        return content.to_bytes(32, "big")

    def note(operation: str, *arguments: Any, result: Any = None) -> None:
        record.append([operation, *arguments, result, pool.get_num_free_blocks()])

    def lookup(content: int) -> Any:
        found = pool.get_cached_block(name(content), [0])
        note("lookup", content, result=found[0].block_id if found else None)
        return found[0] if found else None

    def alloc(k: int) -> list[Any] | None:
        got = pool.get_new_blocks(k) if k <= pool.get_num_free_blocks() else None
        note("alloc", k, result=None if got is None else [block.block_id for block in got])
        return got

    while len(record) < operations:
        choice = pick.random()
        if choice < 0.45:
            # A request of one of five kinds: block i of kind c holds the content 100 c + i.
            kind, length = pick.randrange(1, 6), pick.randint(1, max(1, num_blocks // 3))
            hits = []
            for place in range(pick.randint(0, length)):
                block = lookup(100 * kind + place)
                if block is None:
                    break
                hits.append(block)
            awoken = sum(block.ref_cnt == 0 for block in hits)
            if length - len(hits) + awoken > pool.get_num_free_blocks():
                alloc(pool.get_num_free_blocks() + pick.randint(1, 3))
                continue
            pool.touch(hits)
            note("touch", [block.block_id for block in hits])
            table = hits + (alloc(length - len(hits)) or [])
            for place, block in enumerate(table[: pick.randint(0, length)]):
                if place >= len(hits):
                    key = make_block_hash_with_group_id(name(100 * kind + place), 0)
                    pool._insert_block_hash(key, block, num_tokens=16 * (place + 1))
                    note("cache", block.block_id, 100 * kind + place)
            tables.append(table)
        elif choice < 0.8 and tables:
            table = tables.pop(pick.randrange(len(tables)))
            pool.free_blocks(reversed(table))
            note("free", [block.block_id for block in table])
        elif choice < 0.9:
            block = pick.randrange(1, num_blocks)
            note("references", block, result=pool.blocks[block].ref_cnt)
        else:
            lookup(100 * pick.randrange(1, 6) + pick.randrange(4))
    return {"num_blocks": num_blocks, "operations": record}
