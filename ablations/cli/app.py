"""The subcommands of `ablate`, and its one-line error messages."""

import os
import re
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated, Any, NoReturn

import typer
from typer.main import get_command

from ablations.cli.answer import BAD_INPUT, FAILED, INTERRUPTED
from ablations.cli.commands import MARKUP, add_commands
from ablations.output import plain_output
from commonfloor.messages import one_line, reason_with_file

EXTRAS = {  # optional package -> the extra of vit-ablations that installs it
    **dict.fromkeys(("safetensors", "sklearn", "timm", "torch", "torchvision"), "train"),
    "submitit": "slurm",
    **{name: name for name in ("tensorboard", "wandb", "mlflow", "mcp")},
}
USAGE: Any = typer.BadParameter.__base__  # Click's UsageError; newer versions of typer bundle their own Click

options = typer.Typer(
    help="Ablation studies for Vision Transformers: declare, run, compare.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    rich_markup_mode=MARKUP,
)


def print_version(asked: bool) -> None:
    if asked:
        print(f"ablate {metadata.version('vit-ablations')}")
        raise typer.Exit


@options.command("help", hidden=True)
def help_(words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND")] = None) -> None:
    """Print the help of a command."""
    app([*(words or []), "--help"], prog_name="ablate", standalone_mode=False)


@options.command("version", hidden=True)
def version_() -> None:
    """Print the version."""
    print_version(True)


@options.callback()
def settings(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Handle the options of the command `ablate` itself, such as --version."""


app: Any = get_command(options)
add_commands(app)


@plain_output()
def main() -> NoReturn:
    """Run the command `ablate` and exit. An error gives one line on standard error.

    The exit status is BAD_INPUT for ValueError, OSError, wrong usage and a missing package. It is INTERRUPTED for
    Ctrl-C. It is FAILED for any other error, whose traceback goes to a file. If ABLATE_TRACEBACK is set, ValueError,
    OSError and these other errors propagate.
    """
    try:
        sys.exit(app(prog_name="ablate", standalone_mode=False))
    except USAGE as error:
        refuse_usage(error)
    except KeyboardInterrupt:
        refuse("interrupted; nothing finished is lost, the same command continues", INTERRUPTED)
    except Exception as error:  # the last handler: users get one line, and the traceback goes to a file
        advice = install_hint(error) if isinstance(error, ModuleNotFoundError) else ""
        if advice:
            refuse(advice)
        if os.environ.get("ABLATE_TRACEBACK"):
            raise
        if isinstance(error, OSError):
            refuse(reason_with_file(error))
        if isinstance(error, ValueError):
            refuse(str(error))
        with tempfile.NamedTemporaryFile("w", prefix="ablate-", suffix=".log", delete=False) as log:
            traceback.print_exception(error, file=log)
        problem = f"unexpected {type(error).__name__}: {str(error)[:200]}"
        refuse(f"{problem}; the traceback is in {log.name}: please report it", FAILED)


def install_hint(error: ModuleNotFoundError) -> str:
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return ""
    extra = EXTRAS[package]
    size = " (about 6 GB, most of it PyTorch)" if extra == "train" else ""
    return f"this needs {package}, which is not installed: pip install 'vit-ablations[{extra}]'{size}"


def refuse(message: str, status: int = BAD_INPUT) -> NoReturn:
    print(f"ablate: {one_line(message)}", file=sys.stderr)
    sys.exit(status)


def refuse_usage(error: Any) -> NoReturn:
    """Print a message about invalid usage on standard error, and exit. If it is empty, the help was printed instead."""
    command = error.ctx.command_path if error.ctx else "ablate"
    if error.format_message():
        print(f"{command}: {one_line(usage_problem(error, command, sys.argv[1:]))}", file=sys.stderr)
    sys.exit(BAD_INPUT)


def usage_problem(error: Any, command: str, words: Sequence[str]) -> str:
    """Return what is wrong with the usage, and what to type instead."""
    from ablations.cli.inputs import habits  # imported here because the help, which needs none, is to appear at once

    problem = str(error.format_message()).replace("Value error, ", "").rstrip(".")  # pydantic's prefix
    see = f"see {command} -h"
    name = next(iter(re.findall("'(.*?)'", problem)), "")  # of the option or command
    answer = ""
    if hasattr(error, "possibilities"):  # an unknown option
        answer = habits.option_answer(error.option_name, error.ctx.command, words)
        mistake = error.message.rstrip(".")
    elif problem.startswith("No such command") and command == "ablate":
        answer = habits.answer_with(name.lower().replace("_", "-"), habits.HABITS["commands"])
        mistake = f"No such command '{name}'"
    elif problem.startswith("Option") and problem.endswith("requires an argument"):
        return f"{name}: the value is missing: write it after the option (see ablate {words[0]} -h)"
    elif problem.startswith("Got unexpected extra") and command == "ablate demo":
        return f"takes no words: `{habits.command_line(['run', *words])}`"
    elif hasattr(error, "param_type"):  # a missing argument
        see = f"as in `{habits.first_example(error.ctx.command)}`; {see}"
    elif getattr(error, "param", None):
        correction = habits.value_answer(error.param, words)
        if correction:
            return correction
    return f"{mistake}: {answer}" if answer else f"{problem} ({see})"
