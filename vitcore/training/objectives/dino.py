"""DINO: self-distillation without labels (arXiv 2104.14294).

Shapes: B images, V views of an image (the first two are global), C channels, S pixels a side, K prototypes.
"""

from collections.abc import Callable
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from commonfloor.options import ConfigError, JsonSettings
from vitcore.data.boxes import random_boxes, resized_boxes
from vitcore.keyed_random import RngKeys, view_keys
from vitcore.model.initialization import Initial, initialize, normal
from vitcore.settings import Fraction, Many, NonNegative, Positive, Probability, Settings, Shape
from vitcore.training.objectives.self_supervised import SelfTaught, Student
from vitcore.training.schedules import half_cosine

GLOBAL = 2  # global views of an image
RATIO = 4 / 3  # of a box's longer side to its shorter, at most
LOCAL = 96 / 224  # side of a local view, as a fraction of a global one


class DINO(SelfTaught):
    """Prediction of a teacher's output for global views from all other views of an image (DINO: arXiv 2104.14294).

    A view is a random box of the image, augmented by `augment` anew. An image's accuracy is the share of pairs of views
    for which student and teacher choose one prototype, corrected for chance as Cohen's kappa, and at least 0.
    """

    numerics = 1
    predicted = "prototypes of other views"

    class Options(SelfTaught.Options):
        """The views, the head, and the teacher's temperature and center."""

        local_views: Annotated[int, Field(ge=0, le=64)] = 8  #: Small views of an image, beside two global ones.
        #: Side of a local view in pixels, whole patches. 0: 3/7 of `image_size`, as 96 of 224 in arXiv 2104.14294.
        local_size: Annotated[int, Field(ge=0, le=2**16)] = 0
        area: Fraction = 0.4  #: Smallest box of a global view, and largest of a local one, as a fraction of the image.
        local_area: Fraction = 0.05  #: Smallest box of a local view, as a fraction of the image.
        #: Number of outputs of the head. arXiv 2104.14294 has 65,536 for ImageNet, after layers of 2,048 and 256.
        prototypes: Many = 1024
        hidden: Many = 512  #: Width of the head's two hidden layers.
        bottleneck: Many = 128  #: Width of the head's normalized last layer but one.
        student_temperature: Positive = 0.1  #: Temperature of the student's softmax.
        teacher_temperature: Positive = 0.07  #: Temperature of the teacher's softmax, after its warm-up.
        warmup_temperature: Positive = 0.04  #: The teacher's temperature at first.
        temperature_warmup: Probability = 0.1  #: Fraction of the steps in which the teacher's temperature rises.
        center_momentum: NonNegative = 0.9  #: Share of itself that the center of the teacher's outputs keeps at a step.

        def side(self, config: Settings) -> int:
            """Return the side of a local view in pixels."""
            return (
                self.local_size
                or max(1, round(LOCAL * config.square_side("objective=dino") / config.patch)) * config.patch
            )

    options: Options

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.views = GLOBAL + self.options.local_views

    @classmethod
    def canonical(cls, config: Settings) -> JsonSettings:
        """Return option -> default for options of local views that change nothing, so that trial ids are equal."""
        options, default = config.options_of(cls.slot, cls.Options), cls.Options()
        if not options.local_views:
            return {"local_size": default.local_size, "local_area": default.local_area}
        if options.side(config) == default.side(config):
            return {"local_size": 0}
        return {}

    @classmethod
    def check(cls, config: Settings) -> None:
        super().check(config)
        options = config.options_of(cls.slot, cls.Options)
        side = options.side(config)
        if side % config.patch or side > config.square_side("objective=dino"):
            allowed = f"a multiple of patch={config.patch}, up to image_size={config.image_size}, or 0"
            raise ConfigError(f"objective.local_size={side}: {allowed}")
        if options.local_area > options.area:
            raise ConfigError(f"objective.local_area={options.local_area}: at most objective.area={options.area}")
        if options.center_momentum > 1:
            raise ConfigError(f"objective.center_momentum={options.center_momentum}: at most 1")
        if options.local_views:
            with torch.device("meta"), torch.no_grad():  # some positions know one grid only
                ViewsViT(config).eval().lesson(torch.empty(1, config.channels, side, side))

    @classmethod
    def model(cls, config: Settings) -> "ViewsViT":
        return ViewsViT(config)

    def share(self, done: float) -> float:
        return half_cosine(done)

    def targets(self, pixels: Tensor, labels: Tensor, rng_keys: RngKeys) -> Tensor:
        return labels  # which no score reads

    def start_step(self, model: nn.Module, step: int) -> None:
        assert isinstance(model, ViewsViT)
        options = self.options
        warmup = options.temperature_warmup * self.config.steps
        done = min(1.0, step / warmup) if warmup else 1.0
        rise = options.teacher_temperature - options.warmup_temperature
        model.objective.temperature.fill_(options.warmup_temperature + done * rise)

    def start_batch(self, model: nn.Module) -> None:
        assert isinstance(model, ViewsViT)
        model.objective.total.zero_()

    def finish_step(self, model: nn.Module, mean: Callable[[Tensor], Tensor]) -> None:
        assert isinstance(model, ViewsViT)
        outputs = GLOBAL * self.config.batch / self.config.gpus  # of one rank
        center = mean(model.objective.total) / outputs
        model.objective.center.lerp_(center, 1 - self.options.center_momentum)

    def loss(self, outputs: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
        return self.losses(*outputs).mean()

    def losses(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Return each image's mean cross-entropy (B,) over pairs of a global view and another view.

        student: logits of all views (B, V, K). teacher: probabilities of the global views (B, 2, K).
        """
        logs = F.log_softmax(student / self.options.student_temperature, dim=2)
        pairs = -teacher @ logs.transpose(1, 2)  # (B, 2, V)
        return other_views(pairs).sum(dim=(1, 2)) / (GLOBAL * (self.views - 1))

    def answers(self, outputs: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
        """Return each image's loss, and the prototypes that teacher and student choose (B, 1 + 2 + V)."""
        student, teacher = outputs
        losses = self.losses(student, teacher)
        chosen = torch.cat([teacher.argmax(dim=2), student.argmax(dim=2)], dim=1)
        return torch.cat([losses[:, None], chosen.to(losses.dtype)], dim=1)

    def scores(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        losses = answers[:, 0]
        chosen = answers[:, 1:].long()
        teacher, student = chosen[:, :GLOBAL], chosen[:, GLOBAL:]
        equal = (teacher[:, :, None] == student[:, None]).double()  # (B, 2, V)
        agreement = other_views(equal).sum(dim=(1, 2)) / (GLOBAL * (self.views - 1))
        chance = (self.frequencies(teacher) * self.frequencies(student)).sum()
        return losses.mean().item(), ((agreement - chance) / (1 - chance).clamp(min=1e-12)).clamp(min=0)

    def frequencies(self, chosen: Tensor) -> Tensor:
        """Return the relative frequency (K,) of each prototype in `chosen`, indices of any shape."""
        return chosen.flatten().bincount(minlength=self.options.prototypes) / chosen.numel()


def other_views(pairs: Tensor) -> Tensor:
    """Return pairs (B, 2, V) of a teacher's and a student's view, with 0 where both are the same view."""
    return pairs * (1 - torch.eye(*pairs.shape[1:], dtype=pairs.dtype, device=pairs.device))


class ViewsViT(Student):
    """A ViT that maps images (B, C, S, S) or (B, V, C, S, S) to the student's and the teacher's outputs for views.

    The outputs are the student's logits (B, V, K) and the teacher's probabilities (B, 2, K). By default, the keys of
    the views are 0.
    """

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.options = config.options_of("objective", DINO.Options)
        self.objective = Center(self.options)
        self.head = PrototypeHead(config.width, self.options)  # type: ignore[assignment]  # which has other weights
        initialize(self, config.seed, config.init, config.width)

    def forward(self, images: Tensor, rng_keys: RngKeys = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        views = GLOBAL + self.options.local_views
        if rng_keys is None:
            rng_keys = torch.zeros(len(images), dtype=torch.int64, device=images.device)
        if images.ndim == 4:
            images = images[:, None].expand(-1, views, -1, -1, -1)
        keys = view_keys(rng_keys, views).view(-1, views)
        area = self.options.area
        whole = self.boxes(images[:, :GLOBAL], keys[:, :GLOBAL], self.config.image_shape, (area, 1.0))
        logits = [self.logits(whole, keys[:, :GLOBAL])]
        if self.options.local_views:
            side = self.options.side(self.config)
            areas = self.options.local_area, area
            local = self.boxes(images[:, GLOBAL:], keys[:, GLOBAL:], (side, side), areas)
            logits.append(self.logits(local, keys[:, GLOBAL:]))
        lesson = self.taught(whole).unflatten(0, (-1, GLOBAL))  # (B, 2, K)
        if self.training:
            self.objective.observe(lesson)
        return torch.cat(logits, dim=1), self.objective(lesson)

    def boxes(self, images: Tensor, rng_keys: Tensor, shape: Shape, areas: tuple[float, float]) -> Tensor:
        """Return a random box of each view (B, v, C, S, S), resized: (B * v, C, *shape). rng_keys: (B, v)."""
        boxes = random_boxes(rng_keys.flatten(), (images.shape[3], images.shape[4]), areas, RATIO)
        return resized_boxes(images.flatten(0, 1), boxes, shape)

    def logits(self, images: Tensor, rng_keys: Tensor) -> Tensor:
        """Return the student's logits (B, v, K) for views (B * v, C, S, S) with keys (B, v)."""
        return self.head(self.pooled(images, rng_keys.flatten())).unflatten(0, rng_keys.shape)

    def lesson(self, images: Tensor) -> Tensor:
        return self.head(self.pooled(images))


class Center(nn.Module):
    """The center and the temperature of the teacher's softmax, and the sum of its outputs (K,) in this step."""

    center: Tensor
    temperature: Tensor
    total: Tensor

    def __init__(self, options: DINO.Options) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(options.prototypes))
        self.register_buffer("temperature", torch.full((), options.teacher_temperature))
        self.register_buffer("total", torch.zeros(options.prototypes), persistent=False)

    def forward(self, outputs: Tensor) -> Tensor:
        """Return the teacher's probabilities for its outputs (..., K)."""
        return F.softmax((outputs - self.center) / self.temperature, dim=-1)

    def observe(self, outputs: Tensor) -> None:
        """Add the teacher's outputs (B, 2, K) to the sum for the next center."""
        self.total += outputs.sum(dim=(0, 1), dtype=self.total.dtype)


class PrototypeHead(Initial):
    """Three layers with GELU, then cosines with prototypes, whose lengths are 1 (weight normalization: 1602.07868)."""

    draws = {f"{layer}.weight": normal(0.02) for layer in ("first", "second", "third")} | {"weight": normal(0.02)}

    def __init__(self, width: int, options: DINO.Options) -> None:
        super().__init__()
        self.first = nn.Linear(width, options.hidden)
        self.second = nn.Linear(options.hidden, options.hidden)
        self.third = nn.Linear(options.hidden, options.bottleneck)
        self.weight = nn.Parameter(torch.empty(options.prototypes, options.bottleneck))

    def features(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (B, K) of vectors (B, D)."""
        x = self.third(F.gelu(self.second(F.gelu(self.first(x)))))
        return F.linear(F.normalize(x, dim=1), F.normalize(self.weight, dim=1))
