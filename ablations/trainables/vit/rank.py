"""A process for one rank above 0 of a trial on several GPUs: `python -m ablations.trainables.vit.rank ORDER`.

ORDER: a RankOrder as JSON. Only rank 0, the worker, reads and writes the run directory. The others ignore signals that
go to all processes, and end when the worker closes their standard input.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import torch

from ablations import faults
from ablations.output import plain_output
from ablations.trainables.vit import plugins
from ablations.trainables.vit.rank_processes import BEAT, BEAT_SECONDS, FOLLOWED, READY, REPORT, RankFailure, RankOrder
from ablations.trainables.vit.training import fault
from vitcore.config import Config
from vitcore.training.distributed import TCPStore, exchange_failed, join
from vitcore.training.loop import train

CONNECT = timedelta(seconds=60)
ORPHANED, BROKEN = 3, 1  # exit statuses


@plain_output()
def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_flush_denormal(True)  # before PyTorch starts threads (vitcore.runtime.device.flush_subnormals)
    order = RankOrder(**json.loads(sys.argv[1])).with_own_rank()
    threading.Thread(target=beat, args=(order,), daemon=True).start()
    store = TCPStore(order.host, order.port, is_master=False, timeout=CONNECT)
    try:
        serve(order, store)
    except Exception as error:  # any failure of a rank ends the attempt: report it to the worker
        traceback.print_exc()
        sys.stderr.flush()
        # a normal exit would wait forever for a lost GPU
        os._exit(BROKEN if report_failure(store, order.rank, error) else FOLLOWED)


def beat(order: RankOrder) -> None:
    """Send this rank's heartbeats to the store, over a connection that no collective operation blocks."""
    with suppress(RuntimeError):  # rank 0 is gone, and this process ends with it
        store = TCPStore(order.host, order.port, is_master=False, timeout=CONNECT)
        while True:
            store.add(f"{BEAT}/{order.rank}", 1)
            time.sleep(BEAT_SECONDS)


def serve(order: RankOrder, store: TCPStore) -> None:
    plugins.load(map(Path, order.plugins))
    config = Config(**order.config)
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    print(f"rank {order.rank} of {config.gpus} on {node}, {order.device}", flush=True)
    store.set(f"{READY}/{order.rank}", "")
    with join(store, order.rank, config.gpus, order.device) as ranks:
        train(config, data_dir=Path(order.data_dir) if order.data_dir else None, ranks=ranks)


def report_failure(store: TCPStore, rank: int, error: Exception) -> bool:
    """Report to rank 0 the exception that ends this rank; return whether the exception arose in this rank."""
    cause = faults.classify(error, fault)
    followed = exchange_failed(error)
    report = RankFailure(
        rank=rank,
        cause=f"{type(error).__name__}: {error}",
        kind=cause.kind,
        fatal=cause.fatal,
        where=faults.fault_location(error),
        trace="".join(traceback.format_exception(error)),
        node=os.environ.get("SLURMD_NODENAME", ""),
        followed=followed,
    )
    with suppress(RuntimeError):  # rank 0 is gone: nobody reads the report
        store.set(f"{REPORT}/{store.add(REPORT, 1)}", json.dumps(asdict(report)))
    return not followed


def end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(ORPHANED)


if __name__ == "__main__":
    main()
