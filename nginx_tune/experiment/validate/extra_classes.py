"""Load classes for servers and locations other than the first root.

Each is requested once from both variants, and gets load only if their answers agree.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple, TypedDict

from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.documents.loadplan import LoadClass, Target
from nginx_tune.experiment.operations import Question, Response, Variant
from nginx_tune.experiment.session import Session, as_url, shown
from nginx_tune.experiment.validate.client_limits import ClientLimits
from nginx_tune.experiment.validate.sampled import (
    AnsweredBy,
    Batch,
    OwnAnswers,
    batches_of,
    judge_memory,
    label_of,
    own_questions,
    settle,
    with_typical_first,
)
from nginx_tune.experiment.validate.site import MOST_LOOKED_AT, SitePair
from nginx_tune.experiment.validate.site_load import MOST_FILES, offered, plan_classes, share_of
from nginx_tune.experiment.validate.site_requests import (
    Kinds,
    SiteRequest,
    compared_files,
    location_text,
)
from nginx_tune.experiment.validate.successors import (
    SuccessorKind,
    is_loaded,
    lost_answer,
    lost_content,
    moved_content,
)
from nginx_tune.measure.load.classes import ServedFile

_MOST_RETRIES = 8
"""Bound on retries of refused requests; each retry starts nginx."""
_MOST_LOOKS = 2
"""Rounds of requests: first samples of each batch, then all files of batches whose samples
differ."""

ListFiles = Callable[[str], Sequence[ServedFile]]


class ExtraClasses(NamedTuple):
    """The outcome of a survey: places to load, places refused, and places lost."""

    classes: dict[str, list[LoadClass]]
    """The classes to load, by the variant's name."""
    asked: list[tuple[str, str, str]]
    """The loaded places: class, place, and a description."""
    refused: dict[str, str]
    """Places not loaded, with the reasons."""
    lost: dict[str, str]
    """Places that the candidate no longer serves, with the reasons."""
    questions: dict[str, Question]
    """The request to the baseline for each place, by its label."""
    files: Sequence[ServedFile]
    """The first root's files, without those answered with something else."""
    has_memory: bool
    """True if all variants answer the URL without a file as configured."""


class _Place(NamedTuple):
    """A place with the requests for it."""

    requests: tuple[SiteRequest, SiteRequest]
    files: Sequence[ServedFile]
    """The files of the place by URL; empty for a place requested by its own URL."""
    is_loaded: bool
    has_partner: bool
    """True if the candidate has such a place."""

    batches: Sequence[Batch] = ()
    """The files in batches, if they are sampled."""
    served: Sequence[ServedFile] = ()
    """The files that are loaded after sampling."""
    refused: Mapping[str, str] = {}
    """The files left out, with the reasons."""

    def url(self, request: SiteRequest) -> str:
        return self.files[0].url if self.files else request.url


class _Root(NamedTuple):
    """Files to sample."""

    targets: tuple[Target, Target]
    batches: Sequence[Batch]


class _Learnt(NamedTuple):
    """The files to load, and those left out, with the reasons."""

    files: list[ServedFile]
    refused: dict[str, str]


def find_extra_classes(
    session: Session,
    variants: Sequence[Variant],
    site: SitePair,
    *,
    files: Sequence[ServedFile],
    files_of: ListFiles,
    is_there: Callable[[str], bool],
    has_silent: bool,
    surveys_both: bool,
    limits: ClientLimits,
) -> ExtraClasses:
    """Request each place once from both variants, or from the baseline alone for both.

    ``files``: the first root's files, by URL. ``files_of`` lists the files that the variants see
    below a directory; ``is_there`` is true for a path that they see.
    """
    files_of = cache(files_of)
    matchers = [LocationMatcher(tree) for tree in site.trees]
    own = _own_root(site, files, matchers)
    places = [
        _with_batches(_at_a_file(place, site, own), matchers)
        for place in _places(site, files_of, matchers, surveys_both=surveys_both)
    ]
    asked_first = [own_questions(entry, files) for entry in site.entries]
    asked = variants[: 2 if surveys_both else 1]
    first, answers = _survey(session, asked, asked_first, places, limits)
    at_entry = judge_memory(asked_first[1], first)
    root = own or _Root((site.entry.target, site.entry.target), ())
    of_own, places = _learn_places(session, asked, root, places, limits)
    if not own or not (surveys_both or of_own.files):
        of_own = _Learnt(list(files), {})  # a change may also end the failures of all files
    host = site.entries[0].target.host
    at_entry.refused.update({f"{host} {label}": why for label, why in of_own.refused.items()})
    served = with_typical_first(of_own.files, files[0]) if files else []
    questions = {
        place.requests[0].label: Question(
            target=place.requests[0].target, url=place.url(place.requests[0])
        )
        for place in places
        if not place.requests[0].is_new
    }
    found = ExtraClasses(
        {variant.name: [] for variant in variants},
        [],
        questions=questions,
        files=served,
        **at_entry._asdict(),
    )
    judge = _Judge(
        site,
        variants,
        [Kinds(tree) for tree in site.trees],
        from_disk={file.url for file in served},
        is_there=is_there,
        has_silent=has_silent,
        surveys_both=surveys_both,
    )
    for place, *answered in zip(places, *answers, strict=True):
        judge.sort_in(found, place, answered)
    return found


def _survey(
    session: Session,
    variants: Sequence[Variant],
    asked_first: Sequence[Mapping[AnsweredBy, Question]],
    places: Sequence[_Place],
    limits: ClientLimits,
) -> tuple[tuple[OwnAnswers, OwnAnswers], list[list[Response]]]:
    """The answers of the variants' entry points and places; a single variant counts for both."""
    surveyed = [
        _answers(
            session,
            variant,
            [
                *asked_first[n].values(),
                *(
                    Question(target=place.requests[n].target, url=place.url(place.requests[n]))
                    for place in places
                ),
            ],
            limits,
        )
        for n, variant in enumerate(variants)
    ]
    surveyed = surveyed if len(variants) > 1 else surveyed * 2
    both = list(zip(surveyed, asked_first, strict=True))
    baseline, candidate = (dict(zip(asked, found, strict=False)) for found, asked in both)
    return (baseline, candidate), [found[len(asked) :] for found, asked in both]


def _learn_places(
    session: Session,
    variants: Sequence[Variant],
    root: _Root,
    places: Sequence[_Place],
    limits: ClientLimits,
) -> tuple[_Learnt, list[_Place]]:
    """Sample files of the first root and of each place; returns findings and updated places."""
    others = (
        _Root((place.requests[0].target, place.requests[1].target), place.batches)
        for place in places
    )
    of_own, *of_places = _learn(session, variants, [root, *others], limits)
    return of_own, [
        place._replace(served=learnt.files, refused=learnt.refused) if place.batches else place
        for place, learnt in zip(places, of_places, strict=True)
    ]


class _Judge(NamedTuple):
    """The sorting of places into lost, not comparable, and loaded, by both variants' answers."""

    site: SitePair
    variants: Sequence[Variant]
    kinds: Sequence[Kinds]
    from_disk: Collection[str]
    """URLs of the first root's files that are loaded."""
    is_there: Callable[[str], bool]
    has_silent: bool
    surveys_both: bool

    def sort_in(self, found: ExtraClasses, place: _Place, answered: Sequence[Response]) -> None:
        """Add a place to the findings."""
        own = place.requests[0]
        made_of = _made_of(place, self.site, self.kinds) if self.surveys_both else None
        if own.is_new and (made_of is None or made_of["after"] != "own"):
            return  # the baseline cannot lose a new place for files or another server
        baseline, candidate = answered
        gone = lost_answer(baseline, candidate, has_silent=self.has_silent)
        if not gone and made_of and not own.is_new:
            gone = lost_content(
                baseline,
                candidate,
                **made_of,
                has_partner=place.has_partner,
                has_file=_has_file(place, self.site, self.kinds[1], self.is_there),
            )
        moved = (
            moved_content(baseline, candidate, **made_of)
            if made_of and not gone and not own.is_new
            else ""
        )
        if gone:
            where = f" ({shown(place.url(own))})" if place.files else ""
            found.lost.setdefault(own.label, gone + where)
        elif moved:
            found.refused[own.label] = moved
        elif place.is_loaded and not place.files and own.url in self.from_disk:
            found.refused[own.label] = "its files belong to the first root"
        elif place.is_loaded:
            _load_served(found, place, answered, self.variants, self.site)


def _own_root(
    site: SitePair, files: Sequence[ServedFile], matchers: Sequence[LocationMatcher]
) -> _Root | None:
    """The first root's files to sample, if any class of the load requests them."""
    if not files or all(item.manifest or item.source == "memory" for item in site.classes):
        return None
    before, after = site.entries
    return _Root(
        (before.target, after.target), batches_of(files, (before.server, after.server), matchers)
    )


def _at_a_file(place: _Place, site: SitePair, own: _Root | None) -> _Place:
    """The place; for a pattern, with a request for a file of the first root that it matches."""
    request = place.requests[0]
    if own is None or place.files or request.block is not site.entries[0].server:
        return place
    url = next(
        (
            batch.files[0].url
            for batch in own.batches
            if batch.location is not None
            and location_text(batch.location) == request.location
            and request.location.startswith("~")
        ),
        None,
    )
    if url is None:
        return place
    before, after = (request._replace(url=url, is_made_up=False) for request in place.requests)
    return place._replace(
        requests=(before, before if place.requests[0] is place.requests[1] else after)
    )


def _with_batches(place: _Place, matchers: Sequence[LocationMatcher]) -> _Place:
    block = place.requests[0].block
    if not place.is_loaded or not place.files or block is None:
        return place
    servers = (block, place.requests[1].block or block)
    return place._replace(batches=batches_of(place.files, servers, matchers))


def _answers(
    session: Session, variant: Variant, questions: Sequence[Question], limits: ClientLimits
) -> list[Response]:
    """The answers of a variant; requests that a limit refused are repeated with a new nginx.

    The requests come faster than a client's would; a new nginx has not counted any.
    """
    answers = session.survey(variant, questions)
    left = list(range(len(questions)))
    for number in range(_MOST_RETRIES):
        refused = [n for n in left if answers[n].status in limits.statuses(questions[n].target)]
        if not refused or (number and len(refused) == len(left)):
            break
        left = refused
        for n, survey in zip(
            left, session.survey(variant, [questions[n] for n in left]), strict=True
        ):
            answers[n] = survey
    return answers


def _learn(
    session: Session, variants: Sequence[Variant], roots: Sequence[_Root], limits: ClientLimits
) -> list[_Learnt]:
    """Request some files of each root from the variants, and more if their answers differ.

    Refusals by a limit are ignored.
    """
    answers: list[dict[str, tuple[Response, Response]]] = [{} for _ in roots]
    pending = [[file for batch in root.batches for file in batch.sample] for root in roots]
    for _ in range(_MOST_LOOKS):
        if not any(pending):
            break
        surveyed = [
            _answers(session, variant, [
                Question(target=root.targets[n], url=file.url)
                for root, files in zip(roots, pending, strict=True) for file in files
            ], limits)
            for n, variant in enumerate(variants)
        ]  # fmt: skip
        pairs = iter(zip(surveyed[0], surveyed[-1], strict=True))
        for root, known, files in zip(roots, answers, pending, strict=True):
            refusals = limits.statuses(root.targets[0]) | limits.statuses(root.targets[1])
            for file in files:
                both = next(pairs)
                if not any(answer.status in refusals for answer in both):
                    known[file.url] = both
        pending = [
            [file for batch in root.batches for file in settle(batch, known).unsettled]
            for root, known in zip(roots, answers, strict=True)
        ]
    learnt = []
    for root, known in zip(roots, answers, strict=True):
        found = [settle(batch, known) for batch in root.batches]
        refused = {label: why for batch in found for label, why in batch.refused.items()}
        learnt.append(_Learnt([file for batch in found for file in batch.files], refused))
    return learnt


def entry_questions(site: SitePair, files: Sequence[ServedFile]) -> dict[str, Question]:
    """The requests to the baseline's entry point by label: a file, and the URL without one."""
    return {label_of(value): value for value in own_questions(site.entries[0], files).values()}


def _places(
    site: SitePair, files_of: ListFiles, matchers: Sequence[LocationMatcher], *, surveys_both: bool
) -> list[_Place]:
    pairs = [*site.requests, *site.looked_at]
    places = [
        _Place(
            pair,
            _files_of(pair, files_of, matchers),
            number < len(site.requests),
            pair[0] is not pair[1],
        )
        for number, pair in enumerate(pairs)
    ]
    if surveys_both and site.trees[0] is not site.trees[1] and site.load.asks != "files":
        apart = compared_files(site.trees, site.successors, files_of)
        places += [_Place((label.request, label.request), [label.file], False, True)
                   for label in apart[:MOST_LOOKED_AT]]  # fmt: skip
    return places


def _files_of(
    pair: tuple[SiteRequest, SiteRequest], files_of: ListFiles, matchers: Sequence[LocationMatcher]
) -> list[ServedFile]:
    """The files of a pair of requests: the baseline's, else the candidate's."""
    for request, matcher in zip(pair, matchers, strict=True):
        if request.root is None:
            continue
        files = (
            as_url(file, root=request.root, url_prefix=request.url_prefix)
            for file in files_of(request.root)
        )
        taken = (file for file in files if not request.picks or _takes(request, matcher, file.url))
        if found := list(islice(taken, MOST_FILES)):
            return found
    return []


def _takes(request: SiteRequest, matcher: LocationMatcher, url: str) -> bool:
    """True if a URL of the request's server belongs to the request's location."""
    own = None if request.block is None else matcher.location_of(request.block, url)
    return own is not None and location_text(own) == request.location


class _MadeOf(TypedDict):
    before: SuccessorKind
    after: SuccessorKind


def _made_of(place: _Place, site: SitePair, kinds: Sequence[Kinds]) -> _MadeOf | None:
    """The sources of both variants' answers; None if the candidate has no succeeding server."""
    own, other = place.requests
    there = None if own.block is None else site.successors.servers.get(own.block)
    if own.block is None or there is None:
        return None
    return {
        "before": kinds[0].of(own.block, place.url(own)),
        "after": kinds[1].of(there, place.url(other)),
    }


def _has_file(
    place: _Place, site: SitePair, candidate: Kinds, is_there: Callable[[str], bool]
) -> bool:
    """True unless the candidate's file for the place's first URL is known to be missing."""
    block = place.requests[0].block
    there = None if block is None else site.successors.servers.get(block)
    if not place.files or there is None:
        return True
    path = candidate.file_at(there, place.files[0].url)
    return path is None or is_there(path)


def _load_served(
    found: ExtraClasses,
    place: _Place,
    answered: Sequence[Response],
    variants: Sequence[Variant],
    site: SitePair,
) -> None:
    """Add a place to the load, or record why it is left out."""
    own = place.requests[0]
    if place.batches:
        why = {f"{own.label} ({label})": reason for label, reason in place.refused.items()}
        found.refused.update(why)
        if place.served:
            _load(found, place._replace(files=place.served), 200, variants, site)
        return
    is_empty = own.root is not None and not place.files
    status, reason = is_loaded(answered, are_files=bool(place.files), is_empty=is_empty)
    if status is None:
        found.refused[own.label] = f"{reason}{_of_no_files(own) if is_empty else _of_made_up(own)}"
    else:
        _load(found, place, status, variants, site)


def _load(
    found: ExtraClasses, place: _Place, status: int, variants: Sequence[Variant], site: SitePair
) -> None:
    own = place.requests[0]
    found.asked.append((own.name, own.label, f"{_description(place)}, {status}"))
    share = share_of(site.load, own.server, own.location)
    rate = None if share is None else share * (site.load.rate_per_second or 0.0)
    protocols = offered(place.requests, site.load.protocols)
    for variant, request in zip(variants, place.requests, strict=True):
        found.classes[variant.name] += plan_classes(
            request, protocols, status=status, files=place.files, rate_per_second=rate
        )


def _description(place: _Place) -> str:
    own = place.requests[0]
    if place.files:
        return "files"
    return f"{own.url}{_of_no_files(own)}"


def _of_no_files(own: SiteRequest) -> str:
    if own.root is None:
        return ""
    taken = "that its pattern takes" if own.picks else "to request"
    return f", as {shown(own.root)} has no files {taken}"


def _of_made_up(own: SiteRequest) -> str:
    return f" to {own.url}, a URL that was made for its pattern" if own.is_made_up else ""
