"""The output of a run, attempt by attempt: each has a folder of its own."""

from __future__ import annotations

import shutil
from collections import Counter

from muster.engines.local.outputs import NodeOutputs, Outputs
from muster.plan.model import RunPlan
from muster.storage.home import RunDir


class Attempts:
    """The outputs of the newest attempt, and of those before it that still have nodes.

    One attempt may begin while the last nodes of another are still to end.
    """

    def __init__(self, plan: RunPlan, run_dir: RunDir) -> None:
        self._plan = plan
        self._run_dir = run_dir
        self._open: dict[int, Outputs] = {}
        self._nodes: Counter[int] = Counter()  # that have not ended, by attempt
        self.newest = -1

    def open(self, attempt: int) -> bool:
        """Have this attempt's files, if it is newer than those there were. Whether it is."""
        if attempt <= self.newest:
            return False
        self._open[attempt] = Outputs(self._plan, self._run_dir.logs(attempt))
        self.newest = attempt
        return True

    def enter(self, rank: int) -> NodeOutputs:
        """A node begins to write as part of the newest attempt, to these files."""
        self._nodes[self.newest] += 1
        return self._open[self.newest].of(rank)

    def leave(self, attempt: int, rank: int) -> bool:
        """A node has ended. Whether that leaves an old attempt without nodes."""
        self._nodes[attempt] -= 1
        self._open[attempt].note_node(rank)
        return attempt < self.newest and not self._nodes[attempt]

    def retire(self) -> None:
        """Say of old attempts without nodes that nothing follows; remove what is too old to keep.

        Takes a while: better done when the nodes of the newest are on their way.
        """
        for attempt in [a for a in self._open if a < self.newest and not self._nodes[a]]:
            outputs = self._open.pop(attempt)
            outputs.finish()
            outputs.close()
        self._prune()

    def _prune(self) -> None:
        keep = self._plan.keep_attempts
        logs = self._run_dir.logs(self.newest).parent
        if keep is None or self.newest < keep or not logs.is_dir():
            return
        for folder in logs.iterdir():
            if folder.name.isdigit() and int(folder.name) <= self.newest - keep:
                shutil.rmtree(folder, ignore_errors=True)

    # --- while they grow

    def watched(self) -> list[int]:
        """The descriptors to wait on for growth, but for those where it may wait."""
        return [d for outputs in self._open.values() if (d := outputs.watched()) is not None]

    def patience(self) -> float | None:
        """Seconds after which `note` wants to be called although nothing happened."""
        waits = [w for outputs in self._open.values() if (w := outputs.patience()) is not None]
        return min(waits, default=None)

    def note(self) -> None:
        """Note what has grown."""
        for outputs in self._open.values():
            outputs.note()

    def seal(self) -> None:
        """Say that nothing follows at all."""
        for outputs in self._open.values():
            outputs.finish()
        self._open.clear()
