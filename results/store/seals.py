"""Seals: files that say what a study declares, on which code and data, before any of its trials has a result.

    runs/seals/<first digits of the file's SHA-256>.json   a seal (`Seal`), never changed

The file is canonical JSON, so that its SHA-256 follows from its content. A plan is sealed by those of its study that
share trials with it.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from commonfloor.files import LARGEST, Broken, read_bytes, refuse_links, write_bytes
from results.store.contents import SCHEMA, parse
from results.store.plan_files import sorted_paths
from results.store.schemas.plans import Plan
from results.store.schemas.seals import Seal

FOLDER = "seals"
DIGITS = 16  # of the SHA-256 in a file's name and in notes


def seal_bytes(seal: Seal) -> bytes:
    content = {"schema": SCHEMA, **seal.content("schema")}
    return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def sha256(seal: Seal) -> str:
    return hashlib.sha256(seal_bytes(seal)).hexdigest()


def file_name(seal: Seal) -> str:
    return f"{sha256(seal)[:DIGITS]}.json"


def write(runs: Path, seal: Seal) -> Path:
    """Write a seal, and return its path. Raises ValueError if a folder is a link."""
    path = runs / FOLDER / file_name(seal)
    refuse_links(runs, path)
    write_bytes(path, seal_bytes(seal))
    return path


def read_file(path: Path) -> Seal:
    """Return the seal in a file. Raises FileNotFoundError, Broken or NewerSchema."""
    return parse_seal(read_bytes(path, LARGEST), path)


def parse_seal(payload: bytes, path: Path) -> Seal:
    seal = parse(payload, path, Seal)
    if payload != seal_bytes(seal):
        raise Broken(f"{path.name}: is no longer as `ablate seal` wrote it")
    return seal


def read_seals(runs: Path) -> list[Seal]:
    """Return the seals of a run directory by time. Raises Broken if one is damaged, and NewerSchema."""
    seals = []
    for path in sorted_paths(runs / FOLDER):
        if path.suffix == ".json" and path.name[0] != ".":
            seal = read_file(path)
            if path.name != file_name(seal):
                remedy = "restore it, or remove it and say so where you publish"
                raise Broken(f"{path}: edited, damaged or renamed: {remedy}")
            seals.append(seal)
    return by_time(seals)


def by_time(seals: Iterable[Seal]) -> list[Seal]:
    return sorted(seals, key=lambda seal: (seal.time, sha256(seal)))


def with_seals(plan: Plan, seals: Iterable[Seal]) -> Plan:
    trials = plan.arm_trials
    distinct = {}
    for seal in [*plan.seals, *seals]:
        if seal.study == plan.study and not trials.isdisjoint(seal.declaration.ids):
            distinct[sha256(seal)] = seal
    return plan.model_copy(update={"seals": by_time(distinct.values())})
