"""`ablate profile`: what to ask a cluster for."""

from pathlib import Path
from typing import Annotated

import typer

from ablations.cli.answer import FAILED
from ablations.cli.inputs import options
from ablations.cli.inputs.directories import make_place
from ablations.cli.inputs.guards import ensure_writable
from ablations.cli.shell.help import App

app = App(
    help="Write and test SLURM profiles.\n\n"
    "A profile says what to ask a cluster for. Profiles that are given by name lie in $XDG_CONFIG_HOME/ablate/profiles "
    "or ~/.config/ablate/profiles.",
)


@app.command()
def init(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The name by which --profile finds it.  [default: standard output]"),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to this file instead.")] = None,
) -> None:
    """Write a first profile, with comments.

    Uses what this cluster's sinfo and scontrol say about partitions, GPUs and accounts. Correct it, then try it with
    `ablate profile check`.

    Examples:
        ablate profile init mycluster
        ablate profile init --out mycluster.yaml
    """
    from slurm.profiles import draft
    from slurm.profiles.profile import path_to_write

    if name and out:
        raise ValueError(f"--out {out}: with NAME={name} the file lies where --profile {name} finds it")
    path = path_to_write(name) if name else out
    if path and path.exists():
        raise ValueError(f"{path}: exists already")
    text = draft.init()
    if path is None:
        print(text)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path)


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="The profile.")],
    runs: options.Runs = None,
    data_dir: options.DataDir = None,
) -> None:
    """Test a profile with a one-minute job.

    Checks on a node what trials need there: GPU, imports, data, links in the run directory, and sbatch. Without
    sbatch no last job can submit what is left.

    Examples:
        ablate profile check mycluster
        ablate profile check mycluster.yaml --runs /shared/runs
    """
    from ablations.cluster import submit

    profile = submit.read_profile(name)
    place = make_place(runs, data_dir, None, profile=profile)
    ensure_writable(place.runs)
    lines, good = submit.check(profile, place)
    print("\n".join(lines))
    if not good:
        raise typer.Exit(FAILED)
