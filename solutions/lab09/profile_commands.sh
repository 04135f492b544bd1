#!/usr/bin/env bash
# Lab 09, task `commands`: the commands that profile train.py, and the checklist they belong to.
# No command of this file is run: it is read as bash would. Where the task's two lines stand, write
# what a shell would run, in any order in which each file is written before it is read:
#
#   1. nsys profile of python train.py on one GPU: CUDA, NVTX and the operating system's calls; the
#      measured steps only; the program runs to its end; --output names the report
#   2. the same for a job of 8 ranks under torchrun on one machine: every rank runs train.py once,
#      one of them is profiled, into a report of its own
#   3. nsys export of the first report to SQLite, and nsys stats of it as CSV, with --report for
#      cuda_gpu_kern_sum, cuda_api_sum, cuda_gpu_mem_time_sum and a sum of NVTX ranges (nvtx*_sum)
#   4. ncu of python train.py on kernels with gemm or conv in their names, and on no others: warm-up
#      skipped, 1 to 50 launches, --metrics with at least dram__throughput and sm__throughput as
#      avg.pct_of_peak_sustained_elapsed and gpu__time_duration.sum; the results in a report or as
#      CSV; clocks not locked, and a comment on clocks that says what that buys and what it costs
#   5. python -c with torch.profiler, for CPU and CUDA: a schedule with wait, warmup (1 or more) and
#      active, the profiler's own step() once behind each train.step(), none of steps 0 to 19
#      recorded, and a Chrome trace of all active steps that is written
#   6. the checklist, five lines `# [ ] ...` or more, each a sentence, in the order in which one
#      works, a line for each: the symptom as a number, the timeline, a counter, one change, the
#      gain measured again
#
# The program: 200 steps of 180 kernels, of which 3 have gemm or conv in their names. Steps 0 to 19
# warm up. It calls torch.cuda.profiler.start() before step 20 and torch.cuda.profiler.stop() after
# step 24, pushes an NVTX range "measure" around the same steps, and writes a checkpoint at its end.
# In Python, `import train` gives train.step(), which makes the next step and returns how many there
# have been. The text of `python -c` is tried, with stand-ins for torch and train. Its schedule may
# skip as many steps of the program as it likes: what counts is which steps it would have recorded.

# BEGIN SOLUTION commands
set -euo pipefail

# 1. When is the GPU idle? The measured steps on a timeline.
nsys profile \
    --trace=cuda,nvtx,osrt,cudnn,cublas \
    --capture-range=cudaProfilerApi --capture-range-end=stop \
    --pytorch=autograd-nvtx --cuda-graph-trace=node \
    --force-overwrite=true --output=timeline \
    python train.py

# 2. Eight ranks, one of them watched: rank 0 starts its program under nsys, the others do not.
torchrun --standalone --nproc-per-node=8 --no-python bash -c '
    if [ "$LOCAL_RANK" = 0 ]; then
        exec nsys profile -t cuda,nvtx,osrt -c cudaProfilerApi --capture-range-end=stop \
            -f true -o timeline_rank0 python train.py
    else
        exec python train.py
    fi'

# 3. The same report as tables: SQLite for trace_analysis.py, CSV for a first look.
nsys export --type=sqlite --force-overwrite=true --output=timeline.sqlite timeline.nsys-rep
nsys stats --format csv \
    --report cuda_gpu_kern_sum,cuda_api_sum,cuda_gpu_mem_time_sum,nvtx_sum,nvtx_gpu_proj_sum \
    timeline.nsys-rep

# 4. Why is this kernel slow? Counters of 12 launches, after the 60 matching ones of warm-up.
# Clocks are left alone: durations are then those of production, but differ from run to run with
# temperature and power; locked to their base they would repeat, and be too long.
METRICS=dram__throughput.avg.pct_of_peak_sustained_elapsed
METRICS=$METRICS,sm__throughput.avg.pct_of_peak_sustained_elapsed
METRICS=$METRICS,sm__warps_active.avg.pct_of_peak_sustained_active
METRICS=$METRICS,dram__bytes.sum,gpu__time_duration.sum
ncu --kernel-name 'regex:gemm|conv' --launch-skip 60 --launch-count 12 \
    --metrics "$METRICS" --clock-control none \
    --csv --page raw --log-file gemm.csv \
    python train.py

# 5. Which Python line owns it? Two steps pass, one warms the profiler up, three are recorded.
python -c '
import torch
from torch.profiler import ProfilerActivity, profile, schedule

import train

with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=2, warmup=1, active=3, repeat=1, skip_first=20),
    on_trace_ready=lambda p: p.export_chrome_trace("trace.json.gz"),
    record_shapes=True,
) as prof:
    for _ in range(30):
        train.step()
        prof.step()
'

# 6. In this order:
# [ ] the symptom is a number: step time in ms, same input, after warm-up, three runs
# [ ] the timeline says when the GPU is idle, and for how many us a step
# [ ] the idle time or the longest kernels have a name: a gap's cause, a range, a copy
# [ ] only then ncu: a counter of that kernel explains it, against its roofline
# [ ] one change, with the gain in us predicted beforehand
# [ ] measured again in the same way: predicted and measured gain side by side
# END SOLUTION
