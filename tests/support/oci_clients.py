"""Clients of OCI for a server of a test: keys that sign their requests, and their settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from muster.iam.public_keys import fingerprint_of, normal_pem
from muster.spec.ocids import TENANCY, user_ocid
from muster.store.account_records import PublicKeyRecord
from muster.store.base import Store


def add_key(store: Store, user: str, folder: Path) -> dict[str, Any]:
    """Make a key for a user of the store. Returns the settings of a client that signs with it."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = rsa.generate_private_key(65537, 2048)
    file = folder / f"{user}.pem"
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(key.private_bytes(*form))
    file.chmod(0o600)
    public = key.public_key()
    record = PublicKeyRecord(fingerprint_of(public), user, "", normal_pem(public), 1.0, user)
    store.keys.insert(record)
    return {
        "user": user_ocid(user),
        "tenancy": TENANCY,
        "fingerprint": record.fingerprint,
        "key_file": str(file),
        "region": "us-ashburn-1",
    }
