"""A process that takes a cluster down when the process that started the cluster, its parent, is gone.

When the parent ends, the kernel closes the pipe on standard input. A parent that has taken the cluster down itself
writes to the pipe first.
"""

import sys
from pathlib import Path

from slurm.devcluster.teardown import tear_down

if __name__ == "__main__" and not sys.stdin.buffer.read():
    tear_down(Path(sys.argv[1]))
