"""Optional packages, and the extra of vit-ablations that installs each."""

EXTRAS = {
    **dict.fromkeys(("safetensors", "sklearn", "timm", "torch", "torchvision"), "train"),
    "submitit": "slurm",
    **{name: name for name in ("tensorboard", "wandb", "mlflow")},
}


def install_hint(error: ModuleNotFoundError) -> str:
    """Return a message with the command that installs a missing package, or "" if no extra includes it."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return ""
    extra = EXTRAS[package]
    size = " (about 6 GB, most of it PyTorch)" if extra == "train" else ""
    return f"this needs {package}, which is not installed: pip install 'vit-ablations[{extra}]'{size}"
