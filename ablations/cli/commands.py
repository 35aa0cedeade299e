"""The commands of `ablate` by name. The module of a command is imported when the command is called."""

import pkgutil
from typing import Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

MARKUP: Literal["markdown"] = "markdown"
COMMANDS = {  # panel of the help -> name of the command -> (its function, the first line of its docstring)
    "Run": {
        "demo": ("run:demo", "Train 9 tiny ViTs, and show a table and a report."),
        "init": ("init:init", "Write a recipe for your own images or script."),
        "list": ("listing:list_", "List studies, recipes, variants and settings."),
        "show": ("show:show", "Show a study's question, cost and results."),
        "plan": ("show:plan", "Show a study's trials, hours and confounds."),
        "seal": ("run:seal", "Fix what a study declares, before its results."),
        "run": ("run:run", "Train missing trials on this machine."),
        "work": ("work:work", "Train unclaimed trials until none is left."),
        "train": ("run:train", "Train a single trial."),
        "gate": ("gate:gate", "Decide whether a change is kept."),
        "retry": ("work:retry", "Let failed trials run again."),
    },
    "Cluster": {
        "submit": ("cluster:submit", "Submit missing trials to SLURM."),
        "status": ("watching:status", "Show which trials are done, running or failed."),
        "logs": ("watching:logs", "Print the end of each trial's log."),
        "cancel": ("cluster:cancel", "Cancel a study's jobs in SLURM."),
        "clean": ("watching:clean", "List or remove files that nothing needs."),
        "profile init": ("cluster:init_profile", "Write a first profile with comments."),
        "profile check": ("cluster:check_profile", "Test a profile with a short job."),
    },
    "Results": {
        "table": ("tables:table", "Print means, intervals and verdicts."),
        "plot": ("figures:plot", "Draw a study's figure or its training curves."),
        "report": ("figures:report", "Write one HTML page of tables and figures."),
        "inspect": ("inspections:inspect", "Draw filters, positions and attention of trials."),
        "compare": ("tables:compare", "Compare two sets of results, arm by arm."),
        "export": ("exchange:export", "Export results to a file or a tracker."),
        "bundle": ("figures:bundle", "Pack results and all that a deposit needs."),
        "import": ("exchange:import_", "Take in an export, or a table of other runs."),
        "verify": ("run:verify", "Train some trials of others anew, and compare."),
    },
    "Data": {
        "data download": ("data:download", "Download a built-in data set."),
        "data pack": ("data:pack", "Convert a data set into a pack for training."),
        "data verify": ("data:verify", "Check a pack, and name each damaged file."),
        "weights download": ("data:download_weights", "Download weights of timm's to start from."),
        "weights add": ("data:add_weights", "Store weights of timm's from a file."),
    },
    "Develop": {
        "check": ("check:check", "Test a plug-in, a study or a recipe."),
        "mcp": ("mcp_server:mcp", "Serve commands to agents as MCP tools."),
    },
}
GROUPS = {
    "profile": "Write and test SLURM profiles.\n\n"
    "A profile says what to ask a cluster for. A profile given by name is a file in $XDG_CONFIG_HOME/ablate/profiles "
    "or ~/.config/ablate/profiles.",
    "data": "Download, pack and verify data sets.",
    "weights": "Store public weights, from which training starts.",
}


class LazyCommand(TyperCommand):
    """A command that help texts list by its summary, and whose module is imported when it is called."""

    def __init__(self, name: str, function: str, summary: str, panel: str | None = None) -> None:
        super().__init__(name, help=summary, rich_help_panel=panel)
        self.function = function

    def resolve(self) -> Any:
        return pkgutil.resolve_name(f"ablations.cli.{self.function}")

    def load(self) -> Any:
        app = typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
        app.command(self.name)(self.resolve())
        return get_command(app)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.load().make_context(info_name, args, parent, **extra)


def add_commands(ablate: Any) -> None:
    for panel, commands in COMMANDS.items():
        for words, (function, summary) in commands.items():
            group_name, _, name = words.rpartition(" ")
            if not group_name:
                ablate.add_command(LazyCommand(name, function, summary, panel))
                continue
            if group_name not in ablate.commands:
                about = GROUPS[group_name]
                group = TyperGroup(name=group_name, help=about, no_args_is_help=True, rich_markup_mode=MARKUP)
                group.rich_help_panel = panel
                ablate.add_command(group)
            ablate.commands[group_name].add_command(LazyCommand(name, function, summary))
