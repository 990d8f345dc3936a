"""`python -m cca_lab` is the `cca-lab` command, for launchers that want a module."""

from cca_lab.cli import app

if __name__ == "__main__":
    app()
