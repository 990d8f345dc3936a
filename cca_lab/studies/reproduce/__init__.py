"""The papers' tables and figures at a small scale: the claim, what came out, the verdict."""
