"""CCA's idea in production: attention that cannot be swapped into another model.

DeepSeek-V4's layer and Native Sparse Attention are not in `MECHANISMS`: their pooling, gates and
choice of entries are learnt from the layer's hidden states, which q, k and v do not tell.
"""
