#!/bin/sh
# Everything on one line each, short options, NVTX ranges instead of the profiler's API.
# [ ] Baseline: 3 runs of 200 steps, tokens per second written down
# [ ] nsys first: where are the gaps, and what does the host do meanwhile?
# [ ] roofline of the kernels that remain (ncu): bandwidth or arithmetic?
# [ ] write down what should be won, then change one thing
# [ ] run again and compare with the baseline

# ncu locks the clock to base by default; "none" shows real durations and lets them wander.
SHARE=avg.pct_of_peak_sustained_elapsed
ncu -k "regex:(gemm|conv)" --nvtx --nvtx-include "measure/" -c 6 --metrics dram__throughput.$SHARE,sm__throughput.$SHARE,gpu__time_duration.sum --clock-control=none -o gemms -f python3 train.py
ncu --import gemms.ncu-rep --csv --page raw > gemms.csv 2>&1

for range in measure; do
  NSYS_NVTX_PROFILER_REGISTER_ONLY=0 nsys profile -t nvtx,cuda,osrt -c nvtx -p "$range" --capture-range-end stop -o out/one.nsys-rep -- python3 train.py --lr 0.1
done
nsys export -t sqlite -o out/one.sqlite out/one.nsys-rep && nsys stats -r cuda_api_sum,cuda_gpu_kern_sum,cuda_gpu_mem_time_sum,nvtx_sum -f csv out/one.nsys-rep

python3 -m torch.distributed.run --nproc_per_node 8 --no_python bash -c 'case $RANK in 3) nsys profile --trace cuda,nvtx,osrt --capture-range cudaProfilerApi --capture-range-end "repeat:1" --output rank%q{RANK} python3 train.py ;; *) python3 train.py ;; esac'

python3 -c "import train, torch.profiler as tp
p = tp.profile(schedule=tp.schedule(warmup=3, wait=20, active=2, repeat=1))
p.start()
while train.step() < 60:
    p.step()
p.stop()
p.export_chrome_trace('t.json')"
