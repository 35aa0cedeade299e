"""The draft of a profile for a cluster, made from SLURM's answers and meant to be corrected by the user."""

import json
from collections.abc import Sequence

from slurm import partitions
from slurm.partitions import Nodes, duration_text
from slurm.profile import Profile
from slurm.values import WORD, joined_names, matches

LONGEST = Profile().seconds  # seconds; short jobs start sooner, and the next job continues their trials
MOST_CPUS, MOST_GIGABYTES = 4, 16
DRAFT = """\
# How this cluster is asked for a job. A key that is left out is left to SLURM.
#
{offers}
#
partition: {partition}
# account: my-lab       # who pays; else your default account
gpus: {gpus}  # a job trains one model at a time; types: {types}
cpus: {cpus}  # a node has {all_cpus}
memory: {memory}G  # a node has {all_memory}G
time: {time}  # of one job; longer trials go on in the next
# constraint: a100      # features of nodes: {features}
# parallel: 8           # jobs at once; else as many as SLURM starts
# setup:                # shell, run on the node before each job
#   - module load cuda
# environment:          # exported as written; of your own variables only what jobs need goes along
#   OMP_NUM_THREADS: 1
# extra:                # options of sbatch: mail-type, exclude, tmp, ...
#   mail-type: END
"""


def cluster_draft() -> str:
    """Return the draft of a profile for this cluster and user."""
    return draft(partitions.nodes())


def draft(groups: Sequence[Nodes]) -> str:
    """Return the draft of a profile, as commented YAML.

    The draft requests nodes of one group in an open partition. Groups with GPUs are preferred, then groups of the
    default partition, then the largest group. Raises ValueError if no partition is open.
    """
    opened = [nodes for nodes in groups if nodes.open]
    if not opened:
        raise ValueError("SLURM has no partition that takes jobs: sinfo shows none that is up")
    best = max(opened, key=lambda nodes: (bool(nodes.gpus), nodes.default, nodes.count))
    gigabytes = best.memory // 1024
    share = max(1, best.gpu_count())  # jobs that fit on a node
    return DRAFT.format(
        offers="\n".join(f"#   {partitions.description(nodes)}" for nodes in opened),
        partition=json.dumps(best.partition) if matches(best.partition, WORD) else "",
        gpus=min(1, best.gpu_count()),
        types=joined_names(best.gpus),
        cpus=max(1, min(MOST_CPUS, best.cpus // share)),
        all_cpus=best.cpus,
        memory=max(1, min(MOST_GIGABYTES, gigabytes // share)),
        all_memory=gigabytes,
        time=duration_text(min(LONGEST, best.limit or LONGEST)),
        features=joined_names(best.features),
    )
