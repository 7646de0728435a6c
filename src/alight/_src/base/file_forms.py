"""What stands in the files of the store: documents as JSON, objects behind a header, each with a
digest of what it is and of the key that it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from alight._src.base.hashing import sha256

__all__ = [
    "SCHEMA",
    "Blob",
    "Document",
    "Place",
    "canonical",
    "digest",
    "document_file",
    "object_file",
    "read_document",
    "read_object",
]

SCHEMA = 2  # of the files; a kind that changes what it stores says so in its keys

Document = dict[str, Any]


class Blob(NamedTuple):
    """A compiled object and what was noted about it."""

    header: Document
    data: bytes


class Place(NamedTuple):
    """Where something is stored."""

    kind: str
    key: str
    suffix: str
    path: str

    @property
    def name(self) -> str:
        return self.key + self.suffix


def canonical(value: object) -> str:
    """Return the one JSON text of a value: keys sorted, no spaces, a tuple as a list."""
    return _as_text(_plain(value))


def _as_text(plain: object) -> str:
    import json

    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def _plain(value: object) -> object:
    # The json module turns the key 1 into "1" and so makes two keys one; hence the walk.
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    raise TypeError(
        f"{type(value).__name__} {value!r} cannot be stored or digested. Fix: use dicts with text "
        "keys, lists, text, numbers, true, false and None."
    )


def digest(value: object, domain: str = "document") -> str:
    """Return the SHA-256 of a value's canonical JSON; another domain gives another digest."""
    return sha256(f"alight\0{domain}\0{canonical(value)}".encode())


def _content_digest(place: Place, content: bytes) -> str:
    """Return the digest of what stands in a file; under another name it is another."""
    return sha256(f"{place.kind}/{place.key}\n".encode() + content)


def document_file(document: object, place: Place) -> bytes:
    text = canonical(document)
    envelope: Document = {"schema": SCHEMA, "kind": place.kind, "key": place.key}
    envelope["sha256"] = _content_digest(place, text.encode())
    return f'{canonical(envelope)[:-1]},"document":{text}}}\n'.encode()


def read_document(content: bytes, place: Place) -> Document | None:
    """Return the document of a file; None when another version of alight wrote it."""
    import json

    envelope = json.loads(content)
    if not isinstance(envelope, dict) or not isinstance(envelope.get("schema"), int):
        raise ValueError("it has no schema version")
    if envelope["schema"] != SCHEMA:
        return None
    document = envelope.get("document")
    if not isinstance(document, dict):
        raise ValueError("it holds no document")
    # As we wrote it, its bytes are what was digested; put otherwise it means the same. What comes
    # out of JSON is plain already.
    asis = content.partition(b',"document":')[2].removesuffix(b"}\n")
    given = envelope.get("sha256")
    if given not in (
        _content_digest(place, asis),
        _content_digest(place, _as_text(document).encode()),
    ):
        raise ValueError("its document does not match its digest")
    return document


def object_file(header: Document, data: bytes, place: Place) -> bytes:
    body = canonical(header).encode() + b"\n" + data
    return f"alight {SCHEMA} {_content_digest(place, body)}\n".encode() + body


def read_object(content: bytes, place: Place) -> Blob | None:
    """Return the object of a file; None when another version of alight wrote it."""
    import json

    first, _, body = content.partition(b"\n")
    name, schema, expected = (*first.split(b" "), b"", b"", b"")[:3]
    if name != b"alight" or not schema.isdigit():
        raise ValueError("its first line is not one of alight's")
    if int(schema) != SCHEMA:
        return None
    if expected != _content_digest(place, body).encode():
        raise ValueError("its content does not match its digest")
    header, _, data = body.partition(b"\n")
    return Blob(json.loads(header), data)
