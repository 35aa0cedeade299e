"""The training loop, which trains, evaluates, writes checkpoints and resumes from them.

On a CPU, a training run that is killed and resumed ends with the weights and metrics of an uninterrupted run, apart
from times. A checkpoint holds the whole state, except what is a pure function of the seed and the step.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from commonfloor.options import ConfigError
from vitcore.analysis.cost import measure
from vitcore.data.splits import load
from vitcore.runtime.device import compute_settings, torch_device
from vitcore.runtime.host import check_memory
from vitcore.runtime.memory import capacity
from vitcore.settings import Settings
from vitcore.training.distributed import ALONE, Ranks
from vitcore.training.evaluation import evaluate, evaluation_steps, final_metrics
from vitcore.training.pretrained import Trained, teacher_for, weights_for
from vitcore.training.run import Memory, Metrics, Outcome, Run
from vitcore.training.state import DivergedError, Suspicion, Training

TICK = 0.25  # minimum seconds between two progress reports
SECONDS = 2.0  # default time between two checkpoints
WRITING = 0.02  # largest fraction of the time that writing checkpoints may take


def train(
    config: Settings,
    run: Run | None = None,
    *,
    data_dir: Path | None = None,
    parent: bytes | None = None,
    teacher: Trained | None = None,
    stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = SECONDS,
    ranks: Ranks = ALONE,
) -> Outcome:
    """Train a model as configured and return the outcome. Training ends early if it diverges or `stop()` is true.

    run: receives metrics, checkpoints and weights, by default in memory. Training resumes from its checkpoint, if any.
    data_dir: folder of the datasets, by default ABLATE_DATA. parent: weights of the trial that `init_from` names, as
    safetensors. teacher: the trial that `config.teacher` names. checkpoint_seconds: minimum time between checkpoints,
    or 0 for a checkpoint before every step. After a slow write, the time grows, so that writing takes at most 2%.
    ranks: the `config.gpus` processes that call this function together. Only rank 0 needs `run`, `parent`, `teacher`
    and `stop`.

    Raises ValueError if data or weights are missing, or if data, weights or a checkpoint do not fit `config`. Also
    raises it if memory is too small or `config.gpus` is not the number of ranks. Raises OutOfMemory if a step or an
    evaluation does not fit into memory, RuntimeError if `config.device` is a GPU and there is none, and OSError if data
    cannot be read. Raises the errors of `run`'s methods, `teacher_for` and `use_private_cache`.
    """
    if config.gpus != ranks.count:
        raise ConfigError(f"gpus={config.gpus}: needs as many processes, not {ranks.count}: `ablate train` starts them")
    run = run or Memory()
    with compute_settings(config):
        if ranks.rank == 0:
            check_memory(dict(config), measure(config), capacity(torch_device(config)))
        data = load(config, data_dir).to(torch_device(config))
        initial = weights_for(config, ranks.broadcast(lambda: parent))
        teacher_model = teacher_for(config, data, ranks, teacher)
        start = partial(Training, config, data, initial, ranks, teacher_model)
        return train_and_verify(start, run, stop, checkpoint_seconds)


def train_and_verify(
    start: Callable[[], Training], run: Run, stop: Callable[[], bool], checkpoint_seconds: float
) -> Outcome:
    """Train, and check whether a divergence is due to faulty hardware by recomputing the steps since the checkpoint.

    start: returns a training run at its first step. A divergence is the outcome if it comes back at the same step, or
    if it is the third one that does not. Otherwise training goes on, and the outcome names the suspect step.
    """
    suspicion: Suspicion | None = None
    while True:
        training = start()
        training.restore(training.ranks.broadcast(run.checkpoint))
        if suspicion is not None:
            training.suspicion = suspicion
            training.save_checkpoint(run)
        try:
            return train_to_end(training, run, stop, checkpoint_seconds)
        except DivergedError as diverged:
            if training.suspicion.confirmed_by(diverged.step):
                return training.outcome("diverged", {}, diverged.step)
            suspicion = training.suspicion.at_step(diverged.step)
        del training  # two training states may not fit into memory


def train_to_end(training: Training, run: Run, stop: Callable[[], bool], checkpoint_seconds: float) -> Outcome:
    """Train to the end or until `stop()` is true, and return the outcome.

    Raises DivergedError if a loss is not finite. Losses are checked at each evaluation, at a stop, and after every step
    while an earlier divergence is being verified.
    """
    due = evaluation_steps(training.config)
    metrics = Metrics()  # of the last evaluation
    shown = saved = time.monotonic()
    pause = checkpoint_seconds
    while training.step < training.config.steps:
        stopping = training.ranks.agree(stop)
        if stopping:
            training.finite_losses()  # no checkpoint holds a diverged state, so every resumption would diverge anew
        now = time.monotonic()
        if stopping or now - saved >= pause:
            training.save_checkpoint(run)
            saved = time.monotonic()
            if checkpoint_seconds:
                pause = max(checkpoint_seconds, (saved - now) / WRITING)
        if stopping:
            return training.outcome("stopped", {})
        if time.monotonic() - shown >= TICK:
            run.progress(training.step, metrics)
            shown = time.monotonic()
        if training.train_step.compiling:
            run.compiling()
        training.advance()
        if training.train_step.facts:
            run.record(training.train_step.facts)
            training.train_step.facts = {}
        if training.step in due:
            run.progress(training.step, metrics, evaluating=True)
            metrics = evaluate(training)
            run.log(metrics)
            run.progress(training.step, metrics)
        if training.suspicion.step:
            training.verify()
    return finish(training, run, metrics)


def finish(training: Training, run: Run, validated: Metrics) -> Outcome:
    """Test the trained model, save it, and return the outcome. validated: the metrics of the last evaluation."""
    run.progress(training.step, validated, evaluating=True)
    metrics, correct = final_metrics(training, validated)
    run.save_weights(training.weights())
    if training.objective.labels:
        run.save_correct(training.data.test.index.astype(np.int32), correct.astype(np.uint8))
    run.progress(training.step, validated)
    return training.outcome("finished", metrics)
