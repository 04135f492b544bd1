"""What vLLM's calculate_metrics makes of drawn requests, as `vllm_metrics.json`.

    python tests/lab10/make_metrics.py

Needs an environment with vLLM (beside an installed torch: `pip install --no-deps vllm==0.33.0` and
the pure-Python packages that it imports); no GPU.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).with_name("vllm_metrics.json")
PLAIN = (
    "completed",
    "request_throughput",
    "request_goodput",
    "output_throughput",
    "total_token_throughput",
)


def ask(outputs: list[Any], duration_s: float, slo: Any) -> dict[str, float]:
    """vLLM's figures, under the names of its result file."""
    from vllm.benchmarks.lib.endpoint_request_func import RequestFuncOutput
    from vllm.benchmarks.serve import calculate_metrics

    seen = [
        RequestFuncOutput(
            success=out.success,
            latency=out.latency_s,
            output_tokens=out.output_tokens,
            ttft=out.ttft_s,
            itl=list(out.itl_s),
            prompt_len=out.prompt_tokens,
        )
        for out in outputs
    ]
    limits = {"ttft": slo.ttft_ms, "tpot": slo.tpot_ms, "e2el": slo.e2el_ms}
    asked = {name: limit for name, limit in limits.items() if limit is not None}
    found, _lengths = calculate_metrics([], seen, duration_s, None, [99.0], asked)
    report = {name: float(getattr(found, name)) for name in PLAIN}
    report["total_input_tokens"] = float(found.total_input)
    report["total_output_tokens"] = float(found.total_output)
    for name in ("ttft", "tpot", "itl", "e2el"):
        for what in ("mean", "median", "std"):
            report[f"{what}_{name}_ms"] = float(getattr(found, f"{what}_{name}_ms"))
        report[f"p99_{name}_ms"] = float(dict(getattr(found, f"percentiles_{name}_ms"))[99.0])
    return report


def main() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "exercises" / "lab10"))
    import vllm
    from types_lab10 import Output, Slo

    pick = random.Random(10)
    cases = []
    for count, limits in ((3, (200.0, 50.0, None)), (25, (300.0, None, 2500.0)), (8, (None, 45.0))):
        outputs = []
        for _ in range(count):
            tokens = pick.choice([1, 2, 5, 40])
            ttft = round(pick.gammavariate(1.5, 0.2), 6)
            gaps = [round(pick.gammavariate(0.7, 0.05), 6) for _ in range(tokens - 1)]
            latency = round(ttft + sum(gaps) + pick.random() * 1e-3, 6)
            prompt = pick.randint(1, 4000)
            outputs.append(Output(prompt, tokens, ttft, gaps, latency, pick.random() < 0.9))
        duration, slo = round(pick.uniform(2, 40), 3), Slo(*limits)
        rows = [
            [o.prompt_tokens, o.output_tokens, o.ttft_s, o.itl_s, o.latency_s, o.success]
            for o in outputs
        ]
        answer = ask(outputs, duration, slo)
        cases.append(
            {"duration_s": duration, "slo": list(limits), "outputs": rows, "metrics": answer}
        )
    text = json.dumps({"vllm": vllm.__version__, "cases": cases}, indent=None)
    TARGET.write_text(text.replace('{"duration_s"', '\n{"duration_s"') + "\n", encoding="utf-8")
    print(f"{len(cases)} cases of vLLM {vllm.__version__}")


if __name__ == "__main__":
    main()
