"""One rule on one configuration on one host."""

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.facts import Facts


def outcome(rule: str, conf: str, facts: Facts | None) -> int | str:
    """How many findings there are, or the first fact that is missing for any."""
    (one,) = (known for known in ALL if known.id == rule)
    found = audit(parse_text(conf), facts, [one])
    if found.needs_facts:
        assert not found.findings
        return found.needs_facts[0].facts[0]
    return len(found.findings)
