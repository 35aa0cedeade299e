"""The draft of a profile for a cluster, made from SLURM's answers and meant to be corrected by the user."""

import os
import pwd
import re
from collections.abc import Sequence

from slurm import partitions
from slurm.ask import Refused, Unreachable, ask
from slurm.partitions import Nodes, duration_text
from slurm.profile import Profile
from slurm.values import WORD, joined_names, matches

LONGEST = Profile().seconds  # seconds; short jobs start sooner, and the next job continues their trials
MOST_CPUS, MOST_GIGABYTES = 4, 16
YAML_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
EXAMPLES = """\
# parallel: 8           # jobs at once; else as many as SLURM starts
# setup:                # shell, run on the node before each job
#   - module load cuda
# environment:          # exported as written; of your own variables only what jobs need goes along
#   OMP_NUM_THREADS: 1
# extra:                # options of sbatch: mail-type, exclude, tmp, ...
#   mail-type: END
"""


def cluster_draft() -> str:
    """Return the draft of a profile for this cluster and user. Raises the errors of `draft` and of `ask`."""
    return draft(partitions.nodes(), user_accounts())


def user_accounts() -> list[str]:
    """Return the accounts that this user may charge, the default first; [] if the accounting does not answer."""
    name = pwd.getpwuid(os.getuid()).pw_name
    form = ["--noheader", "--parsable2", "format=DefaultAccount,Account"]
    try:
        lines = ask("sacctmgr", "show", "user", name, "withassoc", *form).stdout.splitlines()
    except (Unreachable, Refused):
        return []
    return list(dict.fromkeys(word for line in lines if line.count("|") == 1 for word in line.split("|")))


def draft(groups: Sequence[Nodes], accounts: Sequence[str]) -> str:
    """Return the draft of a profile, as commented YAML. accounts: the user's accounts, the default account first.

    The draft requests nodes of one group in an open partition. Groups with GPUs are preferred, then groups of the
    default partition, then the largest group. Raises ValueError if no partition is open.
    """
    opened = [nodes for nodes in groups if nodes.open]
    if not opened:
        raise ValueError("SLURM has no partition that takes jobs: sinfo shows none that is up")
    best = max(opened, key=lambda nodes: (bool(nodes.gpus), nodes.default, nodes.count))
    kinds = [kind for kind in best.gpus if kind]
    lines = ["# How this cluster is asked for a job. A key that is left out is left to SLURM.", "#"]
    lines += [f"#   {partitions.description(nodes)}" for nodes in opened]
    lines += [
        "#",
        *setting("partition", [best.partition], "see above"),
        *setting("account", accounts, f"yours: {joined_names(accounts)}"),
        f"gpus: {1 if best.gpus else 0}  # a job trains one model at a time",
        *(f"# {line}" for line in setting("gpu_type", kinds, f"there are {joined_names(kinds)}")),
        f"cpus: {per_gpu(best, best.cpus, MOST_CPUS)}  # a node has {best.cpus}",
        f"memory: {per_gpu(best, best.memory // 1024, MOST_GIGABYTES)}G  # a node has {best.memory // 1024}G",
        f"time: {duration_text(min(LONGEST, best.limit or LONGEST))}  # of one job; longer trials go on in the next",
        *(f"# {line}" for line in setting("constraint", best.features, f"there are {joined_names(best.features)}")),
    ]
    return "\n".join([*lines, EXAMPLES])


def setting(key: str, names: Sequence[str], comment: str) -> list[str]:
    """Return [YAML line] that sets `key` to the first valid name in `names`, or [] without a valid name."""
    words = [name for name in names if matches(name, WORD)]
    return [f"{key}: {scalar(words[0])}  # {comment}"] if words else []


def scalar(value: str) -> str:
    """Return text as a YAML scalar, quoted if YAML could read it as something else."""
    plain = re.fullmatch(r"[A-Za-z][\w.+-]*", value) and value.lower() not in YAML_WORDS
    return value if plain else f'"{value}"'


def per_gpu(nodes: Nodes, whole: int, most: int) -> int:
    """Return one GPU's share of a node's cores or GB (`whole`), at most `most`. No GPU counts as one GPU."""
    return max(1, min(most, whole // max(1, nodes.gpu_count())))
