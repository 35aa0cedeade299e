"""Check before training that this machine has the GPU, the memory and the libraries that trials need."""

import importlib

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
