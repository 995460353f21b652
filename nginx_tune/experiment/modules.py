"""Names of modules that run as processes of their own: to name one is not to load it."""

from __future__ import annotations

MODULE_INSIDE = "nginx_tune.experiment.inside"
