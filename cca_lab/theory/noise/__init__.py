"""Noise on attention logits, with and without groups: DGA's Theorem 2."""
