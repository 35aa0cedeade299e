"""The command `ablate`: its subcommands in the panels of its help, and its errors, one line each."""

import os
import sys
import tempfile
import traceback
from typing import Annotated, Any, NoReturn

import typer

from ablations.cli import (
    benches,
    checks,
    cluster,
    data,
    figures,
    planning,
    profiles,
    running,
    tables,
    watching,
)
from ablations.cli.answer import BAD_INPUT, FAILED, INTERRUPTED
from ablations.cli.getting_started import demo, init, listing, show
from ablations.cli.shell.help import App
from ablations.extras import to_install
from ablations.reporting.output import plain_output
from results.safe_text import one_line
from vitcore.data.files import reason_with_file

USAGE: Any = typer.BadParameter.__base__  # Click's UsageError; newer versions of typer bring a Click of their own

app = App(
    help="Ablation studies for Vision Transformers: declare, run, compare.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
COMMANDS = {
    "Run": (demo.demo, init.init, listing.list_, show.show, planning.plan, running.run, running.train, running.retry),
    "Cluster": (cluster.submit, watching.status, watching.logs, cluster.cancel, watching.clean),
    "Results": (tables.table, figures.plot, figures.report, figures.inspect, tables.compare, tables.export),
    "Develop": (checks.check,),
}
PRINTING = ("ablate table", "ablate compare")  # where --out is asked for in vain
for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(command.__name__.rstrip("_"), rich_help_panel=panel)(command)
app.add_typer(profiles.app, name="profile", rich_help_panel="Cluster")
app.add_typer(data.app, name="data", rich_help_panel="Data")
app.add_typer(benches.app, name="bench", rich_help_panel="Develop")


def print_version(asked: bool) -> None:
    if asked:
        from ablations.reporting import installed  # late: reads what is installed

        print(f"ablate {installed.version()}")
        raise typer.Exit


@app.callback()
def settings(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the command itself."""


def main() -> None:
    """Run the command. Bad input is one line on standard error and status 2."""
    with plain_output():
        run()


def run() -> NoReturn:
    try:
        sys.exit(app(prog_name="ablate", standalone_mode=False))
    except USAGE as error:
        refuse_usage(error)
    except (ValueError, OSError) as error:
        if os.environ.get("ABLATE_TRACEBACK"):
            raise
        told = reason_with_file(error) if isinstance(error, OSError) else str(error)
        print(f"ablate: {one_line(told)}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except ModuleNotFoundError as error:
        told = to_install(error)
        print(f"ablate: {told or one_line(unexpected(error))}", file=sys.stderr)
        sys.exit(BAD_INPUT if told else FAILED)
    except KeyboardInterrupt:
        print("ablate: interrupted; nothing finished is lost, the same command continues", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except Exception as error:  # the last handler: users get one line, and the traceback goes to a file
        if os.environ.get("ABLATE_TRACEBACK"):
            raise
        print(f"ablate: {one_line(unexpected(error))}", file=sys.stderr)
        sys.exit(FAILED)


def unexpected(error: Exception) -> str:
    """Return one line for an error of ours, which names the file with the traceback."""
    with tempfile.NamedTemporaryFile("w", prefix="ablate-", suffix=".log", delete=False) as log:
        log.write("".join(traceback.format_exception(error)))
    return f"unexpected {type(error).__name__}: {str(error)[:200]}; the traceback is in {log.name}: please report it"


def refuse_usage(error: Any) -> NoReturn:
    """Exit with one line for words that no command takes, or with the help of a command without its words."""
    asked = error.ctx.command_path if error.ctx else "ablate"
    if error.ctx and error.message == error.ctx.get_help():
        print(error.message, file=sys.stderr)
    else:
        told = one_line(error.format_message()).replace("Value error, ", "").rstrip(".")  # a word of pydantic's
        printed = asked in PRINTING and getattr(error, "option_name", "") in ("--out", "-o")
        print(
            f"{asked}: {told} ({'redirect what it prints with > FILE' if printed else f'see {asked} -h'})",
            file=sys.stderr,
        )
    sys.exit(BAD_INPUT)


entry = main  # the name that console scripts of versions before 0.12 call
