# make demo: the five studies on real images, report in runs/report.html.  make test: style, types, tests.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
CLUSTER := test_devcluster.py test_ranks.py test_submit.py test_status.py test_queue.py test_profile_keys.py
TESTS := -m pytest -o console_output_style=count -n 2 --dist worksteal -m 'not slow' $(addprefix --ignore tests/slurm/,$(CLUSTER))
OLDEST := .venv-oldest
FRAMEWORKS := .venv-frameworks
STUDIES := position-embedding pooling patch-size data-fraction hybrid-stem
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# With .venv where there is one, else as the machine's own Python has it: a GPU machine may reach no package index.
ON_GPU = env PYTHONPATH=.:tests/helpers $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
SECONDS ?= 540
GPU_RUNS ?= runs/gpu

.PHONY: bench bench-aggregate bench-gpu bench-loader bench-pull calibration demo docs golden golden-new lock test study-gpu test-frameworks test-full test-gpu test-oldest test-slurm test-slow test-slurm-storm test-storm lint install
install: $(STAMP)

# Every file that is downloaded has a hash in requirements.lock; nothing but this project is built.
$(STAMP): pyproject.toml requirements.lock
	@echo "installing into .venv: the versions of requirements.lock, about 6 GB; without a cache this takes 3 to 10 minutes"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@
	@echo "installed: source .venv/bin/activate, then ablate demo"

# After a change of dependencies, or of a version in constraints.txt. Needs uv.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--extra train --extra slurm --extra docs --extra dev -c constraints.txt pyproject.toml -o requirements.lock

demo: $(STAMP)
	$(BIN)/ablate run $(STUDIES)
	$(BIN)/ablate report $(STUDIES)

# The documentation, in docs/_build/html: without a network, and with every warning an error.
docs: $(STAMP)
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

lint: $(STAMP)
	@echo "style and types: a minute"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A thread each: two processes of two threads on two cores wait for each other, and take twice the CPU.
test: lint
	@echo "tests: eight minutes on two idle cores; each line ends with how many are done, of how many"
	OMP_NUM_THREADS=1 $(BIN)/python $(TESTS)

# The same tests with the lowest versions that pyproject.toml names. Warnings are shown, not errors: old packages warn of
# what newer ones, which they depend on, deprecate.
test-oldest:
	$(PYTHON) -m venv $(OLDEST)
	grep -oE '[A-Za-z0-9-]+>=[0-9.]+' pyproject.toml | sed 's/>=/==/' | sort -u > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet -c $(OLDEST)/constraints.txt -e '.[train,slurm,dev]'
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python $(TESTS) -W default

# What needs packages that make install leaves out, in an environment on top of .venv: pages on frameworks, conversions
# from and to transformers, files of `datasets` and WebDataset, tools for agents. A minute to install, seven to run. TIMM_CLONE=FOLDER, a
# clone of timm, runs the page on its train.py too.
test-frameworks: $(STAMP)
	$(BIN)/python -m venv $(FRAMEWORKS)
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
		> $$(echo $(FRAMEWORKS)/lib/python3*/site-packages)/beside.pth
	$(FRAMEWORKS)/bin/python -m pip install --quiet -c constraints.txt \
		accelerate datasets hydra-core lightning mcp transformers webdataset
	OMP_NUM_THREADS=1 $(FRAMEWORKS)/bin/python -m pytest -q tests/vitcore/interop/test_transformers.py \
		tests/vitcore/data/test_formats_of_packages.py tests/ablations/cli/test_mcp.py
	OMP_NUM_THREADS=1 $(FRAMEWORKS)/bin/python -m pytest -q -m slow tests/docs/test_pages.py \
		-k 'hf-trainer or hydra or lightning or timm-train'

# Pins the losses of all entries anew, after a change that raised a `numerics`.
golden: $(STAMP)
	$(BIN)/python tests/helpers/golden.py

# Pins the losses of new entries alone.
golden-new: $(STAMP)
	$(BIN)/python tests/helpers/golden.py new

# timm's and torchvision's models at their full sizes, float64 beside them: about 12 GiB of memory for the large ones.
test-full: $(STAMP)
	$(BIN)/python -m pytest -q -s -m slow tests/vitcore/interop/test_convert.py

# On a real SLURM on this machine (tests/devcluster/install.sh, as root): about 8 minutes.
test-slurm: $(STAMP)
	$(BIN)/python -m pytest -q -m 'not slow' tests/slurm

# The same under SIGKILLs, preemption, time limits, a slurmctld that forgets; 1,500 tasks; 1,000 trials.
test-slurm-storm: $(STAMP)
	$(BIN)/python -m pytest -q -s -m slow tests/slurm

# The slow ones beside `make test`: inductor, the paper's ResNet with all other parts; more kills, full disks, hostile names.
test-slow: $(STAMP)
	$(BIN)/python -m pytest -q -m slow tests $(addprefix --ignore tests/,slurm ablations/execution/test_storm.py vitcore/interop)

# Whether intervals cover, verdicts err and plans have power as often as they say; label noise on digits: 12 minutes.
calibration: $(STAMP)
	PYTHONPATH=tests/helpers $(BIN)/python -m benchmarks.calibration.suite

# The training step beside timm's and torchvision's; `python -m benchmarks -h` has the others. WORDS="width=192 heads=3"
bench: $(STAMP)
	$(BIN)/python -m benchmarks step $(WORDS)

# Seconds that table, plan and status take over up to 10,000 trials (synthetic results): about 8 minutes.
bench-aggregate: $(STAMP)
	PYTHONPATH=tests/helpers $(BIN)/python -m benchmarks.aggregate

# A pack's loader beside timm's, on generated photographs, and its memory: about 7 minutes of a core.
bench-loader: $(STAMP)
	PYTHONPATH=tests/helpers $(BIN)/python -m benchmarks.loader

# What it costs that 100 pools pull 1,000 trials, without and with the caches of NFS: about 3 minutes.
bench-pull: $(STAMP)
	$(BIN)/python -m benchmarks.pull --folder $${TMPDIR:-/tmp}/bench-pull --seconds 3
	$(BIN)/python -m benchmarks.pull --folder $${TMPDIR:-/tmp}/bench-pull --seconds 3 --cached 30

# What only a GPU can show; under 8 minutes on one.
test-gpu:
	$(ON_GPU) -m pytest -q -p no:cacheprovider -W default tests/gpu

# Steps, studies and compile caches beside timm, as ratios: docs/benchmarks/<gpu>.md. Goes on where the time was over.
bench-gpu:
	$(ON_GPU) -m benchmarks.gpu --out $(GPU_RUNS)/bench --page docs/benchmarks --seconds $(SECONDS)

# The five studies of the demo on DATA (a pack: make study-gpu DATA=cifarjpg), five seeds. Stops by itself after SECONDS;
# called again it goes on. $(GPU_RUNS).tar.gz holds what that needs, without weights and checkpoints.
study-gpu:
	test -n "$(DATA)" || { echo "make study-gpu DATA=NAME: the data to train on, of CIFAR-10's kind"; exit 2; }
	mkdir -p $(GPU_RUNS)
	nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits -l 1 >> $(GPU_RUNS)/busy.csv 2>/dev/null & busy=$$!; \
	timeout --signal INT --kill-after 90 $(SECONDS) $(ON_GPU) -m ablations.cli run $(STUDIES) --recipe cifar10 data=$(DATA) \
		--seeds 5 --runs $(GPU_RUNS) --keep-weights none $(WORDS); status=$$?; kill $$busy 2>/dev/null; \
	test $$status -eq 0 -o $$status -eq 124 -o $$status -eq 130
	$(ON_GPU) -m ablations.cli status $(STUDIES) --recipe cifar10 data=$(DATA) --runs $(GPU_RUNS) $(WORDS) || true
	$(ON_GPU) -m ablations.cli export $(STUDIES) --recipe cifar10 data=$(DATA) --runs $(GPU_RUNS) --out $(GPU_RUNS)/export.parquet $(WORDS) || true
	tar czf $(GPU_RUNS).tar.gz --exclude 'checkpoints' --exclude '*.safetensors' -C $(dir $(GPU_RUNS)) $(notdir $(GPU_RUNS))
	ls -l $(GPU_RUNS).tar.gz

# 20 SIGKILLs during the demo: about 12 minutes, half of it with ABLATE_CALM_RUNS=runs after `make demo`.
test-storm: $(STAMP)
	$(BIN)/python -m pytest -q -s -m slow tests/ablations/execution/test_storm.py
