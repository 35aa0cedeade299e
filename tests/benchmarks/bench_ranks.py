"""The difference between weights trained by two processes and by one: `python tests/benchmarks/bench_ranks.py`.

After 100 steps on the CPU (float32, gloo), the largest |a - b| / |a| over all tensors. The keys' biases are apart:
their gradient is zero in theory, so that Adam turns its rounding into full steps.
"""

from typing import Any

import safetensors.torch
from test_ranks import EVERYTHING, difference, tiny, trained

from vitcore.training.run import Memory

SETTINGS: dict[str, dict[str, Any]] = {"adamw": {}, "sgd": {"optimizer": "sgd", "lr": 0.05}, "everything": EVERYTHING}


def key_biases(one: Memory, other: Memory) -> float:
    a, b = (safetensors.torch.load(run.weights or b"") for run in (one, other))
    pairs = [(a[name].chunk(3)[1], b[name].chunk(3)[1]) for name in a if name.endswith("qkv.bias")]
    return max(((x - y).norm() / x.norm().clamp(min=1e-9)).item() for x, y in pairs)


if __name__ == "__main__":
    for name, settings in SETTINGS.items():
        runs = [Memory(), Memory()]
        for gpus, run in zip((1, 2), runs, strict=True):
            trained(tiny(steps=100, gpus=gpus, **settings), run)
        print(f"{name:12} {difference(*runs):.1e}   keys' biases {key_biases(*runs):.1e}", flush=True)
