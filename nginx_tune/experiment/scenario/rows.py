"""The table of what the sources state, with the claims that the scenarios make of each row."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

import msgspec

from nginx_tune.documents.scenario import Scenario
from nginx_tune.documents.source_rows import RowClaim, SourceRow, SourceRows
from nginx_tune.report.scenario_page import expected_text


def read_source_rows(scenarios: Sequence[Scenario]) -> SourceRows:
    """The package's table; each row has the claims of the scenarios that it names."""
    file = resources.files("nginx_tune") / "sources" / "rows.toml"
    table = msgspec.convert(msgspec.toml.decode(file.read_bytes()), SourceRows)
    return SourceRows(rows=[_with_claims(row, scenarios) for row in table.rows])


def _with_claims(row: SourceRow, scenarios: Sequence[Scenario]) -> SourceRow:
    known = {scenario.name: scenario for scenario in scenarios}
    claims = [
        RowClaim(scenario=name, name=claim.name, expected=expected_text(claim))
        for name in row.scenarios
        for claim in known[name].claims
        if claim.source_row == row.row
    ]
    return msgspec.structs.replace(row, claims=claims)
