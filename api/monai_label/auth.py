"""Log in: the password is an API key, the answer a temporary token in its place.

3D Slicer asks for a name and a password where ``GET /auth/`` says so; it cannot send a key itself.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from pydantic import BaseModel

from api.access.keys import StoredKeys
from api.access.live import KeysUnavailable, LiveKeys
from api.access.tokens import Tokens
from api.problems import STORAGE, UNAUTHORIZED, Refusal
from api.record import known, note
from api.routes.common import problems

router = APIRouter(prefix="/auth", tags=["MONAI Label"])


class AuthState(BaseModel):
    """Whether a client has to log in."""

    enabled: bool


class Token(BaseModel):
    """A token, for the header ``Authorization``; null where none is needed."""

    access_token: str | None
    token_type: str | None
    expires_in: int | None = None


class TokenOwner(BaseModel):
    """Whose token it is."""

    username: str


@router.get("/", summary="Whether clients must log in", responses=problems(503))
async def state(request: Request) -> AuthState:
    """True if the service requires keys."""
    return AuthState(enabled=_needed(request, await _keys(request)))


@router.post("/token", summary="Log in", responses=problems(401, 415, 422, 503))
async def log_in(
    request: Request,
    password: Annotated[str, Form(max_length=200, description="An API key.")],
    username: Annotated[str, Form(max_length=200, description="Any name.")] = "",
    grant_type: Annotated[str, Form(max_length=200, description="`password`.")] = "password",
) -> Token:
    """A token that replaces the key for some hours. It becomes invalid earlier if the key is
    revoked or the service restarts.
    """
    keys, tokens = await _keys(request), request.app.state.tokens
    if not _needed(request, keys):
        return Token(access_token=None, token_type=None)
    key = keys.find(password)
    if key is None:
        raise Refusal(UNAUTHORIZED, "the password must be a valid key made with `caps-med keys`")
    note(who=f"{key.name} {key.id}")
    issuing: Tokens = tokens
    token = issuing.issue(key)
    return Token(access_token=token, token_type="bearer", expires_in=int(issuing.seconds))  # noqa: S106 - the scheme's name


@router.get("/token/valid", summary="Whether a token is valid", responses=problems(401))
async def valid() -> TokenOwner:
    """200 with a valid token or key, otherwise 401."""
    return TokenOwner(username=str(known("who") or "").partition(" ")[0])


async def _keys(request: Request) -> StoredKeys:
    live: LiveKeys = request.app.state.keys
    try:
        return await live.current()
    except KeysUnavailable as error:
        detail = "the keys cannot be read: the operator must look into the log"
        raise Refusal(STORAGE, detail, {"Retry-After": "5"}) from error


def _needed(request: Request, keys: StoredKeys) -> bool:
    return keys.ever or request.app.state.engine.settings.require_keys
