"""What an audit says about its own suppression comments, as rules so that each has a page.

Their checks are in the engine: whether a comment was needed is known when all rules have run.
"""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.rule import Example, Hit, MissingFacts, Rule
from nginx_tune.audit.suppression import Suppression
from nginx_tune.documents.decisions import Evidence


def _check(_: object) -> Iterator[Hit | MissingFacts]:
    return iter(())


def _conf(comment: str, pool: str = "") -> Example:
    return Example(
        f"{pool}\nevents {{}}\nhttp {{ server {{ location / {{\n"
        f"    root /w;\n    {comment}\n    aio threads=p;\n}} }} }}\n"
    )


_SOURCE = ("nginx-tune: suppression comments",)
_GOOD = _conf("# nginx-tune: ignore[io-pool-literal-unknown] a test of the start-up failure")

MALFORMED = Rule(
    id="su-malformed",
    severity="warning",
    title="a suppression comment that cannot be read",
    why="It silences nothing: it is not of the form ignore[RULE] REASON, names a rule that does "
    "not exist, or has a day that is none.",
    fix="# nginx-tune: ignore[RULE-ID] REASON, at wish with until=YYYY-MM-DD",
    sources=_SOURCE,
    proof="source-only",
    bad=_conf("# nginx-tune: ignore[io-pool-litral-unknown] on purpose"),
    good=_GOOD,
    check=_check,
)
NO_REASON = Rule(
    id="su-no-reason",
    severity="warning",
    title="a suppression comment without a reason",
    why="It silences nothing: who reads it later could not tell whether it still holds.",
    fix="Say behind the bracket why the finding does not matter here.",
    sources=_SOURCE,
    proof="source-only",
    bad=_conf("# nginx-tune: ignore[io-pool-literal-unknown]"),
    good=_GOOD,
    check=_check,
)
EXPIRED = Rule(
    id="su-expired",
    severity="warning",
    title="a suppression comment whose day has passed",
    why="It silences nothing any more: the finding was to be looked at again by that day.",
    fix="Cure the finding and take the comment out, or give it a later day and a reason.",
    sources=_SOURCE,
    proof="source-only",
    bad=_conf(
        "# nginx-tune: ignore[io-pool-literal-unknown] until the disks come until=2020-01-31"
    ),
    good=_conf(
        "# nginx-tune: ignore[io-pool-literal-unknown] until the disks come until=2999-12-31"
    ),
    check=_check,
)
UNUSED = Rule(
    id="su-unused",
    severity="info",
    title="a suppression comment that silences nothing",
    why="The rule finds nothing here any more, or the comment is not where the finding is; left "
    "in place it would hide a new fault.",
    fix="Take the comment out, or put it before the directive that the finding names.",
    sources=_SOURCE,
    proof="source-only",
    bad=_conf(
        "# nginx-tune: ignore[io-pool-literal-unknown] it was not declared",
        "thread_pool p threads=8;",
    ),
    good=_GOOD,
    check=_check,
)

NOTICES: tuple[Rule, ...] = (MALFORMED, NO_REASON, EXPIRED, UNUSED)


def notices_of(
    one: Suppression, known_rules: frozenset[str], answered: frozenset[str], today: str | None
) -> Iterator[tuple[Rule, Hit]]:
    """What is wrong with a comment, after all rules ran; ``answered`` are those that could."""
    unknown = [rule for rule in one.rules if rule not in known_rules]
    if not one.rules:
        yield (
            MALFORMED,
            _hit(one, "this comment is no suppression that can be read", one.comment.value),
        )
    elif unknown:
        yield MALFORMED, _hit(one, f'there is no rule "{unknown[0]}"', unknown[0])
    elif not one.reason:
        yield NO_REASON, _hit(one, "a suppression without a reason", "none")
    elif one.is_expired(today):
        yield EXPIRED, _hit(one, f"this suppression ended on {one.until}", str(one.until))
    elif not one.used and answered.issuperset(one.rules):
        yield UNUSED, _hit(one, f"nothing to silence for {', '.join(one.rules)}", "0 findings")


def _hit(one: Suppression, message: str, value: str) -> Hit:
    return Hit(
        one.comment, message, [Evidence(fact="suppression", value=value, provenance="declared")]
    )
