"""The values of the setting `model`: named sizes, reference models from timm, and models of plug-ins."""

import math
import re
import sys
from typing import Any

from commonfloor.messages import joined_names, spelling_hint
from commonfloor.options import ConfigError
from vitcore.settings import Settings

# name -> (width, depth, heads, hidden width). Ti: arXiv 2012.12877; B, L, H: arXiv 2010.11929, Table 1; S: arXiv
# 2106.10270; g, G: arXiv 2106.04560, Table 2; SoViT-400m: arXiv 2305.13035.
SIZES = {
    "Ti": (192, 12, 3, 768),
    "S": (384, 12, 6, 1536),
    "B": (768, 12, 12, 3072),
    "L": (1024, 24, 16, 4096),
    "H": (1280, 32, 16, 5120),
    "SoViT-400m": (1152, 27, 16, 4304),
    "g": (1408, 40, 16, 6144),
    "G": (1664, 48, 16, 8192),
}

MOST_PATCHES = 2**16  # per image; the size of attention maps is its square
REFERENCE = "timm/"  # model=timm/NAME is a classifier from timm
REGISTERED: dict[str, str] = {}  # name in timm's registry -> digest of the plug-in that registered it
MODEL: dict[str, type[Any]] = {}  # name -> a plug-in's model, a subclass of vitcore.model.classifier.Classifier
# The fields that a reference model or a plug-in's model fixes, together with the options of these slots.
ARCHITECTURE = (
    "width", "depth", "heads", "mlp_ratio", "mlp", "norm", "bias", "block", "self_attention", "embedding_norm",
    "patch", "position", "position_at", "pool", "final_norm", "registers", "stem", "head", "head_init", "layer_scale",
    "qk_norm", "init",
)  # fmt: skip


# vit_base_patch16_224, vit_b_16, ViT-B/16, google/vit-base-patch16-224
OTHER_SPELLING = re.compile(
    r"(?:.*/)?(?:vit|deit)[-_]?(ti|tiny|s|small|b|base|l|large|h|huge)[-_/]?(?:patch)?(\d+)", re.IGNORECASE
)


def is_reference(model: object) -> bool:
    return str(model).startswith(REFERENCE)


def is_whole(model: object) -> bool:
    """Return whether a value of `model` names a reference model or a plug-in's model, with its own architecture."""
    return is_reference(model) or str(model) in MODEL


def registered_digest(name: str) -> str:
    """Return the digest of the plug-in that registered a model with timm, or "" for a model of timm's own.

    name: in timm's registry. Raises ValueError if other code registered the model, because its edits would go unseen.
    """
    if name in REGISTERED:
        return REGISTERED[name]
    timm = sys.modules.get("timm")  # until it is imported, nobody has registered a model
    if timm is None or not timm.is_model(name):
        return ""
    module = timm.model_entrypoint(name).__module__
    if not module.startswith("timm."):
        raise ValueError(f"model={REFERENCE}{name}: of {module}, neither timm's own nor of a plug-in's file (--plugin)")
    return ""


def is_architectural(key: str) -> bool:
    """Return whether reference models and plug-ins' models fix `key`, a field or an option such as `position.base`."""
    return key.partition(".")[0] in ARCHITECTURE


def model_hint(name: str) -> str:
    """Return "; did you mean ...?" for a name of a model in other code, or "" if it resembles none."""
    suggestions = []
    match = OTHER_SPELLING.match(name)
    if match:
        initial = match[1][0].upper().replace("T", "Ti")
        suggestions.append(f"{initial}/{match[2]}")
    if re.fullmatch("[a-z][a-z0-9]*[0-9_][a-z0-9_.]*", name):
        suggestions.append(REFERENCE + name)
    return f"; did you mean {' or '.join(map(repr, suggestions))}?" if suggestions else ""


def sizes(model: object) -> dict[str, float]:
    """Return width, depth, heads, mlp_ratio and patch of a size like S/16 ({} for ""); raise ConfigError if unknown."""
    if model == "":
        return {}
    name, slash, patch = str(model).partition("/")
    if name not in SIZES or not slash or not patch.isdecimal():
        raise ConfigError(
            f"model={model}: a size of {joined_names(SIZES)}, a slash and the patch, as in S/16, timm/NAME, or "
            f"a plug-in's (--plugin FILE){model_hint(str(model)) or spelling_hint(model, MODEL)}"
        )
    width, depth, heads, hidden = SIZES[name]
    return {"width": width, "depth": depth, "heads": heads, "mlp_ratio": hidden / width, "patch": int(patch)}


def check_sizes(config: Settings) -> None:
    """Raise ConfigError if heads or patches do not divide their whole, patches are too many or the MLP is empty."""
    check_divides("heads", config.heads, f"width={config.width}", config.width)
    check_divides("patch", config.patch, f"image_size={config.image_size}", *config.image_shape)
    rows, columns = config.grid
    if rows * columns > MOST_PATCHES:
        raise ConfigError(
            f"patch={config.patch} of image_size={config.image_size}: {rows * columns:,} patches an image: "
            f"at most {MOST_PATCHES:,}"
        )
    if round(config.width * config.mlp_ratio) < 1:
        least = f"more than {0.5 / config.width:g}, so that the MLP is not empty"
        raise ConfigError(f"mlp_ratio={config.mlp_ratio}: of width={config.width}: {least}")


def check_divides(part: str, number: int, whole: str, *totals: int) -> None:
    total = math.gcd(*totals)
    if total % number:
        allowed = joined_names(divisors(total, number))
        raise ConfigError(f"{part}={number} does not divide {whole}: one of {allowed}")


def divisors(number: int, near: int) -> list[int]:
    """Return the divisors of `number` that are nearest to `near`, at most 8, in ascending order."""
    small = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    large = [number // divisor for divisor in small]
    nearest = sorted({*small, *large}, key=lambda divisor: (abs(divisor - near), divisor))
    return sorted(nearest[:8])
