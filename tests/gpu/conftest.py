"""What only a GPU can show: `make test-gpu`. Elsewhere every test here is skipped."""

import os
from pathlib import Path

import pytest
import torch

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before the first product: products repeat to the bit
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        skipped = pytest.mark.skip(reason="PyTorch sees no GPU")
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(skipped)
