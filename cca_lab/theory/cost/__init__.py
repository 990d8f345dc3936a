"""What the mechanisms cost: pairs, keys, bytes and the time of a prefill."""
