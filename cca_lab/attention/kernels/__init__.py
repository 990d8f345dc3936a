"""The Triton rung: fused kernels for GPUs, which Triton's interpreter also runs on the CPU."""
