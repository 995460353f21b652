"""Which rules are asked, what comments silence, and what is known already."""

import pytest
from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import select_rules
from nginx_tune.audit.suppression import NOTICES, baseline_of, without_known
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.findings import Baseline, Findings
from nginx_tune.errors import UsageError

EVERY = (*ALL, *NOTICES)
POOL = next(rule for rule in ALL if rule.id == "io-pool-literal-unknown")
SU = [POOL, *NOTICES]


def _ids(*select: str, ignore: tuple[str, ...] = ()) -> set[str]:
    return {rule.id for rule in select_rules(EVERY, select=select, ignore=ignore)}


def test_names_groups_and_patterns_choose_rules() -> None:
    assert _ids("io-pool-literal-unknown") == {"io-pool-literal-unknown"}
    assert _ids("su") == {rule.id for rule in NOTICES}
    assert _ids("cf,su-unused") == {"su-unused", *(r.id for r in ALL if r.id.startswith("cf-"))}
    assert _ids("cf-directive-*", ignore=("*-unknown", "*-twice", "cf-directive-version")) == {
        "cf-directive-arguments", "cf-directive-misplaced", "cf-directive-obsolete",
    }  # fmt: skip
    assert _ids() == {rule.id for rule in EVERY if "default" in rule.profiles}


@each_row("word", ["io-pool-litral-unknown", "zz", "*-nothing", "i"])
def test_a_name_that_no_rule_has_is_wrong_usage(word: str) -> None:
    with pytest.raises(UsageError, match="no rule or group"):
        select_rules(EVERY, ignore=[word])


CONF = """events {}
http { server {
    location /a { %s
        aio threads=p; %s
    }
    location /b { root /w; }
} }
"""
OK = "# nginx-tune: ignore[io-pool-literal-unknown] it is declared by the package"


def _audit(conf: str, today: str | None = "2026-11-20") -> Findings:
    return audit(parse_text(conf), None, SU, today=today)


@each_row(
    "conf",
    [
        CONF % ("\n" + OK, ""),
        CONF % ("\n # other\n" + OK + "\n # more", ""),
        CONF % ("", OK),
        CONF % (OK, ""),
        OK.replace("ignore", "ignore-file") + "\n" + CONF % ("", ""),
        OK + "\n" + (CONF % ("", "")).removeprefix("events {}\n"),
        CONF % ("", OK.replace("[", "[su-unused, ")),
        CONF % ("", OK + " until=2026-11-20"),
    ],
)
def test_a_comment_with_a_reason_silences_its_rule(conf: str) -> None:
    found = _audit(conf)
    assert [one.rule for one in found.findings if one.rule.startswith("io-")] == []
    (one,) = found.suppressed
    assert (one.rule, one.by) == ("io-pool-literal-unknown", "comment")
    assert one.reason == "it is declared by the package"
    assert one.fingerprint


@each_row(
    ("conf", "notice"),
    [
        (CONF % ("", OK.partition("]")[0] + "]"), "su-no-reason"),
        (CONF % ("", OK + " until=2026-11-19"), "su-expired"),
        (CONF % ("", OK.partition("]")[0] + "] until=2027-01-01"), "su-no-reason"),
        (CONF % ("", OK.replace("literal", "litral")), "su-malformed"),
        (CONF % ("", "# nginx-tune: please ignore"), "su-malformed"),
        (CONF % ("", OK + " until=2027-13-01"), "su-malformed"),
        (CONF % ("", OK + " until=soon"), "su-malformed"),
        (CONF % ("", "\n" + OK), "su-unused"),
        (CONF.replace("root /w;", "root /w; " + OK + "\n") % ("", ""), "su-unused"),
        (CONF.replace("root /w;", "# x\n" + OK + "\n") % ("", ""), "su-unused"),
    ],
)
def test_a_comment_that_is_wrong_silences_nothing_and_is_told(conf: str, notice: str) -> None:
    found = _audit(conf)
    assert [one.rule for one in found.findings] == ["io-pool-literal-unknown", notice]
    assert found.suppressed == []
    place = found.findings[1]
    assert conf.split("\n")[place.line - 1][place.column - 1 :].startswith("# nginx-tune:")


def test_a_comment_for_a_rule_that_was_not_asked_is_not_called_unused() -> None:
    conf = (CONF % ("", "")).replace("root /w;", "root /w; " + OK)
    assert [one.rule for one in audit(parse_text(conf), None, NOTICES).findings] == []
    lacking = next(rule for rule in ALL if rule.id == "io-no-pool-cold-dataset")
    text = f"events {{}} http {{ server {{ root /w; # nginx-tune: ignore[{lacking.id}] x\n }} }}"
    found = audit(parse_text(text), None, [lacking, *NOTICES])
    assert [one.rule for one in found.findings] == []
    assert found.needs_facts


def test_what_is_no_comment_silences_nothing() -> None:
    for text in (f'add_header x "{OK}";', f"content_by_lua_block {{ --[[ {OK} ]] }}"):
        conf = (CONF % ("", "")).replace("root /w;", text)
        assert [one.rule for one in _audit(conf).findings] == ["io-pool-literal-unknown"]


BEFORE = "events {} http { server { aio threads=p; } server { aio threads=q; aio_write on; } }"


def _known(conf: str) -> Baseline:
    return baseline_of(audit(parse_text(conf), None, [POOL]), "nginx.conf")


def _fresh(conf: str, known: Baseline) -> list[str]:
    found = audit(parse_text(conf), None, [POOL])
    compared = without_known(found, known, by="baseline", reason="x")
    assert len(compared.findings.findings) + len(compared.findings.suppressed) == len(
        found.findings
    )
    return [one.message.split('"')[3] for one in compared.findings.findings]


def test_a_baseline_survives_moved_lines_and_counts_copies() -> None:
    known = _known(BEFORE)
    assert decode(Baseline, encode(known)) == known
    assert _fresh(BEFORE, known) == []
    moved = BEFORE.replace("server {", "\n\n# more\nserver {\n   gzip on;")
    assert _fresh(moved, known) == []
    assert _fresh(BEFORE.replace("threads=q", "threads=r"), known) == ["r"]
    copied = BEFORE.replace("http {", "http { server { aio threads=p; }")
    assert _fresh(copied, known) == ["p"]


def test_faults_of_a_baseline_that_are_gone_are_counted() -> None:
    found = audit(parse_text("events {}"), None, [POOL])
    assert without_known(found, _known(BEFORE), by="baseline", reason="x").gone == 2


def test_fingerprints_are_unique_and_the_same_in_another_place() -> None:
    conf = "events {} http {" + " server { aio threads=p; }" * 3 + "}"
    here = audit(parse_text(conf, file="/etc/nginx/nginx.conf"), None, [POOL]).findings
    there = audit(parse_text("\n" + conf, file="/srv/x/nginx.conf"), None, [POOL]).findings
    assert len({one.fingerprint for one in here}) == 3
    assert [one.fingerprint for one in here] == [one.fingerprint for one in there]
