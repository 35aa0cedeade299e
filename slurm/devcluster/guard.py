"""Takes a cluster down when the process that started it is gone, however it went.

The kernel closes the pipe on our standard input at that moment. A process that ended the cluster itself says so first.
"""

import sys
from pathlib import Path

from slurm.devcluster.teardown import tear_down

if __name__ == "__main__" and not sys.stdin.buffer.read():
    tear_down(Path(sys.argv[1]))
