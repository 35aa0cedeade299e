"""Benchmarks: only equal trainings are compared, the floor has the model's FLOPs, and JSON keys are complete."""

import json
import shutil
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import floor, loop, process, script, startup, step, timing
from benchmarks.__main__ import main
from benchmarks.process import Source, random_images
from benchmarks.rivals import RIVALS, Ours, Rival, checked_sides, losses
from commonfloor.options import ConfigError
from vitcore.config import Config
from vitcore.interop.timm_vit import to_timm
from vitcore.training.schedules import learning_rate

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")
SMALL = {"width": 16, "depth": 2, "heads": 2, "patch": 4, "batch": 8, "pool": "cls", "warmup": 0.0, "device": "cpu"}
COLOUR = {"data": "cifar10", "image_size": 16}  # random images of three channels
WORDS = ["width=16", "depth=1", "heads=2", "batch=8"]
CONDITIONS = {"bench", "machine", "config", "images", "rounds", "low_and_high", "steps_per_round"}  # keys of all JSON


def config(**settings: Any) -> Config:
    return Config(**{**SMALL, **settings})


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def output(*words: str) -> str:
        main([*words])
        return capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    return output


@pytest.mark.parametrize("changed", [{}, {"augment": "flip-crop", "mixup": 0.2, "clip_norm": 0.0, "weight_decay": 0.5}])
def test_rivals_train_as_we_do(changed: Mapping[str, Any]) -> None:
    """The losses of fifteen steps are equal, not only the first ones."""
    one = config(**COLOUR, **changed, steps=15, lr=1e-2)
    data = random_images(one)
    ours = losses(Ours(one, data), 15)
    for name in ("timm", "torchvision"):
        np.testing.assert_allclose(losses(Rival(name, one, data), 15), ours, rtol=1e-5)


def with_another_seed(model: Any) -> nn.Module:
    return to_timm(type(model)(model.config.model_copy(update={"seed": 1})))


def without_position(model: Any) -> nn.Module:
    found = to_timm(model)
    nn.init.zeros_(found.pos_embed)
    return found


@pytest.mark.parametrize(("precision", "wrong"), [("float32", without_position), ("bf16", with_another_seed)])
def test_unequal_losses_are_refused(monkeypatch: pytest.MonkeyPatch, precision: str, wrong: Any) -> None:
    """A rival that is another model is not compared, even where a zero head and a warm-up hide the difference."""
    monkeypatch.setitem(RIVALS, "timm", wrong)
    one = config(precision=precision, warmup=0.1)
    assert one.head_init == "zeros"
    with pytest.raises(ValueError, match=r"^step 1: losses differ \(.*, with timm .*\)"):
        step.time_sides(one, Source().images(one), 2, 1, False)


@pytest.mark.parametrize(
    ("settings", "name", "why"),
    [
        ({"dropout": 0.1}, "timm", "dropout=0.1: the usual script has 0"),
        ({"position": "relative"}, "timm", "position=relative: timm's VisionTransformer has none"),
        ({}, "torchvision", "channels=1: torchvision's VisionTransformer has 3"),
        ({"objective.loss": "binary-cross-entropy"}, "timm", "objective.loss=binary-cross-entropy: the usual script"),
        ({"stem.patches": [2, 4]}, "timm", "stem.patches=[2, 4]: the usual script has one size"),
    ],
)
def test_a_rival_that_does_not_fit_is_left_out(settings: dict[str, Any], name: str, why: str) -> None:
    one = config(**settings)
    sides, left_out = checked_sides(one, random_images(one), ["timm", "torchvision"])
    assert left_out[name].startswith(why)
    assert {*sides, *left_out} == {"vitcore", "timm", "torchvision"}


@pytest.mark.parametrize(
    "settings",
    [{}, {"pool": "gap"}, {"registers": 3}, {"mlp_ratio": 2.3}, {"patch": 2, "heads": 4}, {**COLOUR, "patch": 8}],
)
def test_the_floor_has_the_flops_of_a_plain_vit(settings: dict[str, Any]) -> None:
    """Shapes from the config agree with the operations counted as the model runs; the precision stays as it was."""
    before = torch.get_float32_matmul_precision()
    made = floor.Floor(config(**settings))
    made.run()
    assert made.share_of_flops == 1
    assert torch.get_float32_matmul_precision() == before


def test_the_floor_leaves_out_the_product_of_queries_and_offsets() -> None:
    assert 0.5 < floor.Floor(config(position="relative")).share_of_flops < 1


@pytest.mark.parametrize("size", [(2, 3, 5, 8), (1, 1, 1, 4)])
def test_every_kernel_computes_attention(size: tuple[int, ...]) -> None:
    q, k, v = (part.requires_grad_() for part in torch.randn(3, *size))
    expected = (q @ k.transpose(-1, -2) / size[-1] ** 0.5).softmax(-1) @ v
    kernels = [floor.KERNELS[name] for name in floor.attention_calls(q, k, v)]
    assert len(kernels) > 1
    for attend in kernels:
        torch.testing.assert_close(attend(q, k, v), expected, rtol=1e-5, atol=1e-6)


def test_products_of_the_floor_are_those_of_a_dense_layer() -> None:
    x, w, g = torch.randn(6, 4), torch.randn(3, 4), torch.randn(6, 3)
    _, gradients = torch.func.vjp(lambda w, x: F.linear(x, w), w, x)
    for product, expected in zip(floor.products(x, w, g).values(), [F.linear(x, w), *gradients(g)], strict=True):
        torch.testing.assert_close(product(), expected)


def test_sides_are_timed_in_turn() -> None:
    order: list[str] = []
    sides = {name: (lambda name=name: order.append(name)) for name in "ab"}
    found = timing.interleaved_seconds(sides, rounds=2, calls=2, device=torch.device("cpu"))
    assert "".join(order) == "aabbbbaa"
    assert {name: len(values) for name, values in found.items()} == {"a": 2, "b": 2}


def test_a_process_imports_nothing_from_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "statistics.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert process.run(process.python_command("statistics"), {}) == ""


@pytest.mark.slow
def test_bench_comes_with_all_parts(bench: Callable[..., str]) -> None:
    printed = bench("step", *WORDS, "--rounds", "2", "--steps", "1", "--out", "b.json")
    assert all(text in printed for text in ("| input ", "| floor ", "width=16", ", torch="))
    found = json.loads(Path("b.json").read_text())
    assert found.keys() == CONDITIONS | {"sides", "floor", "input", "left_out", "memory_bytes"}
    assert "memory" not in printed
    machine = {"device", "accelerator", "threads", "cores", "torch", "timm", "torchvision", "revision"}
    assert machine <= found["machine"].keys()
    assert found["config"]["width"] == 16
    assert [side["name"] for side in found["sides"]] == ["vitcore", "timm"]
    assert found["memory_bytes"] == {"vitcore": None, "timm": None}
    assert list(found["left_out"]) == ["torchvision"]
    assert {"seconds_per_step", "share", "backends", "share_of_flops", "share_of_peak"} <= found["floor"].keys()
    assert found["floor"]["share_of_flops"] == 1
    assert found["input"]["share"].keys() == {"median", "low", "high"}


@pytest.mark.parametrize("warmup", [0.0, 0.3])
def test_the_script_has_our_schedule(tmp_path: Path, warmup: float) -> None:
    one = config(steps=10, warmup=warmup)
    settings = Namespace(**json.loads(loop.script(one, tmp_path / "0").read_text()))
    theirs = [one.lr * script.rate(step, settings) for step in range(10)]
    np.testing.assert_allclose(theirs, [learning_rate(step, one) for step in range(10)], rtol=1e-12)


@pytest.mark.parametrize("augment", ["none", pytest.param("flip-crop", marks=pytest.mark.slow)])
def test_the_script_trains(tmp_path: Path, augment: str) -> None:
    """It takes our steps and evaluations, and learns from the images: it is better than chance."""
    pad = {"augment.pad": 1} if augment != "none" else {}
    one = config(steps=90, evaluations=3, augment=augment, lr=3e-3, pool="gap", **pad)
    script.run(loop.script(one, tmp_path / "0"))
    result = json.loads((tmp_path / "0.result").read_text())
    assert [line["step"] for line in result["lines"]] == [30, 60, 90]
    assert result["test_accuracy"] > 0.2


@pytest.mark.slow
def test_a_whole_study_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sides train equal trials in each round: `ablate run` in a new process, the scripts in this one."""

    def in_process(command: list[str], own: dict[str, str], **how: Any) -> None:
        if "-m" in command:
            process.run(command, own, **how)
            trained.append(len([*how["cwd"].glob("runs-*/trials/*/result.json")]))
        else:
            ran.append(command[-1])
            script.run(Path(command[-1]))

    ran, trained = list[str](), list[int]()
    monkeypatch.setattr(loop, "run", in_process)
    settings = {**SMALL, "steps": 4, "evaluations": 1}
    found: Any = loop.bench(settings, seeds=1, rounds=2, source=Source()).json()
    assert (found["trials"], found["steps"]) == (2, 4)
    assert trained == [2, 4]
    assert len(ran) == 8
    assert len(set(ran)) == 2
    assert list(found["seconds"]) == ["ablate run", *found["ratio"]]
    assert all(0 <= value <= 1 for value in found["test_accuracy"].values())


def test_the_loop_is_compared_with_timm_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RIVALS, "torchvision", without_position)  # whose losses differ
    loop.check_alike(config(**COLOUR), Source(random=True))


def test_the_loop_has_no_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "find_pack", lambda name, data_dir: Path("packs/photos"))
    with pytest.raises(ConfigError, match=r"^data=digits: a pack, streamed from its shards: the script has images in"):
        loop.check_alike(config(), Source())


@pytest.mark.slow
def test_a_warm_compile_cache_is_found(bench: Callable[..., str]) -> None:
    """The first step with a compile cache is measured."""
    if not shutil.which("g++"):
        pytest.skip("no g++: torch.compile needs a C++ compiler")
    bench("startup", *WORDS, "patch=4", "pool=cls", "--rounds", "2", "--out", "b.json")
    found = json.loads(Path("b.json").read_text())
    caches = ["empty compile cache", "the same cache again", "not compiled"]
    assert list(found["seconds"]) == caches
    assert found["ratio"].keys() == set(caches[1:])
    assert found["seconds"][caches[0]]["median"] > found["seconds"][caches[2]]["median"]


def test_a_start_is_measured_to_the_end_of_its_first_step() -> None:
    before = time.time()
    assert before < startup.measure(config(), Source()) < time.time()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("step --rounds two", "invalid int value: 'two'"),
        ("step widht=8", "unknown key 'widht'"),
        ("loop schedule=linear", "schedule=linear: the script has cosine"),
        ("loop augment=randaugment", "augment=randaugment: the script has none and flip-crop"),
        ("loop optimizer.beta2=0.95", "optimizer.beta2=0.95: the script has 0.999"),
        ("loop head=mlp", "head=mlp: timm's VisionTransformer has linear"),
        ("step --gpu", "no usable GPU"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    """--gpu never falls back to the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    output, errors = capsys.readouterr()
    assert output == ""
    assert message in errors.splitlines()[-1]
