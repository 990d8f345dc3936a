"""CCA-Attention: core tokens of older groups and a local window; baselines with the same groups."""
