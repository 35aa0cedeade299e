"""Running a training step as one CUDA graph.

On a GPU, the hundreds of kernels in a small model's step take longer to launch than to run. Unless `cuda_graph=off`,
the step is therefore one CUDA graph. It is captured after a few eager steps, checked once against an eager step, and
then replayed. A step that cannot be captured stays eager, and the reason is recorded.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor, nn, optim

from commonfloor.messages import reason
from vitcore.model.build import OtherModel
from vitcore.model.stem import patch_sizes
from vitcore.settings import Settings
from vitcore.training.batches import Inputs

WARM_UP = 4  # eager steps before the capture, in which libraries, autograd and the optimizer initialize
TOLERANCE = {"float32": 1e-3, "bf16": 0.05}  # relative to the gradient's norm: the order of operations may differ
NONE = "none: "  # prefix of a reason for eager steps
ASKED = "cuda_graph=off"  # the reason if the user chose them

Update = Callable[..., Tensor]  # `TrainStep.update`


class NotCaptured(Exception):
    """The error for a step that cannot be one CUDA graph. Its message is the reason."""


class StepGraph:
    """A training step as one CUDA graph. It holds the tensors at fixed addresses that the graph reads and writes.

    replay: launches the graph, or None before its capture. The step is passed to each method and not kept, because a
    cycle of references would keep all tensors until a garbage collection.
    """

    def __init__(
        self, device: torch.device, parameters: Sequence[nn.Parameter], optimizer: optim.Optimizer, precision: str
    ) -> None:
        self.device = device
        self.parameters = parameters
        self.optimizer = optimizer
        self.tolerance = TOLERANCE[precision]
        self.warm = 0  # steps of the warm-up so far
        self.inputs = Inputs(torch.empty(0))
        self.loss = torch.empty(0)
        self.replay: Callable[[], None] | None = None

    def run(self, inputs: Inputs) -> Tensor:
        """Take a step by the captured graph, and return its loss."""
        assert self.replay is not None
        self.fill(inputs)
        self.replay()
        return self.loss

    def warm_up(self, inputs: Inputs, update: Update) -> Tensor:
        """Take an eager step with the graph's inputs, and return its loss."""
        self.fill(inputs)
        self.warm += 1
        with on_side_stream(self.device):
            return update(self.inputs)

    def capture(self, inputs: Inputs, update: Update, changed: list[Tensor]) -> Tensor:
        """Take one step eagerly and, from the same state, as a captured CUDA graph; return the loss.

        changed: all tensors that a step changes. Raises NotCaptured, with these tensors as they were, if an error
        occurs or the gradients differ by more than rounding. The eager step comes first, because it finds operations
        that a graph cannot hold, and frees its memory before the graph needs as much.
        """
        earlier = self.inputs.map(Tensor.clone)
        before = [tensor.clone() for tensor in changed]
        try:
            self.fill(inputs)
            with on_side_stream(self.device), without_waiting(self.device):
                update(self.inputs, divisible=False)
            expected = self.gradients()
            torch._foreach_copy_(changed, before)
            self.optimizer.zero_grad()
            self.fill(earlier)  # images that differ from the check's, in case the graph contains the images themselves
            with capturable(self.optimizer):
                self.replay, self.loss = capture(partial(update, self.inputs, divisible=False))
            gradients = self.gradients()
            self.optimizer.zero_grad()
            loss = self.run(inputs)
            if self.nearly_equal(gradients, expected):
                return loss
            failure = "its gradients differ from an eager step's"
        except Exception as error:  # a capture fails in many ways, and an error of the step itself recurs eagerly
            failure = f"{type(error).__name__}: {reason(error)}"
        torch._foreach_copy_(changed, before)
        raise NotCaptured(failure)

    def fill(self, inputs: Inputs) -> None:
        """Copy `inputs` to the addresses that the CUDA graph reads. The first call allocates the memory."""
        if self.warm == 0:
            self.inputs = inputs.map(lambda tensor: tensor.to(self.device, copy=True))
            return
        for fixed, new in zip(self.inputs, inputs, strict=True):
            if fixed is not None and new is not None:
                pinned = new if new.device == self.device else new.pin_memory()
                fixed.copy_(pinned, non_blocking=True)

    def gradients(self) -> list[Tensor | None]:
        return [parameter.grad for parameter in self.parameters]

    def nearly_equal(self, gradients: list[Tensor | None], expected: list[Tensor | None]) -> bool:
        captured, eager = list[Tensor](), list[Tensor]()
        for gradient, wanted in zip(gradients, expected, strict=True):
            if gradient is None and wanted is None:
                continue
            if gradient is None or wanted is None:
                return False
            captured.append(gradient)
            eager.append(wanted)
        error = nn.utils.get_total_norm(torch._foreach_sub(captured, eager))
        return bool(error <= self.tolerance * nn.utils.get_total_norm(eager))


def eager_reason(config: Settings, device: str, optimizer: optim.Optimizer, model: nn.Module) -> str:
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
        f"model={config.model}: the host seeds what it drops": isinstance(model, OtherModel) and model.drops,
    }
    return next((text for text, applies in reasons.items() if applies), "")


@contextmanager
def capturable(optimizer: optim.Optimizer) -> Iterator[None]:
    """Set the `capturable` flag during the block. PyTorch's optimizers need it in a graph; results are unaffected."""
    groups = [group for group in optimizer.param_groups if "capturable" in group]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False


def capture(function: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """Return (function that replays all kernels of `function`, tensor that will hold the result of each replay).

    The capture computes nothing. The tensors that `function` reads must stay at their addresses. Before a capture, run
    `function` in `without_waiting`, because PyTorch before 2.14 leaks memory after a failed capture. Raises the error
    of `function`, or RuntimeError if `function` reads a value from the GPU or has variable shapes.
    """
    graph = torch.cuda.CUDAGraph()
    here = torch.cuda.current_stream()
    reason: Exception | None = None
    try:
        # The outer stream context: after a failed capture, PyTorch may stay on the stream of the capture.
        with torch.cuda.stream(here), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            try:
                result = function()
            except Exception as error:
                reason = error  # the end of an invalid capture raises another error, which says less
                raise
        return graph.replay, result
    except Exception as error:
        raise (reason or error) from None
    finally:
        reason = None  # an error that refers to this frame would keep the graph's memory


@contextmanager
def without_waiting(device: torch.device) -> Iterator[None]:
    """Make operations that wait for a GPU raise RuntimeError in the block, because no CUDA graph can contain them."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    with catch_warnings():
        simplefilter("ignore")  # PyTorch calls the mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


@contextmanager
def on_side_stream(device: torch.device) -> Iterator[None]:
    """Run the block on a second CUDA stream, as PyTorch requires of the warm-up before a capture."""
    here, side = torch.cuda.current_stream(device), side_stream(device)
    side.wait_stream(here)
    try:
        with torch.cuda.stream(side):
            yield
    finally:
        here.wait_stream(side)  # after an error too, because launched kernels still write


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
