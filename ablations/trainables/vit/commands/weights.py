"""Public weights stored for `init_from=timm/NAME`, as `ablate weights` does."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
import safetensors.torch
import timm
import torch
from huggingface_hub.errors import LocalEntryNotFoundError

from commonfloor.files import open_regular, write_bytes
from commonfloor.messages import one_line, spelling_hint
from commonfloor.options import JsonSettings
from vitcore.config import Config
from vitcore.identity import neutral_values, options
from vitcore.interop.timm_vit import config_of_timm, from_timm
from vitcore.sizes import REFERENCE, is_architectural
from vitcore.training.parents import FILES, PUBLIC, WEIGHTS

SECONDS = 10  # to wait for the hub
SHOWN = ("width", "depth", "heads", "mlp_ratio", "patch", "position", "pool")  # which recipes set


@dataclass(frozen=True)
class StoredWeights:
    file: Path
    settings: JsonSettings


def store(name: str, home: Path, file: Path | None = None) -> StoredWeights:
    """Store the weights of a model of timm, from a file or downloaded, in the folder `home`, converted to our ViT.

    Raises ValueError if the model is unknown or cannot be converted, or if the file does not fit, OSError if the file
    cannot be opened, and RuntimeError if the download fails.
    """
    name = name.removeprefix(REFERENCE)
    if not PUBLIC.fullmatch(REFERENCE + name) or not timm.is_model(name):
        raise ValueError(f"{name}: timm {timm.__version__} has no such model{spelling_hint(name, timm.list_models())}")
    if file is not None:
        if not str(file).endswith(FILES):
            raise ValueError(f"{file}: {' or '.join(FILES)}, because nothing is unpickled")
        open_regular(file).close()
    try:
        with torch.device("meta"):
            untrained: Any = timm.create_model(name)
            from_timm(untrained)  # before the download
        model = pretrained_model(name, file)
    except ValueError as error:
        raise ValueError(f"{name}: {one_line(str(error))}") from None
    config = config_of_timm(model)
    payload = safetensors.torch.save(from_timm(model).state_dict())
    published = model.pretrained_cfg.get("hf_hub_id") or model.pretrained_cfg.get("url")
    about = {
        "source": str(file.absolute()) if file else published,
        "timm": timm.__version__,
        "sha256": hashlib.sha256(payload).hexdigest(),
        "settings": architecture(config),
    }
    stored = home / WEIGHTS / f"{REFERENCE}{name}.safetensors"
    write_bytes(stored.with_suffix(".json"), json.dumps(about, indent=1).encode())
    write_bytes(stored, payload)  # last, because its existence says that both files are whole
    return StoredWeights(stored, fitting_settings(config))


def pretrained_model(name: str, file: Path | None) -> Any:
    """Return a model of timm with its weights; raise ValueError if `file` does not fit, else RuntimeError."""
    overlay = {"file": str(file), "custom_load": file.suffix == ".npz"} if file else None
    try:
        if file is None:
            check_hub(name)
        return timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay)
    except Exception as error:  # timm, its downloads, safetensors, NumPy and PyTorch raise many kinds
        if file is not None:
            raise ValueError(f"{file} {misfit(str(error)) or f'cannot be read: {error}'}") from None
        why = f"{str(error).rstrip('.')}: `ablate weights add {name} FILE` takes them from a file"
        raise RuntimeError(f"{name} cannot be downloaded: {why}") from None


def check_hub(name: str) -> None:
    """Raise an error at once if weights are to be downloaded without a network; the client retries for a minute."""
    published = timm.get_pretrained_cfg(name)
    if not published or not published.hf_hub_id:
        return
    try:
        huggingface_hub.snapshot_download(published.hf_hub_id, local_files_only=True)
    except LocalEntryNotFoundError:
        huggingface_hub.model_info(published.hf_hub_id, timeout=SECONDS)


def misfit(error: str) -> str:
    """Return what PyTorch's error says about the first tensor that does not fit, or "" if it is another error."""
    other_shape = re.search(r"size mismatch for (\S+): .*?Size\(\[(.*?)\]\).*?Size\(\[(.*?)\]\)", error)
    if other_shape:
        tensor, in_file, in_model = other_shape.groups()
        return f"does not fit: {tensor} is ({in_file}) in the file, ({in_model}) in the model"
    for problem, what in {"Missing": "it lacks", "Unexpected": "the model lacks"}.items():
        key = re.search(rf'{problem} key\(s\) in state_dict: "(.*?)"', error)
        if key:
            return f"does not fit: {what} {key[1]}"
    return ""


def architecture(config: Config) -> JsonSettings:
    shapes = {"image_size": config.image_size, "channels": config.channels, "classes": config.classes}
    parts = {key: value for key, value in (dict(config) | config.options).items() if is_architectural(key)}
    return shapes | parts


def fitting_settings(config: Config) -> JsonSettings:
    fitting: JsonSettings = {"image_size": config.image_size}
    neutral = neutral_values(config)
    for key, value in dict(config).items():
        default = neutral.get(key, Config.model_fields[key].default)
        if is_architectural(key) and (key in SHOWN or value != default):
            fitting[key] = value
    return fitting | {key: value for key, value in options(config).items() if is_architectural(key)}
