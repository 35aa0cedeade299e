"""The cost of a model is known without what compiles, which is there as ever afterwards."""

import subprocess
import sys

MEASURED = """
import sys
from vitcore import Config
from vitcore.measure import initial_weights, measure

config = Config(width=16, depth=1, heads=2, dropout=0.1, position="relative")
assert measure(config)["params"] == sum(count for count, _ in initial_weights(config).values())
assert "torch._dynamo" not in sys.modules
"""

AFTERWARDS = """
import torch
import torch._refs

add = torch._refs.add
while not hasattr(add, "__code__") or "disable_fn" not in add.__code__.co_varnames:
    add = add.__wrapped__
assert not hasattr(add.__wrapped__, "__dynamo_disable")
assert torch._dynamo.is_compiling is not None
doubled = torch.compile(lambda x: x + x, backend="eager")
assert doubled(torch.ones(2)).tolist() == [2.0, 2.0]
assert torch._dynamo.__file__
"""

ASKING = """
from torch import nn
from vitcore import Config
from vitcore.measure import measure
from vitcore.stem import STEM

class Asking(STEM["patch"]):
    numerics = 1

    def forward(self, images):
        from torch._dynamo.utils import counters

        return super().forward(images)

settings = {"width": 16, "depth": 1, "heads": 2}
plain = measure(Config(**settings))
STEM["asking"] = Asking
Asking.slot = "stem"
config = Config(**settings, stem="asking", registers=1)
import vitcore.measure as measuring
measuring.measured.clear()
assert measure(config)["params"] > plain["params"]
"""


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_measuring_a_model_does_not_load_what_compiles() -> None:
    """It would double the start of `ablate plan`; a compilation afterwards finds everything as it was."""
    run(MEASURED + AFTERWARDS)


def test_a_part_that_asks_for_it_gets_it() -> None:
    """A module of it, in the forward pass."""
    run(ASKING)


COMPILED = """
import torch
from torch._dynamo.utils import counters
from vitcore import Config, ViT
from vitcore.compiling import compiled

def shapes():
    for width in range(8, 8 * 13, 8):
        model = ViT(Config(width=width, depth=1, heads=1, patch=4))
        for size in (2, 3):
            yield model, torch.randn(size, 1, 8, 8)

for number, (model, images) in enumerate(shapes(), 1):
    torch.testing.assert_close(compiled(model, backend="eager")(images), model(images))
    assert counters["stats"]["unique_graphs"] == number, (number, counters["stats"])
"""


def test_every_shape_of_a_worker_has_a_graph() -> None:
    """Twenty-four of them, one each: none is computed otherwise because others were compiled before it."""
    run(COMPILED)
