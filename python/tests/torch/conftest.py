"""Where there is no GPU, Triton interprets its kernels: it asks when it is imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
