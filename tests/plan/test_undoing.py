"""Each line that stands against a decision is found, and has what undoes it."""

from typing import cast

from rows import each_row

from nginx_tune.change.plan.changing import UNDO, as_changes
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.decisions import Decision, DecisionId, Decisions, DecisionVerdict

AGAINST: dict[str, tuple[DecisionVerdict, str, str, list[str]]] = {
    "thread-pools": ("disable", "", "aio threads;", ["aio off"]),
    "accept": ("set", "multi_accept on;", "", ["multi_accept off"]),
    "reuseport": ("disable", "", "listen 81 reuseport;", []),
    "open-file-cache": ("disable", "", "open_file_cache max=9;", ["open_file_cache off"]),
    "directio": ("disable", "", "directio 4m;", ["directio off"]),
    "ktls": (
        "disable", "", "ssl_conf_command Options KTLS;", ["ssl_conf_command Options -KTLS"],
    ),
    "sendfile-max-chunk": ("keep", "", "sendfile_max_chunk 0;", ["sendfile_max_chunk 2m"]),
}  # fmt: skip
HARMLESS = {
    "thread-pools": "aio off;",
    "reuseport": "listen 81;",
    "open-file-cache": "open_file_cache off;",
    "directio": "directio off;",
    "ktls": "ssl_conf_command Options -KTLS;",
    "sendfile-max-chunk": "sendfile_max_chunk 1m;",
}


def held(name: str, verdict: DecisionVerdict, events: str, server: str) -> Decision:
    text = f"events {{ {events} }} http {{ server {{ listen 80; root /srv; {server} }} }}"
    decided = Decision(id=cast("DecisionId", name), verdict=verdict, summary="As said.")
    made = Decisions(decisions=[decided])
    [found] = as_changes(made, parse_text(text, file="/n.conf")).decisions
    return found


def test_every_way_to_undo_is_tried() -> None:
    assert AGAINST.keys() == UNDO.keys()


@each_row("name", AGAINST)
def test_what_stands_against_a_decision_is_undone(name: str) -> None:
    verdict, events, server, undone = AGAINST[name]
    found = held(name, verdict, events, server)
    is_number = name == "sendfile-max-chunk"
    assert found.verdict == ("set" if is_number else "disable")
    assert [f"{one.directive} {' '.join(one.args)}" for one in found.settings] == undone
    [line] = [str(one.value) for one in found.evidence if one.fact == "/n.conf:1"]
    assert line.rstrip(";") == (events or server).rstrip(";")
    change = "2m instead of no limit" if is_number else f"Remove {line}"
    assert found.summary == f"{change}. As said."


@each_row("name", HARMLESS)
def test_what_does_no_harm_stays(name: str) -> None:
    verdict = AGAINST[name][0]
    found = held(name, verdict, "", HARMLESS[name])
    assert (found.verdict, found.settings, found.evidence) == (verdict, [], [])


def test_what_another_verdict_says_is_not_undone() -> None:
    assert held("open-file-cache", "keep", "", "open_file_cache max=9;").settings == []


def test_threads_stay_where_files_are_read_from_the_disk_each_time() -> None:
    found = held("thread-pools", "disable", "", "aio threads; directio 4m;")
    assert found.settings == []
