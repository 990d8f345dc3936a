"""Attacks on the grader and unusual right answers as files, and the assignment they answer."""
