"""The papers' theorems, lemmas and numbers: each is stated, judged by a check that can refute it, and repaired."""
