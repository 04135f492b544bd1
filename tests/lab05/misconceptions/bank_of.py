from grader.suite import misconception


@misconception()
def bank_by_byte(byte_address):
    """Banks are counted by bytes here; a bank is 4 bytes wide, so the four bytes of a word are in
    one bank, and the banks repeat every 128 bytes, not every 32."""
    return byte_address % 32


@misconception()
def banks_without_end(byte_address):
    """This is the number of the word; there are 32 banks, and word 32 is in bank 0 again."""
    return byte_address // 4


@misconception()
def banks_of_eight_bytes(byte_address):
    """The banks are 8 bytes wide here, a mode that only GPUs of compute capability 3 had; since
    then a bank is 4 bytes wide."""
    return byte_address // 8 % 32


@misconception()
def blocks_of_banks(byte_address):
    """Each bank holds a stretch of 128 bytes in a row here; it is the other way round, neighbouring
    words are in neighbouring banks."""
    return byte_address // 128 % 32
