"""The tasks of each assignment: what is checked, against what, and what is said."""
