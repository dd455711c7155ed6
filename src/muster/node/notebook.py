"""Executes a notebook, as a program: `python notebook.py NOTEBOOK [ARGUMENT...]`.

Prints the output of cells as it appears. Writes the executed notebook to the node's outputs, also
if a cell fails, and records the failure in the error file. Needs nbclient and ipykernel in the
Python that runs it, which also runs the cells.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]  # the notebook must not see our modules

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

#: nbformat 4; notebooks of older versions are converted.
_VERSION = 4
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
#: Variables with the rank of a process, and with the number of processes of its node: those of
#: Muster and torchrun, Open MPI, MPICH and Horovod.
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK")
_LOCAL_SIZES = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "HOROVOD_LOCAL_SIZE",
)
_SAVE_EVERY = 5.0  # seconds, while a cell writes
_START_TIMEOUT, _DRAIN_TIMEOUT = 600, 60  # seconds for the kernel to start; for its last output
_MAX_MESSAGE = 3500  # characters of a recorded error
#: A socket's path has at most 107 bytes (unix(7)), of which the kernel's names need some.
_MAX_SOCKET_FOLDER = 90
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
#: When a kernel shuts down, one of its threads may flush its output after another has closed the
#: sockets for it (seen in ipykernel 7). The error means nothing to users.
_HIDE_ERRORS = """
import logging
logging.getLogger("tornado.general").addFilter(lambda one: "ZMQStream" not in one.getMessage())
del logging
"""


class Failed(Exception):  # noqa: N818
    """The notebook has failed. code: the exit code of the program."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class Notebook:
    """One execution. path: the notebook; kept: where the executed notebook is written."""

    def __init__(self, path: str, arguments: List[str], kept: str, tags: List[str]) -> None:
        self._nbformat = _import("nbformat")
        self._name = os.path.basename(path)
        self._path, self._kept = path, kept
        self._arguments, self._tags = arguments, set(tags)
        self.book = self._nbformat.read(path, as_version=_VERSION)
        self._python = _language(self.book) == "python"
        self._sockets = _short_folder()
        self._manager = self._kernel()
        self._client = _import("nbclient").NotebookClient(
            self.book,
            km=self._manager,
            timeout=None,
            startup_timeout=_START_TIMEOUT,
            iopub_timeout=_DRAIN_TIMEOUT,
        )
        self._process = self._client.process_message
        self._client.process_message = self._handle_output
        self._error: Dict[str, Any] = {}
        self._saved = 0.0
        self._stopped = self._executing = False

    def _kernel(self) -> Any:
        """A kernel of this Python, ignoring installed kernels; for another language, the kernel
        that the notebook names. It uses Unix sockets, which other nodes cannot reach."""
        jupyter = _import("jupyter_client")
        specs = importlib.import_module("jupyter_client.kernelspec")
        more: Dict[str, Any] = {"transport": "ipc", "ip": os.path.join(self._sockets, "k")}
        if not self._python:
            name = self.book.metadata.get("kernelspec", {}).get("name", "")
            if name not in specs.KernelSpecManager().find_kernel_specs():
                raise Failed("%s needs the kernel %r, which is not installed" % (self._name, name))
            return jupyter.AsyncKernelManager(kernel_name=name, **more)
        _import("ipykernel")
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
                cell.outputs, cell.execution_count = [], None  # outputs of an earlier execution
        self._save()
        loop = asyncio.get_running_loop()
        try:
            async with self._client.async_setup_kernel(cwd=os.getcwd(), cleanup_kc=True):
                for number in _FORWARDED:
                    loop.add_signal_handler(number, self._forward, number)
                loop.add_signal_handler(signal.SIGTERM, self._end)
                await self._set_arguments()
                try:
                    for index, cell in enumerate(self.book.cells):
                        await self._cell(index, cell)
                finally:
                    await self._shut_down()
        finally:
            self._save()
            shutil.rmtree(self._sockets, ignore_errors=True)

    async def _set_arguments(self) -> None:
        """Set sys.argv, where a script finds its arguments."""
        info = await _now(self._client.kc.kernel_info())
        reply = await self._client.async_wait_for_reply(info)
        if reply is not None:
            self.book.metadata["language_info"] = reply["content"].get("language_info", {})
        words = [self._path, *self._arguments]
        await self._execute("import sys; sys.argv[:] = %r" % (words,))

    async def _shut_down(self) -> None:
        """Shut the kernel down, unless it has died or still executes a cell, which nbclient ends.

        nbclient would interrupt the kernel first. It may not be ready for a signal yet, shortly
        after it replied, and would print that it caught a KeyboardInterrupt.
        """
        if self._executing or not await _now(self._manager.is_alive()):
            return
        await self._execute(_HIDE_ERRORS)
        await _now(self._manager.request_shutdown())
        await _now(self._manager.finish_shutdown())

    async def _execute(self, code: str) -> None:
        """Execute Python code in the kernel, which shows nothing of it."""
        if self._python:
            request = await _now(self._client.kc.execute(code, silent=True, store_history=False))
            await self._client.async_wait_for_reply(request)

    async def _cell(self, index: int, cell: Any) -> None:
        if self._tags.intersection(cell.metadata.get("tags", [])):
            return
        errors = importlib.import_module("nbclient.exceptions")
        count = self._client.code_cells_executed + 1
        self._executing = True
        try:
            await self._client.async_execute_cell(cell, index, execution_count=count)
        except errors.CellExecutionError:
            self._executing = False
            raise self._failure(index, count) from None
        except errors.DeadKernelError:
            status = await self._manager.provisioner.poll()
            raise self._death(index, status) from None
        self._executing = False
        self._save()

    def _failure(self, index: int, count: int) -> Failed:
        traceback = _ANSI.sub("", "\n".join(self._error.get("traceback", [])))
        what = "was stopped" if self._stopped else "failed"
        where = "cell %d of %s (In [%d]) %s" % (index + 1, self._name, count, what)
        code = 128 + signal.SIGTERM if self._stopped else 1
        return Failed(_cut(where, traceback.strip()), code)

    def _death(self, index: int, status: Any) -> Failed:
        """status: as in subprocess; None if unknown."""
        where = "cell %d of %s: the kernel died" % (index + 1, self._name)
        if isinstance(status, int) and status < 0:
            hint = ", perhaps out of memory" if -status == signal.SIGKILL else ""
            name = signal.Signals(-status).name
            return Failed("%s of %s%s" % (where, name, hint), 128 - status)
        return Failed("%s (exit code %s)" % (where, status), status or 1)

    # --- while it runs

    def _handle_output(self, message: Mapping[str, Any], cell: Any, index: int) -> Any:
        """Print the output of a cell, then add it to the notebook."""
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
        output = self._process(message, cell, index)
        if time.monotonic() > self._saved + _SAVE_EVERY:
            self._save()
        return output

    def _forward(self, number: int) -> None:
        """Forward a signal to the kernel only, and not to its children, as for any program."""
        pid = getattr(self._manager.provisioner, "pid", None)
        if pid:
            os.kill(pid, number)

    def _end(self) -> None:
        """Interrupt the cell, which gets a KeyboardInterrupt, after saving the notebook."""
        self._stopped = True
        self._save()
        self._forward(signal.SIGINT)

    def _save(self) -> None:
        part = self._kept + ".part"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            self._nbformat.write(self.book, file)
        os.replace(part, self._kept)
        self._saved = time.monotonic()


def _import(name: str) -> Any:
    """Import a module. Raises Failed if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != name:
            raise
        hint = "pip install 'muster-jobs[notebook]', or add nbclient to the job's requirements"
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
    if len(folder) <= _MAX_SOCKET_FOLDER:
        return folder
    os.rmdir(folder)
    return tempfile.mkdtemp(prefix="nb-", dir="/tmp")


def _write(stream: Any, text: str) -> None:
    stream.write(text)
    stream.flush()


def _cut(where: str, traceback: str) -> str:
    """The heading and the traceback, of which a long one is cut at the front."""
    if len(traceback) > _MAX_MESSAGE:
        traceback = "...\n" + traceback[-_MAX_MESSAGE:].partition("\n")[2]
    return "%s\n%s" % (where, traceback)


def output_folder() -> str:
    """The folder for the executed notebook: the node's output directory, or a folder in it if the
    node has several processes."""
    env = os.environ
    folder = env.get("MUSTER_OUTPUTS", "outputs")
    if folder == env.get("MUSTER_RUN_OUTPUTS"):  # of a run that an earlier version submitted
        folder = os.path.join(folder, "rank-%s" % env["NODE_RANK"])
    if next((env[name] for name in _LOCAL_SIZES if env.get(name)), "1") != "1":
        rank = next((env[name] for name in _RANKS if env.get(name)), "0")
        folder = os.path.join(folder, "process-%s" % rank)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def output_path(name: str) -> str:
    """The path for the executed notebook. One of an earlier incarnation is renamed."""
    path = os.path.join(output_folder(), name)
    if os.path.exists(path):
        stem, suffix = os.path.splitext(path)
        number = 1
        while os.path.exists("%s.%d%s" % (stem, number, suffix)):
            number += 1
        os.rename(path, "%s.%d%s" % (stem, number, suffix))
    return path


def record_error(text: str) -> None:
    """Record the failure (see `node.error_file`)."""
    path = os.environ.get(ERROR_FILE)
    if path:
        error = {"message": text, "extraInfo": {"timestamp": str(int(time.time()))}}
        with open(path, "w") as file:
            json.dump({"message": error}, file)


def main(argv: List[str]) -> int:
    """argv: the notebook and its arguments. Returns the exit code."""
    path = argv[0]
    folder = os.path.dirname(os.path.abspath(path))
    more = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, more]))  # as for a script
    tags = json.loads(os.environ.get("NOTEBOOK_EXCLUDE_TAGS") or "[]")
    try:
        asyncio.run(Notebook(path, argv[1:], output_path(os.path.basename(path)), tags).run())
    except Failed as failed:
        record_error(str(failed))
        sys.stderr.write("%s\n" % str(failed).partition("\n")[0])
        return failed.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
