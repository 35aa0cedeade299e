"""Every kind of figure: those of studies from made-up results, those of a trial's inside from two that are trained."""

import inspect
import subprocess
import sys
from pathlib import Path

from figure_studies import at_new_sizes, complete

from ablations.study.study import packaged, read_study
from reference.markup import prose, shell
from results.figures import plots
from results.figures.inspection import FIGURES
from results.names import FIGURES as KINDS

TRAINED = Path(__file__).parents[2] / "_build" / "gallery"  # kept, so that only the first build trains
STUDY = "position-embedding"
ARMS = "position=[1r]*"  # the learned table, and a kind that differs by layer and head


def pages() -> dict[str, str | bytes]:
    """The page and its pictures."""
    studies = {kind: complete(kind) for kind in KINDS} | {"new-size": at_new_sizes()}
    drawn = {f"{kind}.svg": plots.picture(study, "svg") for kind, study in studies.items()}
    drawn["training.svg"] = plots.picture(complete("intervals"), "svg", x="step")
    return {"index.md": page(), **drawn, **insides()}


def page() -> str:
    lines = [
        "# Gallery of figures\n",
        "A study's {key}`figure <study.figure>` says how `ablate plot` and `ablate report` draw it. A "
        "[style file](../style-file.md) changes fonts, colors and sizes. Results on this page are made up, but for those "
        "of `ablate inspect`.\n",
    ]
    for kind in KINDS:
        studies = [f"[{name}](../studies/{name}.md)" for name in packaged("studies") if read_study(name).figure == kind]
        about = inspect.getdoc(inspect.getmodule(plots.DRAW[kind])) or ""
        used = f"Packaged studies: {', '.join(studies)}." if studies else "No packaged study has it."
        lines += [f"## {kind}\n", f"{prose(about)} {used}\n", picture(kind, f"{kind}.svg")]
    lines += [
        "## Training curves\n",
        "Of any study, trials that still run included:\n",
        shell([f"ablate plot {STUDY} --x step"]),
        picture("Validation accuracy over training", "training.svg"),
        "## Inside a trial\n",
        "From the weights of a trained trial, here of two on the recipe `digits`:\n",
        shell([f"ablate inspect {STUDY} --arm '{ARMS}'"]),
    ]
    for name, (title, _, drawing) in FIGURES.items():
        lines += [f"### {title}\n", prose(inspect.getdoc(inspect.getmodule(drawing)) or "") + "\n"]
        lines.append(picture(title, f"inside-{name}.svg"))
    return "\n".join(lines)


def picture(title: str, file: str) -> str:
    return f"![{title}]({file})\n"


def insides() -> dict[str, bytes]:
    """What `ablate inspect` draws of the trained trials: of the first of them where several have a figure."""
    ablate("run", STUDY, "--arm", ARMS, "--seeds", "1")
    ablate("inspect", STUDY, "--arm", ARMS, "--out", "figures", "--format", "svg")
    drawn = sorted((TRAINED / "figures").glob("*/*.svg"), reverse=True)
    return {f"inside-{path.name}": path.read_bytes() for path in drawn}


def ablate(*words: str) -> None:
    """Run a command in the folder of the trained trials."""
    TRAINED.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "ablations.cli", *words]
    done = subprocess.run(command, cwd=TRAINED, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ablate {' '.join(words)}: {done.stderr}")
