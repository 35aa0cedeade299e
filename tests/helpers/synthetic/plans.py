"""Made-up plans, one for each kind of study."""

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from results.store.schemas.plans import Arm, Plan

SETTING = {"position": "1d", "pool": "gap", "patch": 2, "stem": "patch", "data_fraction": 1.0, "lr": 0.002, "width": 32}
DIGITS: dict[str, Any] = {"kind": "folds", "folds": 5, "images": 1797}


def digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def named(values: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in values.items())


def make_plan(
    study: str,
    factors: Mapping[str, Sequence[Any]],
    baseline: Mapping[str, Any],
    *,
    curves: Mapping[str, Sequence[Any]] | None = None,
    seeds: int | Sequence[int] = 5,
    split: Mapping[str, Any] = DIGITS,
    published: Mapping[str, float] | None = None,
    notes: Mapping[str, list[str]] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """The plan of a one-factor-at-a-time study, at every point of its curves; `given` overrides fields."""
    curves, published, notes = curves or {}, published or {}, notes or {}
    seeds = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    arms = []
    for point in (dict(zip(curves, values, strict=True)) for values in itertools.product(*curves.values())):
        changes = [{}] + [{f: v} for f, values in factors.items() for v in values if v != baseline[f]]
        for change in sorted(changes, key=lambda c: [factors[f].index((dict(baseline) | c)[f]) for f in factors]):
            config = SETTING | given.get("overrides", {}) | dict(baseline) | change | point
            name = named((change or dict(baseline)) | point)
            arm = {"name": name, "baseline": named(dict(baseline) | point), "values": dict(baseline) | change | point}
            arm |= {"key": digest(config), "config": config, "published": published.get(name)}
            arm |= {"params": 51000 + 10 * len(arms), "flops": int(1.6e6 * (2 / config["patch"]) ** 2)}
            arm |= {"tokens": (8 // config["patch"]) ** 2, "class_token": config["pool"] == "cls"}
            arm |= {"trials": [{"seed": s, "id": digest(config | {"seed": s})} for s in seeds]}
            arms.append(arm | {"notes": notes.get(name, [])})
    plan = {"schema": 1, "name": f"{study}@digits", "study": study, "recipe": "digits", "overrides": {}}
    plan |= {"question": f"What does {' and '.join(factors)} do?", "source": "arXiv 2010.11929", "found": ""}
    plan |= {"description": "1,797 handwritten digits, 8x8 pixels; 1,320 steps of 32 images."}
    plan |= {"metric": "test_accuracy", "margin": 0.025, "claims": [], "figure": "intervals"}
    plan |= {"caveats": ["The 13 writers of digits are in train and test."]}
    plan |= {"factors": {name: list(values) for name, values in factors.items()}}
    plan |= {"curves": {name: list(values) for name, values in curves.items()}}
    plan |= {"baseline": arms[0]["baseline"], "split": dict(split), "seeds": seeds, "arms": arms}
    return plan | {"family": sum(arm["name"] != arm["baseline"] for arm in arms)} | given


def position(**given: Any) -> dict[str, Any]:
    published = {"none": 0.61382, "1d": 0.64206, "2d": 0.64001, "relative": 0.64032}
    texts = {"question": "Does a ViT need position embeddings, and which kind?", "source": "arXiv 2010.11929, Table 8"}
    texts |= {"claims": ["position=none < position=1d", "position=2d ~ position=1d"]}
    texts |= {"published": {f"position={kind}": accuracy for kind, accuracy in published.items()}}
    return make_plan("position-embedding", {"position": [*published]}, {"position": "1d"}, **(texts | given))


def pooling(**given: Any) -> dict[str, Any]:
    notes = {f"pool=gap,lr={lr}": ["one token fewer (no class token)"] for lr in (0.001, 0.002, 0.004)}
    curves = {"lr": [0.001, 0.002, 0.004]}
    given = {"figure": "learning-rate", "curves": curves, "notes": notes} | given
    return make_plan("pooling", {"pool": ["cls", "gap"]}, {"pool": "cls"}, **given)


def tuned_pooling(**given: Any) -> dict[str, Any]:
    """The same with the rate tuned: each pooling at its own, above all points of the grid."""
    return tuned(pooling(**given), "pool")


def tuned(plan: dict[str, Any], factor: str) -> dict[str, Any]:
    """A plan of one factor over learning rates, in which each arm is compared at its own rate."""
    for arm in plan["arms"]:
        arm["config"]["classes"] = 10
    rates = plan["curves"]["lr"]
    values = list(dict.fromkeys(arm["values"][factor] for arm in plan["arms"]))
    arms = [
        {"name": f"{factor}={value},lr=tuned", "baseline": f"{factor}={values[0]},lr=tuned", "published": None}
        | {"change": f"{factor}={value}", "values": {factor: value}}
        | {"points": [f"{factor}={value},lr={rate}" for rate in rates]}
        for value in values
    ]
    return plan | {"tune": {"lr": rates}, "tuned": arms, "family": 1, "points_family": len(rates)}


def patch_size(**given: Any) -> dict[str, Any]:
    return make_plan("patch-size", {"patch": [1, 2, 4]}, {"patch": 2}, **{"figure": "patch", **given})


def dataset_scale(**given: Any) -> dict[str, Any]:
    curves = {"data_fraction": [0.1, 0.3, 1.0]}
    stem = {"stem": ["patch", "conv"]}
    return make_plan("dataset-scale", stem, {"stem": "patch"}, curves=curves, **{"figure": "scale", **given})


def hybrid_stem(**given: Any) -> dict[str, Any]:
    stems = {"stem": ["patch", "conv", "resnet-small"]}
    return make_plan("hybrid-stem", stems, {"stem": "patch"}, **{"figure": "compute", **given})


def model_shape(**given: Any) -> dict[str, Any]:
    """Grown in one way at a time, and (an arm a size) in all."""
    factors = {"depth": [2, 4, 8, 16], "width": [16, 32, 64], "mlp_ratio": [1, 4, 8], "patch": [1, 2, 4]}
    baseline = {"depth": 4, "width": 32, "mlp_ratio": 4, "patch": 2}
    plan = make_plan("model-shape", factors, baseline, **{"figure": "shape", **given})
    for name, change in {"all-half": {"depth": 2, "width": 16}, "all-twice": {"depth": 8, "width": 64}}.items():
        config = plan["arms"][0]["config"] | baseline | change
        add_arm(plan, name, config)
    for arm in plan["arms"]:
        sizes = arm["config"]
        per_token = sizes["depth"] * sizes["width"] ** 2 * (4 + 2 * sizes["mlp_ratio"])
        arm["flops"] = arm["flops_of_its_own"] = 2 * per_token * (8 // sizes["patch"]) ** 2
    return plan


def compute(**given: Any) -> dict[str, Any]:
    """Three families; the last has too few sizes for a fit."""
    plan = make_plan("compute", {"stem": ["patch"]}, {"stem": "patch"}, **{"figure": "families", **given})
    plan["arms"][0] |= {"model_family": "ViT", "flops": 400_000, "flops_of_its_own": 400_000}
    stems = {"ViT": ("patch", 4), "hybrid": ("conv", 5), "ResNet": ("resnet-small", 3)}
    for family, (stem, sizes) in stems.items():
        for k in range(family == "ViT", sizes):
            config = plan["arms"][0]["config"] | {"stem": stem, "width": (32 if family == "ViT" else 16) * 2**k}
            flops = int(4e5 * 3.7**k * (1.2 if family == "hybrid" else 1))
            add_arm(plan, f"{family}-{k}", config, model_family=family, flops=flops, flops_of_its_own=flops)
    return plan


def with_arms(plan: Plan, change: Callable[[Arm], Mapping[str, Any]]) -> Plan:
    return plan.model_copy(update={"arms": [arm.model_copy(update=change(arm)) for arm in plan.arms]})


def without(plan: Plan, field: str) -> Plan:
    """The plan as versions wrote it whose arms had no such field."""
    arms = [{key: value for key, value in arm.content().items() if key != field} for arm in plan.arms]
    return Plan.model_validate(plan.content() | {"arms": arms})


def add_arm(plan: dict[str, Any], name: str, config: Mapping[str, Any], **given: Any) -> None:
    """An arm that changes several settings, under a name of its own."""
    first, seeds = plan["arms"][0], plan["seeds"]
    trials = [{"seed": s, "id": digest(dict(config) | {"seed": s})} for s in seeds]
    own = {"name": name, "change": name, "config": dict(config), "key": digest(config), "trials": trials}
    plan["arms"].append(first | own | given)
    plan["family"] += 1


def trial_id(plan: Mapping[str, Any], arm: str, seed: int) -> str:
    planned = {(one["name"], trial["seed"]): trial["id"] for one in plan["arms"] for trial in one["trials"]}
    return str(planned[arm, seed])
