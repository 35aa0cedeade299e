"""What hands used to timm, Hydra, W&B, scikit-learn, Lightning and git type works, or is answered with what to type."""

from pathlib import Path

import pytest
from another_process import called_without
from in_process import Ablate, refusal

ON = "--recipe r.yaml"
COPIED_LR = """echo '{question: "Which lr?", baseline: {lr: 1e-3}, factors: {lr: [1e-3, 1e-4]}}' > lr.yaml && """

WORKS = [
    ("run s@r", "| position=none"),
    (f"run s@r {ON}", "| position=none"),
    ("plan s@r", "6 finished"),
    (f"plan s.yaml {ON} --name mine", "mine: "),
    ("plan demo@digits", "demo@digits: "),
    ("plan me@home/s.yaml --recipe me@home/r.yaml", "6 finished"),
    ("show s@r", "s@r: "),
    ("table s@r", "| position=none"),
    ("status s@r", "6/6 done"),
    ("status -w", "6/6 done"),
    ("compare runs/studies/s@r copy/studies/s@r", "position=none"),
    ("list studies", "Studies"),
    ("list recipes", "Recipes"),
    ("list variants", "rope2d"),
    ("list settings", "weight_decay"),
    ("help", "Usage: ablate [OPTIONS] COMMAND"),
    ("help run", "Usage: ablate run [OPTIONS]"),
    ("help data pack", "Usage: ablate data pack"),
    ("run --help", "Usage: ablate run [OPTIONS]"),
    ("version", "ablate "),
    ("-V", "ablate "),
    ("table s.yaml --json", '"verdict"'),
]

ANSWERED = [
    # several values and Hydra's words
    (f"run s.yaml {ON} lr=1e-3,1e-4", "lr=1e-3,1e-4: one value; `curves: {lr: [1e-3, 1e-4]}` in a study's file"),
    ("train lr=1e-3,1e-4", f"values to compare are a study: {COPIED_LR}ablate run lr.yaml\n"),
    ("train lr=choice(1e-3,1e-4)", f"{COPIED_LR}ablate run lr.yaml\n"),
    ("train position=1d,2d", "baseline: {position: 1d}, factors: {position: [1d, 2d]}"),
    ("train model=S/16,B/16", 'baseline: {model: S/16}, arms: {"model=B/16": {model: B/16}}'),
    ("train seed=0,1,2", "seed=0,1,2: is one seed: `ablate run STUDY --seeds 3`"),
    ("train seed=range(5)", "`ablate run STUDY --seeds N`"),
    ("train device=cuda,cpu", "device=cuda,cpu: one value: it is how a trial runs, not what it learns"),
    ("train +lr=1e-2", "unknown key '+lr'; did you mean 'lr'?"),
    ("train ~lr", "'~lr' is not key=value: leave lr out, and it has the recipe's value"),
    ("train trainer.max_epochs=5", "unknown key 'trainer.max_epochs'; did you mean 'epochs'?"),
    (f"run s.yaml {ON} -m", "every study trains all its arms"),
    ("sweep s.yaml", "No such command 'sweep': `ablate run STUDY` trains every arm of a study"),
    (f"run s.yaml {ON} --prune --arm x", "--arm and --prune: --arm chooses trials of a plan"),
    (f"run s.yaml {ON} --plan-only --arm x", "--arm and --plan-only: --arm chooses trials of a plan"),
    (f"run s.yaml {ON} --dry-run", "--dry-run: `ablate plan s.yaml --recipe r.yaml` shows what it would do"),
    (f"run -n s.yaml {ON}", "-n: `ablate plan s.yaml --recipe r.yaml` shows what it would do"),
    ("run --config-name r.yaml s.yaml", "--config-name: use --recipe NAME|FILE"),
    # options instead of settings
    (f"run s.yaml {ON} --lr 1e-3", "settings are words: `ablate run s.yaml --recipe r.yaml lr=1e-3`"),
    (f"run s.yaml --lr=1e-3 {ON}", "settings are words: `ablate run s.yaml lr=1e-3 --recipe r.yaml`"),
    ("train --batch-size 64", "settings are words: `ablate train batch=64`"),
    ("train -b 64", "settings are words: `ablate train batch=64`"),
    ("train --trainer.max_epochs 5", "settings are words: `ablate train epochs=5`"),
    ("train --seed 3", "settings are words: `ablate train seed=3`"),
    ("run s.yaml --seed 3", "--seed: use --seeds N, for seeds 0 to N-1 of every arm"),
    ("run s.yaml --cuda", "settings are words: `ablate run s.yaml device=cuda`"),
    ("run s.yaml --num-workers 2", "--num-workers: use --jobs N"),
    ("run s.yaml --output-dir out", "--output-dir: use --runs DIR"),
    ("run s.yaml --resume", "--resume: leave it out: the same command continues what is unfinished"),
    ("run s.yaml --force", "finished trials stay; --runs OTHER trains them anew"),
    ("run s.yaml -v", "-v: leave it out: progress is always shown"),
    ("run s.yaml --wandb", "`ablate export --to wandb --out FOLDER`"),
    ("submit s.yaml --partition gpu", "--partition: is a key of the profile's file"),
    ("table s --metric val_accuracy", "--metric: use --columns NAME,..."),
    ("plot s --pdf", "--pdf: use --format pdf"),
    ("export s --format csv", "--format: the ending says it: --out FILE.csv"),
    ("export s --output x.parquet", "--output: use --out FILE"),
    ("demo --seeds 2", "--seeds: is for `ablate run demo`"),
    ("demo lr=1e-3", "takes no words: `ablate run demo lr=1e-3`"),
    # settings of other code
    ("train learning_rate=1e-3", "unknown key 'learning_rate'; did you mean 'lr'?"),
    ("train learningRate=1e-3", "unknown key 'learningRate'; did you mean 'lr'?"),
    ("train wd=0", "unknown key 'wd'; did you mean 'weight_decay'?"),
    ("train weight-decay=0", "unknown key 'weight-decay'; did you mean 'weight_decay'?"),
    ("train model=vit_base_patch16_224", "did you mean 'B/16' or 'timm/vit_base_patch16_224'?"),
    ("train model=resnet50", "did you mean 'timm/resnet50'?"),
    ("train lr:1e-3", "'lr:1e-3' is not key=value: write lr=1e-3"),
    ("train lr = 1e-3", "'=' stands alone: write key=value without spaces"),
    ("train lr= 1e-3", "lr=: the value is missing: write lr=VALUE, without spaces"),
    ("train lr==1e-3", "lr==1e-3: write one equals sign: lr=1e-3"),
    ("train lr", "'lr' is not key=value: write lr=VALUE"),
    ("run lr", "'lr': is a setting, not a study: lr=VALUE"),
    ("train data=CIFAR10", "did you mean 'cifar10'?"),
    ("train data=./runs", "a folder of images is data=imagefolder:./runs"),
    ("train -b64", "settings are words: `ablate train batch=64`"),
    ("list optimizer", "'optimizer': `ablate list variants` and `ablate list settings` have it"),
    # values of options
    ("table s --format markdown", "--format markdown: use --format md"),
    ("run s.yaml --cfg job", "`ablate plan STUDY` shows what it would do"),
    ("run s.yaml --seeds 1,2,3", "--seeds 1,2,3: is a number: --seeds 3, for seeds 0 to 2"),
    ("run s.yaml --runs", "--runs: the value is missing: write it after the option (see ablate run -h)"),
    # studies and results
    ("run s@r --recipe digits", "s@r --recipe digits: the name says the recipe already"),
    ("table demo", "demo@digits: was not run in runs (there: s@r): `ablate run demo` first"),
    ("table demo@digits,steps=9", "was not run in runs (there: s@r): `ablate run demo@digits steps=9` first"),
    ("run demo@digits,steps=9", "begin it with `ablate run demo@digits steps=9`"),
    ("run demo.yaml", "demo.yaml: no such file; did you mean 'demo'?"),
    ("run studies/demo", "did you mean 'demo'?"),
    ("run s.yaml,demo", "separate studies by spaces: s.yaml demo"),
    ("run s.yaml r.yaml", "r.yaml: is a recipe, not a study: give it as --recipe r.yaml"),
    ("run *", "every packaged study is called 'all'"),
    ("run .", ".: is a folder: `ablate init .` writes a recipe for its images"),
    ("run help", "'help': `ablate run --help`"),
    ("run", "as in `ablate run position-embedding`"),
    ("run lr=1", "for one model: `ablate train KEY=VALUE`"),
    ("run demo@digits pooling@mnist", "demo@digits and pooling@mnist: differ in recipe or settings"),
    ("run pooling demo@mnist", "demo@mnist and pooling: differ in recipe or settings: give each a command of its own"),
    ("run runs/studies/s@r", "runs/studies/s@r: is a study's folder: name the study: s@r --runs runs"),
    ("table runs", "runs: is a run directory: give it as --runs runs"),
    ("table all.parquet", "all.parquet: is no study: exported results are read with --runs all.parquet"),
    ("table --runs mine.csv", "mine.csv: a .csv is for other programs"),
    ("compare mine.csv runs", "mine.csv: a .csv is for other programs"),
    ("compare s@r s@r", "of one set: `ablate table s@r`"),
    ("compare runs/studies/s@r runs/studies/s@r", "of one set: `ablate table s@r --runs runs`"),
    ("compare s.yaml r.yaml", "of one set: `ablate table s.yaml r.yaml`"),
    ("compare runs", "as in `ablate compare runs colleague.parquet`"),
    ("train s", "`ablate run s` trains a study"),
    # commands
    ("ls", "No such command 'ls': `ablate list`"),
    ("tune s.yaml", "`tune: {lr: [1e-3, 1e-4]}` in a study's file"),
    ("stop", "`ablate cancel STUDY` for SLURM jobs, Ctrl-C for a run here"),
    ("sync", "`ablate export --to wandb --out FOLDER`"),
    ("-v", "`ablate --version`"),
    ("-help", "`ablate --help`"),
]


@pytest.mark.parametrize(("words", "answer"), WORKS, ids=[words for words, _ in WORKS])
def test_a_habit_that_has_a_meaning_here_works(copied: Ablate, tmp_path: Path, words: str, answer: str) -> None:
    (tmp_path / "copy").symlink_to("runs")
    (tmp_path / "me@home").symlink_to(".")
    status, output, errors = copied(*words.split())
    assert status == 0, errors
    assert answer in output


@pytest.mark.parametrize(("words", "answer"), ANSWERED, ids=[words for words, _ in ANSWERED])
def test_a_habit_of_other_tools_is_answered_with_what_to_type(there: Ablate, words: str, answer: str) -> None:
    errors = refusal(there, *words.split())
    assert answer in errors


def test_the_study_in_the_answer_to_several_values_is_one(copied: Ablate, tmp_path: Path) -> None:
    """The line of YAML is a study whose arms are the values."""
    errors = refusal(copied, "train", "lr=1e-3,1e-4")
    (tmp_path / "lr.yaml").write_text(errors.partition("echo '")[2].partition("'")[0])
    status, output, _ = copied("plan", "lr.yaml", "--recipe", "r.yaml")
    assert status == 0
    assert "lr=0.0001" in output


def test_a_mistaken_setting_is_answered_before_torch_is_imported(tmp_path: Path) -> None:
    """An import of torch takes longer than everything else that answers."""
    answers = {"run demo widht=8": "did you mean", "train lr=fast": "a finite number above 0"}
    for words, (status, _, errors) in called_without(["torch"], tmp_path, tmp_path, [*answers]).items():
        assert status == 2
        assert answers[words] in errors
