"""The page "Tables of papers": what tables.yaml says of coverage, and the claims judged by the results in examples/."""

from dataclasses import dataclass, replace
from pathlib import Path

from ablations.study import strict_yaml
from ablations.study.papers import PAPERS, title
from reference.example import FOLDER, results_of
from reference.markup import prose, shell, table
from results import StudyResults
from results.comparison import published
from results.comparison.records import PublishedComparison
from results.tables.formats import Grid, markdown
from results.units import amount_text

DATA = Path(__file__).with_suffix(".yaml")
STATUS = DATA.parents[2] / "project" / "status.md"  # results without a file in examples/
RECORDED = "[recorded by hand](../../project/status.md)"
ABOUT = """# Tables of papers

Which of the best-known ablation tables of Vision Transformers a packaged study repeats, and what became of their claims
on our data. Every verdict is computed from a file in `examples/` when this page is built. The command stands above it.

- *agrees*, *disagrees*: the difference is resolved, or equivalence is shown. Else the claim is *not resolved*.
- *recorded by hand*: trained by us, in numbers without a file in `examples/`.
- *ours*: the difference as in the study's table, or else the first arm minus the second, paired alike. ± is the 95% t
  interval, accuracies are in points. *published†*: the same difference of the published numbers.
- Small images and models cannot refute what a paper found on ImageNet. They show whether its claim holds there too.
"""


@dataclass(frozen=True)
class PublishedTable:
    """An entry of tables.yaml."""

    paper: str
    table: str
    about: str
    studies: list[str]
    missing: str


def pages() -> dict[str, str]:
    return {"index.md": page([PublishedTable(**entry) for entry in strict_yaml.parse(DATA.read_text(), DATA.name)])}


def page(tables: list[PublishedTable]) -> str:
    titles = {name: title(arxiv) for arxiv, name in PAPERS.items()}
    rows = []
    sections = []
    for entry in tables:
        source = prose(f"{titles[entry.paper]}, {entry.table}: {entry.about}")
        studies = ", ".join(f"[`{name}`](../studies/{name}.md)" for name in entry.studies)
        covered = "partly" if entry.missing else "whole"
        rows.append([source, studies, covered, "; ".join(map(outcome, entry.studies))])
        sections += [f"## {prose(f'{entry.paper}, {entry.table}: {entry.about}')}\n"]
        if entry.missing:
            sections.append(f"Missing: {prose(entry.missing)}.\n")
        sections += map(results_section, entry.studies)
    return "\n".join([ABOUT, table(["table", "studies", "covered", "claims on our data"], rows), *sections])


def outcome(study: str) -> str:
    """Return the number of claims of each verdict, for each recipe that a study was trained on, or where else it is."""
    outcomes = []
    for _, results in results_of(study):
        verdicts = claims_of(results).verdicts if results.plan.claims else {}
        words = ", ".join(f"{verdict} {count}" for verdict, count in sorted(verdicts.items())) or "no claims"
        outcomes.append(prose(f"{results.name}, {seeds(results)}: {words}"))
    if outcomes:
        return "; ".join(outcomes)
    return f"{study}: {RECORDED if f'`{study}`' in STATUS.read_text() else 'not trained by us'}"


def results_section(study: str) -> str:
    """Return a study's judged claims, for each recipe that it was trained on, with the command that judges them."""
    lines = []
    for file, results in results_of(study):
        plan = results.plan
        lines.append(f"### {prose(results.name)}\n")
        lines.append(f"Trained on `{plan.recipe}`: {amount_text(len(plan.arms), 'arm')}, {seeds(results)}.\n")
        if plan.claims:
            lines.append(shell([f"ablate compare {FOLDER.name}/{file} published {study}"]))
            lines.append(markdown(without_study(published.claims_grid(claims_of(results)))) + "\n")
    return "\n".join(lines)


def claims_of(results: StudyResults) -> PublishedComparison:
    return published.compare_published([results])


def seeds(results: StudyResults) -> str:
    """Return the number of seeds of each arm as text, and how many trials are done if not all are."""
    planned = amount_text(len(results.plan.seeds), "seed")
    statuses = results.columns["status"]
    done = statuses.count("finished")
    if done == len(statuses):
        return planned
    return f"{planned}, {done} of {amount_text(len(statuses), 'trial')} so far"


def without_study(grid: Grid) -> Grid:
    """Return the grid of claims of one study without its name, which is the heading, and what the page says once."""
    rows = [row[1:] for row in grid.rows]
    return replace(grid, title="", caption=[], header=grid.header[1:], numeric=grid.numeric[1:], rows=rows)
