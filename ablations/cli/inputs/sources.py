"""The results of the studies that a command names, and the style of its figures and tables."""

import contextlib
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from ablations.cli.inputs.directories import source_path
from ablations.cli.inputs.plan_names import checked_names, existing_plans, plan_names
from ablations.cli.inputs.words import parse_words
from ablations.study import strict_yaml
from ablations.study.naming import stem
from commonfloor.messages import one_line
from results import style, style_check
from results.load import load_readable
from results.store import record
from results.study_results import StudyResults


def named_results(
    source: Path | None, words: list[str] | None, recipe_name: str | None, *, for_tables: bool = False
) -> tuple[list[StudyResults], list[ValueError]]:
    """Return the results of the studies that a command names, and the errors of damaged plans that no word names.

    for_tables: whether to read only what tables need from a run directory. Raises ValueError if a study was not run
    with the given settings, or if the source is missing, empty, damaged or too new.
    """
    path = source_path(source)
    parts = record.FOR_TABLES if for_tables else record.PARTS
    return load_readable(path, checked_names(parse_words(words, recipe_name), path), parts)


def results_on_recipes(
    source: Path | None, words: list[str] | None, recipes: list[str]
) -> tuple[list[StudyResults], list[ValueError]]:
    """Return the studies' results on several recipes, and the errors of damaged plans that no word names.

    Only what tables need is read. With two or more recipes, results are ordered by study, then as in `recipes`. Without
    any, the recipe is the default, as in `named_results`, whose errors are raised.
    """
    if len(recipes) < 2:
        return named_results(source, words, recipes[0] if recipes else None, for_tables=True)
    wanted = list(dict.fromkeys(map(stem, recipes)))
    names_plans = plan_names(parse_words(words, wanted[0]), source_path(source))
    studies: dict[str, StudyResults] = {}
    for recipe in wanted if names_plans else wanted[:1]:  # without names, one call reads all
        read, damaged = named_results(source, words, recipe, for_tables=True)
        studies |= {study.name: study for study in read if study.plan.recipe in wanted}
    order = list(dict.fromkeys(study.plan.study for study in studies.values()))
    ordered = sorted(studies.values(), key=lambda s: (order.index(s.plan.study), wanted.index(s.plan.recipe)))
    return ordered, damaged


def styled(file: Path | None, source: Path) -> AbstractContextManager[None]:
    """Return a context manager that applies a style file, if given, until the block ends.

    Warns on standard error about names in the file that no study in `source` has. Raises ValueError if the file cannot
    be read, or if a key or a value in it is not allowed.
    """
    if file is None:
        return contextlib.nullcontext()
    content = strict_yaml.read(file)
    try:
        chosen = style.parse(content)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    warning = style_check.unknown_names_warning(chosen, existing_plans(source))
    if warning:
        print(f"ablate: {file}: {one_line(warning)}", file=sys.stderr)
    return style.use_style(chosen)
