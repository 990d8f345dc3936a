"""Run `cca-lab` in this process, as a test does."""

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest.mock import patch

from cca_lab.cli import app


class Outcome(NamedTuple):
    """How a command ended, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """What a terminal shows; lines on stderr come last."""
        return self.stdout + self.stderr


def run_command(words, env: dict[str, str] | None = None) -> Outcome:
    """Run the words behind `cca-lab`, with variables of the environment set."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), patch.dict(os.environ, env or {}):
        try:
            app([str(word) for word in words])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Outcome(code, out.getvalue(), err.getvalue())
