"""Addresses and credentials of archives: from the environment, never from a client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from caps_med.errors import InvalidParameter
from caps_med.wording import reason

#: JSON: name -> `ArchiveSettings`.
VARIABLE = "CAPS_MED_ARCHIVES"

ArchiveName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]


class ArchiveSettings(BaseModel):
    """One archive.

    Attributes:
        url: root of its DICOMweb services, such as ``https://pacs.example/dicom-web``.
        user: for HTTP Basic, with the password.
        password, password_file: one of them; a file is read for each exchange.
        token, token_file: a bearer token instead of user and password.
        ca_file: PEM file of the authority that signed its certificate, if that is not public.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    user: str | None = None
    password: SecretStr | None = None
    password_file: Path | None = None
    token: SecretStr | None = None
    token_file: Path | None = None
    ca_file: Path | None = None

    @field_validator("url")
    @classmethod
    def _is_root(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url: must have the form https://HOST/PATH")
        if "@" in parts.netloc:
            raise ValueError(
                "url: must not contain credentials: give user and password_file instead"
            )
        if parts.query or parts.fragment:
            raise ValueError("url: must not have a query or a fragment: give https://HOST/PATH")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _has_one_credential(self) -> Self:
        passwords = [given for given in (self.password, self.password_file) if given is not None]
        tokens = [given for given in (self.token, self.token_file) if given is not None]
        if len(passwords) + len(tokens) > 1:
            raise ValueError("give only one of password, password_file, token and token_file")
        if (self.user is None) != (not passwords):
            raise ValueError("user and password (or password_file) must be given together")
        return self

    def basic(self) -> tuple[str, str] | None:
        """User and password; None if not set.

        Raises:
            InvalidParameter: a file cannot be read.
        """
        password = _secret(self.password, self.password_file)
        return None if self.user is None or password is None else (self.user, password)

    def bearer(self) -> str | None:
        """The token; None if not set.

        Raises:
            InvalidParameter: a file cannot be read.
        """
        return _secret(self.token, self.token_file)


_ARCHIVES = TypeAdapter(dict[ArchiveName, ArchiveSettings])


def configured_archives(environment: Mapping[str, str] = os.environ) -> dict[str, ArchiveSettings]:
    """The archives defined in ``CAPS_MED_ARCHIVES``, by name.

    Raises:
        InvalidParameter: its value is not valid; the message does not repeat it.
    """
    text = environment.get(VARIABLE, "").strip()
    try:
        return _ARCHIVES.validate_json(text) if text else {}
    except ValidationError as error:
        first = error.errors(include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"] if part != "[key]")
        raise InvalidParameter(
            f"{VARIABLE}: {place + ': ' if place else ''}{reason(first)}; give JSON as "
            '{"pacs": {"url": "https://HOST/dicom-web"}}'
        ) from None  # the cause would show the value, which may hold a password


def _secret(value: SecretStr | None, file: Path | None) -> str | None:
    if value is not None:
        return value.get_secret_value()
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidParameter(
            f"the file of an archive's credentials cannot be read ({type(error).__name__}): check "
            "password_file or token_file in the settings"
        ) from None
