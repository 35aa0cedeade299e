"""The report: one HTML file for offline reading, with the answers, figures, tables and costs of all studies."""

import itertools
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from commonfloor.files import refuse_links
from results import store
from results.claim_text import VERDICT_TEXT, with_labels
from results.figures import inspection, study_figure
from results.load import load_inspections, load_studies
from results.records import Claim, Table
from results.statistics.race import STOPPED, with_stops
from results.store import seals
from results.store.eval_files import Inspection
from results.store.schemas.metrics import Metric
from results.store.schemas.plans import Asked, Plan
from results.study_results import StudyResults, rows_of
from results.style import COLUMN, FULL
from results.tables import layout, sentences, study_table, trial_notes
from results.tables.formats import TABLE_FORMATS, is_minor
from results.units import amount_text, duration_text

OVER = ("finished", "diverged")  # a diverged trial is a result too
PROVENANCE = ("revision", "code", "plugins", "device", "threads", "attention", "python", "torch", "numpy")


def publish(study: StudyResults, runs: Path) -> str:
    """Write a study's figure and its table in every format, and return the table as Markdown.

    Raises ValueError if a folder is a symbolic link.
    """
    folder = store.study_folder(runs, study.name)
    refuse_links(runs, folder / "tables", folder / "figures")
    table = study_table.table(study)
    for name, format in TABLE_FORMATS.items():
        store.write_bytes(folder / "tables" / f"table.{format.suffix}", f"{layout.render(table, name)}\n".encode())
    study_figure.draw(study, folder / "figures" / study_figure.file_name(study), table=table)
    return layout.render(table, "md")


def publish_all(runs: Path, plans: Sequence[str]) -> None:
    studies = load_studies(runs, plans)
    for study in studies:
        publish(study, runs)
    write(studies, runs / "report.html", load_inspections(runs, studies))


def write(
    studies: Sequence[StudyResults], path: Path, inside: Mapping[str, Inspection] = {}, left_out: Sequence[str] = ()
) -> None:
    """Write the report, as in `render`, to `path` completely or not at all. Raises ValueError for an unknown font."""
    page = render(studies, datetime.now(UTC), inside, left_out)
    store.write_bytes(path, page.encode(errors="backslashreplace"))  # a path on the page may not be UTF-8


def render(
    studies: Sequence[StudyResults], made: datetime, inside: Mapping[str, Inspection] = {}, left_out: Sequence[str] = ()
) -> str:
    """Return the HTML of the report.

    made: the report's date in UTC. inside: trial id -> inspection. left_out: lines about studies that are not shown.
    """
    trials: dict[str, dict[str, Any]] = {}
    uses = Counter[str]()
    for study in studies:
        trials |= {trial["id"]: trial for trial in rows_of(with_stops(study).columns)}
        uses.update(set(study.columns["id"]))
    title = "Vision Transformer ablations"
    if any(study.plan.trainable for study in studies):
        title = "Ablations"
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.loader = FileSystemLoader(Path(__file__).parent)
    splits = [study.plan.split_of(arm) for study in studies for arm in study.plan.arms]
    environment.filters |= {"minus": with_minus_signs, "breakable": breakable_name}
    return environment.get_template("report.html.j2").render(
        title=title,
        made=f"{made:%Y-%m-%d %H:%M} UTC",
        left_out=left_out,
        sections=[section_view(study, studies, uses, inside) for study in studies],
        progress=progress_text([trial["status"] for trial in trials.values()]),
        pairing=" or ".join(dict.fromkeys(sentences.pairing(study.plan) for study in studies)),
        splits=any(split and split.kind == "folds" for split in splits),
        cost=duration_text(sum(trial_seconds(studies).values())),
        provenance=provenance(trials.values()),
    )


def with_minus_signs(text: str) -> str:
    return re.sub(r"(?<!\w)-(?=\d)", "\N{MINUS SIGN}", text)


def breakable_name(name: str) -> Markup:
    """Return an arm's name as HTML in which a line may break after "_", "=" or ","."""
    return Markup("<wbr>").join(re.split(r"(?<=[_=,])(?=.)", name))


def section_view(
    study: StudyResults, studies: Sequence[StudyResults], uses: Mapping[str, int], inside: Mapping[str, Inspection]
) -> dict[str, Any]:
    """Return the template's variables for a study's section. uses: trial id -> number of studies that share it."""
    plan = study.plan
    table = study_table.table(study)
    columns = layout.shown_columns(table, roomy=True)
    differing = trial_notes.provenance_notes(study.columns)
    grid = layout.as_grid(table, columns)
    incomplete = ""
    statuses = with_stops(study).columns["status"]
    if set(statuses) - {*OVER, STOPPED}:
        incomplete = progress_text(statuses)
    footnotes = list(enumerate(grid.footnotes, 1))
    inspected, not_inspected = inspected_arms(study, inside)
    return {
        "slug": slug(study.name),
        "name": study.name,
        "plan": plan,
        "table": table,
        "answer": sentences.answer(table),
        "pairing": sentences.pairing(plan),
        "notes": [*table.warnings, *(note for note in table.notes if note not in differing)],
        "differing": differing,
        "differ": ", ".join(note.partition(" differs ")[0] for note in differing),
        "departing": sentences.departure_text(table),
        "summary": verdict_summary(table),
        "incomplete": incomplete,
        "figures": figures(study, table),
        "no_figure": study_figure.unknown_figure(plan),
        "columns": columns,
        "dagger": layout.dagger_line(layout.published_source(table)),
        "grid": grid,
        "grids_below": layout.grids_below(table),
        "column_lines": layout.column_lines(table, columns),
        "footnotes": [(number, note) for number, note in footnotes if not is_minor(note)],
        "minor": [(number, note) for number, note in footnotes if is_minor(note)],
        "interactions": [sentences.interaction_sentence(effect, plan.primary_metric) for effect in table.interactions],
        "claims": [claim_view(claim, plan.primary_metric) for claim in table.claims],
        "cost": cost_text(study, uses),
        "provenance": provenance(rows_of(study.columns)),
        "command": rerun_command(plan),
        "seals": [seals.sha256(seal) for seal in plan.seals],
        "inside": inspected,
        "not_inside": not_inspected,
        "related": related_studies(study, studies),
    }


def related_studies(study: StudyResults, studies: Sequence[StudyResults]) -> list[dict[str, str]]:
    links = []
    for other in studies:
        if other is study:
            continue
        ways = []
        if other.plan.study == study.plan.study:
            ways.append("the same question")
        shared = set(study.columns["id"]) & set(other.columns["id"])
        if shared:
            ways.append(amount_text(len(shared), "shared trial"))
        if ways:
            links.append({"slug": slug(other.name), "name": other.name, "how": ", ".join(ways)})
    return links


def inspected_arms(study: StudyResults, inside: Mapping[str, Inspection]) -> tuple[list[dict[str, Any]], list[str]]:
    views: list[dict[str, Any]] = []
    others = []
    for number, arm in enumerate(study.plan.arms):
        seed, trial_id = study.first_finished.get(arm.name, (0, ""))
        if trial_id not in inside:
            others.append(f"{arm.name} (not inspected)" if trial_id else f"{arm.name} (no finished trial)")
            continue
        inspected = inside[trial_id]
        figures = []
        for name in inspection.drawable_figures(inspected):
            svg = inspection.picture(inspected, name, "svg", described=False)
            label = f"{inspection.FIGURES[name][0]}, {arm.name}"
            figures.append(inline_svg(svg, f"{slug(study.name)}-{number}-{name}", label))
        views.append(
            {
                "arm": arm.name,
                "seed": seed,
                "open": arm.name == study.plan.baseline,
                "notes": [site["note"] for site in inspected.facts["sites"] if not site["site"]],
                "layers": inspection.layer_grid(inspected),
                "figures": figures,
            }
        )
    return views, others


def figures(study: StudyResults, table: Table) -> dict[str, Markup]:
    """Return page width ("wide" or "narrow") -> the study's figure as SVG, or {} if its kind is unknown."""
    if study_figure.unknown_figure(study.plan):
        return {}
    drawn = {}
    for kind, width in (("wide", FULL), ("narrow", COLUMN)):
        svg = study_figure.picture(study, "svg", width, titled=False, table=table)
        drawn[kind] = inline_svg(svg, f"{slug(study.name)}-{kind}", study.plan.question)
    return drawn


def slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")


def verdict_summary(table: Table) -> str:
    """Return verdict counts such as "2 worse, 1 equivalent", of tuned arms alone if there are any."""
    compared = [row for row in table.rows if row.arm != row.baseline]
    tuned = [row for row in compared if sentences.is_tuned(row, table)]
    counts = sentences.verdict_counts(tuned or compared)
    changed = sum(row.is_judged_anew for row in tuned or compared)
    if changed:
        counts = f"{counts}; {changed} of them otherwise as first declared"
    if tuned:
        counts += f" (each at its own {' and '.join(table.tuned)})"
    return counts


def progress_text(statuses: Sequence[str]) -> str:
    counts = Counter(statuses)
    text = f"{counts['finished']} of {amount_text(len(statuses), 'trial')} finished"
    for status, count in counts.items():
        if status != "finished":
            text += f", {count} {status}"
    return text


def claim_view(claim: Claim, metric: Metric) -> dict[str, str]:
    difference = ""
    if claim.delta is not None:
        difference = f"{claim.of} {metric.signed_text(claim.delta)}{metric.unit_of_difference}"
    if claim.delta_ci95:
        difference += f" [{', '.join(metric.signed_interval(claim.delta_ci95))}]"
    return {
        "text": with_labels(claim.claim),
        "verdict": VERDICT_TEXT[claim.verdict],
        "basis": "; ".join(filter(None, [difference, claim.note])),
    }


def trial_seconds(studies: Iterable[StudyResults]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for study in studies:
        seconds |= stage_seconds(study) | arm_seconds(study)
    return seconds


def arm_seconds(study: StudyResults) -> dict[str, float]:
    columns = zip(study.columns["id"], study.columns["train_seconds"], strict=True)
    return {trial_id: seconds for trial_id, seconds in columns if not math.isnan(seconds)}


def stage_seconds(study: StudyResults) -> dict[str, float]:
    trials = itertools.chain.from_iterable(stage.trials for stage in study.plan.stages)
    return {trial.id: trial.train_seconds for trial in trials if trial.train_seconds is not None}


def cost_text(study: StudyResults, uses: Mapping[str, int]) -> str:
    starts = stage_seconds(study)
    seconds = arm_seconds(study).values()
    if not seconds and not starts:
        return "nothing trained yet"
    text = f"{duration_text(sum(seconds))} of training in {amount_text(len(seconds), 'trial')}"
    if seconds:
        text += f", {duration_text(median(seconds))} a trial"
    if starts:
        stages = f"{duration_text(sum(starts.values()))} in {amount_text(len(starts), 'trial')}"
        text += f"; before it {stages} that they start from"
    ids = study.columns["id"]
    shared = sum(uses[trial_id] > 1 for trial_id in ids)
    if shared:
        text += f"; {shared} of its {amount_text(len(ids), 'trial')} shared with other studies of this report"
    return text


def provenance(trials: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return field -> value in finished and diverged trials. Values that differ are listed with trial counts."""
    over = [trial for trial in trials if trial["status"] in OVER]
    texts = {}
    for name in PROVENANCE:
        counts = Counter(trial[name] for trial in over if trial[name]).most_common()
        if len(counts) == 1:
            texts[name] = counts[0][0]
        elif counts:
            texts[name] = ", ".join(f"{value} ({amount_text(count, 'trial')})" for value, count in counts)
    return texts


def rerun_command(plan: Plan) -> str:
    arguments = plan.asked or Asked(study=plan.study, recipe=plan.recipe)
    words = ["ablate", "run", arguments.study]
    for key, value in plan.overrides.items():
        text = value if isinstance(value, str) else json.dumps(value)
        words.append(f"{key}={text}")
    if arguments.margin is not None:
        words.append(f"margin={arguments.margin}")
    if plan.race:
        words.append("--race")
    words += ["--recipe", arguments.recipe, "--seeds", str(len(plan.seeds))]
    if "@" not in plan.name:
        words += ["--name", plan.name]
    for plugin in arguments.plugins:
        words += ["--plugin", plugin]
    if arguments.data_dir:
        words += ["--data-dir", arguments.data_dir]
    return shlex.join(words)


def inline_svg(svg: bytes, prefix: str, label: str) -> Markup:
    """Return an SVG as HTML that fills its container. prefix: makes ids unique. label: text for screen readers."""
    text = svg.decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'href="#', f'href="#{prefix}-', text)
    text = text.replace("url(#", f"url(#{prefix}-")
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
    return Markup(text.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1))
