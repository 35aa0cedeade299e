"""Functions shared by all conversions of models, which compare models, and rename and copy weights.

"This ViT" is `vitcore.model.vit.ViT`. A conversion to it refuses models that this ViT cannot represent. It builds the
other library's counterpart on the meta device and compares the counterpart with the original module by module. Rates of
dropout and stochastic depth become 0.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from commonfloor.options import ConfigError
from vitcore.model.mlp import MLP
from vitcore.model.position import POSITION
from vitcore.model.vit import ViT
from vitcore.settings import Settings
from vitcore.sizes import is_architectural
from vitcore.training.objectives import OBJECTIVE

Weights = dict[str, Tensor]
Patterns = Mapping[str, str | Callable[[re.Match[str]], str]]  # pattern in a name -> replacement, in order

# Settings of the architecture that only initial values, training, rounding and other image sizes depend on, and those
# that `structure` replaces.
WITHOUT_EFFECT = (
    "init", "head_init", "head.bias", "stem.patches", "stem.form", "position.antialias", "position.class_row",
    "mlp_ratio",
)  # fmt: skip


def structure(config: Settings) -> dict[str, Any]:
    """Return the settings that the function of a ViT depends on, apart from its weights and image size."""
    settings: dict[str, Any] = {"objective": config.objective, "channels": config.channels}
    for key, value in (dict(config) | config.options).items():
        if is_architectural(key) and key not in WITHOUT_EFFECT:
            settings[key] = value
    if config.pool == "map":  # whose MLP is as wide whatever `mlp.hidden` says
        settings["mlp_ratio"] = round(config.width * config.mlp_ratio) / config.width
    return settings | {
        "layer_scale": "some" if config.layer_scale else "none",
        "mlp.hidden": MLP[config.mlp].hidden(config),
        "objective.token": config.options.get("objective.token", False),
    }


def check_structure(config: Settings, other: Settings, whose: str, free: Sequence[str] = ()) -> None:
    """Raise ConfigError if `config` and `other`, that of `whose` model, differ except in `free` and their options."""
    settings = structure(other)
    for key, value in structure(config).items():
        is_free = key in free or key.partition(".")[0] in free
        if not is_free and value != settings.get(key):
            given = getattr(config, key, value)  # for layer_scale=0.1, of which `structure` has "some"
            raise ConfigError(f"{key}={given}: {whose} has {settings.get(key, 'none')}")


def check_kinds(model: nn.Module, kinds: dict[str, tuple[type[nn.Module], ...]]) -> None:
    """Raise ValueError if a module's class is not allowed. kinds: module name -> allowed classes, not subclasses."""
    for name, allowed in kinds.items():
        kind = type(model.get_submodule(name))
        if kind not in allowed:
            names = " or ".join(kind_allowed.__name__ for kind_allowed in allowed)
            raise ValueError(f"{name or 'model'}: {kind.__name__}, where this ViT has {names}")


def check_alike(model: nn.Module, skeleton: nn.Module) -> None:
    """Raise ValueError if a module differs or is missing in one model. The message names the first such module."""
    actual = module_settings(model)
    expected = module_settings(skeleton)
    for name in [*actual, *expected]:
        if actual.get(name) != expected.get(name):
            has = expected.get(name, "none")
            raise ValueError(f"{name}: {actual.get(name, 'not there')}, where this ViT has {has}")


def module_settings(model: nn.Module) -> dict[str, str]:
    """Return module name -> class and settings, without modules that do nothing in evaluation."""
    settings_of = {}
    for name, module in model.named_modules():
        kind = "LayerNorm" if isinstance(module, nn.LayerNorm) else type(module).__name__  # timm's subclasses too
        settings = module.extra_repr().replace("approximate='none'", "")
        if hasattr(module, "eps") and "eps=" not in settings:  # StdConv2d omits it
            settings += f", eps={module.eps}"
        if not kind.endswith(("Identity", "Dropout", "DropPath")):  # Dinov2DropPath too
            settings_of[name] = f"{kind}({settings})"
    return settings_of


def is_present(module: nn.Module) -> bool:
    return not isinstance(module, nn.Identity)


def square_side(name: str, size: tuple[int, int]) -> int:
    """Return the side of a square, or raise a ValueError that begins with `name` if height and width differ."""
    if size[0] != size[1]:
        raise ValueError(f"{name}={size}: only a square one converts")
    return size[0]


def convert(config: Settings, theirs: Weights, patterns: Patterns, prefix: Tensor, positions: Tensor | None) -> ViT:
    """Return a ViT with another library's weights, and a head of 0 if they have none. Unknown names raise ValueError.

    patterns: from this ViT's names to theirs. prefix, positions: as in `token_weights`, and not in `theirs`.
    """
    with torch.device("meta"):
        state = OBJECTIVE[config.objective].model(config).state_dict()
    names = {rename(name, patterns): name for name in state}
    unknown = theirs.keys() - names
    if unknown:
        raise ValueError(f"{min(unknown)}: this ViT has no such parameter")
    weights = {name: prefix.new_zeros(values.shape) for name, values in state.items() if name.startswith("head.")}
    for name, values in theirs.items():
        weights[names[name]] = values
    return with_weights(config, weights | token_weights(config, prefix, positions))


def rename(name: str, patterns: Patterns) -> str:
    for pattern, replacement in patterns.items():
        name = re.sub(pattern, replacement, name)
    return name


def token_weights(config: Settings, prefix: Tensor, positions: Tensor | None) -> Weights:
    """Return class token, registers and position embedding under this package's names, from another library's tensors.

    prefix: its prefix tokens (p, D), the class token first. positions: (p + N, D), (N, D) if prefix tokens have no
    positions, or None. The position of a register or distillation token is added to its weights.
    """
    weights = {}
    rows = torch.zeros_like(prefix)
    if positions is not None:
        prefix_rows = max(0, len(positions) - config.grid[0] * config.grid[1])  # number of positions of prefix tokens
        weights["position.table"] = positions[prefix_rows:]
        if prefix_rows:
            rows = positions[:prefix_rows]
    if config.pool == "cls":
        weights["class_token"] = prefix[None, :1]
        if config.options.get("position.class_row"):
            weights["position.class_row"] = rows[0]
    others = (prefix + rows)[None, config.pool == "cls" :]  # neither depends on the image
    if config.registers:
        weights["registers"] = others[:, : config.registers]
    if config.options.get("objective.token"):
        weights["objective.token"] = others[:, config.registers :]
    return weights


def with_weights(config: Settings, weights: Weights) -> ViT:
    with torch.device("meta"):
        model = OBJECTIVE[config.objective].model(config)
    copies = {name: values.clone(memory_format=torch.contiguous_format) for name, values in weights.items()}
    model.position = POSITION[config.position](config)  # not on the meta device, as its tables may be no weights
    model.load_state_dict(copies, assign=True)
    model.position.to(model.head.weight.device)
    return model
