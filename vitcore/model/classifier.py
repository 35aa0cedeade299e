"""Classifier, the base class of a plug-in's whole model (`model=NAME`), and how its initial values are drawn.

PyTorch's layers draw their default values when they are made, one after the other from one generator. Then a layer that
is left out would change the values of all later layers. Therefore each layer draws again, from a generator of its own.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from vitcore.keyed_random import seed_of, seeded
from vitcore.model.initialization import Draw, Initial, initialize
from vitcore.settings import Settings
from vitcore.variant import Variant

RESETS = ("_reset_parameters", "reset_parameters")  # methods that draw default values; the first: torch's attention
REGISTRATIONS = (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)


class Classifier(Variant, Initial):
    """Base class of models in plug-ins, which map images (B, C, H, W) to logits (B, classes).

    A subclass builds itself from `config.channels`, `config.classes`, `config.image_size` and `self.options`. PyTorch's
    layers keep their default initial values, each drawn by a generator that is seeded by (seed, name of the layer). So
    do modules whose `__init__` calls their `reset_parameters`. Values that `__init__` sets beyond that stay. `draws`
    says how other parameters are drawn by name: `draws = {"tokens": normal(0.02)}`.
    """

    slot = "model"
    draws: Mapping[str, Draw] = {}

    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.config = config
        self.options = config.options_of(self.slot, self.Options)

    def initial(self, name: str, values: Tensor, generator: Generator) -> None:
        """Fill `values` by the entry of `draws`, or else with the values that the parameter has."""
        if name in self.draws:
            self.draws[name](values, generator)
        else:
            values.copy_(self.get_parameter(name))

    def features(self, images: Tensor) -> Tensor:
        """Return the input of the last layer (B, D), which few-shot probes read. Optional."""
        raise NotImplementedError


class RecordedReset:
    """Stands in for a module's method that draws its default values, and records what the method drew."""

    def __init__(self, module: nn.Module, method: str) -> None:
        self.module = module
        self.method = getattr(module, method)
        self.draw = partial(self.method)  # with the arguments of the last call
        self.drawn: dict[str, Tensor] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.draw = partial(self.method, *args, **kwargs)
        self.draw()
        self.drawn = {name: tensor.detach().clone() for name, tensor in named_tensors(self.module)}

    def draw_again(self, after_init: Mapping[Tensor, Tensor]) -> None:
        """Draw anew the tensors that kept what was drawn. after_init: tensor -> its value at the end of `__init__`."""
        drawn_here = set()
        for name, tensor in named_tensors(self.module):
            if name in self.drawn and torch.equal(self.drawn[name], after_init[tensor]):
                drawn_here.add(tensor)
        if not drawn_here:
            return
        others = {tensor: tensor.clone() for _, tensor in named_tensors(self.module) if tensor not in drawn_here}
        self.draw()
        for tensor, values in others.items():
            tensor.copy_(values)


def drawn_by_name(make: Callable[[Settings], nn.Module], config: Settings) -> nn.Module:
    """Return `make(config)`, in which each layer has drawn its default values by its own name."""
    with ExitStack() as hooks:
        for register_hook in REGISTRATIONS:
            hooks.enter_context(register_hook(record_resets))
        with seeded(config.seed):
            model = make(config)
    draw_layers(model, config.seed)
    initialize(model, config.seed, config.init, config.width)
    return model


def record_resets(module: nn.Module, name: str, registered: object) -> None:
    """Record what a module's methods in RESETS draw. A hook, which is called when the module gets its first tensor."""
    for method in RESETS:
        if hasattr(module, method) and method not in vars(module):
            setattr(module, method, RecordedReset(module, method))


@torch.no_grad()
def draw_layers(model: nn.Module, seed: int) -> None:
    """Draw the default values of each layer anew, by its name. A tensor with another value, such as zeros, keeps it."""
    after_init = {tensor: tensor.clone() for _, tensor in named_tensors(model)}
    for name, module in reversed([*model.named_modules()]):  # inner modules first, as they are made
        for method in RESETS:
            reset = vars(module).get(method)
            if isinstance(reset, RecordedReset):
                delattr(module, method)
                with seeded(seed_of(seed, name)):
                    reset.draw_again(after_init)


def named_tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Return the names and tensors of all parameters and buffers. A shared tensor has several names."""
    parameters = module.named_parameters(remove_duplicate=False)
    return [*parameters, *module.named_buffers(remove_duplicate=False)]
