"""Picks the lines that explain a failure from the end of a program's stderr.

In this order: an uncaught Python exception; the crash of another runtime (C++, Rust, Go, Java); a
traceback that was only logged; the last lines. What libraries log on every start or exit is left
out, unless nothing else remains.

A failed node is restarted only after its failure was explained, so this must be fast: a pattern is
compiled when it is first used, which most are not, and plain text is searched for as such.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Sequence, Tuple

TRACEBACK = "Traceback (most recent call last)"
#: Errors that follow from the loss of a peer, as the kernel, Python, gloo, NCCL and MPI word them.
_BROKEN = (
    r"(?i)connection (?:was )?(?:closed|reset|refused|aborted|lost)(?: by (?:remote )?peer)?"
    r"|broken ?pipe|Connection(?:Reset|Refused|Aborted)?Error|BrokenPipeError|EOFError"
    r"|remote process (?:exited|has terminated)|ncclRemoteError|ncclSystemError"
    r"|peer (?:has |was )?(?:closed|disconnected|lost)|lost (?:the )?connection"
    r"|no route to host|socket (?:closed|timeout)"
    r"|RemoteError|StoreTimeout|heartbeat"
)
#: Errors that follow from a signal to end.
_SIGNALED = r"(?i)SignalException|KeyboardInterrupt|SIGTERM"
_MAX_LINES = 20  # in all
_TAIL = 5  # lines, if nothing explains the failure
_MAX_MESSAGE = 8  # lines of an exception's message and of what follows it
_MAX_CRASH = 12  # lines
_MAX_WIDTH = 4096  # characters of a line
_ELLIPSIS = "  ..."
#: Precede lines that do not explain why a signal ended a process.
LAST_LINE = "last line of stderr:"
LAST_LINES = "last lines of stderr:"
#: Below a sentence that says why a container was ended: what follows does not.
LAST_LOG_LINES = "last lines of its log:"

#: Prefixes that launchers and libraries put before each line of a process: PyTorch's "[rank0]: ",
#: Open MPI's "[1,0]<stderr>:", Ray's "(task pid=12, ip=10.0.0.1) ", with or without colours.
_PREFIX = (
    r"(?:\x1b\[[\d;]*m)*"
    r"(?:\[[\w ,]+\](?:<std(?:err|out)>)?:? ?"
    r"|\([^()]{0,80}(?:\(\S{0,80}\))?[^()]{0,80}pid=\d+[^()]{0,80}\))"
    r"(?:\x1b\[[\d;]*m)* ?"
)
#: The header ends the line, except for a frame around it: a message may contain it, too.
_HEAD = r"(.*?)" + re.escape(TRACEBACK) + r":?[\s─━╮┓|+-]*$"
#: PyTorch: precedes the traceback of a worker in the message of an exception.
_ORIGINAL = "Original "
_GROUP = r"\s*\+ Exception Group " + re.escape(TRACEBACK)
_IN_GROUP = r"\s+[|+]"
_GROUP_END = r"\s+\+-{30,}$"
_GROUP_MEMBER = r"\s+\| (\S.*)"
#: A frame, a line of source, its marks (in the first column, too), the border of a frame.
_FRAME = r"\s|[~^]+\s*$|[│╭╰┃┏┗|]"
_EXCEPTION = r"(?:[^\W\d]\w*\.)*[^\W\d]\w*(?:\([\w.]+\))?(?:: .*|:$)|(?:\w+\.)*[A-Z]\w*$"
_CHAINED = r"During handling of the above exception|The above exception was the direct cause"
_ABOVE = "above exception"
_DIRECT = "The above exception was the direct cause"
#: Lines before a traceback that did not end the process.
_ASIDE = (
    r"Exception (?:ignored |in thread [^\"]|in callback )|Error in (?:atexit|sys\.excepthook)"
    r"|(?:Task|Future) exception was never retrieved|Process \S+:$"
)
#: A logged error, as logging, absl, glog, loguru and others write it. A traceback may follow.
_RECORD = (
    r"(?:.{0,120}?[\s|\[(:,-])??(?:ERROR|CRITICAL|FATAL|EXCEPTION)(?![\w.])"
    r"|.{0,40}\[(?:error|critical|exception) *\]|\[?[EF]\d{4} \d\d:\d\d:"
)
_WARNING = (
    r"(?:.{0,120}?[\s|\[(:,-])??WARN(?:ING)?(?![\w.])|.{0,40}\[warning *\]|\[?W\d{4} \d\d:\d\d:"
)
_CRASHED = (
    r"terminate called after|libc\+\+abi: terminating|thread '.*' (?:\(\d+\) )?panicked at"
    r"|panic: |fatal error: |Exception in thread \"|F\d{4} \d\d:|\d{4}-\d\d-\d\d [\d:.]+: F "
    r"|(?:free|malloc|munmap_chunk|corrupted|double free|realloc|malloc_consolidate)\b.*\b"
    r"(?:invalid|corrupt|size|unsorted)|.*: Assertion `.*' failed\."
)
_FAULT = r"Fatal Python error: "
_STACK = r"\s+at |\s+\.\.\. \d+ |\s+\d+: |\s*frame #\d+|\s+@ |stack backtrace:|goroutine \d+"
_LOGGED = (
    r"[IW]\d{4} \d\d:\d\d:|\d{4}-\d\d-\d\d [\d:.]+: [IW] |\[[IW]\d{4} \d\d:\d\d:"
    r"|.*(?:failed call to cuInit|Unable to register cu\w+ factory|Could not find cuda drivers)"
    r"|WARNING: All log messages before absl::InitializeLog"
    r"|To enable the following instructions:|-{20}$|For simplicity, JAX has removed its internal"
    r"|\S+:\d+: \w*Warning: |  warnings\.warn\("
)


#: What torchrun logs, and how its own traceback ends after a rank has failed.
_TORCHRUN_LOG = r"[IWE]\d{4} \d\d:\d\d:\S+ \d+ torch/distributed/"
_TORCHRUN = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
#: The first rank that failed, in the table below it.
_TORCHRUN_RANK = r"\s+rank +: (.+)"
_TORCHRUN_CODE = r"\s+exitcode +: (.+)"
_TORCHRUN_RECORDED = r"\s+traceback +: " + re.escape(TRACEBACK)
_TORCHRUN_SIGNAL = r"\s+traceback +: (Signal .+)"


class Explanation(NamedTuple):
    """The lines that explain a failure."""

    #: The lines to show.
    lines: List[str]
    #: The line that names the error, then those of the errors that caused it.
    reasons: List[str]
    #: Nothing in the text explains the failure: these are its last lines.
    unexplained: bool = False


def explain(text: str, killed: bool = False) -> Explanation:
    """Explain a failure by `text`, the end of the output of a process.

    killed: a signal ended the process, so exceptions that it logged did not.
    """
    lines = [_cut(line.rstrip()) for line in text.splitlines() if line.strip()]
    if killed:
        lines = _without_logged(lines)
    return _of_torchrun(lines) or _explain(lines)


def _explain(lines: List[str]) -> Explanation:
    starts = [at for at, line in enumerate(lines) if _starts_traceback(line)]
    firsts = {at: _first_of_chain(lines, at) for at in starts}
    aside = [at for at in starts if _follows(lines, firsts[at], _ASIDE)]
    handled = [at for at in starts if _follows(lines, firsts[at], _RECORD) and _after(lines, at)]
    uncaught = [at for at in starts if at not in aside and at not in handled]
    if uncaught:
        return _python(lines, _first_rank(lines, uncaught))
    crash = _crash(lines)
    if crash is not None:
        return crash
    if aside:
        return _python(lines, aside[-1])
    kept = _without_logs(lines)[-_TAIL:] or lines[-_TAIL:]
    if handled:
        logged = [lines[firsts[handled[-1]] - 1], *_python(lines, handled[-1]).lines]
        return Explanation([*logged, *(line for line in kept if line not in logged)], kept[-1:])
    return Explanation(kept, kept[-1:], unexplained=True)


def _of_torchrun(lines: Sequence[str]) -> "Explanation | None":
    """torchrun's own traceback, after those of its ranks, explains nothing: what the ranks wrote
    before it, or else which rank failed first. None if torchrun has not raised it."""
    at = _last(lines, _TORCHRUN)
    starts = range(-1 if at is None else at - 1, -1, -1)
    start = next((number for number in starts if _starts_traceback(lines[number])), None)
    if start is None:
        return None
    table = lines[at:]
    written = [line for line in lines[:start] if not re.match(_TORCHRUN_LOG, line)]
    found = _explain(written) if written else None
    if found is not None and not found.unexplained:
        return found
    recorded = _last(table, _TORCHRUN_RECORDED)
    if recorded is not None:  # by `record`
        indented = [line[2:] for line in table[recorded + 1 :] if line.startswith("  ")]
        return _python([f"{TRACEBACK}:", *indented], 0)
    ended = _value(table, _TORCHRUN_SIGNAL)
    if found is not None and not ended:
        return found
    ended = ended or f"exit code {_value(table, _TORCHRUN_CODE)}"
    text = f"torchrun: rank {_value(table, _TORCHRUN_RANK)}: {ended.strip()}"
    return Explanation([*(found.lines if found else ()), text], [text], unexplained=True)


def _value(table: Sequence[str], pattern: str) -> str:
    """The last row of a table that has this name: the first failure is its last entry."""
    at = _last(table, pattern)
    found = None if at is None else re.match(pattern, table[at])
    return found.group(1) if found else ""


def looks_like_consequence(text: str) -> bool:
    """Whether the failure looks like a consequence of the failure of another process."""
    return _says(text, _BROKEN) or _says(text, _SIGNALED)


def names_broken_connection(text: str) -> bool:
    """Whether the failure comes from the loss of a peer."""
    return _says(text, _BROKEN)


def names_signal(text: str) -> bool:
    """Whether the failure comes from a signal to end."""
    return _says(text, _SIGNALED)


def _says(text: str, pattern: str) -> bool:
    return any(re.search(pattern, reason) for reason in explain(text).reasons)


#: The former name, which supervisors of the version before import when a node fails. They may
#: still drive their runs when an upgrade has replaced the installed files.
is_echo = looks_like_consequence


def _cut(line: str) -> str:
    half = _MAX_WIDTH // 2
    return line if len(line) <= _MAX_WIDTH else f"{line[:half]} ... {line[-half:]}"


def _split(line: str) -> Tuple[str, str]:
    """The prefix that names the process, and the rest."""
    if line[:1] not in "[(\x1b":
        return "", line
    found = re.match(_PREFIX, line)
    return (found.group(), line[found.end() :]) if found else ("", line)


def _first_rank(lines: Sequence[str], starts: Sequence[int]) -> int:
    """Which of several tracebacks caused the failure: the last one. Of several ranks that write to
    one file, that of the rank whose last traceback came first: the others follow from it."""
    last = {_split(lines[at])[0]: at for at in starts}
    ranks = [at for source, at in last.items() if source.startswith("[")]
    own = [at for source, at in last.items() if not source]
    return min(ranks) if ranks else max(own or starts)


def _starts_traceback(line: str) -> bool:
    if TRACEBACK not in line:
        return False
    found = re.match(_HEAD, line)
    if found is None or found.group(1).endswith(_ORIGINAL):
        return False
    return re.match(_GROUP, line) is not None or not re.match(_IN_GROUP, line)


def _first_of_chain(lines: Sequence[str], start: int) -> int:
    """The line where the first traceback of a chain of exceptions starts."""
    while start and _joins(lines[start - 1]):
        earlier = (at for at in range(start - 2, -1, -1) if _starts_traceback(lines[at]))
        first = next(earlier, None)
        if first is None:
            break
        start = first
    return start


def _follows(lines: Sequence[str], start: int, pattern: str) -> bool:
    """Whether the line before matches a pattern."""
    return start > 0 and _is(lines[start - 1], pattern)


def _is(line: str, pattern: str) -> bool:
    # a level in brackets looks like the rank that wrote the line
    return bool(re.match(pattern, line) or re.match(pattern, _split(line)[1]))


def _end_of(lines: Sequence[str], start: int) -> int:
    """The line after a traceback: after its exception and the indented lines of the message."""
    if re.match(_GROUP, _split(lines[start])[1]):
        return start + len(_group_block(lines[start:]))
    end = next((at for at in range(start + 1, len(lines)) if not _in_frames(lines[at])), len(lines))
    rest = range(min(end + 1, len(lines)), len(lines))
    return next((at for at in rest if not _split(lines[at])[1][:1].isspace()), len(lines))


def _in_frames(line: str) -> bool:
    return re.match(_FRAME, _split(line)[1]) is not None


def _after(lines: Sequence[str], start: int) -> bool:
    """Whether the program continued after a traceback, as it logged another error."""
    rest = _without_logs(lines[_end_of(lines, start) :])
    return any(_is(line, _RECORD) for line in rest)


def _without_logged(lines: Sequence[str]) -> List[str]:
    """Without tracebacks that belong to a log record, and without that record."""
    logged: set[int] = set()
    for start in [at for at, line in enumerate(lines) if _starts_traceback(line)]:
        first = _first_of_chain(lines, start)
        if _follows(lines, first, _RECORD) or _follows(lines, first, _WARNING):
            logged.update(range(first - 1, _end_of(lines, start)))
    return [line for at, line in enumerate(lines) if at not in logged]


def _python(lines: Sequence[str], start: int) -> Explanation:
    """The traceback that starts there, preceded by the errors that it was raised from."""
    source, head = _split(lines[start])
    before, reasons = _raised_from(lines[:start])
    limit = max(_MAX_LINES - len(before), 2)
    rest = lines[start:]
    found = _group(rest, limit) if re.match(_GROUP, head) else _traceback(rest, source)
    if len(found.lines) > limit:
        message = found.lines[-(limit - 2) :]
        found = Explanation([found.lines[0], source + _ELLIPSIS, *message], found.reasons)
    return Explanation([*before, *found.lines], [*found.reasons, *reasons])


def _traceback(lines: Sequence[str], source: str) -> Explanation:
    """lines: from its header on, mixed with those of other processes."""
    own = [line for line in lines if _split(line)[0].rstrip() == source.rstrip()]
    own = [line for number, line in enumerate(own) if not number or not _starts_traceback(line)]
    bare = [_split(line)[1] for line in own]
    outside = [at for at in range(1, len(own)) if not re.match(_FRAME, bare[at])]
    at = next((at for at in outside if re.match(_EXCEPTION, bare[at])), (outside or [len(own)])[0])
    rest = _clip(_without_logs(own[at:]), source)
    frames = own[:at]
    limit = _MAX_LINES - len(rest)
    if len(frames) > limit:
        frames = [frames[0], source + _ELLIPSIS, *frames[len(frames) - limit + 2 :]]
    reasons = [bare[at]] if at < len(own) else []
    original = next((n for n in range(at, len(own)) if _is_original(bare[n])), None)
    if original is not None:
        reasons += _traceback(own[original:], source).reasons
    return Explanation([*frames, *rest], reasons)


def _is_original(line: str) -> bool:
    return line.startswith(_ORIGINAL + TRACEBACK)


def _clip(message: List[str], source: str) -> List[str]:
    """The first and the last lines of a long message."""
    if len(message) <= _MAX_MESSAGE:
        return message
    half = _MAX_MESSAGE // 2
    return [*message[:half], source + _ELLIPSIS, *message[half + 1 - _MAX_MESSAGE :]]


def _group(lines: Sequence[str], limit: int) -> Explanation:
    """An exception group: its own line and those of its members, with the frame of each."""
    block = list(_group_block(lines))
    named = [found.group(1) for line in block if (found := re.match(_GROUP_MEMBER, line))]
    reasons = [text for text in named if TRACEBACK not in text and re.match(_EXCEPTION, text)]
    if len(block) > limit:
        block = _outline(block)[:limit]
    # the member that failed first comes first
    return Explanation(block, reasons[:2])


def _group_block(lines: Sequence[str]) -> Sequence[str]:
    """The lines up to its lower border. Only the first line of a message has a margin."""
    border = _last(lines, _GROUP_END)
    if border is not None:
        return lines[: border + 1]
    margin = range(1, len(lines))
    return lines[: next((at for at in margin if not re.match(_IN_GROUP, lines[at])), len(lines))]


def _outline(block: Sequence[str]) -> List[str]:
    """An exception group with only the last frame of each exception in it."""
    kept = [block[0]]
    frame = ""
    for line in block[1:]:
        bare = line.lstrip(" |")
        if line.lstrip().startswith("|   "):
            frame = line if bare.startswith("File ") else frame
        elif TRACEBACK not in bare:
            kept += [frame, line] if frame else [line]
            frame = ""
    return kept


def _raised_from(lines: Sequence[str]) -> Tuple[List[str], List[str]]:
    """The exceptions that an exception was raised from, or while handling: the lines to show, and
    the lines of those that were its direct cause."""
    shown: List[str] = []
    reasons: List[str] = []
    direct = True
    end = len(lines)
    while end > 0:
        joint = next((at for at in range(end - 1, max(end - 5, -1), -1) if _joins(lines[at])), None)
        if joint is None:
            break
        earlier = lines[:joint]
        start = next((at for at in range(joint - 1, -1, -1) if _starts_traceback(lines[at])), None)
        if start is None:
            reason = earlier[-1:]
            end = joint - 1
        else:
            reason = _traceback(lines[start:joint], _split(lines[start])[0]).reasons
            end = start
        shown = [*reason, lines[joint], *shown]
        direct = direct and _DIRECT in lines[joint]
        if direct:
            reasons += reason
    return shown[-_TAIL - 1 :], reasons


def _joins(line: str) -> bool:
    return _ABOVE in line and re.match(_CHAINED, _split(line)[1]) is not None


def _crash(lines: Sequence[str]) -> "Explanation | None":
    """The crash message of a runtime other than Python's."""
    bare = [_split(line)[1] for line in lines]
    start = _last(bare, _CRASHED)
    if start is None:
        start = _last(bare, _FAULT)
    if start is None:
        return None
    after = [line for at, line in enumerate(lines) if at > start and not re.match(_STACK, bare[at])]
    block = [lines[start], *_without_logs(after)][:_MAX_CRASH]
    return Explanation(block, [" ".join(_split(line)[1].strip() for line in block[:2])])


def _last(lines: Sequence[str], pattern: str) -> "int | None":
    numbers = range(len(lines) - 1, -1, -1)
    return next((at for at in numbers if re.match(pattern, lines[at])), None)


def _without_logs(lines: Sequence[str]) -> List[str]:
    kept: List[str] = []
    skipping = False
    for line in lines:
        bare = _split(line)[1]
        if re.match(_LOGGED, bare) or re.match(_LOGGED, line):
            skipping = "Warning: " in bare
        elif skipping and bare.startswith(" "):
            skipping = False  # the line of source that a warning shows
        elif re.match(_ASIDE, bare):
            break  # the rest belongs to another error
        else:
            skipping = False
            kept.append(line)
    return kept
