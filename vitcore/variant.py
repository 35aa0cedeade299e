"""Variant, the common base class of the entries in all dictionaries of variants."""

from collections.abc import Mapping
from typing import ClassVar

from commonfloor import options
from vitcore.settings import Settings


class Variant:
    """Base class of all variants. A variant is one choice for a slot, the field of Settings with the name `slot`.

    `numerics` is an integer version of what the variant computes, and part of the id of every trial with the variant.
    Increase it when a change alters the variant's results. Without it, a plug-in's variant has the hash of its files.

    An option at its neutral value, its default unless `neutral` has another, is left out of a trial's identity. If you
    change a default, add the old value to `neutral` or increase `numerics`.
    """

    slot: ClassVar[str]
    numerics: ClassVar[int]
    neutral: ClassVar[Mapping[str, options.Setting]] = {}
    digest: ClassVar[str]  # the hash of a plug-in's files, set where plug-ins are loaded

    class Options(options.Options):
        """The options that only this variant understands. The base class has none."""

    @classmethod
    def check(cls, config: Settings) -> None:
        """Raise ConfigError if this variant cannot be built from `config`, whose options are already validated."""

    @classmethod
    def canonical(cls, config: Settings) -> options.JsonSettings:
        """Return option name -> canonical value for options with equivalent values. Equivalent configs share an id."""
        return {}

    @classmethod
    def neutral_options(cls) -> options.JsonSettings:
        """Return option name -> neutral value, which is the default unless `neutral` has another value."""
        fields = cls.Options.model_fields
        defaults = {name: f.get_default(call_default_factory=True) for name, f in fields.items() if not f.is_required()}
        return {**defaults, **cls.neutral}

    @classmethod
    def version(cls, config: Settings) -> int | str:
        """Return the class's own `numerics`, or else the plug-in's `digest`; raise ValueError if neither is set."""
        if "numerics" in cls.__dict__:
            return cls.numerics
        if "digest" not in cls.__dict__:
            raise ValueError(f"{cls.__name__} is not from a plugin's file, so it has to declare numerics (an int)")
        return cls.digest
