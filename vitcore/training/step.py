"""Running a training step eagerly or as one CUDA graph, with its model compiled or not.

On a GPU, the hundreds of kernels in a small model's step take longer to launch than to run. Unless `cuda_graph=off`,
the step is therefore one CUDA graph. It is captured after a few eager steps, checked once against an eager step, and
then replayed. A step that cannot be captured stays eager, and the reason is recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vitcore.data.files import reason
from vitcore.data.splits import Data
from vitcore.model.build import Reference
from vitcore.model.stem import patch_sizes
from vitcore.runtime.compile_cache import compiled, compiles
from vitcore.runtime.cuda_graph import capture, on_side_stream, without_waiting
from vitcore.runtime.memory import out_of_memory
from vitcore.settings import Settings
from vitcore.training.distillation import Teacher
from vitcore.training.distributed import Ranks
from vitcore.training.optimization.ema import copy
from vitcore.training.run import Facts
from vitcore.training.transfer import Weights
from vitcore.training.update import Inputs, Update

WARM_UP = 4  # eager steps before the capture, in which libraries, autograd and the optimizer initialize
TOLERANCE = {"float32": 1e-3, "bf16": 0.05}  # relative to the gradient's norm: the order of operations may differ
NONE, ASKED = "none: ", "cuda_graph=off"  # prefix of a reason for eager steps, and the reason if the user chose them


class TrainStep(Update):
    """A training step, which runs eagerly or as one CUDA graph, compiled or not.

    facts: how steps are computed, such as why there is no CUDA graph. The training loop records and removes them.
    Raises the errors of `Update` and `use_private_cache`.
    """

    def __init__(
        self, config: Settings, data: Data, start: Weights | None, ranks: Ranks, teacher: Teacher | None = None
    ) -> None:
        super().__init__(config, data, start, ranks, teacher)
        self.compiling = compiles(config, self.device.type)
        if self.compiling:
            self.trained = compiled(self.model, attention=config.attention)
        self.facts: Facts = {}
        self.eager = eager_reason(config, self.device.type, self.optimizer, self.model)
        self.fixed = self.fixed or not self.eager
        self.warm, self.inputs = 0, Inputs(torch.empty(0))
        self.replay: Callable[[], None] | None = None
        self.loss = torch.empty(0)
        if not self.eager:
            for group in self.optimizer.param_groups:  # the graph reads the rate at this address
                group["lr"] = torch.zeros((), device=self.device)
            self.share = torch.zeros((), device=self.device)
        elif self.device.type == "cuda":
            self.facts["cuda_graph"] = NONE + self.eager

    def __call__(self, inputs: Inputs, step: int) -> Tensor:
        """Take step `step`, counted from 0, and return this rank's loss. Its mean over the ranks is the step's loss.

        inputs: as returned by `draw`. The next step may overwrite the returned tensor. Raises the errors of `update`.
        """
        if self.compiling:
            return self.first_step(inputs, step)
        self.schedule(step)
        if self.eager:
            return self.update(self.send(inputs))
        if self.warm == WARM_UP and self.replay is None:
            return self.capture_step(inputs, step)
        self.fill(inputs)
        if self.replay is None:
            self.warm += 1
            with on_side_stream(self.device):
                return self.update(self.inputs)
        self.replay()
        return self.loss

    def first_step(self, inputs: Inputs, step: int) -> Tensor:
        """Take the first step, in which the model is compiled. If compiling fails, use the eager model from now on."""
        self.compiling, began = False, time.perf_counter()
        try:
            return self(inputs, step)
        except Exception as error:  # compilers raise many kinds, and an error of the model itself recurs below
            if out_of_memory(error):
                raise
            self.trained = self.model
            self.facts |= {"compile": False, "compile_failed": f"{type(error).__name__}: {reason(error)}"}
            return self(inputs, step)
        finally:
            self.facts["compile_seconds"] = round(time.perf_counter() - began, 1)

    # -- as one graph --------------------------------------------------------------------------------------------------

    def capture_step(self, inputs: Inputs, step: int) -> Tensor:
        """Take one step eagerly and, from the same state, as a captured CUDA graph; return the loss.

        If the gradients differ by more than rounding, or an error occurs, steps stay eager. The eager step comes first,
        because it finds operations that a graph cannot hold, and frees its memory before the graph needs as much.
        """
        state, earlier = self.state(), self.inputs.map(Tensor.clone)
        before = [tensor.clone() for tensor in state]
        try:
            self.fill(inputs)
            with on_side_stream(self.device), without_waiting(self.device):
                self.update_as_captured()
            expected = [parameter.grad for parameter in self.parameters]
            copy(before, state)
            self.optimizer.zero_grad()
            self.fill(earlier)  # images that differ from the check's, in case the graph contains the images themselves
            with capturable(self.optimizer):
                self.replay, self.loss = capture(self.update_as_captured)
            gradients = [parameter.grad for parameter in self.parameters]
            self.optimizer.zero_grad()
            self.fill(inputs)
            self.replay()
            if self.gradients_equal(gradients, expected):
                extent = "the step after augmentation" if self.augmented_before_graph else "the whole step"
                self.facts["cuda_graph"] = extent
                return self.loss
            why = "its gradients differ from an eager step's"
        except Exception as error:  # a capture fails in many ways, and an error of the step itself recurs below
            why = f"{type(error).__name__}: {reason(error)}"
        copy(before, state)
        self.give_up(why)
        self.schedule(step)
        return self.update(self.send(inputs))

    def update_as_captured(self) -> Tensor:
        """Take a step to capture as a CUDA graph, which cannot retry with smaller micro-batches."""
        loss = self.gradients(self.batch(self.inputs), self.micro_batch)
        self.apply_gradients()
        return loss

    def gradients_equal(self, gradients: list[Tensor | None], expected: list[Tensor | None]) -> bool:
        if [gradient is None for gradient in gradients] != [gradient is None for gradient in expected]:
            return False
        ours, theirs = ([gradient for gradient in each if gradient is not None] for each in (gradients, expected))
        off, whole = nn.utils.get_total_norm(torch._foreach_sub(ours, theirs)), nn.utils.get_total_norm(theirs)
        return bool(off <= TOLERANCE[self.config.precision] * whole)

    def state(self) -> list[Tensor]:
        moments = (value for state in self.optimizer.state.values() for value in state.values())
        mean = self.average.mean if self.average else []
        return [*self.model.state_dict().values(), *mean, *(value for value in moments if isinstance(value, Tensor))]

    def give_up(self, reason: str) -> None:
        """Replace the CUDA graph with eager steps, and record the reason."""
        self.replay, self.eager = None, reason
        self.inputs, self.loss = Inputs(torch.empty(0)), torch.empty(0)  # the graph's tensors would keep its memory
        self.facts["cuda_graph"] = NONE + reason
        self.optimizer.zero_grad()
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0  # a float again, which `set_rate` replaces
        self.share = 0.0

    def fill(self, inputs: Inputs) -> None:
        """Copy `inputs` to the addresses that the CUDA graph reads. The first call allocates the memory."""
        if self.warm == 0:
            self.inputs = inputs.map(lambda tensor: tensor.to(self.device, copy=True))
            return
        for fixed, new in zip(self.inputs, inputs, strict=True):
            if fixed is not None and new is not None:
                fixed.copy_(new.pin_memory() if new.device != self.device else new, non_blocking=True)


def eager_reason(config: Settings, device: str, optimizer: torch.optim.Optimizer, model: nn.Module) -> str:
    """Return why a step should not be one CUDA graph, or "" if a capture is worth trying. device: "cuda" or "cpu"."""
    patches = patch_sizes(config)
    reasons = {
        "a CPU has none": device != "cuda",
        ASKED: config.cuda_graph == "off",
        f"gpus={config.gpus}: gradients are exchanged between launches": config.gpus > 1,
        f"stem.patches={patches}: shapes change by step": len(patches) > 1,
        # Other optimizers may count steps on the host, and a graph would repeat the count at its capture.
        f"optimizer={config.optimizer}: not fused": not all(group.get("fused") for group in optimizer.param_groups),
        f"optimizer={config.optimizer}: not PyTorch's": not type(optimizer).__module__.startswith("torch.optim."),
        f"model={config.model}: the host seeds what it drops": isinstance(model, Reference) and model.drops,
    }
    return next((reason for reason, true in reasons.items() if true), "")


@contextmanager
def capturable(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Set the `capturable` flag during the block. PyTorch's optimizers need it in a graph; results are unaffected."""
    groups = [group for group in optimizer.param_groups if "capturable" in group]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False
