"""Mixed provenance: code, plugins, versions and machines that differ among the trials of one table."""

import json
from collections.abc import Iterator

import pandas as pd

from results import sentences
from results.study import THEN

COMPARABLE = ("code", "device", "threads", "python", "torch", "numpy")


def notes(trials: pd.DataFrame) -> list[str]:
    """A line for all that differs, with the trials that stand apart."""
    known = ((name, values[values != ""]) for name, values in compared(trials))
    return [note(trials.loc[values.index], values) for name, values in known if differs(values)]


def compared(trials: pd.DataFrame) -> Iterator[tuple[str, "pd.Series[str]"]]:
    """What must be the same for trials to be compared, by trial, "" where it is not known or not used.

    A plugin counts by its name, wherever it was loaded: a baseline that studies share may be trained without it.
    """
    for name in COMPARABLE:
        yield name, trials[name].map(sources).rename(name) if name == "code" else trials[name]
    yield "micro-batch", trials["micro_batch"].replace("", "the whole batch").rename("micro-batch")
    loaded = trials["plugins"].map(lambda text: json.loads(text) if text else {})
    for plugin in dict.fromkeys(name for plugins in loaded for name in plugins):
        name = f"plugin {plugin}"
        yield name, loaded.map(lambda plugins, of=plugin: plugins.get(of, "")).rename(name)


def sources(code: str) -> str:
    """The digest of the suite's own sources: what stands before those of plugins; of each attempt in turn."""
    return THEN.join(dict.fromkeys(part.partition("+")[0] for part in code.split(THEN)))


def differs(values: "pd.Series[str]") -> bool:
    """Between trials, or between the attempts at one."""
    return values.nunique() > 1 or any(THEN in value for value in values)


def note(trials: pd.DataFrame, values: "pd.Series[str]") -> str:
    """ "code differs between trials: a1b2 (18), c3d4 (position=none seed 3; position=2d seeds 0, 1)" """
    groups = sorted(((str(v), group) for v, group in trials.groupby(values)), key=lambda pair: -len(pair[1]))
    most, rest = groups[0], groups[1:]
    parts = [f"{most[0]} ({len(most[1])})"]
    for value, group in rest:
        arms = group.groupby("arm", sort=False)["seed"]
        where = "; ".join(f"{arm} {sentences.named(seeds.tolist())}" for arm, seeds in arms)
        parts.append(f"{value} ({where})")
    return f"{values.name} differs {'between' if rest else 'within'} trials: {', '.join(parts)}"
