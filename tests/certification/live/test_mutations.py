"""Every edit of evidence is found, in every place; and what is found where the digest was made anew."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from certification.live.evidence import Evidence, render, seal
from certification.live.live_openai import OPENAI
from certification.live.provider import Provider
from certification.live.verifier import Unreadable, evidence_findings, live_findings, read_evidence

Path = tuple[str | int, ...]

# What nothing else in the file is a second witness of. The README says so.
ALONE = {
    ("model",),
    ("source", "commit"),
    ("source", "tree"),
    ("versions", "memoflow"),
    ("versions", "sdk"),
    ("versions", "python"),
    ("database", "kind"),
    ("database", "version"),
    ("cases", "duration_ms"),
    ("cases", "calls", "wire", "certificate"),
    ("cases", "calls", "wire", "response_id"),
}
# Another word for each that is one of a closed list.
WORDS = {
    "provider": ("openai", "anthropic"),
    "api": ("responses", "messages"),
    "kind": ("sqlite", "postgresql"),
    "boundary": ("response", "stream"),
    "state": ("SUCCEEDED", "FAILED"),
    "reservation": ("SETTLED", "RELEASED"),
    "finish": ("stop", "tool_calls"),
    "event": ("settle", "release"),
    "account": ("live", "live/tools"),
    "host": ("elsewhere", "api.openai.com"),
    "reason": ("CANCELLED", None),
    "model": ("one-model", "another-model"),
}


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value that holds no other, with where it stands."""
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    else:
        yield path, value


def containers(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every object and array, with where it stands."""
    if isinstance(value, (dict, list)):
        yield path, value
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from containers(inner, (*path, key))


def other(path: Path, value: Any) -> Any:
    """Another value that the schema would take in the same place, if there is one."""
    name = str(path[-1])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if name in WORDS and not (name == "reservation" and "-" in str(value)):
        first, second = WORDS[name]
        return second if value == first else first
    if value is None:
        return {"certificate": f"sha256:{'d' * 64}", "retry_count": 0}.get(name, "CANCELLED")
    return other_text(value)


def other_text(value: str) -> str:
    """The same form with its last digit or letter changed."""
    last = value[-1]
    return value[:-1] + ("1" if last == "0" else "0" if last.isdigit() else "b" if last == "a" else "a")


def put(document: Any, path: Path, value: Any) -> Any:
    """A copy of a document with one value replaced; what is beside the way to it is shared."""
    if not path:
        return value
    made = copy.copy(document)
    made[path[0]] = put(document[path[0]], path[1:], value)
    return made


def plain(path: Path) -> Path:
    """A path without the numbers in it."""
    return tuple(key for key in path if isinstance(key, str))


def written(document: Any) -> bytes:
    """A document as evidence is written."""
    return (json.dumps(document, indent=1) + "\n").encode()


def found_in(data: bytes) -> list[str]:
    """What `verify` says of a file, but for its source."""
    try:
        evidence = read_evidence(data)
    except Unreadable as error:
        return list(error.findings)
    return [*evidence_findings(evidence), *live_findings(evidence)]


def found_anew(document: Any) -> list[str]:
    """What it says where whoever edited the document has also made its digest anew."""
    try:
        changed = seal(Evidence.model_validate_json(json.dumps(document)))
    except ValidationError as error:
        return [str(error)]
    return [*evidence_findings(changed), *live_findings(changed)]


@pytest.fixture
def provider() -> Provider:
    """One of them: the evidence of both has the same fields, and there are many places to edit."""
    return OPENAI


@pytest.fixture
def document(live: Evidence) -> Any:
    """Evidence as plain JSON, in which nothing is found."""
    made = json.loads(render(live))
    assert found_in(written(made)) == []
    return made


def test_every_value_that_is_changed_is_found(document: Any) -> None:
    """Each of several hundred, for another one of the same form."""
    paths = list(leaves(document))
    assert len(paths) > 300
    unnoticed = [
        path for path, value in paths if not found_in(written(put(document, path, other(path, value))))
    ]
    assert unnoticed == []


@pytest.mark.parametrize("value", [None, True, 0, -1, 1.5, "x", "", [], {}, 10**30], ids=repr)
def test_every_value_of_another_type_is_found(document: Any, value: Any) -> None:
    """In a place of every kind, unless it is the value that stands there."""
    kinds = {plain(path): (path, was) for path, was in leaves(document)}
    unnoticed = [
        path
        for path, was in kinds.values()
        if (type(was), was) != (type(value), value) and not found_in(written(put(document, path, value)))
    ]
    assert unnoticed == []


def without(document: Any, path: Path, key: Any) -> Any:
    """A copy without one member of what stands at a place."""
    if path:
        return put(document, path[:1], without(document[path[0]], path[1:], key))
    made = copy.copy(document)
    del made[key]
    return made


def test_everything_that_is_taken_out_is_found(document: Any) -> None:
    """Every field of every object and every member of every array."""
    unnoticed = [
        (path, key)
        for path, value in containers(document)
        for key in (value if isinstance(value, dict) else range(len(value)))
        if not found_in(written(without(document, path, key)))
    ]
    assert unnoticed == []


def test_everything_that_is_put_in_is_found(document: Any) -> None:
    """A further field of every object, and a member of every array once more."""
    unnoticed = []
    for path, value in containers(document):
        made = copy.deepcopy(document)
        place = made
        for step in path:
            place = place[step]
        if isinstance(value, dict):
            place["note"] = "x"
        elif value:
            place.append(place[-1])
        else:
            continue
        if not found_in(written(made)):
            unnoticed.append(path)
    assert unnoticed == []


def test_every_order_that_is_changed_is_found(document: Any) -> None:
    """The fields of every object and the members of every array, the other way round."""
    unnoticed = []
    for path, value in containers(document):
        if len(value) < 2:
            continue
        turned: Any = dict(reversed(value.items())) if isinstance(value, dict) else value[::-1]
        if not found_in(written(put(document, path, turned))):
            unnoticed.append(path)
    assert unnoticed == []


def test_every_byte_that_is_changed_is_found(live: Evidence) -> None:
    """One in each place of some hundred, for others: also in white space and between fields."""
    data = render(live)
    unnoticed = [
        place
        for place in range(0, len(data), 211)
        if not found_in(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    ]
    assert unnoticed == []


def _crlf(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data + b"\n",
        lambda data: data.rstrip(),
        lambda data: json.dumps(json.loads(data)).encode(),
        _crlf,
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b'"openai"', b'"\\u006fpenai"'),
        lambda data: data.replace(b'"execution": 1', b'"execution": 1.0'),
        lambda data: data.replace(b'"simulated": false', b'"simulated": true, "simulated": false'),
    ],
    ids=["newline", "no newline", "one line", "CRLF", "BOM", "escape", "1.0", "twice"],
)
def test_the_same_content_in_other_bytes_is_found(live: Evidence, change: Callable[[bytes], bytes]) -> None:
    """There is one way to write evidence."""
    data = render(live)
    assert change(data) != data
    assert len(found_in(change(data))) == 1


def test_a_digest_made_anew_hides_little(document: Any) -> None:
    """Whatever has a second witness in the file disagrees with it; the rest is what the README names."""
    unnoticed = {
        plain(path)
        for path, value in leaves(document)
        if path != ("digest",) and not found_anew(put(document, path, other(path, value)))
    }
    assert unnoticed == ALONE


def test_a_digest_made_anew_hides_no_member_taken_out(document: Any) -> None:
    """Of any array: cases, calls, effects, balances, rows of the journal."""
    unnoticed = [
        (path, number)
        for path, value in containers(document)
        if isinstance(value, list)
        for number in range(len(value))
        if not found_anew(without(document, path, number))
    ]
    assert unnoticed == []


def test_a_digest_made_anew_hides_no_swap(document: Any) -> None:
    """Ids of two calls, journals of two accounts, cases of two boundaries."""
    cases, balances = document["cases"], document["balances"]
    for path, one, two in [
        (("calls", 0, "id"), cases[0], cases[1]),
        (("calls", 0, "reserved"), cases[0], cases[2]),
        (("calls",), cases[0], cases[3]),
        (("journal",), balances[1], balances[2]),
        (("head",), balances[1], balances[2]),
        (("id",), balances[1], balances[2]),
    ]:
        made = copy.deepcopy(document)
        mine = made["cases" if one in cases else "balances"]
        places = [mine[(cases if one in cases else balances).index(x)] for x in (one, two)]
        for step in path[:-1]:
            places = [place[step] for place in places]
        first, second = (place[path[-1]] for place in places)
        places[0][path[-1]], places[1][path[-1]] = second, first
        assert first == second or found_anew(made), path
