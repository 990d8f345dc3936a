"""The papers' tables and figures at a small scale.

What was claimed, what came out here, and whether they agree.
"""
