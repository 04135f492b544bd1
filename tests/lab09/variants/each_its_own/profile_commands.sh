# One nsys stats a sum, one line a command, ranks told apart by [[ ]].
nsys profile -t cuda,nvtx,osrt,cublas -c cudaProfilerApi --capture-range-end=stop -o base -f true python3 train.py && echo recorded
nsys export --type sqlite --output base.sqlite base.nsys-rep
nsys stats --report cuda_gpu_kern_sum --format csv base.nsys-rep > kernels.csv
nsys stats --report cuda_api_sum --format csv base.nsys-rep > api.csv
nsys stats --report cuda_gpu_mem_time_sum --report nvtx_pushpop_sum --format csv base.nsys-rep > rest.csv
torchrun --nproc_per_node=8 --no_python bash -c '[[ $RANK == 7 ]] && exec nsys profile -t cuda,nvtx,osrt -c cudaProfilerApi --capture-range-end=stop -o rank7 -f true python3 train.py || exec python3 train.py'
# clock control none: the durations of real runs, at the cost that two measurements differ
ncu --set basic --kernel-name-base function --kernel-name 'regex:conv|gemm' --profile-from-start no --launch-count 15 --metrics gpu__time_duration.sum,sm__throughput.avg.pct_of_peak_sustained_elapsed,dram__throughput.avg.pct_of_peak_sustained_elapsed --clock-control none --export hot python3 train.py
ncu --import hot.ncu-rep --page raw --csv | tee hot.csv
python3 -c $'import train\nimport torch.profiler as tp\np = tp.profile(schedule=tp.schedule(skip_first=25, wait=1, warmup=1, active=2, repeat=2), on_trace_ready=tp.tensorboard_trace_handler("logs", use_gzip=True), with_stack=True)\nwith p:\n    for i in range(40):\n        train.step(); p.step()\n'
# [ ] step time today and step time wanted, in ms
# [ ] where the GPU waits on the nsys timeline
# [ ] who owns that gap or that kernel
# [ ] ncu on that kernel if it is a kernel
# [ ] fix one thing, guess the win before
# [ ] rerun, was the guess right, what is the speedup
