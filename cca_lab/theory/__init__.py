"""The papers' theorems, lemmas and numbers.

Each is stated, judged by a check that can refute it, and repaired.
"""
