"""The content of a training's checkpoints, which is written only if it is finite, and validated when it is read."""

from collections.abc import Mapping

import safetensors.torch
import torch
from torch import Tensor

from vitcore.interop.weight_files import check_fit, read_fitting
from vitcore.options import ConfigError
from vitcore.training.run import Run

WHAT = "the trial's newest checkpoint"
LATER = ("micro_batch", "suspicion")  # checkpoints of earlier versions lack both
SCALAR = torch.tensor(0.0)


def save(run: Run, step: int, state: Mapping[str, Tensor]) -> None:
    """Save a checkpoint, but only if all tensors of the state are finite.

    If one is not finite, the next evaluation reports a divergence.
    """
    if all(bool(tensor.isfinite().all()) for tensor in state.values()):
        run.save_checkpoint(step, safetensors.torch.save(dict(state)))


def parse(payload: bytes, own: Mapping[str, Tensor], steps: int) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint by name.

    payload: the checkpoint as safetensors. own: state of the training that resumes. steps: length of the whole
    training. Raises ConfigError if a tensor is missing or does not fit. Raises ConfigError if the step, the number of
    losses or the micro-batch size is impossible.
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
    """Raise ConfigError if the optimizer's state in a checkpoint does not fit the model.

    Each tensor must be a scalar or have the shape of its parameter. A parameter must not have only some of the tensors
    that another parameter has. own: state of the training that resumes.
    """
    kept: dict[str, set[str]] = {}
    for name, tensor in tensors.items():
        parameter, _, key = name.removeprefix("optimizer.").rpartition(".")
        check_fit(WHAT, name, tensor, own.get(f"model.{parameter}", SCALAR) if tensor.ndim else SCALAR)
        kept.setdefault(parameter, set()).add(key)
    for parameter, keys in kept.items():
        if any(keys < others for others in kept.values()):
            raise ConfigError(f"{WHAT}: optimizer.{parameter} has only {', '.join(sorted(keys))}")
