"""Validation of a checkpoint from which training resumes."""

from collections.abc import Mapping

import torch
from torch import Tensor

from vitcore.interop.weight_files import check_fit, read_fitting
from vitcore.options import ConfigError

WHAT = "the trial's newest checkpoint"
LATER = ("micro_batch", "suspicion")  # checkpoints of earlier versions lack both
SCALAR = torch.tensor(0.0)


def parse(payload: bytes, own: Mapping[str, Tensor], steps: int) -> dict[str, Tensor]:
    """Return name -> tensor from a checkpoint, as safetensors; raise ConfigError if it is damaged or does not fit.

    own: name -> tensor for the state of the resuming run. steps: the run's total number of steps.
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
    """Raise ConfigError if a tensor of the optimizer is missing, or neither a scalar nor as large as its parameter."""
    kept: dict[str, set[str]] = {}
    for name, tensor in tensors.items():
        parameter, _, key = name.removeprefix("optimizer.").rpartition(".")
        check_fit(WHAT, name, tensor, own.get(f"model.{parameter}", SCALAR) if tensor.ndim else SCALAR)
        kept.setdefault(parameter, set()).add(key)
    for parameter, keys in kept.items():
        if any(keys < others for others in kept.values()):
            raise ConfigError(f"{WHAT}: optimizer.{parameter} has only {', '.join(sorted(keys))}")
