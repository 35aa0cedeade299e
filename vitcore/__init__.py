"""Vision Transformers: the model, its data, its training, and the conversion and analysis of models.

The package imports only `commonfloor` of this repository. `import vitcore` alone does not load PyTorch, because public
names load on first use: `from vitcore import Config, ViT, train`. To add a variant, subclass the base class of its slot
and add the subclass to the slot's dictionary: `from vitcore import Options, Position, POSITION`.
"""

from commonfloor.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
__all__ = __dir__()
