"""Compiled models: one graph a shape, however many shapes a worker has seen."""

import subprocess
import sys

COMPILED = """
import torch
from torch._dynamo.utils import counters
from vitcore import Config, ViT
from vitcore.runtime.compile_cache import compiled

def shapes():
    for width in range(8, 8 * 6, 8):
        model = ViT(Config(width=width, depth=1, heads=1, patch=4))
        for size in (2, 3):
            yield model, torch.randn(size, 1, 8, 8)

for number, (model, images) in enumerate(shapes(), 1):
    torch.testing.assert_close(compiled(model, backend="eager")(images), model(images))
    assert counters["stats"]["unique_graphs"] == number, (number, counters["stats"])
"""


def test_every_shape_of_a_worker_has_a_graph() -> None:
    """Ten of them, more than TorchDynamo compiles of one code by default."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
