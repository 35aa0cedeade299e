"""The tools that `ablate mcp` offers to agents, and the server, driven by the client of the package `mcp`."""

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from in_process import Ablate, refusal
from waits import wait_until

from ablations.cli.commands import COMMANDS
from ablations.cli.mcp_server import TOOLS, known_tool, run_command

STUB = """
import sys, time
try:
    print(*sys.argv[-2:], file=sys.stderr, flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    open("interrupted", "w").close()
"""
READING = {name: tool for name, tool in TOOLS.items() if not tool.writes}
needs_mcp = pytest.mark.skipif(find_spec("mcp") is None, reason="needs the package mcp: make test-frameworks")


def test_no_value_of_a_call_becomes_an_option() -> None:
    given = {"words": ["--probe", "-d"], "arm": ["--runs=/x", "a b;c"], "seeds": 3, "data_dir": "data", "prune": True}
    given |= {"from": ["a", "b"], "name": None}
    assert TOOLS["plan"].words(given, {"--runs": "r"}) == [
        *("plan", "--runs=r", "--json", "--seeds=3", "--arm=--runs=/x", "--arm=a b;c", "--prune", "--data-dir=data"),
        *("--from=a", "--from=b"),
        *("--", "--probe", "-d"),
    ]


@pytest.mark.parametrize("name", TOOLS)
def test_tools_describe_all_that_a_call_may_give(name: str) -> None:
    schema = TOOLS[name].inputs.model_json_schema()
    assert schema["additionalProperties"] is False
    assert all(len(each["description"]) > 10 for each in schema["properties"].values())
    assert not {"runs", "json", "format", "watch", "probe"} & schema["properties"].keys()


def test_types_of_a_tool_are_those_of_the_command() -> None:
    schema = TOOLS["compare"].inputs.model_json_schema()
    assert schema["required"] == ["a", "b"]
    properties = schema["properties"]
    assert properties["a"]["type"] == "string"
    assert properties["interim"]["type"] == "boolean"
    assert properties["words"]["anyOf"][0] == {"type": "array", "items": {"type": "string"}}
    assert {"const": "worse", "type": "string"} in properties["fail_on"]["anyOf"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"words": "pooling"}, "words=pooling: a list"),
        ({"words": ["pooling"], "probe": True}, "unknown key 'probe'"),
        ({"words": ["pooling"], "seeds": "three"}, "seeds=three: a whole number"),
        ({"words": ["pooling"], "data_dir": 3}, "data_dir=3: a string"),
        ({}, "'words' is missing"),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TOOLS["plan"].words(given, {})


def test_what_trains_or_writes_needs_write() -> None:
    for name in ("run", "submit", "gate", "cancel", "retry"):
        with pytest.raises(ValueError, match=f"{name}: this server only reads: .*--write"):
            known_tool(name, READING)
    with pytest.raises(ValueError, match="tabel: no such tool: did you mean 'table'"):
        known_tool("tabel", READING)
    assert "--no-probe" in TOOLS["check"].words({"words": ["pooling"]}, {})


def test_calls_of_a_reading_server_name_no_code() -> None:
    """Not as an option, nor as a word: `check FILE.py` runs the file."""
    for tool in READING.values():
        assert "plugin" not in tool.parameters
    with pytest.raises(ValueError, match=r"part.py: is code, and this server only reads: .*--write"):
        TOOLS["check"].words({"words": ["pooling", "part.py"]}, {})
    writing = replace(TOOLS["check"], loads_code=True)
    words = writing.words({"words": ["part.py"], "plugin": ["other.py"]}, {})
    assert words[-3:] == ["--plugin=other.py", "--", "part.py"]


def test_the_page_for_agents_names_commands_and_tools_that_exist() -> None:
    text = (Path(__file__).parents[3] / "AGENTS.md").read_text()
    assert {*re.findall(r"`ablate (\w+)", text)} <= {name for commands in COMMANDS.values() for name in commands}
    (reading,) = re.findall(r"^`([a-z ]+)` only read", text, re.MULTILINE)
    assert {*reading.split()} == READING.keys()
    assert all(f"`{name}`" in text for name in TOOLS.keys() - READING.keys())


def test_missing_package_is_named_with_its_extra(ablate: Ablate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert "needs mcp, which is not installed: pip install 'vit-ablations[mcp]'" in refusal(ablate, "mcp")


# -- the server --------------------------------------------------------------------------------------------------------


Call = Callable[..., Awaitable[Any]]  # a tool by its name and arguments


def served(folder: Path, talk: Callable[[Any, Call], Awaitable[None]], *options: str) -> None:
    """Start a server in a folder, and have `talk` speak with it: the client, and a function that calls a tool."""
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def session() -> None:
        words = ["-P", "-m", "ablations.cli", "mcp", *options]
        started = StdioServerParameters(command=sys.executable, args=words, cwd=folder, env={"OMP_NUM_THREADS": "1"})
        async with Client(stdio_client(started)) as client:
            await talk(client, lambda name, **given: client.call_tool(name, given))

    asyncio.run(session())


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@needs_mcp
def test_reading_tools_answer_as_the_commands_do_and_write_nothing(there: Ablate, finished: Path) -> None:
    on = {"recipe": "r.yaml"}
    calls: dict[str, dict[str, Any]] = {
        "list": {"what": "studies"},
        "show": {"study": "s.yaml"} | on,
        "plan": {"words": ["s.yaml"]} | on,
        "status": {},
        "logs": {"words": ["s"], "lines": 3},
        "table": {"words": ["s"], "columns": "arm,mean,verdict"},
        "compare": {"a": "runs", "b": "all.parquet"},
        "check": {"words": ["s.yaml"]} | on,
    }

    async def talk(client: Any, call: Call) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == calls.keys() == READING.keys()
        assert all(tool.annotations.read_only_hint for tool in tools)
        for name, given in calls.items():
            answer = await call(name, **given)
            _, output, _ = there(*(word for word in TOOLS[name].words(given, {})))
            assert not answer.is_error
            assert json.loads(answer.content[0].text) == answer.structured_content == json.loads(output)
        for given, message in (({"words": ["pooli"]}, "pooli"), ({"words": ["s", "\0"]}, "null byte")):
            refused = await call("table", **given)
            assert refused.is_error
            assert message in refused.content[0].text
            assert "\n" not in refused.content[0].text
        assert (await call("run", words=["s.yaml"])).is_error

    before = contents(finished)
    served(finished, talk)
    assert contents(finished) == before


@needs_mcp
def test_run_returns_at_once_and_outlives_the_server(ablate: Ablate, tmp_path: Path) -> None:
    async def talk(client: Any, call: Call) -> None:
        answer = await call("run", words=["s.yaml", "steps=60"], recipe="r.yaml", seeds=1)
        assert not answer.is_error
        assert "2 trials to train on this machine, by process" in answer.content[0].text
        status = (await call("status")).structured_content
        assert (status["plan"], status["planned"]) == ("s@r,steps=60", 2)

    served(tmp_path, talk, "--runs", "elsewhere", "--write")
    wait_until((tmp_path / "elsewhere" / "report.html").exists, "a report after the server has ended", 300)


def test_cancelled_call_interrupts_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C does, upon which trials save checkpoints."""
    stub = tmp_path / "python"
    stub.write_text(f"#!{sys.executable}\n{STUB}")
    stub.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(stub))
    monkeypatch.chdir(tmp_path)
    begun = asyncio.Event()
    lines = []

    async def report(count: float, total: float | None, line: str | None) -> None:
        lines.append(line)
        begun.set()

    async def cancel() -> None:
        call = asyncio.create_task(run_command(["run", "s.yaml"], report))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancel())
    assert lines == ["run s.yaml"]
    assert (tmp_path / "interrupted").exists()
