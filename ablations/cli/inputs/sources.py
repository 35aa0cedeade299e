"""The results of the studies that a command names, and the style of its figures and tables."""

import contextlib
import itertools
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from ablations.cli.inputs.directories import source_path
from ablations.cli.inputs.plan_names import checked_names, existing_plans
from ablations.cli.inputs.words import parse_words
from ablations.study import strict_yaml
from ablations.study.naming import stem
from commonfloor.messages import one_line, spelling_hint
from results import style
from results.claim_text import claimed_arms
from results.load import load_readable
from results.store import record, seals
from results.store.eval_files import computes_metric
from results.store.schemas.plans import Arm, Plan, Tuned
from results.study_results import StudyResults

MANY = 12  # maximum number of names that are listed


def named_results(
    source: Path | None, words: list[str] | None, recipe_name: str | None, parts: Collection[str] = record.PARTS
) -> tuple[list[StudyResults], list[ValueError]]:
    """Return the results of the studies that a command names, and the errors of damaged plans that no word names."""
    path = source_path(source)
    return load_readable(path, checked_names(parse_words(words, recipe_name), path), parts)


def results_on_recipes(
    source: Path | None, words: list[str] | None, recipes: list[str]
) -> tuple[list[StudyResults], list[ValueError]]:
    """Return the studies' results on several recipes, and the errors of damaged plans that no word names."""
    if len(recipes) < 2:
        return named_results(source, words, next(iter(recipes), None), record.FOR_TABLES)
    path = source_path(source)
    wanted = list(map(stem, recipes))
    names: list[str] = []
    for recipe in recipes:
        names += checked_names(parse_words(words, recipe), path)
    read, damaged = load_readable(path, names, record.FOR_TABLES)
    studies = [study for study in read if study.plan.recipe in wanted]
    order = [study.plan.study for study in studies]
    studies.sort(key=lambda study: (order.index(study.plan.study), wanted.index(study.plan.recipe)))
    return studies, damaged


def with_seal(studies: Sequence[StudyResults], file: Path | None) -> list[StudyResults]:
    if file is None:
        return list(studies)
    seal = seals.read_file(file)
    sealed = [replace(study, plan=seals.with_seals(study.plan, [seal])) for study in studies]
    if all(seal not in study.plan.seals for study in sealed):
        plan = seal.declaration.plan
        raise ValueError(f"--seal {file}: is the seal of {plan}, and these results have none of its trials")
    return sealed


def styled(file: Path | None, source: Path) -> AbstractContextManager[None]:
    """Return a context manager that applies a style file, if given, until the block ends."""
    if file is None:
        return contextlib.nullcontext()
    content = strict_yaml.read(file)
    try:
        chosen = style.parse(content)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    warning = unknown_names_warning(chosen, existing_plans(source))
    if warning:
        print(f"ablate: {file}: {one_line(warning)}", file=sys.stderr)
    return style.use_style(chosen)


def unknown_names_warning(chosen: style.Style, plans: Sequence[Plan]) -> str:
    """Return a warning about the style's names that are in no plan, or "". Settings that no plan varies are skipped."""
    names = list(dict.fromkeys(itertools.chain.from_iterable(map(known_names, plans))))
    varied = {name.partition("=")[0] for name in names if "=" in name}
    unvaried: set[str] = set()
    evals: set[str] = set()
    for plan in plans:
        evals.update(plan.evals)
        for arm in plan.arms:
            unvaried.update(arm.config.keys() - varied)
    warnings = []
    for section in ("labels", "colours", "order"):
        for name in getattr(chosen, section):
            is_measured = any(computes_metric(eval_name, name) for eval_name in evals)
            is_unvaried = unvaried.issuperset(part.partition("=")[0] for part in name.split(","))
            if name not in names and not is_measured and not is_unvaried:
                warnings.append(f"{section}: {name} is in no study here{alternatives(name, names)}")
    return "; ".join(warnings)


def known_names(plan: Plan) -> Iterator[str]:
    names: list[str] = []
    for claim in plan.claims:
        names += claimed_arms(claim)
    names += [arm.model_family for arm in plan.arms]
    arms: list[Arm | Tuned] = [*plan.arms, *plan.tuned]
    for arm in arms:
        names += [arm.name, arm.change]
        names += [f"{key}={value}" for key, value in arm.values.items()]
    for name in names:
        yield from (name, *name.split(","))
    yield from (*plan.factors, *plan.curves, *plan.trial_metrics, plan.metric, "baseline", "all")


def alternatives(name: str, known: Sequence[str]) -> str:
    """Return a suggestion, in parentheses, for a name in a style file that no study has."""
    values_of_key = f"{name.partition('=')[0]}="
    listed = [other for other in known if other.startswith(values_of_key) and "," not in other]
    if listed and "," not in name:
        return f" (there: {', '.join(listed[:MANY])})"
    listed = [other for other in known if other]
    return spelling_hint(name, listed) or f" (there: {', '.join(listed[:MANY])}{', ...' if len(listed) > MANY else ''})"
