"""Triton kernels on the CPU: interpreted, every access is checked and counted before it happens."""
