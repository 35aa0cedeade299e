"""Every kind of figure: of the studies in examples/, of made-up ones, and of the inside of two trials."""

import inspect
from functools import partial

from figure_studies import at_new_sizes, complete

from ablations.study.naming import packaged_names
from ablations.study.reading import read_recipe, read_study
from reference.example import DEMO, REPORT, results_of, trained
from reference.markup import prose, shell
from results.figures import inspection, study_figure
from results.figures.kinds import FIGURE_KINDS
from results.figures.kinds import kind as kind_of_figure
from results.store.eval_files import Inspection
from vitcore import Config, train, trial_id
from vitcore.analysis.eval import restore_model
from vitcore.analysis.interpret import Inspect
from vitcore.training.run import Memory

STUDY = "position-embedding"
STEPS = 300  # a build should not take long


def pages() -> dict[str, str | bytes]:
    made_up = {kind: complete(kind) for kind in FIGURE_KINDS} | {"new-size": at_new_sizes()}
    studies = made_up | {study.plan.figure: study for study in trained()[DEMO]}
    drawn = {f"{kind}.svg": study_figure.picture(study, "svg") for kind, study in studies.items()}
    _, results = next(results_of(STUDY))
    drawn["training.svg"] = study_figure.picture(results, "svg", x="step")
    return {"index.md": page(), **drawn, **insides()}


def page() -> str:
    lines = [
        "# Gallery of figures\n",
        "A study's {key}`figure <study.figure>` says how `ablate plot` and `ablate report` draw it. A "
        "[style file](../style-file.md) changes fonts, colors and sizes.\n",
        f"<a href='../../{REPORT}'>The report of five studies</a> shows what `ablate report` writes. Results come from "
        "`examples/digits.parquet`, or are made up for kinds of figures that no study there has.\n",
    ]
    for kind in FIGURE_KINDS:
        studies = [
            f"[{name}](../studies/{name}.md)" for name in packaged_names("studies") if read_study(name).figure == kind
        ]
        draw = kind_of_figure(kind).draw
        about = inspect.getdoc(draw.func if isinstance(draw, partial) else draw) or ""
        used = f"Packaged studies: {', '.join(studies)}." if studies else "No packaged study has it."
        lines += [f"## {kind}\n", f"{prose(about)} {used}\n", picture(kind, f"{kind}.svg")]
    lines += [
        "## Training curves\n",
        "For any study, including trials that still run:\n",
        shell([f"ablate plot {STUDY} --x step"]),
        picture("Validation accuracy over training", "training.svg"),
        "## Inside a trial\n",
        f"From the weights of trials, here two on the recipe `digits`, trained for {STEPS} steps:\n",
        shell([f"ablate inspect {STUDY} --arm position=1d"]),
    ]
    for name, (title, _, drawing) in inspection.FIGURES.items():
        lines += [f"### {title}\n", prose(inspect.getdoc(drawing) or "") + "\n"]
        lines.append(picture(title, f"inside-{name}.svg"))
    return "\n".join(lines)


def picture(title: str, file: str) -> str:
    return f"![{title}]({file})\n"


def insides() -> dict[str, bytes]:
    """Return the figures of `ablate inspect`, of a trial with `1d` where it has one, else with `relative`."""
    inspections = [inside("1d"), inside("relative")]
    chosen = {name: inspected for inspected in reversed(inspections) for name in inspection.drawable_figures(inspected)}
    return {f"inside-{name}.svg": inspection.picture(inspected, name, "svg") for name, inspected in chosen.items()}


def inside(position: str) -> Inspection:
    """Train a trial on the recipe `digits`, and return its inspection."""
    config, run = Config(**read_recipe("digits").config | {"position": position, "steps": STEPS}), Memory()
    train(config, run)
    assert run.weights is not None
    computed = Inspect().compute(restore_model(config, run.weights))
    assert computed.arrays is not None
    return Inspection(trial_id(config), computed.details, computed.arrays)
