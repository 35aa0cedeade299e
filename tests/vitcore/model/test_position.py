"""Every position against a double loop written from its definition; what it must be sensitive to; other resolutions."""

import cmath
import inspect
import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from commonfloor.options import ConfigError
from vitcore import Config, ViT
from vitcore.contracts import perturbed
from vitcore.model.position import POSITION, Context, NoPosition
from vitcore.model.position.absolute import Absolute, resample
from vitcore.model.position.relative import resample_offsets
from vitcore.model.self_attention import attend

SMALL: dict[str, Any] = {"image_size": 8, "channels": 2, "patch": 2, "width": 16, "depth": 2, "heads": 2, "pool": "gap"}
ROWS, COLUMNS, PATCHES = 3, 4, 12  # a grid that is not square, for formulas; learned tables are tested at 4 x 4
KINDS = [
    *({"position": name} for name in POSITION),
    *({"position": name, "position_at": at} for name in ("1d", "2d") for at in ("every-layer", "shared")),
    *({"position": name, "position.combine": "concat"} for name in ("1d", "2d", "sincos2d", "index")),
    {"position": "rope2d", "position.mixed": True},
    {"position": "1d+relative-bias"},
]
EVERY = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: ",".join(map(str, kind.values())))


def made(**settings: Any) -> ViT:
    return perturbed(Config(**(SMALL | settings)))


def added(model: ViT, layer: int, grid: tuple[int, int]) -> Tensor:
    """What the position adds to patches of zeros (N, D) as they enter a layer."""
    return model.position.tokens(torch.zeros(1, math.prod(grid), 16, dtype=torch.float64), layer, grid)[0]


@pytest.mark.parametrize("at", ["input", "every-layer", "shared"])
@pytest.mark.parametrize("name", ["1d", "2d"])
@torch.no_grad()
def test_learned_table_enters_where_the_paper_says(name: str, at: str) -> None:
    """Before the first layer alone, before each its own, or before each the same; a class row at the input only."""
    model = made(position=name, position_at=at, pool="cls")
    for layer, patch in product(range(2), range(16)):
        tables = [model.position.table] if name == "1d" else [model.position.x_table, model.position.y_table]
        row, column = divmod(patch, 4)
        entries = [patch] if name == "1d" else [column, row]
        own = [table[layer] if at == "every-layer" else table for table in tables]
        expected = torch.cat([table[entry] for table, entry in zip(own, entries, strict=True)])
        if at == "input" and layer > 0:
            expected = torch.zeros(16)
        torch.testing.assert_close(added(model, layer, (4, 4))[patch], expected.double())
    token = torch.zeros(1, 1, 16, dtype=torch.float64)
    assert bool(model.position.class_token(token).any()) == (at == "input")


@torch.no_grad()
def test_table_is_interpolated_without_antialiasing_on_demand() -> None:
    model = made(position="1d", **{"position.antialias": False})
    expected = resample(model.position.table, (4, 4), (3, 3), antialias=False)
    assert torch.equal(added(model, 0, (3, 3)), expected)
    assert not torch.allclose(expected, resample(model.position.table, (4, 4), (3, 3)))


def sincos1d(patch: int, channel: int) -> float:
    angle = patch / 10_000 ** (channel // 2 * 2 / 16)
    return math.cos(angle) if channel % 2 else math.sin(angle)


def sincos2d(patch: int, channel: int) -> float:
    quarter, rate = divmod(channel, 4)
    row, column = divmod(patch, COLUMNS)
    angle = (column if quarter < 2 else row) / 10_000 ** (rate / 3)
    return math.cos(angle) if quarter % 2 else math.sin(angle)


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("sincos1d", sincos1d),
        ("sincos2d", sincos2d),
        ("index", lambda patch, channel: 0 if channel else patch),
        ("index-normalized", lambda patch, channel: 0 if channel else patch / 11),
    ],
)
def test_fixed_vector_is_its_formula(name: str, formula: Any) -> None:
    """At the input only, and at any grid."""
    model = made(position=name)
    expected = torch.tensor([[formula(patch, channel) for channel in range(16)] for patch in range(PATCHES)]).double()
    torch.testing.assert_close(added(model, 0, (ROWS, COLUMNS)), expected, rtol=0, atol=1e-6)
    assert not added(model, 1, (ROWS, COLUMNS)).any()


@torch.no_grad()
def test_relative_bias_is_the_entry_of_the_offset() -> None:
    """A scalar a head and layer, from row (dy + R - 1) (2C - 1) + dx + C - 1 of the layer's table."""
    model = made(position="relative-bias")
    bias = model.position.bias(torch.zeros(1, 2, 16, 8, dtype=torch.float64), 1, (4, 4))
    for query, key, head in product(range(16), range(16), range(2)):
        entry = (query // 4 - key // 4 + 3) * 7 + query % 4 - key % 4 + 3
        assert bias[0, head, query, key] == model.position.tables[1][entry, head]


EIGHT = [2.0**-power for power in range(1, 9)]  # 12 heads add every other one of the series of 16


@pytest.mark.parametrize("slopes", [EIGHT[3::4], EIGHT, [*EIGHT, 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]])
@torch.no_grad()
def test_alibi_is_minus_slope_times_distance(slopes: list[float]) -> None:
    """Euclidean distance; the published slopes of 2, 8 and 12 heads (arXiv 2108.12409)."""
    position = made(position="alibi2d", width=96, heads=len(slopes)).position
    bias = position.bias(torch.zeros(1, len(slopes), PATCHES, 8, dtype=torch.float64), 0, (ROWS, COLUMNS))
    for query, key in product(range(PATCHES), range(PATCHES)):
        distance = math.dist(divmod(query, COLUMNS), divmod(key, COLUMNS))
        assert bias[0, :, query, key].tolist() == pytest.approx([-slope * distance for slope in slopes], abs=1e-6)


@pytest.mark.parametrize("mixed", [False, True])
@torch.no_grad()
def test_rope_turns_complex_channels_by_the_place(mixed: bool) -> None:
    """exp(i (rate_x column + rate_y row)); axial rates are 100^(-4t / d_h), for x, then for y (arXiv 2403.13298)."""
    model = made(position="rope2d", **{"position.mixed": mixed})
    x = torch.randn(1, 2, PATCHES, 8, dtype=torch.float64)
    turned = model.position.rotate(x, 1, (ROWS, COLUMNS))
    for head, patch, pair in product(range(2), range(PATCHES), range(4)):
        row, column = divmod(patch, COLUMNS)
        across, down = (100 ** (-4 * t / 8) if 0 <= t < 2 else 0.0 for t in (pair, pair - 2))
        if mixed:
            across, down = (rate[pair].item() for rate in model.position.rates[1][head])
        real, imaginary = x[0, head, patch, 2 * pair : 2 * pair + 2].tolist()
        expected = complex(real, imaginary) * cmath.exp(1j * (across * column + down * row))
        found = complex(*turned[0, head, patch, 2 * pair : 2 * pair + 2].tolist())
        assert abs(found - expected) < 1e-6


def test_mixed_rope_starts_as_the_axial_one_in_a_random_direction() -> None:
    """Two axes at a right angle for each layer and head, at rates 10^(-4t / d_h)."""
    model = ViT(Config(**SMALL, position="rope2d", **{"position.mixed": True}))
    rates = torch.stack(list(model.position.rates)).detach()  # (L, H, 2, 4)
    torch.testing.assert_close(rates.norm(dim=2), torch.tensor([1, 10**-0.5, 1, 10**-0.5]).expand(2, 2, 4))
    first, second = rates[..., :2], rates[..., 2:]
    torch.testing.assert_close((first * second).sum(2), torch.zeros(2, 2, 2))
    assert len({round(value, 4) for value in rates[:, :, 0, 0].flatten().tolist()}) == 4


@torch.no_grad()
def test_cpe_is_a_convolution_of_each_channel_beside_the_tokens() -> None:
    """x + the 3 x 3 neighbours weighted, zero outside; after the first block alone (arXiv 2102.10882)."""
    model = made(position="cpe")
    x = torch.randn(1, PATCHES, 16, dtype=torch.float64)
    weight, bias = model.position.convolution.weight, model.position.convolution.bias
    expected = x + bias
    for patch, down, across in product(range(PATCHES), (-1, 0, 1), (-1, 0, 1)):
        row, column = divmod(patch, COLUMNS)
        if 0 <= row + down < ROWS and 0 <= column + across < COLUMNS:
            neighbour = x[0, (row + down) * COLUMNS + column + across]
            expected[0, patch] += weight[:, 0, down + 1, across + 1] * neighbour
    torch.testing.assert_close(model.position.between(x, 0, (ROWS, COLUMNS)), expected)
    assert model.position.between(x, 1, (ROWS, COLUMNS)) is x


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [None, (1, 1), (1, 2), (3, 1), (3, 2)])
@pytest.mark.parametrize("learned", [False, True])
def test_attention_is_the_softmax_written_out(shape: Any, learned: bool, dtype: torch.dtype) -> None:
    """Output and gradients are the formula's, whatever the bias is expanded over; bf16 is float32's on a CPU."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 2, 5, 4, dtype=dtype, requires_grad=True) for _ in range(3))
    bias = torch.randn(*shape, 5, 5, dtype=dtype, requires_grad=learned) if shape else None
    logits = torch.einsum("bhid,bhjd->bhij", q.double(), k.double()) / 2 + (0 if bias is None else bias)
    expected = torch.einsum("bhij,bhjd->bhid", logits.softmax(-1), v.double())
    with torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16):
        found = attend(q, k, v, bias)
    assert found.dtype == (torch.float32 if dtype == torch.bfloat16 else dtype)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    inputs = [q, k, v, bias] if shape and learned else [q, k, v]
    wanted, gradients = (torch.autograd.grad(one.double().square().sum(), inputs) for one in (expected, found))
    torch.testing.assert_close(gradients, wanted)


@EVERY
def test_bf16_autocast_stays_near_float32(kind: dict[str, Any]) -> None:
    model = made(**kind, pool="cls").float()
    images = torch.randn(4, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    exact = model(images)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(images)
    rounded.float().square().sum().backward()
    assert (rounded - exact).abs().max() < 0.05 * exact.abs().max() + 0.02
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


GRIDS = [((4, 4), (8, 8)), ((14, 14), (7, 10)), ((3, 5), (6, 4)), ((4, 4), (2, 3)), ((4, 4), (4, 4))]


@pytest.mark.filterwarnings("ignore:torch.searchsorted:UserWarning", "ignore:Using a non-tuple:UserWarning")  # timm's
@pytest.mark.parametrize(("old", "new"), GRIDS)
def test_resampling_equals_timm(old: tuple[int, int], new: tuple[int, int]) -> None:
    """Absolute tables: timm's resample_abs_pos_embed; offsets: its resize_rel_pos_bias_table."""
    timm = pytest.importorskip("timm.layers")
    table = torch.randn(math.prod(old), 6)
    for antialias in (True, False):
        options = {"num_prefix_tokens": 0, "antialias": antialias}
        theirs = timm.resample_abs_pos_embed(table[None], list(new), list(old), **options)[0]
        torch.testing.assert_close(resample(table, old, new, antialias), theirs, rtol=0, atol=1e-6)
    offsets, shape = (((2 * rows - 1) * (2 * columns - 1), 3) for rows, columns in (old, new))
    offsets = torch.randn(offsets)
    known = "old_window_size" in inspect.signature(timm.resize_rel_pos_bias_table).parameters  # added in timm 1.0.30
    if old[0] != old[1] and not known:
        pytest.skip("this timm takes every old grid for a square")
    theirs = timm.resize_rel_pos_bias_table(offsets, new, shape, **({"old_window_size": old} if known else {}))
    torch.testing.assert_close(resample_offsets(offsets, old, new), theirs, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("old", "new"), [*GRIDS, ((4, 4), (8, 1)), ((4, 4), (1, 1))])
def test_axes_resampled_alone_are_the_resampled_grid(old: tuple[int, int], new: tuple[int, int]) -> None:
    x, y = (torch.randn(size, 6, dtype=torch.float64) for size in reversed(old))
    both = torch.cat([x.expand(*old, 6), y[:, None].expand(*old, 6)], dim=-1).flatten(0, 1)
    across = resample(x, (1, old[1]), (1, new[1])).expand(*new, 6)
    down = resample(y, (1, old[0]), (1, new[0]))[:, None].expand(*new, 6)
    torch.testing.assert_close(resample(both, old, new), torch.cat([across, down], dim=-1).flatten(0, 1))


@EVERY
@torch.no_grad()
def test_model_runs_at_another_size_as_if_it_had_been_made_there(kind: dict[str, Any]) -> None:
    """Images of 16 pixels through a model of 8: what is by formula is the same as in a model of 16 pixels."""
    small, images = made(**kind), torch.randn(2, 2, 16, 16, dtype=torch.float64)
    if kind["position"] == "relative":
        with pytest.raises(ConfigError, match="position=relative: cannot go from a grid of 4x4 patches to 8x8: "):
            small(images)
        return
    large = made(**kind, image_size=16)
    for (name, parameter), values in zip(large.named_parameters(), small.parameters(), strict=True):
        if parameter.shape != values.shape:  # a table of places or of offsets
            old, new = ((1, 4), (1, 8)) if "x_" in name or "y_" in name else ((4, 4), (8, 8))
            method = resample_offsets if "tables" in name else resample
            layers = torch.stack([method(one, old, new) for one in values.view(-1, *values.shape[-2:])])
            values = layers.view(*values.shape[:-2], *layers.shape[1:])
        parameter.copy_(values)
    torch.testing.assert_close(small(images), large(images), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("width", "own"), [(0, 8), (4, 4)])
@pytest.mark.parametrize("stem", ["patch", "conv"])
@torch.no_grad()
def test_concatenated_position_takes_channels_of_the_stem(stem: str, width: int, own: int) -> None:
    """The stem projects to D - width, the encoder's width stays D, and prefix tokens get no row."""
    model = made(stem=stem, pool="cls", **{"position.combine": "concat", "position.width": width})
    images = torch.randn(2, 2, 8, 8, dtype=torch.float64)
    tokens = model.embed(images, Context(model.position, (4, 4), prefix=1))
    assert tokens.shape == (2, 17, 16)
    assert torch.equal(tokens[:, :1], model.class_token.expand(2, 1, 16))
    assert torch.equal(tokens[:, 1:, : 16 - own], model.stem(images))
    assert torch.equal(tokens[:, 1:, 16 - own :], model.position.table.expand(2, 16, own))


@pytest.mark.parametrize("shape", [(16,), (1, 1, 16), (1, 1, 1, 16)])
@pytest.mark.parametrize("prefix", [{"pool": "gap"}, {"pool": "cls", "registers": 2}])
def test_bias_may_be_of_any_shape_that_expands(
    shape: tuple[int, ...], prefix: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written out or expanded it is the same bias, beside prefix tokens too, whose pairs get none."""
    model, images = made(position="none", **prefix), torch.randn(2, 2, 8, 8, dtype=torch.float64)
    of_keys, found = torch.randn(16, dtype=torch.float64), []
    for bias in (of_keys.view(shape), of_keys.expand(2, 2, 16, 16)):
        monkeypatch.setattr(model.position, "bias", lambda q, layer, grid, bias=bias: bias)
        found.append(model(images))
    torch.testing.assert_close(*found)
    monkeypatch.undo()
    assert not torch.allclose(model(images), found[0])


COMBINATIONS = [
    f"{first}+{second}"
    for first, second in product(POSITION, POSITION)
    if issubclass(POSITION[first], Absolute) and not issubclass(POSITION[second], (Absolute, NoPosition))
]


@pytest.mark.parametrize("name", COMBINATIONS)
@torch.no_grad()
def test_two_positions_act_together_as_each_does_alone(name: str) -> None:
    """The first at the input, the second in the attention or between layers, from the same tables."""
    both = made(position=name, pool="cls").position
    first, second = (made(position=part, pool="cls").position for part in name.split("+"))
    first.load_state_dict({key: values for key, values in both.state_dict().items() if not key.startswith("second.")})
    second.load_state_dict(both.second.state_dict())
    tokens = torch.randn(2, 16, 16, dtype=torch.float64)
    heads = torch.randn(2, 2, 16, 8, dtype=torch.float64)
    assert torch.equal(both.tokens(tokens, 0, (4, 4)), first.tokens(tokens, 0, (4, 4)))
    assert torch.equal(both.class_token(tokens[:, :1]), first.class_token(tokens[:, :1]))
    assert torch.equal(both.rotate(heads, 1, (4, 4)), second.rotate(heads, 1, (4, 4)))
    assert torch.equal(both.between(tokens, 0, (4, 4)), second.between(tokens, 0, (4, 4)))
    bias = second.bias(heads, 1, (4, 4))
    assert bias is None or torch.equal(both.bias(heads, 1, (4, 4)), bias)


@torch.no_grad()
def test_registers_rotate_on_a_grid_of_their_own() -> None:
    """As in ViT-5: register 2 row + column turns by both, at rates 100^(-4t / d_h), and the class token does not."""
    options = {"position.register_base": 100}
    model = made(position="rope2d", pool="cls", registers=4, **options)
    x = torch.randn(1, 2, 5 + 16, 8, dtype=torch.float64)
    turned = Context(model.position, (4, 4), prefix=5).rotate(x, 0)
    plain = Context(made(position="rope2d").position, (4, 4), prefix=5).rotate(x, 0)
    assert torch.equal(turned[:, :, [0]], x[:, :, [0]])
    assert torch.equal(turned[:, :, 5:], plain[:, :, 5:])
    assert torch.equal(plain[:, :, :5], x[:, :, :5])
    for register, pair in product(range(4), range(4)):
        row, column = divmod(register, 2)
        angle = (column if pair < 2 else row) * 100 ** (-4 * (pair % 2) / 8)
        expected = complex(*x[0, 1, 1 + register, 2 * pair : 2 * pair + 2].tolist()) * cmath.exp(1j * angle)
        assert abs(complex(*turned[0, 1, 1 + register, 2 * pair : 2 * pair + 2].tolist()) - expected) < 1e-6
    with pytest.raises(ConfigError, match="registers=3: a square, such as 4"):
        Config(**(SMALL | {"position": "1d+rope2d", "registers": 3} | options))


def test_second_position_leaves_the_first_and_its_initial_values() -> None:
    """So that arms with and without it start from the same table."""
    alone, both = (dict(ViT(Config(**SMALL, position=name)).named_parameters()) for name in ("1d", "1d+relative-bias"))
    assert all(torch.equal(values, both[name]) for name, values in alone.items())


@pytest.mark.parametrize(
    ("position", "reason"),
    [
        ("rope2d+1d", "did you mean 1d\\+rope2d"),
        ("1d+2d", "both act at one site: tokens"),
        ("none+1d", "none is for a model without"),
        ("1d+rope2d+cpe", "at most two at once"),
        ("1d+rop2d", "did you mean 'rope2d'"),
        (["1d", "rope2d"], "together: 1d\\+rope2d"),
    ],
)
def test_positions_that_do_not_go_together_are_refused(position: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Config(**(SMALL | {"position": position}))
