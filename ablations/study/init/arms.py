"""The rules by which `ablate init` writes the arms and stages that packaged studies take from a recipe."""

from collections.abc import Iterator

from results.store.schemas import Settings

RESNETS = {  # timm's, smallest first
    False: ("test_resnet", "resnet10t", "resnet14t", "resnet18"),
    True: ("resnet18", "resnet34", "resnet50", "resnet101"),
}
FINETUNE_STEPS = 500  # at least; else a quarter


def arms(settings: Settings, patches: list[int], on_gpu: bool) -> Iterator[tuple[str, Settings, str]]:
    """Yield name, settings and reason of each arm. patches: the recipe's axis, smallest first."""
    width, depth, batch = settings["width"], settings["depth"], settings["batch"]
    resnets = [f"timm/{name}" for name in RESNETS[on_gpu]]
    original = {"position": "1d", "pool": "cls", "batch": 4 * batch}
    yield "axial", {"self_attention": "axial", "depth": 2 * depth}, "a block attends along rows or columns"
    yield "half", {"width": width // 2}, "the paper's b/32: half of each dimension"
    yield "large", {"width": 2 * width}, "almost four times the FLOPs"
    smaller = {"width": width * 3 // 4, "depth": max(1, depth // 2), "patch": patches[-1]}
    yield "all-smaller", smaller, "all dimensions at once"
    larger = {"width": width * 3 // 2, "depth": depth * 3 // 2, "patch": patches[0]}
    yield "all-larger", larger, "all dimensions at once"
    yield "flexible", {"stem.patches": patches}, "those of the axis"
    yield "resnet", {"model": resnets[-1 if on_gpu else 0]}, "of timm, not pre-trained"
    for number, model in enumerate(resnets, start=1):
        yield f"ResNet-{number}", {"model": model}, "smallest first"
    yield "improved", {"augment": "randaugment", "mixup": 0.2}, "the baseline of plain-vit"
    three = {"augment": "three-augment", "augment.flip": False}
    yield "three-augment", three, "of recipe-deit3; no flips, as images may have a left and a right"
    yield "simple-random-crop", {**three, "augment": "crop-three-augment"}, "as above, after a random crop"
    yield "no-randaugment-mixup", {"augment": "none", "mixup": 0.0}, "undoes it"
    yield "large-batch", {"batch": 4 * batch}, "the paper's 1,024 to 4,096"
    yield "original-randaugment-mixup", original, "all but the augmentation undone"
    yield "original", {**original, "augment": "none", "mixup": 0.0}, "all undone"


def finetune(settings: Settings, fractions: list[float]) -> Settings:
    """Return the settings for fine-tuning: the paper's SGD, on the smallest share of the images."""
    return {
        "data_fraction": fractions[0],
        "optimizer": "sgd",
        "lr": 0.03,
        "weight_decay": 0.0,
        "label_smoothing": 0.0,
        "steps": max(FINETUNE_STEPS, settings["steps"] // 4),
    }
