"""Compiled models: one graph a shape, however many shapes a worker has seen."""

import subprocess
import sys

COMPILED = """
import itertools
import torch
from torch._dynamo.utils import counters
from vitcore.runtime.compile_cache import compiled

for number, (width, size) in enumerate(itertools.product(range(8, 13), (2, 3)), 1):
    model, x = torch.nn.Linear(width, 1), torch.randn(size, width)
    torch.testing.assert_close(compiled(model, backend="eager")(x), model(x))
    assert counters["stats"]["unique_graphs"] == number, (number, counters["stats"])
"""


def test_every_shape_of_a_worker_has_a_graph() -> None:
    """Ten of them, more than TorchDynamo compiles of one code by default."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
