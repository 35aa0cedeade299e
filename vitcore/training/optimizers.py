"""Optimizers and their parameter groups. To add an optimizer, write a class and add it to OPTIMIZER."""

import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor, nn, optim

from commonfloor.options import ConfigError
from vitcore.settings import Settings
from vitcore.training import algorithms
from vitcore.training.algorithms import Average
from vitcore.variant import Variant

Beta = Annotated[float, Field(ge=0, lt=1)]
Groups = list[dict[str, Any]]
EMBEDS = ("stem.", "position.", "objective.", "class_token", "registers", "encoder.embedding_norm.")


def make_optimizer(model: nn.Module, config: Settings) -> optim.Optimizer:
    """Return the optimizer of `config` for the parameters of `model`.

    Parameters without gradients are left out. Each parameter group has the keys `weight_decay`, `lr_scale` (factor of
    the learning rate) and `apart` (bool).
    """
    kind = OPTIMIZER[config.optimizer]
    groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        decays = config.weight_decay_on == "all" or has_weight_decay(name, parameter)
        decay = config.weight_decay if decays else 0.0
        scale = config.layer_decay ** (config.layers + 1 - layer_id(name, config.layers))
        groups.setdefault((decay, scale, kind.apart(name, parameter)), []).append(parameter)
    described: Groups = []
    for (decay, scale, apart), parameters in groups.items():
        described.append({"params": parameters, "weight_decay": decay, "lr_scale": scale, "apart": apart})
    return kind.make(described, config)


def set_rate(optimizer: optim.Optimizer, rate: float) -> None:
    """Set each group's learning rate to `rate` times its `lr_scale`, in place if a CUDA graph reads it as a tensor."""
    for group in optimizer.param_groups:
        scaled = rate * group["lr_scale"]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(scaled)
        else:
            group["lr"] = scaled


def has_weight_decay(name: str, parameter: nn.Parameter) -> bool:
    """Return whether a parameter is the weight of a dense layer or convolution outside the position embedding."""
    return parameter.ndim >= 2 and name.endswith("weight") and not name.startswith("position.")


def layer_id(name: str, layers: int) -> int:
    """Return a parameter's layer for layer-wise learning-rate decay, as in BEiT's code (arXiv 2106.08254).

    0: everything before the blocks, and the objective's parameters. i + 1: block i with its own position parameters.
    `layers` + 1: the final norm, the pooling and the head.
    """
    in_block = re.match(r"(?:encoder\.blocks|position\.(?:second\.)?\w+)\.(\d+)(?:\.|$)", name)
    if in_block:
        return int(in_block[1]) + 1
    if name.startswith(EMBEDS):
        return 0
    return layers + 1


class Optimizer(Variant):
    """Base class of variants that create an optimizer, from `torch.optim` if possible."""

    slot = "optimizer"
    build: ClassVar[Callable[..., optim.Optimizer]]  # maps groups and the result of `arguments` to an optimizer

    @classmethod
    def make(cls, groups: Groups, config: Settings) -> optim.Optimizer:
        """Return an optimizer for parameter groups. Training sets the groups' `lr` before each step."""
        return cls.build(groups, **cls.arguments(config))

    @classmethod
    def arguments(cls, config: Settings) -> dict[str, Any]:
        """Return the learning rate and the options as keyword arguments, with all betas in the tuple `betas`."""
        arguments = {"lr": config.lr, **config.options_of(cls.slot, cls.Options).model_dump()}
        betas = [arguments.pop(name) for name in ("beta1", "beta2", "beta3") if name in arguments]
        if betas:
            arguments["betas"] = tuple(betas)
        return arguments

    @classmethod
    def apart(cls, name: str, parameter: nn.Parameter) -> bool:
        """Return whether a parameter belongs in a separate group for `make`, as matrices do for Muon."""
        return False

    @classmethod
    def average(cls, model: nn.Module, optimizer: optim.Optimizer) -> Average | None:
        """Return the averaged weights to evaluate and save, or None to use the model's own."""
        return None


def of_timm(name: str, groups: Groups, **arguments: Any) -> optim.Optimizer:
    """Return an optimizer of timm, which is imported only here because that takes seconds."""
    optimizer: optim.Optimizer = getattr(import_module("timm.optim"), name)(groups, **arguments)
    return optimizer


class AdamOptions(Optimizer.Options):
    """The options of Adam. The weight decay is a separate setting."""

    beta1: Beta = 0.9  #: Decay rate of the running average of the gradient.
    beta2: Beta = 0.999  #: Decay rate of the running average of the squared gradient.
    eps: Annotated[float, Field(gt=0)] = 1e-8  #: Added to the denominator of the update.


class Adam(Optimizer):
    """Adam (arXiv 1412.6980). Weight decay is added to the gradient (L2)."""

    numerics = 1
    Options = AdamOptions
    build = staticmethod(partial(optim.Adam, fused=True))


class AdamW(Adam):
    """Adam with decoupled weight decay (arXiv 1711.05101)."""

    numerics = 1
    build = staticmethod(partial(optim.AdamW, fused=True))


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, as for fine-tuning in arXiv 2010.11929, section B.1.1.

    Weight decay is added to the gradient (L2).
    """

    numerics = 1
    build = staticmethod(partial(optim.SGD, fused=True))

    class Options(Optimizer.Options):
        momentum: Beta = 0.9  #: Decay rate of the momentum, by default as in arXiv 2010.11929.
        nesterov: bool = False  #: Whether to use Nesterov momentum (arXiv 1212.0901, equation 7).

    @classmethod
    def check(cls, config: Settings) -> None:
        options = config.options_of(cls.slot, cls.Options)
        if options.nesterov and not options.momentum:
            raise ConfigError("optimizer.nesterov=True needs an optimizer.momentum above 0, not 0.0")


class Lion(Optimizer):
    """Lion, whose update is the sign of an interpolated momentum, with decoupled weight decay (arXiv 2302.06675).

    This is timm's Lion. The authors recommend a learning rate 3 to 10 times smaller than AdamW's, and a weight decay 3
    to 10 times larger.
    """

    numerics = 1
    build = staticmethod(partial(of_timm, "Lion", foreach=True))

    class Options(Optimizer.Options):
        beta1: Beta = 0.9  #: Share of the momentum in an update.
        beta2: Beta = 0.99  #: Decay rate of the momentum.


class Muon(Optimizer):
    """Orthogonalized momentum for the matrices of the blocks (https://kellerjordan.github.io/posts/muon/).

    This is `torch.optim.Muon`, and AdamW trains all other parameters. Updates are scaled by 0.2 sqrt(max(rows,
    columns)) to the size of AdamW's updates (arXiv 2502.16982, equation 4). Both optimizers therefore share the
    learning rate and weight decay. Queries, keys and values form one matrix. Newton-Schulz iterations run in bf16.
    """

    numerics = 1

    class Options(AdamOptions):
        """The decay of Muon's momentum, and the options of AdamW for the parameters that Muon does not train."""

        momentum: Beta = 0.95  #: Decay rate of Muon's momentum.

    @classmethod
    def check(cls, config: Settings) -> None:
        if config.model:
            raise ConfigError(f"model={config.model}: optimizer=muon works only with this package's ViT")
        if config.trainable in ("norm", "head"):
            raise ConfigError(f"trainable={config.trainable}: optimizer=muon is for matrices: all or attention")

    @classmethod
    def apart(cls, name: str, parameter: nn.Parameter) -> bool:
        return parameter.ndim == 2 and name.startswith("encoder.blocks.") and name.endswith("weight")

    @classmethod
    def make(cls, groups: Groups, config: Settings) -> optim.Optimizer:
        arguments = cls.arguments(config)
        momentum = arguments.pop("momentum")
        matrices = [group for group in groups if group["apart"]]
        rest = [group for group in groups if not group["apart"]]
        muon = optim.Muon(matrices, config.lr, momentum=momentum, adjust_lr_fn="match_rms_adamw")
        return Together(muon, optim.AdamW(rest, fused=True, **arguments))


class Together(optim.Optimizer):
    """An optimizer that combines optimizers for different parameters. It has all their groups and a shared state."""

    def __init__(self, *optimizers: optim.Optimizer) -> None:
        super().__init__([group for optimizer in optimizers for group in optimizer.param_groups], {})
        self.optimizers = optimizers
        for optimizer in optimizers:
            optimizer.state = self.state

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no caller gives a closure
        for optimizer in self.optimizers:
            optimizer.step()


class ScheduleFree(Optimizer):
    """Schedule-free AdamW, with an average of the weights that is evaluated and saved (arXiv 2405.15682).

    The learning rate needs no decay: use `schedule=constant` with `schedule.cooldown=0`.
    """

    numerics = 1
    build = algorithms.ScheduleFreeAdamW

    class Options(AdamOptions):
        """The options of AdamW, except that beta1 has another meaning."""

        #: Gradients are computed at beta1 times the averaged weights plus 1 - beta1 times the newest weights.
        beta1: Annotated[float, Field(gt=0, lt=1)] = 0.9

    @classmethod
    def check(cls, config: Settings) -> None:
        if config.ema:
            raise ConfigError(f"ema={config.ema}: optimizer=schedule-free already averages the weights: must be 0")

    @classmethod
    def average(cls, model: nn.Module, optimizer: optim.Optimizer) -> Average | None:
        assert isinstance(optimizer, algorithms.ScheduleFreeAdamW)
        return algorithms.Averaged(model, optimizer)


class Adafactor(Optimizer):
    """Adafactor, with squared gradients of a matrix kept as row and column sums (arXiv 1804.04235, Algorithms 4 and 5).

    This is `torch.optim.Adafactor`, with decoupled weight decay. A step is the learning rate, at most 1 / sqrt(steps),
    times the parameter's root mean square, which is taken as at least 0.001.
    """

    numerics = 1

    class Options(Optimizer.Options):
        #: The running average of the squared gradient decays by 1 - t^beta2_decay at step t.
        beta2_decay: Annotated[float, Field(ge=-1, lt=0)] = -0.8
        clip: Annotated[float, Field(ge=1)] = 1.0  #: Largest root mean square of an update, before it is scaled.

    @classmethod
    def make(cls, groups: Groups, config: Settings) -> optim.Optimizer:
        arguments = cls.arguments(config)
        clip = arguments.pop("clip")
        return optim.Adafactor(groups, d=clip, **arguments)


class Lamb(Optimizer):
    """LAMB, AdamW's update scaled to the norm of each parameter, for large batches (arXiv 1904.00962, Algorithm 2).

    This is timm's Lamb without its own gradient clipping. As there, parameters without weight decay are not scaled.
    """

    numerics = 1
    build = staticmethod(partial(of_timm, "Lamb", max_grad_norm=None))

    class Options(AdamOptions):
        """The options of AdamW. The authors use a larger eps."""

        eps: Annotated[float, Field(gt=0)] = 1e-6  #: Added to the denominator of the update.


class Adan(Optimizer):
    """Adan, adaptive Nesterov momentum from differences of gradients (arXiv 2208.06677, Algorithm 1).

    This is timm's Adan, with proximal weight decay. The paper writes 1 - beta for each beta.
    """

    numerics = 1
    build = staticmethod(partial(of_timm, "Adan"))

    class Options(AdamOptions):
        """The decay rates of the three running averages."""

        beta1: Beta = 0.98  #: Decay rate of the running average of the gradient.
        beta2: Beta = 0.92  #: Decay rate of the running average of the gradient's difference from the one before.
        beta3: Beta = 0.99  #: Decay rate of the running average of the squared update.


class AdaBelief(Optimizer):
    """AdaBelief, which divides by the gradient's deviation from its running average (arXiv 2010.07468, Algorithm 2).

    This is timm's AdaBelief, with decoupled weight decay.
    """

    numerics = 1
    build = staticmethod(partial(of_timm, "AdaBelief"))

    class Options(AdamOptions):
        """The options of AdamW, of which beta2 averages the squared deviation."""

        eps: Annotated[float, Field(gt=0)] = 1e-16  #: Added to the squared deviation, and to the update's denominator.
        rectify: bool = False  #: Whether early steps are rectified, as the authors' code does by default.


OPTIMIZER: dict[str, type[Optimizer]] = {
    "adamw": AdamW,
    "adam": Adam,
    "sgd": SGD,
    "lion": Lion,
    "muon": Muon,
    "schedule-free": ScheduleFree,
    "adafactor": Adafactor,
    "lamb": Lamb,
    "adan": Adan,
    "adabelief": AdaBelief,
}
