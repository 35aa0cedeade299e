"""Two position embeddings in one model, such as a learned one at the input and a rotary one in the attention."""

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

from torch import Tensor

from commonfloor.options import ConfigError, JsonSettings
from vitcore.model.position.sites import Position, acts_at
from vitcore.settings import Settings

SITES = ("tokens", "class_token", "rotate", "rotate_prefix", "bias", "between")  # in the order of a forward pass


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
