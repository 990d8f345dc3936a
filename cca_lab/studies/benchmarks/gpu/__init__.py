"""`cca-lab study gpu`: kernels, decoding and a model on a GPU, beside SDPA and FlexAttention."""
