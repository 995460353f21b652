from msgspec.structs import replace
from rows import each_row

from nginx_tune.documents.decisions import Decision, Decisions, Evidence, Predicted, Setting
from nginx_tune.report.decisions import answer_screen, decisions_screen, switch_word
from nginx_tune.report.screen import plain_text

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
UNBUFFERED = Setting(context="location", directive="proxy_buffering", args=["off"])
KEEP = Decision(id="backlog", verdict="keep", summary="The default of 511.")
OPEN = Decision(id="reuseport", verdict="not_enough_evidence", summary="Not known.")


def test_the_answer_has_the_switches_then_how_sure_it_is_and_what_to_type() -> None:
    text = plain_text(answer_screen(Decisions(decisions=[KEEP, ENABLE, OPEN]), "nginx-tune plan"))
    assert text == (
        "1 of 3 decisions changes something.\n"
        "\n"
        "thread-pools  on       Misses hold the loop\n"
        "reuseport     measure  Not known\n"
        "\n"
        "Not known yet: reuseport; -v shows what settles each.\n"
        "Kind of site: static (assumed; give it with --kind or -c)\n"
        "1 more stay as they are. -v shows reasons and risks.\n"
        "\n"
        "Next: nginx-tune plan\n"
    )


DISKS = "nginx-tune inspect --dataset /srv --disks -f json -o facts.json"


@each_row(
    ("decision", "first"),
    [
        (ENABLE, "Next: nginx-tune plan"),
        (replace(ENABLE, next_command=DISKS), "Next: nginx-tune plan"),
        (
            replace(ENABLE, confidence="low", next_command=DISKS),
            f"Next (settle thread-pools): {DISKS}",
        ),
        (
            replace(
                ENABLE,
                verdict="not_enough_evidence",
                next_command="nginx-tune recommend --nginx-version VERSION",
            ),
            "Next (settle thread-pools): nginx-tune recommend --nginx-version VERSION --cpus 8",
        ),
        (replace(OPEN, next_command="nginx-tune learn LOG"), "Next: nginx-tune plan"),
    ],
)
def test_pools_are_settled_first(decision: Decision, first: str) -> None:
    screen = answer_screen(Decisions(decisions=[decision]), "nginx-tune plan", ["--cpus", "8"])
    lines = plain_text(screen).rstrip().rpartition("\n\n")[2].splitlines()
    assert lines == [first, *(["Or as it is: nginx-tune plan"] if "settle" in first else [])]


@each_row(
    ("decision", "word"),
    [
        (ENABLE, "on"),
        (replace(ENABLE, settings=[]), "on"),  # by the lines of another decision
        (replace(ENABLE, settings=[], summary="Already so. Misses hold the loop."), "as it is"),
        (replace(ENABLE, settings=[], verdict="not_applicable"), "stays off"),
        (replace(ENABLE, verdict="raise"), "threads"),
        (replace(ENABLE, verdict="set", settings=[UNBUFFERED]), "set"),
    ],
)
def test_a_row_has_the_state_that_its_decision_leads_to(decision: Decision, word: str) -> None:
    assert switch_word(decision, changes=bool(decision.settings)) == word


def test_every_reason_and_risk_is_on_the_long_screen() -> None:
    text = plain_text(decisions_screen(Decisions(decisions=[KEEP, ENABLE, OPEN])))
    for part in (
        "write       aio threads; (location)",
        "because     page cache: 192.0 MiB (measured)",
        "predicted   ratio(hot.mean): 0.004× [0.001× – 0.02×]",
        "flips when  pools pay above 172.9 MiB; you have 1.0 GiB",
        "risk        overflow",
        "next        nginx-tune validate nginx.conf",
    ):
        assert part in text
    assert text.index("reuseport: not enough evidence") < text.index("backlog")


def test_nothing_from_outside_steers_the_terminal() -> None:
    evil = Decision(id="accept", verdict="keep", summary="a\x1b[31m\nb\u202e")
    for screen in (
        answer_screen(Decisions(decisions=[replace(evil, id="reuseport")]), "x"),
        decisions_screen(Decisions(decisions=[evil])),
    ):
        text = plain_text(screen)
        assert "\x1b" not in text
        assert "\u202e" not in text
