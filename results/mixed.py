"""Mixed provenance: code, plugins, versions and machines that differ among the trials of one table."""

import json
from collections.abc import Iterable, Iterator

import pandas as pd

from results import sentences
from results.study import THEN

COMPARABLE = ("code", "device", "threads", "python", "torch", "numpy")


def notes(trials: pd.DataFrame) -> list[str]:
    """A line for all that differs, with the trials that stand apart."""
    found = []
    for name, texts in compared(trials):
        if differs(texts):
            values = pd.Series(texts, trials.index, name=name, dtype=object)
            known = values[values != ""]
            found.append(note(trials.loc[known.index], known))
    return found


def compared(trials: pd.DataFrame) -> Iterator[tuple[str, list[str]]]:
    """What must be the same for trials to be compared, by trial, "" where it is not known or not used.

    A plugin counts by its name, wherever it was loaded: a baseline that studies share may be trained without it.
    """
    for name in COMPARABLE:
        texts: list[str] = trials[name].tolist()
        yield name, [sources(text) for text in texts] if name == "code" else texts
    yield "ranks", [text or "1" for text in trials["ranks"].tolist()]
    yield "micro-batch", [text or "the whole batch" for text in trials["micro_batch"].tolist()]
    yield "trained", ["as one" if text else "alone" for text in trials["fused"].tolist()]
    loaded = [json.loads(text) if text else {} for text in trials["plugins"].tolist()]
    for plugin in dict.fromkeys(name for plugins in loaded for name in plugins):
        yield f"plugin {plugin}", [plugins.get(plugin, "") for plugins in loaded]


def sources(code: str) -> str:
    """The digest of the suite's own sources: what stands before those of plugins; of each attempt in turn."""
    return THEN.join(dict.fromkeys(part.partition("+")[0] for part in code.split(THEN)))


def differs(texts: Iterable[str]) -> bool:
    """Between trials, or between the attempts at one; "" is not known."""
    known = set(texts) - {""}
    return len(known) > 1 or any(THEN in text for text in known)


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
