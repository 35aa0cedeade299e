"""An optimizer's state in a checkpoint: what `state` holds for each parameter, and `param_groups` for each group.

Tensors of any shape are stored as safetensors. Numbers, text and the structure of lists are JSON in the tensor INDEX.
Checkpoints of versions before 0.24 lack INDEX, and hold only tensors of parameters. No checkpoint stores what an
optimizer remembers elsewhere, which its fingerprint shows.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn, optim

from commonfloor.options import ConfigError

CONSTANTS = (
    *(type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, nn.Module),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
OF_PYTORCH = {"defaults", "_zero_grad_profile_name", "_warned_capturable_if_run_uncaptured"}
OF_PYTORCH |= {"_need_device_dtype_check_for_fused", "_step_supports_amp_scaling"}
HOOKS = "_optimizer_"  # the prefix of the attributes that hold hooks
INDEX = "optimizer"
OF_PARAMETERS, OF_GROUPS = "optimizer.", "optimizer_groups."  # prefixes of the tensors' names
SET_BY_TRAINING = ("params", "lr")  # keys of a group
PLAIN = (bool, int, float, str, type(None))
DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]


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


class StrictRecord(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", ser_json_inf_nan="constants")


class StoredTensor(StrictRecord):
    tensor: str  # its name in the checkpoint
    dtype: str
    shape: tuple[int, ...]
    host: bool = False  # whether it was in host memory while the parameters were on a GPU


class StoredList(StrictRecord):
    items: list[Stored]
    kind: Literal["list", "tuple"]


Stored = bool | int | float | str | StoredTensor | StoredList | None
Values = dict[str, Stored]


class StoredState(StrictRecord):
    """The JSON of INDEX. parameters: name -> values. groups: values, in the order of the optimizer."""

    version: Literal[1] = 1
    parameters: dict[str, Values]
    groups: list[Values]


class OptimizerState:
    """The state of a model's optimizer, to store and to restore. name: the value of `config.optimizer`, for errors."""

    def __init__(self, optimizer: optim.Optimizer, model: nn.Module, name: str) -> None:
        self.optimizer = optimizer
        self.name = name
        self.parameters = dict(model.named_parameters())
        self.device = next(iter(self.parameters.values())).device
        self.fingerprints = Fingerprints(optimizer)
        self.initial = self.fingerprints.attributes()
        self.verified = False
        self.lacks_groups = False  # whether the restored checkpoint held no values of groups

    @contextmanager
    def verified_step(self) -> Iterator[None]:
        """Raise ConfigError after the first step in this context if no checkpoint can store the optimizer's state."""
        if self.verified:
            yield
            return
        groups = self.stored({}).groups
        generators = default_generators(self.device)
        yield
        after = self.stored({}).groups
        if default_generators(self.device) != generators:
            raise self.error("a step draws from a default generator: draw from one that is seeded by the step")
        if self.lacks_groups and after != groups:
            raise self.error("the newest checkpoint is of an older version, which stored no values of groups")
        self.verified = True

    def tensors(self) -> dict[str, Tensor]:
        """Return name -> tensor for a checkpoint. Raises ConfigError if part of the state cannot be stored."""
        tensors: dict[str, Tensor] = {}
        index = self.stored(tensors).model_dump_json().encode()
        return {**tensors, INDEX: torch.frombuffer(bytearray(index), dtype=torch.uint8)}

    def stored(self, tensors: dict[str, Tensor]) -> StoredState:
        """Return the state, and add its tensors to `tensors`. Raises ConfigError if part of it cannot be stored."""
        for attribute, fingerprint in self.fingerprints.attributes().items():
            if fingerprint != self.initial.get(attribute):
                raise self.error(f"a step changes its attribute {attribute}: keep it in `state` or `param_groups`")
        names: dict[Tensor, str] = {parameter: name for name, parameter in self.parameters.items()}
        pack = StatePacker(self, tensors)
        parameters: dict[str, Values] = {}
        for parameter, state in self.optimizer.state.items():
            if parameter not in names:
                raise self.error(f"`state` has the key {parameter!r:.40}: its keys are the model's parameters")
            if state:
                parameters[names[parameter]] = pack.values(state, f"{OF_PARAMETERS}{names[parameter]}.")
        groups = []
        for number, group in enumerate(self.optimizer.param_groups):
            groups.append(pack.values(changing_values(group), f"{OF_GROUPS}{number}."))
        return StoredState(parameters=parameters, groups=groups)

    def restore(self, tensors: Mapping[str, Tensor], device: torch.device, what: str) -> None:
        """Restore the state from a checkpoint's tensors. what: the start of an error message.

        Raises ConfigError if the state is damaged or does not fit the optimizer.
        """
        if INDEX in tensors:
            index = read_index(tensors[INDEX], what)
        else:
            index = earlier_index(tensors)
            self.lacks_groups = True
        unknown = index.parameters.keys() - self.parameters.keys()
        if unknown:
            raise ConfigError(f"{what}: {OF_PARAMETERS}{min(unknown)}: the model has no such parameter")
        groups = self.optimizer.param_groups
        if not self.lacks_groups and len(index.groups) != len(groups):
            raise ConfigError(f"{what}: {len(index.groups)} groups of parameters, not {len(groups)}")

        def restored(values: Values) -> dict[str, Any]:
            return {key: unpacked(value, tensors, device, what) for key, value in values.items()}

        for name, values in index.parameters.items():
            if self.name == "lion" and "momentum" in values:  # until version 0.29
                values["exp_avg"] = values.pop("momentum")
            self.optimizer.state[self.parameters[name]] = restored(values)
        for group, values in zip(groups, index.groups, strict=False):
            group.update(restored(values))

    def error(self, why: str) -> ConfigError:
        return ConfigError(f"optimizer={self.name}: cannot be resumed: {why}")


def changing_values(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a group that a step may change."""
    return {
        key: value for key, value in group.items() if key not in SET_BY_TRAINING and not isinstance(value, CONSTANTS)
    }


def default_generators(device: torch.device) -> list[Any]:
    """Return the states of the default generators of Python, NumPy and PyTorch."""
    of_numpy = np.random.get_state(legacy=False)["state"]
    states = [random.getstate(), of_numpy["pos"], of_numpy["key"].tolist(), torch.get_rng_state().tolist()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device).tolist())
    return states


class StatePacker:
    """Turns values of an optimizer into JSON, and adds their tensors to `tensors`."""

    def __init__(self, owner: OptimizerState, tensors: dict[str, Tensor]) -> None:
        self.owner = owner
        self.tensors = tensors
        self.names = {address(parameter): f"the parameter {name}" for name, parameter in owner.parameters.items()}

    def values(self, values: Mapping[str, Any], prefix: str) -> Values:
        return {key: self.value(value, f"{prefix}{key}") for key, value in values.items()}

    def value(self, value: Any, name: str) -> Stored:
        if type(value) in PLAIN:
            return value
        if isinstance(value, Tensor):
            return self.tensor(value, name)
        if type(value) in (list, tuple):
            items = [self.value(item, f"{name}.{number}") for number, item in enumerate(value)]
            return StoredList(items=items, kind="list" if type(value) is list else "tuple")
        kind = type(value).__name__
        raise self.owner.error(f"{name} has the type {kind}: a number, text, a tensor, or a list of these")

    def tensor(self, tensor: Tensor, name: str) -> StoredTensor:
        dtype = dtype_name(tensor)
        if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout != torch.strided or dtype not in DTYPES:
            kind = f"{type(tensor).__name__} of {dtype}, {tensor.layout}"
            raise self.owner.error(f"{name} is a {kind}: a plain dense tensor of {', '.join(DTYPES)}")
        if tensor.numel():
            first = self.names.setdefault(address(tensor), name)
            if first != name:
                raise self.owner.error(f"{name} shares its memory with {first}: copy it")
        self.tensors[name] = tensor.detach().contiguous()
        host = tensor.device.type == "cpu" and self.owner.device.type != "cpu"
        return StoredTensor(tensor=name, dtype=dtype, shape=tuple(tensor.shape), host=host)


def unpacked(stored: Stored, tensors: Mapping[str, Tensor], device: torch.device, what: str) -> Any:
    """Return a value of an optimizer, with its tensors on `device`. tensors, what: as in `OptimizerState.restore`."""
    if isinstance(stored, StoredList):
        items = [unpacked(item, tensors, device, what) for item in stored.items]
        return items if stored.kind == "list" else tuple(items)
    if not isinstance(stored, StoredTensor):
        return stored
    tensor = tensors.get(stored.tensor)
    if tensor is None:
        raise ConfigError(f"{what}: {stored.tensor} is missing")
    expected = f"{stored.dtype} {stored.shape}"
    if type_and_shape(tensor) != expected:
        raise ConfigError(f"{what}: {stored.tensor} is {type_and_shape(tensor)}, not {expected}")
    # Float64 scalars stay on the host, where the optimizer reads them at each step.
    on_host = stored.host or (tensor.dtype == torch.float64 and tensor.ndim == 0)
    return tensor if on_host else tensor.to(device)


def address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def type_and_shape(tensor: Tensor) -> str:
    return f"{dtype_name(tensor)} {tuple(tensor.shape)}"


def read_index(index: Tensor, what: str) -> StoredState:
    """Return the content of INDEX; raise ConfigError if it is damaged."""
    if index.dtype != torch.uint8 or index.ndim != 1:
        raise ConfigError(f"{what}: {INDEX} is {type_and_shape(index)}, not uint8 (n,)")
    try:
        return StoredState.model_validate_json(index.numpy().tobytes())
    except ValidationError:
        raise ConfigError(f"{what}: {INDEX} is not the JSON of an optimizer's state") from None


def earlier_index(tensors: Mapping[str, Tensor]) -> StoredState:
    """Return the index of a checkpoint of versions before 0.24."""
    parameters: dict[str, Values] = {}
    for name, tensor in tensors.items():
        if name.startswith(OF_PARAMETERS):
            parameter, _, key = name.removeprefix(OF_PARAMETERS).rpartition(".")
            stored = StoredTensor(tensor=name, dtype=dtype_name(tensor), shape=tuple(tensor.shape))
            parameters.setdefault(parameter, {})[key] = stored
    return StoredState(parameters=parameters, groups=[])
