"""One of the further processes of a trial on several GPUs. `python -m ablations.execution.rank ORDER`.

It trains with the worker that started it, which alone reads and writes. It ends with that worker, whose end closes its
standard input; by no signal that SLURM or a terminal sends to all: the worker decides when they stop.
"""

import json
import os
import signal
import socket
import sys
import threading
import traceback
from datetime import timedelta
from pathlib import Path

import torch

from ablations.execution.rank_processes import FOLLOWED, READY, Order, tell
from ablations.study import plugins
from vitcore.config import Config
from vitcore.training.distributed import TCPStore, joined
from vitcore.training.loop import train

CONNECT = timedelta(seconds=60)
ORPHANED, BROKEN = 3, 1  # exit status


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_flush_denormal(True)  # before PyTorch starts threads (vitcore.runtime.device.flushing)
    order = Order(**json.loads(sys.argv[1])).placed()
    store = TCPStore(order.host, order.port, is_master=False, timeout=CONNECT)
    try:
        serve(order, store)
    except Exception as error:  # whatever ends this rank ends the attempt: the worker is told
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(BROKEN if tell(store, order.rank, error) else FOLLOWED)  # without what a lost GPU would never let end


def serve(order: Order, store: TCPStore) -> None:
    plugins.load([Path(file) for file in order.plugins])
    config = Config(**order.config)
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    print(f"rank {order.rank} of {config.gpus} on {node}, {order.device}", flush=True)
    store.set(f"{READY}/{order.rank}", "")
    with joined(store, order.rank, config.gpus, order.device) as ranks:
        train(config, data_dir=Path(order.data_dir) if order.data_dir else None, ranks=ranks)


def end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(ORPHANED)


if __name__ == "__main__":
    main()
