"""Notes on the seal of a study: whether it precedes the first result, and exactly what differs from it."""

import json

from commonfloor.messages import listed
from results.statistics import verdict
from results.statistics.declared import arm_declared
from results.store import seals
from results.store.record import THEN
from results.store.schemas.declarations import Declaration
from results.store.schemas.plans import Plan
from results.store.schemas.seals import Seal
from results.study_results import StudyResults, rows_of
from results.tables.declared_first import declared_texts
from results.tables.trial_notes import source_digest
from results.units import amount_text, seeds_text

CLOCKS = "Both times are those of the machines' own clocks and prove nothing: see where the seal was deposited"


def seal_notes(study: StudyResults) -> tuple[list[str], list[str]]:
    """Return (notes, warnings) on the newest seal of a study, or ([], []) if there is none."""
    if not study.plan.seals:
        return [], []
    *earlier, seal = study.plan.seals
    began = first_start(study, seal)
    differing = differences(study, seal)
    if earlier:
        texts = listed([*map(short_text, earlier)])
        differing.append(f"{amount_text(len(earlier), 'earlier seal')} of the same study ({texts})")
    if not began:
        when = "sealed; none of its trials has a result with a known start"
    elif seal.time <= began:
        when = "sealed before the first result"
    else:
        differing.insert(0, f"the first result began before it, on {time_text(began)}")
        when = ""
    if differing:
        but = f"{when}, but " if when else ""
        return [], [f"{but}not as sealed ({short_text(seal)}): {'; '.join(differing)}"]
    start = f"; the first result began on {time_text(began)}" if began else ""
    return [f"{when}: {short_text(seal)}{start}. {CLOCKS}"], []


def short_text(seal: Seal) -> str:
    return f"SHA-256 {seals.sha256(seal)[: seals.DIGITS]}... of {time_text(seal.time)}"


def time_text(time: str) -> str:
    return f"{time[:19].replace('T', ' ')} UTC"


def first_start(study: StudyResults, seal: Seal) -> str:
    times = []
    for trial in rows_of(study.columns):
        if trial["status"] in ("finished", "diverged") and trial["id"] in seal.declaration.ids and trial["started"]:
            times.append(trial["started"].partition(THEN)[0])  # a resumed trial has a time for each attempt
    return min(times, default="")


def differences(study: StudyResults, seal: Seal) -> list[str]:
    declared = seal.declaration
    texts = [*declared_differences(study.plan, declared), *arm_differences(study.plan, declared)]
    if dict(verdict.rules()) != seal.tests:
        texts.append(f"verdicts are formed by other code than that of {seal.code.version}")
    return [*texts, *code_differences(study, seal)]


def declared_differences(plan: Plan, declared: Declaration) -> list[str]:
    now = declared_texts(plan, plan)
    then = declared_texts(declared, plan)
    if now["metrics"] == now["metric"] and then["metrics"] == then["metric"]:
        del now["metrics"]
    if arm_declared(declared, plan.baseline_arm) == declared.baseline:
        del now["baseline"]  # whatever it is called
    texts = [f"{name} {text}, sealed {then[name]}" for name, text in now.items() if text != then[name]]
    for name in ("grows", "race"):
        if getattr(declared, name) != getattr(plan, name):
            texts.append(f"{name} {str(getattr(plan, name)).lower()}, sealed {str(getattr(declared, name)).lower()}")
    added_claims = [claim for claim in plan.claims if claim not in declared.claims]
    claims_left_out = [claim for claim in declared.claims if claim not in plan.claims]
    if added_claims:
        texts.append(f"claims added: {listed(added_claims)}")
    if claims_left_out:
        texts.append(f"claims left out: {listed(claims_left_out)}")
    added = [seed for seed in plan.seeds if seed not in declared.seed_set]
    left_out = sorted(declared.seed_set.difference(plan.seeds))
    if added:
        texts.append(f"{seeds_text(added)} added")
    if left_out:
        texts.append(f"{seeds_text(left_out)} left out")
    return texts


def arm_differences(plan: Plan, declared: Declaration) -> list[str]:
    """Return texts on arms added, left out or changed. Arms are known by the ids of their trials."""
    names = {arm.name: arm_declared(declared, arm) for arm in plan.arms}
    added: list[str] = []
    edited: list[str] = []
    compared_anew: list[str] = []
    for arm in plan.arms:
        sealed_name = names[arm.name]
        sealed_ids = {arm.ids[seed] for seed in declared.seeds if seed in arm.ids}
        if sealed_name is None and arm.name not in declared.arms:
            added.append(arm.name)
        elif sealed_name is None or not sealed_ids <= {*declared.arms[sealed_name].trials}:
            edited.append(arm.name)
        elif declared.arms[sealed_name].baseline != names[arm.baseline]:
            compared_anew.append(arm.name)
    left_out = [name for name in declared.arms if name not in [*names.values(), *edited]]
    texts = []
    for what, arms in (
        ("arms added", added),
        ("arms left out", left_out),
        ("other settings, data or code of parts", edited),
        ("another baseline", compared_anew),
    ):
        if arms:
            texts.append(f"{what}: {listed(arms)}")
    return texts


def code_differences(study: StudyResults, seal: Seal) -> list[str]:
    sources: dict[str, int] = {}
    plugins: dict[str, None] = {}
    for trial in rows_of(study.columns):
        if trial["status"] not in ("finished", "diverged"):
            continue
        source = source_digest(trial["code"])
        if source not in ("", seal.code.source):
            sources[source] = sources.get(source, 0) + 1
        for name, digest in json.loads(trial["plugins"] or "{}").items():
            if seal.code.plugins.get(name) != digest:
                plugins[name] = None
    texts = []
    for source, number in sources.items():
        texts.append(f"{amount_text(number, 'trial')} trained by code {source}, sealed {seal.code.source}")
    texts += [f"plug-in {name} is another one" for name in plugins]
    return texts
