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
    """Each program takes M // num_programs rows, so that no program takes the rest of the division;
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

LAMBDA = "self.measure(lambda c=config: self.launch(x, *c))"
KEPT = "            self.best[key] = self.configs[seconds.index(min(seconds))]\n"

measure_is_given_a_result = lines(
    """measure is given the result of a launch; it takes a function, which it calls and times
    itself.""",
    (LAMBDA, "self.measure(self.launch(x, *config))"),
)

the_trial_s_result_is_returned = lines(
    """The result of the best trial is returned; after the search the kept config runs once more, as
    measure may have called its function often or with the caches in any state.""",
    (
        "            seconds = [" + LAMBDA + " for config in self.configs]\n" + KEPT,
        "            results = {}\n\n"
        "            def trial(config):\n"
        "                results[config] = self.launch(x, *config)\n"
        "                return results[config]\n\n"
        "            runs = [lambda c=config: trial(c) for config in self.configs]\n"
        "            seconds = [self.measure(run) for run in runs]\n"
        + KEPT
        + "            return results[self.best[key]]\n",
    ),
)

configs_are_sorted = lines(
    """The configs are sorted before they are tried; they are tried in the order of the list, and of
    equal ones the first is kept.""",
    ("for config in self.configs]", "for config in sorted(self.configs)]"),
    ("self.configs[seconds.index", "sorted(self.configs)[seconds.index"),
)


a_single_config_needs_no_search = lines(
    """A single config is kept without being measured; every config is measured once, whether or not
    there is a choice.""",
    (
        "        if key not in self.best:\n",
        "        if key not in self.best and len(self.configs) == 1:\n"
        "            self.best[key] = self.configs[0]\n"
        "        if key not in self.best:\n",
    ),
    gate=False,
)

NOT_THE_KEY = """best maps (N, dtype): the length of a row first, then torch's dtype itself."""

key_the_other_way_round = lines(
    NOT_THE_KEY,
    ("key = x.shape[-1], x.dtype", "key = x.dtype, x.shape[-1]"),
)

key_with_the_name_of_the_dtype = lines(
    NOT_THE_KEY,
    ("key = x.shape[-1], x.dtype", "key = x.shape[-1], str(x.dtype)"),
)

key_with_the_bytes = lines(
    """float16 and bfloat16 share a search, as both have two bytes an element; a search belongs to a
    dtype.""",
    ("key = x.shape[-1], x.dtype", "key = x.shape[-1], x.element_size()"),
)

key_with_the_block = lines(
    """A search is kept for the width of the block; rows of 20 and of 30 share a block of 32, but a
    search belongs to an N.""",
    (
        "        if key not in self.best:\n",
        "        for (n, dtype), config in list(self.best.items()):\n"
        "            wide = triton.next_power_of_2(n) == triton.next_power_of_2(key[0])\n"
        "            if wide and dtype == x.dtype:\n"
        "                self.best[key] = config\n"
        "        if key not in self.best:\n",
    ),
)

key_of_rows_for_columns = lines(
    """The key has the number of rows in the place of N, which is the length of a row.""",
    ("key = x.shape[-1], x.dtype", "key = x.shape[0], x.dtype"),
)

one_search_for_all_tensors = lines(
    """One search is made for all tensors; another N or another dtype is another kernel, and has a
    search of its own.""",
    (
        "        if key not in self.best:\n",
        "        if self.best:\n"
        "            self.best[key] = next(iter(self.best.values()))\n"
        "        if key not in self.best:\n",
    ),
)


trials_on_other_numbers = lines(
    """Trials run on a tensor of other numbers; the function that is measured returns the softmax of
    x.""",
    ("self.launch(x, *c))", "self.launch(torch.empty_like(x).fill_(0.0), *c))"),
)

warps_from_the_block = lines(
    """The number of warps is computed from the block's width; here it is the config's second
    number.""",
    ("num_warps=num_warps", "num_warps=warps_for(triton.next_power_of_2(N))"),
)

warps_and_programs_exchanged = lines(
    """A config is read as (num_warps, num_programs); the number of programs comes first.""",
    ("self.launch(x, *c))", "self.launch(x, *c[::-1]))"),
    ("self.launch(x, *self.best[key])", "self.launch(x, *self.best[key][::-1])"),
)

a_program_for_each_row_again = lines(
    """A program is launched for each row whatever the config says; min(num_programs, M) programs
    stay, and each walks over many rows.""",
    ("(min(num_programs, M),)", "(M,)"),
)


one_program_for_every_config = lines(
    """One program is launched whatever the config says, and walks over all rows; the config's first
    number says how many programs share them.""",
    ("(min(num_programs, M),)", "(1,)"),
)


persistent_padding_is_zero = lines(
    """other=0: exp(0) = 1, so the padding joined the denominator, and in a row below 0 it is the
    maximum, too. It is -inf.""",
    ('other=-float("inf")', "other=0.0"),
)

persistent_maximum_not_subtracted = lines(
    """exp(x) without the maximum of the row: exp(89) is infinite in float32, and inf / inf is
    NaN.""",
    ("tl.exp(x - tl.max(x, axis=0))", "tl.exp(x)"),
)


persistent_store_without_mask = lines(
    """The store has no mask: lanes beyond the row's end write into the next row, which may be
    another program's, and behind the tensor in the last one.""",
    ("element_ty), mask=inside)", "element_ty))"),
)

persistent_load_without_mask = lines(
    """The load has no mask: lanes beyond the row's end read the next row, and in the last row what
    lies behind the tensor.""",
    (', mask=inside, other=-float("inf")', ""),
)

persistent_rows_are_n_apart = lines(
    """Row r of x is taken to begin at r * N: that holds for a contiguous matrix only. Pass
    x.stride(0) and multiply the row with that.""",
    ("row * x_stride_m", "row * N"),
)

persistent_columns_are_one_apart = lines(
    """Neighbouring columns are taken to be neighbours in memory; in a transposed matrix they are
    x.stride(1) elements apart.""",
    ("cols * x_stride_n", "cols"),
)

first_row_of_each_program = lines(
    """The address of the row stands before the loop, so that a program reads its first row again
    and again; it belongs to the row that the loop has come to.""",
    ("x_ptr + row * x_stride_m", "x_ptr + first * x_stride_m"),
)

result_row_of_the_program = lines(
    """Every row of a program is stored where its first one belongs; the address belongs to the row
    that the loop has come to.""",
    ("out_ptr + row * N", "out_ptr + first * N"),
)

persistent_result_strided_like_x = lines(
    """torch.empty_like(x) of a transposed x is transposed, too, and the kernel stores rows of N one
    after another: make the result with torch.empty(x.shape, ...), or pass its strides as well.""",
    (
        "        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)",
        "        out = torch.empty_like(x)",
    ),
)

persistent_result_is_float32 = lines(
    """The result is made in float32; it has the dtype of x.""",
    (
        "        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)",
        "        out = torch.empty(x.shape, dtype=torch.float32, device=x.device)",
    ),
)

persistent_exponentials_in_half_precision = lines(
    """The exponentials are rounded to the dtype of x before they are summed and divided. All
    arithmetic is in float32, and only what is stored is rounded.""",
    (
        "e = tl.exp(x - tl.max(x, axis=0))",
        "e = tl.exp(x - tl.max(x, axis=0)).to(x_ptr.dtype.element_ty).to(tl.float32)",
    ),
)

persistent_block_of_1024 = lines(
    """The block has 1,024 lanes whatever the row: a longer row is cut. BLOCK is the number of
    elements, next_power_of_2(N).""",
    ("BLOCK=triton.next_power_of_2(N)", "BLOCK=1024"),
)

one_result_for_all_launches = lines(
    """All launches write into one tensor that is kept, so the next call changes what the caller
    already has: each launch makes a result of its own.""",
    (
        "        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)\n",
        '        kept = self.__dict__.setdefault("kept", {})\n'
        "        empty = torch.empty(x.shape, dtype=x.dtype, device=x.device)\n"
        "        out = kept.setdefault((x.shape, x.dtype), empty)\n",
    ),
)

persistent_of_two_axes_only = lines(
    """x is taken to have two axes; it may have any number, (N,) or (B, H, S, N), and all but the
    last count rows.""",
    ("M, N = rows.shape", "M, N = x.shape"),
)

persistent_empty_tensors_are_launched = lines(
    """A tensor without elements is not looked at by itself: there is no block of 0 lanes and no
    grid of 0 programs. It gives an empty result of its shape and dtype, without a launch.""",
    (
        "        if x.numel() == 0:\n"
        "            return torch.empty(x.shape, dtype=x.dtype, device=x.device)\n",
        "",
    ),
    gate=False,
)
