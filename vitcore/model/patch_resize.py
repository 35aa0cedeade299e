"""The weights of a patch embedding for patches of another size: PI-resize (FlexiViT: arXiv 2212.08013, section 3.4).

Shapes: D width, C channels, P the patch that the weights are of, Q another.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def resized(weight: Tensor, resize: Tensor) -> Tensor:
    """Return the weight (D, C, P, P) as (D, C, Q, Q), by the matrix (Q, P) of `inverse_resize`.

    Of all weights these come closest, over patches of white noise, to giving a resized patch the original's product.
    """
    resize = resize.to(weight)
    return resize @ weight @ resize.T


def inverse_resize(patch: int, other: int) -> Tensor:
    """Return the pseudo-inverse (Q, P) of the transposed bilinear resizing of one axis, in float64.

    Both axes are resized alike, so that the pseudo-inverse of the whole is the Kronecker product of two of these.
    """
    lines = torch.eye(patch, dtype=torch.float64, device="cpu")[None]
    resize = F.interpolate(lines, size=other, mode="linear")[0].T  # (Q, P), without antialiasing, as the paper's code
    inverse: Tensor = torch.linalg.pinv(resize.T)
    return inverse
