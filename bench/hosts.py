"""A hello on several machines over ssh, compared with plain ssh.

The machines are one sshd on loopback, whose connections are shared (`ControlMaster`) and open
already. `python bench/hosts.py 4` for four nodes. Then an array of 200 replicas, eight at a time
there, and here.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path

from common import MUSTER, compare, fresh_home, timed

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from muster.engines.hosts.profile import Machine
from muster.engines.hosts.ssh import SshSettings, socket_folder
from support.ssh_hosts import Sshd, add_engine

PYTHON = sys.executable
REPLICAS, AT_ONCE = 200, 8


def main(nodes: int) -> None:
    """Print the table for this many nodes."""
    with fresh_home() as home, tempfile.TemporaryDirectory(prefix="sshd-") as folder:
        sshd = Sshd(Path(folder))
        try:
            add_engine(home, sshd, slots=nodes)
            ssh = SshSettings(socket_folder(), str(sshd.config))
            command = shlex.join(ssh.command(Machine("127.0.0.1"), (PYTHON, "-c", "pass")))
            plain = f"for i in $(seq {nodes}); do {command} & done; wait"
            words = ["--", PYTHON, "-c", "pass"]
            compare(
                f"{nodes} nodes, `python -c pass`",
                {
                    "ssh, at the same time": timed(["bash", "-c", plain]),
                    "muster run --engine hosts": timed(
                        [MUSTER, "run", "--engine", "hosts", "--nodes", str(nodes), *words]
                    ),
                    "muster run": timed([MUSTER, "run", "--nodes", str(nodes), *words]),
                },
            )
            add_engine(home, sshd, slots=AT_ONCE)
            array = ["--array", f"n=1..{REPLICAS}", "--parallelism", str(AT_ONCE), "--", "true"]
            compare(
                f"{REPLICAS} replicas of `true`, {AT_ONCE} at once",
                {
                    "muster run --engine hosts": timed(
                        [MUSTER, "run", "--engine", "hosts", *array]
                    ),
                    "muster run": timed([MUSTER, "run", *array]),
                },
                rounds=3,
                count=REPLICAS,
            )
        finally:
            sshd.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
