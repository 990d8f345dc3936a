"""The papers' theorems, lemmas and numbers: stated, judged by checks that can refute, repaired."""
