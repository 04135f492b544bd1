# The checklist
# [ ] How long is a step, in ms? Symptom and target, agreed with whoever complains.
# [ ] Idle time of the GPU from the timeline, by cause.
# [ ] Name the worst: us a step, which range, which launch.
# [ ] Metrics of that one kernel.
# [ ] Fix that, and only that.
# [ ] Speed-up: promised, measured.

RUN="python train.py"
RANGE="--capture-range=cudaProfilerApi --capture-range-end=stop"

nsys profile $RANGE --trace=cuda,nvtx,osrt --output=step --sample=none $RUN
nsys export --type sqlite --output step.sqlite step.nsys-rep
nsys stats --report=cuda_gpu_kern_sum,cuda_api_sum,cuda_gpu_mem_time_sum,nvtx_gpu_proj_sum --format=csv:mem=B step.nsys-rep

if [ -z "${WORLD:-}" ]; then WORLD=8; fi
torchrun --nnodes=1 --nproc-per-node=$WORLD --no-python bash -c '
  [ "${RANK:-0}" -eq 0 ] && PREFIX="nsys profile --trace=cuda,nvtx,osrt --capture-range=cudaProfilerApi --capture-range-end=stop -o rank0"
  $PREFIX python train.py
'

# Clock control: "none" measures at the clocks that production runs at, and gives up repeatability;
# "base" would repeat to a per cent and tell durations that no user ever sees.
ncu --profile-from-start off --kernel-name "regex:gemm|conv" --launch-count 3 --export gemm \
  --set full --metrics dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__throughput.avg.pct_of_peak_sustained_elapsed,gpu__time_duration.sum \
  --clock-control none $RUN

python -c "
import torch, train
plan = torch.profiler.schedule(skip_first=20, wait=0, warmup=2, active=4)
with torch.profiler.profile(schedule=plan, on_trace_ready=torch.profiler.tensorboard_trace_handler('runs')) as p:
    for step in range(200):
        train.step()
        p.step()
"
