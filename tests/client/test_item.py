from __future__ import annotations

from datetime import UTC, datetime

from muster.client.item import ItemRecord
from muster.client.table import Table


class Visit(ItemRecord, frozen=True):
    who: str
    at: datetime

    def _cells(self) -> dict[str, str]:
        return {"WHO": self.who, "WHY": "-", "YEAR": str(self.at.year)}


VISIT = Visit("Ana <ana@example.org>", datetime(2026, 3, 1, tzinfo=UTC))


def test_data_are_ready_for_json() -> None:
    assert VISIT.to_dict() == {"who": "Ana <ana@example.org>", "at": "2026-03-01T00:00:00.000000Z"}


def test_a_text_has_what_there_is() -> None:
    assert str(VISIT) == "Ana <ana@example.org> 2026"


def test_a_table_has_its_facts_and_its_cells() -> None:
    table = Table([VISIT])
    assert table.to_dict() == {"who": [VISIT.who], "at": [VISIT.at]}
    assert str(table).split() == ["WHO", "WHY", "YEAR", "Ana", "<ana@example.org>", "-", "2026"]


def test_a_notebook_shows_a_row() -> None:
    shown = VISIT._repr_html_()
    assert "Ana &lt;ana@example.org&gt;" in shown and "YEAR" in shown
