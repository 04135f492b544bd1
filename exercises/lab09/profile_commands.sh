#!/usr/bin/env bash
# Lab 09, task `commands`: the commands that profile train.py, and the checklist they belong to.
# This file is read, never run. Where the task's two lines stand, write, in any order:
#
#   1. nsys profile of train.py on one GPU: CUDA, NVTX and the operating system's calls; the
#      measured steps only; the program runs to its end
#   2. the same for a job of 8 ranks under torchrun, of which one rank is profiled
#   3. nsys export of the first report to SQLite, and nsys stats of it as CSV: cuda_gpu_kern_sum,
#      cuda_api_sum, cuda_gpu_mem_time_sum and a sum of NVTX ranges
#   4. ncu on kernels with gemm or conv in their names: warm-up skipped, at most 50 launches, at
#      least dram__throughput and sm__throughput as avg.pct_of_peak_sustained_elapsed and
#      gpu__time_duration.sum; clocks not locked, and a comment that says what that buys and costs
#   5. python -c with torch.profiler: a schedule with wait, warmup and active, the profiler's own
#      step() in the loop, and a trace that is written
#   6. the checklist, five lines `# [ ] ...` or more, in the order in which one works: the symptom
#      as a number, the timeline, a counter, one change, the gain measured again
#
# The program: 200 steps of 180 kernels, of which 3 have gemm or conv in their names. Steps 0 to 19
# warm up. It calls torch.cuda.profiler.start() before step 20 and torch.cuda.profiler.stop() after
# step 24, pushes an NVTX range "measure" around the same steps, and writes a checkpoint at its end.
# In Python, `import train` gives train.step().

# TODO(lab09.commands): The commands that profile, and the checklist
# NOT STARTED lab09.commands
