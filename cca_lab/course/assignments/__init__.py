"""The tasks of each assignment, one module each: what is checked, against what, and what is said."""
