"""Uploads: bodies that are an image, or a form with images, in the form of the JSON that asks the same.

image/png, application/octet-stream    the body is the file
multipart/form-data                    every part with a file name is an image; others are fields, such as top_k
"""

import base64
import re
from typing import Any

import msgspec

from bertsmith.serving.request_error import RequestError

RAW = ("image/", "application/octet-stream")
FORM = "multipart/form-data"
BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;,"]{1,70}))', re.IGNORECASE)
NAME = re.compile(rb'[;\s]name="([^"]*)"', re.IGNORECASE)
FILE = re.compile(rb"[;\s]filename\*?=", re.IGNORECASE)
MAX_PARTS = 4_096


def read(kind: str, content: bytes) -> dict[str, Any] | None:
    """The fields of an upload of a content type, with its images in base64 as `inputs`; None for any other body."""
    if kind.lower().startswith(RAW):
        if not content:
            raise RequestError(400, "body", "is empty", "Send an image")
        return {"inputs": base64.b64encode(content).decode()}
    return _form(kind, content) if kind.lower().startswith(FORM) else None


def _form(kind: str, content: bytes) -> dict[str, Any]:
    found = BOUNDARY.search(kind)
    if found is None:
        raise RequestError(400, "body", "is a form without a boundary", "Let the client write the Content-Type")
    boundary = (found[1] or found[2]).encode("latin-1")
    before, *parts = (b"\r\n" + content).split(b"\r\n--" + boundary, MAX_PARTS + 1)
    if before.strip() or len(parts) < 2 or not parts.pop().startswith(b"--"):
        raise RequestError(400, "body", "is no form that is complete", "Send multipart/form-data")
    fields: dict[str, Any] = {}
    images: list[str] = []
    for part in parts:
        head, blank, value = part.partition(b"\r\n\r\n")
        name = NAME.search(head)
        if not blank or name is None:
            raise RequestError(400, "body", "has a part of a form without a name", "Send multipart/form-data")
        if FILE.search(head):
            images.append(base64.b64encode(value).decode())
        else:
            fields[name[1].decode("utf-8", "replace")] = _value(value)
    if not images:
        raise RequestError(422, "body", "is a form without a file", "Add an image: curl -F image=@photo.jpg")
    return {**fields, "inputs": images[0] if len(images) == 1 else images}


def _value(value: bytes) -> Any:
    """A field as JSON would have it: a number, true or false; else a text."""
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    return found if isinstance(found, bool | int | float) else value.decode("utf-8", "replace")
