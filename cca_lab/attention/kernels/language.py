"""`triton` and `tl`: Triton's own where it is installed, and else the lab's interpreter of it."""

from cca_lab.attention.fused import installed, interpreted

if installed():
    import triton
    import triton.language as tl

    if interpreted():
        triton.knobs.compilation.front_end_debugging = True  # a mistake is shown as it is
else:
    from cca_lab.attention.kernels import tile_interpreter as triton
    from cca_lab.attention.kernels import tile_language as tl

__all__ = ["tl", "triton"]
