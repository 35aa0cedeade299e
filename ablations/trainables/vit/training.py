"""Train and evaluate a ViT in a worker's process."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from ablations import machine
from ablations.faults import INPUT, MEMORY, Fault, raised_in
from ablations.trainables.trainable import EvalResult, Parent, TrainingContext, TrainingOutcome
from ablations.trainables.vit import machine_checks, plugins, rank_processes
from commonfloor.options import ConfigError
from results import store
from results.store.schemas.base import Fact, Facts, Settings
from vitcore.analysis import evals
from vitcore.analysis.cost import remember
from vitcore.analysis.eval import restore_model
from vitcore.config import Config
from vitcore.runtime.compile_cache import compiles
from vitcore.runtime.device import NoGpu, compute_settings, device_of, hardware, kernel_name, require_gpu
from vitcore.runtime.memory import OutOfMemory, out_of_memory
from vitcore.training import loop
from vitcore.training.pretrained import Trained
from vitcore.training.step_graph import ASKED, NONE

NOT_COMPILED = {"seed", "data_seed", "lr", "init_from", "teacher"}  # settings that no compiled code depends on
CHECKED = ("vitcore.config", "vitcore.data")  # modules whose ValueErrors mean bad input

compiled: set[str] = set()  # configs, without NOT_COMPILED, that this process has compiled


def start_worker(files: Sequence[str], needs_gpu: bool) -> None:
    """Load plug-ins. Raises the errors of `plugins.load`, and NoGpu if `needs_gpu` and there is none."""
    torch.set_flush_denormal(True)  # before PyTorch starts threads (vitcore.runtime.device.flush_subnormals)
    plugins.load(map(Path, files))
    if needs_gpu:
        require_gpu()


def environment(config: Config) -> dict[str, Fact]:
    accelerator = device_of(config)
    return {
        "device": hardware(config),
        "accelerator": accelerator,
        "threads": config.threads,
        "ranks": config.gpus,
        **kernel_choices(config, accelerator),
    }


def kernel_choices(config: Config, accelerator: str) -> dict[str, Fact]:
    """Return the settings by which PyTorch chooses kernels. Different kernels round differently."""
    choices: dict[str, Fact] = {
        "compile": compiles(config, accelerator),
        "attention": kernel_name(config, accelerator),
        "matmul_precision": torch.get_float32_matmul_precision(),
    }
    if accelerator == "cuda":  # by default, only convolutions use TF32
        allowed = {"products": torch.backends.cuda.matmul.allow_tf32, "convolutions": torch.backends.cudnn.allow_tf32}
        choices["tf32"] = " and ".join(name for name, yes in allowed.items() if yes) or "none"
    return choices


def checked_environment(settings: Settings, needs_gpu: bool) -> dict[str, Fact]:
    """See Trainable.environment."""
    config = Config(**settings)
    if needs_gpu and config.device != "cpu" and device_of(config) != "cuda":
        raise RuntimeError("the GPU is lost: it was there when this worker began")
    if config.device == "cuda":
        require_gpu()
    if config.gpus > 1 and config.device != "cpu":
        needed = config.gpus // machine.nodes()
        visible = torch.cuda.device_count()
        if visible < needed:
            raise NoGpu(f"gpus={needed}: this process sees {visible}; as many processes without one: device=cpu")
    return environment(config)


def train(
    settings: Settings, run: store.Attempt, parents: Mapping[str, Parent], context: TrainingContext
) -> TrainingOutcome:
    config = Config(**settings)
    described = machine_checks.known_cost(context.description)
    if described is not None:
        remember(config, described)
    same_code = config.model_dump_json(exclude=NOT_COMPILED)
    if same_code in compiled:
        run.compiling = lambda: None  # the code is used again
    compiled.add(same_code)
    run.on_record = lambda facts: warn_of(facts, context)
    parent = parents.get("init_from")
    teacher = parents.get("teacher")
    with rank_processes.join_ranks(config, context.plugins, context.data_dir, context.on_hang) as ranks:
        outcome = loop.train(
            config,
            run,
            data_dir=context.data_dir,
            parent=parent.weights if parent else None,
            teacher=Trained(teacher.settings, teacher.weights) if teacher else None,
            stop=context.should_stop,
            ranks=ranks,
        )
    if outcome.micro_batch:
        run.record({"micro_batch": outcome.micro_batch})
    return TrainingOutcome(outcome.status, outcome.metrics, outcome.train_seconds, asdict(outcome))


def warn_of(facts: Facts, context: TrainingContext) -> None:
    """Warn if compilation failed, or if a step is not one CUDA graph although the config allows it."""
    why = facts.get("compile_failed")
    if why:
        context.warn(f"the model cannot be compiled here, so it is trained uncompiled: {why}")
    graph = str(facts.get("cuda_graph", ""))
    if graph.startswith(NONE) and not graph.endswith(ASKED):
        context.warn(f"a step is not one CUDA graph: {graph.removeprefix(NONE)}")


def compute_eval(
    name: str, settings: Settings, weights: bytes, number: int | None, data_dir: Path | None
) -> EvalResult:
    config = Config(**settings)
    entry = evals.find(name)
    if number:
        entry = type(entry)(str(number))
    with compute_settings(config):
        computed = entry.compute(restore_model(config, weights), data_dir)
    return EvalResult(computed.metrics, computed.notes, computed.details, computed.arrays)


def fault(error: BaseException) -> Fault | None:
    if isinstance(error, OutOfMemory):
        return Fault(MEMORY, says_all=True)
    if out_of_memory(error):
        return Fault(MEMORY)
    if isinstance(error, ConfigError) or (type(error) is ValueError and raised_in(error, CHECKED)):
        return Fault(INPUT)
    return None
