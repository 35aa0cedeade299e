"""A campaign: the plans of one `ablate submit`, with all files that its jobs need.

    runs/submissions/<campaign>/campaign.json     plans, profile, plug-ins
    runs/submissions/<campaign>/private.json      the parts of the profile that may hold secrets; mode 0600
    runs/submissions/<campaign>/code/             a copy of packages, plug-ins and their local imports, for the nodes
    runs/submissions/<campaign>/arrays/000k/      one folder per job array (ablations.cluster.arrays)
    runs/submissions/<campaign>/gave-up.json      why the last job stopped submitting
    runs/submissions/<campaign>/cancelled.json    written by `ablate cancel`
    runs/submissions/turns/                       a lock: one process submits at a time, over all machines

The disk says which trials are left. Any process may be killed at any point, because the next look starts from the disk
again. The jobs of a campaign belong to the path of its folder: a copied run directory has none.
"""

import os
import shutil
import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from ablations import provenance
from ablations.execution.launch import Place
from ablations.jobs import Job, jobs
from ablations.planning.estimate import Device
from ablations.planning.saved_plans import saved_plan
from ablations.provenance import HOME, PACKAGES
from ablations.study.naming import ALL_ARMS
from commonfloor.files import refuse_links
from results import store
from results.store import lease
from results.store.schemas.base import AnySchema
from results.store.schemas.plans import Plan
from results.store.schemas.submissions import Private, Submission
from slurm.profile import Profile

PREFIX = "ablate"
LOCAL = "local"  # instead of the name of a cluster: tasks run on this machine
PRIVATE = {"environment", "setup"}  # fields of a profile that may hold secrets
TURN_SECONDS = 120.0


@dataclass(frozen=True)
class Campaign:
    """A submission by `ablate submit` or `ablate profile check`, in a directory under runs/submissions."""

    folder: Path
    plans: tuple[str, ...]
    profile: Profile
    place: Place  # for its jobs: plug-ins are in `code`, and scratch space may be missing on other machines
    arms: tuple[str, ...] = ALL_ARMS  # glob patterns of arm names
    digest: str = ""  # of the copied code; "" in campaigns of earlier versions
    made_in: str = ""  # the path of the folder when the campaign was made
    cluster: str = ""  # the name of the cluster that has the jobs; "" in campaigns of earlier versions

    @property
    def runs(self) -> Path:
        return self.place.runs

    @property
    def code(self) -> Path:
        return self.folder / "code"

    @property
    def tags(self) -> str:
        """The prefix that the tags of all the campaign's jobs share."""
        return f"{PREFIX}:{self.folder.name}:"

    @property
    def label(self) -> str:
        """The beginning of the job names: the first plan's name and the number of further plans, or `check`."""
        first, *more = self.plans or ["check"]
        return f"{first}+{len(more)}".removesuffix("+0")

    @property
    def owner(self) -> int:
        return os.lstat(self.folder).st_uid

    @property
    def is_own(self) -> bool:
        """Whether this user owns the campaign's folder and the code that its jobs run, if it is still there."""
        owners = {self.owner}
        with suppress(FileNotFoundError):
            owners.add(os.lstat(self.code).st_uid)
        return owners == {os.geteuid()}

    @property
    def cancelled(self) -> bool:
        return (self.folder / "cancelled.json").exists()

    def read_plans(self) -> list[Plan]:
        """Return the plans of the campaign, except removed ones. Raises ValueError if a plan is damaged or too new."""
        return list(filter(None, (saved_plan(self.runs, name) for name in self.plans)))

    def jobs(self) -> list[Job]:
        return jobs(self.read_plans(), self.arms)


def device(profile: Profile) -> Device:
    return Device(bool(profile.gpus), profile.gpu_type or "")


def new(
    plans: Sequence[str],
    profile: Profile,
    place: Place,
    name: str = "",
    arms: Sequence[str] = ALL_ARMS,
    cluster: str = "",
) -> Campaign:
    """Return a campaign that is not yet on disk. name: the beginning of its folder's name; "" for the current time."""
    name = name or time.strftime("%Y%m%d-%H%M%S")
    folder = place.runs / "submissions" / f"{name}-{uuid.uuid4().hex[:8]}"
    return Campaign(folder, tuple(plans), profile, place, tuple(arms), cluster=cluster)


def write(campaign: Campaign) -> Campaign:
    """Write a new campaign's folder and return the campaign in it.

    The folder holds a copy of the code, so that later edits do not affect waiting jobs.
    """
    folder, place, profile = campaign.folder, campaign.place, campaign.profile
    refuse_links(place.runs, folder)
    partial = folder.with_name(f".{folder.name}")
    for package in PACKAGES:
        shutil.copytree(HOME / package, partial / "code" / package, ignore=shutil.ignore_patterns("__pycache__"))
    content = {
        "schema": store.SCHEMA,
        "plans": list(campaign.plans),
        "folder": os.path.realpath(folder),
        "cluster": campaign.cluster,
        "code": provenance.source_digest(partial / "code"),
        "profile": profile.model_dump(exclude_none=True, exclude=PRIVATE),
        "plugins": [str(folder / copy_plugin(Path(file), digest, partial)) for file, digest in place.plugins.items()],
        "data_dir": place.data_dir and str(place.data_dir.absolute()),
        "checkpoints": place.checkpoints and str(place.checkpoints),
        "keep_weights": place.keep_weights,
        "arms": list(campaign.arms),
    }
    store.write_json(partial / "campaign.json", content)
    store.write_json(partial / "private.json", profile.model_dump(include=PRIVATE), mode=0o600)
    partial.rename(folder)
    return load(folder)


def copy_plugin(file: Path, digest: str, folder: Path) -> Path:
    """Copy a plug-in, and beside it the local files that it imports, into `folder`; return the copy's relative path."""
    from ablations.trainables.vit import plugins  # imported here because it loads torch

    home = Path("code", "plugins")
    copy = home / f"{file.stem}-{digest}.py"
    (folder / home).mkdir(exist_ok=True)
    shutil.copyfile(file, folder / copy)
    for local in plugins.loaded(file).files:
        (folder / home / local.relative).parent.mkdir(parents=True, exist_ok=True)
        (folder / home / local.relative).write_bytes(local.content)
    return copy


def load(folder: Path) -> Campaign:
    content = read_checked(folder / "campaign.json", Submission)
    private = Private()  # empty for other users and in campaigns of earlier versions
    with suppress(FileNotFoundError, PermissionError):
        private = read_checked(folder / "private.json", Private)
    content.profile.pop("stage", None)  # a key of earlier versions
    profile = Profile.parse(content.profile | private.content(), str(folder))
    place = Place(
        folder.parent.parent,
        Path(content.data_dir) if content.data_dir else None,
        plugins={file: Path(file).stem.rpartition("-")[2] for file in content.plugins},
        gpu=bool(profile.gpus),
        checkpoints=Path(content.checkpoints).expanduser() if content.checkpoints else None,
        keep_weights=content.keep_weights,
        trials_per_gpu=profile.trials_per_gpu,
    )
    arms = (content.arms,) if isinstance(content.arms, str) else tuple(content.arms)
    origin = content.code, content.folder, content.cluster
    return Campaign(folder, tuple(content.plans), profile, place, arms, *origin)


def read_checked(path: Path, schema: type[AnySchema]) -> AnySchema:
    """Return the content of a file as `store.read` does, with its errors. Broken then names the file's folder too."""
    try:
        return store.read(path, schema)
    except store.Broken as error:  # its message begins with the file's name
        raise store.Broken(f"{path.parent}/{error}") from None


def campaigns(runs: Path) -> list[Campaign]:
    """Return the campaigns of `ablate submit`, oldest first, except copies from another run directory."""
    submitted = []
    for folder in store.sorted_paths(runs / "submissions"):
        if folder.name[0].isdigit() and (folder / "campaign.json").exists():
            campaign = load(folder)
            if not campaign.made_in or is_same_folder(campaign.made_in, folder):
                submitted.append(campaign)
    return submitted


def is_same_folder(path: str, folder: Path) -> bool:
    """Return whether a path leads to a folder, perhaps by links that only this machine or the other one has."""
    with suppress(OSError):
        return os.path.samefile(path, folder)
    return False


def tag(array: Path) -> str:
    """Return the tag `ablate:<campaign>:<array>`, which marks the jobs of an array in the queue."""
    return f"{PREFIX}:{array.parent.parent.name}:{array.name}"


def launcher_lock(runs: Path) -> AbstractContextManager[object]:
    refuse_links(runs, runs / "submissions" / "turns")
    return lease.lock(runs / "submissions" / "turns", TURN_SECONDS)


def write_mark(path: Path) -> None:
    store.write_json(path, {"schema": store.SCHEMA, "when": store.timestamp()})


def write_reports(runs: Path, plans: Sequence[str]) -> None:
    from results.report import publish_all  # imported here because tasks and most submissions draw nothing

    publish_all(runs, plans)


def awaits_reports(runs: Path, plan: Plan) -> bool:
    """Return whether a study's tables or the report lack a result or eval, judged by modification times."""
    files = [store.study_folder(runs, plan.name) / "tables" / "table.md", runs / "report.html"]
    newest = 0.0
    for entry in plan.entries:
        for planned in entry.trials:
            trial = store.trial(runs, planned.id).path
            newest = max(newest, modified_at(trial / "result.json"), modified_at(trial / "evals"))
    return min(map(modified_at, files)) < newest


def modified_at(path: Path) -> float:
    """Return a file's modification time, or 0 if there is no such file."""
    with suppress(FileNotFoundError):  # another process may remove the file meanwhile
        return path.stat().st_mtime
    return 0.0
