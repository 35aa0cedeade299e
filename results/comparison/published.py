"""The comparison with a publication: its claims, judged by our trials, and its numbers, shown without a test.

Published numbers come from another setting, so only the order of two arms can be compared.
"""

from collections import Counter
from collections.abc import Sequence

from results.claim_text import UNRESOLVED, VERDICT_TEXT, parse_claim, with_labels
from results.comparison import compare, summary
from results.comparison.records import PublishedClaim, PublishedComparison, PublishedNumber, PublishedRow, Sources
from results.records import Claim, Row, Table, as_json, json_object, study_fields
from results.study_results import StudyResults
from results.tables import formats, layout, sentences, study_table
from results.tables.formats import Cell, Grid
from results.units import amount_text

NAME = "published"  # the name of the second set of results on the command line


def compare_published(studies: Sequence[StudyResults], interim: bool = False) -> PublishedComparison:
    """Return the judged claims and the arms with published numbers.

    interim: whether to judge before all trials are over. Raises ValueError without claims and numbers.
    """
    judged = []
    rows = []
    sources = []
    published_of = []
    for study in studies:
        table = study_table.table(study, interim=interim)
        judged += [claim_row(claim, table) for claim in table.claims]
        numbered = [published_row(row, table) for row in table.rows if row.published is not None]
        rows += numbered
        if table.claims or numbered:
            sources.append(f"{study.name}: {table.plan.source or 'the study'}")
        if numbered:
            published_of.append(f"{study.name}: {layout.published_source(table)}")
    if not sources:
        names = ", ".join(study.name for study in studies)
        raise ValueError(f"{NAME}: no claim and no published number in {names}")
    return PublishedComparison(
        a=compare.contents(studies),
        b=Sources(sources, published_of),
        rows=rows,
        claims=judged,
        provenance={},
        verdicts=dict(Counter(VERDICT_TEXT[claim.verdict] for claim in judged)),
    )


def published_row(row: Row, table: Table) -> PublishedRow:
    return PublishedRow(
        **study_fields(table.plan),
        arm=row.arm,
        a=compare.arm_results(row),
        b=PublishedNumber(row.published),
        notes=compare.metric_notes(table.plan.primary_metric),
    )


def claim_row(claim: Claim, table: Table) -> PublishedClaim:
    rows = table.rows_by_arm
    a, _, b = parse_claim(claim.claim)
    left = getattr(rows.get(a), "published", None)
    right = getattr(rows.get(b), "published", None)
    difference = None
    if left is not None and right is not None:
        difference = left - right
        if claim.of == f"{b} - {a}":
            difference = right - left
    notes = [*compare.metric_notes(table.plan.primary_metric), claim.note, *table.warnings]
    if claim.verdict == UNRESOLVED and claim.delta_ci95:
        notes.append(sentences.bound_text([claim.delta_ci95], table.plan.primary_metric))
    return PublishedClaim(
        **study_fields(table.plan), **json_object(claim), published_delta=difference, notes=list(filter(None, notes))
    )


def render(comparison: PublishedComparison, format: str) -> str:
    """Return the comparison in one of TABLE_FORMATS. Raises ValueError for another, or for CSV without claims."""
    if format == "csv" and not comparison.claims:
        raise ValueError("format=csv: no claim to write; `ablate table --format csv` has the published numbers")
    form = formats.find_format(format)
    if form.write:
        return "\n\n".join(map(form.write, grids(comparison)))
    if format == "csv":
        return formats.as_csv([layout.flat_cells(json_object(claim)) for claim in comparison.claims])
    return as_json(comparison)


def grids(comparison: PublishedComparison) -> list[Grid]:
    tables = []
    if comparison.claims:
        tables.append(claims_grid(comparison))
    if comparison.rows:
        tables.append(arms_grid(comparison))
    return tables


def claims_grid(comparison: PublishedComparison) -> Grid:
    rows = []
    for claim in comparison.claims:
        cells = [
            Cell(claim.name, claim.name),
            Cell(with_labels(claim.claim), claim.claim, claim.notes),
            *summary.difference_cells(claim),
            Cell(claim.metric.signed_text(claim.published_delta), claim.published_delta),
            Cell(VERDICT_TEXT[claim.verdict], claim.verdict),
        ]
        rows.append(cells)
    counts = ", ".join(f"{word} {count}" for word, count in comparison.verdicts.items())
    amount = amount_text(len(rows), "claim")
    return Grid(
        title="What is claimed, judged by our trials",
        caption=[
            "ours: the difference as in the study's table, or else the first arm minus the second, paired alike, "
            "± is the 95% t interval, accuracies in points; "
            "published†: the same difference of the published numbers."
        ],
        header=["study", "claim", "ours", "pairs", "p (Holm)", "published†", "verdict"],
        numeric=[False, False, True, True, True, True, False],
        rows=rows,
        closing=[*dagger_lines(comparison), f"Of {amount}: {counts}."],
        label=" ".join(["claims", *comparison.a.studies]),
    )


def arms_grid(comparison: PublishedComparison) -> Grid:
    rows = []
    for row in comparison.rows:
        names = [Cell(row.name, row.name), Cell(row.arm, row.arm, row.notes)]
        published = Cell(row.metric.value_text(row.b.mean), row.b.mean)
        rows.append([*names, *summary.side_cells(row.a, row.metric), published])
    return Grid(
        title="Ours and the published numbers, side by side",
        caption=["Accuracies in %, ± is the 95% t interval; another setting, so there is no difference between them."],
        header=["study", "arm", "ours", "n", "published†"],
        numeric=[False, False, True, True, True],
        rows=rows,
        closing=[] if comparison.claims else dagger_lines(comparison),
        label=" ".join(["published", *comparison.a.studies]),
    )


def dagger_lines(comparison: PublishedComparison) -> list[str]:
    if not comparison.b.published_of:
        return []
    return [layout.dagger_line("; ".join(comparison.b.published_of))]
