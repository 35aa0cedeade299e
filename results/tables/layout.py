"""Layout: which columns of a table are shown and how; people get percents, files get fractions."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results import units
from results.did_you_mean import nearest
from results.statistics import claims, interaction
from results.style import current
from results.tables import grid, sentences
from results.tables.grid import Cell, Grid
from results.units import Unit

Row = Mapping[str, Any]
Table = Mapping[str, Any]

BUDGETS = {"epochs": "epochs", "flops": "training FLOPs"}
FORMATS = ("md", "latex", "csv", "json", "html")


@dataclass(frozen=True)
class Column:
    """header: what is above it; text: how it is written, from the row and the metric's unit."""

    header: str
    text: Callable[[Row, Unit], str]
    numeric: bool = True


def column(name: str) -> Column:
    """One of COLUMNS; else of a number that the table was asked for besides, its mean or the interval of that."""
    if name in COLUMNS:
        return COLUMNS[name]
    measured = name.removesuffix(INTERVAL)
    unit, called = units.unit(measured), label(measured)
    if measured != name:
        return Column(f"95% CI of {called}", lambda row, _: between(row[name], unit.value))
    return Column(called, lambda row, _: plus_minus(unit.value(row[name]), row[name + INTERVAL], unit))


def besides(columns: Sequence[str] | None) -> list[str]:
    """What is to be measured for chosen columns, beside what every table has."""
    names = (name.removesuffix(INTERVAL) for name in columns or () if name not in COLUMNS)
    return list(dict.fromkeys(names))


def plus_minus(text: str, interval: Sequence[float] | None, unit: Unit) -> str:
    """ "76.42 ± 1.93": the intervals are symmetric."""
    return f"{text} ± {unit.value((interval[1] - interval[0]) / 2)}" if interval else text


def between(interval: Sequence[float] | None, write: Callable[[float], str]) -> str:
    return f"[{write(interval[0])}, {write(interval[1])}]" if interval else ""


def of_planned(row: Row, unit: Unit) -> str:
    return str(row["n"]) if row["n"] == row["planned"] else f"{row['n']}/{row['planned']}"


def least_margin(row: Row, unit: Unit) -> str:
    """Rounded up, as a bound is."""
    return "" if row["margin_met"] is None else unit.bound(row["margin_met"]).removesuffix(unit.of_difference)


def word(row: Row, unit: Unit) -> str:
    if row["arm"] == row["baseline"]:
        return "baseline"
    return str(row["verdict"] or "–").replace("-", " ")  # "none" would read as an arm's value


COLUMNS = {
    "arm": Column("arm", lambda row, unit: current().label(row["arm"]), numeric=False),
    "n": Column("n", of_planned),
    "planned": Column("planned", lambda row, unit: str(row["planned"])),
    "mean": Column("{metric}", lambda row, unit: plus_minus(unit.value(row["mean"]), row["ci95"], unit)),
    "sd": Column("sd", lambda row, unit: unit.value(row["sd"])),
    "ci95": Column("95% CI", lambda row, unit: between(row["ci95"], unit.value)),
    "delta": Column("difference", lambda row, unit: plus_minus(unit.signed(row["delta"]), row["delta_ci95"], unit)),
    "delta_ci95": Column("95% CI of difference", lambda row, unit: between(row["delta_ci95"], unit.signed)),
    "delta_ci95_images": Column(
        "95% CI, seeds x images", lambda row, unit: between(row["delta_ci95_images"], unit.signed)
    ),
    "delta_ci95_simultaneous": Column(
        "95% CI, simultaneous", lambda row, unit: between(row["delta_ci95_simultaneous"], unit.signed)
    ),
    "p": Column("p", lambda row, unit: units.probability(row["p"])),
    "p_holm": Column("p (Holm)", lambda row, unit: units.probability(row["p_holm"])),
    "verdict": Column("verdict", word, numeric=False),
    "margin_met": Column("margin met", least_margin),
    "published": Column("published†", lambda row, unit: unit.value(row["published"])),
    "params": Column("params", lambda row, unit: units.count(row["params"])),
    "flops": Column("FLOPs", lambda row, unit: units.count(row["flops"])),
    "baseline": Column("baseline", lambda row, unit: current().label(row["baseline"]), numeric=False),
    "n_pairs": Column("pairs", lambda row, unit: "" if row["n_pairs"] is None else str(row["n_pairs"])),
    "diverged": Column("diverged", lambda row, unit: str(row["diverged"])),
    "failed": Column("failed", lambda row, unit: str(row["failed"])),
    "missing": Column("missing", lambda row, unit: str(row["missing"])),
    "notes": Column("notes", lambda row, unit: "; ".join(row["notes"]), numeric=False),
}
INTERVAL = "_ci95"  # after the name of what it is of
SHOWN = (
    *("arm", "n", "mean", "delta", "delta_ci95_images", "delta_ci95_simultaneous"),
    *("p_holm", "verdict", "margin_met", "published", "params", "flops"),
)
NOTES = ("all", "short", "none")
COMPARED = {  # of an arm and its baseline
    *("delta", "delta_ci95", "delta_ci95_images", "delta_ci95_simultaneous", "p", "p_holm", "verdict", "margin_met"),
}
WHERE_KNOWN = ("delta_ci95_images", "delta_ci95_simultaneous", "margin_met", "published")  # shown where a row has one
JUDGED = ("p_holm", "verdict")  # not shown of a table without verdicts


def render(table: Table, format: str, columns: Sequence[str] | None = None, notes: str | None = None) -> str:
    """The table in one of FORMATS, with NOTES of a kind: in LaTeX usually the short ones.

    Raises ValueError for another format or column.
    """
    check(columns, table)
    about = columns or (list(COLUMNS) if format in ("csv", "json") else shown(table))
    table = abridged(table, about, notes or usual_notes(format))
    if format == "csv":
        return as_csv(flat_rows([table], columns))
    if format == "json":
        rows = [{name: row[name] for name in columns or row} for row in table["rows"]]
        return json.dumps({**table, "rows": rows}, indent=1, allow_nan=False)
    return written(as_grid(table, columns or shown(table)), format)


def marked(table: Table) -> list[Row]:
    """The rows, each verdict that more trials may change called interim."""
    rows: list[Row] = table["rows"]
    if not table["interim"]:
        return rows
    return [{**row, "verdict": row["verdict"] and f"{row['verdict']} (interim)"} for row in rows]


def usual_notes(format: str) -> str:
    """A paper has little room, and a text of its own."""
    return "short" if format == "latex" else "all"


def abridged(table: Table, columns: Sequence[str], notes: str) -> Table:
    """The table with the notes of one of NOTES.

    all: everything. short: the footnotes about what is in `columns`, and in what trials differ. none: of these only
    those without which a number would mislead: trials that are missing or diverged, what limits a difference.
    """
    if notes == "all":
        return table
    rows = [
        row | {"notes": [note for note in row["notes"] if stays(note, table["notes_of"], columns, notes)]}
        for row in table["rows"]
    ]
    where = " trials: "  # what follows it is which: code differs between trials: ...
    told = [note.partition(where)[0] + " trials" if where in note else note for note in table["notes"]]
    told = told if notes == "short" else []
    return {**table, "rows": rows, "notes": told, "abridged": True}


def stays(note: str, of: Mapping[str, Any], columns: Sequence[str], notes: str) -> bool:
    """of: the notes of arms and of differences, and by note the column that one is about, if not the arm itself."""
    if note in of["differences"]:
        return not COMPARED.isdisjoint(columns)
    if note in of["arms"]:
        return notes == "short" and of["columns"].get(note, "arm") in columns
    return True


def check(columns: Sequence[str] | None, table: Table) -> None:
    """Raises ValueError for a column that is not there, and for one that is twice."""
    for name in columns or ():
        if name not in COLUMNS and name.removesuffix(INTERVAL) not in table["besides"]:
            raise unknown(name, table["besides"])
        if columns and columns.count(name) > 1:
            raise ValueError(f"columns={','.join(columns)}: {name} is there twice")


def unknown(name: str, measured: Sequence[str]) -> ValueError:
    """measured: what there is besides, each also with _ci95."""
    known = list(dict.fromkeys([*COLUMNS, *measured]))
    return ValueError(f"columns={name}: one of {', '.join(known)}{nearest(name, known)}")


def written(content: Grid, format: str) -> str:
    """Raises ValueError for a format that is none of FORMATS."""
    if format not in grid.WRITERS:
        raise ValueError(f"format={format}: one of {', '.join(FORMATS)}{nearest(format, FORMATS)}")
    return grid.WRITERS[format](content)


def shown(table: Table) -> list[str]:
    rows = table["rows"]
    columns = [name for name in SHOWN if table["judged"] or name not in JUDGED]
    return [name for name in columns if name not in WHERE_KNOWN or any(row[name] is not None for row in rows)]


def as_grid(table: Table, columns: Sequence[str]) -> Grid:
    unit = units.unit(table["metric"])
    marks, footnotes = grid.number([row["notes"] for row in table["rows"]])
    rows = []
    for row, mark in zip(marked(table), marks, strict=True):
        cells = [Cell(column(name).text(row, unit), sort=sortable(row[name])) for name in columns]
        rows.append([Cell(cells[0].text, cells[0].sort, mark), *cells[1:]])
    return Grid(
        title=f"{table['name']}: {table['question']}",
        caption=captions(table, columns),
        header=[column(name).header.format(metric=label(table["metric"], table["objective"])) for name in columns],
        numeric=[column(name).numeric for name in columns],
        rows=rows,
        footnotes=footnotes,
        closing=closing(table, columns),
    )


def sortable(value: Any) -> float | str | None:
    """An interval sorts by its middle."""
    if isinstance(value, list):
        return ", ".join(value) if value and isinstance(value[0], str) else sum(value) / 2 if value else None
    return value  # type: ignore[no-any-return]  # JSON: a number, a text or None


def label(metric: str, objective: str = "") -> str:
    return current().labels.get(metric) or units.name(metric, objective)


def captions(table: Table, columns: Sequence[str]) -> list[str]:
    """What the numbers are, whether they are all there will be, and where the baseline is not as the recipe says."""
    return [caption(table, columns), *filter(None, [sentences.unfinished(table), sentences.departing(table)])]


def caption(table: Table, columns: Sequence[str]) -> str:
    """What the numbers are: n, units, test, family, margin."""
    unit, split = units.unit(table["metric"]), table["split"]
    measured = label(table["metric"], table["objective"])
    tests = {"folds": f"each on one of {split.get('folds')} folds of {split['images']:,} images"}
    tested = tests.get(split["kind"], f"all on the same {split['images']:,} test images")
    also = "".join(f", {label(name)}{in_unit(units.unit(name))}" for name in besides(columns))
    parts = [
        f"{sentences.seeds(table['rows'])}, {tested}",
        f"{measured}{in_unit(unit)}{also}, ± is the 95% t interval, not adjusted",
        f"difference{f' in{unit.of_difference}' if unit.of_difference else ''} from {reference(table)}, paired by seed",
        f"p after Holm over {families(table)}",
    ]
    if table["tuned"]:
        own = " and ".join(table["tuned"])
        parts.append(f"each at its own {own}, p is the largest against any point of the other's grid")
    if table["budget"] != "steps":
        parts.append(f"arms are trained for equal {BUDGETS[table['budget']]}")
    if "delta_ci95_simultaneous" in columns:
        parts.append("simultaneous: 95% for all contrasts of a family at once (max-t)")
    if table["margin"] is not None:
        parts.append(f"equivalent: within {unit.size(table['margin'])}, after Holm too")
    if "margin_met" in columns:
        parts.append("margin met: the smallest that holds the 90% interval, not adjusted")
    return "; ".join(parts) + "."


def in_unit(unit: Unit) -> str:
    return f" in {unit.of_value}" if unit.of_value else ""


def families(table: Table) -> str:
    """How many contrasts p is corrected for."""
    if not table["tuned"]:
        return counted(table["family"])
    own = f"{counted(table['family'])} at their own {' and '.join(table['tuned'])}"
    return f"{own}, over {table['points_family']} at equal ones"


def counted(family: int) -> str:
    """ "7 planned contrasts" """
    return f"{family} planned contrast{'' if family == 1 else 's'}"


def reference(table: Table) -> str:
    baselines = {row["baseline"] for row in table["rows"]}
    return "the baseline at the same point" if len(baselines) > 1 else current().label(table["baseline"])


def closing(table: Table, columns: Sequence[str]) -> list[str]:
    """Below the footnotes: what is published, the answer, the claims, what to know, what is not covered."""
    short = table.get("abridged", False)
    lines = [dagger(table)] if "published" in columns else []
    lines += [] if short else [f"Answer: {sentences.answer(table)}"]
    if table["interactions"]:  # results that stand in no row
        told = "; ".join(interaction.sentence(one, table["metric"]) for one in table["interactions"])
        corrected = f"Holm over {len(table['interactions'])}"
        lines.append(f"Interactions (together - each alone + baseline, paired by seed, {corrected}): {told}.")
    if table["claims"] and not short:
        judged = [f"{claims.with_labels(c['claim'])}: {claims.verdict_text(c['verdict'])}" for c in table["claims"]]
        lines.append(f"Claims of {origin(table)}: {'; '.join(judged)}.")
    lines += [f"Note: {note}." for note in table["notes"]]
    return lines + ([] if short else [f"Not covered: {caveat}" for caveat in table["caveats"]])


def dagger(table: Table) -> str:
    """What † says of published numbers."""
    return f"† {measured_in(table)}: another setting, shown beside ours, not compared."


def origin(table: Table) -> str:
    """Whose claims they are: a study need not name a source."""
    return table["source"] or "the study"


def measured_in(table: Table) -> str:
    """Where the published numbers stand, and what they are of."""
    return table["published_of"] or "the study"


# -- CSV -----------------------------------------------------------------------------------------------------

INTERACTION = {  # column: what it is of an interaction
    name if name == "interaction" else f"interaction_{name}": name
    for name in ("interaction", "ci95", "logit", "logit_ci95", "n", "p", "p_holm", "verdict", "notes")
}


def flat_rows(tables: Sequence[Table], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The arms of the tables; an interaction stands beside the arm that has both changes, where a table has any.

    Chosen columns are all that there is.
    """
    names = columns or [*COLUMNS, *(INTERACTION if any(table["interactions"] for table in tables) else ())]
    return [flat(row, names) for table in tables for row in with_interactions(table)]


def with_interactions(table: Table) -> list[Row]:
    found = {one["name"]: one for one in table["interactions"]}
    none: Row = {"notes": []}
    return [
        {**row, **{name: found.get(row["arm"], none).get(key) for name, key in INTERACTION.items()}}
        for row in marked(table)
    ]


def flat(row: Row, columns: Sequence[str]) -> dict[str, Any]:
    """Intervals become two columns, notes one."""
    cells: dict[str, Any] = {}
    for name in columns:
        if "ci95" in name:
            cells[f"{name}_low"], cells[f"{name}_high"] = row[name] or (None, None)
        else:
            cells[name] = "; ".join(row[name]) if name.endswith("notes") else row[name]
    return cells


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Raw numbers, full precision; no text starts a spreadsheet formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(harmless, rows[0]))
    writer.writerows(map(harmless, row.values()) for row in rows)
    return text.getvalue().rstrip("\n")


def harmless(value: Any) -> Any:
    """A text on one line; one that a spreadsheet would take for a formula gets an apostrophe."""
    if not isinstance(value, str):
        return value
    text = " ".join(value.split())
    return f"'{text}" if text.startswith(tuple("=+-@")) else text
