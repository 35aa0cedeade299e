"""Attention kernels: the rule that chooses them, and what is recorded of them."""

import pytest
import torch

from ablations.provenance import environment
from vitcore.attending import FREE, PRODUCTS, named
from vitcore.config import Config
from vitcore.measure import bias_of

SMALL = {"width": 16, "depth": 1, "heads": 2, "patch": 4}
BIASES = {"none": "", "1d": "", "rope2d": "", "alibi2d": "fixed", "relative": "learned", "relative-bias": "learned"}


@pytest.mark.parametrize("position", BIASES)
def test_a_bias_is_told_by_its_gradient(position: str) -> None:
    """Which kernels there are for it depends on that."""
    assert bias_of(Config(**SMALL, position=position)) == BIASES[position]


def test_a_reference_model_has_none_that_is_known() -> None:
    """Its attention, where it has any, is its own."""
    assert bias_of(Config(model="timm/resnet18")) == ""


def test_the_cpu_has_a_form_of_its_own_for_a_learned_bias_alone() -> None:
    """What encoder.attend asks of the bias itself."""
    found = {position: named(Config(**SMALL, position=position), "cpu") for position in BIASES}
    assert {position for position, form in found.items() if form == PRODUCTS} == {"relative", "relative-bias"}
    assert {form for form in found.values() if form != PRODUCTS} == {FREE}


def test_kernels_and_precision_are_recorded() -> None:
    """With each attempt, as the process has them; TF32 where there can be any."""
    before = torch.get_float32_matmul_precision()
    on_cpu = environment(Config(**SMALL, compile=True), "a CPU", "cpu", {})
    assert (on_cpu["compile"], on_cpu["attention"], on_cpu["matmul_precision"]) == (True, FREE, before)
    assert "tf32" not in on_cpu
    torch.set_float32_matmul_precision("high")
    try:
        on_gpu = environment(Config(**SMALL), "a GPU", "cuda", {})
    finally:
        torch.set_float32_matmul_precision(before)
    assert (on_gpu["compile"], on_gpu["matmul_precision"]) == (False, "high")
    assert on_gpu["tf32"] == "products and convolutions"
