"""The report: every study's answer, figure, table and cost in one HTML file that opens without a network."""

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from results import store, units
from results.figures import inspection, plots
from results.figures.theme import COLUMN, FULL
from results.records import Claim, Table
from results.statistics import claims, interaction
from results.store.inspection_data import Inspection
from results.study_results import StudyResults
from results.tables import layout, sentences, study_table
from results.tables import provenance as mixed

NOTHING: Mapping[str, Inspection] = {}
OVER = ("finished", "diverged")  # a diverged trial is an outcome
PROVENANCE = ("revision", "code", "plugins", "device", "threads", "attention", "python", "torch", "numpy")


def write(studies: Sequence[StudyResults], path: Path, inside: Mapping[str, Inspection] = NOTHING) -> None:
    """Writes the report of `studies`, in their order, to `path`: all of it or nothing.

    inside: trial id -> what `ablate inspect` found in it.
    """
    page = render(studies, datetime.now(UTC), inside)
    store.write_bytes(path, page.encode())


def render(studies: Sequence[StudyResults], made: datetime, inside: Mapping[str, Inspection] = NOTHING) -> str:
    """The page; the same studies and time give the same text."""
    trials = pd.concat([study.trials for study in studies]).drop_duplicates("id")
    uses = Counter(trial for study in studies for trial in set(study.trials["id"]))
    return template().render(
        made=f"{made:%Y-%m-%d %H:%M} UTC",
        sections=[section(study, uses, inside) | {"related": related(study, studies)} for study in studies],
        progress=progress(trials),
        splits=any(study.plan["split"]["kind"] == "folds" for study in studies),
        cost=duration(sum(seconds(studies).values())),
        provenance=provenance(trials),
    )


def template() -> Template:
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"minus": minus, "breakable": breakable}
    return environment.get_template("report.html.j2")


def minus(text: str) -> str:
    """Numbers with the sign that lines up with their plus."""
    return re.sub(r"(?<!\w)-(?=\d)", "\N{MINUS SIGN}", text)


def breakable(name: str) -> Markup:
    """An arm's name that a narrow page breaks after its signs, never inside a word or number."""
    return Markup("<wbr>").join(re.split(r"(?<=[_=,])(?=.)", name))


def section(study: StudyResults, uses: Mapping[str, int], inside: Mapping[str, Inspection]) -> dict[str, Any]:
    """What the template says of one study. uses: trial id -> how many studies of the report share it."""
    plan, table = study.plan, study_table.table(study)
    columns = layout.shown_columns(table)
    return {
        "slug": slug(study.name),
        "name": study.name,
        "plan": plan,
        "found": plan.get("found", ""),  # plans written before the field existed
        "table": table,
        "answer": sentences.answer(table),
        **told_apart(table.notes, mixed.notes(study.columns)),
        "departing": sentences.departure_text(table),
        "summary": summary(table),
        "incomplete": incomplete(study.trials),
        "figures": figures(study),
        "no_figure": plots.unknown(plan),
        "columns": columns,
        "dagger": layout.dagger(table),
        "grid": layout.as_grid(table, columns),
        "interactions": [interaction.sentence(one, table.metric) for one in table.interactions],
        "claims": [judged(claim, table.metric) for claim in table.claims],
        "cost": cost(study, uses),
        "provenance": provenance(study.trials),
        "command": command(plan),
        "inside": list(looks(study, inside)),
    }


def told_apart(notes: Sequence[str], differing: Sequence[str]) -> dict[str, Any]:
    """What to read with the table, and what differs between its trials, for who asks where: code, machines."""
    return {
        "notes": [note for note in notes if note not in differing],
        "differing": differing,
        "differ": ", ".join(note.partition(" differs ")[0] for note in differing),
    }


def related(study: StudyResults, studies: Sequence[StudyResults]) -> list[dict[str, str]]:
    """The other studies of the page that ask the same on other data, or share trials, with a link to each."""
    own, found = set(study.trials["id"]), []
    for other in studies:
        shared = len(own & set(other.trials["id"]))
        ways = ["the same question"] * (other.plan["study"] == study.plan["study"])
        ways += [f"{shared} shared trial{'s' if shared > 1 else ''}"] * bool(shared)
        if other is not study and ways:
            found.append({"slug": slug(other.name), "name": other.name, "how": ", ".join(ways)})
    return found


def looks(study: StudyResults, inside: Mapping[str, Inspection]) -> Iterator[dict[str, Any]]:
    """Of each arm whose first seed was inspected: its figures and its layers."""
    for number, arm in enumerate(study.plan["arms"]):
        first = arm["trials"][0]
        if found := inside.get(first["id"]):
            yield {
                "arm": arm["name"],
                "seed": first["seed"],
                "open": arm["name"] == study.plan["baseline"],
                "notes": [site["note"] for site in found.facts["sites"] if not site["site"]],
                "layers": inspection.layers(found),
                "figures": [
                    inline(
                        inspection.picture(found, name, "svg", described=False),
                        f"{slug(study.name)}-{number}-{name}",
                        f"{inspection.FIGURES[name][0]}, {arm['name']}",
                    )
                    for name in inspection.drawable(found)
                ],
            }


def figures(study: StudyResults) -> dict[str, Markup]:
    """The study's figure for a wide and a narrow page; none where the plan asks for one that is not there."""
    if plots.unknown(study.plan):
        return {}
    return {
        kind: inline(
            plots.picture(study, "svg", width, titled=False), f"{slug(study.name)}-{kind}", study.plan["question"]
        )
        for kind, width in (("wide", FULL), ("narrow", COLUMN))
    }


def slug(name: str) -> str:
    """A study's name as an HTML id."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")


def summary(table: Table) -> str:
    """How many arms got which verdict: "2 worse, 1 equivalent"; of a tuned study, each at its own value."""
    compared = [row for row in table.rows if row.arm != row.baseline]
    tuned = [row for row in compared if sentences.is_tuned(row, table)]
    counts = sentences.verdict_counts(tuned or compared)
    return f"{counts} (each at its own {' and '.join(table.tuned)})" if tuned else counts


def progress(trials: pd.DataFrame) -> str:
    """What became of the trials: "18 of 20 trials finished, 2 diverged"."""
    states = Counter(trials["status"])
    rest = "".join(f", {count} {state}" for state, count in states.items() if state != "finished")
    return f"{states['finished']} of {len(trials)} trials finished{rest}"


def incomplete(trials: pd.DataFrame) -> str:
    """The warning over a study whose numbers may still change, or ""."""
    if trials["status"].isin(OVER).all():
        return ""
    return f"Incomplete: {progress(trials)}. Every number below may still change: no verdicts yet."


def judged(claim: Claim, metric: str) -> dict[str, str]:
    """A claim with its verdict in words and what it rests on."""
    unit = units.unit(metric)
    delta = "" if claim.delta is None else f"{unit.signed(claim.delta)}{unit.of_difference}"
    interval = claim.delta_ci95 and f" [{', '.join(map(unit.signed, claim.delta_ci95))}]"
    return {
        "text": claims.with_labels(claim.claim),
        "verdict": claims.verdict_text(claim.verdict),
        "basis": "; ".join(part for part in (f"{delta}{interval or ''}", claim.note) if part),
    }


def seconds(studies: Sequence[StudyResults]) -> dict[str, float]:
    """What each trial took that is over, those that others start from included, by id."""
    found: dict[str, float] = {}
    for study in studies:
        own = zip(study.columns["id"], study.columns["train_seconds"], strict=True)
        found |= {trial: took for trial, took in own if not math.isnan(took)} | before(study)
    return found


def before(study: StudyResults) -> dict[str, float]:
    """What the trials took that the study's arms start from, by id: of its stages."""
    trials = [trial for stage in study.plan.get("stages", []) for trial in stage.get("trials", [])]
    return {trial["id"]: trial["train_seconds"] for trial in trials if "train_seconds" in trial}


def cost(study: StudyResults, uses: Mapping[str, int]) -> str:
    """What the study's finished trials took, and how many of them other studies here use too."""
    trials, starts = study.trials, before(study)
    own = trials["train_seconds"].dropna()
    if own.empty and not starts:
        return "nothing trained yet"
    shared = sum(uses[trial] > 1 for trial in trials["id"])
    each = f", {duration(own.median())} a trial" if len(own) else ""
    first = (
        f"; before it {duration(sum(starts.values()))} in {len(starts)} trials that they start from" if starts else ""
    )
    also = f"; {shared} of its {len(trials)} trials are shared with other studies of this report" if shared else ""
    return f"{duration(own.sum())} of training in {len(own)} trials{each}{first}{also}"


def duration(seconds: float) -> str:
    """ "9.2 s", "3 min 10 s", "2 h 5 min" """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


def provenance(trials: pd.DataFrame) -> dict[str, str]:
    """What made the trials that are over: name -> value, or each value with its number of trials."""
    over = trials[trials["status"].isin(OVER)]
    counts = {name: Counter(value for value in over[name] if value) for name in PROVENANCE}
    return {
        name: next(iter(found))
        if len(found) == 1
        else ", ".join(f"{v} ({k} trial{'s' if k > 1 else ''})" for v, k in found.most_common())
        for name, found in counts.items()
        if found
    }


def command(plan: Mapping[str, Any]) -> str:
    """The command that makes the study again, for a shell."""
    asked = plan.get("asked") or {"study": plan["study"], "recipe": plan["recipe"], "plugins": [], "data_dir": None}
    words = ["ablate", "run", asked["study"], *(f"{key}={spelt(value)}" for key, value in plan["overrides"].items())]
    words += [f"margin={asked['margin']:g}"] if "margin" in asked else []
    words += ["--recipe", asked["recipe"], "--seeds", str(len(plan["seeds"]))]
    words += [word for plugin in asked["plugins"] for word in ("--plugin", plugin)]
    return shlex.join([*words, *(["--data-dir", asked["data_dir"]] if asked["data_dir"] else [])])


def spelt(value: Any) -> str:
    """A setting as the command line takes it."""
    return value if isinstance(value, str) else json.dumps(value)


def inline(svg: bytes, prefix: str, label: str) -> Markup:
    """An SVG as a part of the page: as wide as its place, named for screen readers, with ids of its own."""
    text = svg.decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'href="#', f'href="#{prefix}-', text)
    text = text.replace("url(#", f"url(#{prefix}-")
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
    return Markup(text.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1))
