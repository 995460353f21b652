"""What a host lets nginx-tune measure, one line each."""

from __future__ import annotations

from nginx_tune.documents.doctor import Check, Doctor
from nginx_tune.report.screen import Line, Screen, Table
from nginx_tune.report.text import plain

_SAID = {"ok": "ok", "missing": "missing", "unknown": "cannot tell"}


def doctor_screen(doctor: Doctor) -> Screen:
    """How many checks are ok and which are not, then each with what was found."""
    rows = [(check.name, _SAID[check.status], _detail(check)) for check in doctor.checks]
    lacking = [check.name for check in doctor.checks if check.status != "ok"]
    count = len(doctor.checks) - len(lacking)
    answer = f"{count} of {len(doctor.checks)} checks are ok"
    answer += f"; not ok: {', '.join(map(plain, lacking))}" if lacking else ""
    return [[Line(answer, "answer")], [Table(rows, has_head=False)]]


def _detail(check: Check) -> str:
    said = plain(check.detail)
    if check.status != "ok":
        said += f"; for {check.needed_for}" + (f"; {plain(check.fix)}" if check.fix else "")
    return said
