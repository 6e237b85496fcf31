"""Paths of the service, for `caps_med.client`."""

from __future__ import annotations

from urllib.parse import quote


def route(*parts: str) -> str:
    """The path of these parts, each of which may be any text.

    >>> route("models", "a/b?", "segment"), route("models", "brain@2")
    ('/v1/models/a%2Fb%3F/segment', '/v1/models/brain@2')
    """
    return "/v1/" + "/".join(quote(part, safe="@") for part in parts)
