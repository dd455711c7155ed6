"""A stand-in for a training: steps, a checkpoint every tenth, and a crash.

Checkpoints are in a directory of the run, which outlives its nodes.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

RANK = int(os.environ["NODE_RANK"])
RESTART = int(os.environ["MUSTER_RESTART"])
CHECKPOINT = Path(os.environ["MUSTER_MOUNT_CHECKPOINTS"]) / f"rank-{RANK}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--crash-at", type=int, default=30)
    parser.add_argument("--crash-always", action="store_true")
    args = parser.parse_args()
    step = int(CHECKPOINT.read_text()) if CHECKPOINT.exists() else 0
    print(f"starting at step {step}, restart {RESTART}")
    requests: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: requests.append(number))
    while step < args.steps:
        time.sleep(0.02)
        step += 1
        if RANK == 2 and step == args.crash_at and (RESTART == 0 or args.crash_always):
            raise RuntimeError(f"lost a GPU at step {step}")
        if step % 10 == 0 or requests:
            save(step)
        if requests:
            print(f"saved at step {step}, as requested")
            sys.exit(0)
    print(f"done after step {step}")


def save(step: int) -> None:
    part = CHECKPOINT.with_suffix(".part")
    part.write_text(str(step))
    part.replace(CHECKPOINT)


if __name__ == "__main__":
    main()
