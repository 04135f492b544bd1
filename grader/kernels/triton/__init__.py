"""Triton kernels on the CPU: interpreted, every access checked and counted before it happens."""
