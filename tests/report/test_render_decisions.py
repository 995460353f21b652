from __future__ import annotations

from nginx_tune.documents.decisions import Decision, Decisions, Evidence, Predicted, Setting
from nginx_tune.report.decisions import render_decisions

ENABLE = Decision(
    id="thread-pools",
    verdict="enable",
    summary="Offload file reads: misses hold the loop.",
    settings=[Setting(context="location", directive="aio", args=["threads"])],
    evidence=[Evidence(fact="page cache", value=192 << 20, unit="bytes")],
    predicted=[Predicted(metric="ratio(hot.mean)", low=0.001, expected=0.004, high=0.02)],
    confidence="high",
    flips_when=["pools pay above 172.9 MiB; you have 1.0 GiB"],
    risks=["overflow"],
    next_command="nginx-tune validate nginx.conf",
)
KEEP = Decision(id="backlog", verdict="keep", summary="The default of 511.")
OPEN = Decision(id="reuseport", verdict="not_enough_evidence", summary="Not known.")


def test_what_changes_comes_first_and_what_does_not_in_one_line() -> None:
    text = render_decisions(Decisions(decisions=[KEEP, ENABLE, OPEN]))
    assert text == (
        "Kind of site: static (assumed; --kind or -c says it)\n"
        "\n"
        "thread-pools: enable (high confidence)\n"
        "    Offload file reads: misses hold the loop.\n"
        "    write       aio threads; (location)\n"
        "    because     page cache: 192.0 MiB (measured)\n"
        "    predicted   ratio(hot.mean): 0.004× [0.001× – 0.02×]\n"
        "    flips when  pools pay above 172.9 MiB; you have 1.0 GiB\n"
        "    risk        overflow\n"
        "    next        nginx-tune validate nginx.conf\n"
        "\n"
        "reuseport: not enough evidence (low confidence)\n"
        "    Not known.\n"
        "\n"
        "Nothing to change:\n"
        "backlog: keep. The default of 511.\n"
    )


def test_nothing_from_outside_steers_the_terminal() -> None:
    evil = Decision(id="accept", verdict="keep", summary="a\x1b[31m\nb\u202e")
    text = render_decisions(Decisions(decisions=[evil]))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert text.count("\n") == 4
