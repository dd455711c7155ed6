"""Executes a notebook, as a program: `python notebook.py NOTEBOOK [ARGUMENT...]`.

What its cells print appears as it comes. The executed notebook is kept in the run's outputs, also
if a cell fails, and what failed is noted for whoever looks for the first cause. Needs nbclient and
ipykernel in the Python that runs it, which is the one that runs the cells, too.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]  # our own modules are none of the notebook's business

import asyncio
import importlib
import inspect
import json
import re
import shutil
import signal
import tempfile
import time
from typing import Any, Dict, List, Mapping

#: nbformat 4; older ones are read as such.
_VERSION = 4
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
_SAVE_EVERY = 5.0  # seconds, while a cell writes
_START, _DRAIN = 600, 60  # seconds: for the kernel to come up, for its last output to arrive
_LONGEST = 3500  # characters of a cause
#: A socket's path has 107 bytes at most (unix(7)), and the kernel's have a few more.
_SHORT = 90
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"


class Failed(Exception):  # noqa: N818
    """The notebook has failed. code: what the program exits with."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class Notebook:
    """One execution. path: the notebook; kept: where it is written to as it is executed."""

    def __init__(self, path: str, arguments: List[str], kept: str, tags: List[str]) -> None:
        self._nbformat = _needed("nbformat")
        self._name = os.path.basename(path)
        self._path, self._kept = path, kept
        self._arguments, self._tags = arguments, set(tags)
        self.book = self._nbformat.read(path, as_version=_VERSION)
        self._python = _language(self.book) == "python"
        self._sockets = _short_folder()
        self._manager = self._kernel()
        self._client = _needed("nbclient").NotebookClient(
            self.book,
            km=self._manager,
            timeout=None,
            startup_timeout=_START,
            iopub_timeout=_DRAIN,
        )
        self._process = self._client.process_message
        self._client.process_message = self._heard
        self._error: Dict[str, Any] = {}
        self._saved = 0.0
        self._told_to_end = False

    def _kernel(self) -> Any:
        """A kernel of our own Python, whatever other ones this machine has; for another language
        the one that the notebook names. It is talked to by sockets no other node could take."""
        jupyter = _needed("jupyter_client")
        specs = importlib.import_module("jupyter_client.kernelspec")
        more: Dict[str, Any] = {"transport": "ipc", "ip": os.path.join(self._sockets, "k")}
        if not self._python:
            name = self.book.metadata.get("kernelspec", {}).get("name", "")
            if name not in specs.KernelSpecManager().find_kernel_specs():
                raise Failed("%s wants the kernel %r, which is not here" % (self._name, name))
            return jupyter.AsyncKernelManager(kernel_name=name, **more)
        _needed("ipykernel")
        own = specs.KernelSpec(
            argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            display_name="Python",
            language="python",
        )
        finder = specs.KernelSpecManager()
        finder.get_kernel_spec = lambda _name: own
        return jupyter.AsyncKernelManager(kernel_name="python3", kernel_spec_manager=finder, **more)

    async def run(self) -> None:
        """Execute it. Raises Failed."""
        for cell in self.book.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None  # what is there is of another run
        self._save()
        loop = asyncio.get_running_loop()
        try:
            async with self._client.async_setup_kernel(cwd=os.getcwd(), cleanup_kc=True):
                for number in _FORWARDED:
                    loop.add_signal_handler(number, self._forward, number)
                loop.add_signal_handler(signal.SIGTERM, self._end)
                await self._say_arguments()
                for index, cell in enumerate(self.book.cells):
                    await self._cell(index, cell)
        finally:
            self._save()
            shutil.rmtree(self._sockets, ignore_errors=True)

    async def _say_arguments(self) -> None:
        """Let a notebook find its arguments where a script does."""
        info = await _now(self._client.kc.kernel_info())
        reply = await self._client.async_wait_for_reply(info)
        if reply is not None:
            self.book.metadata["language_info"] = reply["content"].get("language_info", {})
        if self._python:
            words = [self._path, *self._arguments]
            code = "import sys; sys.argv[:] = %r" % (words,)
            asked = await _now(self._client.kc.execute(code, silent=True, store_history=False))
            await self._client.async_wait_for_reply(asked)

    async def _cell(self, index: int, cell: Any) -> None:
        if self._tags.intersection(cell.metadata.get("tags", [])):
            return
        errors = importlib.import_module("nbclient.exceptions")
        count = self._client.code_cells_executed + 1
        try:
            await self._client.async_execute_cell(cell, index, execution_count=count)
        except errors.CellExecutionError:
            raise self._failure(index, count) from None
        except errors.DeadKernelError:
            status = await self._manager.provisioner.poll()
            raise self._death(index, status) from None
        self._save()

    def _failure(self, index: int, count: int) -> Failed:
        traceback = _ANSI.sub("", "\n".join(self._error.get("traceback", [])))
        what = "was told to end" if self._told_to_end else "failed"
        where = "cell %d of %s (In [%d]) %s" % (index + 1, self._name, count, what)
        code = 128 + signal.SIGTERM if self._told_to_end else 1
        return Failed(_cut(where, traceback.strip()), code)

    def _death(self, index: int, status: Any) -> Failed:
        """status: as subprocess has it; None if nobody knows."""
        where = "cell %d of %s: the kernel died" % (index + 1, self._name)
        if isinstance(status, int) and status < 0:
            hint = ", perhaps for want of memory" if -status == signal.SIGKILL else ""
            name = signal.Signals(-status).name
            return Failed("%s of %s%s" % (where, name, hint), 128 - status)
        return Failed("%s (exit code %s)" % (where, status), status or 1)

    # --- while it runs

    def _heard(self, message: Mapping[str, Any], cell: Any, index: int) -> Any:
        """What a cell puts out, shown before it is kept."""
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            _write(sys.stderr if content["name"] == "stderr" else sys.stdout, content["text"])
        elif kind in ("execute_result", "display_data"):
            text = content["data"].get("text/plain")
            if text:
                _write(sys.stdout, "%s\n" % text)
        elif kind == "error":
            self._error = dict(content)
            _write(sys.stderr, _ANSI.sub("", "\n".join(content["traceback"])) + "\n")
        made = self._process(message, cell, index)
        if time.monotonic() > self._saved + _SAVE_EVERY:
            self._save()
        return made

    def _forward(self, number: int) -> None:
        """To the kernel itself and not to what that has started, as with any program."""
        pid = getattr(self._manager.provisioner, "pid", None)
        if pid:
            os.kill(pid, number)

    def _end(self) -> None:
        """The cell gets a KeyboardInterrupt and may tidy up; what there is is kept at once."""
        self._told_to_end = True
        self._save()
        self._forward(signal.SIGINT)

    def _save(self) -> None:
        part = self._kept + ".part"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            self._nbformat.write(self.book, file)
        os.replace(part, self._kept)
        self._saved = time.monotonic()


def _needed(name: str) -> Any:
    """A module that has to be there. Raises Failed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != name:
            raise
        hint = "pip install nbclient ipykernel, or name them in the job's requirements"
        text = "a notebook needs %s, which %s does not have: %s" % (name, sys.executable, hint)
        raise Failed(text) from None


async def _now(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _language(book: Any) -> str:
    about = book.metadata
    named = about.get("kernelspec", {}).get("language") or about.get("language_info", {}).get(
        "name", "python"
    )
    return str(named).lower()


def _short_folder() -> str:
    folder = tempfile.mkdtemp(prefix="nb-")
    if len(folder) <= _SHORT:
        return folder
    os.rmdir(folder)
    return tempfile.mkdtemp(prefix="nb-", dir="/tmp")


def _write(stream: Any, text: str) -> None:
    stream.write(text)
    stream.flush()


def _cut(where: str, traceback: str) -> str:
    """The place, and the end of the traceback where it is long."""
    if len(traceback) > _LONGEST:
        traceback = "...\n" + traceback[-_LONGEST:].partition("\n")[2]
    return "%s\n%s" % (where, traceback)


def output_folder() -> str:
    """Where this process may leave things for the owner of the run."""
    env = os.environ
    ranks = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK", "NODE_RANK")
    rank = next((env[name] for name in ranks if env.get(name)), "0")
    folder = os.path.join(env.get("MUSTER_OUTPUTS", "outputs"), "rank-%s" % rank)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def place_for(name: str) -> str:
    """A path for the executed notebook; what an earlier life has left there gets a number."""
    path = os.path.join(output_folder(), name)
    if os.path.exists(path):
        stem, suffix = os.path.splitext(path)
        number = 1
        while os.path.exists("%s.%d%s" % (stem, number, suffix)):
            number += 1
        os.rename(path, "%s.%d%s" % (stem, number, suffix))
    return path


def note(text: str) -> None:
    """For whoever looks for the first cause (see `node.error_file`)."""
    path = os.environ.get(ERROR_FILE)
    if path:
        said = {"message": text, "extraInfo": {"timestamp": str(int(time.time()))}}
        with open(path, "w") as file:
            json.dump({"message": said}, file)


def main(argv: List[str]) -> int:
    """argv: the notebook, and its arguments. Returns the exit code."""
    path = argv[0]
    folder = os.path.dirname(os.path.abspath(path))
    more = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, more]))  # as for a script
    tags = json.loads(os.environ.get("NOTEBOOK_EXCLUDE_TAGS") or "[]")
    try:
        asyncio.run(Notebook(path, argv[1:], place_for(os.path.basename(path)), tags).run())
    except Failed as failed:
        note(str(failed))
        sys.stderr.write("%s\n" % str(failed).partition("\n")[0])
        return failed.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
