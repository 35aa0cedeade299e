"""Text in messages: untrusted text, escaped so that it cannot move the cursor, reasons of errors, hints on names."""

import difflib
import re
from collections.abc import Collection, Iterable, Sequence

LONGEST_LINE = 2000  # maximum characters of an error
UNUSUAL = re.compile(r"[^\x20-\x7e]")  # raises TypeError for bytes, by which click knows a text stream
ALSO_CALLED = {  # setting -> its names in timm, Hugging Face, Lightning, scikit-learn and other code
    "augment": "aa auto_augment augmentation",
    "batch": "batch_size bs b train_batch_size",
    "channels": "in_chans num_channels",
    "classes": "num_classes n_classes",
    "clip_norm": "clip_grad grad_clip max_grad_norm gradient_clip_val",
    "compile": "torchcompile",
    "cutmix": "cutmix_alpha",
    "data": "dataset data_path",
    "depth": "num_layers n_layers num_hidden_layers layers",
    "device": "accelerator",
    "drop_path": "drop_path_rate stochastic_depth",
    "dropout": "drop drop_rate",
    "ema": "model_ema_decay ema_decay",
    "epochs": "max_epochs num_epochs n_epochs epoch",
    "gpus": "num_gpus devices ngpus",
    "heads": "num_heads n_heads num_attention_heads",
    "image_size": "img_size input_size resolution",
    "init_from": "pretrained checkpoint initial_checkpoint",
    "label_smoothing": "smoothing",
    "layer_scale": "init_values",
    "lr": "learning_rate base_lr max_lr",
    "micro_batch": "accum_iter accumulate_grad_batches grad_accum_steps",
    "mixup": "mixup_alpha",
    "mlp": "act_layer activation",
    "model": "arch architecture backbone net",
    "norm": "norm_layer",
    "objective": "loss criterion",
    "optimizer": "opt optim",
    "patch": "patch_size",
    "pool": "global_pool pooling",
    "position": "pos_embed position_embedding",
    "precision": "amp amp_dtype dtype fp16 bf16",
    "random_erasing": "reprob erasing",
    "registers": "reg_tokens num_registers",
    "schedule": "scheduler lr_scheduler sched",
    "seed": "random_state",
    "steps": "max_steps num_steps iterations iters",
    "warmup": "warmup_steps warmup_epochs warmup_ratio",
    "weight_decay": "wd decay",
    "width": "embed_dim hidden_size d_model dim",
}
OTHER_NAMES = {  # without underscores
    other.replace("_", ""): setting for setting, others in ALSO_CALLED.items() for other in others.split()
}


def printable(text: str, keep: str = "") -> str:
    """Return the text with every nonprintable character escaped, except the characters in `keep`."""

    def escaped(found: re.Match[str]) -> str:
        unusual = not found[0].isprintable() and found[0] not in keep
        return found[0].encode("unicode_escape").decode() if unusual else found[0]

    return UNUSUAL.sub(escaped, text)


def one_line(text: str) -> str:
    """Return the text on one line with nonprintable characters escaped. At most LONGEST_LINE characters are kept."""
    return printable(" ".join(text.split()))[:LONGEST_LINE]


def reason(error: BaseException) -> str:
    """Return the first line of an error's message, without errno and file name, or the type's name if it has none."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def reason_with_file(error: BaseException) -> str:
    """Return `reason(error)`, preceded by the file name if the error is an OSError that has one."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {reason(error)}"
    return reason(error)


# -- names -----------


def unknown_key(key: str, known: Iterable[str] = (), otherwise: str = "") -> str:
    """Return the message that a key is unknown, with the key that was probably meant or else `otherwise`."""
    names = list(known)
    stage, dot, _ = key.rpartition(".")
    setting = usual_name(key)
    usual = stage + dot + setting
    candidate = next((name for name in (usual, setting) if name in names), key)
    return f"unknown key '{key}'{spelling_hint(candidate, names) or spelling_hint(usual, names) or otherwise}"


def usual_name(key: str) -> str:
    """Return what a setting of other code is called here: `lr` for `--learning-rate` and `optimizer.learningRate`."""
    plain = key.rpartition(".")[2].strip("+~-").replace("-", "_").lower()
    return OTHER_NAMES.get(plain.replace("_", ""), plain)


def spelling_hint(word: object, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the known word most similar to `word`, or "" if none is similar.

    A word that only has or lacks an end, as lr and lr-max, is similar.
    """
    text, names = str(word), list(known)
    close = difflib.get_close_matches(text, names, n=1)
    close += [name for name in names if is_extended(text, name) or is_extended(name, text)]
    return f"; did you mean '{close[0]}'?" if close else ""


def known_names(word: str, known: Collection[str]) -> str:
    """Return "one of a, b", or "did you mean 'a'? Known are a, b" if a known word is similar to `word`."""
    hint = spelling_hint(word, known).removeprefix("; ")
    return f"{hint} Known are {joined_names(known)}" if hint else f"one of {joined_names(known)}"


def is_extended(name: str, longer: str) -> bool:
    """Return whether a name and an end after '-' or '_' make the longer one."""
    return longer.startswith((f"{name}-", f"{name}_"))


def joined_names(known: Iterable[object]) -> str:
    return ", ".join(str(name) for name in known)


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return the first names as text, and how many follow."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return joined_names(names[:most]) + more
