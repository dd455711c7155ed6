"""Keys that are made in advance."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from muster.storage.key_pool import KeyPool
from support.faults import until


def test_no_key_is_given_out_twice() -> None:
    pool = KeyPool(size=2)
    with ThreadPoolExecutor(4) as threads:
        keys = list(threads.map(lambda _: pool.take(), range(8)))
    pool.close()
    loaded = [load_pem_private_key(key, None) for (key,) in keys]
    assert all(isinstance(key, RSAPrivateKey) and key.key_size == 2048 for key in loaded)
    assert len(set(map(tuple, keys))) == 8


def test_keys_are_ready_after_the_first_was_taken() -> None:
    pool = KeyPool(size=1)
    assert not pool._made, "none is made for nothing"
    pool.take()
    until(pool._made[0].done, "a key is ready")
    ready = pool._made[0].result()
    assert pool.take() == [ready]
    pool.close()


def test_a_large_run_gets_what_is_ready_and_the_next_one_more() -> None:
    pool = KeyPool(size=1)
    assert len(pool.take(3)) == 1, "one is made at once, for all of its nodes"
    until(lambda: all(one.done() for one in pool._made), "keys are ready")
    found = pool.take(3)
    assert len(found) == len(set(found)) == 3
    pool.close()
