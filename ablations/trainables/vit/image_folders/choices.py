"""The rules by which `ablate init` chooses the numbers of a recipe, each with its reason.

The rules aim at a first result in minutes to hours, not at the best accuracy. Users are expected to edit the file.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from ablations.trainables.vit.image_folders.survey import Survey
from results.store.schemas.base import Settings

CPU, GPU = "a CPU", "a GPU"
GRID = {CPU: 8, GPU: 14}  # patches per side to aim at
LARGEST = {CPU: 64, GPU: 224}  # maximum pixels per side
FEW = 16  # pixels per side up to which the grid is about 4 x 4, because patches of one pixel carry little information
MODELS = ((10_000, 64, 4), (100_000, 128, 6))  # maximum training images, width, depth
LARGE = (192, 12)  # width and depth of ViT-Ti, for more images
HEAD = 32
EPOCHS = 30
STEPS = {CPU: (500, 5_000), GPU: (1_000, 50_000)}
RATE, RATE_WIDTH = 2e-3, 64  # AdamW's learning rate at this width; proportional to 1 / sqrt(width)
END = "...\n"  # what yaml.safe_dump writes after a scalar
# Fraction of test images on which equal arms differ; half-width of a 90% interval in standard deviations.
DISAGREE, Z90 = 0.1, 1.645


@dataclass(frozen=True)
class Choice:
    key: str
    value: Any
    reason: str


def config_choices(found: Survey, device: str) -> Iterator[Choice]:
    patch, size = patch_and_size(found.side, device)
    most, width, depth = next((sizes for sizes in MODELS if found.train <= sizes[0]), (MODELS[-1][0], *LARGE))
    fits = found.side <= LARGEST[device]
    size_reason = "the size of the images, or just below" if fits else f"more is slow on {device}"
    yield Choice("image_size", size, size_reason)
    yield Choice("patch", patch, "a power of two, for a grid on which positions matter and steps are quick")
    few = f"{'up to' if found.train <= most else 'more than'} {most:,} training images"
    yield Choice("width", width, f"for {few}; larger models memorize them")
    yield Choice("depth", depth, "as for the width")
    yield Choice("heads", max(1, width // HEAD), f"width / {HEAD}, at least 1")
    yield Choice("position", "1d", "the paper's")
    yield Choice("pool", "gap", "no class token to train")
    batch = next(size for size in (128, 64, 32, 16, 8) if found.train >= 16 * size or size == 8)
    low, high = STEPS[device]
    steps = int(rounded(min(high, max(low, EPOCHS * 0.9 * found.train / batch))))
    limits = f"kept within {low:,} (below, verdicts are about speed) and {high:,}"
    yield Choice("augment", "crop", "small shifts; flip-crop where a mirrored image has the same class")
    yield Choice("steps", steps, f"by rule {EPOCHS} epochs, {limits}")
    yield Choice("batch", batch, "at least 16 steps an epoch" if batch > 8 else "few images")
    lr = rounded(RATE * math.sqrt(RATE_WIDTH / width))
    yield Choice("lr", lr, f"AdamW's usual {RATE} x sqrt({RATE_WIDTH} / width); --tune measures it")
    yield Choice("warmup", 0.1, "of the steps")
    yield Choice("weight_decay", 0.05, "the usual value")
    yield Choice("label_smoothing", 0.1, "helps where images are few")


def patch_and_size(side: int, device: str) -> tuple[int, int]:
    """Return the patch size, a power of two, and the image size, a multiple of it. side: of the stored images."""
    most = min(side, LARGEST[device])
    grid = 4 if most <= FEW else GRID[device]
    patch = 2 ** max(0, round(math.log2(most / grid)))
    return patch, max(1, most // patch) * patch


def rounded(number: float) -> float:
    return float(f"{number:.2g}")


def margin(found: Survey) -> Choice:
    """Return the smallest margin within which equal arms can be shown equivalent, but at least 0.01."""
    half = Z90 * math.sqrt(DISAGREE / found.test)
    value = max(0.01, math.ceil(200 * half) / 200)
    return Choice("margin", value, f"{found.test:,} test images cannot show less, if equal arms differ on a tenth")


def axes(settings: Settings, found: Survey) -> Iterator[Choice]:
    patch = settings["patch"]
    size = settings["image_size"]
    width = settings["width"]
    depth = settings["depth"]
    steps = settings["steps"]
    patches = [side for side in (patch // 2, patch, 2 * patch) if side and size % side == 0 and size // side >= 2]
    yield Choice("patch", patches, "half and twice the patch")
    yield Choice("lr", learning_rates(settings["lr"]), "half-decades each way")
    smallest = min(found.classes.values())
    fractions = [share for share in (0.1, 0.3, 1.0) if 0.9 * share * smallest >= 1]
    yield Choice("data_fraction", fractions, "each keeps an image of every class")
    yield Choice("image_size", [size, 2 * size], "twice the tokens a side; says where it enlarges")
    yield Choice("width", [width // 4, width // 2, width, 2 * width], "a quarter, half and twice")
    yield Choice("depth", [max(1, depth // 2), depth, 2 * depth], "half and twice")
    yield Choice("mlp_ratio", [1.0, 2.0, 4.0, 8.0], "the default is 4")
    yield Choice("steps", [steps // 2, steps, 2 * steps], "half and twice the budget")
    yield Choice("stem", ["resnet-small"], "for hybrid studies")
    finer = [size, max(patch, size * 3 // 2 // patch * patch)]
    yield Choice("autoencoder.objective.decoder_width", [width // 4, 3 * width // 4, width], "of MAE's decoder")
    yield Choice("autoencoder.objective.sampling", ["random", "block", "grid"], "how MAE chooses what it masks")
    yield Choice("autoencoder.augment", [settings["augment"], "none"], "of MAE's pre-training")
    yield Choice("finetune.image_size", finer, "half as many patches again a side, near the paper's 224 to 384")


def learning_rates(middle: float) -> list[float]:
    return [rounded(middle * 10**power) for power in (-1, -0.5, 0, 0.5, 1)]


def render(found: Survey, device: str, tuned: dict[str, Choice], copied: dict[str, Settings]) -> str:
    """Return the recipe as YAML. tuned: key -> measured choice. copied: the arms of the recipe digits."""
    config = [tuned.get(choice.key, choice) for choice in config_choices(found, device)]
    settings = {choice.key: choice.value for choice in config}
    assert settings["width"] % settings["heads"] == 0, "widths are multiples of HEAD"
    varied = list(axes(settings, found))
    values = {choice.key: choice.value for choice in varied}
    rules = adapted_arms(settings, values["patch"], device == GPU)
    arms = []
    for name, of_digits in copied.items():
        arms.append(Choice(name, *rules.get(name, (of_digits, "as in the recipe digits"))))
    finetune = finetune_settings(settings, values["data_fraction"])
    lines = [
        f"# A recipe for {found.name}, by `ablate init`. Change whatever you know better: a comment is the rule by",
        f"# which init chose the value, for {device}.",
        *(f"#   {text}" for text in found.lines()),
        yaml_line("description", f"{found.name}: {found.train + found.test:,} images of {len(found.classes)} classes."),
        "config:",
        "  " + yaml_line("data", found.data),
        *columns(config),
        yaml_line("seeds", 5) + "  # fewer resolve only very large differences",
        "axes:  # the values that studies ask for",
        *columns(varied),
        "arms:  # which studies ask for",
        *columns(arms),
        "stages:",
        *columns([Choice("finetune", finetune, "the paper's SGD; its rate was measured on digits alone")]),
        *columns([margin(found)], indent=""),
    ]
    return "\n".join(lines) + "\n"


def columns(choices: list[Choice], indent: str = "  ") -> list[str]:
    texts = [indent + yaml_line(choice.key, choice.value) for choice in choices]
    width = max(map(len, texts))
    return [f"{text:{width}}  # {choice.reason}" for text, choice in zip(texts, choices, strict=True)]


def yaml_line(key: str, value: Any) -> str:
    written = yaml.safe_dump(value, width=10_000, default_flow_style=True, allow_unicode=True)
    return f"{key}: {written.removesuffix(END).strip()}"


RESNETS = {  # whether on a GPU -> ResNets of timm, smallest first
    False: ("test_resnet", "resnet10t", "resnet14t", "resnet18"),
    True: ("resnet18", "resnet34", "resnet50", "resnet101"),
}
FINETUNE_STEPS = 500  # minimum steps of fine-tuning; otherwise, a quarter of the training steps


def adapted_arms(settings: Settings, patches: list[int], on_gpu: bool) -> dict[str, tuple[Settings, str]]:
    width = settings["width"]
    depth = settings["depth"]
    batch = settings["batch"]
    smaller = {"width": width * 3 // 4, "depth": max(1, depth // 2), "patch": patches[-1]}
    larger = {"width": width * 3 // 2, "depth": depth * 3 // 2, "patch": patches[0]}
    original = {"position": "1d", "pool": "cls", "batch": 4 * batch}
    crop = {"augment": "crop-three-augment", "augment.flip": False}
    resnets = [{"model": f"timm/{name}"} for name in RESNETS[on_gpu]]
    return {
        "axial": ({"self_attention": "axial", "depth": 2 * depth}, "a block attends along rows or columns"),
        "half": ({"width": width // 2}, "the paper's b/32: half of each dimension"),
        "large": ({"width": 2 * width}, "almost four times the FLOPs"),
        "all-smaller": (smaller, "all dimensions at once"),
        "all-larger": (larger, "all dimensions at once"),
        "flexible": ({"stem.patches": patches}, "those of the axis"),
        "resnet": (resnets[-1 if on_gpu else 0], "of timm, not pre-trained"),
        **{f"ResNet-{number}": (model, "smallest first") for number, model in enumerate(resnets, start=1)},
        "simple-random-crop": (crop, "of recipe-deit3; no flips, as images may have a left and a right"),
        "large-batch": ({"batch": 4 * batch}, "the paper's 1,024 to 4,096"),
        "original-randaugment-mixup": (original, "all but the augmentation undone"),
        "original": ({**original, "augment": "none", "mixup": 0.0}, "all undone"),
    }


def finetune_settings(settings: Settings, fractions: list[float]) -> Settings:
    """Return the settings for fine-tuning on the smallest data fraction, with SGD as in arXiv 2010.11929."""
    return {
        "data_fraction": fractions[0],
        "optimizer": "sgd",
        "lr": 0.03,
        "weight_decay": 0.0,
        "label_smoothing": 0.0,
        "steps": max(FINETUNE_STEPS, settings["steps"] // 4),
    }
