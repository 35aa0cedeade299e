"""Other test images: another dataset's, or the trial's own at another size or in patches of another size."""

import hashlib
import json
import re
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from commonfloor.metrics import ACCURACY, LOSS
from commonfloor.options import ConfigError
from vitcore.analysis.eval import Computed, Eval, batch_outputs, check_predicts_classes, trial_data
from vitcore.data.lookup import describe
from vitcore.data.splits import Data, Images, load
from vitcore.data.test_sets import NAME, find_test_set
from vitcore.model.build import Model, check_patch, zero_model
from vitcore.model.vit import ViT
from vitcore.settings import Settings, Shape, image_shape, size_name


class OtherImages(Eval):
    """test@SIZE: images of SIZE pixels a side, or of 224x448, from the originals or a pack. test@patchP: patches of P.

    test@DATA: the test images of another dataset whose classes are, by name, some or all of the trial's. Only its
    classes compete for the prediction, as in ImageNet-R and ImageNet-A.
    """

    metrics = {"test_accuracy": ACCURACY, "test_loss": LOSS}
    values = ("SIZE", "patchP", "DATA")

    @classmethod
    def takes(cls, value: str) -> bool:
        return NAME.fullmatch(value) is not None

    def __init__(self, value: str = "") -> None:
        super().__init__(value)
        patch = re.fullmatch(r"patch([1-9]\d*)", value)
        size = re.fullmatch(r"[1-9]\d*(x[1-9]\d*)?", value)
        self.patch = int(patch[1]) if patch else 0  # 0: that of training
        self.size: int | str = 0  # or such as 384 or "224x448"
        if size:
            self.size = value if size[1] else int(value)
        self.data = "" if patch or size else value  # "": the trial's

    @property
    def label_suffix(self) -> str:
        return f" on {self.data}" if self.data else ""

    def check(self, config: Settings) -> None:
        check_predicts_classes(self.with_value("test"), config)
        if self.patch:
            check_patch(config, self.patch)
        elif self.data:
            check_data(config, self.data)
        else:
            check_size(config, image_shape(self.size))

    def compute(self, model: Model, data_dir: Path | None = None) -> Computed:
        self.check(model.config)
        trained = trial_data(model, data_dir)
        if self.patch:
            assert isinstance(model, ViT), "check_patch takes no other"
            with model.at_patch(self.patch):
                return self.measured(model, trained, trained.test)
        if self.data:
            return self.on_other_data(model, trained, data_dir)
        resized = load(model.config.model_copy(update={"image_size": size_name(image_shape(self.size))}), data_dir).test
        return self.measured(model, trained, resized.to(trained.mean.device))

    def measured(self, model: Model, trained: Data, images: Images) -> Computed:
        """Return the metrics on `images`, which are standardized like the trial's data `trained`."""
        logits = batch_outputs(model, model.config, trained, images)  # (n, classes)
        return Computed(self.scores(logits, images.labels))

    def scores(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        accuracy = (logits.argmax(dim=1) == labels).float().mean().item()
        loss = F.cross_entropy(logits, labels).item()
        return {self.with_value("test_accuracy"): accuracy, self.with_value("test_loss"): loss}

    def on_other_data(self, model: Model, trained: Data, data_dir: Path | None) -> Computed:
        config = model.config
        test_set = find_test_set(self.data, data_dir)
        own = describe(config.data, data_dir)
        classes = test_set.trained_labels(own, f"eval test@{self.data}")
        fingerprint = test_set.fingerprint()
        if fingerprint == own.fingerprint:  # the trial has trained on the other images of this data
            images = trained.test
        else:
            images = test_set.load(config.image_shape, config.channels).to(trained.mean.device)
        rescaled = trained.with_levels(own.levels, test_set.levels)
        logits = batch_outputs(model, config, rescaled, images)[:, classes]  # (n, classes of the dataset)
        details = {"images": len(images), "classes": len(classes), "data_sha256": sha256_of(fingerprint)}
        if test_set.label_sets is None:
            return Computed(self.scores(logits, images.labels), details=details)
        predictions = zip(logits.argmax(dim=1).tolist(), test_set.label_sets, strict=True)
        hits = [predicted in right for predicted, right in predictions if right]
        if not hits:
            return Computed({}, [f"no image of {self.data} has a label"])
        notes = ["images with several right labels have no loss"]
        details["images"] = len(hits)
        return Computed({self.with_value("test_accuracy"): sum(hits) / len(hits)}, notes, details)


def sha256_of(fingerprint: dict[str, str | int]) -> str:
    return hashlib.sha256(json.dumps(fingerprint, sort_keys=True).encode()).hexdigest()


def check_data(config: Settings, name: str) -> None:
    where = f"eval test@{name}"
    test_set = find_test_set(name)
    if test_set.channels not in (None, config.channels):
        raise ConfigError(f"{where}: images of {test_set.channels} channels, and the model takes {config.channels}")
    trained = describe(config.data)
    if trained.class_names:  # otherwise a pack that is not here, which workers find
        test_set.trained_labels(trained, where)


def check_size(config: Settings, shape: Shape) -> None:
    size = size_name(shape)
    if not config.model and any(side % config.patch for side in shape):
        raise ConfigError(f"images of {size} pixels: patch={config.patch} does not divide them")
    model, images = zero_model(config, shape)
    try:
        with torch.no_grad():
            model(images)
    except (RuntimeError, AssertionError) as error:  # a part of the model does not take the shape
        what = f"model={config.model}" if config.model else f"position={config.position}"
        raise ConfigError(f"images of {size} pixels: {what} does not take them ({error})") from None
