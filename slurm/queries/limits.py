"""The limits on the number of jobs that SLURM now accepts from this user."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from slurm.profiles.profile import Profile
from slurm.queries import policy
from slurm.queries.ask import Unreachable, ask

WORDS = ("MaxSubmitJobs", "GrpSubmitJobs", "MaxSubmitJobsPU", "MaxSubmitJobsPA")
FULL = re.compile(r"MaxSubmitJob|GrpSubmitJob")  # a refusal because this user has too many jobs in the queue


class Bound(NamedTuple):
    """A limit on the number of queued jobs: at most `most` jobs. `used` jobs that count are in the queue now."""

    name: str
    most: int
    used: int

    @property
    def free(self) -> int:
        return max(0, self.most - self.used)


@dataclass(frozen=True)
class Limits:
    """The limits on one submission of a job array."""

    max_array_size: int  # elements an array may have; their indices start at 0
    bound: Bound | None  # the tightest limit on queued jobs, each array element counted as a job; None: unknown


def limits(profile: Profile) -> Limits:
    """Return the limits on jobs that this user submits with `profile`.

    Raises NoSlurm, Unreachable or Refused, as `ask` does.
    """
    config = configuration()
    if not (size := config.get("MaxArraySize", "")).isdigit():
        raise Unreachable("SLURM does not answer: scontrol show config says nothing of MaxArraySize")
    enforced = re.search("limits|safe|all", config.get("AccountingStorageEnforce", ""))
    bound = min(bounds(profile), key=lambda bound: bound.free, default=None) if enforced else None
    return Limits(max_array_size=max(1, int(size)), bound=bound)


def configuration() -> dict[str, str]:
    """Return SLURM's configuration from `scontrol show config`, as values by key."""
    lines = ask("scontrol", "show", "config").stdout.splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def bounds(profile: Profile) -> Iterator[Bound]:
    """Yield the limits on the number of queued jobs that apply to a job of `profile`."""
    for name, record in policy.applying(profile):
        for word in WORDS:  # '7(5)': a limit of 7, 5 in use; 'N(5)': no limit
            if match := re.fullmatch(r"(\d+)\((\d+)\)", record.get(word, "")):
                yield Bound(f"{word} of {name}", int(match[1]), int(match[2]))
