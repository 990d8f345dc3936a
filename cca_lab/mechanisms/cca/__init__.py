"""CCA-Attention: core tokens of older groups and a local window.

And baselines with the same groups.
"""
