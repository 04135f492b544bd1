#!/bin/bash
# Checklist, from top to bottom:
# [ ] measure tokens per second three times: that number is the baseline
# [ ] open the timeline and add up the idle gaps of one step
# [ ] take the counters of the worst kernel, if a kernel is worst
# [ ] make one change and nothing else
# [ ] measure again, compare with the baseline, keep or revert

set -eu
OUT="${OUT:-profiles}"
mkdir -p "$OUT"
RANGE="--trace=cuda,nvtx,osrt --capture-range=cudaProfilerApi --capture-range-end=stop"

nsys profile $RANGE --output="$OUT/one" -- python train.py
nsys export -t sqlite -o "$OUT/one.sqlite" "$OUT/one.nsys-rep"
for report in cuda_{gpu_kern,api,gpu_mem_time}_sum nvtx_gpu_proj_sum; do
    nsys stats --report "$report" --format csv --output "$OUT/$report" "$OUT/one.sqlite"
done

export RANGE OUT
torchrun --standalone --nproc-per-node 8 --no-python bash -euc '
    if (( LOCAL_RANK == 5 )); then
        nsys profile $RANGE --output="$OUT/rank%q{RANK}" python train.py
    else
        python train.py
    fi'

# Free clocks show what users get. The price: noise, since boost follows temperature.
STEPS=20 PER_STEP=3
M=dram__throughput.avg.pct_of_peak_sustained_elapsed
M+=,sm__throughput.avg.pct_of_peak_sustained_elapsed
M+=,gpu__time_duration.sum
ncu -k regex:"(gemm|conv)" -s $((STEPS * PER_STEP)) -c $(( 2 * PER_STEP )) \
    --metrics $M --clock-control none --csv --log-file "$OUT/kernels.csv" python train.py

WAIT=22 ACTIVE=4 python -c '
import os, torch, train
from torch import profiler

wait, active = (int(os.environ[name]) for name in ("WAIT", "ACTIVE"))
def keep(p):
    print(p.key_averages().table(sort_by="cuda_time_total", row_limit=8))
    p.export_chrome_trace("trace.json")
plan = profiler.schedule(wait=wait, warmup=2, active=active, repeat=1)
with profiler.profile(activities=profiler.supported_activities(), schedule=plan, on_trace_ready=keep) as p:
    for step in range(wait + 2 + active):
        train.step()
        torch.cuda.synchronize()
        p.step()
'
