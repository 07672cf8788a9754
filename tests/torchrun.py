"""torchrun, on the loopback interface."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import rapid_lab

TORCHRUN = Path(sys.executable).with_name("torchrun")


def start_ranks(size: int, *program: str, folder: Path, **environment: str) -> "subprocess.Popen[str]":
    """So many ranks of one program; what they print comes through torchrun's pipes."""
    paths = [str(Path(__file__).parent), str(Path(rapid_lab.__file__).parent.parent)]
    own: dict[str, Any] = {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
    }
    command = [str(TORCHRUN), "--standalone", f"--nproc-per-node={size}", *program]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | own | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
