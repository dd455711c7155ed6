"""The journal of a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.node.journal import Journal
from muster.node.messages import Ended, ExitReport, Joined, Launched, Message, Started

END = Ended(3, ExitReport(1, 0, "exit", "it is\nover"), kept=True)


def filled(path: Path) -> Journal:
    journal = Journal(str(path))
    journal.begin(3)
    for message in (Joined(3), Started(3), END):
        journal.add(message)
    return journal


def test_a_new_node_has_said_nothing(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "journal"))
    assert (journal.said, journal.incarnation, journal.ended) == ([], -1, True)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    assert filled(path).said == [Launched(3), Joined(3), Started(3), END]
    journal = Journal(str(path))
    assert journal.said == filled(path).said
    assert (journal.incarnation, journal.ended) == (3, True)
    assert path.stat().st_mode & 0o777 == 0o600


def test_only_the_newest_incarnation_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    assert filled(path).begin(4) == Launched(4)
    journal = Journal(str(path))
    assert (journal.said, journal.ended) == ([Launched(4)], False)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_line_that_was_not_written_to_its_end_is_ignored(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "journal"
    filled(path)
    path.write_bytes(path.read_bytes()[:-cut])
    assert Journal(str(path)).said == [Launched(3), Joined(3), Started(3)]


@pytest.mark.parametrize("content", [b"", b"x\n", b"[]\n", b"{}\n"])
def test_what_is_no_journal_counts_as_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content)
    assert Journal(str(path)).incarnation == -1


def test_what_cannot_be_written_is_known_nevertheless(tmp_path: Path) -> None:
    journal = filled(tmp_path / "journal")
    (tmp_path / "journal").unlink()
    (tmp_path / "journal").mkdir()
    message: Message = Started(3)
    journal.add(message)
    assert journal.said[-1] == message
    with pytest.raises(OSError, match="directory"):
        journal.begin(4)


def test_a_line_that_was_cut_off_spoils_none_that_follows(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    filled(path)
    path.write_bytes(path.read_bytes()[:-10])  # the server was killed, or the disk was full
    Journal(str(path)).add(END)
    assert Journal(str(path)).said == [Launched(3), Joined(3), Started(3), END]


def test_what_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(str(path))
    journal.begin(3)
    path.unlink()
    path.mkdir()
    journal.add(Joined(3))
    path.rmdir()
    journal.add(Started(3))
    journal.add(END)
    assert Journal(str(path)).said == [Launched(3), Joined(3), Started(3), END]
