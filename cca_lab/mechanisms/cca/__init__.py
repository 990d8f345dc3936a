"""CCA-Attention: core tokens of older groups and a local window; and baselines with the same groups."""
