"""Kernels: fused operations in Triton for GPUs, in Numba or chunks for CPUs; each has an exact, slower twin."""
