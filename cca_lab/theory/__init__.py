"""The papers' theorems, lemmas and numbers: each stated, judged by a check that can refute it, and repaired."""
