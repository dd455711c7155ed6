"""What launches need on their host before they start: archives of code and of outputs, which are
fetched over the connection with the supervisor, and packages, which are installed there."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Callable, Sequence

from muster.node import messages
from muster.node.agent_process import prepare
from muster.node.code import (
    Archives,
    CannotFetch,
    CodeFetch,
    archives_of,
    described,
    output_archives,
    wait_for_other,
)
from muster.node.environments import Environments
from muster.node.streams import Streams

if TYPE_CHECKING:
    from muster.node.installation import Installation


class CannotProvide(Exception):  # noqa: N818
    """The text says why."""


class Provisions:
    """What the launches of a node need. One launch at a time waits for it.

    installs: called with the incarnation for which packages are about to be installed.
    """

    def __init__(
        self, archives: Archives, environments: Environments, installs: Callable[[int], None]
    ) -> None:
        self._archives, self._environments, self._installs = archives, environments, installs
        #: The launch that waits; None if there is none.
        self.waiting: messages.Launch | None = None
        self._has_code = False  # whether the agent has its code already
        self._fetch: CodeFetch | None = None  # None without a connection
        self._other_fetch: int | None = None  # a process that waits for another server's fetch
        self._installation: Installation | None = None
        self._is_installed = False  # whether the process of the installation has ended

    @property
    def archives(self) -> str:
        """The folder of the archives."""
        return self._archives.place

    @property
    def held(self) -> Sequence[int]:
        """Descriptors that agents keep open: they hold the packages."""
        return self._environments.held

    def lacks(self, launch: messages.Launch, *, has_code: bool) -> bool:
        """Whether a launch has to wait for an archive. has_code: whether its agent has unpacked its
        code already. Raises CannotProvide."""
        try:
            return bool(self._missing(launch, has_code=has_code))
        except (CannotFetch, OSError) as error:
            raise CannotProvide(str(error)) from None

    def keep_archives_of(self, launch: messages.Launch, *, outputs: bool) -> None:
        """Hold the archives of a launch, and no others. outputs: also those of outputs, which are
        not needed any more once they are unpacked. Raises OSError."""
        kept = output_archives(launch) if outputs else []
        self._archives.keep_only([*archives_of(launch), *kept])

    def wait(self, launch: messages.Launch, *, has_code: bool) -> None:
        """Have a launch wait for what it needs; `step` provides that. has_code: see `lacks`."""
        self.waiting, self._has_code = launch, has_code

    def step(self, streams: Streams | None) -> messages.Launch | None:
        """Continue. streams: of the connection with the supervisor; None without one. Returns the
        launch once it has what it needs. Raises CannotProvide, after which it still waits."""
        launch = self.waiting
        if launch is None or self._other_fetch is not None:
            return None
        if self._installation is not None:
            if not self._is_installed:
                return None
            self._use(self._installation, launch)
        if not self._has_archives(launch, streams):
            return None
        if launch.environment is not None and not self._environments.held:
            self._install(launch, launch.environment)
            return None
        self.waiting = None
        return launch

    def reaped(self, pid: int) -> bool:
        """A child process has ended. Returns whether it was one of these: then `step` continues."""
        if pid == self._other_fetch:
            self._other_fetch = None
        elif self._installation is not None and pid == self._installation.pid:
            self._is_installed = True
        else:
            return False
        return True

    def disconnect(self) -> None:
        """The connection with the supervisor is closed."""
        if self._fetch is not None:
            self._fetch.close()
            self._fetch = None

    def stop(self) -> messages.Launch | None:
        """Provide nothing more. Returns the launch that has waited."""
        self.disconnect()
        if self._other_fetch is not None:
            os.kill(self._other_fetch, signal.SIGKILL)  # not reaped yet: the pid is its own
        if self._installation is not None and not self._is_installed:
            self._installation.kill()
        launch, self.waiting, self._installation = self.waiting, None, None
        return launch

    # --- archives

    def _missing(self, launch: messages.Launch, *, has_code: bool) -> str:
        """The SHA-256 of an archive that is not there; "" if all are. Raises OSError,
        CannotFetch."""
        wanted = output_archives(launch)
        if not has_code:
            wanted = [*archives_of(launch), *wanted]
        return next((one for one in wanted if not self._archives.hold(one)), "")

    def _has_archives(self, launch: messages.Launch, streams: Streams | None) -> bool:
        """Continue with the archives. Returns whether all are there. Raises CannotProvide."""
        wanted = ""
        try:
            while wanted := self._missing(launch, has_code=self._has_code):
                if not self._has_fetched(wanted, streams):
                    return False
                self._fetch = None
        except (OSError, CannotFetch) as error:
            raise CannotProvide("%s: %s" % (described(launch, wanted), error)) from None
        return True

    def _has_fetched(self, sha256: str, streams: Streams | None) -> bool:
        """Continue with an archive. Returns whether it is there. Raises OSError, CannotFetch."""
        if self._fetch is None:
            if self._archives.hold(sha256):
                return True  # another server has fetched it
            if streams is None:
                return False
            begun = self._archives.begin(sha256)
            if begun is None:
                return True
            descriptor, is_mine = begun
            if not is_mine:
                self._other_fetch = wait_for_other(descriptor)
                return False
            self._fetch = CodeFetch(self._archives, sha256, descriptor, streams)
        return self._fetch.step()

    # --- packages

    def _install(self, launch: messages.Launch, wanted: messages.Environment) -> None:
        """Have the packages installed that a launch requires, unless they are. Raises
        CannotProvide."""
        try:
            from muster.node.installation import Installation  # few jobs require packages
        except ImportError:  # of a node program that was removed from the user's cache
            raise CannotProvide("the node program was removed from its machine") from None
        output = launch.launch.processes[0].stderr
        variables = launch.launch.environment_of(0)
        try:
            prepare(launch)
            place = self._environments.place
            self._installation = Installation(place, wanted, output, variables)
        except (OSError, ValueError) as error:
            text = "the job's requirements cannot be installed: %s" % error
            raise CannotProvide(text) from None
        self._is_installed = False
        self._installs(launch.incarnation)

    def _use(self, installation: Installation, launch: messages.Launch) -> None:
        """The process that installs packages has ended. Raises CannotProvide."""
        from muster.node.installation import CannotInstall

        self._installation = None
        try:
            key = installation.key()
            if launch.environment is not None:
                self._environments.use(key, launch.environment.link)  # else it is made again
        except (CannotInstall, OSError) as error:
            raise CannotProvide(str(error)) from None
