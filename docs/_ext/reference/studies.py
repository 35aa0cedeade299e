"""A page for each packaged study, from its YAML file and from its plan on the recipe `digits`."""

import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

from ablations.cli.show import description_parts
from ablations.planning import estimate
from ablations.planning.estimate import Device
from ablations.planning.plan import build
from ablations.study.design import Design
from ablations.study.naming import packaged_names
from ablations.study.papers import by_paper, title
from ablations.study.reading import find_file, read_recipe, read_study
from ablations.study.study import Study
from reference.example import DEMO, REPORT, results_of, trained
from reference.markup import code, comments, literal, prose, shell, table, toctree
from results import StudyResults
from results.figures import study_figure
from results.tables import layout, study_table

RECIPE = "digits"
COLUMNS = ("arm", "n", "mean", "delta", "p_holm", "verdict")  # what fits the page; the report has all


def pages() -> dict[str, str | bytes]:
    studies = [read_study(name) for name in packaged_names("studies")]
    names = {study.name for study in studies}
    figures = {}
    for results in chain.from_iterable(trained().values()):
        if results.plan.study in names:
            figures[figure_file(results)] = study_figure.picture(results, "svg", titled=False)
    return figures | {"index.md": overview(studies), **{f"{study.name}.md": page(study) for study in studies}}


def figure_file(results: StudyResults) -> str:
    return f"{results.plan.study}-{results.plan.recipe}.svg"


def overview(studies: list[Study]) -> str:
    about = (
        "Each packaged study asks one question. `ablate list` prints them, and `ablate run NAME` runs one. They stand "
        "under the paper whose question they ask. [Tables of papers](../tables/index.md) has its claims.\n"
    )
    lines = ["# Studies\n", about]
    for arxiv, group in by_paper(studies).items():
        rows = [[f"[`{study.name}`]({study.name}.md)", prose(study.question)] for study in group]
        lines += [f"## {prose(title(arxiv))}\n", table(["study", "question"], rows)]
    return "\n".join([*lines, toctree(study.name for study in studies)])


def page(study: Study) -> str:
    return "\n".join(
        [
            f"# {study.name}\n",
            f"**{prose(study.question)}**\n",
            shell([f"ablate plan {study.name}", f"ablate run {study.name}", f"ablate table {study.name}"]),
            about(study),
            *(result(study, file, results) for file, results in results_of(study.name)),
            "## What it varies\n",
            f"`ablate show {study.name}` prints this too:\n",
            description(study),
            cost(study),
            *record(study),
            "## The file\n",
            literal(find_file("studies", study.name)),
        ]
    )


def about(study: Study) -> str:
    """Return the comment at the head of the file without the expected cost."""
    text, _, _ = comments(find_file("studies", study.name)).partition("Expected cost:")
    return prose(text) + "\n"


def description(study: Study) -> str:
    """Return what `ablate show` prints, as a table."""
    rows = [(title, prose(text)) for title, text in description_parts(study, read_recipe(RECIPE)) if text]
    shown = table(["part", "content"], rows)
    return shown + "\n`ablate compare runs published` tests these claims on your trials.\n" if study.claims else shown


def settings(given: dict[str, Any]) -> str:
    return ", ".join(code(f"{key}={value}") for key, value in given.items())


def cost(study: Study) -> str:
    """Return the number of trials and their duration, estimated from the recipe's cost of a trial."""
    design = Design(study, read_recipe(RECIPE), {})
    plan = build(design, range(design.recipe.seeds))
    trials = {trial.id for entry in [*plan.stages, *plan.arms] for trial in entry.trials}
    with tempfile.TemporaryDirectory() as runs:
        hours = estimate.cost([plan], Path(runs), Device(False, ""), trials).hours
    duration = f"{hours:.1f} h" if hours >= 1.5 else f"{max(1, round(hours * 60))} min"
    return (
        f"On [`{RECIPE}`](../recipes/{RECIPE}.md): {len(plan.arms)} arms with {design.recipe.seeds} seeds each, "
        f"{len(trials)} trials in all, about {duration} of one core.\n"
    )


def result(study: Study, file: str, results: StudyResults) -> str:
    rows = study_table.table(results)
    text = layout.render(rows, "md", COLUMNS, "short").partition("\n\n")[2]  # without the question, which is the page's
    recipe = results.plan.recipe
    lines = [f"## Result on {recipe}\n", f"![The figure of {study.name} on {recipe}]({figure_file(results)})\n", text]
    source = f"\nFrom `examples/{file}`"
    if file == DEMO:
        source += f"; the same in <a href='../../{REPORT}'>the report</a>"
    return "\n".join([*lines, f"{source}.\n"])


def record(study: Study) -> list[str]:
    """Return the results of this study that the recipe states."""
    recipe = read_recipe(RECIPE)
    lines = [
        f"- {code(arm)}: test accuracy {100 * expected.mean:.2f}% (n = {expected.n}, {expected.how})."
        for expected in recipe.expected
        if (arm := arm_of(expected.source, study))
    ]
    twice = recipe.at_twice_the_steps
    if twice and study.name in twice.source.split():
        arms = {arm.name for arm in Design(study, recipe, {}).arms}
        lines += [
            f"- {code(arm)}: {100 * by:+.2f} points from the baseline after twice the steps"
            f"{', resolved' if arm in twice.resolved else ''} (n = {twice.n}, {twice.how})."
            for arm, by in twice.differences.items()
            if arm in arms
        ]
    return [f"## What is on record on {RECIPE}\n", *lines, ""] if lines else []


def arm_of(source: str, study: Study) -> str:
    """Return the arm in a source such as "ablate run STUDY, ARM", or "" if it names another study."""
    command, _, arm = source.partition(", ")
    return arm if study.name in command.split() else ""
