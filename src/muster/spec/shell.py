"""Commands given as text: whether a shell has to run them, and how. Pure.

Text without shell syntax is split into words and started directly; `sh -c` runs all other text. The
grammar is that of a POSIX shell, as far as it is needed to tell the two apart and to find the last
simple command of a script.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

#: Programs that read the language of a POSIX shell.
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
#: Substitutions without quotes and brackets in them. Others are opaque: they are not parsed.
_SUBSTITUTION = r"\$\(\([^()'\"`]*\)\)|\$\([^()'\"`]*\)|\$\{[^{}'\"`]*\}|`[^`'\"]*`"
_EXPANSION = rf"{_SUBSTITUTION}|\$(?:\w+|[@*#?$!-])"
#: The placeholder of an array's parameter, which is filled before the command starts.
_OF_PARAMETER = r"\$\{param\.[\w.-]+\}"
_PART = re.compile(
    rf"""
      (?P<blank>[ \t\r]+)
    | (?P<comment>(?<![^\s;&|()])\#[^\n]*)
    | (?P<control>&&|\|\||;;|&(?!>)|[;|()\n])
    | (?P<redirection><<|>>|[<>]&|&>|[<>])
    | (?P<parameter>{_OF_PARAMETER})
    | (?P<expansion>{_EXPANSION})
    | (?P<opaque>\$[({{]|`)
    | (?P<quoted>'[^']*')
    | (?P<double>"(?:\\.|[^"\\])*")
    | (?P<pattern>[*?]|\[[^][\s'"]+\])
    | (?P<plain>\\.|[^'"\\])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
#: In double quotes: what a shell expands, and characters that only a shell reads as escaped.
_EXPANDED = re.compile(rf"{_EXPANSION}|\$[({{]|`|\\[$`]", re.ASCII)
_HOME = re.compile(r"~[\w.-]*(?:[/\s;&|()<>]|$)", re.ASCII)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_PLACEHOLDER = re.compile(r"\$\{(?!param\.)\w+\.[\w.]+\}", re.ASCII)
#: The use of an argument, of all of them, or of their number; or an escaped character.
_PARAMETER = re.compile(r"\\.|(\$(?:[@*#1-9]|\{(?:[@*1-9]|#[@*}1-9])))", re.DOTALL)
#: First words of compound commands.
_RESERVED = re.compile(
    r"!|\{|\}|if|then|elif|else|fi|for|while|until|do|done|case|esac|function|select"
)
#: Commands that are not programs, except `exec`.
_BUILTIN = re.compile(
    r"\.|:|alias|bg|break|cd|command|continue|eval|exit|export|fg|getopts|hash|jobs|local|read"
    r"|readonly|return|set|shift|source|times|trap|type|ulimit|umask|unalias|unset|wait"
)
#: Programs that a shell has built in, where they differ in details.
_ALSO_BUILTIN = re.compile(r"\[|echo|false|kill|printf|pwd|test|true")
#: What begins or ends a part of a script that is quoted in some way. In comments, and after `<<<`,
#: nothing does.
_QUOTING = re.compile(
    r"""\\.|['"`()\n]|\$\(|(?<![^\s;&|()])\#[^\n]*|<<<
    |<<-?[ \t]*(?P<end>(?:\\.|'[^'\n]*'|"[^"\n]*"|[^\s;&|<>()'"\\])+)""",
    re.VERBOSE | re.DOTALL,
)
_OPENING = {'"': '"', "`": "`", ")": "$("}
#: After a signal, the shell waits for the program that it runs and ends with its exit code. By
#: itself it would end at once, and the node with it, before the program has saved its work.
_WAIT_FOR_PROGRAM = "trap 'exit $?' TERM; "


class _Token(Struct):
    """A word, an operator or a comment, and its place in the text."""

    kind: Literal["word", "control", "redirection", "comment"]
    start: int
    end: int
    #: Whether only a shell understands it.
    shell: bool
    #: Whether it has a substitution that is not parsed.
    opaque: bool = False
    #: Whether it uses the script's arguments.
    parameter: bool = False


class _Command(Struct):
    """One simple command of a script, and its place in the text."""

    #: Where its program's name is; None if it only assigns variables.
    program: int | None
    name: str
    assigns: bool
    end: int
    #: The operator before it; "" for the first command.
    after: str


def needs_shell(text: str) -> bool:
    """Whether a command has syntax that only a shell understands. Raises ValueError if its
    end is missing."""
    tokens = list(_tokens(text))
    if any(token.shell for token in tokens):
        return True
    commands = _commands(text, tokens)
    return any(one.assigns or _is_of_shell(one.name) for one in commands)


def words_or_script(text: str) -> list[str]:
    """The words to start for a command: its own, or those of a shell that runs it.

    Where a program ends the script, the shell becomes that program, so that signals and exit codes
    are the program's; words that are added are its arguments, unless the script uses them itself.
    Raises ValueError with what is wrong if its end is missing.
    """
    joined = re.sub(r"('[^']*')|\\\n", lambda match: match[1] or "", text).lstrip()
    joined = re.sub(r"(?<!\\)((?:\\\\)*(?:\\\s)?)\s+\Z", r"\1", joined)  # an escaped space stays
    return ["sh", "-c", _script(joined), "sh"] if needs_shell(joined) else shlex.split(joined)


def script_index(command: Sequence[str]) -> int | None:
    """The index of the text that a shell runs: `sh -c TEXT`, also with other options. None if the
    command is not a shell, or runs no text."""
    if not command or command[0].rpartition("/")[2] not in SHELLS:
        return None
    at, runs_text = 1, False
    while at < len(command) and command[at][:1] in ("-", "+"):
        word = command[at]
        at += 1
        if word in ("-", "--"):
            break
        if not word.startswith("--"):
            runs_text |= word[0] == "-" and "c" in word
            at += word[-1] in "oO"  # -o pipefail
    return at if runs_text and at < len(command) else None


def literal_parts(script: str) -> Iterator[tuple[str, str]]:
    """The parts of a script in which a shell expands nothing, each with what it is in, for
    messages: single quotes, or a here-document whose end is quoted."""
    inside: list[str] = []  # double quotes and substitutions that are open, the innermost last
    documents: list[re.Match[str]] = []  # those that start after this line
    at = 0
    while (mark := _QUOTING.search(script, at)) is not None:
        piece, at = mark[0], mark.end()
        if inside[-1:] == [_OPENING.get(piece)]:
            inside.pop()
        elif piece in ('"', "`", "$("):
            inside.append(piece)
        elif inside[-1:] == ['"']:
            at = mark.start() + 1  # all others are plain text there
        elif piece == "(":
            inside.append("$(")
        elif piece == "'":
            end = script.find("'", at)
            if end >= 0:
                yield script[at:end], "single quotes"
                at = end + 1
        elif mark["end"]:
            documents.append(mark)
        elif piece == "\n":
            for document in documents:
                text, at = _document(script, at, document)
                if text and re.search(r"[\\'\"]", document["end"]):
                    yield text, "a here-document whose end is quoted"
            documents.clear()


def _document(script: str, start: int, mark: re.Match[str]) -> tuple[str, int]:
    """The text of a here-document that starts at an index, and the index after it; no text if the
    document does not end, so that `<<` is something else. mark: its operator and end."""
    end = re.sub(r"[\\'\"]", "", mark["end"])
    tabs = "\t*" if mark[0].startswith("<<-") else ""
    found = re.compile(rf"^{tabs}{re.escape(end)}$", re.MULTILINE).search(script, start)
    return ("", start) if found is None else (script[start : found.start()], found.end())


def is_script(words: Sequence[str]) -> bool:
    """Whether the words are those of `words_or_script` for text that a shell runs."""
    return len(words) == 4 and (*words[:2], words[3]) == ("sh", "-c", "sh")


def program_of_script(words: Sequence[str]) -> list[str]:
    """The words of the only program of a script as they were written; empty for other scripts."""
    if not is_script(words) or not words[2].startswith("exec "):
        return []
    return shlex.split(words[2].removeprefix("exec ").removesuffix(' "$@"'))


def ignores_arguments(words: Sequence[str]) -> bool:
    """Whether words that are added to a script of `words_or_script` are not used by it."""
    if not is_script(words):
        return False
    try:
        tokens = list(_tokens(words[2]))
    except ValueError:  # written as a list: the shell will name the error
        return False
    # a file that the shell itself reads gets the arguments of the script
    reads = any(command.name in (".", "source") for command in _commands(words[2], tokens))
    return not reads and not any(token.parameter for token in tokens)


def placeholder_in(text: str) -> str:
    """A placeholder with a dot (`${run.id}`), which is an error in a shell; "" if there is none."""
    found = _PLACEHOLDER.search(text)
    return found.group() if found else ""


def _script(text: str) -> str:
    tokens = list(_tokens(text))
    commands = _commands(text, tokens)
    if any(command.name in ("trap", "alias") for command in commands):
        return text  # what it sets up has to stay, and so does the shell
    if not commands or any(_is_compound(text, token) for token in tokens):
        return _WAIT_FOR_PROGRAM + text
    if any(_RESERVED.fullmatch(command.name) for command in commands):
        return _WAIT_FOR_PROGRAM + text
    last, script = commands[-1], text
    # the programs of a pipeline are equals: arguments are for none of them
    ends_with_program = last.program is not None and last.after != "|"
    if ends_with_program and not _BUILTIN.fullmatch(last.name):
        if not any(token.parameter for token in tokens):
            script = f'{text[: last.end]} "$@"{text[last.end :]}'
        if last.name != "exec" and not _ALSO_BUILTIN.fullmatch(last.name):
            script = f"{script[: last.program]}exec {script[last.program :]}"
    return script if len(commands) == 1 else _WAIT_FOR_PROGRAM + script


def _is_of_shell(name: str) -> bool:
    """Whether a command's first word means something only to a shell."""
    return name == "exec" or bool(_BUILTIN.fullmatch(name) or _RESERVED.fullmatch(name))


def _is_compound(text: str, token: _Token) -> bool:
    """Whether the commands cannot be found by looking for operators only."""
    operators = {"control": ("&", "(", ")", ";;"), "redirection": ("<<",)}
    return token.opaque or text[token.start : token.end] in operators.get(token.kind, ())


def _tokens(text: str) -> Iterator[_Token]:
    at, word = 0, None
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            end = "ends with a backslash" if text[at] == "\\" else "has a quote that is not closed"
            raise ValueError(end)
        kind, piece, start, at = part.lastgroup, part.group(), at, part.end()
        match kind:
            case "blank" | "comment" | "control" | "redirection":
                if word is not None:
                    yield word
                    word = None
                if kind != "blank":
                    yield _Token(kind, start, at, shell=True)
            case _:
                word = word or _Token("word", start, at, _HOME.match(text, start) is not None)
                word.end = at
                found = _expanded(piece) if kind == "double" else []
                word.shell |= kind in ("expansion", "opaque", "pattern") or bool(found)
                word.opaque |= kind == "opaque" or any(one in ("$(", "${", "`") for one in found)
                if kind in ("expansion", "double"):
                    word.parameter |= any(_PARAMETER.findall(piece))
                elif kind == "opaque" and (used := _PARAMETER.match(text, start)):
                    word.parameter |= used[1] is not None
    if word is not None:
        yield word


def _expanded(quoted: str) -> list[str]:
    """What a shell expands in a text in double quotes."""
    found = _EXPANDED.findall(quoted)
    return [one for one in found if not re.fullmatch(_OF_PARAMETER, one, re.ASCII)]


def _commands(text: str, tokens: Sequence[_Token]) -> list[_Command]:
    """The simple commands of a script that has no compound ones."""
    commands: list[_Command] = []
    current, after, is_target = None, "", False
    for token in tokens:
        piece = text[token.start : token.end]
        if token.kind == "control":
            if current is not None or piece != "\n":  # a command continues after `&&` on a new line
                after = piece
            current = None
        elif token.kind != "comment":
            if current is None:
                current = _Command(None, "", False, token.end, after)
                commands.append(current)
            current.end = token.end
            if token.kind == "word" and not is_target and current.program is None:
                if _ASSIGNMENT.match(piece):
                    current.assigns = True
                else:
                    current.program, current.name = token.start, piece
            is_target = token.kind == "redirection"
    return commands
