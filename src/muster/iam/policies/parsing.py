"""Reads statements of policies and rules of dynamic groups. Pure.

    Allow SUBJECT to VERB RESOURCE in LOCATION where CONDITION

The grammar is read token by token (`reader`): one pass finds everything that is wrong. What is
read is then checked against `vocabulary`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lark import Token, Tree
from msgspec import Struct

from muster.errors import InvalidInput
from muster.iam.policies.conditions import TIME_OF_DAY, TIMESTAMP, normal_time
from muster.iam.policies.corrections.order import correct
from muster.iam.policies.findings import Finding, Severity, errors_of
from muster.iam.policies.known_values import unknown_value
from muster.iam.policies.reading import Reading
from muster.iam.policies.statements import (
    MOST_STATEMENTS,
    All,
    Any,
    Comparison,
    Condition,
    Location,
    MatchingRule,
    Operator,
    Statement,
    Subject,
    SubjectKind,
    Value,
    ValueKind,
)
from muster.iam.policies.token_reader import read
from muster.iam.policies.vocabulary import (
    FAMILIES,
    OTHER_PERMISSIONS,
    OTHER_TYPES,
    RULE_VARIABLES,
    TYPES,
    VERBS,
    Verb,
    canonical,
    exists,
    variables,
)
from muster.permissions import Permission
from muster.spec.wording import alternatives, close_to, short

_LONGEST_POLICY = 500_000
#: Lines with errors after which no more are read.
_MOST_WRONG = 100
#: Words that people write for verbs.
_MEANT_VERBS = {
    **dict.fromkeys(("list", "view", "see"), Verb.INSPECT),
    **dict.fromkeys(("get", "pull", "download"), Verb.READ),
    **dict.fromkeys(("write", "update", "push", "run", "execute", "user"), Verb.USE),
    **dict.fromkeys(("create", "delete", "admin", "administer", "all"), Verb.MANAGE),
}
_PERMISSIONS = frozenset(Permission) | OTHER_PERMISSIONS
_RESOURCES = (*TYPES, *FAMILIES, *sorted(OTHER_TYPES))
_NOTHING_HERE = "Muster does not have it, so that the statement has no effect"


class ParsedPolicy(Struct, frozen=True):
    """A policy that was read."""

    name: str
    statements: tuple[Statement, ...]
    """None if there is an error."""
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings because of which there are no statements."""
        return errors_of(self.findings)


def parse_statement(text: str) -> Statement:
    """Read one statement. Raises InvalidInput with everything that is wrong with it."""
    return _only(parse_statements([text], ""))


def parse_policy(text: str, name: str) -> ParsedPolicy:
    """Read a policy: one statement a line; a line or its end may be a comment that begins with #.
    name: of the file or the policy, for findings."""
    if len(text) > _LONGEST_POLICY:
        return ParsedPolicy(name, (), (_too_long(name, len(text)),))
    lines = enumerate(text.replace("\r\n", "\n").split("\n"), 1)
    wanted = ((at, line) for at, line in lines if line.strip() and line.strip()[0] != "#")
    return _parsed(wanted, name)


def parse_statements(statements: Sequence[str], name: str) -> ParsedPolicy:
    """Read the statements of a policy, as OCI's API has them; a finding's line is the number of the
    statement. name: of the policy."""
    total = sum(map(len, statements))
    if total > _LONGEST_POLICY:
        return ParsedPolicy(name, (), (_too_long(name, total),))
    return _parsed(enumerate(statements, 1), name)


def parse_rule(text: str) -> MatchingRule:
    """Read the rule of a dynamic group: conditions, one a line; who matches one is in the group.
    Raises InvalidInput with everything that is wrong with it."""
    conditions, findings = _rule(text)
    if errors_of(findings):
        raise InvalidInput(*(one.problem for one in errors_of(findings)))
    if not conditions:
        raise InvalidInput("the rule is empty; write one like resource.type = 'datasciencejobrun'")
    whole = conditions[0] if len(conditions) == 1 else Any(tuple(conditions))
    return MatchingRule(whole, text)


def rule_findings(text: str) -> tuple[Finding, ...]:
    """What is wrong with the rule of a dynamic group, also if it can be read."""
    return tuple(_rule(text)[1])


def _rule(text: str) -> tuple[list[Condition], list[Finding]]:
    """The conditions of a rule, and what is wrong with it."""
    conditions: list[Condition] = []
    findings: list[Finding] = []
    lines = text.replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.strip()[0] == "#":
            continue
        reading = _checked(line, "rule", _Checks.rule)
        findings += reading.findings("", number)
        if isinstance(reading.result, (Comparison, All, Any)):
            conditions.append(reading.result)
    return conditions, findings


def _only(policy: ParsedPolicy) -> Statement:
    if policy.errors:
        raise InvalidInput(*(one.problem for one in policy.errors))
    return policy.statements[0]


def _too_long(name: str, size: int) -> Finding:
    sentence = f"the policy has {size:,} characters, {_LONGEST_POLICY:,} are allowed"
    return Finding(Severity.ERROR, name, 1, 1, 1, sentence, "", "make it shorter", False)


def _parsed(lines: Iterable[tuple[int, str]], name: str) -> ParsedPolicy:
    statements: list[Statement] = []
    findings: list[Finding] = []
    wrong = 0
    for count, (number, line) in enumerate(lines, 1):
        if count == 1 and line.strip()[:1] in ("{", "["):
            hint = "write one statement a line, without brackets and quotes"
            one = Finding(Severity.ERROR, name, number, 1, 1, "this is JSON", line, hint, False)
            return ParsedPolicy(name, (), (one,))
        if count == MOST_STATEMENTS + 1:
            sentence = f"more than {MOST_STATEMENTS} statements, which one policy may have"
            hint = "write several policies"
            one = Finding(Severity.ERROR, name, number, 1, 1, sentence, line, hint, False)
            return ParsedPolicy(name, (), (*findings, one))
        reading = _checked(line, "statement", _Checks.statement)
        findings += reading.findings(name, number)
        wrong += reading.is_wrong
        if wrong == _MOST_WRONG:
            sentence = f"{wrong} lines have errors; those after this one were not read"
            findings.append(Finding(Severity.ERROR, name, number, 1, 1, sentence, line))
            break
        if isinstance(reading.result, Statement):
            statements.append(reading.result)
    if errors_of(findings):
        statements = []
    return ParsedPolicy(name, tuple(statements), tuple(findings))


def _checked(line: str, start: str, check: Callable[[_Checks, Tree[Token]], object]) -> Reading:
    """What a line says, with all that is wrong; and how it should be, if that is clear."""
    reading = _once(line, start, check)
    if reading.edits:
        corrected = reading.corrected()
        again = _once(corrected, start, check)
        if not again.is_wrong:
            reading.correction = corrected
    return reading


def _once(line: str, start: str, check: Callable[[_Checks, Tree[Token]], object]) -> Reading:
    reading = read(line, start, correct)
    if reading.tree is not None:
        result = check(_Checks(reading), reading.tree)
        if not reading.is_wrong:
            reading.result = result
    return reading


class _Checks:
    """Makes a value of what was read, and notes which words are none of the vocabulary."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._note = reading.note
        self._of_other_service = False

    def statement(self, tree: Tree[Token]) -> Statement:
        """The statement."""
        parts = {str(one.data): one for one in _trees(tree)}
        if "verb" in parts:
            self._of_other_service = _tokens(parts["verb"])[-1].lower() in OTHER_TYPES
        condition = None
        for name in ("several", "one", "between", "among", "not_among"):
            if name in parts:
                condition = self._condition(parts[name])
        verb, resource = None, ""
        permissions: tuple[str, ...] = ()
        if "verb" in parts:
            verb, resource = self._action(*_tokens(parts["verb"]))
        else:
            permissions = tuple(map(self._permission, _tokens(parts["permissions"])))
        return Statement(
            self._subject(parts["subject"]),
            self._location(parts["location"]),
            verb,
            resource,
            tuple(dict.fromkeys(permissions)),
            condition,
            self._reading.text,
        )

    def rule(self, tree: Tree[Token]) -> Condition:
        """The condition of a rule."""
        (inner,) = _trees(tree)
        return self._condition(inner, of_rule=True)

    # -- subject, action, location -----------------------------------------------------------------

    def _subject(self, tree: Tree[Token]) -> Subject:
        kind = SubjectKind(str(_tokens(tree)[0]).lower())
        names: list[str] = []
        ids: list[str] = []
        for part in _trees(tree):
            inner = _trees(part)
            by_id = bool(inner) and bool(_tokens(part))
            name = inner[0] if inner else part
            if by_id:
                ids.append(self._id(_tokens(name)[-1]))
            else:
                names.append(self._name(_tokens(name)))
        return Subject(kind, tuple(dict.fromkeys(names)), tuple(dict.fromkeys(ids)))

    def _name(self, tokens: Sequence[Token]) -> str:
        """The name of a group, without its domain."""
        text = _plain(tokens[-1])
        domain = _plain(tokens[0]) if len(tokens) > 1 else ""
        if len(tokens) == 1 and tokens[0].type == "WORD" and "/" in text:
            domain, _, text = text.partition("/")
        if domain and domain.lower() != "default":
            sentence = f"there is no domain {short(domain)}; the only one is 'Default'"
            self._note(tokens[0], sentence)
        if not text.strip():
            self._note(tokens[-1], "the name is empty")
        return text

    def _id(self, token: Token) -> str:
        """An OCID."""
        text = _plain(token)
        if not text.strip():
            self._note(token, "the OCID is empty")
        return text

    def _action(self, verb: Token, resource: Token) -> tuple[Verb | None, str]:
        name, kind = verb.lower(), resource.lower()
        if name not in VERBS:
            meant = _MEANT_VERBS.get(name) or next(iter(close_to(name, VERBS)), "")
            sentence = f"{short(str(verb))} is not a verb; there are {', '.join(VERBS)}"
            self._note(verb, sentence, meant)
        if kind in OTHER_TYPES:
            sentence = f"{kind} is a type of OCI; {_NOTHING_HERE}"
            self._note(resource, sentence, severity=Severity.WARNING)
        elif kind not in TYPES and kind not in FAMILIES:
            sentence = f"{short(str(resource))} is not a type of resource"
            self._note(
                resource,
                sentence,
                _meant_type(kind),
                "the page Policies of the documentation lists them",
            )
        return (Verb(name) if name in VERBS else None), kind

    def _permission(self, token: Token) -> str:
        name = token.upper()
        if name not in _PERMISSIONS:
            meant = next(iter(close_to(name, _PERMISSIONS, 1, 0.85)), "")
            sentence = f"{short(str(token))} is not a permission that Muster knows"
            if meant:
                self._note(token, sentence, meant)
            else:
                self._note(token, f"{sentence}: it has no effect", severity=Severity.WARNING)
        elif name in OTHER_PERMISSIONS:
            sentence = (
                f"{name} is a permission of OCI for what Muster does not do: it has no effect"
            )
            self._note(token, sentence, severity=Severity.WARNING)
        return name

    def _location(self, tree: Tree[Token]) -> Location:
        first, *others = _tokens(tree)
        if first.type == "TENANCY":
            return Location()
        text = _plain(others[-1])
        if len(others) > 1:
            return Location(id=self._id(others[-1]))
        path = tuple(text.split(":"))
        if not all(part.strip() for part in path):
            self._note(others[-1], "a name in the path of the compartment is empty")
        return Location(path)

    # -- conditions --------------------------------------------------------------------------------

    def _condition(self, tree: Tree[Token], *, of_rule: bool = False) -> Condition:
        if tree.data == "several":
            inner = tuple(self._condition(one, of_rule=of_rule) for one in _trees(tree))
            return All(inner) if _tokens(tree)[0].type == "ALL" else Any(inner)
        tokens = _tokens(tree)
        variable = self._rule_variable(tokens[0]) if of_rule else self._variable(tokens[0])
        operator = _OPERATORS[tokens[1].type] if len(tokens) > 1 else Operator.EXISTS
        if tree.data == "not_among":
            operator = Operator.NOT_IN
        if operator is Operator.EXISTS and not variable.startswith("tag."):
            self._note(tokens[0], f"{variable} is compared with nothing", f"{tokens[0]} = 'VALUE'")
        if operator in _ORDERED and variable not in (TIMESTAMP, TIME_OF_DAY):
            sentence = f"`{operator}` compares times: {TIMESTAMP} or {TIME_OF_DAY}"
            self._note(tokens[1], sentence)
        values = tuple(
            self._value(variable, operator, _tokens(one)[0], of_rule=of_rule)
            for one in _trees(tree)
        )
        return Comparison(variable, operator, values)

    def _variable(self, token: Token) -> str:
        name = canonical(token)
        if name is None and self._of_other_service and token.lower().startswith("target."):
            return str(token)  # one of the type's, which is noted
        if name is None or name in RULE_VARIABLES:
            meant = next(iter(close_to(token, variables(), 1, 0.7)), "")
            sentence = f"there is no variable {short(str(token))}"
            self._note(token, sentence, meant, "the page Policies of the documentation lists them")
            return str(token)
        if not exists(name):
            sentence = f"requests to Muster have no {name}, so that the condition is false"
            self._note(token, sentence, severity=Severity.WARNING)
        return name

    def _rule_variable(self, token: Token) -> str:
        name = token.lower()
        parts = name.split(".")
        is_tag = len(parts) == 4 and parts[0] == "tag" and parts[3] == "value" and all(parts)
        if name not in RULE_VARIABLES and not is_tag:
            meant = next(iter(close_to(token, RULE_VARIABLES, 1, 0.7)), "")
            known = alternatives([*RULE_VARIABLES, "tag.NAMESPACE.KEY.value"])
            self._note(
                token, f"there is no variable {short(str(token))} in rules; use {known}", meant
            )
        return name

    def _value(self, variable: str, operator: Operator, token: Token, *, of_rule: bool) -> Value:
        text = _plain(token)
        if token.type == "PATTERN":
            self._check_pattern(variable, operator, token, text, of_rule=of_rule)
            return Value(text, ValueKind.PATTERN)
        if (
            token.type == "WORD"
            and text.lower().startswith(("request.", "target."))
            and not of_rule
        ):
            return Value(self._variable(token), ValueKind.VARIABLE)
        if not text:
            self._note(token, f"the value of {variable} is empty", "'VALUE'")
        if "*" in text:
            sentence = "`*` in a text stands for itself; a pattern is between slashes"
            fix = f"/{text}/" if _is_pattern(text) and "/" not in text[-1:] else ""
            self._note(token, sentence, fix, severity=Severity.WARNING)
        if variable.startswith(TIMESTAMP):
            try:
                normal_time(variable, text)
            except ValueError as error:
                self._note(token, str(error))
        if variable == "request.permission":
            self._permission_value(token, text.upper())
        elif (unknown := unknown_value(variable, text)) is not None:
            fix = unknown.meant and f"'{unknown.meant}'"
            self._note(token, unknown.sentence, fix, unknown.hint, severity=Severity.WARNING)
        elif variable.endswith(".id") and text and not text.lower().startswith("ocid1."):
            sentence = f"{variable} is an OCID, such as ocid1.compartment...; {short(text)} is none"
            self._note(token, sentence, severity=Severity.WARNING)
        return Value(text)

    def _permission_value(self, token: Token, name: str) -> None:
        if name in _PERMISSIONS:
            return
        meant = next(iter(close_to(name, _PERMISSIONS, 1, 0.85)), "")
        sentence = f"{short(str(token))} is not a permission that Muster knows"
        if meant:
            self._note(token, sentence, f"'{meant}'")
        else:
            self._note(token, sentence, severity=Severity.WARNING)

    def _check_pattern(
        self, variable: str, operator: Operator, token: Token, text: str, *, of_rule: bool
    ) -> None:
        if of_rule or operator in _ORDERED or variable.startswith(TIMESTAMP):
            self._note(
                token, f"{variable} is not compared with a pattern here; write a text in quotes"
            )
        elif not _is_pattern(text):
            sentence = (
                "a pattern has `*` first, last or both, and is not empty: /x*/, /*x/ or /*x*/"
            )
            self._note(token, sentence)
        elif (unknown := unknown_value(variable, text, is_pattern=True)) is not None:
            self._note(token, unknown.sentence, hint=unknown.hint, severity=Severity.WARNING)


_ORDERED = (Operator.BEFORE, Operator.AFTER, Operator.BETWEEN)
_OPERATORS = {
    "EQUAL": Operator.EQUAL,
    "DIFFERENT": Operator.DIFFERENT,
    "BEFORE": Operator.BEFORE,
    "AFTER": Operator.AFTER,
    "BETWEEN": Operator.BETWEEN,
    "IN": Operator.IN,
    "NOT": Operator.NOT_IN,
}


def _is_pattern(text: str) -> bool:
    inner = text.removeprefix("*").removesuffix("*")
    return text == "*" or (bool(inner) and "*" not in inner)


def _meant_type(word: str) -> str:
    """The type that was probably meant; "" if none is like it."""
    ends = [name for name in _RESOURCES if name in (f"data-science-{word}", f"{word}s")]
    return next(iter(ends or close_to(word, _RESOURCES, 1, 0.7)), "")


def _plain(token: Token) -> str:
    """The text of a name or a value, without quotes or slashes."""
    return str(token) if token.type == "WORD" else str(token)[1:-1]


def _trees(tree: Tree[Token]) -> list[Tree[Token]]:
    return [one for one in tree.children if isinstance(one, Tree)]


def _tokens(tree: Tree[Token]) -> list[Token]:
    return [one for one in tree.children if isinstance(one, Token)]
