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


@misconception()
def read_and_written_in_one_number(M, N, itemsize, fused):
    """Read and written are added up to one number; they are asked for apart, as the pair (read,
    written)."""
    return 2 * M * N * itemsize if fused else (8 * M * N + 4 * M) * itemsize


@misconception()
def a_list_for_a_pair(M, N, itemsize, fused):
    """This is a list; the result is a tuple, (read, written)."""
    if fused:
        return [M * N * itemsize, M * N * itemsize]
    return [(5 * M * N + 2 * M) * itemsize, (3 * M * N + 2 * M) * itemsize]


@misconception()
def one_matrix_is_not_read(M, N, itemsize, fused):
    """One of the five reads of a whole matrix is left out: each of the five operations reads M N
    elements, also those that the operation before it has just written."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (4 * M * N + 2 * M) * itemsize, (3 * M * N + 2 * M) * itemsize


@misconception()
def two_matrices_are_not_read(M, N, itemsize, fused):
    """Two of the five reads of a whole matrix are left out: each of the five operations reads M N
    elements, also those that the operation before it has just written."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (3 * M * N + 2 * M) * itemsize, (3 * M * N + 2 * M) * itemsize


@misconception()
def one_matrix_is_not_written(M, N, itemsize, fused):
    """One of the three matrices that are written is left out: the differences, the exponentials and
    the quotients are M N elements each, and each operation writes its result to memory."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (5 * M * N + 2 * M) * itemsize, (2 * M * N + 2 * M) * itemsize


@misconception()
def only_the_result_is_written(M, N, itemsize, fused):
    """Of the matrices only the last one is counted as written: the differences and the exponentials
    go to memory as well, since another kernel reads them there."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (5 * M * N + 2 * M) * itemsize, (M * N + 2 * M) * itemsize


@misconception()
def each_operation_writes_a_matrix(M, N, itemsize, fused):
    """Each operation is counted as writing M N elements; a maximum and a sum of each row are M
    numbers, so these two write M each."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (5 * M * N + 2 * M) * itemsize, 5 * M * N * itemsize


@misconception()
def statistics_are_spread_out(M, N, itemsize, fused):
    """The maximum and the sum are counted as operands of M N elements, as if they were spread out
    over their rows; in memory they are M numbers each, however often they are used."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return 7 * M * N * itemsize, (3 * M * N + 2 * M) * itemsize


@misconception()
def statistics_are_matrices(M, N, itemsize, fused):
    """Maxima and sums are counted as matrices, written and read again; they are one number a row,
    M numbers each."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return 7 * M * N * itemsize, 5 * M * N * itemsize


@misconception()
def fused_reads_x_twice(M, N, itemsize, fused):
    """The kernel uses x for the maximum, for the sum and for the quotient, but it loads it once: in
    between x stays in the registers of the program."""
    if fused:
        return 2 * M * N * itemsize, M * N * itemsize
    return (5 * M * N + 2 * M) * itemsize, (3 * M * N + 2 * M) * itemsize


@misconception()
def fused_reads_five_times(M, N, itemsize, fused):
    """The kernel is counted as reading x for each of its five operations; it loads x once, and in
    between x stays in the registers of the program."""
    if fused:
        return 5 * M * N * itemsize, M * N * itemsize
    return (5 * M * N + 2 * M) * itemsize, (3 * M * N + 2 * M) * itemsize


@misconception()
def fused_still_writes_the_statistics(M, N, itemsize, fused):
    """Fused, the maximum and the sum of a row stay in the registers of its program: no element of
    them is read or written."""
    if fused:
        return M * N * itemsize, (M * N + 2 * M) * itemsize
    return (5 * M * N + 2 * M) * itemsize, (3 * M * N + 2 * M) * itemsize


@misconception()
def fused_is_ignored(M, N, itemsize, fused):
    """The five kernels are counted whatever `fused` says; fused is one kernel, which reads and
    writes each element once."""
    return (5 * M * N + 2 * M) * itemsize, (3 * M * N + 2 * M) * itemsize


@misconception()
def fused_taken_for_unfused(M, N, itemsize, fused):
    """The two cases are exchanged: it is the fused kernel that reads and writes each element
    once."""
    if not fused:
        return M * N * itemsize, M * N * itemsize
    return (5 * M * N + 2 * M) * itemsize, (3 * M * N + 2 * M) * itemsize


@misconception()
def fused_in_elements(M, N, itemsize, fused):
    """These are elements; bytes are itemsize times as many."""
    if fused:
        return M * N, M * N
    return (5 * M * N + 2 * M) * itemsize, (3 * M * N + 2 * M) * itemsize


@misconception()
def statistics_in_elements(M, N, itemsize, fused):
    """The maxima and sums are added as elements to a number of bytes: they have `itemsize` bytes
    each, too."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return 5 * M * N * itemsize + 2 * M, 3 * M * N * itemsize + 2 * M


@misconception()
def always_four_bytes(M, N, itemsize, fused):
    """Every element is counted as 4 bytes; `itemsize` says how many it has."""
    if fused:
        return 4 * M * N, 4 * M * N
    return 4 * (5 * M * N + 2 * M), 4 * (3 * M * N + 2 * M)


@misconception()
def four_kernels_without_a_maximum(M, N, itemsize, fused):
    """Four kernels are counted: exp, sum and quotient have a maximum and a difference before them,
    which read and write as well."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (3 * M * N + M) * itemsize, (2 * M * N + M) * itemsize


@misconception()
def only_one_statistic_is_written(M, N, itemsize, fused):
    """Two operations write a number of each row, the maximum and the sum; one of the two is left
    out."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (5 * M * N + 2 * M) * itemsize, (3 * M * N + M) * itemsize


@misconception()
def one_statistic_a_row(M, N, itemsize, fused):
    """One number a row is counted; there are two, a maximum and a sum, and each is written by one
    kernel and read by another."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (5 * M * N + M) * itemsize, (3 * M * N + M) * itemsize


@misconception()
def statistics_counted_twice(M, N, itemsize, fused):
    """The maxima and sums are counted as 2 M numbers each; they are M numbers each, 2 M together on
    either side."""
    if fused:
        return M * N * itemsize, M * N * itemsize
    return (5 * M * N + 4 * M) * itemsize, (3 * M * N + 4 * M) * itemsize
