"""Binary cross-entropy, distillation and DeiT's model against timm and closed forms; training with a teacher."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
import torch.nn.functional as F
import trainings
from timm.task.token_distillation import TokenDistillationTask
from torch import Tensor, nn
from trainings import finished

from commonfloor.options import ConfigError
from vitcore import Config, ViT, to_timm, train
from vitcore.contracts import perturbed
from vitcore.data.splits import load
from vitcore.identity import identity, trial_id
from vitcore.model.build import build
from vitcore.training.distributed import ALONE
from vitcore.training.objectives import Classification
from vitcore.training.pretrained import Trained, teacher_for
from vitcore.training.state import Training

TEACHER = "0123456789ab"
tiny = partial(trainings.tiny, depth=2, patch=2, pool="cls", steps=4, batch=16)


def with_token(**settings: Any) -> Config:
    return tiny(**{"objective.token": True}, **settings)


def logits(*shape: int) -> Tensor:
    return 3 * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_binary_cross_entropy_is_of_each_class_alone(smoothing: float) -> None:
    """Written out; both classes of a mixed image are right. Verdicts stay those of cross-entropy."""
    goal = Classification(Config(**{"objective.loss": "binary-cross-entropy"}, label_smoothing=smoothing))
    given, labels, mixed = logits(3, 10), torch.tensor([4, 0, 7]), torch.zeros(3, 10, dtype=torch.float64)
    mixed[0, 4], mixed[1, 0], mixed[1, 2], mixed[2, 7] = 1, 0.7, 0.3, 1
    for targets, right in ((labels, F.one_hot(labels, 10)), (mixed, mixed > 0)):
        wanted, p = (1 - smoothing) * right.double() + smoothing / 10, given.sigmoid()
        expected = -(wanted * p.log() + (1 - wanted) * (1 - p).log()).mean()
        torch.testing.assert_close(goal.loss(given, targets), expected)
    loss, right_ones = goal.scores(given, labels)
    assert (loss, right_ones.shape) == (pytest.approx(F.cross_entropy(given, labels).item()), (3,))


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_binary_cross_entropy_starts_at_the_frequency_of_a_class(head: str) -> None:
    """With a bias of -log(K - 1) each class has the probability 1 / K: the loss is the entropy of that."""
    config = tiny(head=head, **{"head.bias": -math.log(9), "objective.loss": "binary-cross-entropy"})
    loss = Classification(config).loss(ViT(config)(torch.randn(10, 1, 8, 8)), torch.arange(10))
    assert loss.item() == pytest.approx(-0.1 * math.log(0.1) - 0.9 * math.log(0.9), rel=1e-5)


class Answers(nn.Module):
    """A model of timm's kind that gives these logits to whatever images."""

    pretrained_cfg = {"mean": (0.0,), "std": (1.0,)}
    num_classes, in_chans, distilled_training = 10, 1, False

    def __init__(self, given: Tensor | tuple[Tensor, Tensor]) -> None:
        super().__init__()
        self.given = given

    def set_distilled_training(self, enable: bool = True) -> None:
        self.distilled_training = enable

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return self.given


@pytest.mark.parametrize(("kind", "tau", "alpha"), [("hard", 1.0, 0.5), ("soft", 3.0, 0.1), ("soft", 1.0, 0.5)])
def test_loss_of_both_heads_equals_timms(kind: str, tau: float, alpha: float) -> None:
    """The class head learns the labels, the other the teacher; timm's TokenDistillationTask on the same logits."""
    both, taught, labels = logits(6, 2, 10), logits(6, 10), torch.arange(6)
    task = TokenDistillationTask(
        Answers((both[:, 0], both[:, 1])), Answers(taught), nn.CrossEntropyLoss(), distill_type=kind, temperature=tau,
        task_loss_weight=1 - alpha, distill_loss_weight=alpha, verbose=False,
    )  # fmt: skip
    options = {"objective.distillation": kind, "objective.tau": tau, "objective.alpha": alpha}
    ours = Classification(with_token(**options)).distilled_loss(both, labels, taught)
    torch.testing.assert_close(ours, task(torch.zeros(6, 1, 8, 8), labels)["loss"].double(), rtol=1e-6, atol=1e-6)


def test_soft_distillation_is_its_closed_form() -> None:
    """Without a token one head learns both: (1 - alpha) CE + alpha tau^2 KL, at temperature tau."""
    own, taught, labels = logits(5, 10), logits(5, 10) + 1, torch.arange(5)
    options = {"objective.distillation": "soft", "objective.tau": 2.0, "objective.alpha": 0.3}
    p, q = ((some / 2).softmax(dim=1) for some in (taught, own))
    expected = 0.7 * F.cross_entropy(own, labels) + 0.3 * 4 * (p * (p / q).log()).sum() / 5
    torch.testing.assert_close(Classification(tiny(**options)).distilled_loss(own, labels, taught), expected)


def test_without_a_teacher_two_class_tokens_learn_the_labels() -> None:
    """Each with its share, also of mixed images and with binary cross-entropy."""
    both, shares = logits(6, 2, 10), logits(6, 10).softmax(1)
    for loss in ("cross-entropy", "binary-cross-entropy"):
        goal = Classification(with_token(**{"objective.alpha": 0.2, "objective.loss": loss}))
        expected = 0.8 * goal.loss(both[:, 0], shares) + 0.2 * goal.loss(both[:, 1], shares)
        torch.testing.assert_close(goal.loss(both, shares), expected)


@pytest.mark.parametrize("final_norm", ["before", "after"])
def test_model_is_timms_distilled_one(final_norm: str) -> None:
    """Both heads' logits in training, their mean in evaluation; timm's distillation token has a position of zero."""
    config = with_token(final_norm=final_norm, image_size=8)
    ours = perturbed(config)
    theirs = timm.models.deit.VisionTransformerDistilled(
        img_size=8, patch_size=2, in_chans=1, num_classes=10, embed_dim=16, depth=2, num_heads=2, weight_init="skip",
        fc_norm=False,
    ).double()  # fmt: skip
    plain = ViT(tiny(final_norm="before")).double()
    own = ours.state_dict()
    plain.load_state_dict({name: own[name] for name in plain.state_dict()})
    weights = to_timm(plain).state_dict()
    row, *patches = weights["pos_embed"][0]
    weights["pos_embed"] = torch.stack([row, torch.zeros_like(row), *patches])[None]
    weights |= {"dist_token": own["objective.token"], "head_dist.weight": own["head.distillation.weight"]}
    theirs.load_state_dict(weights | {"head_dist.bias": own["head.distillation.bias"]})
    theirs.set_distilled_training(True)
    for model in (ours, theirs):
        for norm in (one for one in model.modules() if isinstance(one, nn.LayerNorm)):
            norm.eps = 1e-6
    images = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(ours.train()(images), torch.stack(theirs.train()(images), dim=1))
    torch.testing.assert_close(ours.eval()(images), theirs.eval()(images))


@pytest.fixture(scope="module")
def trained() -> Trained:
    config = tiny(width=8, pool="gap", steps=30)
    return Trained(config.model_dump(), finished(config).weights)


def test_training_asks_the_teacher_about_the_mixed_images(trained: Trained) -> None:
    """The loss of a step is that of its batch and of what the teacher says of the same images; it stays as it is."""
    config = with_token(teacher=TEACHER, mixup=0.8, augment="crop", **{"augment.pad": 1, "objective.alpha": 0.7})
    data = load(config)
    training = Training(config, data, teacher=teacher_for(config, data, ALONE, trained))
    batch = training.batch()
    teacher = build(Config(**trained.config))
    teacher.load_state_dict(safetensors.torch.load(trained.weights))
    said = teacher.eval()(batch.images).argmax(dim=1)
    own, other = training.model.train()(batch.images).unbind(1)
    expected = 0.3 * F.cross_entropy(own, batch.targets) + 0.7 * F.cross_entropy(other, said)
    training.advance()
    assert training.losses[0].item() == pytest.approx(expected.item(), rel=1e-5)
    for name, values in training.train_step.teacher.model.state_dict().items():
        assert torch.equal(values, teacher.state_dict()[name])
    assert not any("teacher" in name for name in training.checkpoint())


@pytest.mark.parametrize("settings", [{"objective.token": True}, {"objective.distillation": "soft", "micro_batch": 5}])
def test_distilled_training_resumes_bit_exactly(trained: Trained, settings: dict[str, Any]) -> None:
    config = tiny(teacher=TEACHER, **settings)
    assert finished(config, 2, teacher=trained).weights == finished(config, teacher=trained).weights


def test_timm_model_with_a_file_teaches(tmp_path: Path) -> None:
    """It sees pixels from 0 to 1 with the mean and deviation of its own config; the file's hash is its identity."""
    model = timm.create_model("test_resnet", num_classes=10, in_chans=1)
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(model.state_dict(), path)
    config = tiny(teacher=f"timm/test_resnet:{path}")
    data = load(config)
    teacher = teacher_for(config, data, ALONE, None)
    pixels = data.train.pixels[:4]
    mean, std = (sum(model.pretrained_cfg[key]) / 3 for key in ("mean", "std"))
    with torch.no_grad():
        expected = model.eval()((pixels.float() / 16 - mean) / std)
        torch.testing.assert_close(teacher(data.standardize(pixels)), expected, rtol=1e-4, atol=1e-4)
    before = trial_id(config)
    assert identity(config)["teacher"]["model"] == "test_resnet"
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(path.read_bytes())
    assert before == trial_id(tiny(teacher=f"timm/test_resnet:{copy}"))
    model.get_parameter("fc.bias").data.add_(1)
    safetensors.torch.save_file(model.state_dict(), path)
    assert trial_id(config) != before


def test_missing_teachers_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    safetensors.torch.save_file({"a": torch.zeros(1)}, path)
    whole = tmp_path / "whole.safetensors"
    safetensors.torch.save_file(timm.create_model("test_vit", num_classes=10, in_chans=1).state_dict(), whole)
    said = {
        TEACHER: "the weights of that trial are missing",
        f"timm/resnet5:{path}": "has no model resnet5",
        f"timm/test_resnet:{path}": "Missing key",
        f"timm/test_vit:{whole}": f"teacher=timm/test_vit:{whole}: Input height .8. should be divisible",
    }
    for teacher, reason in said.items():
        with pytest.raises(ConfigError, match=reason):
            train(tiny(teacher=teacher))
    with pytest.raises(ConfigError, match=r"teacher=.*No such file"):
        trial_id(tiny(teacher=f"timm/test_resnet:{tmp_path / 'none.safetensors'}"))
