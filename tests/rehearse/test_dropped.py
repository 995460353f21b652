"""What a change takes away though all is answered: names, locations, and other answers."""

from types import SimpleNamespace
from typing import Any

from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.experiment.operations import Response
from nginx_tune.experiment.rehearse.change import dropped_places
from nginx_tune.experiment.rehearse.run import compare_answers, compared

A = "server {{ listen 80; server_name a.test; {} }}"
B = "server { listen 80; server_name b.test; location /b { } }"
OLD = A.format("location / { } location /api/ { }") + B


def tree_of(text: str) -> ConfTree:
    return parse_text(text, file="/etc/nginx/nginx.conf")


def dropped(old: str, new: str) -> list[str]:
    trees = [tree_of(f"events {{}} http {{ {text} }}") for text in (old, new)]
    return [one.replace("/etc/nginx/nginx.conf", "N") for one in dropped_places(*trees)]


def test_names_and_locations_that_are_gone_are_told() -> None:
    for new, said in (
        (A.format("location / { } location /api/ { }"),
         ["*:80, b.test: no server has this name any more, and that of a.test answers"]),
        (A.format("location / { }") + B, ["location /api/ of a.test (N:1): location / answers"]),
        (A.format("location = / { }") + B,
         ["location / of a.test (N:1): the server itself answers",
          "location /api/ of a.test (N:1): the server itself answers"]),
    ):  # fmt: skip
        assert dropped(OLD, new) == said, new


def test_what_is_there_by_another_word_is_not() -> None:
    texts = [
        OLD,
        OLD.replace("/api/", "^~ /api/"),
        OLD.replace("/api/", "~ ^/api/"),
        OLD.replace("b.test", "*.test"),
        OLD.replace("b.test", "~^b"),
        OLD.replace("server_name a.test", "server_name www.a.test"),  # the default by another name
        OLD.replace("80", "8080"),  # where it listens is told of listeners
        OLD + "server { listen 81; server_name c.test; }",
        B + OLD.removesuffix(B),
    ]
    assert {new: found for new in texts if (found := dropped(OLD, new))} == {}


def test_patterns_and_a_name_of_several() -> None:
    old = "server { listen 80; server_name a.test w.test _; location ~ x$ { } location @f { } }"
    new = "server { listen 80; server_name a.test; location ~ y$ { } }"
    # The server that has lost a name is the default one, and goes on answering it.
    assert dropped(old, new) == ["location ~ x$ of a.test (N:1): the server itself answers /anyx"]
    beside = "server { listen 80 default_server; server_name z.test; }"
    assert dropped(beside + old, beside + new) == [
        "*:80, w.test: no server has this name any more, and that of z.test answers",
        "location ~ x$ of a.test (N:1): the server itself answers /anyx",
    ]


IMAGES = r"location ~* \.(jpg|png)$ { expires 1d; }"


def test_a_location_that_is_written_anew_is_not_gone() -> None:
    table = [
        (IMAGES, r"location ~* \.(jpg|png|webp)$ { expires 1d; }"),
        (IMAGES, r"location ~* \.jpg$ { } location ~* \.png$ { }"),
        (IMAGES, r"location ~* ^.+\.(?:jpe?g|png)$ { }"),
        ("location ~ ^/img/ { }", "location /img/ { }"),
        ("location ~ ^/(img|sub)/ { }", "location ^~ /img/ { } location ^~ /sub/ { }"),
        (r"location ~ ^/v[0-9]+/(?<id>\d{4})/?$ { }", "location ~ ^/v { }"),
        ("location /api { }", "location = /api { return 301 /api/; } location /api/ { }"),
        ("location /api/ { }", "location ~ ^/api(/|$) { }"),
        ("location /api/ { }", "location /api { }"),
        ("location /static { }", "location /static/ { }"),
        ("location /ping { }", "location = /ping { }"),
        (r"location ~ \.ht { deny all; }", r"location ~ /\.ht { deny all; }"),
        # Of which no sample is known.
        (r"location ~ \p{L}$ { }", ""),
        (r"location ~ ^/(?=x)y { }", ""),
        # What another took before it.
        ("location ^~ /a/ { } location ~ ^/a/x { }", "location ^~ /a/ { }"),
    ]
    assert {row: found for row in table if (found := dropped_location(*row))} == {}


def dropped_location(old: str, new: str) -> list[str]:
    around = "location / {{ }} {}"
    return dropped(A.format(around.format(old)), A.format(around.format(new)))


def test_a_server_answers_what_its_last_location_did() -> None:
    old = A.format("location / { root /srv; } location /api/ { }")
    assert dropped(old, A.format("root /srv; location /api/ { }")) == []
    assert dropped(old, A.format("root /srv;")) == [
        "location /api/ of a.test (N:1): the server itself answers"
    ]


def test_a_location_is_gone_where_one_that_was_there_before_answers() -> None:
    table = [
        (IMAGES, "", r"location ~* \.(jpg|png)$ of a.test (N:1): location / answers /any.jpg"),
        (IMAGES, r"location ~* \.jpg$ { }",
         r"location ~* \.(jpg|png)$ of a.test (N:1): location / answers /any.png"),
        (r"location ~ ^/(api|v[12])/\w+\.php$ { }", "location /api/ { }",
         r"location ~ ^/(api|v[12])/\w+\.php$ of a.test (N:1): location / answers /v1/any.php"),
        ("location ~ /\\.ht { deny all; }", "",
         r"location ~ /\.ht of a.test (N:1): location / answers /.ht"),
        ("location /api { }", "", "location /api of a.test (N:1): location / answers"),
        ("location /api/ { }", "location = /api/ { }",
         "location /api/ of a.test (N:1): location / answers"),
        ("location = /x { }", "", "location = /x of a.test (N:1): location / answers"),
        ("location /a/ { location ~ b$ { } }", "location /a/ { }",
         "location ~ b$ of a.test (N:1): location /a/ answers /a/anyb"),
    ]  # fmt: skip
    for old, new, said in table:
        assert dropped_location(old, new) == [said], (old, new)


def test_answers_are_compared_unless_they_change_by_themselves() -> None:
    ok = Response(status=200, digest="x", length_bytes=4)
    other, third = (Response(status=200, digest=name, length_bytes=5) for name in "yz")
    gone, silent = Response(status=503), Response(fault="reset")
    found = compared(
        [
            ("same", (ok, ok), ok),
            ("other", (ok, ok), other),
            ("unsteady", (other, third), ok),
            ("streamed", (Response(status=200), Response(status=200)), Response(status=200)),
            ("sent on", (ok, ok), Response(status=301)),
            ("gone", (ok, ok), gone),
            ("silent", (ok, ok), silent),
            ("never served", (gone, gone), gone),
            ("put right", (gone, gone), ok),
            ("not asked", (ok, ok), Response(was_asked=False)),
        ],
        has_silent=False,
    )
    assert found.worse == ["gone: OLD answers 200, NEW 503", "silent: OLD answers 200, NEW reset"]
    assert found.other == [
        "other: 4 bytes from OLD, 5 from NEW", "sent on: OLD answers 200, NEW 301",
    ]  # fmt: skip


def test_of_places_that_a_limit_refused_and_nobody_asked_again_nothing_is_said() -> None:
    """Each is served by an nginx that has counted nothing yet; they are asked one by one."""

    def survey(variant: str, questions: list[Any]) -> list[Response]:
        refused = variant == "new" and len(questions) > 1
        return [Response(status=503 if refused else 200)] * len(questions)

    workbench: Any = SimpleNamespace(
        questions={f"place {n}": SimpleNamespace(target=None) for n in range(20)},
        experiment=SimpleNamespace(variants=("old", "new")),
        session=SimpleNamespace(survey=survey),
        has_silent=False,
    )
    limits: Any = SimpleNamespace(statuses=lambda _: {503})
    found = compare_answers(workbench, limits)
    assert (found.worse, found.other) == ([], [])
    (said,) = found.notes
    assert said.startswith("8 further places: refused by a limit of NEW")
    limits = SimpleNamespace(statuses=lambda _: set())
    assert len(compare_answers(workbench, limits).worse) == 20
