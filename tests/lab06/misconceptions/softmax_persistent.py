from grader.suite import lines

a_search_in_every_call = lines(
    """The search is made in every call; it costs many launches, so its result is kept for each N
    and dtype.""",
    ("if key not in self.best:", "if key:"),
)

key_without_the_dtype = lines(
    """Configurations are kept by N alone; half the bytes an element make another kernel, so the
    dtype belongs to the key.""",
    ("key = x.shape[-1], x.dtype", "key = x.shape[-1], torch.float32"),
)

only_the_first_rows = lines(
    """Each program takes one row and ends; it has to go on with every num_programs(0)-th row after
    its first.""",
    ("tl.range(first, M, tl.num_programs(0)", "tl.range(first, first + 1, 1"),
)

more_programs_than_rows = lines(
    """num_programs are launched even where there are fewer rows; those beyond have nothing to do,
    launch min(num_programs, M).""",
    ("min(num_programs, M)", "num_programs"),
)


warps_are_ignored = lines(
    """Launches take 4 warps whatever the config says: num_warps is an option of the launch, beside
    the kernel's own arguments.""",
    ("num_warps=num_warps", "num_warps=4"),
)

programs_are_ignored = lines(
    """Four programs are launched whatever the config says; its first number is how many.""",
    ("min(num_programs, M)", "min(4, M)"),
)

the_slowest_is_kept = lines(
    """The config with the most seconds is kept; fewer seconds are faster.""",
    ("min(seconds)", "max(seconds)"),
)

the_last_of_equal_ones = lines(
    """Of configs that are equally fast the last one is kept; it is the first.""",
    ("seconds.index(min(seconds))", "-1 - seconds[::-1].index(min(seconds))"),
)

key_with_the_rows = lines(
    """The number of rows is part of the key, so that each batch size has a search of its own; a
    config belongs to N and the dtype.""",
    ("key = x.shape[-1], x.dtype", "key = x.shape, x.dtype"),
)

every_config_twice = lines(
    """Each config is measured twice; how often one is run is measure's affair, which is called
    once.""",
    (
        "seconds = [self.measure(lambda c=config: self.launch(x, *c)) for config in self.configs]",
        "runs = [lambda c=config: self.launch(x, *c) for config in self.configs]\n"
        "            seconds = [min(self.measure(run), self.measure(run)) for run in runs]",
    ),
)

one_memory_for_all_objects = lines(
    """What was found is kept for all objects together, so that an object with other configs runs
    one that is not its own; each has its own `best`.""",
    (
        "        key = x.shape[-1], x.dtype\n",
        "        key = x.shape[-1], x.dtype\n"
        '        self.best = type(self).__init__.__dict__.setdefault("best", {})\n',
    ),
)

trial_returns_nothing = lines(
    """The function that is measured returns nothing: it makes one launch and returns the
    result.""",
    (
        "self.measure(lambda c=config: self.launch(x, *c))",
        "self.measure(lambda c=config: self.launch(x, *c) and None)",
    ),
)

late_config = lines(
    """Each trial runs the last config: a lambda looks `config` up when it is called, after the loop
    if `measure` calls it later. `c=config` keeps it.""",
    (
        "seconds = [self.measure(lambda c=config: self.launch(x, *c)) for config in self.configs]",
        "runs = [lambda: self.launch(x, *config) for config in self.configs]\n"
        "            seconds = [self.measure(run) for run in runs]",
    ),
)

persistent_copy_to_be_contiguous = lines(
    """.contiguous() reads and writes the whole tensor once more, in each trial too; the kernel can
    take the strides.""",
    ("rows = as_rows(x)", "rows = as_rows(x).contiguous()"),
)

rest_of_the_rows_left_over = lines(
    """Each program takes M // num_programs rows, so that the rest of the division is no program's;
    a program goes on while its row is below M.""",
    (
        "tl.range(first, M, tl.num_programs(0)",
        "tl.range(first, M // tl.num_programs(0) * tl.num_programs(0), tl.num_programs(0)",
    ),
)

rows_beyond_the_last = lines(
    """The number of rows is rounded up to a multiple of the programs, and the last ones have no
    memory: a program goes on while its row is below M.""",
    (
        "tl.range(first, M, tl.num_programs(0)",
        "tl.range(first, tl.cdiv(M, tl.num_programs(0)) * tl.num_programs(0), tl.num_programs(0)",
    ),
)

every_program_does_all_rows = lines(
    """Each program goes on with the next row, so that rows are done by several programs, which race
    for them; its next one is num_programs(0) further.""",
    ("tl.range(first, M, tl.num_programs(0)", "tl.range(first, M, 1"),
)

the_first_config_is_kept = lines(
    """All configs are measured and the first one is kept; the one with the fewest seconds is the
    fastest.""",
    ("self.configs[seconds.index(min(seconds))]", "self.configs[0]"),
)

a_launch_to_warm_up = lines(
    """Each config is launched once before it is measured; whatever runs before a measurement is
    the affair of measure, which may call its function several times.""",
    (
        "        if key not in self.best:\n",
        "        if key not in self.best:\n"
        "            for config in self.configs:\n                self.launch(x, *config)\n",
    ),
)

one_search_for_each_width = lines(
    """float16 and bfloat16 share a search, as both have two bytes an element; a search belongs to a
    dtype.""",
    (
        "        if key not in self.best:\n",
        "        for (n, dtype), config in list(self.best.items()):\n"
        "            if n == key[0] and dtype.itemsize == x.dtype.itemsize:\n"
        "                self.best[key] = config\n"
        "        if key not in self.best:\n",
    ),
)

programs_of_the_first_input = lines(
    """What is kept is the number of programs that the first input could use, min(num_programs, M);
    a later one with more rows gets no more. Keep the config.""",
    (
        "            self.best[key] = self.configs[seconds.index(min(seconds))]\n",
        "            programs, warps = self.configs[seconds.index(min(seconds))]\n"
        "            self.best[key] = min(programs, x.numel() // x.shape[-1]), warps\n",
    ),
)
