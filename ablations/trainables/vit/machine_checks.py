"""Check before training that this machine has the GPU, the memory, the data and the libraries that trials need."""

import importlib
from collections.abc import Sequence
from pathlib import Path

from ablations import machine
from ablations.trainables.trainable import NodeCheck
from results.store.schemas.base import Settings
from vitcore.runtime.host import Cost, check_memory, host_limits


def check_machine(settings: Settings, description: Settings) -> None:
    check_gpu(settings["device"] == "cuda")
    on_cpu = settings["device"] == "cpu" or not machine.gpus()
    cost = known_cost(description)
    if on_cpu and cost is not None:
        check_memory(settings, cost, min(host_limits()))


def known_cost(description: Settings) -> Cost | None:
    """Return the cost of a model that a plan records; None in plans of earlier versions."""
    names = Cost.__dataclass_fields__.keys()
    if not description.keys() >= names:
        return None
    return Cost(**{name: description[name] for name in names})


def check_data(trials: Sequence[Settings], to_train: Sequence[Settings], data_dir: Path | None) -> None:
    from vitcore.data.builtin import BUILT_IN  # loads NumPy, as all of these
    from vitcore.data.homes import data_home
    from vitcore.data.imagefolder import check_images
    from vitcore.data.lookup import IN_FILES, describe, images_in_files
    from vitcore.data.pack import find_pack, manifest, open_pack

    left = {settings["data"] for settings in to_train}
    for name in sorted({settings["data"] for settings in trials}):
        if name in BUILT_IN:
            BUILT_IN[name].read(data_home(data_dir))
            continue
        folder = find_pack(name)
        if folder is not None:
            open_pack(folder, manifest(folder, name))
        elif name.startswith(IN_FILES) and name in left:  # every image is decoded, which only training needs
            check_images(images_in_files(name), describe(name).channels)


def check_imports(needs_gpu: bool) -> None:
    for name in ("safetensors", "sklearn", "timm", "torch", "torchvision"):
        importlib.import_module(name)


def check_gpu(needs_gpu: bool) -> None:
    if needs_gpu:
        from vitcore.runtime.device import require_gpu  # loads torch, which otherwise only workers need

        require_gpu()


def check_compiler(needs_gpu: bool) -> None:
    if needs_gpu:
        import torch

        from vitcore.runtime.compile_cache import use_private_cache

        use_private_cache()
        torch.compile(torch.sin)(torch.ones(8, device="cuda"))


NODE_CHECKS = {
    "imports": NodeCheck(check_imports),
    "gpu": NodeCheck(check_gpu),
    "torch.compile": NodeCheck(check_compiler, without="long trials are trained uncompiled"),
}
