from grader.suite import misconception


@misconception()
def maxima_and_sums_are_free(M, N, itemsize, fused):
    """Only the operations on whole matrices are counted; the M maxima and the M sums are written by
    one operation and read by the next, so 2 M belong to each side."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return 5 * M * N * itemsize, 3 * M * N * itemsize


@misconception()
def elements_not_bytes(M, N, itemsize, fused):
    """These are elements; bytes are itemsize times as many."""
    if fused:
        return M * N, M * N
    return 5 * M * N + 2 * M, 3 * M * N + 2 * M


@misconception()
def fused_reads_x_three_times(M, N, itemsize, fused):
    """The kernel uses x for the maximum, for the sum and for the quotient, but it loads it once: in
    between x stays in the registers of the program."""
    if fused:
        return 3 * M * N * itemsize, M * N * itemsize
    return (5 * M * N + 2 * M) * itemsize, (3 * M * N + 2 * M) * itemsize


@misconception()
def a_statistic_for_each_column(M, N, itemsize, fused):
    """A softmax of rows has a maximum and a sum for each of the M rows, not for each of the N
    columns."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (5 * M * N + 2 * N) * itemsize, (3 * M * N + 2 * N) * itemsize


@misconception()
def each_operation_reads_one_operand(M, N, itemsize, fused):
    """A difference and a quotient have two operands each: besides the M N elements they read the M
    maxima or the M sums."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return 5 * M * N * itemsize, (3 * M * N + 2 * M) * itemsize


@misconception()
def read_and_written_exchanged(M, N, itemsize, fused):
    """Read and written are exchanged: a softmax that is not fused reads 5 matrices and writes 3."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (3 * M * N + 2 * M) * itemsize, (5 * M * N + 2 * M) * itemsize


@misconception()
def fusion_saves_the_intermediate_writes_only(M, N, itemsize, fused):
    """Fused, the intermediate matrices are neither written nor read again: one read of M N remains,
    not five."""
    read = (5 * M * N + 2 * M) * itemsize
    return (read, M * N * itemsize) if fused else (read, (3 * M * N + 2 * M) * itemsize)


@misconception()
def counted_in_floats(M, N, itemsize, fused):
    """The counts are floats: beyond 2^53 they are no longer exact. Whole numbers of Python are,
    whatever their size."""
    matrix, column = float(M) * N * itemsize, float(M) * itemsize
    if fused:
        return int(matrix), int(matrix)
    return int(5 * matrix + 2 * column), int(3 * matrix + 2 * column)


@misconception()
def difference_and_exp_are_one_kernel(M, N, itemsize, fused):
    """x - max and exp are counted as one kernel; unfused they are two, and the difference is
    written by the first and read by the second."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (4 * M * N + 2 * M) * itemsize, (2 * M * N + 2 * M) * itemsize


@misconception()
def fused_still_moves_the_statistics(M, N, itemsize, fused):
    """Fused, the maximum and the sum of a row stay in the registers of its program: no element of
    them is read or written."""
    if fused:
        return (M * N + 2 * M) * itemsize, (M * N + 2 * M) * itemsize
    return (5 * M * N + 2 * M) * itemsize, (3 * M * N + 2 * M) * itemsize


@misconception()
def statistics_in_four_bytes(M, N, itemsize, fused):
    """The maxima and sums are counted as float32, 4 bytes each; they have `itemsize` bytes as every
    element here has."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return 5 * M * N * itemsize + 2 * M * 4, 3 * M * N * itemsize + 2 * M * 4


@misconception()
def statistics_are_not_written(M, N, itemsize, fused):
    """The maxima and the sums are read but never written: unfused they are results of kernels of
    their own, M elements each."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (5 * M * N + 2 * M) * itemsize, 3 * M * N * itemsize


@misconception()
def only_one_statistic_is_read(M, N, itemsize, fused):
    """Two operations read a number of each row: the difference its maximum, and the quotient its
    sum; one of the two is left out."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (5 * M * N + M) * itemsize, (3 * M * N + 2 * M) * itemsize
