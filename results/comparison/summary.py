"""A comparison for people: the table, what else differs, and what a gate in CI says."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from results import units
from results.comparison.compare import IDENTICAL
from results.statistics import verdict
from results.tables import grid, layout
from results.tables.grid import Cell, Grid

Json = Mapping[str, Any]


def render(comparison: Json, format: str) -> str:
    """The comparison as md, latex, csv, json or html. Raises ValueError for another format."""
    if format == "json":
        return json.dumps(comparison, indent=1, allow_nan=False)
    if format == "csv":
        return layout.as_csv([flat(row) for row in comparison["rows"]])
    return layout.written(as_grid(comparison), format)


def flat(row: Json) -> Json:
    """One line of a CSV file."""
    low, high = row["delta_ci95"] or (None, None)
    both = {f"{side}_{name}": (row[side] or {}).get(name) for side in ("a", "b") for name in ("mean", "n", "planned")}
    plain = {name: row[name] for name in ("study", "recipe", "arm", "metric")}
    last = ("p", "p_holm", "verdict", "untested", "resolvable_difference", "method", "n_pairs")
    tail = {name: row[name] for name in last}
    return {
        **plain,
        **both,
        "delta": row["delta"],
        "delta_ci95_low": low,
        "delta_ci95_high": high,
        **tail,
        "notes": "; ".join(row["notes"]),
    }


def as_grid(comparison: Json) -> Grid:
    marks, footnotes = grid.number([row["notes"] for row in comparison["rows"]])
    return Grid(
        title="B against A, arm by arm",
        caption=[caption(comparison)],
        header=["study", "arm", "A", "n", "B", "n", "B - A", "pairs", "p (Holm)", "verdict"],
        numeric=[False, False, True, True, True, True, True, True, True, False],
        rows=[cells(row, mark) for row, mark in zip(comparison["rows"], marks, strict=True)],
        footnotes=footnotes,
        closing=closing(comparison),
        label=" ".join(["compare", *dict.fromkeys([*comparison["a"]["studies"], *comparison["b"]["studies"]])]),
    )


def cells(row: Json, marks: tuple[int, ...]) -> list[Cell]:
    unit = units.unit(row["metric"])
    a, b = row["a"] or {}, row["b"] or {}
    return [
        Cell(row["name"], row["name"]),
        Cell(row["arm"], row["arm"], marks),
        *(cell for side in (a, b) for cell in reached_cells(side, unit)),
        Cell(layout.plus_minus(unit.signed(row["delta"]), row["delta_ci95"], unit), row["delta"]),
        Cell("" if row["n_pairs"] is None else str(row["n_pairs"]), row["n_pairs"]),
        Cell(units.probability(row["p_holm"]), row["p_holm"]),
        Cell(word(row), row["verdict"]),
    ]


def word(row: Json) -> str:
    """The verdict, else why there is none."""
    return str(row["verdict"]).replace("-", " ") if row["verdict"] else f"– ({row['untested']})"


def reached_cells(side: Json, unit: units.Unit) -> list[Cell]:
    if not side:
        return [Cell(""), Cell("")]
    mean = layout.plus_minus(unit.value(side["mean"]), side["ci95"], unit)
    return [Cell(mean, side["mean"]), Cell(layout.of_planned(side, unit), side["n"])]


def caption(comparison: Json) -> str:
    sides = " ".join(
        f"{name}: {', '.join(side['studies'])} ({side['over']} of {side['planned']} trials)."
        for name, side in (("A", comparison["a"]), ("B", comparison["b"]))
    )
    interval = "± is the 95% t interval, not adjusted"
    tested = f"paired by seed, {interval}, p after Holm in a family of {comparison['family']}"
    return f"{sides} Accuracies in %, differences in points; {tested}."


def closing(comparison: Json) -> list[str]:
    """How many arms got which verdict or none, what could have been seen, and what else differs."""
    counts = Counter(word(row) for row in comparison["rows"])
    summary = ", ".join(f"{count} {text.replace('– ', 'untested ')}" for text, count in counts.items()) or "none"
    lines = [f"Of {len(comparison['rows'])} arms: {summary}."]
    if seen := could_see(comparison):
        lines.append(f"{seen[0].upper()}{seen[1:]}.")
    for name, both in comparison["provenance"].items():
        lines.append(f"{name} differs: A {', '.join(both['a']) or 'unknown'}; B {', '.join(both['b']) or 'unknown'}.")
    return lines


def could_see(comparison: Json) -> str:
    """ "differences from 1.90 points would have been seen (80% power)", by metric; "" where nothing was tested."""
    smallest: dict[tuple[str, str], list[float]] = {}
    for row in comparison["rows"]:
        if row["resolvable_difference"] is not None:
            named = units.name(row["metric"], row["objective"])
            smallest.setdefault((row["metric"], named), []).append(row["resolvable_difference"])
    if not smallest:
        return ""
    several = len(smallest) > 1
    found = [
        f"{spread(values, units.unit(metric))}{f' of {named}' if several or named != units.name(metric) else ''}"
        for (metric, named), values in smallest.items()
    ]
    return f"differences of {', '.join(found)} or more would have been seen (80% power)"


def spread(values: Sequence[float], unit: units.Unit) -> str:
    """ "1.90 points", "1.90 to 2.40 points" """
    low, high = unit.bound(min(values)), unit.bound(max(values))
    return high if low == high else f"{low.removesuffix(unit.of_difference)} to {high}"


def failing(comparison: Json, margin: float | None) -> list[Json]:
    """The rows for which `--fail-on worse` fails: worse, or with a margin not shown to be worse by less than that."""
    if margin is None:
        return [row for row in comparison["rows"] if row["verdict"] == verdict.WORSE]
    rows = [row for row in comparison["rows"] if row["method"]]  # of the arms that both have
    return [row for row in rows if row["worse_by_at_most"] is None or row["worse_by_at_most"] >= margin]


def gate(comparison: Json, margin: float | None = None) -> str:
    """What `--fail-on worse` says: what fails it, of how many, and what it could have seen."""
    rows, failed = comparison["rows"], failing(comparison, margin)
    if margin is None:
        tested = sum(row["p_holm"] is not None for row in rows)
        named = [f"{row['arm']} of {row['name']} {by(row)}" for row in failed]
        found = f"{len(failed)} of {tested} tested arms worse"
    else:
        compared = sum(row["method"] is not None for row in rows)
        named = [f"{row['arm']} of {row['name']}: {at_most(row)}" for row in failed]
        found = f"{len(failed)} of {compared} arms not shown to be worse by less than {margin:g}"
    found += f" ({', '.join(named)})" if named else ""
    rest = [f"{count} {text}" for text, count in Counter(outside(row) for row in rows).items() if text]
    return "; ".join(part for part in (found, could_see(comparison), ", ".join(rest)) if part)


def by(row: Json) -> str:
    """ "by 6.20 points"; of trials that diverged, how many."""
    if row["delta_ci95"] is None:
        return f"as {row['b']['diverged']} of {row['b']['planned']} trials diverged"
    return f"by {units.unit(row['metric']).size(row['delta'])}"


def at_most(row: Json) -> str:
    """ "up to 6.20 points", or why nothing bounds it."""
    if row["worse_by_at_most"] is None:
        return row["untested"] or f"{row['b']['diverged']} of {row['b']['planned']} trials diverged"
    return f"up to {units.unit(row['metric']).bound(row['worse_by_at_most'])}"


def was_compared(comparison: Json) -> bool:
    """Whether a test was made, or every arm of both is the same: what was lost passes no gate."""
    rows = comparison["rows"]
    tested = any(row["p_holm"] is not None for row in rows)
    return tested or (bool(rows) and all(row["worse_by_at_most"] is not None for row in rows))


def outside(row: Json) -> str:
    """What kept a row out of the tests; "" where nothing did."""
    return IDENTICAL if row["verdict"] == IDENTICAL else str(row["untested"] or "")
