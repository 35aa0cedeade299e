"""Part: a variant that is a module of the model: a position embedding, a pooling, a stem, a head."""

from vitcore.model.initialization import Initial
from vitcore.variant import Variant


class Part(Variant, Initial):
    """A module of the model. The constructor makes its parameters; the inherited `initial` draws them."""
