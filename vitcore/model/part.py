"""Part: a variant that is a module of the model: a position embedding, a pooling, a stem, a head."""

from vitcore.model.initialization import Initial
from vitcore.variant import Variant


class Part(Variant, Initial):
    """Its constructor says which parameters there are; `initial`, inherited, how they are drawn."""
