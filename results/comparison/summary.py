"""The output of a comparison of results A and B: the table, and the report for a CI gate."""

from collections import Counter, defaultdict
from typing import Any

from results import units
from results.comparison.records import ComparedRow, Comparison, Contents, PublishedClaim
from results.comparison.testing import IDENTICAL
from results.records import Reached, as_json
from results.statistics import verdict
from results.store.schemas.base import Plain
from results.store.schemas.metrics import Metric, margin_bound, share_text
from results.tables import cell_text, formats, layout, sentences
from results.tables.formats import Cell, Grid

TESTED = (  # columns of CSV
    *("delta", "delta_ci95", "p", "p_holm", "verdict", "untested", "resolvable_difference", "method", "n_pairs"),
    "notes",
)


def render(comparison: Comparison, format: str) -> str:
    """Return the comparison as a document in one of TABLE_FORMATS. Raises ValueError for another format."""
    form = formats.find_format(format)
    if form.write:
        return form.write(as_grid(comparison))
    if format == "csv":
        return formats.as_csv(list(map(csv_row, comparison.rows)))
    return as_json(comparison)


def csv_row(row: ComparedRow) -> dict[str, Plain]:
    values: dict[str, Any] = {"study": row.study, "recipe": row.recipe, "arm": row.arm, "metric": row.metric.name}
    for name, side in (("a", row.a), ("b", row.b)):
        for field in ("mean", "n", "planned"):
            values[f"{name}_{field}"] = getattr(side, field, None)
    for field in TESTED:
        values[field] = getattr(row, field)
    if row.verdict:
        values["verdict"] = f"{row.verdict}{marks(row)}"
    return layout.flat_cells(values)


def as_grid(comparison: Comparison) -> Grid:
    a = comparison.a
    b = comparison.b
    methods = {row.method for row in comparison.rows if row.method}
    paired = "unpaired (Welch)" if methods == {"welch"} else "paired by seed"
    tested = f"{paired}, {cell_text.INTERVALS}"
    if comparison.family:
        tested += f", p after Holm in a family of {comparison.family}"
    return Grid(
        title="B against A, arm by arm",
        caption=[f"A: {contents_text(a)} B: {contents_text(b)} Accuracies in %, differences in points; {tested}."],
        header=["study", "arm", "A", "n", "B", "n", "B - A", "pairs", "p (Holm)", "verdict"],
        numeric=[False, False, True, True, True, True, True, True, True, False],
        rows=list(map(row_cells, comparison.rows)),
        closing=closing_lines(comparison),
        label=" ".join(["compare", *dict.fromkeys([*a.studies, *b.studies])]),
    )


def contents_text(side: Contents) -> str:
    return f"{', '.join(side.studies)} ({side.over} of {units.amount_text(side.planned, 'trial')})."


def row_cells(row: ComparedRow) -> list[Cell]:
    return [
        Cell(row.name, row.name),
        Cell(row.arm, row.arm, row.notes),
        *side_cells(row.a, row.metric),
        *side_cells(row.b, row.metric),
        *difference_cells(row),
        Cell(verdict_cell(row), row.verdict),
    ]


def difference_cells(row: ComparedRow | PublishedClaim) -> list[Cell]:
    return [
        Cell(cell_text.difference_text(row.delta, row.delta_ci95, row.metric), row.delta),
        Cell(cell_text.known_text(row.n_pairs), row.n_pairs),
        Cell(units.probability_text(row.p_holm), row.p_holm),
    ]


def verdict_cell(row: ComparedRow) -> str:
    if row.verdict == IDENTICAL and row.a and row.b and row.a.n != row.b.n:
        return f"identical in {units.amount_text(len(row.identical), 'common seed')}"  # the means are over all seeds
    return sentences.verdict_text(row.verdict, f"– ({row.untested})") + marks(row)


def marks(row: ComparedRow) -> str:
    text = ""
    if row.interim and row.verdict not in (None, IDENTICAL):
        text += layout.INTERIM_MARK
    if row.is_judged_anew:
        text += layout.first_declared_mark(row.first_declared)
    return text


def side_cells(side: Reached | None, metric: Metric) -> list[Cell]:
    if side is None:
        return [Cell(""), Cell("")]
    mean = cell_text.plus_minus(metric.value_text(side.mean), side.ci95, metric)
    return [Cell(mean, side.mean), Cell(cell_text.count_of_planned(side.n, side.planned), side.n)]


def closing_lines(comparison: Comparison) -> list[str]:
    counts = Counter(verdict_cell(row) for row in comparison.rows)
    summary = ", ".join(f"{count} {text.replace('– ', 'untested ')}" for text, count in counts.items())
    lines = [interim_text(comparison), f"Of {units.amount_text(len(comparison.rows), 'arm')}: {summary or 'none'}."]
    sensitivity = sensitivity_text(comparison)
    if sensitivity:
        lines.append(f"{sensitivity[0].upper()}{sensitivity[1:]}.")
    for name, both in comparison.provenance.items():
        lines.append(f"{name} differs: A {', '.join(both['a']) or 'unknown'}; B {', '.join(both['b']) or 'unknown'}.")
    return list(filter(None, lines))


def interim_text(comparison: Comparison) -> str:
    studies = dict.fromkeys(row.name for row in comparison.rows if row.interim)
    if not studies:
        return ""
    meaning = sentences.interim_meaning(comparison.judged)
    return f"Interim: planned trials of {', '.join(studies)} are not over, {meaning}."


def sensitivity_text(comparison: Comparison) -> str:
    """Return a clause with the smallest differences that each metric's tests would have resolved, or "" if unknown."""
    metrics: dict[tuple[str, str], Metric] = {}
    sizes: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in comparison.rows:
        size = row.resolvable_difference
        which = row.metric.name, row.metric.title
        if size is not None:
            metrics[which] = row.metric
            if size <= row.metric.largest_difference:
                sizes[which].append(size)
    if not metrics:
        return ""
    if not sizes:
        return "no difference would have been seen (80% power)"
    texts = []
    for which, values in sizes.items():
        metric = metrics[which]
        low = metric.bound_text(min(values))
        text = metric.bound_text(max(values))
        if low != text:
            text = f"{low.removesuffix(metric.unit_of_difference)} to {text}"
        if len(sizes) > 1 or metric.label:
            text += f" of {metric.title}"
        texts.append(text)
    return f"differences of {', '.join(texts)} or more would have been seen (80% power)"


def failing_rows(comparison: Comparison, margin: float | str | None) -> list[ComparedRow]:
    """Return the rows that fail `--fail-on worse`: worse ones or, with a margin, those not shown to be within it.

    Rows without a verdict because a side is unfinished do not fail. margin: in stored units, where 0.01 is one point of
    accuracy, or a share of A's error such as "25%".
    """
    if margin is None:
        return [row for row in comparison.rows if row.verdict == verdict.WORSE]
    unjudged = comparison.withheld_rows
    largest = margin_bound(margin)
    failing = []
    for row in comparison.rows:
        if not row.method or row in unjudged:  # of other configs or metrics
            continue
        bound = largest_deficit(row, margin)
        if bound is None or bound >= largest:
            failing.append(row)
    return failing


def largest_deficit(row: ComparedRow, margin: float | str) -> float | None:
    """Return how much worse B may be, in the unit of the margin."""
    if isinstance(margin, str):
        return row.worse_share_at_most
    return row.worse_by_at_most


def gate_text(comparison: Comparison, margin: float | str | None = None) -> str:
    """Return the report for `--fail-on worse`: failing rows, sensitivity of the tests, and what was not tested."""
    rows = comparison.rows
    failed = failing_rows(comparison, margin)
    if margin is None:
        tested = sum(row.p_holm is not None for row in rows)
        text = f"{len(failed)} of {units.amount_text(tested, 'tested arm')} worse"
    else:
        compared = sum(row.method is not None for row in rows) - len(comparison.withheld_rows)
        size = f"{margin} of A's error" if isinstance(margin, str) else f"{margin:g}"
        text = f"{len(failed)} of {units.amount_text(compared, 'arm')} may be worse by {size} or more"
    if failed:
        text += f" ({', '.join(f'{row.arm} of {row.name}{deficit_text(row, margin)}' for row in failed)})"
    untested = Counter[str]()
    for row in rows:
        if row.verdict == IDENTICAL or row.untested:
            untested[row.untested or IDENTICAL] += 1
    rest = ", ".join(f"{count} {reason}" for reason, count in untested.items())
    return "; ".join(filter(None, [text, sensitivity_text(comparison), rest]))


def deficit_text(row: ComparedRow, margin: float | str | None) -> str:
    """Return by how much B is worse, such as " by 6.20 points", or may be, such as ": up to 25% of A's error"."""
    if margin is None:
        if row.delta is None or row.delta_ci95 is None:
            return f" as {divergence_text(row)}"
        return f" by {row.metric.size_text(row.delta)}"
    bound = largest_deficit(row, margin)
    if bound is None:
        return f": {row.untested or divergence_text(row) or 'no bound'}"
    if isinstance(margin, str):
        return f": up to {share_text(bound)} of A's error"
    return f": up to {row.metric.bound_text(bound)}"


def divergence_text(row: ComparedRow) -> str:
    if row.b is None:
        return ""
    return sentences.diverged_text(row.b)


def unjudged_reason(comparison: Comparison, margin: float | str | None) -> str:
    """Return why a gate cannot judge the comparison, or "" if an arm was tested or every difference is bounded.

    A row whose results were lost has no bound, and must not pass. Unfinished sides do not hide a row that fails.
    """
    rows = comparison.rows
    if comparison.withheld_rows:
        return "" if failing_rows(comparison, margin) else interim_text(comparison).rstrip(".")
    if any(row.p_holm is not None for row in rows) or (rows and all(row.worse_by_at_most is not None for row in rows)):
        return ""
    identical = sum(row.verdict == IDENTICAL for row in rows)
    if not identical:
        return "no arm could be compared"
    arms = "1 arm is" if identical == 1 else f"{identical} arms are"
    return f"{arms} identical in A and B, and no other could be tested"
