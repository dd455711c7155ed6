"""The configuration of OCI's clients, for a user of a server of a test."""

from __future__ import annotations

from pathlib import Path

from muster.iam.public_keys import fingerprint_of, normal_pem
from muster.spec.ocids import TENANCY, user_ocid
from muster.store.account_records import PublicKeyRecord
from muster.store.base import Store
from support.keys import private_key, private_pem


def config_of(user: str, key: int = 0, *, region: str = "us-ashburn-1") -> dict[str, str]:
    """What a client is configured with that signs as a user. key: the number of the user's key."""
    return {
        "user": user_ocid(user),
        "tenancy": TENANCY,
        "fingerprint": fingerprint_of(private_key(key).public_key()),
        "key_content": private_pem(key),
        "region": region,
    }


def write_config(path: Path, config: dict[str, str]) -> dict[str, str]:
    """A configuration in a file, with its key in another one beside that. What the file says."""
    path.parent.mkdir(exist_ok=True)
    key = path.with_suffix(".pem")
    written = {**config, "key_file": str(key)}
    key.write_text(written.pop("key_content"))
    lines = "".join(f"{name}={text}\n" for name, text in written.items())
    path.write_text(f"[DEFAULT]\n{lines}")
    for file in (key, path):
        file.chmod(0o600)
    return written


def add_key(store: Store, user: str, folder: Path) -> dict[str, str]:
    """Give a user a key. What a client that signs with it is configured with."""
    public = private_key().public_key()
    record = PublicKeyRecord(fingerprint_of(public), user, "", normal_pem(public), 1.0, user)
    store.keys.insert(record)
    return write_config(folder / "config", config_of(user))
