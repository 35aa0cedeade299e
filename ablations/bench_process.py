"""A process of its own that measures one thing: told what as JSON on standard input, it tells what it found so."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations import plugins
from ablations.provenance import HOME
from vitcore.config import Config

Json = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """Where such a process finds images and parts."""

    data_dir: Path | None = None
    random: bool = False
    plugins: tuple[Path, ...] = ()

    def order(self) -> Json:
        """As JSON has it; `ordered` is the reverse."""
        data_dir = str(self.data_dir) if self.data_dir else None
        return {"data_dir": data_dir, "random": self.random, "plugins": [str(file) for file in self.plugins]}


def ordered(order: Json) -> Source:
    data_dir = Path(order["data_dir"]) if order["data_dir"] else None
    return Source(data_dir, order["random"], tuple(Path(file) for file in order["plugins"]))


def asked(module: str, config: Config, source: Source, own: Mapping[str, str], **more: str) -> Any:
    """What `answer` of `module` says to `more` about `config`. Raises ValueError with the last line of a failure."""
    order = {"config": config.model_dump(), "source": source.order(), "more": more}
    return json.loads(ended(python(module), own, input=json.dumps(order)))


def answer(measured: Callable[..., Any]) -> None:
    """`measured(config, source, **more)`, told to who asked."""
    order = json.load(sys.stdin)
    source = ordered(order["source"])
    plugins.load(source.plugins)
    print(json.dumps(measured(Config(**order["config"]), source, **order["more"])))


def python(module: str, *words: str) -> list[str]:
    """The command that runs a module of this code, whatever lies in the working directory."""
    return [sys.executable, "-P", "-m", module, *words]


def ended(command: Sequence[str], own: Mapping[str, str], **how: Any) -> str:
    """What it writes until its end, in an environment of its `own`. Raises ValueError with its last line."""
    path = os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, **own}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, **how)
    if done.returncode:
        name = " ".join(command[1:5]).removeprefix("-P -m ")
        raise ValueError(f"{name}: {(done.stderr.strip().splitlines() or ['killed'])[-1]}")
    return str(done.stdout)
