"""Settings of the whole suite; they stand before any import of torch, transformers or matplotlib."""

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "Agg"
# "auto" means the same on every machine, and what tests build is kept for the next run, out of the user's cache.
os.environ["CCA_LAB_NATIVE"] = "0"
os.environ["TORCH_EXTENSIONS_DIR"] = str(Path(__file__).parents[1] / "build" / "native")

from hypothesis import settings

# The same examples every time, and no deadline: how fast a machine is does not decide a test.
settings.register_profile("lab", deadline=None, derandomize=True)
settings.load_profile("lab")
