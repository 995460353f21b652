"""An arm of an experiment: a configuration under test and how it is run."""

from __future__ import annotations

import msgspec

from nginx_tune.documents.lab import Start
from nginx_tune.documents.scenario import StandIn


class Conduct(msgspec.Struct, frozen=True, kw_only=True):
    """What is not plain about how an arm runs."""

    binary: str | None = None
    """Another nginx than the session's."""
    stand_in: StandIn = "none"
    """A bare server in nginx's place."""
    workers: int = 1
    """Of the stand-in."""
    sysctls: dict[str, str] = {}
    """Of the network namespace, for each block."""
    reload_texts: list[str] = []
    """Configurations that nginx is reloaded with, one after the other; none for no reload."""
    reload_seconds: float = 1.0
    """From one reload to the next."""
    connections_log: str | None = None
    """Where the server says which worker served which connection."""
    starts: Start = "cold"
    """What of the data is in the page cache as a block starts."""
    traces: bool = True
    """Whether loop turns are traced."""
    drain_seconds: float | None = None
    """How long to wait for the last answers; null for what the plan says."""
    cached: list[str] = []
    """URLs that are asked for before each block, from an nginx of this arm that is then ended."""
    counts_opens: bool = False
    """Whether calls of open() are counted."""
    warm_names: bool = False
    """Whether every name is looked up before nginx starts."""
    cleartext: bool = False
    """Whether it listens without TLS where the lab has it."""
    ahead: bool = False
    """Whether nginx runs ahead of what else the machine does; not for a host that serves."""


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration under test."""

    name: str
    conf_path: str
    conf_text: str | None = None
    """Written to ``conf_path`` before each block; null when the file is the operator's own."""
    error_log: str | None = None
    """The main context's error log; null for standard error."""
    prefix: str | None = None
    """nginx's ``-p``; null for the build's own."""
    prime: list[str] = []
    """URLs fetched once before each load: what must be in the page cache."""
    limited: dict[str, list[int]] = {}
    """By class, what limits of the configuration answer where they refuse a request."""
    conduct: Conduct = Conduct()
