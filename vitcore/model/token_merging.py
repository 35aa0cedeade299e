"""Token merging (ToMe), in which each layer merges the most similar patches (arXiv 2210.09461, section 3).

Shapes: B images, T tokens (`prefix` of them before the patches), D width, H heads, d_h = D / H.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from vitcore.model.position import Context


def merge(x: Tensor, context: Context, count: int) -> Tensor:
    """Return the tokens x (B, T, D) after merging `count` patches, but at most half, as in `merged`.

    context: has the attention keys, and stores the number of patches in each token for later layers.
    """
    if not count:
        return x
    keys = context.shared["keys"].mean(dim=1)  # (B, T, d_h)
    sizes = context.shared.get("sizes", x.new_ones(x.shape[:2]))
    x, context.shared["sizes"] = merged(x, keys, sizes, context.prefix, count)
    return x


def merged(x: Tensor, keys: Tensor, sizes: Tensor, prefix: int, count: int) -> tuple[Tensor, Tensor]:
    """Return (tokens, sizes) after merging `count` patches, but at most half, by bipartite soft matching.

    Patches alternate between two sets. The `count` patches of the first set that are most similar to the second are
    averaged into their most similar patches, weighted by size. The rest of the first set precedes the second. x: tokens
    (B, T, D). keys: attention keys (B, T, d_h), averaged over heads. sizes (B, T): number of patches per token.
    """
    count = min(count, (x.shape[1] - prefix) // 2)
    first, second = slice(prefix + prefix % 2, None, 2), slice(prefix + 1 - prefix % 2, None, 2)
    with torch.no_grad():
        keys = F.normalize(keys, dim=-1)
        likeness, into = (keys[:, first] @ keys[:, second].transpose(1, 2)).max(dim=2)
        order = likeness.argsort(dim=1, descending=True, stable=True)
        gone, stay = order[:, :count], order[:, count:].sort(dim=1).values
        into = into.gather(1, gone)  # (B, count)
    grown = sizes[:, second].scatter_add(1, into, sizes[:, first].gather(1, gone))
    weighted = x * sizes[..., None]
    moved = weighted[:, first].take_along_dim(gone[..., None], dim=1)  # (B, count, D)
    sums = weighted[:, second].scatter_add(1, into[..., None].expand_as(moved), moved)
    kept = x[:, first].take_along_dim(stay[..., None], dim=1)
    x = torch.cat([x[:, :prefix], kept, sums / grown[..., None]], dim=1)
    return x, torch.cat([sizes[:, :prefix], sizes[:, first].gather(1, stay), grown], dim=1)
