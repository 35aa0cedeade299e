"""What an optimizer remembers outside `state` and `param_groups`, which no checkpoint stores."""

from collections import deque
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn, optim

CONSTANTS = (
    *(type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, nn.Module),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
OF_PYTORCH = {"defaults", "_zero_grad_profile_name", "_warned_capturable_if_run_uncaptured"}
OF_PYTORCH |= {"_need_device_dtype_check_for_fused", "_step_supports_amp_scaling"}
HOOKS = "_optimizer_"  # the prefix of the attributes that hold hooks


class Fingerprints:
    """Fingerprints of an optimizer's attributes, which are equal while the attributes remember the same.

    The optimizer's state, its groups and the parameters are left out. So are modules, because a checkpoint holds the
    model.
    """

    def __init__(self, optimizer: optim.Optimizer) -> None:
        self.optimizer = optimizer
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self.known = [optimizer.state, optimizer.param_groups, *optimizer.param_groups, *parameters]
        self.alive: dict[int, Any] = {}  # tensors that have a fingerprint, so that no other tensor gets their ids

    def attributes(self) -> dict[str, Any]:
        """Return attribute -> fingerprint."""
        seen = {id(value): value for value in self.known}
        return {name: self.of(value, seen) for name, value in attributes(self.optimizer).items()}

    def of(self, value: Any, seen: dict[int, Any]) -> Any:
        """Return the fingerprint of any object. seen: id -> object, for all objects that need no second visit."""
        if isinstance(value, (bool, int, float, str, bytes, complex, type(None))):
            return type(value).__name__, repr(value)
        if id(value) in seen:
            return "seen"
        seen[id(value)] = value
        if isinstance(value, CONSTANTS):
            return id(value)
        if isinstance(value, Tensor):
            self.alive[id(value)] = value
            return id(value), value._version
        if isinstance(value, torch.Generator):
            return value.get_state().tolist()
        if isinstance(value, optim.Optimizer):
            return self.of(attributes(value), seen)
        if isinstance(value, dict):
            return [(self.of(key, seen), self.of(item, seen)) for key, item in value.items()]
        if isinstance(value, (list, tuple, set, frozenset, deque)):
            return [self.of(item, seen) for item in value]
        try:
            return self.of(value.__reduce_ex__(4), seen)  # what `copy.copy` copies
        except TypeError:  # for example a lock
            return id(value)


def attributes(optimizer: optim.Optimizer) -> dict[str, Any]:
    """Return an optimizer's attributes, without those of PyTorch's base class."""
    if type(optimizer).__module__.startswith("torch.optim."):  # PyTorch's own keep all in their state
        return {"state": optimizer.state, "param_groups": optimizer.param_groups}
    return {
        name: value for name, value in vars(optimizer).items() if name not in OF_PYTORCH and not name.startswith(HOOKS)
    }
