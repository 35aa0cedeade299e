"""Dropout, patch dropout and stochastic depth, with masks that depend on the random key of each image.

Therefore, an image has the same masks with micro-batches, on any rank, and in a resumed training run.
"""

from collections.abc import Callable

from torch import Tensor, nn

from vitcore.keyed_random import RngKeys, bits, keep_mask, site_code
from vitcore.settings import Settings

Noise = Callable[[Tensor, RngKeys], Tensor]
PATCHES = site_code("patches")  # a constant, because torch.compile cannot trace a hash


def dropout(rate: float, site: str) -> Noise:
    return Dropout(rate, site) if rate else unchanged


def drop_path(config: Settings, layer: int, branch: str) -> Noise:
    """Return a block's stochastic depth, whose rate rises linearly by layer as in timm, or is constant."""
    rate = config.drop_path
    if config.drop_path_by_layer == "linear":
        rate *= layer / max(1, config.layers - 1)
    return DropPath(rate, f"path {branch} {layer}") if rate else unchanged


def unchanged(x: Tensor, rng_keys: RngKeys = None) -> Tensor:
    """Return `x`. This function replaces dropout at rate 0, and is faster than nn.Identity."""
    return x


class Dropout(nn.Module):
    """Dropout: in training, elements are zeroed with probability `rate` and otherwise scaled up (arXiv 1207.0580).

    site: the layer's name in the model, from which the masks are derived.
    """

    def __init__(self, rate: float, site: str) -> None:
        super().__init__()
        self.rate = rate
        self.site = site_code(site)

    def forward(self, x: Tensor, rng_keys: RngKeys) -> Tensor:
        """Return x (B, ...), with dropout in training. rng_keys: the random keys of the images (B,)."""
        if not self.training:
            return x
        assert rng_keys is not None, "dropout in training needs the images' keys"
        return x * (self.mask(x, rng_keys).to(x.dtype) / (1 - self.rate))

    def mask(self, x: Tensor, rng_keys: Tensor) -> Tensor:
        return keep_mask(rng_keys, self.site, x[0].numel(), self.rate).view(x.shape)


class DropPath(Dropout):
    """Stochastic depth: in training, an image skips a residual branch with probability `rate` (arXiv 1603.09382)."""

    def mask(self, x: Tensor, rng_keys: Tensor) -> Tensor:
        return keep_mask(rng_keys, self.site, 1, self.rate).view(-1, *[1] * (x.ndim - 1))


class PatchDropout(nn.Module):
    """Patch dropout: in training, each image loses a random fraction `rate` of its patches (arXiv 2208.07220)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor, rng_keys: RngKeys) -> Tensor:
        """Return n > 0 random patches (B, n, D) of x (B, N, D), or x in evaluation. rng_keys: random keys (B,)."""
        if not self.training:
            return x
        assert rng_keys is not None, "patch dropout in training needs the images' keys"
        stay = max(1, int(x.shape[1] * (1 - self.rate)))  # rounded as in timm
        order = bits(rng_keys, PATCHES, x.shape[1]).argsort(dim=1, stable=True)
        kept = order[:, :stay].sort(dim=1).values
        return x.take_along_dim(kept[..., None], dim=1)
