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
