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

# TODO(lab09.commands): The commands that profile, and the checklist
# NOT STARTED lab09.commands
