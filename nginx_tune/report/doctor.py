"""What a host lets nginx-tune measure, one line each."""

from __future__ import annotations

from nginx_tune.documents.doctor import Check, Doctor
from nginx_tune.report.text import plain

_SAID = {"ok": "ok", "missing": "missing", "unknown": "cannot tell"}


def render_doctor(doctor: Doctor) -> str:
    """The lines."""
    width = max((len(check.name) for check in doctor.checks), default=0)
    lines = [_line(check, width) for check in doctor.checks]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _line(check: Check, width: int) -> str:
    line = f"{check.name:<{width}}  {_SAID[check.status]:<11}  {plain(check.detail)}"
    if check.status == "ok":
        return line
    line += f"; for {check.needed_for}"
    return f"{line}; {plain(check.fix)}" if check.fix else line
