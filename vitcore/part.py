"""Part: what a position embedding, a pooling and a stem have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from vitcore.config import Options as NoOptions
from vitcore.initial import Initial

if TYPE_CHECKING:
    from vitcore.config import Config


class Part(Initial):
    """A variant of one slot of the model.

    Its constructor says which parameters there are; `initial`, inherited, how they are drawn.

    `numerics` is raised when a change alters what the part computes; it is in the identity of every trial
    that uses the part. A part from outside the package that declares none is identified by `digest`, the hash of
    the plugin file that added it. That file alone counts: a part whose computation stands in a module that the
    plugin imports declares `numerics`.

    An option at its neutral value is left out of the identity, so that adding an option orphans no result. Neutral
    is the option's default, unless `neutral` (option's name -> value) says otherwise: who changes a default puts the
    old one there, or raises `numerics`.
    """

    slot: ClassVar[str]
    numerics: ClassVar[int]
    neutral: ClassVar[Mapping[str, Any]] = {}
    digest: ClassVar[str]  # set by whoever loads the plugin

    class Options(NoOptions):
        """The options that this variant alone understands: none."""

    @classmethod
    def check(cls, config: Config) -> None:
        """Raises ConfigError where this variant cannot be built from `config`, whose options are valid by then."""

    @classmethod
    def neutral_options(cls) -> dict[str, Any]:
        """The neutral value of every option that has one."""
        fields = cls.Options.model_fields
        defaults = {name: f.get_default(call_default_factory=True) for name, f in fields.items() if not f.is_required()}
        return {**defaults, **cls.neutral}

    @classmethod
    def version(cls) -> int | str:
        """The part's `numerics`, or the digest of the plugin file that added it; ValueError where it has neither."""
        if "numerics" in cls.__dict__:
            return cls.numerics
        if "digest" not in cls.__dict__:
            raise ValueError(f"{cls.__name__} is not from a plugin's file, so it has to declare numerics (an int)")
        return cls.digest
