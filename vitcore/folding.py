"""A model mapped over members by vmap, and what vmap has no good rule for: autocast, and attention.

Shapes: K members, B images a batch, H heads, T tokens, d_h width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitcore.options import ConfigError

AUTOCAST = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}  # where PyTorch's dispatcher keeps a device's kernels for it
# Of the operations that have such a kernel, what it does: casts to less precision, leaves its arguments' types to each
# other, or else casts to float32. It is ATen/autocast_mode.h that says so, of all devices.
LOWER = {
    *("conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "prelu"),
    *("linear", "matmul", "mm", "mv", "bmm", "addmm", "addmv", "addr", "addbmm", "baddbmm"),
    *("einsum", "chain_matmul", "linalg_multi_dot", "linalg_vecdot", "scaled_dot_product_attention"),
}
PROMOTED = {
    *("cat", "stack", "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "tensordot"),
    *("index_copy", "index_put", "scatter_add"),
}
NORMS = {F.layer_norm, F.group_norm, F.batch_norm}  # their input may be of less precision than their weights


class Folding(TorchFunctionMode):
    """Inside, autocast comes before vmap, as an operation of a model alone meets it, and attention of all is one call.

    By itself vmap comes first and takes an operation apart, so that autocast meets the parts: of a linear layer a
    product, in bfloat16, and a sum, in float32. For attention PyTorch's own rule loops over the members on the CPU.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_autocast_enabled(self.device):
            lower = torch.get_autocast_dtype(self.device)
            to = taken_in(getattr(function, "__name__", ""), self.device, lower)
            if to is not None:
                args, kwargs = cast(args, to, self.device), cast(kwargs, to, self.device)
            elif function in NORMS and args[0].dtype == lower:  # vmap would multiply by the weights in float32
                return function(args[0].float(), *args[1:], **kwargs).to(lower)
            if function is F.linear:
                return linear(*args, **kwargs)
        if function is F.scaled_dot_product_attention:
            return attention(*args, **kwargs)
        return function(*args, **kwargs)


@cache
def taken_in(name: str, device: str, lower: torch.dtype) -> torch.dtype | None:
    """What autocast casts the arguments of an operation to on a device; None: it leaves them as they are."""
    name = name.removeprefix("__").removesuffix("__")  # of an operator
    if name in PROMOTED or name not in known(device):
        return None
    return lower if name in LOWER else torch.float32


@cache
def known(device: str) -> set[str]:
    """The operations that autocast does something about."""
    kernels = torch._C._dispatch_get_registrations_for_dispatch_key(AUTOCAST[device])
    return {name.removeprefix("aten::").partition(".")[0] for name in kernels}


def cast(value: Any, to: torch.dtype, device: str) -> Any:
    """Tensors as autocast casts them, and those in tuples, lists and dicts."""
    if isinstance(value, Tensor):
        eligible = value.is_floating_point() and value.dtype != torch.float64 and value.device.type == device
        return value.to(to) if eligible else value
    if isinstance(value, dict):
        return {key: cast(one, to, device) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [cast(one, to, device) for one in value]
    return value


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """torch.nn.functional.linear, rounded once as there: vmap adds the bias to a product that was rounded before."""
    return Linear.apply(input, weight, bias)  # type: ignore[no-any-return]


class Linear(torch.autograd.Function):
    """As a product of batches, with PyTorch's gradient; only its rule under vmap is ever used."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError("under vmap only")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(
        info: Any, axes: Sequence[int | None], x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, int]:
        """x, weight, bias: of one member (*, D), (O, D), (O,)."""
        K = info.batch_size
        x, weight = of_each(x, axes[0], K), of_each(weight, axes[1], K)  # (K, *, D), (K, O, D)
        flat = x.reshape(K, -1, x.shape[-1])  # (K, N, D)
        if bias is None:
            product = torch.bmm(flat, weight.mT)
        else:
            product = torch.baddbmm(of_each(bias, axes[2], K)[:, None], flat, weight.mT)
        return product.view(*x.shape[:-1], -1), 0


def attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, **options: Any
) -> Tensor:
    """scaled_dot_product_attention, its members folded into the batch."""
    if dropout_p:
        raise ConfigError("attention that draws by itself cannot be trained together: vitcore.noise has dropout")
    return Folded.apply(q, k, v, attn_mask, options)  # type: ignore[no-any-return]


class Folded(torch.autograd.Function):
    """Only its rule under vmap is ever used: there, attention is PyTorch's, with PyTorch's gradient."""

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, options: dict[str, Any]) -> Tensor:
        raise NotImplementedError("under vmap only")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(
        info: Any,
        axes: Sequence[int | None],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        options: dict[str, Any],
    ) -> tuple[Tensor, int]:
        """q, k, v: of one member (B, H, T, d_h); mask: what expands to (B, H, T, T)."""
        K = info.batch_size
        q, k, v = (of_each(tensor, axis, K) for tensor, axis in zip((q, k, v), axes, strict=False))  # (K, B, H, T, d_h)
        B = q.shape[1]
        if mask is not None and (axes[3] is not None or mask.ndim > 3):  # else it is one for all images of all members
            mask = of_each(mask, axes[3], K)
            mask = mask.reshape(K, *[1] * (5 - mask.ndim), *mask.shape[1:])
            mask = mask.expand(K, B, *mask.shape[2:]).flatten(0, 1)
        folded = F.scaled_dot_product_attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), mask, **options)
        return folded.view(K, B, *folded.shape[1:]), 0


def of_each(tensor: Tensor, axis: int | None, members: int) -> Tensor:
    """Each member's tensor (K, *)."""
    return tensor.expand(members, *tensor.shape) if axis is None else tensor.movedim(axis, 0)


class Types(TorchFunctionMode):
    """The operations of a model's forward passes, each with the type of what it returns, alone or under vmap."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.seen: list[tuple[str, torch.dtype]] = []
        model.register_forward_pre_hook(lambda *_: self.begin())
        model.register_forward_hook(lambda *_: self.end())

    def begin(self) -> None:
        self.__enter__()  # type: ignore[no-untyped-call]  # torch leaves it unannotated

    def end(self) -> None:
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # torch leaves it unannotated

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.is_floating_point():
            self.seen.append((getattr(function, "__name__", ""), result.dtype))
        return result
