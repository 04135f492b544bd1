#!/usr/bin/env bash
# Everything that may change stands up here.
readonly STEPS_WARM=20 KERNELS_A_STEP=3
declare -r SHARE="avg.pct_of_peak_sustained_elapsed"
APP="python train.py"
NSYS="nsys profile --force-overwrite=true --trace=osrt,nvtx,cuda"
export NSYS_NVTX_PROFILER_REGISTER_ONLY=0

$NSYS --capture-range=nvtx --nvtx-capture=measure --capture-range-end=stop --output=${NAME:=first} $APP
if [[ -f "$NAME.nsys-rep" ]]; then
    nsys export --force-overwrite=true --type=sqlite "${NAME}.nsys-rep"
    nsys stats --format=csv --report=nvtx_sum,cuda_gpu_kern_sum:base,cuda_api_sum,cuda_gpu_mem_time_sum "${NAME}.sqlite"
fi

python -m torch.distributed.run --standalone --nproc_per_node=8 --no_python bash -c "
    case \$LOCAL_RANK in
        0) exec $NSYS --capture-range=cudaProfilerApi --capture-range-end=repeat:1 --output=$NAME-rank0 $APP ;;
        *) exec $APP ;;
    esac"

# Why not lock the clocks: durations like in production. Why one would: they repeat.
METRICS="dram__throughput.$SHARE,sm__throughput.$SHARE,gpu__time_duration.sum"
let "skip = STEPS_WARM * KERNELS_A_STEP"
ncu --kernel-name "regex:gemm|conv" --launch-skip "$skip" --launch-count "${COUNT-9}" \
    --metrics "${METRICS},dram__bytes.sum" --clock-control none -f -o "${NAME}_kernels" ${APP}

python -c "
import train
from torch.profiler import profile, schedule, ProfilerActivity as A

skip, active = $STEPS_WARM, 2
prof = profile(activities=[A.CUDA, A.CPU], schedule=schedule(skip_first=skip, wait=1, warmup=2, active=active))
prof.start()
for _ in range(skip + 1 + 2 + active):
    train.step()
    prof.step()
prof.stop()
prof.export_chrome_trace('${NAME}.json')
"

# [ ] write down how long a step takes now
# [ ] read idle time off the timeline
# [ ] compare the kernel with its roofline
# [ ] apply a single change to the program
# [ ] time it again the very same way
