"""What many places want is written once, in the block around them."""

from collections.abc import Sequence
from random import Random

import tiers
from made_decisions import decide
from rows import each_row
from situations import host, load, site

from nginx_tune.change.generate.changes import plan_changes
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.current import CurrentTree
from nginx_tune.conf.answer_bodies import body_filter
from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.documents.decisions import Decisions, Setting

SERVER = "server {{\nlisten {port};\n{body}\n}}\n"
FILES = "location /{name}/ {{ alias /srv/{name}/; {more} }}"
PASSED = "location /{name}/ {{ proxy_pass http://127.0.0.1:9000; {more} }}"


def places(*names: str, kind: str = FILES, more: str = "") -> str:
    return "\n".join(kind.format(name=name, more=more) for name in names)


def conf(*bodies: str, http: str = "") -> str:
    servers = (SERVER.format(port=8000 + n, body=body) for n, body in enumerate(bodies))
    return f"events {{ }}\nhttp {{\n{http}\n{''.join(servers)}}}\n"


def held(tree: ConfTree, hot: Sequence[str] = ()) -> Decisions:
    given = site(roots=["/srv/1"], hot_locations=list(hot))
    return as_changes(decide(host(), load(cold_peak=200), site=given), tree)


def threads(decisions: Decisions) -> list[Setting]:
    (pools,) = (one for one in decisions.decisions if one.id == "thread-pools")
    return [one for one in pools.settings if one.directive == "aio"]


def aio(text: str, hot: Sequence[str] = ()) -> list[str]:
    """Where ``recommend -c`` says that ``aio`` goes, which is where ``plan`` writes it."""
    tree = parse_text(text, file="/n.conf")
    decisions = held(tree, hot)
    said = [(place, one.args) for one in threads(decisions) for place in one.places]
    (file,) = plan_changes(decisions, tree, lambda _: set()).files
    hunks = [one for one in file.hunks if one.decision == "thread-pools"]
    assert sorted(one.line for one in hunks) == sorted(place.line for place, _ in said)
    again = parse_text(file.content.decode(), file="/n.conf")
    assert threads(held(again, hot)) == []  # made again on its own result the plan is empty
    return [f"{place.text}: {' '.join(args)}" for place, args in said]


@each_row(
    ("text", "expected"),
    [
        (conf(places("a")), ["location /a/: threads"]),
        (conf(places("a", "b", "c")), ["server: threads"]),
        (conf(places("a", "b") + places("c", kind=PASSED)), ["server: threads"]),
        (conf("root /srv;" + places("a")), ["server: threads"]),
        (conf(places("a", "b"), places("c")), ["http: threads"]),
        (conf(places("a"), "return 301 /;"), ["location /a/: threads"]),
        (conf(places("a", "b"), "return 301 /;"), ["server: threads"]),
        # A few places whose bodies are read by a filter are left out by a line of their own.
        (
            conf(places("a", "b", "c") + places("f", more="ssi on;")),
            ["server: threads", "location /f/: off"],
        ),
        (
            conf(places("a", "b") + places("f", "g", more="ssi on;")),
            ["location /a/: threads", "location /b/: threads"],
        ),
        # What stands keeps its place.
        (
            conf(places("a", more="aio off;") + places("b", "c")),
            ["aio off: threads", "server: threads"],
        ),
        (conf(places("a", "b"), http="aio off;"), ["aio off: threads"]),
    ],
)  # fmt: skip
def test_one_line_does_for_all_that_want_it(text: str, expected: list[str]) -> None:
    assert sorted(aio(text)) == sorted(expected)


def test_what_has_a_pool_of_its_own_keeps_nothing_from_being_written_once() -> None:
    text = conf(places("a", "b", "c", "hot"))
    assert sorted(aio(text, ["/hot/"])) == ["location /hot/: threads=hot", "server: threads=cold"]


def drawn(dice: Random, depth: int = 0, path: str = "/") -> str:
    """Locations in locations, some with a filter that reads bodies, some with ``aio``."""
    found = []
    for number in range(dice.randint(0, 4 - depth)):
        name = f"{path}{number}/"
        lines = [
            dice.choice(["", "root /srv;", "proxy_pass http://127.0.0.1:9000;", "return 204;"]),
            dice.choice(["", "", "ssi on;", "ssi off;", "sub_filter a b;"]),
            dice.choice(["", "", "", "aio off;", "aio threads;"]),
        ]
        inner = drawn(dice, depth + 1, name) if depth < 2 else ""
        found.append(f"location {name} {{ {' '.join(lines)} {inner} }}")
    return "\n".join(found)


@each_row("seed", range(tiers.draws(60, 1000)))
def test_who_wants_threads_gets_them_and_no_filter_does(seed: int) -> None:
    dice = tiers.dice(f"places {seed}")
    bodies = (
        f"{dice.choice(['', 'root /srv;'])}{dice.choice(['', '', 'ssi on;'])}{drawn(dice)}"
        for _ in range(dice.randint(1, 3))
    )
    text = conf(*bodies, http=dice.choice(["", "", "aio off;"]))
    tree = parse_text(text, file="/n.conf")
    decisions = held(tree)
    if not threads(decisions):
        return
    files = plan_changes(decisions, tree, lambda _: set()).files
    again = parse_text(files[0].content.decode(), file="/n.conf")
    for old, new in zip(CurrentTree(tree).answering, CurrentTree(again).answering, strict=True):
        if new.own.block is not None and new.own.block.all("return"):
            continue  # answers without a file
        if body_filter(new) is None:
            assert new.value("aio") == "threads", (tiers.REPEAT, text, str(new))
        else:
            assert new.value("aio", "off") in ("off", old.value("aio")), (
                tiers.REPEAT,
                text,
                str(new),
            )
