"""Notes on provenance that differs among a table's trials: code, plug-ins, versions, machines and kernels."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from results.store.record import THEN
from results.tables import sentences

NAMED = 3  # the most arms that a note names individually
COMPARABLE = ("code", "device", "threads", "python", "torch", "numpy", "compile", "attention")

Columns = Mapping[str, Sequence[Any]]  # name -> the value in each trial
Trial = tuple[str, int]  # arm, seed


def provenance_notes(trials: Columns) -> list[str]:
    """Return a note for each field whose known value differs between ended trials, or between a trial's attempts."""
    ended = [at for at, status in enumerate(trials["status"]) if status in ("finished", "diverged")]
    cells = [(trials["arm"][at], trials["seed"][at]) for at in ended]
    columns = comparable_columns({name: [values[at] for at in ended] for name, values in trials.items()})
    return [
        difference_note(name, cells, texts)
        for name, texts in columns
        if len({*texts} - {""}) > 1 or any(THEN in text for text in texts)
    ]


def comparable_columns(trials: Columns) -> Iterator[tuple[str, list[str]]]:
    """Yield (name, value in each trial) for each field that should be equal in all trials.

    The value "" means unknown. A trial that did not load a plug-in has "" too, as a shared baseline may be trained
    without it.
    """
    for name in COMPARABLE:
        yield name, [source_digest(text) if name == "code" else text for text in trials[name]]
    yield "ranks", [text or "1" for text in trials["ranks"]]
    yield "micro-batch", [text or "the whole batch" for text in trials["micro_batch"]]
    yield "trained", ["as one" if text else "alone" for text in trials["fused"]]
    yield "precision of float32 products", list(trials["matmul_precision"])
    yield "TF32", list(trials["tf32"])
    loaded = [json.loads(text) if text else {} for text in trials["plugins"]]
    for plugin in dict.fromkeys(name for plugins in loaded for name in plugins):
        yield f"plugin {plugin}", [plugins.get(plugin, "") for plugins in loaded]


def source_digest(code: str) -> str:
    """Return the digests of the suite's sources in a trial's attempts, joined by THEN. Plug-ins are left out."""
    return THEN.join(dict.fromkeys(part.partition("+")[0] for part in code.split(THEN)))


def difference_note(name: str, trials: Sequence[Trial], texts: Sequence[str]) -> str:
    """Return the note on a field, such as "code differs between trials: a1b2 (18), c3d4 (position=none seed 3)"."""
    groups: dict[str, list[Trial]] = defaultdict(list)
    for trial, text in zip(trials, texts, strict=True):
        if text:
            groups[text].append(trial)
    most, *rest = sorted(groups, key=lambda text: (-len(groups[text]), text))
    whole = Counter(arm for arm, _ in trials)
    parts = [f"{most} ({len(groups[most])})", *(f"{text} ({trials_text(groups[text], whole)})" for text in rest)]
    return f"{name} differs {'between' if rest else 'within'} trials: {', '.join(parts)}"


def trials_text(trials: Iterable[Trial], whole: Mapping[str, int]) -> str:
    """Return trials as text, such as "position=none seed 3; all of position=2d". whole: arm -> number of trials."""
    seeds: dict[str, list[int]] = defaultdict(list)
    for arm, seed in trials:
        seeds[arm].append(seed)
    partial = [arm for arm, listed in seeds.items() if len(listed) < whole[arm]]
    if len(seeds) > NAMED:
        count = sum(map(len, seeds.values()))
        return f"{count} trials of {len(seeds)} arms" if partial else f"{count}: all of {len(seeds)} arms"
    return "; ".join(
        f"{arm} {sentences.seeds_text(listed)}" if arm in partial else f"all of {arm}" for arm, listed in seeds.items()
    )
