"""Correctness and speed of the Triton programs on a GPU: `benchmarks/gpu_check.sh`."""
