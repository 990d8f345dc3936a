"""On PYTHONPATH: Python starts as on a system for which Triton is not made."""

import sys

sys.modules["triton"] = None  # find_spec finds nothing, an import fails
