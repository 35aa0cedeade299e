"""Beside the paper: what a study's source claims, judged by our trials; its numbers, shown and not compared.

Published numbers come from another setting. What can be said of both is how two arms stand to each other.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from results import units
from results.comparison import compare
from results.statistics import claims
from results.study_results import StudyResults
from results.tables import grid, layout, sentences, study_table
from results.tables.grid import Cell, Grid

Json = dict[str, Any]
Table = Mapping[str, Any]

NAME = "published"  # in the place of a second set of results


def beside(studies: Sequence[StudyResults]) -> Json:
    """What `ablate compare A published --format json` prints.

    rows: the arms that have a published number, without a verdict; claims: each declared one, with what it rests on and
    the difference that was published. Raises ValueError where no study has either.
    """
    found = [study_table.table(study) for study in studies]
    judged = [claim_row(claim, table) for table in found for claim in table["claims"]]
    rows = [arm_row(row, table) for table in found for row in table["rows"] if row["published"] is not None]
    if not judged and not rows:
        names = ", ".join(study.name for study in studies)
        raise ValueError(f"{NAME}: no claim and no published number in {names}")
    return {
        "a": compare.described(studies),
        "b": {"studies": sources(found), "published_of": places(found)},
        "rows": rows,
        "claims": judged,
        "provenance": {},
        "verdicts": dict(Counter(claims.verdict_text(claim["verdict"]) for claim in judged)),
    }


def sources(found: Sequence[Table]) -> list[str]:
    """Of each study that has something to set beside, by whom."""
    there = [table for table in found if table["claims"] or any(row["published"] is not None for row in table["rows"])]
    return [f"{table['name']}: {layout.origin(table)}" for table in there]


def places(found: Sequence[Table]) -> list[str]:
    """Of each study that has published numbers, where they stand."""
    there = [table for table in found if any(row["published"] is not None for row in table["rows"])]
    return [f"{table['name']}: {layout.measured_in(table)}" for table in there]


def claim_row(claim: Mapping[str, Any], table: Table) -> Json:
    """A judged claim with the difference that was published, where both of its arms have a number."""
    published = {row["arm"]: row["published"] for row in table["rows"]}
    a, _, b = claims.parse_claim(claim["claim"])
    there = published.get(a) is not None and published.get(b) is not None
    return {
        "study": table["study"],
        "recipe": table["recipe"],
        "name": table["name"],
        "metric": table["metric"],
        **claim,
        "published_delta": published[a] - published[b] if there else None,
        "notes": [
            note
            for note in (
                *compare.measured(table["metric"], table["objective"]),
                claim["note"],
                unresolved(claim, table),
            )
            if note
        ],
    }


def unresolved(claim: Mapping[str, Any], table: Table) -> str:
    """How large a difference may be that is not resolved."""
    if claim["verdict"] != claims.UNRESOLVED or not claim["delta_ci95"]:
        return ""
    return sentences.bound([claim["delta_ci95"]], units.unit(table["metric"]))


def arm_row(row: Mapping[str, Any], table: Table) -> Json:
    """An arm as `ablate compare` has them; what was published is one number."""
    return {
        "study": table["study"],
        "recipe": table["recipe"],
        "name": table["name"],
        "metric": table["metric"],
        "arm": row["arm"],
        "a": {name: row[name] for name in ("mean", "n", "ci95", "planned", "diverged", "failed", "missing")},
        "b": {"mean": row["published"], "n": None, "ci95": None},
        **dict.fromkeys(("delta", "delta_ci95", "p_holm", "verdict")),
        "untested": "other setting",
        "notes": compare.measured(table["metric"], table["objective"]),
    }


# -- rendering ---------------------------------------------------------------------------------------------------------


def render(found: Json, format: str) -> str:
    """As md, latex, csv (the claims), json or html. Raises ValueError for another format and for CSV without claims."""
    if format == "json":
        return json.dumps(found, indent=1, allow_nan=False)
    if format == "csv":
        return as_csv(found)
    grids = [claims_grid(found)] * bool(found["claims"]) + [arms_grid(found)] * bool(found["rows"])
    return "\n\n".join(layout.written(one, format) for one in grids)


def as_csv(found: Json) -> str:
    if not found["claims"]:
        raise ValueError("format=csv: no claim to write; `ablate table --format csv` has the published numbers")
    return layout.as_csv([layout.flat(row, list(row)) for row in found["claims"]])


def claims_grid(found: Json) -> Grid:
    marks, footnotes = grid.number([claim["notes"] for claim in found["claims"]])
    return Grid(
        title="What is claimed, judged by our trials",
        caption=[
            "ours: the first arm minus the second, paired by seed, ± is the 95% t interval, accuracies in points; "
            "published†: the same difference of the published numbers."
        ],
        header=["study", "claim", "ours", "pairs", "p (Holm)", "published†", "verdict"],
        numeric=[False, False, True, True, True, True, False],
        rows=[claim_cells(claim, mark) for claim, mark in zip(found["claims"], marks, strict=True)],
        footnotes=footnotes,
        closing=[*dagger(found), *tally(found)],
        label=" ".join(["claims", *found["a"]["studies"]]),
    )


def claim_cells(claim: Json, marks: tuple[int, ...]) -> list[Cell]:
    unit = units.unit(claim["metric"])
    return [
        Cell(claim["name"], claim["name"]),
        Cell(claims.with_labels(claim["claim"]), claim["claim"], marks),
        Cell(layout.plus_minus(unit.signed(claim["delta"]), claim["delta_ci95"], unit), claim["delta"]),
        Cell("" if claim["n_pairs"] is None else str(claim["n_pairs"]), claim["n_pairs"]),
        Cell(units.probability(claim["p_holm"]), claim["p_holm"]),
        Cell(unit.signed(claim["published_delta"]), claim["published_delta"]),
        Cell(claims.verdict_text(claim["verdict"]), claim["verdict"]),
    ]


def arms_grid(found: Json) -> Grid:
    marks, footnotes = grid.number([row["notes"] for row in found["rows"]])
    return Grid(
        title="Ours and the published numbers, side by side",
        caption=["Accuracies in %, ± is the 95% t interval; another setting, so there is no difference between them."],
        header=["study", "arm", "ours", "n", "published†"],
        numeric=[False, False, True, True, True],
        rows=[arm_cells(row, mark) for row, mark in zip(found["rows"], marks, strict=True)],
        footnotes=footnotes,
        closing=[] if found["claims"] else dagger(found),
        label=" ".join(["published", *found["a"]["studies"]]),
    )


def arm_cells(row: Json, marks: tuple[int, ...]) -> list[Cell]:
    unit, ours = units.unit(row["metric"]), row["a"]
    return [
        Cell(row["name"], row["name"]),
        Cell(row["arm"], row["arm"], marks),
        Cell(layout.plus_minus(unit.value(ours["mean"]), ours["ci95"], unit), ours["mean"]),
        Cell(layout.of_planned(ours, unit), ours["n"]),
        Cell(unit.value(row["b"]["mean"]), row["b"]["mean"]),
    ]


def dagger(found: Json) -> list[str]:
    of = "; ".join(found["b"]["published_of"])
    return [f"† {of}: another setting, shown beside ours, not compared."] if of else []


def tally(found: Json) -> list[str]:
    """ "Of 5 claims: agrees 4, not resolved 1." """
    counts = ", ".join(f"{word} {count}" for word, count in found["verdicts"].items())
    number = len(found["claims"])
    return [f"Of {number} claim{'' if number == 1 else 's'}: {counts}."]
