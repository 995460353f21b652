"""Decisions with evidence, made of facts, a workload and a site; pure."""

from __future__ import annotations

from nginx_tune.decide.defaults import complete_site
from nginx_tune.decide.engine import decide

__all__ = ["complete_site", "decide"]
