"""The command `ablate mcp`: other commands as tools for agents, over the Model Context Protocol (MCP)."""

import asyncio
import inspect
import json
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import metadata
from subprocess import DEVNULL, PIPE
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from ablations.cli.answer import BAD_INPUT, INTERRUPTED
from ablations.cli.app import app
from ablations.cli.inputs import parameters
from commonfloor.messages import known_names, one_line
from commonfloor.options import explain

Report = Callable[[float, float | None, str | None], Awaitable[None]]  # takes progress, total and message

WITHHELD = {"--runs", "--json", "--format", "--probe", "--watch"}  # options that the server decides on
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
ASK_FOR_WRITE = "its user may start `ablate mcp --write`"
MOST_NOTES = 20  # lines of standard error in an answer
LONGEST_NOTE = 1 << 20  # bytes
INSTRUCTIONS = (
    "Ablation studies of machine learning. Declare a study in a YAML file, `plan` it, `run` or `submit` it, ask "
    "`status`, then read the verdicts of `table`. 'not-resolved' means that the seeds cannot tell, not that there is "
    "no effect. Fix seeds, metric and margin before the first result, and never choose the best seed."
)
IN_BACKGROUND = """Train missing trials on this machine, in the background.

Returns at once. `status` shows which trials are done, `logs` the end of each log, `table` the verdicts once all are
done. `cancel` stops it. Finished trials are not trained again, and the same call continues what was stopped. A study in
a file: words=["heads.yaml"]. Settings: words=["pooling", "lr=1e-3"]."""


@dataclass(frozen=True)
class Tool:
    """A command that agents may call.

    writes: whether the server must have been started with --write. loads_code: whether calls may name plug-ins. fixed:
    options of every call. about: what the tool does, if that is not what the command's help says.
    """

    command: str
    writes: bool = False
    loads_code: bool = False
    fixed: tuple[str, ...] = ()
    about: str = ""

    @cached_property
    def loaded(self) -> Any:
        """The Typer command, whose parameters have the names and descriptions of what a call may give."""
        return app.commands[self.command].load()

    @cached_property
    def flags(self) -> set[str]:
        return {flag for parameter in self.loaded.params for flag in parameter.opts}

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Name for agents -> parameter of the command: an option's first long flag, without dashes, or an argument."""
        withheld = WITHHELD | {word.partition("=")[0] for word in self.fixed}
        if not self.loads_code:
            withheld.add("--plugin")
        named = {}
        for parameter in self.loaded.params:
            flag = long_flag(parameter)
            if flag not in withheld:
                named[flag.removeprefix("--").replace("-", "_")] = parameter
        return named

    @cached_property
    def inputs(self) -> type[BaseModel]:
        """A model of what a call may give, with the types of the command's function."""
        function = app.commands[self.command].resolve()
        types = get_type_hints(function)
        signature = inspect.signature(function).parameters
        fields: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            default = signature[parameter.name].default
            if default is inspect.Parameter.empty:
                default = ...
            fields[name] = (types[parameter.name], Field(default, description=description(parameter)))
        return create_model(f"{self.command} options", __config__=STRICT, **fields)

    def words(self, given: Mapping[str, Any], shared: Mapping[str, str]) -> list[str]:
        """Return the words of the command line for a call."""
        given = {name: value for name, value in given.items() if value is not None}
        try:
            self.inputs.model_validate_json(json.dumps(given))
        except ValidationError as error:
            raise ValueError(explain(error, self.inputs)) from None
        options = [*self.fixed, *(f"{flag}={value}" for flag, value in shared.items() if flag in self.flags)]
        if "--json" in self.flags:
            options.append("--json")
        arguments: list[str] = []
        for name, parameter in self.parameters.items():
            value = given.get(name, False)
            values = value if isinstance(value, list) else [value]
            flag = long_flag(parameter)
            if value is False:
                continue
            if value is True:
                options.append(flag)
            elif parameter.param_type_name == "argument":
                arguments += map(str, values)
            else:
                options += [f"{flag}={each}" for each in values]
        for word in arguments:
            if word.endswith(".py") and not self.loads_code:
                raise ValueError(f"{word}: is code, and this server only reads: {ASK_FOR_WRITE}")
        return [self.command, *options, "--", *arguments]


def long_flag(parameter: Any) -> str:
    return next((flag for flag in parameter.opts if flag.startswith("--")), parameter.name)


def description(parameter: Any) -> str:
    parts = [parameter.help or ""]
    if parameter.metavar:
        parts.insert(0, f"{parameter.metavar}:")
    if isinstance(parameter.show_default, str):
        parts.append(f"Default: {parameter.show_default}.")
    return " ".join(parts)


TOOLS = {
    "list": Tool("list"),
    "show": Tool("show"),
    "plan": Tool("plan"),
    "status": Tool("status"),
    "logs": Tool("logs"),
    "table": Tool("table"),
    "compare": Tool("compare"),
    "check": Tool("check", fixed=("--no-probe",)),  # probes train
    "run": Tool("submit", writes=True, fixed=("--profile=local",), about=IN_BACKGROUND),
    "submit": Tool("submit", writes=True),
    "gate": Tool("gate", writes=True),
    "cancel": Tool("cancel", writes=True),
    "retry": Tool("retry", writes=True),
}


def mcp(
    runs: parameters.Runs = None,
    write: Annotated[
        bool, parameters.flag("--write", "Also offer run, submit, gate, cancel and retry, which train and write.")
    ] = False,
) -> None:
    """Serve commands to agents as MCP tools.

    Speaks the Model Context Protocol on standard input and output. An agent's program starts it, in the folder of your
    studies. A tool answers with the JSON of its command. Without --write, no tool trains or writes anything, and
    no call names a plug-in. A recipe's function is code, which `plan` and `check` load.

    Examples:

        ablate mcp
        ablate mcp --runs /shared/runs --write
    """
    offered = {name: replace(tool, loads_code=write) for name, tool in TOOLS.items() if write or not tool.writes}
    shared = {} if runs is None else {"--runs": str(runs)}
    asyncio.run(serve(offered, shared))


async def serve(offered: Mapping[str, Tool], shared: Mapping[str, str]) -> None:
    from mcp import types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    async def list_tools(context: Any, request: Any) -> Any:
        tools = []
        for name, tool in offered.items():
            about = tool.about or inspect.cleandoc(tool.loaded.help)
            hints = types.ToolAnnotations(read_only_hint=not tool.writes)
            schema = tool.inputs.model_json_schema()
            tools.append(types.Tool(name=name, description=about, input_schema=schema, annotations=hints))
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, request: Any) -> Any:
        try:
            words = known_tool(request.name, offered).words(request.arguments or {}, shared)
            status, output, notes = await run_command(words, context.session.report_progress)
        except (ValueError, OSError) as error:  # of the call, such as a null byte in a word
            status, output, notes = BAD_INPUT, "", one_line(str(error))
        texts = filter(None, [output, notes])
        return types.CallToolResult(
            content=[types.TextContent(text=text) for text in texts],
            structured_content=json_object(output),
            is_error=status in (BAD_INPUT, INTERRUPTED) or (status != 0 and not output),
        )

    version = metadata.version("vit-ablations")
    server = Server(
        "ablate", version=version, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )
    async with stdio_server() as (requests, responses):
        await server.run(requests, responses, server.create_initialization_options())


def known_tool(name: str, offered: Mapping[str, Tool]) -> Tool:
    if name in offered:
        return offered[name]
    if name in TOOLS:
        raise ValueError(f"{name}: this server only reads: {ASK_FOR_WRITE}")
    raise ValueError(f"{name}: no such tool: {known_names(name, offered)}")


async def run_command(words: list[str], report: Report) -> tuple[int, str, str]:
    """Return the exit status of `ablate`, its standard output, and the last lines of its standard error."""
    from anyio import CancelScope

    program = [sys.executable, "-P", "-m", "ablations.cli"]
    process = await asyncio.create_subprocess_exec(
        *program,
        *words,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        limit=LONGEST_NOTE,
        start_new_session=True,  # what it leaves in the background outlives the server, whose group is killed
    )
    assert process.stdout is not None
    assert process.stderr is not None
    notes: deque[str] = deque(maxlen=MOST_NOTES)

    async def read_notes(lines: asyncio.StreamReader) -> None:
        count = 0
        async for line in lines:
            count += 1
            notes.append(line.decode(errors="replace").rstrip())
            await report(count, None, notes[-1])

    try:
        output, _ = await asyncio.gather(process.stdout.read(), read_notes(process.stderr))
        status = await process.wait()
    except asyncio.CancelledError:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        with CancelScope(shield=True):
            await process.wait()
        raise
    return status, output.decode(errors="replace").strip(), "\n".join(notes)


def json_object(text: str) -> dict[str, Any] | None:
    try:
        content = json.loads(text)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None
