"""Kept heads: a few KV heads of each layer attend in full, all others with another mechanism."""
