"""The draft of a profile for a cluster, made from SLURM's answers and meant to be corrected by the user."""

import re
from collections.abc import Iterable, Sequence

from slurm import limits, partitions
from slurm.grammar import WORD, joined_names, matches, quoted_value
from slurm.partitions import Nodes, duration_text
from slurm.profile import Profile

LONGEST = Profile().seconds  # seconds; short jobs start sooner, and the next job continues their trials
MOST_CPUS, MOST_GIGABYTES = 4, 16
YAML_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")


def cluster_draft() -> str:
    """Return the draft of a profile for this cluster and user. Raises the errors of `draft` and of `ask`."""
    known = limits.records()
    own = limits.own_account(known)
    accounts = [own, *limits.accounts(known)] if own else []
    return draft(partitions.nodes(), accounts, limits.all_qualities(known))


def draft(known: Sequence[Nodes], accounts: Sequence[str], qualities: Sequence[str]) -> str:
    """Return the draft of a profile, as commented YAML.

    known: groups of equal nodes. accounts: the user's accounts, the default account first. qualities: the names of
    all QOS. The draft requests nodes of one group in an open partition. Groups with GPUs are preferred, then groups of
    the default partition, then the largest group. Raises ValueError if no partition is open.
    """
    if not (opened := [nodes for nodes in known if nodes.open]):
        raise ValueError("SLURM has no partition that takes jobs: sinfo shows none that is up")
    best = max(opened, key=lambda nodes: (bool(nodes.gpus), nodes.default, nodes.count))
    kinds = [kind for kind in best.gpus if kind]
    lines = [
        *setting_line("partition", [best.partition], "see above"),
        *setting_line("account", accounts, f"yours: {joined_names(accounts)}"),
        *commented_line("qos", qualities, f"there are {joined_names(qualities)}"),
        ("gpus: 1" if best.gpus else "gpus: 0", "a job trains one model at a time"),
        *commented_line("gpu_type", kinds, f"there are {joined_names(kinds)}"),
        (f"cpus: {share(best, best.cpus, MOST_CPUS)}", f"a node has {best.cpus}"),
        (f"memory: {share(best, best.memory // 1024, MOST_GIGABYTES)}G", f"a node has {best.memory // 1024}G"),
        (f"time: {duration_text(min(LONGEST, best.limit or LONGEST))}", "of one job; longer trials go on in the next"),
        *commented_line("constraint", best.features, f"there are {joined_names(best.features)}"),
        ("# parallel: 8", "jobs at once; else as many as SLURM starts"),
        ("# setup:", "shell, run on the node before each job"),
        ("#   - module load cuda", ""),
        ("# environment:", "exported as written; of your own variables only what jobs need goes along"),
        ("#   OMP_NUM_THREADS: 1", ""),
        ("# extra:", "options of sbatch: mail-type, exclude, tmp, ..."),
        ("#   mail-type: END", ""),
    ]
    width = max(len(line) for line, _ in lines)
    written = [f"{line:{width}}  # {comment}" if comment else line for line, comment in lines]
    head = "# How this cluster is asked for a job. A key that is left out is left to SLURM."
    return "\n".join([head, *partition_table(known), *written, ""])


def setting_line(key: str, values: Sequence[str], comment: str) -> list[tuple[str, str]]:
    """Return [(YAML line, comment)] that sets `key` to the first valid name in `values`, or [] without a valid name."""
    words = [value for value in values if matches(value, WORD)]
    return [(f"{key}: {scalar(words[0])}", comment)] if words else []


def commented_line(key: str, values: Sequence[str], comment: str) -> list[tuple[str, str]]:
    """Return what `setting_line` returns, with the YAML line commented out for the user to choose."""
    return [(f"# {line}", comment) for line, comment in setting_line(key, values, comment)]


def scalar(value: str) -> str:
    """Return text as a YAML scalar, quoted if YAML could read it as something else."""
    plain = re.fullmatch(r"[A-Za-z][\w.+-]*", value) and value.lower() not in YAML_WORDS
    return value if plain else f'"{value}"'


def share(nodes: Nodes, whole: int, most: int) -> int:
    """Return one GPU's share of a node's cores or GB (`whole`), at most `most`. No GPU counts as one GPU."""
    return max(1, min(most, whole // max(1, sum(nodes.gpus.values()))))


def partition_table(known: Iterable[Nodes]) -> list[str]:
    """Return the lines of a table of the open partitions, as YAML comments."""
    heads = ("partition", "nodes", "CPUs", "memory", "GPUs", "longest")
    rows = [heads]
    for nodes in known:
        if nodes.open:
            name = quoted_value(nodes.partition) + (" (default)" if nodes.default else "")
            kinds = [f"{number} {quoted_value(kind) if kind else ''}".strip() for kind, number in nodes.gpus.items()]
            limit = "unlimited" if nodes.limit is None else duration_text(nodes.limit)
            memory = f"{nodes.memory // 1024}G"
            rows.append((name, str(nodes.count), str(nodes.cpus), memory, ", ".join(kinds) or "-", limit))
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(heads))]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)) for cells in rows]
    return ["#", *(f"#   {line.rstrip()}" for line in lines), "#"]
