"""Pure: facts, workload and site in, decisions with evidence out."""

from __future__ import annotations

from nginx_tune.decide.engine import decide
from nginx_tune.decide.site_defaults import complete_site

__all__ = ["complete_site", "decide"]
