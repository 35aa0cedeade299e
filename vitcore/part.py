"""Part: what a position embedding, a pooling and a stem have in common."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, ClassVar

from vitcore.config import Options as NoOptions
from vitcore.initial import Initial

if TYPE_CHECKING:
    from vitcore.config import Config


class Part(Initial):
    """A variant of one slot of the model.

    Its constructor says which parameters there are; `initial`, inherited, how they are drawn.

    `numerics` is raised when a change alters what the part computes; it is in the identity of every trial
    that uses the part. A part from outside the package that declares none is identified by the hash of its
    file.
    """

    slot: ClassVar[str]
    numerics: ClassVar[int]

    class Options(NoOptions):
        """The options that this variant alone understands: none."""

    @classmethod
    def check(cls, config: Config) -> None:
        """Raises ConfigError where this variant cannot be built from `config`."""
        config.options_of(cls.slot, cls.Options)

    @classmethod
    def version(cls) -> int | str:
        """The part's `numerics`, or the digest of the plugin file it stands in."""
        if "numerics" in cls.__dict__:
            return cls.numerics
        digest: str = sys.modules[cls.__module__].__digest__  # set by whoever loads it
        return digest
