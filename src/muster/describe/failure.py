"""A failure in one line, for lists and logs."""

from __future__ import annotations

import re

from muster.lifecycle.failure_details import reason_of

#: As `failure_details.headline` writes it.
_HEADLINE = (
    r"(?P<node>node-\d+|replica \d+(?:, node \d+)?) \((?P<where>group [^()]+)\) (?:failed with )?"
    r"(?P<text>[^()]+?)(?: \((?P<signal>signal [^()]+)\))?"
)
#: The note of a failure that is final: the engine has refused to start any node.
_FINAL = "another start would fail until this is corrected"
_NOT_STARTED = "could not be started"
#: What has become of a JobSet of the user's.
_JOBSET = r"(?:its )?JobSet(?: \S+)? (?:has failed|was deleted|is left|may be left)\b[^\n]*"
#: What a run leaves where it was (`engines.remote.left`).
_LEFT = (
    r"(?:JobSet|job|container|network|any container) [^\n]*?"
    r" (?:is|are|may be) left (?:in|on) [^\n]*"
    r"|the node server of [^\n]+ left on [^\n]+, which cannot be reached"
)
#: The last lines of the details of some runs, which Muster writes: `Stopping.note`.
_NOTE = re.compile(
    r"\n(?:[\d,]+ of [\d,]+ replicas of group \S+ failed: [^\n]*"
    r"|(?:all [\d,]+ re(?:tries|starts)|the only re(?:try|start))\b[^\n]* (?:are|is) used up[^\n]*"
    r"|(?:failure\.)?max_restarts(?: of (?:group|rule) [^\n]+)? allows no restart"
    r"|group \S+ allows no retry \(total_retries\)|rule [^\n]+"
    rf"|{_FINAL}|{_JOBSET}|{_LEFT})(?:\n(?:{_JOBSET}|{_LEFT}))*\Z"
)


def one_line(details: str) -> str:
    """Shorten stored details to the headline and the line that names the error.

    Details are a headline or, where a program or the engine left a message, a headline with ":" and
    the message on the lines below.
    """
    headline, reason = _parts(details)
    if reason and _is_of_all(details, headline):
        return reason
    return f"{headline}: {reason}" if reason else headline


def cause_first(details: str) -> str:
    """The same with the error before the headline, for a place that shows only the start of it."""
    headline, reason = _parts(details)
    if not reason:
        return headline
    if _is_of_all(details, headline):
        return reason
    from muster.node.failure_text import LAST_LINE

    if reason.startswith(LAST_LINE):
        return one_line(details)
    return f"{reason} ({_inside(headline)})"


def _inside(headline: str) -> str:
    """A headline without parentheses, for use between some: `node-2, group workers, rank 2: exit
    code 1`."""
    found = re.fullmatch(_HEADLINE, headline)
    if found is None:
        return headline
    where, text, signal = found["where"], found["text"], found["signal"]
    return f"{found['node']}, {where}: {text}{f', {signal}' if signal else ''}"


def cause_lines(details: str, most: int) -> list[str]:
    """Details with the error first, up to `most` of the last lines that the program wrote, unless
    the error is all that it wrote, and Muster's note."""
    note = _NOTE.search(details)
    whole = details if note is None else details[: note.start()]
    written = whole.partition(":\n")[2].splitlines()
    if not written:
        return details.splitlines()
    from muster.node.failure_text import LAST_LINE

    shown = written if len(written) <= most else ["...", *written[-most:]]
    alone = len(written) == 1 or (len(written) == 2 and written[0] == LAST_LINE)
    notes = [] if note is None else note[0].strip().splitlines()
    return [cause_first(details), *([] if alone else shown), *notes]


def _is_of_all(details: str, headline: str) -> bool:
    """Whether all nodes have failed for one reason: that the headline names one says nothing."""
    note = _NOTE.search(details)
    return note is not None and _FINAL in note[0] and headline.endswith(_NOT_STARTED)


def _parts(details: str) -> tuple[str, str]:
    """The headline, and the line that names the error, if there is one."""
    headline, colon, message = _NOTE.sub("", details).partition(":\n")
    return (headline, reason_of(message)) if colon else (details.partition("\n")[0], "")
