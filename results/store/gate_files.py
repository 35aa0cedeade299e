"""The ledger of `ablate gate`: every proposal of every stream and each answer, in files that are never changed.

runs/gates/<stream>/0003.json     a proposal (schemas.gates.Proposal)
runs/gates/<stream>/0003-2.json   the answer after its second step (schemas.gates.GateLook)
"""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from commonfloor.files import Broken, refuse_links
from results.store import lease
from results.store.contents import SCHEMA, NewerSchema, checksum, read_sealed, write_json
from results.store.plan_files import make_run_directory, sorted_paths
from results.store.schemas.gates import GateLook, GateSide, Proposal
from results.store.schemas.plans import Plan

FOLDER = "gates"
Record = TypeVar("Record", Proposal, GateLook)
TURNS = ".turns"
PROPOSED = -1  # the step of a proposal, before those of its answers
REMEDY = "restore it, or begin another stream"
NAME = re.compile(r"(\d{4,9})(?:-(\d+))?\.json")


@dataclass
class Proposed:
    """A proposal with its answers, in order."""

    proposal: Proposal
    looks: list[GateLook] = field(default_factory=list)

    @property
    def decision(self) -> GateLook | None:
        """The answer that ended the test, or None if it is open."""
        if self.looks and self.looks[-1].answer != "more":
            return self.looks[-1]
        return None

    @property
    def last(self) -> GateLook:
        """The last answer, which is `more` before the first step."""
        if self.looks:
            return self.looks[-1]
        return GateLook(step=0, time=self.proposal.time, answer="more", reason="not begun", opened=0)

    @property
    def is_kept(self) -> bool:
        return self.decision is not None and self.decision.answer == "keep"


@dataclass
class Stream:
    """All proposals of a stream, in order."""

    name: str
    proposals: list[Proposed] = field(default_factory=list)

    @property
    def opened(self) -> int:
        """The number of its proposals with a test."""
        return sum(proposed.proposal.level > 0 for proposed in self.proposals)

    @property
    def kept(self) -> list[Proposed]:
        """The kept proposals. Each one's baseline is the candidate of the one before."""
        return [proposed for proposed in self.proposals if proposed.is_kept]

    @property
    def keeps(self) -> list[int]:
        """For each keep, how many proposals were opened when it was known."""
        return [proposed.looks[-1].opened for proposed in self.kept]

    @property
    def current(self) -> GateSide:
        """The baseline of the next proposal: the last kept candidate, or else the first baseline."""
        if self.kept:
            return self.kept[-1].proposal.candidate
        return self.proposals[0].proposal.baseline

    def find(self, baseline: str, candidate: str) -> Proposed | None:
        """Return the proposal of a pair of arms, by their keys, or None."""
        for proposed in self.proposals:
            if (proposed.proposal.baseline.key, proposed.proposal.candidate.key) == (baseline, candidate):
                return proposed
        return None


@contextlib.contextmanager
def turn(runs: Path) -> Iterator[None]:
    """Hold the lock of the ledger. Raises TimeoutError if another process holds it."""
    refuse_links(runs, runs / FOLDER)
    make_run_directory(runs)
    with lease.lock(runs / FOLDER / TURNS):
        yield


def read_streams(runs: Path) -> dict[str, Stream]:
    """Return all streams by name. Raises Broken if a file is damaged or missing, NewerSchema if it is too new."""
    streams = {}
    for folder in sorted_paths(runs / FOLDER):
        if folder.is_dir() and folder.name != TURNS:
            stream = read_stream(folder)
            if stream.proposals:  # there is none if its first one was killed while it was written
                streams[folder.name] = stream
    return streams


def read_plans(runs: Path) -> list[Plan]:
    """Return the plans of both sides of all proposals, or [] if a file of the ledger is damaged or too new."""
    plans: list[Plan] = []
    with contextlib.suppress(Broken, NewerSchema):
        for stream in read_streams(runs).values():
            for proposed in stream.proposals:
                plans += [proposed.proposal.baseline.plan, proposed.proposal.candidate.plan]
    return plans


def read_stream(folder: Path) -> Stream:
    stream = Stream(folder.name)
    files = []
    for path in sorted_paths(folder):
        match = NAME.fullmatch(path.name)
        if match:
            files.append((int(match[1]), int(match[2] or PROPOSED), path))
    for number, step, path in sorted(files):  # a proposal, then its answers
        earlier = len(stream.proposals)
        if number != earlier + (step == PROPOSED):
            raise Broken(f"{folder}: proposal {earlier + 1} is missing: {REMEDY}")
        if step == PROPOSED:
            stream.proposals.append(Proposed(read_record(path, Proposal)))
            continue
        looks = stream.proposals[-1].looks
        if step > len(looks) + 1:
            raise Broken(f"{folder}: answer {len(looks) + 1} of proposal {number} is missing: {REMEDY}")
        looks.append(read_record(path, GateLook))
    return stream


def read_record(path: Path, schema: type[Record]) -> Record:
    try:
        return read_sealed(path, schema)
    except Broken as error:  # its text begins with the file's name
        raise Broken(f"{path.parent}/{error}: {REMEDY}") from None


def write(runs: Path, stream: str, proposal: Proposal, look: GateLook | None = None) -> None:
    """Write a proposal, or an answer to it, with a checksum that reveals later edits. A file that exists stays."""
    path = runs / FOLDER / stream / f"{proposal.number:04d}.json"
    record = {"schema": SCHEMA, **proposal.content()}
    if look:
        path = path.with_stem(f"{path.stem}-{look.step}")
        record = {"schema": SCHEMA, **look.content()}
    if not path.exists():
        write_json(path, record | {"checksum": checksum(record)})
