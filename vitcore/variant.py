"""Variant: the common base of every entry of every dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from vitcore import options

if TYPE_CHECKING:
    from vitcore.config import Config


class Variant:
    """One choice for a slot, the field of Config with the name `slot`.

    `numerics` is part of the identity of every trial that uses the variant. Raise it when a change alters the
    variant's results. `digest`, the hash of the plug-in file, stands in for a variant of a plug-in that declares none.
    Modules that the plug-in imports are not hashed: a variant that computes there must declare `numerics`.

    An option at its neutral value is left out of the identity, so adding an option orphans no result. The neutral
    value is the option's default, unless `neutral` has another. A change of a default puts the old value into
    `neutral`, or raises `numerics`.
    """

    slot: ClassVar[str]
    numerics: ClassVar[int]
    neutral: ClassVar[Mapping[str, options.Setting]] = {}
    digest: ClassVar[str]  # set where plug-ins are loaded

    class Options(options.Options):
        """The options that only this variant understands; by default none."""

    @classmethod
    def check(cls, config: Config) -> None:
        """Raise ConfigError if this variant cannot be built from `config`, whose options are already valid."""

    @classmethod
    def canonical(cls, config: Config) -> options.Settings:
        """Return the canonical values of options of which several values are equivalent."""
        return {}

    @classmethod
    def neutral_options(cls) -> options.Settings:
        """Return the neutral value of every option that has one."""
        fields = cls.Options.model_fields
        defaults = {name: f.get_default(call_default_factory=True) for name, f in fields.items() if not f.is_required()}
        return {**defaults, **cls.neutral}

    @classmethod
    def version(cls, config: Config) -> int | str:
        """Return `numerics`, or the digest of the plug-in file. Raises ValueError for a class with neither."""
        if "numerics" in cls.__dict__:
            return cls.numerics
        if "digest" not in cls.__dict__:
            raise ValueError(f"{cls.__name__} is not from a plugin's file, so it has to declare numerics (an int)")
        return cls.digest
