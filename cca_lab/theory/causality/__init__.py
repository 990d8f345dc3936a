"""Whether a row can depend on later tokens: masks, groups, and the choice of focal tokens."""
