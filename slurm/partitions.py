"""SLURM's partitions and nodes, read from `sinfo`, and SLURM's format of durations."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from slurm.ask import FIELD, ask
from slurm.values import quoted_value

SINFO = ("%R", "%P", "%a", "%l", "%D", "%c", "%m", "%G", "%f")


@dataclass(frozen=True)
class Nodes:
    """A group of equal nodes in one partition."""

    partition: str
    default: bool  # whether jobs without a partition run in this partition
    open: bool  # whether the partition accepts and starts jobs
    limit: int | None  # seconds; None: unlimited
    count: int
    cpus: int
    memory: int  # MB
    gpus: dict[str, int]  # type ('' if SLURM has none) -> number per node
    features: tuple[str, ...]

    def gpu_count(self, kind: str | None = None) -> int:
        if kind is None:
            return sum(self.gpus.values())
        return self.gpus.get(kind, 0)


def nodes() -> list[Nodes]:
    """Return the groups of equal nodes in all partitions that this user may see. Raises the errors of `ask`."""
    answer = ask("sinfo", "--noheader", "--exact", "--noconvert", f"--format={FIELD.join(SINFO)}").stdout
    return [parse_nodes(*line.split(FIELD)) for line in answer.splitlines() if line.count(FIELD) == len(SINFO) - 1]


def states(names: Iterable[str]) -> list[str]:
    """Return node counts by state in some partitions, such as ['2 drained']."""
    answer = ask("sinfo", "--noheader", f"--partition={','.join(names)}", f"--format=%D{FIELD}%T").stdout
    return [line.strip().replace(FIELD, " ") for line in answer.splitlines() if FIELD in line]


def parse_nodes(
    partition: str, starred: str, state: str, limit: str, count: str, cpus: str, memory: str, gres: str, features: str
) -> Nodes:
    return Nodes(
        partition=partition,
        default=starred.endswith("*"),
        open=state == "up",
        limit=seconds(limit),
        count=int(count),
        cpus=int(cpus),
        memory=int(memory),
        gpus={kind: int(number) for kind, number in re.findall(r"\bgpu:(?:([\w.-]+):)?([1-9]\d*)(?![\w.:-])", gres)},
        features=() if features == "(null)" else tuple(features.split(",")),
    )


def partition_nodes(partition: str | None, groups: list[Nodes]) -> list[Nodes]:
    """Return the nodes in `groups` that belong to `partition`: names joined by commas, or None for the default."""
    names = (partition or "").split(",")
    return [some for some in groups if some.partition in names or (partition is None and some.default)]


def description(some: Nodes) -> str:
    """Return a group of nodes as text, such as '2 nodes in gpu with 8 CPUs, 16000M, 4 GPUs of type a100, 4:00:00'."""
    parts = [f"{some.cpus} CPUs", f"{some.memory}M"]
    for kind, number in some.gpus.items():
        parts.append(f"{number} GPUs")
        if kind:
            parts[-1] += f" of type {quoted_value(kind)}"
    limit = "no time limit"
    if some.limit is not None:
        limit = f"at most {duration_text(some.limit)}"
    return f"{some.count} nodes in {quoted_value(some.partition)} with {', '.join(parts)}, {limit}"


def seconds(span: str) -> int | None:
    """Return the seconds of a duration such as '1-00:00:00' or '30:00', or None for other text, such as 'infinite'."""
    match = re.fullmatch(r"(?:(\d+)-)?((?:\d+:)*\d+)", span)
    if match is None:
        return None
    total = 0
    for part in match[2].split(":"):
        total = total * 60 + int(part)
    return int(match[1] or 0) * 86400 + total


def duration_text(of_seconds: int) -> str:
    """Return a number of seconds in SLURM's format, such as '1-02:30:00' or '4:00:00'."""
    days, rest = divmod(of_seconds, 86400)
    hours, rest = divmod(rest, 3600)
    clock = f"{rest // 60:02}:{rest % 60:02}"
    if days:
        return f"{days}-{hours:02}:{clock}"
    return f"{hours}:{clock}"
