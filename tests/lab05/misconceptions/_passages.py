"""Passages of lab 05's reference, and other texts, that the wrong answers of several tasks name."""

_LOAD = """
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < w && y < h)
            tile[j][threadIdx.x] = in[y * w + x];
    }
"""

_STORE = """
    int column = blockIdx.y * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int row = blockIdx.x * TILE + j;
        if (column < h && row < w)
            out[row * h + column] = tile[threadIdx.x][j];
    }
"""

_LONGER = "    __shared__ float tile[TILE][TILE + 1];"

_MEET = "    __syncthreads();"
