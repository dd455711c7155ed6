"""Which store a MUSTER_HOME has."""

from __future__ import annotations

import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from muster.control.open_store import open_store
from muster.errors import StoreError
from muster.storage.home import Home
from muster.store.sqlite.store import SqliteStore


@pytest.fixture
def home(own_home: Path) -> Home:
    return Home(own_home)


def test_without_a_url_the_records_are_in_a_file(home: Home) -> None:
    with closing(open_store(home)) as store:
        assert isinstance(store, SqliteStore)
    assert home.records == home.database
    assert not home.database_id.exists()


def test_a_url_that_cannot_be_read_is_no_reason_to_use_the_file(home: Home) -> None:
    home.database_url.mkdir()
    with pytest.raises(StoreError, match=r"cannot read .*/database_url: "):
        open_store(home)
    assert not home.database.exists()


def test_a_store_in_a_file_needs_no_library_of_the_server(home: Home) -> None:
    code = (
        "import sys\n"
        "for name in ('psycopg', 'alembic', 'sqlalchemy'):\n"
        "    sys.modules[name] = None\n"
        "from muster.client.client import Client\n"
        "job, new = Client().job(command=['true'])\n"
        "assert Client().start(Client().prepare_run(job, new_job=new)).wait(60).state\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_library_is_named(home: Home) -> None:
    home.database_url.write_text("postgresql://127.0.0.1/x\n")
    code = (
        "import sys\n"
        "sys.modules['psycopg'] = None\n"
        "from muster.control.open_store import open_store\n"
        "from muster.storage.home import default_home\n"
        "open_store(default_home())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "names a PostgreSQL database, and psycopg is not installed" in done.stderr
    assert "pip install 'muster-jobs[server]'" in done.stderr


def test_the_id_of_a_home_is_made_once(home: Home) -> None:
    from muster.control.open_store import _home_id

    made = _home_id(home)
    assert (_home_id(home), home.database_id.read_text().strip()) == (made, made)
    assert stat.S_ISREG(home.database_id.stat().st_mode)
    assert [path.name for path in home.root.iterdir()] == ["database_id"], "nothing is left over"
