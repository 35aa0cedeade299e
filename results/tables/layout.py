"""The layout of a study's table, alone or beside the same study under other recipes.

Accuracies are percentages in md, latex and html, and fractions in csv and json.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from commonfloor.messages import spelling_hint
from results import units
from results.claim_text import VERDICT_TEXT, claimed_arms, with_labels
from results.records import INTERVAL, Row, Table, as_json, json_object
from results.store.schemas.base import Plain
from results.store.schemas.metrics import EXACT, Metric, is_of_other_images, margin_text, too_wide
from results.store.schemas.plans import Plan
from results.study_results import unseen_failures
from results.style import current_style
from results.tables import arm_grids, formats, scaling_table, secondary_table, sentences
from results.tables.cell_text import (
    ABSENT,
    INTERVALS,
    count_of_planned,
    difference_interval,
    difference_text,
    interval_text,
    known_text,
    metric_label,
    plus_minus,
    unit_suffix,
)
from results.tables.formats import Cell, Grid

RATIO = "{:.2f}"
INTERIM_MARK = " (interim)"
BUDGETS = {"epochs": "epochs", "flops": "training FLOPs"}


@dataclass(frozen=True)
class Column:
    """A column of a table. text: returns a cell from a row and the study's metric; numeric ones are aligned right."""

    header: str
    text: Callable[[Row, Metric], str]
    numeric: bool = True


def column(name: str, plan: Plan) -> Column:
    if name in COLUMNS:
        return COLUMNS[name]
    metric = plan.metric_named(name.removesuffix(INTERVAL))
    title = metric_label(metric)
    if metric.name != name:
        return Column(f"95% CI of {title}", lambda row, _: interval_text(row.value(name), metric.value_text))
    return Column(
        title, lambda row, _: plus_minus(metric.value_text(row.value(name)), row.value(name + INTERVAL), metric)
    )


def further_metrics(columns: Sequence[str] | None) -> list[str]:
    return list(dict.fromkeys(name.removesuffix(INTERVAL) for name in columns or () if name not in COLUMNS))


def verdict_cell(row: Row) -> str:
    if row.arm == row.baseline:
        return "baseline"
    return sentences.row_verdict(row, ABSENT)  # a dash, as "none" could be an arm's value


def margin_met_text(margin: float | str | None, metric: Metric) -> str:
    if margin is None or isinstance(margin, str):
        return margin or ""
    return metric.bound_text(margin).removesuffix(metric.unit_of_difference)


def error_ratio_text(row: Row) -> str:
    return f"{known_text(row.error_ratio, RATIO)} {interval_text(row.error_ratio_ci95, RATIO.format)}".strip()


COLUMNS = {
    "arm": Column("arm", lambda row, metric: current_style().label(row.arm), numeric=False),
    "n": Column("n", lambda row, metric: count_of_planned(row.n, row.planned)),
    "planned": Column("planned", lambda row, metric: str(row.planned)),
    "mean": Column("{metric}", lambda row, metric: plus_minus(metric.value_text(row.mean), row.ci95, metric)),
    "sd": Column("sd", lambda row, metric: metric.value_text(row.sd)),
    "ci95": Column("95% CI", lambda row, metric: interval_text(row.ci95, metric.value_text)),
    "delta": Column("difference", lambda row, metric: difference_text(row.delta, row.delta_ci95, metric)),
    "delta_ci95": Column("95% CI of difference", lambda row, metric: difference_interval(row.delta_ci95, metric)),
    "delta_ci95_images": Column(
        "95% CI, seeds x images", lambda row, metric: difference_interval(row.delta_ci95_images, metric)
    ),
    "delta_ci95_simultaneous": Column(
        "95% CI, simultaneous", lambda row, metric: difference_interval(row.delta_ci95_simultaneous, metric)
    ),
    "error_ratio": Column("error ratio", lambda row, metric: error_ratio_text(row)),
    "error_ratio_ci95": Column(
        "95% CI of error ratio", lambda row, metric: interval_text(row.error_ratio_ci95, RATIO.format)
    ),
    "images_share": Column("variance from images", lambda row, metric: known_text(row.images_share, "{:.0%}")),
    "p": Column("p", lambda row, metric: units.probability_text(row.p)),
    "p_holm": Column("p (Holm)", lambda row, metric: units.probability_text(row.p_holm)),
    "verdict": Column("verdict", lambda row, metric: verdict_cell(row), numeric=False),
    "margin_met": Column("margin met", lambda row, metric: margin_met_text(row.margin_met, metric)),
    "published": Column("published†", lambda row, metric: metric.value_text(row.published)),
    "params": Column("params", lambda row, metric: units.count_text(row.params)),
    "flops": Column("FLOPs", lambda row, metric: units.count_text(row.flops)),
    "baseline": Column("baseline", lambda row, metric: current_style().label(row.baseline), numeric=False),
    "n_pairs": Column("pairs", lambda row, metric: known_text(row.n_pairs)),
    "diverged": Column("diverged", lambda row, metric: str(row.diverged)),
    "collapsed": Column("collapsed", lambda row, metric: str(row.collapsed)),
    "failed": Column("failed", lambda row, metric: str(row.failed)),
    "missing": Column("missing", lambda row, metric: str(row.missing)),
    "stopped": Column("stopped", lambda row, metric: str(row.stopped)),
    "notes": Column("notes", lambda row, metric: "; ".join(row.notes), numeric=False),
    "first_declared": Column(
        "verdict as first declared", lambda row, metric: sentences.verdict_text(row.first_declared, ""), numeric=False
    ),
}
SHOWN = (
    *("arm", "n", "mean", "delta", "delta_ci95_images", "delta_ci95_simultaneous", "error_ratio"),
    *("p_holm", "verdict", "margin_met", "published", "params", "flops"),
)
BESIDE_OTHERS = ("mean", "delta", "p_holm", "verdict")  # shown side by side
NOTES = ("all", "short", "none")
COMPARED = {  # columns that compare an arm with its baseline
    *("delta", "delta_ci95", "delta_ci95_images", "delta_ci95_simultaneous", "p", "p_holm", "verdict", "margin_met"),
    *("error_ratio", "error_ratio_ci95", "images_share"),
}
# shown if a row has a value
WHERE_KNOWN = (
    *("delta_ci95_images", "delta_ci95_simultaneous", "error_ratio", "margin_met", "published"),
    *("params", "flops"),
)
ROOMY = ("error_ratio",)  # shown in HTML alone, unless asked for
JUDGED = ("p_holm", "verdict")  # hidden in a table without verdicts


def render(table: Table, format: str, columns: Sequence[str] | None = None, notes: str | None = None) -> str:
    """Return the table as a document in one of formats.TABLE_FORMATS, without `grids_below` if columns are named.

    notes: one of NOTES. Raises ValueError for an unknown format, or an unknown or repeated column.
    """
    check_columns(columns, table)
    form = formats.find_format(format)
    shown = columns or shown_columns(table, roomy=format == "html")
    written = abridged(table, shown if form.write else columns or list(COLUMNS), notes or form.notes)
    if form.write:
        return "\n\n".join(map(form.write, [as_grid(written, shown), *([] if columns else grids_below(written))]))
    if format == "csv":
        return formats.as_csv(csv_rows([written], columns))
    return as_json(json_record(written, columns))


def render_side_by_side(
    tables: Sequence[Table], format: str, columns: Sequence[str] | None = None, notes: str | None = None
) -> str:
    """Return the tables of one study as one document, as in `render`, with a group of columns for each table."""
    for table in tables:
        check_columns(columns, table)
    form = formats.find_format(format)
    shown = columns or BESIDE_OTHERS
    noted = shown if form.write else columns or list(COLUMNS)
    written = [abridged(table, noted, notes or form.notes) for table in tables]
    if form.write:
        return form.write(grid_side_by_side(written, shown))
    if format == "csv":
        return formats.as_csv(csv_rows(written, columns, side_by_side=True))
    return as_json([json_record(table, columns) for table in written])


def json_record(table: Table, columns: Sequence[str] | None) -> dict[str, Any]:
    content = json_object(table)
    if columns:
        content["rows"] = [{name: row.value(name) for name in columns} for row in table.rows]
    grids = arm_grids.cross_grids(table)
    if grids:
        content["grids"] = grids
    return content


def grids_below(table: Table) -> list[Grid]:
    grids = [*arm_grids.grids_of_crosses(table), *scaling_table.as_grids(table)]
    if table.averages:
        grids.insert(0, arm_grids.data_grid(table))
    if table.plan.secondary_metrics:
        grids.insert(0, secondary_table.as_grid(table))
    return grids


def with_marks(table: Table, earlier: str = "") -> Sequence[Row]:
    """Return the rows with verdicts marked if they are interim, from an `earlier` look, or were others first."""
    rows = []
    for row in table.rows:
        verdict = row.verdict
        if verdict and sentences.is_from_earlier_look(row):
            verdict += earlier
        if verdict and table.interim:
            verdict += INTERIM_MARK
        if verdict and row.is_judged_anew:
            verdict += first_declared_mark(row.first_declared)
        rows.append(replace(row, verdict=verdict))
    return rows


def first_declared_mark(verdict: str | None) -> str:
    return f" (first declared: {verdict})"


def abridged(table: Table, columns: Sequence[str], notes: str) -> Table:
    """Return the table with fewer notes. notes: one of NOTES.

    "short" drops footnotes about other columns and lists of trials; "none" drops all but those on missing, failed and
    diverged trials, and warnings.
    """
    if notes == "all":
        return table

    def is_kept(note: str) -> bool:
        if note in table.notes_of.differences:
            return not COMPARED.isdisjoint(columns)
        about = table.notes_of.columns.get(note, "arm")
        return note not in table.notes_of.arms or (notes == "short" and about in columns)

    rows = [replace(row, notes=list(filter(is_kept, row.notes))) for row in table.rows]
    table_notes = []
    if notes == "short":  # without the list of trials in "code differs between trials: ..."
        table_notes = [re.sub(" trials: .*", " trials", note, flags=re.DOTALL) for note in table.notes]
    return replace(table, rows=rows, notes=table_notes, abridged=True)


def check_columns(columns: Sequence[str] | None, table: Table) -> None:
    for name in columns or ():
        if name not in COLUMNS and name.removesuffix(INTERVAL) not in table.besides:
            raise unknown_column(name, table.besides)
        if columns and columns.count(name) > 1:
            raise ValueError(f"columns={','.join(columns)}: {name} occurs twice")


def unknown_column(name: str, metrics: Sequence[str]) -> ValueError:
    names = list(dict.fromkeys([*COLUMNS, *metrics]))
    return ValueError(f"columns={name}: one of {', '.join(names)}{spelling_hint(name, names)}")


def shown_columns(table: Table, roomy: bool = False) -> list[str]:
    """Return the columns in SHOWN that apply to a table. roomy: also those in ROOMY."""
    hidden = set(WHERE_KNOWN)
    for row in table.rows:
        hidden -= {name for name in hidden if row.value(name) is not None}
    if not table.judged:
        hidden.update(JUDGED)
    if not roomy:
        hidden.update(ROOMY)
    return [name for name in SHOWN if name not in hidden]


def as_grid(table: Table, columns: Sequence[str]) -> Grid:
    title = f"{table.plan.name}: {table.plan.question}"
    rows = list(cells_by_arm(table, columns).values())
    grid = Grid(title, captions(table, columns), [], [], rows, closing_lines(table, columns))
    label = metric_label(table.plan.primary_metric)
    for shown in [column(name, table.plan) for name in columns]:
        grid.header.append(shown.header.format(metric=label))
        grid.numeric.append(shown.numeric)
    return grid


def grid_side_by_side(tables: Sequence[Table], columns: Sequence[str]) -> Grid:
    """Return the tables side by side, with dashes for absent arms. Raises ValueError without a column."""
    columns = [name for name in columns if name != "arm"]
    if not columns:
        raise ValueError("columns=arm: side by side, name at least one column of each recipe")
    rows = {}
    for row in sorted(
        itertools.chain.from_iterable(table.rows for table in tables), key=lambda row: current_style().rank(row.arm)
    ):
        rows[row.arm] = [Cell(current_style().label(row.arm), row.arm)]
    grid = Grid(f"{tables[0].plan.study}: {tables[0].plan.question}", [], ["arm"], [False], list(rows.values()))
    grid.groups.append(("", 1))
    for table in tables:
        beside = as_grid(table, columns)
        recipe = sentences.setting_text(table.plan)
        grid.caption.extend(f"{recipe}: {line}" for line in beside.caption)
        grid.header.extend(beside.header)
        grid.numeric.extend(beside.numeric)
        cells = cells_by_arm(table, columns)
        for arm in rows:
            rows[arm] += cells.get(arm, [Cell(ABSENT)] * len(columns))
        grid.closing.extend(f"{recipe}: {line}" for line in beside.closing)
        grid.groups.append((recipe, len(columns)))
    return grid


def cells_by_arm(table: Table, columns: Sequence[str]) -> dict[str, list[Cell]]:
    metric = table.plan.primary_metric
    cells: dict[str, list[Cell]] = {}
    for row in with_marks(table, sentences.EARLIER):
        cells[row.arm] = []
        for name in columns:
            text = column(name, table.plan).text(row, metric)
            cells[row.arm].append(Cell(text, sort_key(row.value(name))))
        cells[row.arm][0] = replace(cells[row.arm][0], notes=row.notes)
    return cells


def sort_key(value: Any) -> float | str | None:
    if isinstance(value, tuple):
        return float(sum(value) / 2)
    if isinstance(value, list):
        return ", ".join(value) or None
    return value


def captions(table: Table, columns: Sequence[str]) -> list[str]:
    metric = table.plan.primary_metric
    further = ""
    for other in map(table.plan.metric_named, further_metrics(columns)):
        if other.name == metric.name:
            continue
        further += f", {metric_label(other)}{unit_suffix(other)}"
    in_unit = f" in{metric.unit_of_difference}" if metric.unit_of_difference else ""
    several = len({row.baseline for row in table.rows}) > 1
    reference = current_style().label(table.plan.baseline)
    if several:
        reference = "the baseline at the same point"
    parts = [
        f"{sentences.count_text(table.rows)}{test_images_text(table.plan)}",
        f"{metric_label(metric)}{unit_suffix(metric)}{further}, {INTERVALS}",
        f"difference{in_unit} from {reference}, {sentences.pairing(table.plan)}",
    ]
    family = f"p after Holm over {units.amount_text(table.plan.family, 'planned contrast')}{looks_text(table)}"
    tested = [name for name in table.plan.secondary_metrics if name not in EXACT]
    if tested:
        family += f", which share 5% with {units.amount_text(len(tested), 'secondary metric')}"
    if table.tuned:
        family += f" at their own {' and '.join(table.tuned)}, over {table.plan.points_family} at equal ones"
    parts.append(family)
    if table.plan.budget != "steps":
        parts.append(f"arms are trained for equal {BUDGETS[table.plan.budget]}")
    if table.plan.margin is not None and may_be_equivalent(table):
        within = margin_text(table.plan.margin, metric)
        parts.append(f"equivalent: within {within}, after Holm{looks_text(table)} too")
    missed = ""
    if table.judged:
        missed = unseen_failures(len(table.plan.seeds))
    facts = [sentences.interim_text(table), sentences.departure_text(table), sentences.pairing_text(table), missed]
    return [f"{'; '.join(parts)}.", *filter(None, facts)]


def looks_text(table: Table) -> str:
    return f" and {table.looks} looks" if table.looks > 1 else ""


def may_be_equivalent(table: Table) -> bool:
    """Return whether the margin is narrow enough, for some baseline, to call an arm equivalent."""
    plan = table.plan
    if plan.margin is None:
        return False
    for row in table.rows:
        if row.arm != row.baseline:
            continue
        chance = plan.chance_of(plan.arms_by_name[row.arm])
        if row.mean is None or not too_wide(plan.margin, row.mean, plan.primary_metric, chance):
            return True
    return False


def column_lines(table: Table, columns: Sequence[str]) -> list[str]:
    lines = []
    if "delta_ci95_images" in columns:
        lines.append(
            "± is over seeds on these test images; seeds x images: the wider interval for other test images too, which "
            "verdicts need."
        )
    if table.tuned:
        settings = " and ".join(table.tuned)
        lines.append(f"Each at its own {settings}: p is the largest against any point of the other's grid.")
    if "error_ratio" in columns:
        lines.append("Error ratio: the arm's error / the baseline's with its 95% interval (Fieller).")
    if "delta_ci95_simultaneous" in columns:
        method = "max-t" if table.plan.is_paired else "Bonferroni"
        lines.append(f"Simultaneous: 95% for all contrasts of a family at once ({method}).")
    if "margin_met" in columns:
        smallest = "the smallest margin within which the arm is equivalent"
        lines.append(f"Margin met: {smallest}, after Holm{looks_text(table)} too.")
    names = family_names(table)
    if len(names) > 2:
        each = f"each of {len(names)} families ({', '.join(names)}) errs in at most 5% of null studies"
        lines.append(f"Tests: {each}, all together in at most {5 * len(names)}%.")
    if "verdict" in columns and any(map(sentences.is_from_earlier_look, table.rows)):
        lines.append(sentences.EARLIER_LINE)
    return lines


def test_images_text(plan: Plan) -> str:
    """Return text such as ", all on the same 360 test images", or ""."""
    split = plan.split
    if split is None or is_of_other_images(plan.metric):
        return ""
    if plan.data_sets:
        return f", on {units.amount_text(len(plan.data_sets), 'data set')}, each with its own test images"
    if split.kind == "folds":
        return f", each on one of {split.folds} folds of {split.images:,} images"
    return f", all on the same {split.images:,} test images"


def family_names(table: Table) -> list[str]:
    plan = table.plan
    names = []
    if plan.family:
        names.append("contrasts")
    if plan.points_family:
        names.append("contrasts at equal values")
    if plan.margin is not None:
        names.append("equivalence")
    if any(each.p is not None for each in table.averages):
        names.append("averages over data sets")
        if plan.margin is not None:
            names.append("equivalence of averages")
    if table.interactions:
        names.append("interactions")
    pairs = {frozenset((row.arm, row.baseline)) for row in table.rows}
    if not pairs.issuperset(frozenset(claimed_arms(claim.claim)) for claim in table.claims):
        names.append("claims about other pairs")
    if secondary_table.shows_dominance(table):
        names.append("dominance")
    return names


def closing_lines(table: Table, columns: Sequence[str]) -> list[str]:
    metric = table.plan.primary_metric
    lines = []
    if "published" in columns:
        lines.append(dagger_line(published_source(table)))
    lines += column_lines(table, columns)
    if not table.abridged:
        lines.append(f"Answer: {sentences.answer(table)}")
    lines.append(sentences.variance_text(table))
    if table.interactions:  # interactions have no row
        described = "; ".join(sentences.interaction_sentence(each, metric) for each in table.interactions)
        corrected = f"Holm over {len(table.interactions)}"
        pairing = sentences.pairing(table.plan)
        lines.append(f"Interactions (together - each alone + baseline, {pairing}, {corrected}): {described}.")
    if table.claims and not table.abridged:
        judged = "; ".join(f"{with_labels(each.claim)}: {VERDICT_TEXT[each.verdict]}" for each in table.claims)
        lines.append(f"Claims of {table.plan.source or 'the study'}: {judged}.")
    lines += [f"Note: {note}." for note in (*table.warnings, *table.notes)]
    if not table.abridged:
        lines += [f"Not covered: {caveat}" for caveat in table.plan.caveats]
    return list(filter(None, lines))


def dagger_line(source: str) -> str:
    return f"† {source}: another setting, shown beside ours, not compared."


def published_source(table: Table) -> str:
    return table.published_of or "the study"


# -- CSV -----------------------------------------------------------------------------------------------------

INTERACTION = {  # column of CSV -> field of an interaction
    "interaction": "interaction",
    **{f"interaction_{name}": name for name in ("ci95", "logit", "logit_ci95", "n", "p", "p_holm", "verdict", "notes")},
}


def csv_rows(
    tables: Sequence[Table], columns: Sequence[str] | None = None, side_by_side: bool = False
) -> list[dict[str, Plain]]:
    """Return a CSV row per arm with `columns`, by default all, and those of interactions and secondary metrics."""
    fields = {}
    if not columns and any(table.interactions for table in tables):
        fields = INTERACTION
    secondary: list[str] = []  # parameters and FLOPs are columns already
    if not columns:
        secondary += itertools.chain.from_iterable(table.plan.secondary_metrics for table in tables)
        secondary = [name for name in dict.fromkeys(secondary) if name not in COLUMNS]
    rows = []
    for table in tables:
        start: dict[str, Plain] = {}
        if side_by_side:
            start = {"study": table.plan.study, "recipe": sentences.setting_text(table.plan)}
        interactions = {interaction.name: interaction for interaction in table.interactions}
        for row in with_marks(table):
            cells = {name: row.value(name) for name in columns or COLUMNS}
            for column, field in fields.items():
                cells[column] = getattr(interactions.get(row.arm), field, None)
            rows.append(start | flat_cells(cells | secondary_table.csv_cells(row, secondary)))
    return rows


def flat_cells(values: Mapping[str, Any]) -> dict[str, Plain]:
    cells: dict[str, Plain] = {}
    for name, value in values.items():
        if "ci95" in name:
            cells[f"{name}_low"], cells[f"{name}_high"] = value or (None, None)
        elif name.endswith("notes"):
            cells[name] = "; ".join(value or ())
        else:
            cells[name] = value
    return cells
