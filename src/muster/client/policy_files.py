"""Files with the statements of policies: one a line, with comments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from muster.api.policies import PoliciesAPI
from muster.errors import InvalidInput, Problem
from muster.iam.policies.findings import Finding, Severity
from muster.iam.policies.parsing import parse_policy, parse_statements
from muster.spec.files import read_text, shown_name

#: What findings call statements that are arguments of a command.
_ARGUMENTS = "statement"


class PolicyText(Struct, frozen=True):
    """Statements as they were given."""

    source: str
    """What findings call them: the file's name."""
    statements: tuple[str, ...]
    """With the comments at the ends of their lines."""
    lines: tuple[int, ...]
    """The line of each."""
    findings: tuple[Finding, ...]
    """What is wrong with them, without knowing groups and compartments."""

    @property
    def stored(self) -> tuple[str, ...]:
        """The statements as a policy has them."""
        return tuple(one.strip() for one in self.statements)

    @property
    def has_errors(self) -> bool:
        """Whether they cannot be a policy."""
        return any(one.severity is Severity.ERROR for one in self.findings)

    def checked(self, api: PoliciesAPI, name: str, compartment: str | None) -> PolicyText:
        """With what else is wrong if they are the policy of this name, which is attached to a
        compartment. Raises as `PoliciesAPI.check_statements`."""
        if self.has_errors or not self.statements:
            return self
        found = api.check_statements(self.statements, compartment, name, self.source)
        return replace(self, findings=tuple(map(self._placed, found)))

    def _placed(self, finding: Finding) -> Finding:
        return replace(finding, line=self.lines[finding.line - 1])


def read_policy_file(path: Path) -> PolicyText:
    """The statements of a file; - is standard input. Raises InvalidInput if it cannot be read."""
    text, source = read_text(path), shown_name(path)
    lines = text.replace("\r\n", "\n").split("\n")
    numbered = [
        (number, line.rstrip())
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.strip().startswith("#")
    ]
    return PolicyText(
        source,
        tuple(line for _, line in numbered),
        tuple(number for number, _ in numbered),
        parse_policy(text, source).findings,
    )


def policy_of(file: str | None, statements: Sequence[str]) -> PolicyText:
    """The statements of a command: of a file, or its arguments. Raises InvalidInput."""
    if file is not None and statements:
        text = "statements are given both by --file and as arguments"
        raise InvalidInput(Problem("--file", text, "leave out one of them"))
    if file is not None:
        return read_policy_file(Path(file))
    found = parse_statements(statements, _ARGUMENTS).findings
    return PolicyText(
        _ARGUMENTS, tuple(statements), tuple(range(1, len(statements) + 1)), tuple(found)
    )
