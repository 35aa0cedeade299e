"""Trials handed to a worker together: trained as one where that pays, each with its own attempt and its own end."""

import io
import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ablations import board, campaign, company, fused_pace, fusing, paces, runner, status
from ablations.attempts import how
from ablations.jobs import Job
from ablations.launch import Place
from ablations.paces import Device
from ablations.provenance import sources, versions
from ablations.slots import Slot
from ablations.worker import Worker
from results import lease, store
from vitcore import Config, fused
from vitcore.data import load
from vitcore.device import hardware
from vitcore.identity import trial_id
from vitcore.run import Outcome

SMALL: dict[str, Any] = {"width": 16, "heads": 2, "patch": 4, "pool": "gap", "steps": 6, "batch": 16}


class Quiet:
    """A display that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def running(self, slot: int, job: Job, step: int, accuracy: float | None) -> None: ...
    def idle(self, slot: int) -> None: ...
    def over(self, job: Job, event: str, detail: dict[str, Any]) -> None: ...

    def say(self, text: str) -> None:
        self.said.append(text)


def jobs(count: int, **settings: Any) -> list[Job]:
    """Seeds of one config."""
    configs = [Config(**SMALL | {"depth": 1, "device": "cpu"} | settings, seed=seed) for seed in range(count)]
    return [Job(trial_id(config), config.model_dump(), "arm", "study") for config in configs]


def measured(runs: Path, some: Sequence[Job], why: str) -> None:
    """What a probe said of them before."""
    config = Config(**some[0].config)
    found = {"code": sources(), "versions": versions(), "ratio": 2.0, "why": why}
    key = fusing.key(fusing.kin(config.model_dump()), len(some))
    paces.write(runs, Device(gpu=False, name=hardware(config)), paces.FUSED, {key: found})


def env(runs: Path, job: Job) -> dict[str, Any]:
    state = store.trial(runs, job.id).state()
    assert state.status == "finished", state
    assert state.attempt is not None
    return store.read_json(state.attempt / "env.json")


def metrics(runs: Path, job: Job) -> dict[str, float]:
    result = store.trial(runs, job.id).result()
    assert result is not None
    return dict(result["metrics"])


def served(runs: Path, some: Sequence[Job]) -> dict[str, list[dict[str, Any]]]:
    """The events of a worker, in this process, that was handed the trials together; by trial."""
    channel, plain = io.StringIO(), {"plugins": [], "checkpoints": None, "keep_weights": "all", "gpu": False}
    worker = Worker({"runs": runs, "data_dir": None, **plain}, channel)
    company.serve(worker, [json.loads(json.dumps(asdict(job))) for job in some])
    assert worker.about == {}
    events: dict[str, list[dict[str, Any]]] = {job.id: [] for job in some}
    for line in channel.getvalue().splitlines():
        event = json.loads(line)
        events[event["id"]].append(event)
    return events


@pytest.mark.slow
def test_kin_are_trained_as_one_where_it_pays(tmp_path: Path) -> None:
    """By a pool and its worker: results as alone, to rounding; how they came to be is on record, and in no id."""
    some, other = jobs(3), jobs(1, position="none")
    measured(tmp_path / "one", some, "")
    alone = runner.run([*some, *other], Place(tmp_path / "alone", None), Quiet(), workers=1)
    together = runner.run([*some, *other], Place(tmp_path / "one", None, fuse=8), Quiet(), workers=1)
    assert sorted(alone.done) == sorted(together.done) == sorted(job.id for job in [*some, *other])
    for job in some:
        assert (env(tmp_path / "one", job)["fused"], env(tmp_path / "one", job)["fused_ratio"]) == (3, 2.0)
        assert "fused" not in env(tmp_path / "alone", job)
        mine, theirs = metrics(tmp_path / "one", job), metrics(tmp_path / "alone", job)
        np.testing.assert_allclose(mine["test_loss"], theirs["test_loss"], rtol=1e-4)
    assert "fused" not in env(tmp_path / "one", other[0])
    assert not (tmp_path / "alone" / "probes").exists()


@pytest.mark.slow
def test_what_does_not_pay_is_trained_alone(tmp_path: Path) -> None:
    """It is said once why, and not asked again for other trials of the kind."""
    some, display = jobs(4), Quiet()
    measured(tmp_path, some[:2], "2 as one take 0.97x the steps a second of one after the other")
    tally = runner.run(some, Place(tmp_path, None, fuse=2), display, workers=1)
    assert sorted(tally.done) == sorted(job.id for job in some)
    assert display.said == ["not trained as one: 2 as one take 0.97x the steps a second of one after the other"]
    assert ["fused" in env(tmp_path, job) for job in some] == [False] * 4


def test_given_back_they_wait_where_they_were(tmp_path: Path) -> None:
    """The queue stays in the order it had, whichever of them was asked for first."""
    some = jobs(5)
    pool = runner.Pool(some, Place(tmp_path, None, fuse=3), [Slot(0, {})], Quiet())
    lead = pool.turns.next(pool.slots[0], pool.may_begin)
    assert lead is not None
    for job in [lead, *pool.turns.company(pool.slots[0], lead, pool.ready)]:
        pool.settle(job, {"event": "apart", "cause": "slow"})
    assert list(pool.turns.waiting) == some


@pytest.mark.parametrize(
    ("asked", "gpu", "taken"),
    [("auto", False, 0), ("auto", True, 7), ("off", True, 0), ("3", False, 2), ("3", True, 2)],
)
def test_fusing_is_tried_on_gpus_or_where_it_is_asked_for(tmp_path: Path, asked: str, gpu: bool, taken: int) -> None:
    """A core is kept busy by one trial: there nobody tries it who was not told to."""
    lead, *others = jobs(10)
    slot = Slot(0, {"CUDA_VISIBLE_DEVICES": "0"} if gpu else {})
    pool = runner.Pool(others, Place(tmp_path, None, fuse=fusing.asked(asked)), [slot], Quiet())
    assert pool.turns.company(pool.slots[0], lead, pool.ready) == others[:taken]


@pytest.mark.parametrize("word", ["1", "0", "-2", "on", "", "2.5", "\u0662"])
def test_what_fuse_cannot_be_is_one_line(word: str) -> None:
    """The word, and what is allowed."""
    with pytest.raises(ValueError, match=f"--fuse {re.escape(word)}: auto, off, or how many at most, from 2 on"):
        fusing.asked(word)


@pytest.mark.parametrize(("slots", "most", "taken"), [(1, 8, 4), (1, 3, 2), (1, 1, 0), (2, 8, 2), (5, 8, 0), (3, 8, 1)])
def test_slots_share_what_waits(slots: int, most: int, taken: int) -> None:
    """Each takes its part of those that are kin, and of no others."""
    lead, *waiting = jobs(5)
    strangers = jobs(2, position="none")
    found = fusing.company(lead, [strangers[0], *waiting, strangers[1]], slots, most)
    assert found == waiting[:taken]


def test_members_have_attempts_of_their_own(tmp_path: Path) -> None:
    """Each is claimed, trained and published; its log says where the group's is; another's trial is left to it."""
    some = jobs(3)
    measured(tmp_path, some, "")
    held = store.trial(tmp_path, some[1].id).claim(lease.Watch())
    assert held is not None
    with held:
        events = served(tmp_path, some)
    assert [[event["event"] for event in events[job.id] if event["event"] != "progress"] for job in some] == [
        ["started", "finished"], ["held"], ["started", "finished"]
    ]  # fmt: skip
    assert [env(tmp_path, some[number])["fused"] for number in (0, 2)] == [2, 2]
    log = store.trial(tmp_path, some[2].id).attempts()[0] / "log"
    assert log.read_text() == f"trained with others: what was printed is in the log of trial {some[0].id}\n"


def test_a_trial_that_failed_before_goes_alone(tmp_path: Path) -> None:
    """What ended it may end others."""
    some = jobs(3)
    measured(tmp_path, some, "")
    attempt = store.trial(tmp_path, some[1].id).claim(lease.Watch())
    assert attempt is not None
    with attempt:
        attempt.fail("RuntimeError: no", "", sources(), kind="bug", where=["RuntimeError"], again=True)
    events = served(tmp_path, some)
    assert [events[job.id][-1]["event"] for job in some] == ["finished", "alone", "finished"]
    assert [env(tmp_path, some[number])["fused"] for number in (0, 2)] == [2, 2]
    assert store.trial(tmp_path, some[1].id).state().status == "interrupted"  # nobody holds it


def test_a_member_that_failed_is_handed_over_alone(tmp_path: Path) -> None:
    """It has company no more in this run; the others have."""
    some = jobs(4)
    slot = Slot(0, {}, jobs=some[:2], handed=2, ready=True)
    pool = runner.Pool(some[2:], Place(tmp_path, None, fuse=4), [slot], Quiet())
    pool.turns.rank = {job.id: place for place, job in enumerate(some)}
    pool.handle(slot, {"event": "alone", "id": some[1].id})
    assert slot.jobs == some[:1]
    assert pool.turns.next(slot, pool.may_begin) == some[1]
    assert pool.turns.company(pool.slots[0], some[1], pool.ready) == []
    pool.turns.put_back(some[1])
    assert pool.turns.company(pool.slots[0], some[0], pool.ready) == some[2:]


def test_a_group_whose_worker_died_goes_on_alone(tmp_path: Path) -> None:
    """One event, which is none of its members' deaths; kin is not put together again in this run."""
    some, display = jobs(5), Quiet()
    process = subprocess.Popen(["true"], stdin=subprocess.PIPE, text=True)
    slot = Slot(0, {}, process=process, jobs=some[:3], handed=3, ready=True)
    pool = runner.Pool(some[3:], Place(tmp_path, None, fuse=3), [slot], display)
    pool.turns.rank = {job.id: place for place, job in enumerate(some)}
    pool.handle(slot, {"event": "died", "code": -9})
    process.wait()
    assert display.said == ["the worker of 3 trials as one died (signal SIGKILL); each goes on alone"]
    assert (list(pool.turns.waiting), sum(pool.deaths.values()), slot.jobs) == (some, 0, [])
    assert pool.turns.company(pool.slots[0], some[4], pool.ready) == []


def test_what_all_raise_gives_them_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To go on alone, the attempts counting for nothing; but where the device is lost each has failed by it."""

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no batching rule")

    some = jobs(2)
    measured(tmp_path, some, "")
    monkeypatch.setattr(fused, "train_fused", broken)
    events = served(tmp_path, some)
    for job in some:
        assert (events[job.id][-1]["event"], events[job.id][-1]["cause"]) == ("apart", "RuntimeError: no batching rule")
        (attempt,) = store.trial(tmp_path, job.id).attempts()
        assert how(attempt, "") is None
    log = (store.trial(tmp_path, some[0].id).attempts()[0] / "log").read_text()
    assert "Traceback" in log
    assert "RuntimeError: no batching rule" in log
    monkeypatch.undo()
    again = served(tmp_path, some)  # as many of this kin are not tried again
    assert [again[job.id][-1]["cause"] for job in some] == ["RuntimeError: no batching rule"] * 2
    for number, sign in enumerate(["an illegal memory access was encountered", "device-side assert triggered"]):

        def lost(*_: Any, sign: str = sign, **__: Any) -> Any:
            raise RuntimeError(f"CUDA error: {sign}")

        others = jobs(2, lr=2e-3 + number)
        measured(tmp_path, others, "")
        monkeypatch.setattr(fused, "train_fused", lost)
        events = served(tmp_path, others)
        assert [(events[job.id][-1]["event"], events[job.id][-1]["leaving"]) for job in others] == [("again", True)] * 2
        ended = [how(store.trial(tmp_path, job.id).attempts()[0], sources()) for job in others]
        assert [one is not None and one.shared for one in ended] == [True, True]


def test_an_error_of_one_member_is_recorded_as_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have their results."""
    some, honest = jobs(3), fused.train_fused

    def spoilt(*words: Any, on_end: Any, **how: Any) -> list[Outcome | Exception]:
        def end(position: int, outcome: Outcome | Exception) -> None:
            on_end(position, ValueError("its own") if position == 1 else outcome)

        return honest(*words, on_end=end, **how)

    measured(tmp_path, some, "")
    monkeypatch.setattr(fused, "train_fused", spoilt)
    events = served(tmp_path, some)
    assert [events[job.id][-1]["event"] for job in some] == ["finished", "again", "finished"]
    failure = store.trial(tmp_path, some[1].id).failure()
    assert failure is not None
    assert failure["cause"] == "ValueError: its own"


def test_a_result_is_there_when_its_member_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the others end, and whatever becomes of them."""
    configs = [Config(**SMALL | {"depth": 1, "device": "cpu", "steps": steps}) for steps in (8, 3)]
    some = [Job(trial_id(config), config.model_dump(), "arm", "study") for config in configs]
    honest = fused.Group.advance

    def advance(self: Any, members: Any) -> None:
        if members[0].step == 5:
            assert store.trial(tmp_path, some[1].id).state().status == "finished"
            raise RuntimeError("no more")
        honest(self, members)

    measured(tmp_path, some, "")
    monkeypatch.setattr(fused.Group, "advance", advance)
    events = served(tmp_path, some)
    assert [events[job.id][-1]["event"] for job in some] == ["apart", "finished"]
    assert events[some[0].id][-1]["cause"] == "RuntimeError: no more"


def test_a_trial_of_other_code_fails_alone(tmp_path: Path) -> None:
    """It is not what was planned: one line, and no other is touched."""
    some = jobs(3)
    wrong = Job("0" * 12, some[1].config, "arm", "study")
    measured(tmp_path, some, "")
    events = served(tmp_path, [some[0], wrong, some[2]])
    assert [last[-1]["event"] for last in events.values()] == ["finished", "failed", "finished"]
    assert "planned with other code or data" in events[wrong.id][-1]["cause"]


def test_a_probe_measures_once_and_files_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As fast as one by one does not pay; faster and the same does; each is asked of the device once."""
    asked: list[int] = []

    def beside(configs: Sequence[Config], *_: Any) -> dict[str, Any]:
        asked.append(len(configs))
        return {fused_pace.FUSED: np.array([1.0, 1.0]), fused_pace.ALONE: np.array([1.0, 1.0]) * (len(configs) - 1)}

    monkeypatch.setattr(fused_pace, "beside", beside)
    configs = [Config(**job.config) for job in jobs(3)]
    for _ in range(2):
        said = fused_pace.verdict(configs[:2], tmp_path, None, "code")
        assert (said.why, said.ratio) == ("2 as one take 1.00x the steps a second of one after the other", 1.0)
        assert fused_pace.verdict(configs, tmp_path, None, "code") == fused_pace.Verdict("", 2.0)
    assert asked == [2, 3]
    assert fused_pace.verdict(configs, tmp_path, None, "code+plugin").why == ""
    monkeypatch.setattr(fused_pace, "versions", lambda: {"torch": "9"})
    assert fused_pace.verdict(configs, tmp_path, None, "code").why == ""
    assert asked == [2, 3, 3, 3]


def test_a_probe_ends_with_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that are too long for it are not begun; of those that turn out so, what was measured counts."""
    configs = [Config(**job.config) for job in jobs(2)]
    with pytest.raises(fused_pace.OutOfTime, match="is too long to be tried within 0 s"):
        fused_pace.probe(configs, None, seconds=0.0)
    monkeypatch.setattr(fused_pace, "step_seconds", lambda *_: 0.0)
    monkeypatch.setattr(fused_pace, "unfit", lambda *_: "")
    with pytest.raises(fused_pace.OutOfTime, match="2 as one were not measured 2 times within 0 s"):
        fused_pace.probe(configs, None, 0.0)
    now = iter(range(1000))
    monkeypatch.setattr(fused_pace.time, "monotonic", lambda: next(now))
    images = [load(config) for config in configs]
    steps = 2 * fused_pace.WARM_UP + 2 * 2  # those before the first round, and those of two rounds of one step
    found = fused_pace.beside(configs, images, rounds=9, steps=1, end=steps - 1)
    assert {name: len(values) for name, values in found.items()} == {fused_pace.FUSED: 2, fused_pace.ALONE: 2}


def test_what_may_pass_is_not_filed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little time, an error or memory that ran out is this time's cause; a lost device ends the process."""
    raised: list[Exception] = []

    def beside(*_: Any) -> Any:
        raise raised.pop()

    monkeypatch.setattr(fused_pace, "beside", beside)
    some = jobs(2)
    raised.append(fused_pace.OutOfTime("a busy machine"))
    assert {events[0]["cause"] for events in served(tmp_path, some).values()} == {"a busy machine"}
    for error in (KeyError("weird"), RuntimeError("CUDA error: out of memory"), TypeError("no"), AssertionError("x")):
        raised.append(error)
        for events in served(tmp_path, some).values():
            assert [(event["event"], event["leaving"]) for event in events] == [("apart", False)]
            assert events[0]["cause"].startswith(type(error).__name__)
    raised.append(RuntimeError("CUDA error: device-side assert triggered"))
    for events in served(tmp_path, some).values():
        assert [(event["event"], event["leaving"]) for event in events] == [("apart", True)]
    assert not fusing.verdicts(tmp_path)


def test_told_to_stop_they_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the probe, without an attempt."""
    some = jobs(2)
    measured(tmp_path, some, "")
    monkeypatch.setattr(Worker, "stop", lambda self: True)
    assert [[event["event"] for event in events] for events in served(tmp_path, some).values()] == [["stopped"]] * 2
    assert store.trial(tmp_path, some[0].id).attempts() == []


def test_a_probe_says_what_cannot_be_one(tmp_path: Path) -> None:
    """Configs that are not kin, by name."""
    configs = [Config(**SMALL, device="cpu", depth=depth) for depth in (1, 2)]
    said = fused_pace.verdict(configs, tmp_path, None, "")
    assert said.why.startswith("ConfigError: depth=1 and 2: trained together")


def test_status_tells_what_probes_said(tmp_path: Path) -> None:
    """By arm, in JSON and for a person; nothing where there was none."""
    configs = [Config(**SMALL, device="cpu", position=position) for position in ("1d", "none", "2d")]
    arms = [{"name": config.position, "config": config.model_dump(), "trials": []} for config in configs]
    plan = {"name": "s@r", "study": "s", "recipe": "r", "arms": arms, "seeds": []}
    groups = {
        fusing.key(fusing.kin(config.model_dump()), 8): {"ratio": ratio, "why": why}
        for config, ratio, why in zip(configs, (2.5, 0.9), ("", "8 as one are slow"), strict=False)
    }
    paces.write(tmp_path, Device(gpu=True, name="NVIDIA H200"), paces.FUSED, groups)
    view = status.status(plan, tmp_path, status.Seen())
    found = {arm["arm"]: [(one["members"], one["ratio"]) for one in arm["as_one"]] for arm in view["arms"]}
    assert found == {"1d": [(8, 2.5)], "none": [(8, 0.9)], "2d": []}
    shown = board.board([view]).plain
    assert "as one    8 take 2.50x the steps a second of one after the other, on NVIDIA H200: 1d" in shown
    assert "alone     8 as one are slow, on NVIDIA H200: none" in shown


def test_kin_that_fill_no_more_than_a_share_go_to_one(tmp_path: Path) -> None:
    """As many as may be trained as one; longer ones are spread over shares as others are."""
    some = [*jobs(4), *jobs(4, position="none")]
    seconds = {job.id: 10.0 for job in some}

    def shares(least: float, most: int) -> list[list[int]]:
        found = campaign.split(sorted(some, key=lambda job: job.config["seed"]), seconds, 100, least, most)
        assert sorted(job.id for share in found for job in share) == sorted(seconds)
        return [[some.index(job) for job in share] for share in found]

    assert shares(40.0, 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert shares(20.0, 4) == [[0, 1], [4, 5], [2, 3], [6, 7]]
    assert shares(80.0, 3) == [[0, 1, 2, 4, 5, 6, 3, 7]]
    assert shares(9.0, 4) == [[index] for index in (0, 4, 1, 5, 2, 6, 3, 7)]
    assert shares(40.0, 1) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_steps_are_timed_beside_each_other() -> None:
    """A value a round of both ways."""
    configs = [Config(**job.config) for job in jobs(2)]
    seconds = fused_pace.beside(configs, [load(config) for config in configs], rounds=2, steps=1)
    assert {name: len(values) for name, values in seconds.items()} == {fused_pace.FUSED: 2, fused_pace.ALONE: 2}
    assert all((values > 0).all() for values in seconds.values())
