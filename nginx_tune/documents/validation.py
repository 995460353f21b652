"""``validation``: all that a verdict on two configurations stands on."""

from __future__ import annotations

from nginx_tune.documents.base import Document
from nginx_tune.documents.measurement import Measurement
from nginx_tune.documents.scenario import ArmText
from nginx_tune.documents.verdict import Verdict


class Validation(Document, frozen=True, kw_only=True, tag="nginx-tune/validation/1"):
    """Two configurations under the same load: enough to plot, and to judge again."""

    verdict: Verdict
    requires: list[str] = []
    """The gates as they were given."""
    noise_floor: dict[str, float] = {}
    """Share by metric that two equal arms came out apart; empty without a self-check."""
    arms: list[ArmText] = []
    """Each arm's configuration in the form of ``nginx -T``, without its secrets."""
    measurements: list[Measurement] = []
    """Every block, those that were discarded too."""
    self_check: list[Measurement] = []
    """Blocks of the baseline against itself."""
