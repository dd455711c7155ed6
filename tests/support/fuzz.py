"""Invalid files: valid files are mutated by a seed, and passed through all that a command does
before it starts a run.

The same seed creates the same file.
"""

from __future__ import annotations

import copy
import io
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from msgspec import to_builtins

from muster.caller import local_caller
from muster.cli import explain
from muster.client.target import notes_for, parse_target, single_targets, spec_for
from muster.errors import MusterError
from muster.service.backend import Backend
from muster.service.context import Context
from muster.service.planning import limits_of
from muster.service.prepare import prepare_run
from muster.service.review import review
from muster.spec.formats.convert import convert_file
from muster.spec.override_models import RunOverrides
from muster.spec.overrides import Changes
from muster.storage.artifacts import store_artifact
from muster.storage.home import Home
from muster.store.records import JobRecord
from muster.submission import of_this_process

ROOT = Path(__file__).parents[2]
#: Seconds of processor time after which a file counts as hanging; valid files take a tenth at most.
LONGEST = 20

#: Values written by hand or by templates.
_HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3, 10**6, 10**12, 10**400, -(10**30), 2**31, 2**63),
    *(0.5, -0.0, 1e308, float("inf"), float("-inf"), float("nan"), 1e-320),
    *("", " ", "0", "-1", "1e400", "nan", ".inf", "90s", "1h30m", "9" * 400 + "d", "4GiB", "1e9Gi"),
    *("a", "A" * 300, "../../etc/passwd", "/", "/dev/zero", "/dev/null", ".", "..", "~", "~nobody"),
    *("two\nlines", "tab\there", "nul\0", "\x1b]0;t\x07", "\u202e", "\ud800", "\ufeff", "é", "🙂"),
    *("${rank}", "${", "$${rank}", "${run.name", "$(A)", "$(B", "{{ .Values.a }}", "<fill-me>"),
    *("s3://b/k", "nfs://h/p", "scratch:node/x", "volume:..", "http://u:p@h/", "file://", "://"),
    *("(a+)+$", "[[:digit:]]", "a{99999999999}", "(" * 500, "\\", "SIGKILL", "workers", "main"),
    *("pytorch", "dask", "ray", "mpi", "jax", "none", "JobSet", "Always", "restart_node"),
    *([], {}, [None], [[]], [{}], {"": ""}, {"a": None}, [1, "a", None], {"name": "a"}),
    *([0] * 100, ["a"] * 2, {f"k{n}": n for n in range(50)}, [[[[[[[[]]]]]]]]),
)
#: libyaml, where it is installed, is ten times as fast.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CDumper", yaml.Dumper)
_BYTES = (
    *(b"\0", b"\x00\x00", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\x80", b"\xed\xa0\x80", b"\x85"),
    *(b"\t", b"\r", b"\n", b"\n\n", b" ", b"  ", b"\xe2\x80\xa8", b"\x0b", b"\x1b", b"\x7f"),
    *(b"!!set ", b"!!omap ", b"!!binary ", b"!!timestamp ", b"!!python/tuple ", b"!!int ", b"!x "),
    *(b"!!null ", b"!!bool ", b"!!float ", b"!!str ", b"!!map ", b"!!seq ", b"!!merge ", b"!<x> "),
    *(b"&a ", b"*a", b"<<: ", b"<<: *a", b"- ", b"? ", b": ", b"---\n", b"...\n", b"|", b">-\n"),
    *(b"{", b"}", b"[", b"]", b",", b'"', b"'", b"#", b"%", b"@", b"`", b"{{", b"}}", b"=", b"~"),
    *(b"2024-01-01", b"0x", b"0b", b"1_0", b"1:30", b".5", b"1e3", b"yes", b"NO", b"010", b"-"),
)


def corpus() -> list[str]:
    """The examples, and the files shown on the pages."""
    files = [*ROOT.glob("examples/*/*.yaml"), *ROOT.glob("tests/support/corpus/*.yaml")]
    texts = [path.read_text() for path in sorted(files)]
    for page in sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")]):
        texts += re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [text for text in texts if _is_data(text)]


def _is_data(text: str) -> bool:
    try:
        return any(isinstance(part, dict) for part in _loaded(text))
    except yaml.YAMLError:
        return False


def mutant(texts: list[str], seed: str) -> tuple[str, bytes]:
    """Suffix and content of a file."""
    rng = random.Random(seed)
    text = rng.choice(texts)
    if rng.random() < 0.3:
        data = text.encode()
    else:
        parts = _loaded(text)
        others = _loaded(rng.choice(texts))
        for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
            _change(rng, parts, others)
        data = _dumped(rng, parts)
    if rng.random() < 0.4:
        for _ in range(rng.choice((1, 1, 2, 5, 20))):
            data = _bytes(rng, data)
    return rng.choice((".yaml", ".yaml", ".yml", ".json")), data


def _loaded(text: str) -> list[Any]:
    return list(yaml.load_all(text, Loader=_Loader))


def _dumped(rng: random.Random, parts: list[Any]) -> bytes:
    style = rng.choice((None, None, True, False))
    options = {"default_flow_style": style, "sort_keys": False}
    with suppress(UnicodeEncodeError):  # libyaml cannot write lone surrogates
        return yaml.dump_all(parts, Dumper=_Dumper, **options).encode()
    return yaml.dump_all(parts, **options).encode()


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key (or index) in the data."""
    keys: Any = ()
    if isinstance(data, dict):
        keys = list(data)
    elif isinstance(data, list):
        keys = range(len(data))
    for key in keys:
        yield data, key
        yield from _places(data[key])


def _change(rng: random.Random, parts: list[Any], others: list[Any]) -> None:
    places = list(_places(parts))
    if not places:
        parts.append(copy.deepcopy(rng.choice(_HOSTILE)))
        return
    inside, key = rng.choice(places)
    other, its = rng.choice(list(_places(others)) or places)
    match rng.randrange(9):
        case 0 | 1 | 2:
            inside[key] = copy.deepcopy(rng.choice(_HOSTILE))
        case 3:
            del inside[key]
        case 4:
            inside[key] = copy.deepcopy(other[its])
        case 5 if isinstance(inside, dict):
            name = rng.choice((its, *(h for h in _HOSTILE if isinstance(h, str))))
            inside[name if isinstance(name, str) else key] = copy.deepcopy(inside[key])
        case 6 if isinstance(inside, list):
            inside += copy.deepcopy([inside[key]] * rng.choice((1, 2, 50)))
        case 7:
            inside[key] = rng.choice(([inside[key]], {"a": inside[key]}, str(inside[key])))
        case _ if isinstance(inside, dict) and isinstance(other, dict):
            inside[its] = copy.deepcopy(other[its])


def _bytes(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    end = min(at + rng.choice((0, 1, 1, 4, 40)), len(data))
    match rng.randrange(5):
        case 0:
            return data[:at] + rng.choice(_BYTES) + data[at:]
        case 1:
            return data[:at] + rng.choice(_BYTES) + data[end:]
        case 2:
            return data[:at] + data[end:]
        case 3:
            return data[:at] + data[at:end] * rng.choice((2, 3, 200)) + data[end:]
        case _:
            return data[:at] + rng.randbytes(rng.choice((1, 2))) + data[end:]


class Hang(Exception):  # noqa: N818
    """A file took too long."""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise Hang after this much processor time of the process."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Hang(f"more than {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def examine(path: Path, home: Home) -> bool:
    """Read, resolve, plan, explain and convert; return whether it could run. Raises errors
    that users must not see."""
    fine = [_survives(_explain, target, home) for target in _targets(path)]
    for target in _targets(path):
        _survives(_review, target, home)
    for to in ("jobset", "muster"):
        _survives(convert_file, path, None, to)
    return any(fine)


def _targets(path: Path) -> list[str]:
    try:
        return [str(target) for target in single_targets(str(path))]
    except MusterError as error:
        _check_message(error)
        return []


def _survives(action: Callable[..., object], *args: object) -> bool:
    try:
        action(*args)
    except MusterError as error:
        _check_message(error)
        return False
    return True


def _check_message(error: MusterError) -> None:
    text = str(error)
    assert text.strip(), f"an error without a message: {error!r}"
    assert all(c.isprintable() or c == "\n" for c in text), f"not escaped: {text!r}"
    for line in text.splitlines():
        assert len(line) < 5000, f"a message that fills the screen: {line[:200]!r}"


def _review(target: str, home: Home) -> None:
    for problem in review(context_of(home), parse_target(target, None, {}), Changes()):
        assert str(problem).strip()


def context_of(home: Home) -> Context:
    """That of a user of this process."""
    return Context(Backend(home), local_caller(), of_this_process())


def _explain(target: str, home: Home) -> None:
    spec = spec_for(target, None, {})
    code = None
    if spec.artifact is not None and spec.git is None:
        code = store_artifact(home, Path(spec.artifact), spec.entrypoint or "")
    job = JobRecord(
        id="j1",
        name=spec.name or "job",
        version=1,
        content_hash="",
        spec=to_builtins(spec),
        artifact_sha256=code.sha256 if code else None,
        artifact_name=code.file_name if code else None,
        description=spec.description,
        tags=dict(spec.tags),
        created_at=time.time(),
        updated_at=time.time(),
    )
    prepared = prepare_run(
        context_of(home), job, RunOverrides(), new_job=True, notes=notes_for(target)
    )
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        explain.describe(prepared.plan, limits_of(home, prepared.plan))


def folder_for(path: Path) -> tuple[Path, Home]:
    """The folder for mutated files, with the files that the valid ones refer to."""
    for example in sorted((ROOT / "examples").iterdir()):
        for file in example.glob("*") if example.is_dir() else ():
            if file.suffix in (".py", ".sh", ".ipynb") and not (path / file.name).exists():
                os.symlink(file, path / file.name)
    home = Home(path / "home")
    home.prepare()
    return path, home
