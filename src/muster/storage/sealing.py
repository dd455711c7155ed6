"""Secrets in stored data are encrypted with the key of MUSTER_HOME.

A string that contains a secret is stored as `muster-sealed:1:TOKEN:SHOWN`: a Fernet token with the
whole string, and what is shown of it. So whoever shows a record needs no key (`secrets.redacted`
removes the token), and data without secrets is stored as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.errors import InvalidInput, Problem
from muster.node.files import read_regular, replace_file
from muster.secrets import HARMLESS, SEALED, SEALED_MARK, hidden
from muster.storage.home import Home
from muster.unix_account import as_root

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

_INSTEAD = "or run the job's file again, to supply the secrets"


def seal(home: Home, data: Any) -> Any:
    """Plain data with each string that `secrets.hidden` changes encrypted; the same object if there
    is none.

    The key is created if it is missing. Raises InvalidInput if that fails, or the key is not valid.
    """
    shown = hidden(data)
    if shown is data:
        return data
    ciphers: list[MultiFernet] = []

    def lock(text: str, text_shown: str) -> str:
        if not ciphers:
            ciphers.append(_cipher(_key(home)))
        token = ciphers[0].encrypt(text.encode(errors="surrogatepass")).decode()
        return f"{SEALED_MARK}{token}:{text_shown}"

    return _sealed(data, shown, lock)


def _sealed(data: Any, shown: Any, lock: Callable[[str, str], str]) -> Any:
    if data is shown or data == shown:
        return data
    if isinstance(data, str):
        return lock(data, shown)
    if isinstance(data, (dict, Mapping)):
        return {key: _sealed(value, shown[key], lock) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_sealed(*pair, lock) for pair in zip(data, shown, strict=True)]
    return data


def unseal(home: Home, data: Any, what: str) -> Any:
    """The data that was given to `seal`; the same object if nothing in it is sealed.

    what: names its owner in the message. Raises InvalidInput if the key is missing or another one.
    """
    ciphers: list[MultiFernet] = []

    def unlock(token: str) -> str:
        if not ciphers:
            ciphers.append(_cipher(_existing_key(home, what)))
        return _decrypt(home, ciphers[0], token.encode(), what).decode(errors="surrogatepass")

    return _unsealed(data, unlock)


def _unsealed(data: Any, unlock: Callable[[str], str]) -> Any:
    if isinstance(data, str):
        found = re.match(SEALED, data) if data.startswith(SEALED_MARK) else None
        return unlock(found[1]) if found else data
    if isinstance(data, (dict, Mapping)):
        values = {
            key: value if type(value) in HARMLESS else _unsealed(value, unlock)
            for key, value in data.items()
        }
        return values if any(values[key] is not value for key, value in data.items()) else data
    if isinstance(data, (list, tuple)):
        items = [_unsealed(item, unlock) for item in data]
        return items if any(a is not b for a, b in zip(items, data, strict=True)) else data
    return data


def seal_file(home: Home, content: bytes) -> bytes:
    """The content of a file, encrypted as a whole. Raises InvalidInput as `seal`."""
    return SEALED_MARK.encode() + _cipher(_key(home)).encrypt(content)


def unseal_file(home: Home, content: bytes, what: str) -> bytes:
    """The content that was given to `seal_file`; other content as it is. Otherwise as `unseal`."""
    mark = SEALED_MARK.encode()
    if not content.startswith(mark):
        return content
    cipher = _cipher(_existing_key(home, what))
    return _decrypt(home, cipher, content.removeprefix(mark), what)


def keyed_digest(home: Home, text: str) -> str:
    """A digest of a text with secrets; without the key nobody can check a guess of them. Raises
    InvalidInput as `seal`."""
    import hashlib
    import hmac

    return hmac.new(_key(home).split()[0], text.encode(), hashlib.sha256).hexdigest()


def _cipher(key: bytes) -> MultiFernet:
    """key: the content of the key file. Its first line encrypts, each of its lines decrypts."""
    from cryptography.fernet import Fernet, MultiFernet  # few jobs have secrets

    return MultiFernet([Fernet(line) for line in key.split()])


def _decrypt(home: Home, cipher: MultiFernet, token: bytes, what: str) -> bytes:
    from cryptography.fernet import InvalidToken

    try:
        return cipher.decrypt(token)
    except InvalidToken:
        text = f"does not have the key of the secrets of {what}; add that key as another line"
        raise InvalidInput(Problem(str(home.secret_key), text, _INSTEAD)) from None


@as_root()
def _existing_key(home: Home, what: str) -> bytes:
    try:
        return _read(home.secret_key)
    except FileNotFoundError:
        text = (
            f"{home.secret_key} is missing; without it the secrets of {what} cannot be decrypted; "
            "restore it from a backup"
        )
        raise InvalidInput(Problem("", text, _INSTEAD)) from None


@as_root()
def _key(home: Home) -> bytes:
    """The content of the key file, which is created if it is missing. Raises InvalidInput."""
    try:
        return _read(home.secret_key)
    except FileNotFoundError:
        home.prepare()
    try:
        return _create(home.secret_key)
    except OSError as error:
        text = f"cannot create the key for secrets: {error.strerror}"
        raise InvalidInput(Problem(str(home.secret_key), text)) from None


def _read(path: Path) -> bytes:
    """Raises InvalidInput, FileNotFoundError."""
    try:
        key = read_regular(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        text = f"cannot read the key of secrets: {error.strerror}"
        raise InvalidInput(Problem(str(path), text)) from None
    lines = key.split()
    if not lines:
        hint = (
            "restore it from a backup; without one, remove it: a new key is created, and the "
            "secrets of earlier jobs and runs are lost"
        )
        raise InvalidInput(Problem(str(path), "is empty, and must contain a key", hint))
    if not all(re.fullmatch(rb"[A-Za-z0-9_-]{43}=", line) for line in lines):
        text = "is damaged: each of its lines must be a key of 44 characters"
        raise InvalidInput(Problem(str(path), text, "restore it from a backup"))
    return key


def _create(path: Path) -> bytes:
    """The key of this process, or of another one that creates it at the same time."""
    import fcntl
    from base64 import urlsafe_b64encode

    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if path.exists():
            return _read(path)
        key = urlsafe_b64encode(os.urandom(32)) + b"\n"
        replace_file(path, key, 0o600)
        # what is encrypted with it may be on the disk before it otherwise
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        os.fsync(folder)
        return key
    finally:
        os.close(folder)
