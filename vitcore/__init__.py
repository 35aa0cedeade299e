"""The Vision Transformer, its training, and looking inside it. Imports torch, nothing of ours.

`from vitcore import Config, ViT, train`: the names load on first use, so that importing the package loads no
torch.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitcore.config import Config as Config
    from vitcore.train import train as train
    from vitcore.vit import ViT as ViT

HOME = {"Config": "vitcore.config", "ViT": "vitcore.vit", "train": "vitcore.train"}


def __getattr__(name: str) -> Any:
    if name not in HOME:
        raise AttributeError(f"module 'vitcore' has no attribute {name!r}")
    return getattr(import_module(HOME[name]), name)


class Package(ModuleType):
    """Importing the file train.py would bind `vitcore.train` to the module: it stays the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        shadows = name in HOME and isinstance(value, ModuleType)
        super().__setattr__(name, getattr(value, name) if shadows else value)


sys.modules[__name__].__class__ = Package
