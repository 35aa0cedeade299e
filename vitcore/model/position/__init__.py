"""Position embeddings, from arXiv 2010.11929 (appendix D.4, Table 8) and other sources.

To add a position embedding, write a class and add it to POSITION. Any two that act at different sites also work
together: POSITION["1d+rope2d"]. Shapes: as in sites.py.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

from torch import Tensor, nn

from commonfloor.messages import joined_names, spelling_hint
from commonfloor.options import ConfigError, JsonSettings
from vitcore.model.position.absolute import Index, IndexNormalized, Learned1D, Learned2D, SinCos1D, SinCos2D
from vitcore.model.position.relative import ALiBi2D, Relative, RelativeBias, RoPE2D
from vitcore.model.position.sites import Context, Grid, Position, acts_at
from vitcore.settings import Settings

__all__ = [
    "POSITION",
    "Context",
    "Grid",
    "Position",
    "acts_at",
    "check_patches_may_leave",
    "position_site",
    "positions_without",
    "stem_width",
]

SITES = ("tokens", "class_token", "rotate", "rotate_prefix", "bias", "between")  # in the order of a forward pass


class NoPosition(Position):
    """No position embedding: the input is a bag of patches (arXiv 2010.11929, D.4)."""

    numerics = 1


class CPE(Position):
    """Conditional position embedding: a depthwise 3x3 convolution with zero padding, added after the first block.

    This is the PEG of CPVT (arXiv 2102.10882). The padding makes locations distinguishable.
    """

    numerics = 1

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.convolution = nn.Conv2d(config.width, config.width, 3, padding=1, groups=config.width)

    def between(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        if layer > 0:
            return x
        image = x.transpose(1, 2).reshape(len(x), -1, *grid)  # (B, D, R, C)
        return x + self.convolution(image).flatten(2).transpose(1, 2)


class Positions(dict[str, type[Position]]):
    """Name -> position embedding, which also finds combinations such as `1d+rope2d`. It lists single ones alone."""

    def __contains__(self, name: object) -> bool:
        return all(dict.__contains__(self, part) for part in str(name).split("+"))

    def __missing__(self, name: str) -> type[Position]:
        """Return the combination of two position embeddings; raise ConfigError if they do not go together."""
        parts = name.split("+")
        if len(parts) == 1:
            raise KeyError(name)
        if len(parts) > 2:
            raise ConfigError(f"position={name}: at most two at once, such as 1d+rope2d")
        first, second = parts
        sites = sites_of(self[first])
        other_sites = sites_of(self[second])
        if not sites or not other_sites:
            raise ConfigError(f"position={name}: none is for a model without position embeddings")
        for site in sites:
            if site in other_sites:
                raise ConfigError(f"position={name}: both act at one site: {site}")
        if SITES.index(sites[0]) > SITES.index(other_sites[0]):
            raise ConfigError(f"position={name}: did you mean {second}+{first}?")
        return combined(self[first], self[second])  # type: ignore[arg-type]  # mypy takes no class as hashable


def sites_of(kind: type[Position]) -> list[str]:
    return [site for site in SITES if acts_at(kind, site)]


class Combination(Position):
    """Base class of a position embedding, the class that follows it, with `second` at sites that it leaves alone.

    The parameters of the first keep their names, and thereby their initial values.
    """

    kinds: ClassVar[tuple[type[Position], type[Position]]]
    second_kind: ClassVar[type[Position]]  # the second of them, which knows the options of both

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.second = self.second_kind(config)

    @classmethod
    def check(cls, config: Settings) -> None:
        super().check(config)
        cls.second_kind.check(config)

    @classmethod
    def canonical(cls, config: Settings) -> JsonSettings:
        return {**super().canonical(config), **cls.second_kind.canonical(config)}

    @classmethod
    def version(cls, config: Settings) -> str:
        return "+".join(str(super(Position, kind).version(config)) for kind in cls.kinds)

    def resized(self, name: str, table: Tensor) -> Tensor:
        if name.startswith("second."):
            return self.second.resized(name.removeprefix("second."), table)
        return super().resized(name, table)


@cache
def combined(first: type[Position], second: type[Position]) -> type[Position]:
    """Return the class of two position embeddings that act at different sites. It has the options of both."""
    options = type("Options", (first.Options, second.Options), {})
    attributes: dict[str, Any] = {site: second_site(site) for site in sites_of(second)}
    attributes |= {
        "__doc__": f"{first.__doc__}\n\nTogether with {second.__name__}: {second.__doc__}",
        "Options": options,
        "kinds": (first, second),
        "second_kind": type(second.__name__, (second,), {"Options": options}),
        "places": first.places or second.places,
        "neutral": {**first.neutral, **second.neutral},
    }
    return type(f"{first.__name__}With{second.__name__}", (Combination, first), attributes)


def second_site(site: str) -> Callable[..., Any]:
    def act(self: Combination, *inputs: Any) -> Any:
        return getattr(self.second, site)(*inputs)

    return act


POSITION = Positions(
    {
        "none": NoPosition,
        "1d": Learned1D,
        "2d": Learned2D,
        "relative": Relative,
        "sincos1d": SinCos1D,
        "sincos2d": SinCos2D,
        "index": Index,
        "index-normalized": IndexNormalized,
        "rope2d": RoPE2D,
        "relative-bias": RelativeBias,
        "alibi2d": ALiBi2D,
        "cpe": CPE,
    }
)


def stem_width(config: Settings) -> int:
    """Return the width of the stem's tokens: `width` minus the channels of a concatenated position embedding."""
    return POSITION[config.position].stem_width(config)


def position_site(config: Settings) -> str:
    """Return the site of the position embedding, by default the first that its variant allows.

    The site is "" for `position=none`, even if `position_at` is set, and for a variant without a choice of sites.
    Raises ConfigError if the variant does not allow `position_at`.
    """
    sites = POSITION[config.position].places
    every_site = list(dict.fromkeys(site for kind in POSITION.values() for site in kind.places))
    if config.position_at and config.position_at not in every_site:
        hint = spelling_hint(config.position_at, every_site)
        raise ConfigError(f"position_at={config.position_at}: one of {joined_names(sites or every_site)}{hint}")
    if config.position == "none":
        return ""
    if not config.position_at:
        return next(iter(sites), "")
    if config.position_at not in sites:
        allowed = f"one of {joined_names(sites)}" if sites else "it has no choice of place"
        raise ConfigError(f"position_at={config.position_at}: position={config.position}: {allowed}")
    return config.position_at


def positions_without(*sites: str) -> list[str]:
    """Return the names of position embeddings that override none of `sites`, methods of Position such as "rotate"."""
    return [name for name, kind in POSITION.items() if not acts_at(kind, *sites)]


def check_patches_may_leave(config: Settings, setting: str) -> None:
    """Raise a ConfigError that begins with `setting` if the encoder needs the patches that this setting removes."""
    sites = ("rotate", "bias", "between")
    if acts_at(POSITION[config.position], *sites):
        free = joined_names(positions_without(*sites))
        raise ConfigError(f"{setting}: position={config.position} acts where patches are gone: {free}")
    if config.position_at not in ("", "input"):
        raise ConfigError(f"{setting}: position_at={config.position_at}: input, as later patches are gone")
    if config.self_attention == "axial":
        raise ConfigError(f"{setting}: self_attention=axial needs every patch of a row")
