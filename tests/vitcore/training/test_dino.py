"""DINO against naive loops from the pseudocode of arXiv 2104.14294."""

import math
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import cohen_kappa_score
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from trainings import advanced, keys, tiny

from vitcore import train
from vitcore.analysis.cost import measure
from vitcore.analysis.eval import restore_model
from vitcore.analysis.evals import EVAL
from vitcore.contracts import in_float64
from vitcore.data.boxes import random_boxes
from vitcore.keyed_random import view_keys
from vitcore.model.vit import ViT
from vitcore.runtime.compile_cache import use_private_cache
from vitcore.training.algorithms import AveragedTeacher
from vitcore.training.objectives import OBJECTIVE
from vitcore.training.objectives.dino import ViewsViT
from vitcore.training.pretrained import check_start
from vitcore.training.run import Memory
from vitcore.training.state import Training

SMALL = {"local_views": 2, "prototypes": 12, "hidden": 16, "bottleneck": 8}
dino = partial(
    tiny, patch=2, pool="cls", objective="dino", augment="flip", **{f"objective.{k}": v for k, v in SMALL.items()}
)


def model_of(training: Training) -> ViewsViT:
    assert isinstance(training.model, ViewsViT)
    return training.model


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_loss_is_that_of_the_pseudocode() -> None:
    """A loop over images, global views of the teacher, other views of the student and prototypes."""
    objective = OBJECTIVE["dino"](dino())
    model = ViewsViT(dino()).double()
    model.objective.center.copy_(numbers(12))
    student, teacher = 3 * numbers(5, 4, 12), numbers(5, 2, 12)
    errors = []
    for image, taught, view in product(range(5), range(2), range(4)):
        if taught == view:
            continue
        wanted = np.exp(((teacher[image, taught] - model.objective.center) / 0.07).numpy())
        given = np.exp((student[image, view] / 0.1).numpy())
        errors.append(-sum(w / wanted.sum() * math.log(g / given.sum()) for w, g in zip(wanted, given, strict=True)))
    loss = objective.loss((student, model.objective(teacher)), torch.zeros(5))
    assert len(errors) == 5 * 6
    assert loss.item() == pytest.approx(np.mean(errors), rel=1e-9)  # temperatures are in float32


def test_center_and_temperature_follow_the_steps() -> None:
    """The center is the moving average of the teacher's mean output, whatever the micro-batches are."""
    training = in_float64(dino(steps=20, **{"objective.temperature_warmup": 0.2}))
    model = model_of(training)
    wanted = torch.zeros(12, dtype=torch.float64)
    seen: list[Tensor] = []
    model.objective.observe = lambda outputs: (
        seen.append(outputs),
        type(model.objective).observe(model.objective, outputs),
    )
    for step in range(6):
        training.train_step.micro_batch = 3
        training.advance()
        outputs = torch.cat(seen).flatten(0, 1)  # (2 B, K)
        seen.clear()
        assert len(outputs) == 2 * training.config.batch
        wanted = 0.9 * wanted + 0.1 * outputs.mean(dim=0)
        assert torch.allclose(model.objective.center, wanted, atol=1e-12)
        assert model.objective.temperature.item() == pytest.approx(0.04 + 0.03 * min(1, step / 4))


def test_teacher_is_the_average_in_closed_form() -> None:
    """Each student's weight is 1 - m of its step times the m of all later steps, with m by the cosine of the paper."""
    training = in_float64(dino(steps=6, **{"objective.momentum": 0.9}))
    students = [torch.cat([p.detach().flatten() for p in training.model.parameters()])]
    for _ in range(6):
        training.advance()
        students.append(torch.cat([p.detach().flatten() for p in training.model.parameters()]))
    m = [1 - 0.1 * (1 + math.cos(math.pi * step / 6)) / 2 for step in range(6)]
    wanted = students[0] * math.prod(m)
    for step in range(6):
        wanted = wanted + (1 - m[step]) * math.prod(m[step + 1 :]) * students[step + 1]
    average = training.average
    assert isinstance(average, AveragedTeacher)
    assert torch.allclose(torch.cat([p.flatten() for p in average.teacher.parameters()]), wanted, atol=1e-12)
    assert torch.equal(average.state_dict()["objective.center"], model_of(training).objective.center)  # no average


def test_gradients_reach_only_the_student() -> None:
    training = advanced(dino(), 2)
    training.train_step.backward(training.batch(), training.config.batch)
    average = training.average
    assert isinstance(average, AveragedTeacher)
    assert all(
        p.grad is not None for name, p in training.model.named_parameters() if not name.startswith("encoder.norm")
    )
    assert all(p.grad is None and not p.requires_grad for p in average.teacher.parameters())
    assert not {*average.teacher.parameters()} & {*training.model.parameters()}
    outputs = training.model(training.batch().images, training.batch().rng_keys)
    assert [tensor.requires_grad for tensor in outputs] == [True, False]


def test_views_are_boxes_that_student_and_teacher_see() -> None:
    """Each view is its own box of its own augmented copy, resized as PyTorch does; the teacher sees the first two."""
    training = in_float64(dino(**{"objective.local_size": 4, "objective.area": 0.5}))
    model = model_of(training)
    batch = training.batch()
    assert batch.images.shape == (10, 4, 1, 8, 8)
    assert not torch.equal(batch.images[:, 0], batch.images[:, 1])  # flipped on their own
    own, taught = [], []
    model.pooled = lambda images, rng_keys: (own.append(images), ViT.pooled(model, images, rng_keys))[1]
    model.teach = lambda images: (taught.append(images), model.head(ViT.pooled(model, images)))[1]
    model(batch.images, batch.rng_keys)
    every_key = view_keys(batch.rng_keys, 4).view(10, 4)
    for (image, view), side in zip(product(range(3), range(4)), [8, 8, 4, 4] * 3, strict=True):
        areas = (0.5, 1.0) if view < 2 else (0.05, 0.5)
        top, left, height, width = random_boxes(every_key[image, view : view + 1], (8, 8), areas, 4 / 3)[0].tolist()
        box = batch.images[image, view, :, top : top + height, left : left + width]
        wanted = F.interpolate(box[None], (side, side), mode="bilinear", antialias=True)[0]
        assert torch.allclose(own[view // 2].unflatten(0, (10, 2))[image, view % 2], wanted, atol=1e-6)
    assert torch.equal(taught[0], own[0])


@pytest.mark.parametrize("areas", [(0.4, 1.0), (0.05, 0.4)])
def test_boxes_have_their_areas(areas: tuple[float, float]) -> None:
    """Up to rounding to whole pixels; boxes are uniform in area over the range."""
    boxes = random_boxes(keys(2000), (224, 224), areas, 4 / 3).double()
    share = boxes[:, 2] * boxes[:, 3] / 224**2
    assert areas[0] - 0.01 < share.min() < areas[0] + 0.02
    assert areas[1] - 0.03 < share.max() < areas[1] + 0.01


def test_accuracy_is_agreement_corrected_for_chance() -> None:
    """With chance as in scikit-learn's Cohen's kappa. A collapsed model agrees with itself, and has 0."""
    config = dino(**{"objective.local_views": 0})
    objective = OBJECTIVE["dino"](config)
    student, teacher = numbers(40, 2, 12), numbers(40, 2, 12).softmax(dim=2)
    teacher[:25] = student[:25].flip(1).softmax(dim=2)  # those agree
    loss, right = objective.scores(objective.answers((student, teacher), torch.zeros(40)), torch.zeros(40))
    pairs = teacher.argmax(dim=2).flatten(), student.argmax(dim=2).flip(1).flatten()
    equal = (pairs[0] == pairs[1]).double().view(40, 2).mean(dim=1)
    kappa, agreement = cohen_kappa_score(*pairs), equal.mean().item()
    chance = (agreement - kappa) / (1 - kappa)
    assert right.tolist() == pytest.approx(((equal - chance) / (1 - chance)).clamp(min=0).tolist())
    assert loss == pytest.approx(objective.loss((student, teacher), torch.zeros(40)).item())
    same = torch.zeros(40, 2, 12).double()
    same[..., 3] = 1
    assert objective.scores(objective.answers((same, same), torch.zeros(40)), torch.zeros(40))[1].tolist() == [0] * 40


def test_flops_count_every_view_and_the_teacher() -> None:
    """The student's passes over two whole and two local views, the teacher's over two, and the crops."""
    config = dino(**{"objective.local_size": 4})
    model = ViewsViT(config).eval()

    def passes(side: int, images: int) -> int:
        with (
            FlopCounterMode(display=False) as counter,
            torch.no_grad(),
            torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        ):
            model.lesson(torch.zeros(images, 1, side, side))
        return counter.get_total_flops()

    crops = 2 * (2 * 8 * 8 * 8 * 2) + 2 * (2 * 8 * 8 * 4 + 2 * 4 * 8 * 4)
    assert measure(config).flops == passes(8, 4) + passes(4, 2) + crops
    assert measure(config).params == sum(p.numel() for p in model.parameters())  # the student's alone


def test_trial_starts_a_classifier_and_has_features() -> None:
    """The saved weights are the teacher's. Fine-tuning takes its body; k-NN reads its features."""
    config, run = dino(), Memory()
    outcome = train(config, run)
    assert run.weights is not None
    assert 0 <= outcome.metrics["test_accuracy"] <= 1
    assert run.correct is None
    child = tiny(patch=2, pool="cls", init_from="0" * 12)
    check_start(child, config)
    train(child, Memory(), parent=run.weights)
    for name in ("knn", "linear"):
        EVAL[name]("").compute(restore_model(config, run.weights))


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["dino", "ijepa"])
def test_compiled_student_sees_its_teacher_move(objective: str) -> None:
    training = in_float64(tiny(patch=2, pool="cls", objective=objective))
    batch = training.batch()
    use_private_cache()
    compiled = torch.compile(training.model, backend="aot_eager", fullgraph=True)
    lessons = []
    for _ in range(2):
        training.advance()
        for plain, graph in zip(
            training.model(batch.images, batch.rng_keys), compiled(batch.images, batch.rng_keys), strict=True
        ):
            assert torch.allclose(plain, graph, atol=1e-12)
        lessons.append(plain)
    assert not torch.equal(*lessons)
