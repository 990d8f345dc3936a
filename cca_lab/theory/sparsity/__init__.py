"""How often a row of attention is sparse: DGA's Theorem 1, repaired."""
