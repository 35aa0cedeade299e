"""The page "Tables of papers": what tables.yaml says of coverage, and the claims judged by the results in examples/."""

from dataclasses import dataclass, replace
from pathlib import Path

from ablations.study import strict_yaml
from ablations.study.papers import PAPERS
from reference.example import FOLDER, results_of
from reference.markup import prose, shell, table
from results import StudyResults
from results.comparison import published
from results.records import PublishedComparison
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

    @property
    def title(self) -> str:
        return f"{self.paper}, {self.table}: {self.about}"

    @property
    def covered(self) -> str:
        if not self.studies:
            return "no study yet"
        return "partly" if self.missing else "whole"


@dataclass(frozen=True)
class Outcome:
    """The claims of a study's source, judged by its results in a file of examples/."""

    file: str
    results: StudyResults
    claims: PublishedComparison | None

    @property
    def text(self) -> str:
        """The recipe and the number of claims of each verdict, in words."""
        words = "no claims"
        if self.claims:
            words = ", ".join(f"{word} {count}" for word, count in sorted(self.claims.verdicts.items()))
        return f"{self.results.name}, {self.seeds}: {words}"

    @property
    def seeds(self) -> str:
        return amount_text(len(self.results.plan.arms[0].trials), "seed")


def pages() -> dict[str, str]:
    return {"index.md": page([PublishedTable(**entry) for entry in strict_yaml.parse(DATA.read_text(), DATA.name)])}


def page(tables: list[PublishedTable]) -> str:
    papers = {paper.name: paper for paper in PAPERS}
    rows = []
    sections = []
    for one in tables:
        judged = [outcome(file, results) for study in one.studies for file, results in results_of(study)]
        source = prose(f"{papers[one.paper].title}, {one.table}: {one.about}")
        studies = ", ".join(f"[`{name}`](../studies/{name}.md)" for name in one.studies)
        rows.append([source, studies, one.covered, prose("; ".join(each.text for each in judged)) or untrained(one)])
        sections.append(section(one, judged))
    return "\n".join([ABOUT, table(["table", "studies", "covered", "claims on our data"], rows), *sections])


def outcome(file: str, results: StudyResults) -> Outcome:
    claims = published.compare_published([results]) if results.plan.claims else None
    return Outcome(file, results, claims)


def section(one: PublishedTable, judged: list[Outcome]) -> str:
    """Return what is missing, and each study's judged claims with the command that judges them."""
    lines = [f"## {prose(one.title)}\n"]
    if one.missing:
        lines.append(f"Missing: {prose(one.missing)}.\n")
    for each in judged:
        plan = each.results.plan
        lines.append(f"### {prose(each.results.name)}\n")
        lines.append(f"Trained on `{plan.recipe}`: {amount_text(len(plan.arms), 'arm')} with {each.seeds} each.\n")
        if each.claims:
            lines.append(shell([f"ablate compare {FOLDER.name}/{each.file} published {plan.study}"]))
            lines.append(markdown(without_study(published.claims_grid(each.claims))) + "\n")
    if not judged:
        lines.append(f"Claims on our data: {untrained(one)}.\n")
    return "\n".join(lines)


def without_study(grid: Grid) -> Grid:
    """Return the grid of claims of one study without its name, which is the heading, and what the page says once."""
    rows = [row[1:] for row in grid.rows]
    return replace(grid, title="", caption=[], header=grid.header[1:], numeric=grid.numeric[1:], rows=rows)


def untrained(one: PublishedTable) -> str:
    """Return where results stand that no file in examples/ has."""
    status = STATUS.read_text()
    recorded = any(f"`{study}`" in status for study in one.studies)
    return RECORDED if recorded else "not trained by us"
