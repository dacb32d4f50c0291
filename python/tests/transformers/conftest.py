"""Small models: a second thread costs more than it brings. What was served is given back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import ttr.transformers


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    ttr.transformers.disable()
    ttr.transformers.report(clear=True)
    torch.set_num_threads(threads)
