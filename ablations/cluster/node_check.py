"""The checks of `ablate profile check`: whether a node has everything that trials need."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path

from ablations.cluster import campaign as campaigns
from ablations.cluster.campaign import Campaign
from results import store
from results.safe_text import one_line
from results.store.files import check_hard_links
from slurm.ask import ask


def check_node(folder: str) -> int:
    """Run all checks on this node and write probe.json: check -> reason for its failure, or "". Return 0.

    folder: the folder of the job's array.
    """
    campaign = campaigns.load(Path(folder).parent.parent)
    reasons = dict.fromkeys(CHECKS, "")
    for name, check in CHECKS.items():
        try:
            check(campaign)
        except Exception as error:  # any failure is a finding
            reasons[name] = one_line(f"{type(error).__name__}: {error}")
    store.write_json(campaign.folder / "probe.json", {"schema": store.SCHEMA, "found": reasons})
    return 0


def check_imports(campaign: Campaign) -> None:
    for name in ("safetensors", "sklearn", "timm", "torch", "torchvision"):
        importlib.import_module(name)


def check_gpu(campaign: Campaign) -> None:
    if campaign.profile.gpus:
        from vitcore.runtime.device import require_gpu

        require_gpu()


def check_data(campaign: Campaign) -> None:
    folder = campaign.place.data_dir
    if folder and not os.listdir(folder):
        raise ValueError(f"--data-dir {folder}: is empty on the node")


def check_link(campaign: Campaign) -> None:
    """Check that os.link, which publishes results, works in the run directory."""
    check_hard_links(campaign.folder)


def check_sbatch(campaign: Campaign) -> None:
    """Check that sbatch works on the node, because last jobs run it there."""
    (script,) = (campaign.folder / "arrays").glob("*/script.sh")
    ask("sbatch", "--test-only", str(script), timeout=30)


def check_compiler(campaign: Campaign) -> None:
    """Check that torch.compile finds Triton and a C compiler on the node. Profiles without GPUs pass."""
    if campaign.profile.gpus:
        import torch

        from vitcore.runtime.compile_cache import use_private_cache

        use_private_cache()
        torch.compile(torch.sin)(torch.ones(8, device="cuda"))


CHECKS: dict[str, Callable[[Campaign], None]] = {
    "imports": check_imports,
    "gpu": check_gpu,
    "data": check_data,
    "link() in the run directory": check_link,
    "sbatch from the node": check_sbatch,
    "torch.compile": check_compiler,
}
WITHOUT = {"torch.compile": "long trials are trained uncompiled"}  # check that only warns -> consequence of a failure
