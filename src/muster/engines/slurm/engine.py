"""The engine `slurm`: nodes in jobs of a Slurm cluster, submitted from a login node."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.engines.remote.engine import CAPABILITIES, RemoteEngine
from muster.engines.slurm.profile import read_settings
from muster.errors import EngineError, Problem
from muster.spec.values import MAX_RUNTIME

if TYPE_CHECKING:
    from muster.engines.base import RunContext
    from muster.engines.findings import Finding
    from muster.engines.loop import RunLoop
    from muster.engines.profiles import Profile
    from muster.engines.remote.hosts import HostsOwner
    from muster.engines.slurm.hosts import SlurmHosts
    from muster.plan.model import ResourcePlan, RunPlan
    from muster.storage.home import Home

#: What is used of Slurm.
_COMMANDS = ("sbatch", "squeue", "srun", "scancel", "scontrol", "sinfo")
#: Replicas of an array that run at once if the job does not say: each is a job of its own.
_AT_ONCE = 32


class SlurmEngine(RemoteEngine):
    """See `engines.base.Engine`. Raises InvalidInput for a wrong profile."""

    capabilities = replace(CAPABILITIES, limits=True, gpus=True, queueing=True)

    def __init__(self, profile: Profile, home: Home) -> None:
        self.name = profile.name
        self._profile = read_settings(profile.settings)
        self._home = home

    def available(self) -> str:
        """See `Engine.available`."""
        missing = [name for name in _COMMANDS if shutil.which(name) is None]
        if missing:
            return f"not all commands of Slurm are installed: there is no {', '.join(missing)}"
        from muster.engines.slurm.client import configuration_problem

        return configuration_problem(os.environ)

    def findings(self) -> list[Finding]:
        """See `Engine.findings`."""
        from muster.engines.slurm.examine import examine

        return examine(self._profile, self._home.root, os.environ)

    def check(self, plan: RunPlan, root: Path, replicas: Mapping[str, int]) -> list[Problem]:
        """See `Engine.check`."""
        from muster.engines.remote import plan_checks
        from muster.engines.slurm.client import CannotRun
        from muster.engines.slurm.jobs import lent_job
        from muster.engines.slurm.partitions import time_problems

        problems = [
            problem._replace(path=f"node_groups[{group.name}].slurm.{problem.path}")
            for group in plan.groups
            for problem in self._group_problems(group.slurm)
        ]
        if plan.network == "isolated":
            text = "nodes of engine slurm share the network of their machines"
            problems.append(Problem("network", text, "use cluster or shared"))
        if problem := plan_checks.check_open_files(plan, replicas):
            problems.append(problem._replace(hint=f"{problem.hint}, or run fewer nodes"))
        if '"' in str(root) or not str(root).isprintable():
            text = f"Slurm cannot use MUSTER_HOME={root}"
            problems.append(Problem("", text, "choose one without quotes"))
        if lent_job(os.environ) is None:
            with contextlib.suppress(CannotRun):  # the run waits until Slurm answers
                problems += time_problems(plan, self._profile.options, os.environ)
        return [*problems, *plan_checks.problems(self.name, plan)]

    def _group_problems(self, options: Mapping[str, object]) -> list[Problem]:
        from muster.engines.slurm.options import option_problems

        return list(option_problems(options))

    def replicas_at_once(self, resources: ResourcePlan, nodes: int) -> int:
        """See `Engine.replicas_at_once`."""
        return _AT_ONCE

    def explain(self, plan: RunPlan) -> list[str]:
        """See `Engine.explain`."""
        found = ["a node is replaced when Slurm says that it, or its job, is gone"]
        if plan.policy.max_runtime >= MAX_RUNTIME:
            text = "its job has the time limit of slurm.time or its partition"
            if plan.policy.checkpoint is not None:
                text += "; programs save before it"
            found.append(text)
        return found

    def preview(self, plan: RunPlan) -> dict[str, str]:
        """See `Engine.preview`."""
        from muster.engines.remote.hosts import first_parts
        from muster.engines.slurm import script
        from muster.engines.slurm.shared_folder import folder_of

        folder = str(folder_of(self._profile, self._home.root) / plan.run_id)
        options, texts, number = self._profile.options, [], 0
        for jobs in script.batches(plan, first_parts(plan), options):
            name = script.job_name(plan.run_id, number)
            parts = script.components(plan, jobs[0], options)
            texts.append(script.batch_script(name, plan.run_name, folder, parts, len(jobs)))
            number += len(jobs)
        titles = (
            ["sbatch script"]
            if len(texts) == 1
            else [f"sbatch script {n}" for n in range(len(texts))]
        )
        return dict(zip(titles, texts, strict=True))

    def dry_run(self, plan: RunPlan) -> list[Finding]:
        """See `Engine.dry_run`."""
        from muster.engines.findings import Finding
        from muster.engines.slurm.client import CannotRun, test_submission

        found = []
        for title, text in self.preview(plan).items():
            try:
                found.append(Finding(title, True, test_submission(text, os.environ)))
            except CannotRun as error:
                found.append(Finding(title, False, f"Slurm refuses it: {error}"))
        return found

    def clean_up(self, run_id: str) -> None:
        """See `Engine.clean_up`."""
        from muster.engines.slurm.clean_up import end_jobs

        end_jobs(self._home.run_dir(run_id), run_id, os.environ)

    def make_hosts(self, context: RunContext, loop: RunLoop, owner: HostsOwner) -> SlurmHosts:
        """See `RemoteEngine.make_hosts`."""
        from muster.engines.slurm.hosts import SlurmHosts

        try:
            return SlurmHosts(context, self._profile, loop, owner)
        except OSError as error:
            raise EngineError(f"the jobs of the run are not known: {error}") from None
