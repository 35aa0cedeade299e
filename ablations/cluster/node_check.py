"""The checks of `ablate profile check`: whether a node has everything that trials need."""

import os
from collections.abc import Mapping
from pathlib import Path

from ablations.cluster import campaign as campaigns
from ablations.cluster.campaign import Campaign
from ablations.trainables.trainable import NodeCheck, find
from commonfloor.files import check_hard_links
from commonfloor.messages import one_line
from slurm.ask import ask

CHECK = "ablations.cluster.node_check:check_node"
FAILED = "FAILED"  # how the line of a failed check begins
LAST_LINE = "all was checked"


def check_node(folder: str) -> int:
    """Run all checks on this node and print a line about each, then LAST_LINE. Return 0. folder: of the job's array."""
    campaign = campaigns.load(Path(folder).parent.parent)
    for name, check in checks(campaign).items():
        try:
            check.run(bool(campaign.profile.gpus))
            print(f"ok      {name}")
        except Exception as error:  # any failure is a finding
            reason = one_line(f"{type(error).__name__}: {error}")
            if check.without:
                print(f"warning {name}: {reason}; {check.without}")
            else:
                print(f"{FAILED}  {name}: {reason}")
    print(LAST_LINE, flush=True)
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
