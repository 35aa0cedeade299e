"""The commands `ablate table` and `compare`, which print results."""

import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from ablations.cli.answer import fail_if, print_damaged, show_json
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import folder_options, source_path
from ablations.cli.inputs.plan_names import existing_names
from ablations.cli.inputs.sources import results_on_recipes, styled, with_seal
from ablations.cli.inputs.words import refuse_csv
from ablations.study.naming import matching_names, stem
from commonfloor.messages import spelling_hint
from results.comparison import compare as comparing
from results.comparison import published, summary
from results.comparison.records import Comparison
from results.load import load_readable
from results.records import Table
from results.store.schemas.metrics import checked_margin
from results.tables import layout, study_table


def table(
    words: parameters.Names = None,
    recipe: parameters.RecipeNames = None,
    runs: parameters.Source = None,
    arm: parameters.ArmGlobs = parameters.ALL_ARMS,
    format: parameters.Format = "md",
    columns: Annotated[
        str | None,
        parameters.option(
            "NAME,...",
            "Column names, joined by commas; also other metrics, such as val_accuracy, test_accuracy@12 or "
            "train_seconds.",
            "the usual columns",
        ),
    ] = None,
    notes: Annotated[
        Literal["all", "short", "none"] | None,
        parameters.option(
            None,
            "The notes below the table. short: footnotes of the columns shown; none: only notes without which a "
            "number would mislead.",
            "short for latex, else all",
        ),
    ] = None,
    intervals: Annotated[
        Literal["marginal", "simultaneous"],
        typer.Option(help="simultaneous: add intervals that cover all differences of a family at once (95%, max-t)."),
    ] = "marginal",
    interim: parameters.Interim = False,
    style: parameters.StyleFile = None,
    seal: parameters.SealFile = None,
    as_json: parameters.AsJson = False,
    strict: parameters.Strict = False,
) -> None:
    """Print means, intervals and verdicts.

    Differences from the baseline are paired by seed, unless the recipe says otherwise. Verdicts are shown once all
    planned trials are done. --arm keeps the matching arms and their baselines; p stays corrected for all arms.

    Examples:

        ablate table position-embedding
        ablate table pooling --format latex --columns arm,mean,delta,verdict
    """
    recipes = recipe or []
    studies, damaged = results_on_recipes(runs, words, recipes)
    studies = with_seal(studies, seal)
    with print_damaged(damaged), styled(style, source_path(runs)):
        chosen = None if columns is None else [name.strip() for name in columns.split(",")]
        further = layout.further_metrics(chosen)
        tables = []
        for study in studies:
            whole = study_table.table(study, further, interim, intervals == "simultaneous")
            tables.append(of_arms(whole, arm))
        if as_json or format == "json":
            show_json([json.loads(layout.render(table, "json", chosen, notes)) for table in tables])
        elif format == "csv" and len(tables) > 1:
            print(layout.render_side_by_side(tables, "csv", chosen, notes))
        elif len(set(recipes)) > 1:
            by_study: dict[str, list[Table]] = {}
            for table in tables:
                by_study.setdefault(table.plan.study, []).append(table)
            groups = by_study.values()
            print("\n\n".join(layout.render_side_by_side(group, format, chosen, notes) for group in groups))
        else:
            print("\n\n".join(layout.render(table, format, chosen, notes) for table in tables))
    fail_if(strict and any(row.ended_trials + row.stopped < row.planned for table in tables for row in table.rows))


def of_arms(table: Table, globs: Sequence[str]) -> Table:
    chosen = matching_names([row.arm for row in table.rows], globs, table.plan.name)
    kept = chosen | {row.baseline for row in table.rows if row.arm in chosen}
    return replace(
        table,
        rows=[row for row in table.rows if row.arm in kept],
        interactions=[interaction for interaction in table.interactions if interaction.name in kept],
    )


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A run directory or an exported file.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one, judged against A; or 'published'.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="STUDY", help="Compare only these.", show_default="all")
    ] = None,
    format: parameters.Format = "md",
    as_json: parameters.AsJson = False,
    fail_on: Annotated[
        Literal["worse"] | None, typer.Option(help="Exit with 1 if B is worse; prints how large a loss was detectable.")
    ] = None,
    margin: Annotated[
        str | None,
        parameters.option(
            "X",
            "With --fail-on worse: exit with 1 unless every common arm is shown not to be worse by this much. "
            "In the metric's unit, where 0.01 is a point of accuracy, or as a share of A's error: 25%.",
        ),
    ] = None,
    interim: parameters.Interim = False,
) -> None:
    """Compare two sets of results, arm by arm.

    Arms are matched by their settings, not by their names. Verdicts are given once all planned trials of both sides are
    done; until then, --fail-on exits with 2. With 'published', checks each claim of a study's source against its
    trials.

    Examples:

        ablate compare runs colleague.parquet
        ablate compare main.parquet runs --fail-on worse --margin 0.01
    """
    if margin is not None and not fail_on:
        raise ValueError(f"--margin {margin}: needs --fail-on worse")
    limit = margin_of(margin)
    if as_json:
        format = "json"
    studies = list(map(stem, words or []))
    if b == published.NAME:
        if fail_on:
            raise ValueError(f"--fail-on {fail_on}: {b} numbers are from another setting, so nothing counts as worse")
        results, damaged = load_readable(Path(a), studies)
        with print_damaged(damaged):
            print(published.render(published.compare_published(results, interim), format))
        return
    (source_a, studies_a), (source_b, studies_b) = compared_sources(a, b, studies)
    results_a, damaged_a = load_readable(source_a, studies_a)
    if isinstance(limit, float) and limit >= 1 and any(study.plan.primary_metric.is_accuracy for study in results_a):
        raise ValueError(f"--margin {margin}: below 1, as a share of the images (0.03 is 3 points)")
    if not source_b.exists():
        raise ValueError(f"{b}: no such run directory or exported file{spelling_hint(b, [published.NAME])}")
    results_b, damaged_b = load_readable(source_b, studies_b)
    with print_damaged([*damaged_a, *damaged_b]):
        comparison = comparing.compare(results_a, results_b, interim)
        print(summary.render(comparison, format))
        if fail_on:
            exit_if_worse(comparison, limit)


def exit_if_worse(comparison: Comparison, limit: float | str | None) -> None:
    text = summary.gate_text(comparison, limit)
    reason = summary.unjudged_reason(comparison, limit)
    if reason:
        raise ValueError(f"--fail-on worse: {reason} ({text})")
    print(f"--fail-on worse: {text}", file=sys.stderr)
    fail_if(bool(summary.failing_rows(comparison, limit)))


def compared_sources(a: str, b: str, studies: list[str]) -> list[tuple[Path, list[str]]]:
    """Return (source, studies to compare) for A and for B. A study's folder stands for its run directory and name."""
    paths = [Path(a), Path(b)]
    sources = []
    folders = []  # run directories of which A or B is a study's folder
    for path in paths:
        refuse_csv(path)
        if (path / "plan.json").is_file():
            folders.append(path.absolute().parents[1])
            sources.append((folders[-1], [*studies, path.name]))
        else:
            sources.append((path, studies))
    same_source = len(folders) == 2 and folders[0] == folders[1]
    is_yaml = any(path.suffix in (".yaml", ".yml") for path in paths)
    if same_source or is_yaml or {a, b} <= {*existing_names(source_path(None))}:
        names = shlex.join(dict.fromkeys(path.name for path in paths))
        runs = folder_options(paths[0].parent.parent) if same_source else ""
        raise ValueError(f"{a} and {b}: compare takes two sets of results; of one set: `ablate table {names}{runs}`")
    return sources


def margin_of(text: str | None) -> float | str | None:
    """Return the margin of `--margin`. Raises ValueError if it is neither a number above 0 nor a share such as 25%."""
    if text is None:
        return None
    with suppress(ValueError):
        return checked_margin(text if text.endswith("%") else float(text))
    raise ValueError(f"--margin {text}: '{text}' is not a number above 0, or a share of A's error up to 50% (25%)")
