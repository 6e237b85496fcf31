"""What every process of the service does before it answers, however it is started."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, get_origin

from api import logs, tracing
from api.access.keys import KeyStore, default_path
from api.access.listening import LOOPBACK_NAMES, check_exposure, is_loopback
from api.processes import write_no_core_file
from caps_med.errors import InvalidParameter
from caps_med.wording import reason

if TYPE_CHECKING:
    from api.settings import Settings


def read_settings(given: dict[str, Any]) -> Settings:
    """The settings of the environment, of which `given` replaces some.

    Raises:
        InvalidParameter: one is out of its range; the message names its variable.
    """
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from api.settings import Settings

    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        field, *inside = (str(part) for part in first["loc"] or ("",))
        named = [f"CAPS_MED_{field.upper()}"] * bool(field) + [".".join(inside)] * bool(inside)
        raise InvalidParameter(": ".join((*named, reason(first)))) from error
    except SettingsError as error:
        found = re.search(r'field "(\w+)"', str(error))
        field = found[1] if found else "..."
        known = Settings.model_fields.get(field)
        mapping = known is not None and get_origin(known.annotation) is dict
        form = 'object, such as {"one": ...}' if mapping else 'list, such as ["one", "two"]'
        raise InvalidParameter(f"CAPS_MED_{field.upper()}: must be a JSON {form}") from error


def checked(settings: Settings, host: str, without_keys: bool) -> Settings:
    """The settings with which a service may listen on `host`.

    Args:
        without_keys: whether other machines may call without keys.

    Raises:
        InvalidParameter: other machines could call it, and there are no keys; see
            `api.access.listening.check_exposure`.
    """
    keys = KeyStore(settings.keys or default_path()).holds_any() or settings.require_keys
    check_exposure(host, keys, without_keys, settings.allowed_hosts)
    hosts = settings.allowed_hosts
    if not hosts and not keys and is_loopback(host):
        hosts = (*LOOPBACK_NAMES, host.lower())  # as requests' names are compared
    return settings.model_copy(update={"require_keys": keys, "allowed_hosts": hosts})


def check_device() -> None:
    """Check that networks can run here as the environment says.

    Raises:
        InvalidParameter: there is no such device, or no such routing backend for it.
    """
    from caps_med.inference.model import known_device
    from caps_med.routing.backends import ENVIRONMENT, active_backend

    device = known_device()
    try:
        active_backend(device)
    except InvalidParameter as error:
        raise InvalidParameter(f"{ENVIRONMENT}: {error}") from error


def prepared(settings: Settings, host: str, without_keys: bool) -> Settings:
    """Prepare this process to answer: check as `checked` does, configure logs and traces.

    Raises:
        InvalidParameter: see `checked` and `check_device`; or the audit log cannot be opened.
    """
    settings = checked(settings, host, without_keys)
    check_device()
    write_no_core_file()
    logs.configure(settings.audit_log)
    tracing.export_if_asked()
    return settings
