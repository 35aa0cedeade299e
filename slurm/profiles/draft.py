"""A first profile for a cluster, drafted from SLURM's answers for the user to correct."""

import re
from collections.abc import Iterable, Sequence

from slurm.profiles.grammar import MOST_CHARACTERS, WORD, listed, shown
from slurm.profiles.profile import Profile
from slurm.queries import durations, partitions, policy
from slurm.queries.partitions import Nodes

LONGEST = Profile().seconds  # more is not asked for: short jobs start sooner, and trials continue in the next
MOST_CPUS, MOST_GIGABYTES = 4, 16
YAML_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")


def init() -> str:
    """Draft a profile for this cluster and user. Raises NoSlurm, Unreachable; ValueError if no partition is open."""
    known = policy.records()
    own = policy.own_account(known)
    accounts = [own, *policy.accounts(known)] if own else []
    return draft(partitions.nodes(), accounts, policy.all_qualities(known))


def draft(known: Sequence[Nodes], accounts: Sequence[str], qualities: Sequence[str]) -> str:
    """Return a profile as commented YAML. accounts: the user's, the default account first.

    It names an open partition, if possible one with GPUs, then the default one. Raises ValueError if none is open.
    """
    if not (opened := [nodes for nodes in known if nodes.open]):
        raise ValueError("SLURM has no partition that takes jobs: sinfo shows none that is up")
    best = max(opened, key=lambda nodes: (bool(nodes.gpus), nodes.default, nodes.count))
    lines = [
        *chosen("partition", [best.partition], "see above"),
        *chosen("account", accounts, f"yours: {listed(accounts)}"),
        *unchosen("qos", qualities, f"there are {listed(qualities)}"),
        ("gpus: 1" if best.gpus else "gpus: 0", "a job trains one model at a time"),
        *unchosen("gpu_type", [kind for kind in best.gpus if kind], f"there are {listed(filter(None, best.gpus))}"),
        (f"cpus: {share(best, best.cpus, MOST_CPUS)}", f"a node has {best.cpus}"),
        (f"memory: {share(best, best.memory // 1024, MOST_GIGABYTES)}G", f"a node has {best.memory // 1024}G"),
        (f"time: {durations.span(min(LONGEST, best.limit or LONGEST))}", "of one job; longer trials go on in the next"),
        *unchosen("constraint", best.features, f"there are {listed(best.features)}"),
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
    return "\n".join(
        ["# How this cluster is asked for a job. A key that is left out is left to SLURM.", *table(known), *written, ""]
    )


def chosen(key: str, values: Sequence[str], comment: str) -> list[tuple[str, str]]:
    """Return a line that sets `key` to the first value that is a word; no line if none is."""
    known = [value for value in values if re.fullmatch(WORD, value, re.ASCII) and ".." not in value]
    words = [value for value in known if len(value) <= MOST_CHARACTERS]
    return [(f"{key}: {scalar(words[0])}", comment)] if words else []


def unchosen(key: str, values: Sequence[str], comment: str) -> list[tuple[str, str]]:
    """Return a comment line with the other values that could be chosen."""
    return [(f"# {line}", comment) for line, comment in chosen(key, values, comment)]


def scalar(value: str) -> str:
    """Quote text so that YAML reads it back as text."""
    plain = re.fullmatch(r"[A-Za-z][\w.+-]*", value) and value.lower() not in YAML_WORDS
    return value if plain else f'"{value}"'


def share(nodes: Nodes, whole: int, most: int) -> int:
    """Return the share of a node's cores or memory that goes with one of its GPUs."""
    return max(1, min(most, whole // max(1, sum(nodes.gpus.values()))))


def table(known: Iterable[Nodes]) -> list[str]:
    """Return the partitions as comment lines."""
    heads = ("partition", "nodes", "CPUs", "memory", "GPUs", "longest")
    rows = [heads, *(row(nodes) for nodes in known if nodes.open)]
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(heads))]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)) for cells in rows]
    return ["#", *(f"#   {line.rstrip()}" for line in lines), "#"]


def row(nodes: Nodes) -> tuple[str, ...]:
    name = shown(nodes.partition) + (" (default)" if nodes.default else "")
    gpus = ", ".join(f"{number} {shown(kind) if kind else ''}".strip() for kind, number in nodes.gpus.items()) or "-"
    limit = "unlimited" if nodes.limit is None else durations.span(nodes.limit)
    return name, str(nodes.count), str(nodes.cpus), f"{nodes.memory // 1024}G", gpus, limit
