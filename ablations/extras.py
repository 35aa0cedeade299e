"""Packages that the base install lacks, and the extra of vit-ablations that brings each."""

EXTRAS = {
    "safetensors": "train",
    "sklearn": "train",
    "timm": "train",
    "torch": "train",
    "torchvision": "train",
    "submitit": "slurm",
    "tensorboard": "tensorboard",
}


def to_install(error: ModuleNotFoundError) -> str:
    """What to install for the package that is missing; "" for one that no extra brings."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return ""
    return f"this needs {package}, which is not installed: pip install 'vit-ablations[{EXTRAS[package]}]'"
