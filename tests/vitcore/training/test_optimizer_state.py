"""Checkpoints of optimizers: those of torch and timm resume bit for bit; what cannot be stored is refused at once."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import timm.optim
import torch
from torch import Tensor, nn
from trainings import advanced, after, finished, tiny

from commonfloor.options import ConfigError
from vitcore import Config, Optimizer, train
from vitcore.contracts import contracts
from vitcore.training.optimizer_state import INDEX, OF_GROUPS
from vitcore.training.optimizers import OPTIMIZER
from vitcore.training.run import Memory
from vitcore.training.step_graph import eager_reason

Make = Callable[[Any, Config], torch.optim.Optimizer]
OF_TORCH = [
    *("Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"),
    "SGD",
]
OF_TIMM = [
    *("adafactor", "adafactorbv", "adamp", "adopt", "laprop", "lars", "lion", "madgrad"),
    *("mars", "muon", "nadamlegacy", "novograd"),
]
Groups = list[dict[str, Any]]


def of_torch(name: str) -> Make:
    return lambda groups, config: getattr(torch.optim, name)(groups, lr=config.lr)


def of_timm(name: str) -> Make:
    return lambda groups, config: timm.optim.create_optimizer_v2(groups, opt=name, lr=config.lr, weight_decay=0.05)


OTHERS = {f"torch {name}": of_torch(name) for name in OF_TORCH} | {f"timm {name}": of_timm(name) for name in OF_TIMM}


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Make], str]:
    """Return a function that makes `make` the variant optimizer=mine."""

    def add(make: Make) -> str:
        variant = type("Mine", (Optimizer,), {"numerics": 1, "make": classmethod(lambda _, *given: make(*given))})
        monkeypatch.setitem(OPTIMIZER, "mine", variant)
        return "mine"

    return add


FAST = ("torch ASGD", "torch NAdam", "timm adopt", "timm mars", "timm muon")  # each keeps state in its own way
SLOW = [name for name in OTHERS if name not in FAST]


@pytest.mark.parametrize("name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_an_optimizer_of_others_resumes_bit_for_bit(name: str, use: Callable[[Make], str]) -> None:
    """From a checkpoint after every one of eight steps, with a group of parameters for each layer."""
    check = dict(contracts("optimizer", mine := use(OTHERS[name])))["resumes after every step"]
    check("optimizer", mine)


class Step(torch.optim.Optimizer):
    """Subtracts the gradient, and then does what a test asks for: `more(self, group, parameter, state)`."""

    def __init__(self, groups: Groups, lr: float, more: Callable[..., None]) -> None:
        super().__init__(groups, {"lr": lr, "more": more})
        self.count, self.buffer, self.generator = 0, torch.zeros(3), torch.Generator()
        self.numbers: dict[str, list[int]] = {"steps": []}
        self.random = random.Random(0)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no caller gives a closure
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter -= group["lr"] * parameter.grad
                group["more"](self, group, parameter, self.state[parameter])


def everything(optimizer: Step, group: dict[str, Any], parameter: nn.Parameter, state: dict[str, Any]) -> None:
    """Keep values of every kind that a checkpoint stores, and let all of them count in the weights."""
    count = state.get("count", 0) + 1
    odd = torch.full((2, 3), count / 7, dtype=torch.bfloat16)
    state.update(count=count, share=0.1 * count, even=count % 2 == 0, name=f"step {count}", none=None)
    state.update(big=2**70 + count, endless=float("inf"), empty=torch.zeros(0), odd=odd, counts=torch.tensor([count]))
    state["turned"] = torch.arange(6.0).view(2, 3).t() * count
    state["list"] = [torch.ones(2) * count, (count, [True, None, odd.double()])]
    group["steps"] = group.get("steps", 0) + 1
    group["mean"] = group.get("mean", torch.zeros(5)) + 0.1
    parameter += 1e-4 * (count + odd.float().sum() + state["list"][0].sum() + group["steps"] + group["mean"].sum())


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return type(one) is type(other) and one == other


def test_values_of_every_kind_are_restored(use: Callable[[Make], str]) -> None:
    """Numbers, text, tensors of any shape and dtype, and lists, of each parameter and of each group."""
    config = tiny(optimizer=use(lambda groups, config: Step(groups, config.lr, everything)))
    first, second = advanced(config, 3), advanced(config)
    second.restore(safetensors.torch.save(first.checkpoint()))
    for mine, its in zip(first.train_step.parameters, second.train_step.parameters, strict=True):
        states = first.optimizer.state[mine], second.optimizer.state[its]
        assert states[0].keys() == states[1].keys()
        assert all(same(states[0][key], states[1][key]) for key in states[0])
    for group, other in zip(first.optimizer.param_groups, second.optimizer.param_groups, strict=True):
        assert all(same(group[key], other[key]) for key in group.keys() - {"params", "lr"})
    assert finished(config).weights == finished(config, 1, 2).weights


OUTSIDE = "keep it in `state` or `param_groups`"
REFUSED = {  # what a step does -> why it is refused
    "optimizer.count += 1": f"a step changes its attribute count: {OUTSIDE}",
    "optimizer.buffer += 1": f"a step changes its attribute buffer: {OUTSIDE}",
    "optimizer.buffer = optimizer.buffer + 1": f"a step changes its attribute buffer: {OUTSIDE}",
    "optimizer.numbers['steps'].append(1)": f"a step changes its attribute numbers: {OUTSIDE}",
    "torch.rand(1, generator=optimizer.generator)": f"a step changes its attribute generator: {OUTSIDE}",
    "optimizer.random.random()": f"a step changes its attribute random: {OUTSIDE}",  # as Kron does
    "optimizer.late = 1": f"a step changes its attribute late: {OUTSIDE}",
    "torch.rand(1)": "a step draws from a default generator",
    "np.random.rand()": "a step draws from a default generator",
    "random.random()": "a step draws from a default generator",
    "state['own'] = {'a': 1}": "own has the type dict: a number, text, a tensor, or a list of these",
    "state['own'] = np.float64(1)": "own has the type float64: a number",
    "state['own'] = [1, object()]": "own.1 has the type object: a number",
    "state['own'] = torch.eye(2).to_sparse()": "own is a Tensor of float32, torch.sparse_coo: a plain dense tensor",
    "state['own'] = torch.zeros(2, dtype=torch.complex64)": "own is a Tensor of complex64",
    "state['own'] = parameter": "shares its memory with the parameter",
    "state['one'] = torch.ones(4); state['two'] = state['one'][:2]": "two shares its memory with",
    "group['own'] = {1, 2}": "optimizer_groups.0.own has the type set",
    "optimizer.state['all']['step'] = 1": "`state` has the key 'all': its keys are the model's parameters",
}


@pytest.mark.parametrize("act", REFUSED)
def test_what_a_checkpoint_cannot_store_is_refused_at_the_first_step(act: str, use: Callable[[Make], str]) -> None:
    def more(optimizer: Step, group: dict[str, Any], parameter: nn.Parameter, state: dict[str, Any]) -> None:
        known = {"optimizer": optimizer, "group": group, "parameter": parameter, "state": state}
        exec(act, {"np": np, "random": random, "torch": torch} | known)

    training = advanced(tiny(optimizer=use(lambda groups, config: Step(groups, config.lr, more))))
    with pytest.raises(ConfigError) as refused:
        training.advance()
    assert str(refused.value).startswith("optimizer=mine: cannot be resumed: ")
    assert REFUSED[act] in str(refused.value)


@pytest.mark.filterwarnings("ignore:It is highly recommended to have 'opt_einsum'")
@pytest.mark.parametrize("wrap", [of_timm("lookahead_adamw"), of_timm("kron")], ids=["lookahead", "kron"])
def test_an_optimizer_that_hides_its_state_is_refused(wrap: Make, use: Callable[[Make], str]) -> None:
    """Lookahead holds another optimizer, and Kron a generator."""
    why = r"optimizer=mine: cannot be resumed: a step changes its attribute _\w+: keep"
    with torch.compiler.set_stance("force_eager"), pytest.raises(ConfigError, match=why):  # Kron compiles its steps
        train(tiny(optimizer=use(wrap)))


def test_state_that_comes_later_is_refused_at_the_checkpoint(use: Callable[[Make], str]) -> None:
    def more(optimizer: Step, _: Any, __: Any, state: dict[str, Any]) -> None:
        state["step"] = state.get("step", 0) + 1
        if state["step"] == 3:
            optimizer.count += 1

    config = tiny(optimizer=use(lambda groups, config: Step(groups, config.lr, more)))
    with pytest.raises(ConfigError, match="a step changes its attribute count"):
        train(config, stop=after(4))


def earlier(payload: bytes | None) -> bytes:
    """Return a checkpoint as version 0.23 wrote it: without numbers, and without values of groups."""
    assert payload is not None
    tensors = safetensors.torch.load(payload)
    return safetensors.torch.save(
        {name: one for name, one in tensors.items() if name != INDEX and not name.startswith(OF_GROUPS)}
    )


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "lion", "muon", "schedule-free", "adafactor"])
def test_a_checkpoint_of_an_earlier_version_is_read(name: str) -> None:
    """Of PyTorch's Adafactor too, whose tensors have fewer rows or columns than the parameters."""
    train(config := tiny(optimizer=name), run := Memory(), stop=after(3))
    old = Memory(checkpoints={3: earlier(run.checkpoint())})
    train(config, old)
    assert old.weights == finished(config).weights


def test_a_checkpoint_of_an_earlier_version_that_lacks_values_of_groups_is_refused() -> None:
    config = tiny(optimizer="lamb")
    train(config, run := Memory(), stop=after(3))
    with pytest.raises(ConfigError, match="the newest checkpoint is of an older version, which stored no values of"):
        train(config, Memory(checkpoints={3: earlier(run.checkpoint())}))


def test_an_index_that_does_not_fit_is_refused() -> None:
    config = tiny(optimizer="lamb")
    training = advanced(config, 2)
    state = training.checkpoint()
    index = bytes(state[INDEX].tolist())
    damaged = {
        b'"groups":[': b'"groups":[{},',
        b'"head.weight"': b'"tail.weight"',
        b'"shape":[16]': b'"shape":[17]',
        b'"version":1': b'"version":2',
        b'"tensor":"optimizer.head.weight.exp_avg"': b'"tensor":"optimizer.head.weight.gone"',
    }
    for right, wrong in damaged.items():
        assert right in index
        changed = torch.tensor(list(index.replace(right, wrong)), dtype=torch.uint8)
        with pytest.raises(ConfigError, match=r"\Athe trial's newest checkpoint: .*\Z"):
            advanced(config).restore(safetensors.torch.save({**state, INDEX: changed}))


def test_an_optimizer_that_is_not_pytorchs_takes_eager_steps() -> None:
    """It may count on the host, which a CUDA graph would do only once."""

    class Counting(torch.optim.AdamW):
        """Counts its steps in Python."""

    parameters = [{"params": [nn.Parameter(torch.zeros(1))]}]
    own, plain = (kind(parameters, fused=True) for kind in (Counting, torch.optim.AdamW))
    assert eager_reason(tiny(), "cuda", plain, nn.Identity()) == ""
    assert eager_reason(tiny(), "cuda", own, nn.Identity()) == "optimizer=adamw: not PyTorch's"
