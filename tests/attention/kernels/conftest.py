"""Kernels run on a GPU or interpreted; else tests/attention/test_kernels.py runs this folder."""

import os

import torch

if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob = ["test_*.py"]
