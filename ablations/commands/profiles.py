"""`ablate profile`: what to ask a cluster for."""

from pathlib import Path
from typing import Annotated

import typer

from ablations.commands import options
from ablations.commands.answer import FAILED
from ablations.commands.guards import ensure_writable
from ablations.commands.places import make_place

app = typer.Typer(
    help="SLURM profiles: files that say what to ask a cluster for, by name under ~/.config/ablate/profiles.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@app.command()
def init(out: Annotated[Path | None, typer.Option(help="A file.  [default: standard output]")] = None) -> None:
    """Write a first profile, with comments.

    From what this cluster's sinfo and scontrol say: partitions, GPUs, accounts; correct it, then `profile check` it.
    """
    from slurm import draft

    text = draft.init()
    if out is None:
        print(text)
    elif out.exists():
        raise ValueError(f"--out {out}: exists already")
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)
        print(out)


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
    from ablations import submitting

    profile = submitting.read_profile(name)
    place = make_place(runs, data_dir, None, profile=profile)
    ensure_writable(place.runs)
    lines, good = submitting.check(profile, place)
    print("\n".join(lines))
    if not good:
        raise typer.Exit(FAILED)
