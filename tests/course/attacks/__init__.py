"""Attacks on the grader as files, the assignment that they answer, and a table of who falls."""
