"""Take a cluster down when the process that started it is gone, however it ended.

The kernel then closes the pipe on our standard input. A process that ended the cluster itself writes to it first.
"""

import sys
from pathlib import Path

from slurm.devcluster.teardown import tear_down

if __name__ == "__main__" and not sys.stdin.buffer.read():
    tear_down(Path(sys.argv[1]))
