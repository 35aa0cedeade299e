"""`ablate profile`: what to ask a cluster for."""

from pathlib import Path
from typing import Annotated

import typer

from ablations.cli import options
from ablations.cli.answer import FAILED
from ablations.cli.directories import make_place
from ablations.cli.guards import ensure_writable

app = typer.Typer(
    help="SLURM profiles: files that say what to ask a cluster for.\n\n"
    "By name in $XDG_CONFIG_HOME/ablate/profiles or ~/.config/ablate/profiles.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@app.command()
def init(
    name: Annotated[
        str | None, typer.Argument(help="Where --profile NAME finds it.  [default: standard output]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A file instead.")] = None,
) -> None:
    """Write a first profile, with comments.

    From what this cluster's sinfo and scontrol say: partitions, GPUs, accounts; correct it, then `profile check` it.
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
    name: Annotated[str, typer.Argument(metavar="NAME|FILE")],
    runs: options.Runs = None,
    data_dir: options.DataDir = None,
) -> None:
    """Try a profile with a job of a minute.

    On a node it tries what trials need there: GPU, imports, data, links in the run directory, and sbatch, without
    which no last job can submit what is left.
    """
    from ablations.cluster import submit

    profile = submit.read_profile(name)
    place = make_place(runs, data_dir, None, profile=profile)
    ensure_writable(place.runs)
    lines, good = submit.check(profile, place)
    print("\n".join(lines))
    if not good:
        raise typer.Exit(FAILED)
