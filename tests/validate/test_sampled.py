"""What is loaded of the files below a root, by what some of them are answered with."""

from __future__ import annotations

from rows import each_row

from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.scopes import servers
from nginx_tune.conf.tree import parse_text
from nginx_tune.experiment.operations import Response
from nginx_tune.experiment.validate.sampled import (
    _STUB_DIGEST,
    Batch,
    batches_of,
    settle,
    with_typical_first,
)
from nginx_tune.measure.load.classes import ServedFile

STUB = Response(status=200, length_bytes=2048, digest=_STUB_DIGEST)


def files(count: int, ending: str = "css") -> list[ServedFile]:
    return [ServedFile(f"/f{number}.{ending}", 100 + number) for number in range(count)]


def same(file: ServedFile) -> Response:
    return Response(status=200, length_bytes=file.bytes, digest="d")


@each_row(
    ("baseline", "candidate", "why"),
    [
        (STUB, STUB, "by an application, whose stub answers 2048"),
        (Response(status=301), Response(status=301), "answers 301"),
        (Response(status=404), None, "answers 404"),
        (Response(status=503), Response(status=503), "answers 503"),
        (Response(fault="timed out"), Response(fault="timed out"), "no answer: timed out"),
        (None, Response(status=200, length_bytes=7), "the configurations answer 1"),
        (None, STUB, "2048 bytes for the same file"),
    ],
)
def test_what_is_not_served_from_its_file_is_left_out_whole(
    baseline: Response | None, candidate: Response | None, why: str
) -> None:
    batch = Batch(None, files(9))
    answers = {f.url: (baseline or same(f), candidate or same(f)) for f in batch.sample}
    found = settle(batch, answers)
    assert (found.files, found.unsettled) == ([], [])
    assert all(why.split(" bytes", maxsplit=1)[0] in said or why in said
               for said in found.refused.values()), found  # fmt: skip
    assert next(iter(found.refused)).startswith("/f0.css")


@each_row("candidate", [Response(status=403), Response(fault="reset"), None])
def test_what_the_baseline_serves_is_loaded_whatever_the_candidate_does(
    candidate: Response | None,
) -> None:
    batch = Batch(None, files(9))
    found = settle(batch, {f.url: (same(f), candidate or same(f)) for f in batch.sample})
    assert found == (batch.files, {}, [])


def test_where_some_are_answered_otherwise_all_are_asked_and_only_those_loaded() -> None:
    batch = Batch(None, files(400))
    refused = {"/f0.css", "/f7.css"}
    forbidden = Response(status=403)

    def answers(asked: list[ServedFile]) -> dict[str, tuple[Response, Response]]:
        found = {f.url: forbidden if f.url in refused else same(f) for f in asked}
        return {url: (one, one) for url, one in found.items()}

    known = answers(batch.sample)
    first = settle(batch, known)
    assert first.files == []
    known |= answers(first.unsettled)
    last = settle(batch, known)
    assert last.unsettled == []
    assert {f.url for f in last.files} == set(known) - refused
    assert last.refused["/f0.css and 1 more"].startswith("answers 403")
    assert sum("not requested" in why for why in last.refused.values()) == 1


def test_a_body_that_nginx_rewrites_is_expected_with_the_length_that_it_has() -> None:
    batch = Batch(None, files(3, "html"))
    longer = {f.url: (r := Response(status=200, length_bytes=f.bytes + 11), r) for f in batch.files}
    assert [f.bytes for f in settle(batch, longer).files] == [111, 112, 113]


def test_files_are_told_apart_by_the_location_of_either_variant_and_their_ending() -> None:
    texts = (r"location ~ \.php$ { }", r"location ~ \.php$ { } location /s/ { }")
    trees = [
        parse_text(f"events {{}} http {{ server {{ {text} }} }}", file="/n/nginx.conf")
        for text in texts
    ]
    (before, after) = (next(server for _, server in servers(tree)) for tree in trees)
    served = [ServedFile(url, 1) for url in ("/a.css", "/i.php", "/s/b.css", "/b.css", "/c.JS")]
    found = batches_of(served, (before, after), [LocationMatcher(tree) for tree in trees])
    assert [[f.url for f in one.files] for one in found] == [
        ["/a.css", "/b.css"], ["/c.JS"], ["/i.php"], ["/s/b.css"],
    ]  # fmt: skip
    many = [ServedFile(f"/{n}.{n}", 1) for n in range(300)]
    whole = batches_of(many, (before, after), [LocationMatcher(tree) for tree in trees])
    assert len(whole) < 20
    assert sum(len(one.files) for one in whole) == 300


def test_the_file_that_is_asked_for_most_is_a_typical_one_of_those_left() -> None:
    served = files(5)
    assert with_typical_first(served[1:], served[0])[0] == served[3]
    assert with_typical_first(served, served[0]) == served
    assert with_typical_first([], served[0]) == []
