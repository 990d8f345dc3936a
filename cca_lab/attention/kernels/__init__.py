"""The Triton backend.

Fused kernels for GPUs, which Triton's interpreter can also run on the CPU.
"""
