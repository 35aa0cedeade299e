"""The seal of a plan, made before any of its trials has a result."""

import shlex
from importlib import metadata
from pathlib import Path
from typing import Any

from ablations import provenance
from ablations.planning.local_paths import LocalPaths, user_code
from ablations.planning.prepare import values_of_key
from ablations.study.reading import find_file
from ablations.trainables.trainable import find
from ablations.trainables.user_code import file_digest
from commonfloor.messages import listed
from results import store
from results.statistics import verdict
from results.store import ledger, seals
from results.store.schemas.plans import Plan
from results.store.schemas.seals import Seal, SealedCode
from results.units import amount_text


def sealed(plan: Plan, runs: Path, plugins: dict[str, str]) -> Seal:
    """Return the seal of a plan. plugins: file -> digest. Raises ValueError if a trial of its arms has a result."""
    refuse_results(plan, runs)
    assert plan.asked is not None
    study = find_file("studies", plan.asked.study)
    recipe = find_file("recipes", plan.asked.recipe)
    cut = LocalPaths.of([plan], runs).cut
    code = user_code(plan)
    digests: dict[str, str] = {}
    data: dict[str, Any] = {}
    if code is None:
        data = data_fingerprints(plan)
    else:  # whose data are unknown
        digests = {name: file_digest(Path(code.about.folder, name)) for name in code.files}
    return Seal(
        time=store.timestamp(),
        study=plan.study,
        recipe=plan.recipe,
        study_sha256=file_digest(study),
        recipe_sha256=file_digest(recipe),
        settings=cut(plan.overrides),
        declaration=cut(ledger.declaration(plan)),
        tests=dict(verdict.rules()),
        code=SealedCode(
            version=metadata.version("vit-ablations"),
            source=provenance.source_digest(),
            plugins={Path(file).name: digest for file, digest in sorted(plugins.items())},
            files=digests,
        ),
        data=cut(data),
    )


def refuse_results(plan: Plan, runs: Path) -> None:
    """Raise ValueError if a trial of the arms has been evaluated, which shows its validation, or was ever over."""
    known = {trial for declared in ledger.read_declarations(runs) for trial in declared.ended}
    begun = []
    for arm in plan.arms:
        for seed, trial_id in arm.ids.items():
            trial = store.trial(runs, trial_id)
            if trial_id in known or trial.state().is_over or trial.latest_step():
                begun.append(f"{arm.name} seed {seed} ({trial_id})")
    if begun:
        raise ValueError(
            f"{plan.name}: cannot be sealed, as there are results already: {listed(begun)}: "
            "seal new seeds or another study, or give another run directory if nobody has seen them"
        )


def data_fingerprints(plan: Plan) -> dict[str, Any]:
    configs = [entry.config for entry in plan.entries]
    fingerprints: dict[str, Any] = {}
    for group in find(plan.trainable).fingerprints(lambda key: values_of_key(configs, key)).values():
        fingerprints |= group
    return fingerprints


def write(runs: Path, made: Seal) -> Seal:
    """Write a seal into the run directory, unless one of equal content is there. Return the one that is there."""
    for seal in seals.read_seals(runs):
        if seal.content("time", "schema") == made.content("time", "schema"):
            return seal
    seals.write(runs, made)
    return made


def instructions(seal: Seal, path: Path, command: str) -> str:
    """Return how to prove the time of a seal. path: its file. command: trains the study."""
    digest = seals.sha256(seal)
    declared = seal.declaration
    counts = f"{amount_text(len(declared.arms), 'arm')}, {amount_text(len(declared.seeds), 'seed')}, {declared.metric}"
    tag = f"seal-{digest[:12]}"
    file = shlex.quote(str(path))
    return "\n".join(
        [
            f"{path}",
            f"{declared.plan} is sealed: {counts}",
            f"SHA-256 {digest}",
            "The clock of this machine proves nothing. Put the file, or its hash, where time is proved:",
            f"  git tag -a {tag} -m 'SHA-256 {digest}' && git push origin {tag}   # the host dates the push",
            f"  or upload {file} to OSF (a registration) or Zenodo (a DOI); `sha256sum {file}` prints the hash",
            f"then    {command}",
        ]
    )
