"""The comparison with a publication: its claims, judged by our trials, and its numbers, shown without a test.

Published numbers come from another setting, so only the order of two arms can be compared.
"""

from collections import Counter
from collections.abc import Sequence

from results.comparison import compare, summary
from results.records import (
    UNRESOLVED,
    VERDICT_TEXT,
    Claim,
    PublishedClaim,
    PublishedComparison,
    PublishedNumber,
    PublishedRow,
    Sources,
    Table,
    json_object,
    parse_claim,
    study_fields,
    with_labels,
)
from results.study_results import StudyResults
from results.tables import formats, layout, sentences, study_table
from results.tables.formats import Cell, Grid

NAME = "published"  # the name of the second set of results on the command line


def compare_published(studies: Sequence[StudyResults], interim: bool = False) -> PublishedComparison:
    """Return the judged claims and the arms with published numbers.

    interim: whether to judge claims before all planned trials are over. Raises ValueError without claims and numbers.
    """
    tables = [study_table.table(study, interim=interim) for study in studies]
    judged = [claim_row(claim, table) for table in tables for claim in table.claims]
    rows = [
        PublishedRow(
            **study_fields(table.plan),
            arm=row.arm,
            a=compare.arm_results(row),
            b=PublishedNumber(row.published),
            notes=compare.metric_notes(table.plan.primary_metric),
        )
        for table in tables
        for row in table.rows
        if row.published is not None
    ]
    if not judged and not rows:
        names = ", ".join(study.name for study in studies)
        raise ValueError(f"{NAME}: no claim and no published number in {names}")
    numbered = [table for table in tables if any(row.published is not None for row in table.rows)]
    return PublishedComparison(
        a=compare.contents(studies),
        b=Sources(
            studies=[f"{t.plan.name}: {t.plan.source or 'the study'}" for t in tables if t.claims or t in numbered],
            published_of=[f"{table.plan.name}: {layout.published_source(table)}" for table in numbered],
        ),
        rows=rows,
        claims=judged,
        provenance={},
        verdicts=dict(Counter(VERDICT_TEXT[claim.verdict] for claim in judged)),
    )


def claim_row(claim: Claim, table: Table) -> PublishedClaim:
    """Return a claim with its published difference and notes, such as a bound on an unresolved difference."""
    published = {row.arm: row.published for row in table.rows}
    a, _, b = parse_claim(claim.claim)
    left = published.get(a)
    right = published.get(b)
    sign = -1 if claim.of == f"{b} - {a}" else 1
    notes = [*compare.metric_notes(table.plan.primary_metric), claim.note, *table.warnings]
    if claim.verdict == UNRESOLVED and claim.delta_ci95:
        notes.append(sentences.bound_text([claim.delta_ci95], table.plan.primary_metric))
    return PublishedClaim(
        **study_fields(table.plan),
        **json_object(claim),
        published_delta=None if left is None or right is None else sign * (left - right),
        notes=[note for note in notes if note],
    )


def render(comparison: PublishedComparison, format: str) -> str:
    """Return the comparison as a document in one of formats.TABLE_FORMATS.

    CSV has the claims only. Raises ValueError for an unknown format, or for CSV without claims.
    """
    if format == "csv" and not comparison.claims:
        raise ValueError("format=csv: no claim to write; `ablate table --format csv` has the published numbers")
    parts = (claims_grid, comparison.claims), (arms_grid, comparison.rows)
    return formats.document(
        format,
        grids=lambda: [lay_out(comparison) for lay_out, part in parts if part],
        rows=lambda: [layout.flat_cells(json_object(claim)) for claim in comparison.claims],
        record=lambda: comparison,
    )


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
    return Grid(
        title="What is claimed, judged by our trials",
        caption=[
            "ours: the difference as in the study's table, or else the first arm minus the second, paired by seed, "
            "± is the 95% t interval, accuracies in points; "
            "published†: the same difference of the published numbers."
        ],
        header=["study", "claim", "ours", "pairs", "p (Holm)", "published†", "verdict"],
        numeric=[False, False, True, True, True, True, False],
        rows=rows,
        closing=[*dagger_lines(comparison), f"Of {len(rows)} claim{'' if len(rows) == 1 else 's'}: {counts}."],
        label=" ".join(["claims", *comparison.a.studies]),
    )


def arms_grid(comparison: PublishedComparison) -> Grid:
    rows = []
    for row in comparison.rows:
        names = [Cell(row.name, row.name), Cell(row.arm, row.arm, row.notes)]
        rows.append([*names, *summary.side_cells(row.a, row.metric), published_cell(row)])
    return Grid(
        title="Ours and the published numbers, side by side",
        caption=["Accuracies in %, ± is the 95% t interval; another setting, so there is no difference between them."],
        header=["study", "arm", "ours", "n", "published†"],
        numeric=[False, False, True, True, True],
        rows=rows,
        closing=[] if comparison.claims else dagger_lines(comparison),
        label=" ".join(["published", *comparison.a.studies]),
    )


def published_cell(row: PublishedRow) -> Cell:
    return Cell(row.metric.value_text(row.b.mean), row.b.mean)


def dagger_lines(comparison: PublishedComparison) -> list[str]:
    """Return the line that explains the † of published numbers, or [] if there are no published numbers."""
    return [layout.dagger_line("; ".join(comparison.b.published_of))] if comparison.b.published_of else []
