"""Classifier, the base class of a plug-in's whole model (`model=NAME`), and how its initial values are drawn.

PyTorch's layers draw their default values when they are made, one after the other from one generator. Then a layer that
is left out would change the values of all later layers. Therefore each layer draws again, from a generator of its own.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Generator, Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook

from vitcore.keyed_random import seed_of, seeded
from vitcore.model.initialization import Draw, Initial, initialize
from vitcore.settings import Settings
from vitcore.variant import Variant


class Classifier(Variant, Initial):
    """Base class of models in plug-ins, which map images (B, C, H, W) to logits (B, classes).

    A subclass builds itself from `config.channels`, `config.classes`, `config.image_size` and `self.options`. PyTorch's
    layers keep their default initial values, each drawn by a generator that is seeded by (seed, name of the layer). So
    does every module with a method `reset_parameters`. Values that `__init__` sets beyond that stay. `draws` says how
    other parameters are drawn by name: `draws = {"tokens": normal(0.02)}`.
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


def drawn_by_name(make: Callable[[Settings], nn.Module], config: Settings) -> nn.Module:
    """Return `make(config)`, in which each layer has drawn its default values by its own name."""
    defaults: dict[nn.Parameter, Tensor] = {}  # the values that parameters got from their layers

    def note_defaults(parent: nn.Module, name: str, module: nn.Module | None) -> None:
        for parameter in module.parameters() if module is not None else ():
            if parameter not in defaults or reset_of(module) is not None:
                defaults[parameter] = parameter.detach().clone()

    hook = register_module_module_registration_hook(note_defaults)
    try:
        with seeded(config.seed):
            model = make(config)
    finally:
        hook.remove()
    if reset_of(model) is not None:
        note_defaults(model, "", model)
    draw_layers(model, config.seed, defaults)
    initialize(model, config.seed, config.init, config.width)
    return model


@torch.no_grad()
def draw_layers(model: nn.Module, seed: int, defaults: Mapping[nn.Parameter, Tensor]) -> None:
    """Draw the default values of each layer anew, by its name. defaults: parameter -> the value its layer gave it.

    A parameter that has another value, as zeros in a head, keeps it.
    """
    initial = {parameter: parameter.clone() for parameter in model.parameters()}
    for name, module in reversed([*model.named_modules()]):  # inner modules first, as they are made
        reset = reset_of(module)
        if reset is not None:
            with seeded(seed_of(seed, name)):
                reset()
    for parameter, values in initial.items():
        is_default = parameter in defaults and torch.equal(defaults[parameter], values)
        if not is_default:
            parameter.copy_(values)


def reset_of(module: nn.Module | None) -> Callable[[], None] | None:
    """Return the method that draws a module's default values, or None. `_reset_parameters`: of torch's attention."""
    return getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
