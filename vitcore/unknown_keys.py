"""The wording of the error for an unknown setting, with the name that was probably meant."""

import difflib
from collections.abc import Iterable

OTHER_NAMES = {  # what settings are called in other code
    "learning_rate": "lr",
    "batch_size": "batch",
    "num_classes": "classes",
    "embed_dim": "width",
    "hidden_size": "width",
    "num_heads": "heads",
    "num_layers": "depth",
    "patch_size": "patch",
    "img_size": "image_size",
    "dataset": "data",
}


def unknown_key(key: str, known: Iterable[str] = (), otherwise: str = "") -> str:
    """Return the message that a key is unknown, with the most similar known key or else `otherwise`."""
    stage, dot, own = key.rpartition(".")
    return f"unknown key '{key}'{spelling_hint(stage + dot + OTHER_NAMES.get(own, own), known) or otherwise}"


def spelling_hint(word: object, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the known word most similar to `word`, or "" if none is similar."""
    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def joined_names(known: Iterable[object]) -> str:
    return ", ".join(str(one) for one in known)
