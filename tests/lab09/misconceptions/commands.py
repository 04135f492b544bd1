from grader.suite import lines, misconception

# === nsys_queries, roofline, diagnose, commands ==================================================
profiles_start_up = lines(
    """Recording begins with the process here: contexts, allocations, autotuning and 20 steps of
    warm-up fill the timeline, and the longest bar is one that production pays once.""",
    ("    --capture-range=cudaProfilerApi --capture-range-end=stop \\\n", ""),
)

ends_the_program_with_the_range = lines(
    """When a capture range ends, nsys closes its session and ends the program with it, unless told
    `stop`: the run that you watched for five steps dies after them, without its checkpoint.""",
    ("=cudaProfilerApi --capture-range-end=stop \\", "=cudaProfilerApi \\"),
)

no_nvtx = lines(
    """Without NVTX the timeline has kernels and calls but no names for parts of the step, so
    nothing can be said about forward, backward or optimizer.""",
    ("--trace=cuda,nvtx,osrt,cudnn,cublas \\", "--trace=cuda,osrt,cudnn,cublas \\"),
)

a_range_nobody_registered = lines(
    """nsys looks for --nvtx-capture among registered strings, and PyTorch pushes plain ones: the
    range never begins, and the report is empty.""",
    ("=cudaProfilerApi", "=nvtx --nvtx-capture=measure"),
)


@misconception(file="profile_commands.sh")
def all_ranks_into_one_file(text):
    """nsys in front of torchrun follows every process: eight ranks share one file and one disk, and
    what you see is a job that is slow because it is watched."""
    first, last = text.index("torchrun --standalone"), text.index("fi'") + 3
    whole = (
        "nsys profile -t cuda,nvtx,osrt -c cudaProfilerApi --capture-range-end=stop -o ranks \\\n"
        "    torchrun --standalone --nproc-per-node=8 train.py"
    )
    return text[:first] + whole + text[last:]


each_rank_its_own_file = lines(
    """A file for each rank keeps the files apart, not the ranks: all eight are slowed down, and
    collectives wait for the slowest; one watched rank shows the others as waiting.""",
    ('if [ "$LOCAL_RANK" = 0 ]; then', 'if [ "$LOCAL_RANK" -ge 0 ]; then'),
    ("timeline_rank0", "timeline_rank%q{RANK}"),
)

only_the_watched_rank_runs = lines(
    """Rank 0 alone starts the program here, so its first collective waits for seven ranks that
    never come: the others must run it as well, without nsys.""",
    (
        "    else\n        exec python train.py\n",
        "",
    ),
)

ncu_on_every_launch = lines(
    """Without a filter ncu replays all 36,000 launches of the run, each several times: hours for a
    question about three kernels.""",
    ("ncu --kernel-name 'regex:gemm|conv' --launch-skip 60 --launch-count 12 \\", "ncu  \\"),
)

ncu_without_a_count = lines(
    """A name alone is no limit: 540 launches match after warm-up, and each is replayed for every
    group of counters; a dozen tell the same.""",
    ("--launch-count 12 \\", "\\"),
)

skips_all_launches = lines(
    """--launch-skip counts the launches that match, not all of them: 20 steps are 60 launches here,
    and after 3,600 the run is long over; --launch-skip-before-match counts all.""",
    ("-skip 60", "-skip 3600"),
)

ncu_in_the_warm_up = lines(
    """The first matching launches are those of autotuning and warm-up, other kernels with cold
    caches; --launch-skip 60 leaves these 20 steps out.""",
    ("skip 60 --launch-", ""),
)

a_pipe_in_the_expression = lines(
    """An unquoted | is a pipe: the shell runs ncu with half of the expression and sends what it
    prints to a program called conv.""",
    ("'regex:gemm|conv'", "regex:gemm|conv"),
)

brackets_in_the_expression = lines(
    """An unquoted parenthesis is an operator of the shell, which stops there with a syntax error;
    expressions belong into single quotes.""",
    ("'regex:gemm|conv'", "regex:(gemm|conv)"),
)

a_name_instead_of_an_expression = lines(
    """Without `regex:` the name must be that of the kernel, whole and exact: nothing is called
    gemm, so nothing is profiled.""",
    ("'regex:gemm|conv'", "gemm"),
)

a_blank_in_the_metrics = lines(
    """A blank after a comma ends the list: the second metric becomes the program that ncu is to
    run.""",
    ('"$METRICS"', "dram__bytes.sum, $METRICS"),
)

an_old_spelling = lines(
    """--kernel-regex is what older versions of ncu called it; now a name begins with `regex:`.""",
    ("name 'regex:", "regex '"),
)

old_report_names = lines(
    """gpukernsum is what older versions of nsys stats called this report; it is cuda_gpu_kern_sum
    now, and the old name finds no report.""",
    ("cuda_gpu_kern_sum,cuda_api_sum", "gpukernsum,cudaapisum"),
)

locked_clocks = lines(
    """ncu locks the clocks to their base by default, so its durations are longer than those of your
    run: good for comparing two kernels, wrong as a time of production.""",
    ('--metrics "$METRICS" --clock-control none \\', '--metrics "$METRICS" \\'),
)

clocks_without_a_word = lines(
    """Free clocks make durations real and measurements wander; whoever reads the numbers must be
    told, so say it in a comment.""",
    (
        "# Clocks are left alone: durations are then those of production, but differ from "
        "run to run with\n"
        "# temperature and power; locked to their base they would repeat, and be too long.",
        "# Durations are then those of production, but differ from run to run with\n"
        "# temperature and power; locked they would repeat, and be too long.",
    ),
)

free_clocks_repeat = lines(
    """The comment has it the wrong way round: free clocks show the durations of production and
    differ from run to run, locked ones repeat and are too long.""",
    (
        "# Clocks are left alone: durations are then those of production, but differ from "
        "run to run with\n"
        "# temperature and power; locked to their base they would repeat, and be too long.",
        "# Unlocked clocks give repeatable results; locked clocks are those of production, and\n"
        "# vary with temperature.",
    ),
)

exports_another_report = lines(
    """The file that is exported is one that no command writes: --output gives a report its name,
    and .nsys-rep is added to it.""",
    ("sqlite timeline", "sqlite report1"),
)

a_comment_between_lines = lines(
    """A comment after a backslash ends the command: the options below it become commands of their
    own, and the profiler runs without them.""",
    (
        "--capture-range=cudaProfilerApi --capture-range-end=stop \\",
        "--capture-range=cudaProfilerApi --capture-range-end=stop \\\n    # names for autograd",
    ),
)

no_schedule = lines(
    """Without a schedule torch.profiler records from the first step to the last: warm-up is in the
    averages, and a long run fills the memory with events.""",
    ("    schedule=schedule(wait=2, warmup=1, active=3, repeat=1, skip_first=20),\n", ""),
)

the_first_step_is_recorded_cold = lines(
    """Without a step of warm-up (warmup=0) the profiler's own start falls into the first recorded
    step, which then looks slower than it is.""",
    ("warmup=1", "warmup=0"),
)

the_optimizer_steps_instead = lines(
    """The schedule moves when the *profiler's* step() is called; without it, everything stays in
    its first phase and no trace is written.""",
    ("        prof.step()\n", ""),
)

counters_first = lines(
    """Counters come before the timeline here; of a kernel that the timeline shows to be no part of
    the problem, no counter is worth an hour.""",
    (
        "# 6. In this order:",
        "# 6. In this order:\n"
        "# [ ] only then ncu: a counter of that kernel explains it, against its roofline",
    ),
    (
        "# [ ] the idle time or the longest kernels have a name: a gap's cause, a range, a "
        "copy\n"
        "# [ ] only then ncu: a counter of that kernel explains it, against its roofline",
        "# [ ] the idle time or the longest kernels have a name: a gap's cause, a range, a copy",
    ),
)


@misconception(file="profile_commands.sh")
def tables_before_the_report(text):
    """A shell runs one command after another: here the tables are asked for before there is a
    report to read."""
    first, last = text.index("# 3. The same report"), text.index("# 4. Why is")
    tables = text[first:last]
    start = text.index("# 1. When is the GPU idle?")
    return text[:start] + tables + text[start:first] + text[last:]


the_report_of_the_rank = lines(
    """The report that is exported is that of the job; the first one, of the run on one GPU, is what
    the tables are about.""",
    ("timeline.sqlite timeline.nsys-rep", "timeline.sqlite timeline_rank0.nsys-rep"),
)

the_text_alone = lines(
    """train.py is a text, which no profiler can start: the program is python, and train.py is its
    argument.""",
    ("--output=timeline \\\n    python train.py", "--output=timeline \\\n    train.py"),
)

a_table_is_no_trace = lines(
    """on_trace_ready gets the profiler when the schedule is complete. A table that is printed is no
    trace: nothing of the timeline is left.""",
    ('p.export_chrome_trace("trace.json.gz")', "print(p.key_averages().table())"),
)

nothing_is_written = lines(
    """The profiler keeps what it records in memory, and nobody asks for it: without on_trace_ready
    or export_chrome_trace no trace is written.""",
    ('    on_trace_ready=lambda p: p.export_chrome_trace("trace.json.gz"),\n', ""),
)

the_programs_warm_up_is_recorded = lines(
    """The schedule's own wait is short, and the program's first 20 steps warm up: let them pass
    with skip_first= or a longer wait=.""",
    (", skip_first=20", ""),
)

all_kernels_with_an_m = lines(
    """The expression is shorter than it may be, and matches kernels that nobody asked about; each
    of them takes one of the few launches.""",
    ("'regex:gemm|conv'", "'regex:gem|con'"),
)

one_name_for_two_reports = lines(
    """Both commands write one file: the second report takes the place of the first.""",
    ("-o timeline_rank0", "-o timeline"),
)

the_watched_rank_runs_twice = lines(
    """A command after `nsys profile ...` still runs: without exec or else the watched rank starts
    the program a second time, and waits there for ranks that have finished.""",
    ("exec nsys profile", "nsys profile"),
    ("    else\n        exec python train.py\n    fi'", "    fi\n    exec python train.py'"),
)

names_that_begin_so = lines(
    """The expression asks for names that *begin* with gemm or conv; most have a library and an
    architecture in front (ampere_sgemm_..., cudnn_..._convolve_...).""",
    ("'regex:gemm|conv'", "'regex:^(gemm|conv)'"),
)

the_loop_ends_early = lines(
    """The loop ends before the schedule does: with skip_first=20, wait=2, warmup=1 and active=3 the
    last recorded step is number 25, counted from 0, and it takes 26 steps to make it.""",
    ("for _ in range(30):", "for _ in range(25):"),
)

the_rank_of_the_wrong_shell = lines(
    """In double quotes the shell that starts torchrun puts in $LOCAL_RANK, where it is empty; the
    text must reach each rank's own shell as it stands, in single quotes.""",
    ("bash -c '\n    if [ \"$LOCAL_RANK\" = 0 ]", "bash -c \"\n    if [ $LOCAL_RANK = 0 ]"),
    ("    fi'", "    fi\""),
)

single_words = lines(
    """Lines of one word or two name the steps and do not say what to do; who has only this list
    must know what to look at, and what to write down. Make each line a sentence.""",
    (
        "# [ ] the symptom is a number: step time in ms, same input, after warm-up, three runs\n"
        "# [ ] the timeline says when the GPU is idle, and for how many us a step\n"
        "# [ ] the idle time or the longest kernels have a name: a gap's cause, a range, a copy\n"
        "# [ ] only then ncu: a counter of that kernel explains it, against its roofline\n"
        "# [ ] one change, with the gain in us predicted beforehand\n"
        "# [ ] measured again in the same way: predicted and measured gain side by side\n",
        "# [ ] symptom\n# [ ] timeline\n# [ ] counter\n# [ ] one change\n# [ ] gain again\n",
    ),
)
