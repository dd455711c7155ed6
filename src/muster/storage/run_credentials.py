"""The files with which programs of a run act as the run (`plan.principal`), in its folder: a token
and a key for each node, in a folder of its slot, and another pair for what Muster copies for the
run.

Keys are made when the run starts, and replaced by the process that drives it, long before the token
expires: clients read them again when it does. A token is made at each start of a node, and says
which start it is of, and from which host it can be used.
"""

from __future__ import annotations

import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from muster import run_tokens
from muster.errors import InvalidInput
from muster.lifecycle.status import NodeRef
from muster.node import machine
from muster.node.files import read_regular, replace_file
from muster.plan.model import PrincipalPlan, RunPlan
from muster.plan.principal import AUTHORITIES, KEY, TOKEN, identity_of, node_folder
from muster.run_tokens import LIFETIME, Place, place_of
from muster.signed_tokens import PublicKey, SignedTokens
from muster.storage.home import Home
from muster.storage.key_pool import new_key
from muster.storage.key_pool import pem as pem_of
from muster.storage.public_numbers import public_numbers
from muster.storage.token_seed import signed_tokens
from muster.unix_account import as_root

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

#: Seconds until the next attempt to replace files that could not be replaced.
_RETRY_PAUSE = 60.0
#: Seconds after its start until a node that got the key of another one has a key of its own: the
#: other nodes of a large run have started by then.
_OWN_KEY_DELAY = 5.0
#: Where systems have the authorities that they trust, if OpenSSL's own place is empty.
_SYSTEM_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
#: In place of a slot: what Muster copies for the run, with files in the folder of the run's.
COPIES = -1


class _Holder(Struct):
    """Whose credentials are in use."""

    node: NodeRef | None
    place: Place | None
    """None: it is not known."""
    here: tuple[str, ...] | None
    """Addresses on this machine, besides its own; None: it is elsewhere."""
    previous: PublicKey | None
    """The key before the present one."""
    renew_at: float
    """Epoch seconds."""


class RunCredentials:
    """The credentials of one run, on the machine of the process that drives it. Files are written
    as the account that this thread acts as, and for it alone."""

    def __init__(
        self,
        home: Home,
        plan: RunPlan,
        principal: PrincipalPlan,
        lifetime: float = LIFETIME,
        make_key: Callable[[], RSAPrivateKey] = new_key,
    ) -> None:
        """lifetime: of a token, in seconds."""
        self._home, self._principal, self._lifetime = home, principal, lifetime
        self._make_key = make_key
        self._identity = identity_of(plan, principal)
        self.folder = home.run_dir(plan.run_id).principal
        self._has_folder = False
        self._tokens: SignedTokens | None = None
        self._holders: dict[int, _Holder] = {}
        #: The first slot that has had each key.
        self._slots: dict[int, int] = {}
        #: The newest key that was read or made here: PEM.
        self._newest = b""
        #: When the first of them is to be replaced (epoch seconds); None: never.
        self._due: float | None = None

    def timeout(self) -> float | None:
        """Seconds until any are to be replaced; None: there are none."""
        return None if self._due is None else max(0.0, self._due - time.time())

    # --- at the start of a run

    def prepare(self, slots: Sequence[int], take: Callable[[int], list[bytes]]) -> None:
        """Have keys ready for these slots, unless they have any: as many as can be had without
        making a node wait. take: returns at most so many keys, and at least one: PEM. Raises
        OSError, InvalidInput as `sealing.seal`."""
        self._prepare_folder()
        lacking = [slot for slot in slots if not self._file(slot, KEY).exists()]
        keys = take(len(lacking)) if lacking else []
        for slot, key in zip(lacking, keys, strict=False):
            self._write(slot, KEY, key)

    def _prepare_folder(self) -> None:
        if self._has_folder:
            return
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if self._principal.own_authority and not (self.folder / AUTHORITIES).exists():
            content = "".join(self._authorities()).encode()
            replace_file(self.folder / AUTHORITIES, content, 0o600)
        self._has_folder = True

    # --- at the start of a node

    def issue(
        self,
        slot: int,
        node: NodeRef | None = None,
        place: Place | None = None,
        *,
        here: Sequence[str] | None = None,
    ) -> None:
        """Make the token of a node that starts, with the key that its slot has.

        A slot without one gets that of another node, and soon one of its own: to make it takes
        50 ms, and large runs have many nodes that start at once. node: None for `COPIES`. place:
        its host; None: not known. here: addresses, besides those of this machine, if its host is
        this one; `place` is not used then. Raises OSError, InvalidInput as `sealing.seal`.
        """
        now = time.time()
        self._prepare_folder()
        before = self._holders.get(slot)
        own = None if here is None else tuple(here)
        previous = None if before is None else before.previous
        holder = _Holder(node, place if own is None else _this_place(own), own, previous, now)
        key, made_at = self._key_of(slot)
        self._write_token(slot, holder, key, now)
        holder.renew_at = made_at + self._lifetime / 2
        if self._slots.setdefault(key.n, slot) != slot or _has_moved(before, holder):
            holder.renew_at = min(holder.renew_at, now + _OWN_KEY_DELAY)
        self._holders[slot] = holder
        self._due = holder.renew_at if self._due is None else min(self._due, holder.renew_at)

    def _key_of(self, slot: int) -> tuple[PublicKey, float]:
        """The key of a slot, and when it was made. It gets one if it has none that can be read."""
        file = self._file(slot, KEY)
        with suppress(OSError, ValueError):
            found = read_regular(file)
            key = public_numbers(found)
            self._newest = self._newest or found
            return key, file.stat().st_mtime
        if not self._newest:
            self._newest = self._key_of_others() or pem_of(self._make_key())
        self._write(slot, KEY, self._newest)
        return public_numbers(self._newest), time.time()

    def _key_of_others(self) -> bytes:
        """The key of any other node; empty if there is none."""
        for file in sorted(self.folder.glob(f"*/{KEY}")):
            with suppress(OSError, ValueError):
                found = read_regular(file)
                public_numbers(found)
                return found
        return b""

    def drop(self, slot: int) -> None:
        """A node has ended: its credentials are not replaced any more."""
        if self._holders.pop(slot, None) is not None:
            self._find_due()

    # --- from then on

    def renew(self) -> int | None:
        """Replace those that are due; if several are, of one node, as each takes 50 ms. Returns its
        slot; None if none were replaced. If it fails, it is tried again, long before the present
        ones expire, and stderr says why."""
        if self._due is None or self.timeout():
            return None
        slot = min(self._holders, key=lambda one: self._holders[one].renew_at)
        try:
            self.replace(slot)
        except (OSError, InvalidInput) as error:
            sys.stderr.write(f"muster: the run's credentials cannot be replaced yet: {error}\n")
            self._holders[slot].renew_at = time.time() + _RETRY_PAUSE
            self._find_due()
            return None
        return slot

    def replace(self, slot: int) -> None:
        """Make another key and a token for it. Raises as `issue`."""
        now, holder = time.time(), self._holders[slot]
        made = self._make_key()
        holder.previous, _ = self._key_of(slot)
        if holder.here is not None:
            holder.place = _this_place(holder.here)
        # clients read the key first: whatever they read, the token accepts the key
        self._write_token(slot, holder, PublicKey.of(made.public_key()), now)
        self._write(slot, KEY, pem_of(made))
        holder.renew_at = now + self._lifetime / 2
        self._find_due()

    def _find_due(self) -> None:
        self._due = min((one.renew_at for one in self._holders.values()), default=None)

    # --- files

    def _write_token(self, slot: int, holder: _Holder, key: PublicKey, now: float) -> None:
        if self._tokens is None:
            self._tokens = signed_tokens(self._home)
        token = run_tokens.issue(
            *(self._tokens, self._identity, key, now, self._lifetime),
            previous=None if holder.previous == key else holder.previous,
            node=holder.node,
            place=holder.place,
        )
        self._write(slot, TOKEN, token.encode())

    def _file(self, slot: int, name: str) -> Path:
        folder = str(self.folder)
        return Path(folder if slot == COPIES else node_folder(folder, slot), name)

    def _write(self, slot: int, name: str, content: bytes) -> None:
        file = self._file(slot, name)
        try:
            replace_file(file, content, 0o600)
        except FileNotFoundError:
            file.parent.mkdir(mode=0o700)
            replace_file(file, content, 0o600)

    def read(self, slot: int) -> Mapping[str, str]:
        """The files of a node by their paths in the folder of the run's, for another machine.
        Raises OSError."""
        found = [self._file(slot, name) for name in (TOKEN, KEY)]
        if self._principal.own_authority:
            found.insert(0, self.folder / AUTHORITIES)
        return {str(one.relative_to(self.folder)): read_regular(one).decode() for one in found}

    def remove(self) -> None:
        """Remove the files of a run that has ended."""
        folders = [one for one in self.folder.glob("*") if one.name.isdigit()]
        for folder in (*folders, self.folder):
            for name in (TOKEN, KEY, AUTHORITIES):
                with suppress(NotADirectoryError):  # a program has put something there
                    (folder / name).unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()

    def _authorities(self) -> Iterator[str]:
        """Those that programs trust on this machine, and the server's: a client that trusts a file
        trusts no other."""
        places = (ssl.get_default_verify_paths().cafile, *_SYSTEM_AUTHORITIES)
        for place in filter(None, places):
            with suppress(OSError):
                yield f"{Path(place).read_text()}\n"
                break
        with as_root():
            yield (self._home.oci_certificate / "ca.pem").read_text()


def _this_place(addresses: Sequence[str]) -> Place | None:
    """This machine. addresses: further ones."""
    found = machine.addresses()
    return place_of((*found, *addresses), machine.boot_id())


def _has_moved(before: _Holder | None, now: _Holder) -> bool:
    """Whether a node has another host than the one before it in its slot."""
    return before is not None and before.place != now.place
