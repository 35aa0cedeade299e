"""Vision Transformers: the model, its data, its training, and the conversion and analysis of models.

The package imports only `commonfloor` of this repository. `import vitcore` alone does not load PyTorch, because public
names load on first use: `from vitcore import Config, ViT, train`. To add a variant, subclass the base class of its slot
and add the subclass to the slot's dictionary: `from vitcore import Options, Position, POSITION`.
"""

from typing import TYPE_CHECKING

from commonfloor.lazy import lazy_names

if TYPE_CHECKING:
    from commonfloor.options import ConfigError, Options
    from vitcore.analysis.cost import measure
    from vitcore.analysis.eval import Computed, Eval
    from vitcore.analysis.evals import EVAL
    from vitcore.config import Config
    from vitcore.data.augment import AUGMENT, Augment
    from vitcore.identity import trial_id
    from vitcore.interop.npz import load_npz
    from vitcore.interop.timm_vit import from_timm, to_timm
    from vitcore.interop.torchvision_vit import from_torchvision
    from vitcore.interop.transformers_vit import from_transformers, to_transformers
    from vitcore.model.block import BLOCK, Block
    from vitcore.model.build import build
    from vitcore.model.classifier import Classifier
    from vitcore.model.head import HEAD, Head
    from vitcore.model.initialization import constant, normal
    from vitcore.model.mlp import MLP, FeedForward
    from vitcore.model.norm import NORM, Norm
    from vitcore.model.pooling import POOLING, Pooling
    from vitcore.model.position import POSITION, Context, Grid, Position
    from vitcore.model.self_attention import SELF_ATTENTION, SelfAttention
    from vitcore.model.stem import STEM, Stem
    from vitcore.model.vit import ViT
    from vitcore.sizes import MODEL
    from vitcore.training.loop import train
    from vitcore.training.objectives import OBJECTIVE, Classification, Objective
    from vitcore.training.optimizers import OPTIMIZER, Optimizer
    from vitcore.training.schedules import SCHEDULE, Schedule

__all__ = [
    "AUGMENT", "BLOCK", "EVAL", "HEAD", "MLP", "MODEL", "NORM", "OBJECTIVE", "OPTIMIZER", "POOLING", "POSITION",
    "SCHEDULE", "SELF_ATTENTION", "STEM", "Augment", "Block", "Classification", "Classifier", "Computed", "Config",
    "ConfigError", "Context", "Eval", "FeedForward", "Grid", "Head", "Norm", "Objective", "Optimizer", "Options",
    "Pooling", "Position", "Schedule", "SelfAttention", "Stem", "ViT", "build", "constant", "from_timm",
    "from_torchvision", "from_transformers", "load_npz", "measure", "normal", "to_timm", "to_transformers",
    "train", "trial_id",
]  # fmt: skip
MODULES = {
    "vitcore.analysis.cost": ["measure"],
    "vitcore.analysis.eval": ["Computed", "Eval"],
    "vitcore.analysis.evals": ["EVAL"],
    "vitcore.config": ["Config"],
    "vitcore.data.augment": ["AUGMENT", "Augment"],
    "vitcore.identity": ["trial_id"],
    "vitcore.interop.npz": ["load_npz"],
    "vitcore.interop.timm_vit": ["from_timm", "to_timm"],
    "vitcore.interop.torchvision_vit": ["from_torchvision"],
    "vitcore.interop.transformers_vit": ["from_transformers", "to_transformers"],
    "vitcore.model.block": ["BLOCK", "Block"],
    "vitcore.model.build": ["build"],
    "vitcore.model.classifier": ["Classifier"],
    "vitcore.model.head": ["HEAD", "Head"],
    "vitcore.model.initialization": ["constant", "normal"],
    "vitcore.model.mlp": ["MLP", "FeedForward"],
    "vitcore.model.norm": ["NORM", "Norm"],
    "vitcore.model.pooling": ["POOLING", "Pooling"],
    "vitcore.model.position": ["POSITION", "Context", "Grid", "Position"],
    "vitcore.model.self_attention": ["SELF_ATTENTION", "SelfAttention"],
    "vitcore.model.stem": ["STEM", "Stem"],
    "vitcore.model.vit": ["ViT"],
    "vitcore.sizes": ["MODEL"],
    "commonfloor.options": ["ConfigError", "Options"],
    "vitcore.training.loop": ["train"],
    "vitcore.training.objectives": ["OBJECTIVE", "Classification", "Objective"],
    "vitcore.training.optimizers": ["OPTIMIZER", "Optimizer"],
    "vitcore.training.schedules": ["SCHEDULE", "Schedule"],
}
HOME = {name: module for module, names in MODULES.items() for name in names}
__getattr__, __dir__ = lazy_names("vitcore", HOME)
