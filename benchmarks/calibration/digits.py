"""Arms trained on digits: the baseline with other seeds, and with wrong labels."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import synthetic
import torch

from ablations.study.reading import read_recipe
from benchmarks.calibration.studies import contrast_rows
from results.records import Row
from results.store.record import Record
from vitcore import Config, train
from vitcore.data import splits
from vitcore.data.splits import Data
from vitcore.training.run import Memory


def digits(seeds: int = 5, **changed: Any) -> tuple[Row, Row]:
    """Train three arms on digits, paired by fold; return the rows of the two that are compared with the baseline.

    The first is the baseline with other seeds; the second is trained with a fifth of the labels wrong.
    """
    config = read_recipe("digits").config | changed
    arms = {
        "plain": [train_record(Config(**config, seed=s)) for s in range(seeds)],
        "again": [train_record(Config(**config, seed=100 + s, data_seed=s)) for s in range(seeds)],
        "mislabelled": [train_record(Config(**config, seed=s), load_mislabelled) for s in range(seeds)],
    }
    plan = synthetic.make_plan("s", {"stem": list(arms)}, {"stem": "plain"}, seeds=seeds, margin=None)
    records = {
        trial["id"]: record
        for arm, made in zip(plan["arms"], arms.values(), strict=True)
        for trial, record in zip(arm["trials"], made, strict=True)
    }
    again, wrong = contrast_rows(synthetic.results(plan, records))
    return again, wrong


def train_record(config: Config, load: Callable[..., Data] = splits.load) -> Record:
    run = Memory()
    with mock.patch.object(importlib.import_module("vitcore.training.loop"), "load", load):
        outcome = train(config, run)
    return synthetic.finished(outcome.metrics["test_accuracy"], seed=config.seed, correct=run.correct)


def load_mislabelled(config: Config, data_dir: Path | None) -> Data:
    """Load data in which a fifth of the training images, drawn by the seed, have a wrong label."""
    data, rng = splits.load(config, data_dir), np.random.default_rng(config.seed)
    labels = data.train.labels.clone()
    wrong = rng.choice(len(labels), len(labels) // 5, replace=False)
    shift = torch.from_numpy(rng.integers(1, config.classes, len(wrong)))
    labels[wrong] = (labels[wrong] + shift) % config.classes
    return replace(data, train=replace(data.train, labels=labels))


def row_text(row: Row) -> str:
    assert row.delta is not None
    assert row.delta_ci95 is not None
    low, high = row.delta_ci95
    by = f"{100 * row.delta:+.2f} points ({100 * low:+.2f} to {100 * high:+.2f}), n = {row.n_pairs}"
    return f"{row.verdict}: {by}, p (Holm) {row.p_holm:.4f}"
