"""H2O: the most recent tokens, and those with the most accumulated attention."""
