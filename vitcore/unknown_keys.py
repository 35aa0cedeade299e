"""The wording of the error for an unknown setting, with the name that was probably meant."""

import difflib
from collections.abc import Iterable

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
OTHER_NAMES = {other: setting for setting, others in ALSO_CALLED.items() for other in others.split()}


def unknown_key(key: str, known: Iterable[str] = (), otherwise: str = "") -> str:
    """Return the message that a key is unknown, with the key that was probably meant or else `otherwise`."""
    names = list(known)
    stage, dot, _ = key.rpartition(".")
    meant = usual_name(key)
    candidate = next((name for name in (stage + dot + meant, meant) if name in names), stage + dot + meant)
    return f"unknown key '{key}'{spelling_hint(candidate, names) or otherwise}"


def usual_name(key: str) -> str:
    """Return what a setting of other code is called here: `lr` for `--learning-rate`, `+lr` and `optimizer.lr`."""
    plain = key.rpartition(".")[2].strip("+~-").replace("-", "_").lower()
    return OTHER_NAMES.get(plain, plain)


def spelling_hint(word: object, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the known word most similar to `word`, or "" if none is similar."""
    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def joined_names(known: Iterable[object]) -> str:
    return ", ".join(str(one) for one in known)
