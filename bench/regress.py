"""The working tree beside another commit, in one run: `python bench/regress.py COMMIT [NAME ...]`.

Both get an environment of the same kind, compiled, and a MUSTER_HOME of their own, and are measured
in pairs, so that the load of the machine affects both alike. Printed are the medians, and the
median and range of the ratios: below 1, the working tree is faster or smaller. On a busy machine,
the CPU time still tells.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

BENCH = Path(__file__).parent
ROOT = BENCH.parent
#: Each prints a number. The modules are those beside this one, which use Muster's public API only.
MANY = """
import time
from concurrent.futures import ThreadPoolExecutor
import muster
def one(_):
    assert muster.run(command=["true"]).wait().state == "SUCCEEDED"
with ThreadPoolExecutor(8) as pool:
    one(0)  # the launcher starts once per process
    start = time.perf_counter()
    list(pool.map(one, range(100)))
    print(time.perf_counter() - start)
"""
RESTART = "from restart import restart; print(restart({}, 'in_place'))"
MEMORY = "from memory import measure; print(measure({})[{}])"
#: From the commit's own folder, since it uses what is internal.
RECOVERY = "from recovery import recover; print(recover(15_000, 'in_place'))"
SCRIPT = "#!{}\nfrom muster.__main__ import main\n\nmain()\n"


class Side(NamedTuple):
    """A commit that is measured."""

    root: Path
    environment: Path

    def command(self, *words: str) -> float:
        """Milliseconds of a command."""
        timed = f"from common import timed; print(timed([MUSTER, *{words!r}])() * 1000)"
        return self.python(f"from common import MUSTER; {timed}")

    def processor_time(self, *words: str) -> float:
        """Milliseconds of CPU of a command and its supervisor."""
        timed = f"print(processor_time([MUSTER, *{words!r}]) * 1000)"
        return self.python(f"from common import MUSTER, processor_time; {timed}")

    def python(self, code: str, bench: Path = BENCH) -> float:
        """The number that a program prints, whose modules are in `bench`."""
        code = f"import sys; sys.path.insert(0, {str(bench)!r})\n{code}"
        argv = [str(self.environment / "bin/python"), "-c", code]
        environ = {**os.environ, "MUSTER_HOME": str(self.environment / "home")}
        done = subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)
        if done.returncode:
            raise SystemExit(f"{self.root}: {done.stderr[-2000:]}")
        return float(done.stdout)


class Row(NamedTuple):
    unit: str
    rounds: int
    measure: Callable[[Side], float]


def in_milliseconds(code: str) -> Callable[[Side], float]:
    return lambda side: side.python(code) * 1000


ARRAY = ("run", "--array", "n=1..1000", "--parallelism", "8", "--", "sh", "-c", "echo done")
FOUR = ("run", "--nodes", "4", "--", sys.executable, "-c", "")
ROWS = {
    "run, 1 node": Row("ms", 15, lambda side: side.command("run", "--", "true")),
    "run, 1 node, CPU": Row("ms", 15, lambda side: side.processor_time("run", "--", "true")),
    "run, 4 nodes": Row("ms", 15, lambda side: side.command(*FOUR)),
    "run, 4 nodes, CPU": Row("ms", 15, lambda side: side.processor_time(*FOUR)),
    "help": Row("ms", 15, lambda side: side.command("--help")),
    "help, CPU": Row("ms", 15, lambda side: side.processor_time("--help")),
    "ps": Row("ms", 15, lambda side: side.command("ps")),
    "100 runs, 8 at once": Row("ms", 5, in_milliseconds(MANY)),
    "array of 1,000": Row("ms", 5, lambda side: side.command(*ARRAY)),
    "array of 1,000, CPU": Row("ms", 5, lambda side: side.processor_time(*ARRAY)),
    "restart in place, 4": Row("ms", 9, in_milliseconds(RESTART.format(4))),
    "restart in place, 100": Row("ms", 7, in_milliseconds(RESTART.format(100))),
    "recovery, 15,000": Row(
        "ms", 5, lambda side: side.python(RECOVERY, side.root / "bench") * 1000
    ),
    "supervisor, 1 node": Row("MB", 3, lambda side: side.python(MEMORY.format(1, 0))),
    "supervisor, 100 nodes": Row("MB", 3, lambda side: side.python(MEMORY.format(100, 0))),
    "agent, of 100": Row("MB", 3, lambda side: side.python(MEMORY.format(100, 1))),
}


def prepare(root: Path, environment: Path) -> Side:
    """Make an environment of a checkout, which shares the packages of this interpreter."""
    venv.create(environment, symlinks=True)
    packages = environment / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    shared = [path for path in sys.path if "site-packages" in path]
    (packages / "muster.pth").write_text("\n".join([str(root / "src"), *shared]))
    command = environment / "bin/muster"
    command.write_text(SCRIPT.format(environment / "bin/python"))
    command.chmod(0o755)
    compileall.compile_dir(root / "src", quiet=1)
    return Side(root, environment)


@contextmanager
def checkout(commit: str, folder: Path) -> Iterator[Path]:
    """A worktree of the commit, for a while."""
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def compare(name: str, row: Row, now: Side, before: Side) -> None:
    row.measure(now)  # warm up
    try:
        row.measure(before)
    except SystemExit as error:
        print(f"{name:22} the other commit cannot: {str(error).strip().splitlines()[-1]}")
        return
    pairs = []
    for number in range(row.rounds):
        if number % 2:
            pairs.append((row.measure(now), row.measure(before)))
        else:
            second = row.measure(before)
            pairs.append((row.measure(now), second))
    middle = [statistics.median(side) for side in zip(*pairs, strict=True)]
    ratios = [ours / theirs for ours, theirs in pairs]
    print(
        f"{name:22} {middle[1]:8.1f} {row.unit} {middle[0]:8.1f} {row.unit} "
        f"{statistics.median(ratios):7.2f}   {min(ratios):.2f} to {max(ratios):.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", metavar="COMMIT", help="what to compare with")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"default: all ({', '.join(ROWS)})"
    )
    given = parser.parse_args()
    if unknown := set(given.names) - set(ROWS):
        parser.error(f"no such NAME: {unknown}")
    temporary = Path(tempfile.mkdtemp(prefix="muster-regress-"))
    try:
        with checkout(given.commit, temporary / "other") as other:
            now = prepare(ROOT, temporary / "now")
            before = prepare(other, temporary / "before")
            print(f"{'':22} {given.commit[:11]:>11} {'now':>11} {'ratio':>7}   range of the ratio")
            for name in given.names or ROWS:
                compare(name, ROWS[name], now, before)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    main()
