"""Checkpoints: when to write one, and validating one that was read."""

import time
from collections.abc import Callable, Mapping

import safetensors.torch
import torch
from torch import Tensor

from vitcore.interop.weight_files import check_fit, read_fitting
from vitcore.options import ConfigError
from vitcore.training.run import Run

SHARE = 0.02  # largest share of the time spent on checkpoints
WHAT = "the trial's newest checkpoint"
LATER = ("micro_batch", "suspicion")  # checkpoints of earlier versions lack both
SCALAR = torch.tensor(0.0)


class Checkpoints:
    """Calls `write` every `seconds`, or less often to take at most 2% of the time."""

    def __init__(self, write: Callable[[], None], seconds: float) -> None:
        self.write, self.seconds, self.pause = write, seconds, seconds
        self.written = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self.written >= self.pause

    def save(self) -> None:
        began = time.monotonic()
        self.write()
        self.written = time.monotonic()
        self.pause = self.seconds and max(self.seconds, (self.written - began) / SHARE)


def save(run: Run, step: int, state: Mapping[str, Tensor]) -> None:
    """Save a checkpoint unless the state is not finite: the next evaluation then reports the divergence."""
    if all(bool(tensor.isfinite().all()) for tensor in state.values()):
        run.save_checkpoint(step, safetensors.torch.save(dict(state)))


def parse(payload: bytes, own: Mapping[str, Tensor], steps: int) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint. Raises ConfigError that names a tensor that does not fit.

    own: the state of the training that resumes. steps: the number of steps of the whole training.
    """
    fixed = {name for name in own if not name.startswith(("optimizer.", "losses", *LATER))}
    tensors = read_fitting(payload, {name: own[name] for name in fixed}, WHAT)
    for name in LATER if "micro_batch" in tensors else ():
        check_fit(WHAT, name, tensors.get(name, SCALAR), own[name])
    check_optimizer({name: tensor for name, tensor in tensors.items() if name.startswith("optimizer.")}, own)
    losses, step, micro_batch = tensors.get("losses", SCALAR), tensors["step"], tensors.get("micro_batch", 1)
    if losses.ndim != 1 or not len(losses) <= step < steps or micro_batch < 1:
        raise ConfigError(f"{WHAT}: {losses.numel()} losses, step={step}, micro_batch={micro_batch}")
    return tensors


def check_optimizer(tensors: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Raise ConfigError for a tensor that is neither a scalar nor of its parameter's shape, and for a missing key."""
    kept: dict[str, set[str]] = {}
    for name, tensor in tensors.items():
        parameter, _, key = name.removeprefix("optimizer.").rpartition(".")
        check_fit(WHAT, name, tensor, own.get(f"model.{parameter}", SCALAR) if tensor.ndim else SCALAR)
        kept.setdefault(parameter, set()).add(key)
    for parameter, keys in kept.items():
        if any(keys < others for others in kept.values()):
            raise ConfigError(f"{WHAT}: optimizer.{parameter} has only {', '.join(sorted(keys))}")
