"""Decisions: whether policies allow a request. Pure.

Nothing is allowed unless a statement allows it; what one statement allows, no other takes away.
`Policies` is an immutable index of all statements. What belongs to a permission is indexed when it
is first asked for: by compartment, by subject, and by what conditions compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from types import MappingProxyType

from msgspec import Struct

from muster.caller import CREATED_BY
from muster.iam.policies import conditions
from muster.iam.policies.alternatives import Alternatives
from muster.iam.policies.conditions import Values, folded, prepared, specialised
from muster.iam.policies.narrowest import has_creators, narrowest
from muster.iam.policies.statements import (
    Comparison,
    Condition,
    Location,
    MatchingRule,
    Operator,
    Statement,
    Subject,
    SubjectKind,
    Value,
)
from muster.iam.policies.vocabulary import TAG_VARIABLES, TENANCY_ONLY, TYPE_OF
from muster.permissions import Decision, Permission, StatementRef

#: Types of requesters.
USER, JOB_RUN, INSTANCE = "user", "datasciencejobrun", "instance"
_NOTHING: Mapping[str, str] = MappingProxyType({})
#: Requesters whose groups are remembered.
_MOST_REMEMBERED = 10_000


class Compartment(Struct, frozen=True):
    """A project."""

    name: str
    id: str
    """Its OCID."""
    parent: str = ""
    """The name of the one above it; "" for the root."""
    aliases: tuple[str, ...] = ()
    """Further OCIDs that it has."""

    @property
    def ids(self) -> tuple[str, ...]:
        """All its OCIDs."""
        return (self.id, *self.aliases)


class Group(Struct, frozen=True):
    """A group of users."""

    name: str
    id: str


class DynamicGroup(Struct, frozen=True):
    """A group of runs and instances."""

    name: str
    id: str
    rule: MatchingRule


class Policy(Struct, frozen=True):
    """Statements that are attached to a compartment."""

    name: str
    compartment: str
    """The name of the compartment."""
    statements: tuple[Statement, ...]


class Requester(Struct, frozen=True):
    """Who asks: a user, a run or an instance."""

    id: str
    """The OCID of the user, run or instance."""
    name: str = ""
    """Of a user."""
    groups: frozenset[str] = frozenset()
    """The ids of the groups that a user is in."""
    type: str = USER
    compartment: str = ""
    """Of a run or an instance: the name of its compartment."""
    created_by: str = ""
    """Of a run: the OCID of the user who has started it."""
    tags: tuple[tuple[str, str], ...] = ()
    """Of a run or an instance: `NAMESPACE.KEY` and value."""


class Access(Struct, frozen=True):
    """What is asked for."""

    requester: Requester
    permission: Permission
    compartment: str
    """The name of the compartment that the resource is in. One that is not known has what the
    tenancy allows."""
    attributes: Mapping[str, str] = _NOTHING
    """What is known of the resource: `target.` variables as `vocabulary` writes them. Who has
    created it is `target.resource.createdBy`, an OCID, for each type. Those of the compartment are
    known without it."""
    operation: str = ""
    """OCI's name of the operation, such as `ListJobs`."""
    now: float | None = None
    """Epoch seconds; None: conditions about the time are false."""


class Resolved(Struct, frozen=True):
    """A statement and what its names stand for."""

    ref: StatementRef
    statement: Statement
    attached: str
    """The name of the policy's compartment."""
    compartment: str | None
    """The compartment that it is about, with those below it; None: there is none of this name, or
    it is not below the one that the policy is attached to."""
    subjects: frozenset[str]
    """Which requesters it is about, as `Policies.subjects`."""
    gives: frozenset[Permission]


class _Known(Struct, frozen=True):
    """What is known of a requester."""

    subjects: tuple[str, ...]
    values: Values


class _Bucket(Struct, frozen=True):
    """The statements that give one permission to one subject in one compartment."""

    conditions: Sequence[tuple[bool | Condition, Resolved]]
    """Prepared."""
    alternatives: Alternatives[Resolved]


class _Index(Struct, frozen=True):
    """The statements that give one permission."""

    by_compartment: Mapping[str, Mapping[str, _Bucket]]
    """And by subject."""
    with_time: bool


class Policies:
    """All policies of a tenancy. Immutable; threads may share it."""

    def __init__(
        self,
        policies: Iterable[Policy],
        compartments: Iterable[Compartment],
        groups: Iterable[Group] = (),
        dynamic_groups: Iterable[DynamicGroup] = (),
        region: str = "",
    ) -> None:
        """compartments: one of them has no parent: the root. region: `request.region`; "" if
        requests have none."""
        self.policies = tuple(policies)
        self.compartments = {one.name: one for one in compartments}
        self.groups = tuple(groups)
        self.dynamic_groups = tuple(dynamic_groups)
        self._region = region
        roots = [name for name, one in self.compartments.items() if not one.parent]
        if len(roots) != 1:
            raise ValueError(f"one compartment has no parent, not {len(roots)}")
        self.root = roots[0]
        self._above = {name: self._path_up(name) for name in self.compartments}
        self._below: dict[str, dict[str, list[str]]] = {name: {} for name in self.compartments}
        for name, one in self.compartments.items():
            if one.parent in self._below:
                self._below[one.parent].setdefault(folded(name), []).append(name)
        self._by_id = {
            folded(id_): name for name, one in self.compartments.items() for id_ in one.ids
        }
        self._group_ids = _by_name((one.name, one.id) for one in self.groups)
        self._dynamic_ids = _by_name((one.name, one.id) for one in self.dynamic_groups)
        self._group_names = {
            **{_subject(SubjectKind.GROUP, one.id): one.name for one in self.groups},
            **{
                _subject(SubjectKind.DYNAMIC_GROUP, one.id): one.name for one in self.dynamic_groups
            },
        }
        self._rules = tuple(
            (_subject(SubjectKind.DYNAMIC_GROUP, one.id), conditions.compiled(_rule(one.rule)))
            for one in self.dynamic_groups
        )
        self.statements = tuple(
            self._resolved(policy, number, statement)
            for policy in self.policies
            for number, statement in enumerate(policy.statements, 1)
        )
        """All statements, in order."""
        about: dict[str, set[str]] = {}
        for resolved in self.statements:
            for subject in resolved.subjects:
                about.setdefault(subject, set()).add(resolved.compartment or "")
        #: The compartments that the statements about each subject are about.
        self._about = about
        self._lock = Lock()
        self._known: dict[Requester, _Known] = {}
        self._indexes: dict[Permission, _Index] = {}

    # -- decisions ---------------------------------------------------------------------------------

    def decide(self, access: Access) -> Decision:
        """Whether something is allowed, with the statement that allows it or would allow it."""
        found = self._find(access)
        if found is not None:
            return Decision(True, found.ref)
        return Decision(False, None, str(self.missing(access) or ""))

    def allowing(self, access: Access) -> StatementRef | None:
        """A statement that allows something; None if none does."""
        found = self._find(access)
        return None if found is None else found.ref

    def allows(self, access: Access) -> bool:
        """Whether something is allowed."""
        return self._find(access) is not None

    def chooser(
        self,
        requester: Requester,
        permission: Permission,
        compartment: str,
        operation: str = "",
        now: float | None = None,
    ) -> Callable[[Mapping[str, str]], bool] | None:
        """Whether each of many resources of a compartment is allowed, by its attributes; None: none
        is, whatever they are. The other parameters: as of `Access`."""
        known = self._of(requester)
        values = self._values(
            Access(requester, permission, compartment, _NOTHING, operation, now), known
        )
        ready: list[Alternatives[Resolved]] = []
        left: list[tuple[bool | Condition, Resolved]] = []
        for bucket in self._buckets(permission, compartment, known):
            if bucket.alternatives.always is not None:
                return allow_all
            if any(map(_is_known, bucket.alternatives.variables)):
                left += (
                    (specialised(condition, values, _is_known), resolved)
                    for condition, resolved in bucket.conditions
                )
            else:  # nothing is known yet: as it is
                ready.append(bucket.alternatives)
        if left:
            ready.append(Alternatives(left))
        choices = [one for one in ready if one]
        if not choices:
            return None
        if any(one.always is not None for one in choices):
            return allow_all
        if len(choices) == 1:
            return choices[0].holds
        return lambda attributes: any(one.holds(attributes) for one in choices)

    def missing(self, access: Access, place: str | None = None) -> Statement | None:
        """The narrowest statement that would allow something, for a policy of the tenancy; None if
        none can name what is asked for. place: what to call the compartment; None: by its path."""
        statement = self._missing(access, place)
        try:
            str(statement)
        except ValueError:  # a name that no quotes can hold
            return None
        return statement

    def _missing(self, access: Access, place: str | None) -> Statement:
        requester, permission = access.requester, access.permission
        subject, only = self._best_subject(access)
        resource = TYPE_OF[permission]
        only += (
            Comparison(name, Operator.EQUAL, (Value(value),))
            for name in resource.variables
            if name.endswith((".name", ".loggroup.id")) and (value := access.attributes.get(name))
        )
        creates = permission.endswith("_CREATE") and has_creators(resource)
        created = access.attributes.get(CREATED_BY) == requester.id
        own = requester.type == USER and bool(requester.id) and (creates or created)
        location = self._place(access, place)
        return narrowest(subject, location, (permission,), only, own=own)

    def _place(self, access: Access, place: str | None) -> Location:
        if TYPE_OF[access.permission].name in TENANCY_ONLY:
            return Location()
        return self._location(access.compartment) if place is None else Location((place,))

    # -- what names stand for ----------------------------------------------------------------------

    def subjects(self, requester: Requester) -> tuple[str, ...]:
        """What statements call the requester: `any-user`, `group ID`, ..."""
        return self._of(requester).subjects

    def values(self, access: Access) -> Values:
        """The variables of a request, as conditions compare them."""
        return self._values(access, self._of(access.requester))

    def above(self, compartment: str) -> tuple[str, ...]:
        """A compartment and those that it is in, up to the root."""
        return self._chain(compartment)

    def location(self, compartment: str) -> str:
        """How a policy of the tenancy names a compartment."""
        return str(self._location(compartment))

    def _location(self, compartment: str) -> Location:
        return Location(self._chain(compartment)[-2::-1])

    def resolve(self, location: Location, attached: str) -> str | None:
        """The compartment that a statement is about; None if the policy cannot speak about it.
        attached: the name of the policy's compartment."""
        if location.id:
            found = self._by_id.get(folded(location.id))
            return found if found and attached in self._chain(found) else None
        if not location.path:
            return attached if attached == self.root else None
        first, *others = location.path
        starts = [self._child(attached, first)]
        if folded(first) == folded(attached):
            starts.append(attached)
        for start in filter(None, starts):
            found = self._descend(start, others)
            if found is not None:
                return found
        return None

    def _descend(self, start: str, path: Sequence[str]) -> str | None:
        at: str | None = start
        for name in path:
            at = self._child(at, name) if at is not None else None
        return at

    def _child(self, parent: str, name: str) -> str | None:
        """The compartment of a name right below another one; None if several differ in case only
        and none is written like it."""
        found = self._below.get(parent, {}).get(folded(name), [])
        if name in found:
            return name
        return found[0] if len(found) == 1 else None

    def _path_up(self, name: str) -> tuple[str, ...]:
        path: list[str] = []
        while name in self.compartments and name not in path:
            path.append(name)
            name = self.compartments[name].parent
        return tuple(path) if path[-1] == self.root else (*path, self.root)

    def _chain(self, compartment: str) -> tuple[str, ...]:
        return self._above.get(compartment) or (compartment, self.root)

    def _resolved(self, policy: Policy, number: int, statement: Statement) -> Resolved:
        text = statement.text or str(statement)
        at = "" if policy.compartment == self.root else policy.compartment
        return Resolved(
            StatementRef(policy.name, number, text, at),
            statement,
            policy.compartment,
            self.resolve(statement.location, policy.compartment),
            self._subjects_of(statement.subject),
            statement.gives,
        )

    def _subjects_of(self, subject: Subject) -> frozenset[str]:
        if subject.kind in (SubjectKind.ANY_USER, SubjectKind.ANY_GROUP):
            return frozenset({str(subject.kind)})
        if subject.kind is SubjectKind.SERVICE:
            return frozenset()  # Muster's own services need no permission
        dynamic = subject.kind is SubjectKind.DYNAMIC_GROUP
        by_name = self._dynamic_ids if dynamic else self._group_ids
        named = (by_name[folded(name)] for name in subject.names if folded(name) in by_name)
        return frozenset(_subject(subject.kind, one) for one in (*named, *subject.ids))

    # -- index -------------------------------------------------------------------------------------

    def _find(self, access: Access) -> Resolved | None:
        known = self._of(access.requester)
        values: Values | None = None
        for bucket in self._buckets(access.permission, access.compartment, known):
            alternatives = bucket.alternatives
            if alternatives.always is not None:
                return alternatives.always
            if values is None:
                with_time = self._index(access.permission).with_time
                values = self._values(access, known, with_time=with_time)
            found = alternatives.find(values)
            if found is not None:
                return found
        return None

    def _buckets(
        self, permission: Permission, compartment: str, known: _Known
    ) -> Iterator[_Bucket]:
        """The statements that are about a requester and a compartment."""
        by_compartment = self._index(permission).by_compartment
        for above in self._chain(compartment):
            by_subject = by_compartment.get(above)
            if by_subject is None:
                continue
            for subject in known.subjects:
                bucket = by_subject.get(subject)
                if bucket is not None:
                    yield bucket

    def _index(self, permission: Permission) -> _Index:
        found = self._indexes.get(permission)
        if found is None:
            # two threads may both make it: it is the same
            found = self._indexes[permission] = self._made_index(permission)
        return found

    def _made_index(self, permission: Permission) -> _Index:
        resource = TYPE_OF[permission]
        parts: dict[tuple[str, str], list[tuple[bool | Condition, Resolved]]] = {}
        for one in self.statements:
            if permission not in one.gives or one.compartment is None:
                continue
            if resource.name in TENANCY_ONLY and one.compartment != self.root:
                continue
            condition = prepared(one.statement.condition, permission, resource)
            if condition is False:
                continue
            for subject in one.subjects:
                parts.setdefault((one.compartment, subject), []).append((condition, one))
        by_compartment: dict[str, dict[str, _Bucket]] = {}
        with_time = False
        for (compartment, subject), several in parts.items():
            bucket = _Bucket(several, Alternatives(several))
            by_compartment.setdefault(compartment, {})[subject] = bucket
            names = bucket.alternatives.variables
            with_time = with_time or any(name.startswith(conditions.TIMESTAMP) for name in names)
        return _Index(by_compartment, with_time)

    def _of(self, requester: Requester) -> _Known:
        known = self._known.get(requester)
        if known is None:
            known = _Known(self._find_subjects(requester), self._values_of(requester))
            with self._lock:
                if len(self._known) >= _MOST_REMEMBERED:
                    self._known.clear()
                self._known[requester] = known
        return known

    def _find_subjects(self, requester: Requester) -> tuple[str, ...]:
        subjects = [str(SubjectKind.ANY_USER)]
        if requester.type == USER:
            if requester.groups:
                subjects.append(str(SubjectKind.ANY_GROUP))
            subjects += (_subject(SubjectKind.GROUP, one) for one in sorted(requester.groups))
        else:
            values = self._rule_values(requester)
            subjects += (subject for subject, matches in self._rules if matches(values))
        return tuple(subjects)

    def _rule_values(self, requester: Requester) -> Values:
        compartment = self._ids_of(requester.compartment)
        values: dict[str, tuple[str, ...]] = {
            "resource.id": (folded(requester.id),),
            "resource.type": (folded(requester.type),),
            "resource.compartment.id": compartment,
            **{f"tag.{folded(name)}.value": (folded(value),) for name, value in requester.tags},
        }
        if requester.type == INSTANCE:
            values |= {
                "instance.id": (folded(requester.id),),
                "instance.compartment.id": compartment,
            }
        return values

    def _ids_of(self, compartment: str) -> tuple[str, ...]:
        found = self.compartments.get(compartment)
        return () if found is None else tuple(map(folded, found.ids))

    def _values_of(self, requester: Requester) -> Values:
        values: dict[str, tuple[str, ...]] = {
            "request.region": (folded(self._region),),
            "request.principal.type": (folded(requester.type),),
            "request.principal.id": (folded(requester.id),),
        }
        if requester.type == USER:
            values["request.user.id"] = (folded(requester.id),)
            values["request.user.name"] = (folded(requester.name),)
            values["request.groups.id"] = tuple(sorted(map(folded, requester.groups)))
        else:
            values["request.principal.compartment.id"] = self._ids_of(requester.compartment)
            values["request.principal.createdBy"] = (folded(requester.created_by),)
            for name, value in requester.tags:
                values[TAG_VARIABLES[1] + name.lower()] = (folded(value),)
        return {name: several for name, several in values.items() if any(several)}

    def _values(self, access: Access, known: _Known, *, with_time: bool = True) -> Values:
        values = dict(known.values)
        values["request.permission"] = (folded(access.permission),)
        if access.operation:
            values["request.operation"] = (folded(access.operation),)
        for name, value in access.attributes.items():
            if name.startswith("target."):
                values[name] = (folded(value),)
        # last: they are not the resource's
        values["target.compartment.name"] = (folded(access.compartment),)
        values["target.compartment.id"] = self._ids_of(access.compartment)
        if with_time and access.now is not None:
            values |= conditions.times(access.now)
        return values

    def _best_subject(self, access: Access) -> tuple[Subject, list[Comparison]]:
        """Who a statement that is missing should be about, and a condition if that is too broad."""
        requester = access.requester
        chain = self._chain(access.compartment)
        groups = [
            (self._distance(subject, chain), name)
            for subject in self.subjects(requester)
            if (name := self._group_names.get(subject))
        ]
        dynamic = requester.type != USER
        if groups:
            kind = SubjectKind.DYNAMIC_GROUP if dynamic else SubjectKind.GROUP
            return Subject(kind, (min(groups)[1],)), []
        anybody = Subject(SubjectKind.ANY_USER)
        if not requester.id:  # nobody in particular
            return anybody, []
        if requester.type == JOB_RUN:  # all of them: the next one has another id
            name, value = "request.principal.type", JOB_RUN
        else:
            name, value = f"request.{'principal' if dynamic else 'user'}.id", requester.id
        return anybody, [Comparison(name, Operator.EQUAL, (Value(value),))]

    def _distance(self, subject: str, chain: Sequence[str]) -> int:
        """How far the statements about a group are from the first of some compartments, as its
        place among them: the nearer, the better the group fits."""
        about = self._about.get(subject, set())
        return next((at for at, name in enumerate(chain) if name in about), len(chain))


def allow_all(_attributes: Mapping[str, str]) -> bool:
    """What `Policies.chooser` returns if every resource is allowed."""
    return True


def _is_known(variable: str) -> bool:
    return variable.startswith(("request.", "target.compartment."))


def _subject(kind: SubjectKind, identifier: str) -> str:
    return f"{kind} {folded(identifier)}"


def _by_name(several: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {folded(name): identifier for name, identifier in several}


def _rule(rule: MatchingRule) -> Condition:
    """The rule with texts as they are compared."""
    return _folded(rule.condition)


def _folded(condition: Condition) -> Condition:
    if isinstance(condition, Comparison):
        values = tuple(type(one)(folded(one.text), one.kind) for one in condition.values)
        return Comparison(condition.variable, condition.operator, values)
    return type(condition)(tuple(map(_folded, condition.conditions)))
