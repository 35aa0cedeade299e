"""The test images in another form: at another size, or cut into patches of another size."""

from __future__ import annotations

import re
from pathlib import Path

import torch
import torch.nn.functional as F

from commonfloor.options import ConfigError
from vitcore.analysis.eval import Computed, Eval, batch_outputs, check_predicts_classes, trial_data
from vitcore.data.splits import Data, Images, load
from vitcore.model.build import Model, check_patch, zero_model
from vitcore.model.vit import ViT
from vitcore.settings import Settings
from vitcore.training.evaluation import ACCURACY, LOSS


class OtherImages(Eval):
    """test@SIZE: images of SIZE x SIZE pixels, resized from the originals or a pack. test@patchP: patches of P."""

    metrics = {"test_accuracy": ACCURACY, "test_loss": LOSS}
    values = ("SIZE", "patchP")

    @classmethod
    def takes(cls, value: str) -> bool:
        return re.fullmatch(r"(patch)?[1-9]\d*", value) is not None

    @property
    def patch(self) -> int:
        """The size of patches, or 0 for that of training."""
        return int(self.value.removeprefix("patch")) if self.value.startswith("patch") else 0

    @property
    def size(self) -> int:
        """The size of images, or 0 for that of training."""
        return 0 if self.patch else int(self.value)

    def check(self, config: Settings) -> None:
        check_predicts_classes(self.with_value("test"), config)
        if self.patch:
            check_patch(config, self.patch)
        else:
            check_size(config, self.size)

    def compute(self, model: Model, data_dir: Path | None = None) -> Computed:
        self.check(model.config)
        trained = trial_data(model, data_dir)
        if self.patch:
            assert isinstance(model, ViT), "check_patch takes no other"
            with model.at_patch(self.patch):
                return self.measured(model, trained, trained.test)
        resized = load(model.config.model_copy(update={"image_size": self.size}), data_dir).test
        return self.measured(model, trained, resized.to(trained.mean.device))

    def measured(self, model: Model, trained: Data, images: Images) -> Computed:
        """Return the metrics on `images`, which are standardized like the trial's data `trained`."""
        logits = batch_outputs(model, model.config, trained, images)  # (n, classes)
        accuracy = (logits.argmax(dim=1) == images.labels).float().mean().item()
        loss = F.cross_entropy(logits, images.labels).item()
        return Computed({self.with_value("test_accuracy"): accuracy, self.with_value("test_loss"): loss})


def check_size(config: Settings, size: int) -> None:
    if not config.model and (size < config.patch or size % config.patch):
        raise ConfigError(f"images of {size} pixels: patch={config.patch} does not divide them")
    model, images = zero_model(config, size)
    try:
        with torch.no_grad():
            model(images)
    except (RuntimeError, AssertionError) as error:  # a part of the model does not take the shape
        what = f"model={config.model}" if config.model else f"position={config.position}"
        raise ConfigError(f"images of {size} pixels: {what} does not take them ({error})") from None
