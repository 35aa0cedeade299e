"""Variant: the common base of every entry of every dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from vitcore import options

if TYPE_CHECKING:
    from vitcore.config import Config


class Variant:
    """One choice for a slot, the field of Config of that name.

    `numerics` is raised when a change alters what the variant computes; it is in the identity of every trial
    that uses it. A variant from outside the package that declares none is identified by `digest`, the hash of
    the plugin file that added it. Only that file is hashed, so a variant that computes in a module which the
    plugin imports must declare `numerics`.

    An option at its neutral value is left out of the identity, so that adding an option orphans no result. Neutral
    is the option's default, unless `neutral` (option's name -> value) says otherwise. A change of a default
    puts the old value there, or raises `numerics`.
    """

    slot: ClassVar[str]
    numerics: ClassVar[int]
    neutral: ClassVar[Mapping[str, options.Setting]] = {}
    digest: ClassVar[str]  # set by whoever loads the plugin

    class Options(options.Options):
        """The options that only this variant understands; by default none."""

    @classmethod
    def check(cls, config: Config) -> None:
        """Raise ConfigError where this variant cannot be built from `config`, whose options are valid by then."""

    @classmethod
    def canonical(cls, config: Config) -> options.Settings:
        """Return options in canonical form where several values mean the same, so that equal configs are one trial."""
        return {}

    @classmethod
    def neutral_options(cls) -> options.Settings:
        """Return the neutral value of every option that has one."""
        fields = cls.Options.model_fields
        defaults = {name: f.get_default(call_default_factory=True) for name, f in fields.items() if not f.is_required()}
        return {**defaults, **cls.neutral}

    @classmethod
    def version(cls, config: Config) -> int | str:
        """Return `numerics`, or the digest of the plugin file that added the class. Raises ValueError if it has
        neither.
        """
        if "numerics" in cls.__dict__:
            return cls.numerics
        if "digest" not in cls.__dict__:
            raise ValueError(f"{cls.__name__} is not from a plugin's file, so it has to declare numerics (an int)")
        return cls.digest
