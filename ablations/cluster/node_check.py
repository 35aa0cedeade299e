"""The checks of `ablate profile check`: whether a node has everything that trials need."""

import os
from collections.abc import Mapping
from pathlib import Path

from ablations.cluster import campaign as campaigns
from ablations.cluster.campaign import Campaign
from ablations.trainables.trainable import NodeCheck, find
from commonfloor.files import check_hard_links
from commonfloor.messages import one_line
from results import store
from slurm.ask import ask


def check_node(folder: str) -> int:
    """Run all checks on this node and write probe.json: check -> reason for its failure, or "". Return 0.

    folder: the folder of the job's array.
    """
    campaign = campaigns.load(Path(folder).parent.parent)
    reasons: dict[str, str] = {}
    for name, check in checks(campaign).items():
        reasons[name] = ""
        try:
            check.run(bool(campaign.profile.gpus))
        except Exception as error:  # any failure is a finding
            reasons[name] = one_line(f"{type(error).__name__}: {error}")
    store.write_json(campaign.folder / "probe.json", {"schema": store.SCHEMA, "found": reasons})
    return 0


def checks(campaign: Campaign) -> Mapping[str, NodeCheck]:
    """Return the checks of a node, by name: those of the default trainable, and then the engine's own."""

    def check_data(needs_gpu: bool) -> None:
        folder = campaign.place.data_dir
        if folder and not os.listdir(folder):
            raise ValueError(f"--data-dir {folder}: is empty on the node")

    def check_link(needs_gpu: bool) -> None:
        """Check that os.link, which publishes results, works in the run directory."""
        check_hard_links(campaign.folder)

    def check_sbatch(needs_gpu: bool) -> None:
        """Check that sbatch works on the node, because last jobs run it there."""
        (script,) = (campaign.folder / "arrays").glob("*/script.sh")
        ask("sbatch", "--test-only", str(script), timeout=30)

    return {
        **find("").node_checks,
        "data": NodeCheck(check_data),
        "link() in the run directory": NodeCheck(check_link),
        "sbatch from the node": NodeCheck(check_sbatch),
    }
