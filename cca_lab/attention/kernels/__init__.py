"""The Triton backend: fused kernels for GPUs, which Triton's interpreter runs on the CPU."""
