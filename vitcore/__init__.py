"""The Vision Transformer, its training, and looking inside it. Imports torch, nothing of ours.

`from vitcore import Config, ViT, train`: the public names load on first use, so that importing the package loads no
torch. A part of one's own needs a base class and a dictionary: `from vitcore import Options, Position, POSITION`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitcore.analysis.cost import measure as measure
    from vitcore.config import Config as Config
    from vitcore.data.augmentation.augment import AUGMENT as AUGMENT
    from vitcore.data.augmentation.augment import Augment as Augment
    from vitcore.identity import trial_id as trial_id
    from vitcore.interop.convert import from_timm as from_timm
    from vitcore.interop.convert import from_torchvision as from_torchvision
    from vitcore.interop.convert import load_npz as load_npz
    from vitcore.interop.convert import to_timm as to_timm
    from vitcore.model.block import BLOCK as BLOCK
    from vitcore.model.block import Block as Block
    from vitcore.model.build import build as build
    from vitcore.model.head import HEAD as HEAD
    from vitcore.model.head import Head as Head
    from vitcore.model.mlp import MLP as MLP
    from vitcore.model.mlp import FeedForward as FeedForward
    from vitcore.model.norm import NORM as NORM
    from vitcore.model.norm import Norm as Norm
    from vitcore.model.pooling import POOLING as POOLING
    from vitcore.model.pooling import Pooling as Pooling
    from vitcore.model.position import POSITION as POSITION
    from vitcore.model.position import Context as Context
    from vitcore.model.position import Grid as Grid
    from vitcore.model.position import Position as Position
    from vitcore.model.self_attention import SELF_ATTENTION as SELF_ATTENTION
    from vitcore.model.self_attention import SelfAttention as SelfAttention
    from vitcore.model.stem import STEM as STEM
    from vitcore.model.stem import Stem as Stem
    from vitcore.model.vit import ViT as ViT
    from vitcore.options import ConfigError as ConfigError
    from vitcore.options import Options as Options
    from vitcore.training.loop import train as train
    from vitcore.training.objectives import OBJECTIVE as OBJECTIVE
    from vitcore.training.objectives import Objective as Objective
    from vitcore.training.optimization.optimizers import OPTIMIZER as OPTIMIZER
    from vitcore.training.optimization.optimizers import Optimizer as Optimizer
    from vitcore.training.optimization.schedules import SCHEDULE as SCHEDULE
    from vitcore.training.optimization.schedules import Schedule as Schedule

MODULES = {
    "vitcore.analysis.cost": ["measure"],
    "vitcore.config": ["Config"],
    "vitcore.data.augmentation.augment": ["AUGMENT", "Augment"],
    "vitcore.identity": ["trial_id"],
    "vitcore.interop.convert": ["from_timm", "from_torchvision", "load_npz", "to_timm"],
    "vitcore.model.block": ["BLOCK", "Block"],
    "vitcore.model.build": ["build"],
    "vitcore.model.head": ["HEAD", "Head"],
    "vitcore.model.mlp": ["MLP", "FeedForward"],
    "vitcore.model.norm": ["NORM", "Norm"],
    "vitcore.model.pooling": ["POOLING", "Pooling"],
    "vitcore.model.position": ["POSITION", "Context", "Grid", "Position"],
    "vitcore.model.self_attention": ["SELF_ATTENTION", "SelfAttention"],
    "vitcore.model.stem": ["STEM", "Stem"],
    "vitcore.model.vit": ["ViT"],
    "vitcore.options": ["ConfigError", "Options"],
    "vitcore.training.loop": ["train"],
    "vitcore.training.objectives": ["OBJECTIVE", "Objective"],
    "vitcore.training.optimization.optimizers": ["OPTIMIZER", "Optimizer"],
    "vitcore.training.optimization.schedules": ["SCHEDULE", "Schedule"],
}
HOME = {name: module for module, names in MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in HOME:
        raise AttributeError(f"module 'vitcore' has no attribute {name!r}")
    return getattr(import_module(HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(HOME)
