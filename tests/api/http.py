"""httpx's calls, which read all certificates of the machine anew for each: here they are read once.

That takes a twentieth of a second of processor time, and what waits for a job asks often.
"""

from __future__ import annotations

import ssl
from functools import partial

import httpx

_CONTEXT = ssl.create_default_context()

get = partial(httpx.get, verify=_CONTEXT)
post = partial(httpx.post, verify=_CONTEXT)
delete = partial(httpx.delete, verify=_CONTEXT)
request = partial(httpx.request, verify=_CONTEXT)
