"""Which change is the last: that is what ``rollback`` without a name takes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiers import REPEAT, dice, draws

from nginx_tune.change.apply import journal
from nginx_tune.change.apply.journal import State


def test_changes_stand_in_the_order_in_which_they_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many in one second, and with a clock that is set back now and then."""
    draw = dice("a clock that is set back")
    state = State(tmp_path / "state")
    state.prepare()
    hour = 12
    begun = []
    for _ in range(draws(60, 600)):
        hour = min(23, max(0, hour + draw.choice([0, 0, 0, 1, -1])))
        monkeypatch.setattr(journal, "_now", lambda hour=hour: f"20261123T{hour:02}0000Z")
        begun.append(state.new().id)
    assert [one.id for one in state.all()] == begun, REPEAT
