"""Where the image of a call is: in the call, in a session, or under an id."""

from __future__ import annotations

from fastapi import Request, UploadFile

from api.monai_label.session import owner, sessions_of
from api.problems import IMAGE_NOT_FOUND, SESSION_NOT_FOUND, Refusal
from api.uploads import read_upload


async def content_of(request: Request, image: str, session: str, file: UploadFile | None) -> bytes:
    """The content of the image's file.

    Args:
        image: its id.
        session: the id of a session.
        file: the image itself.

    Raises:
        Refusal: there is no such image or session (404).
        InvalidInput: the file is empty.
    """
    if session:
        found = sessions_of(request).get(session, owner())
        if found is None:
            raise Refusal(SESSION_NOT_FOUND, "there is no such session: create it again")
        return found.content
    if file is not None:
        return await read_upload(file)
    if not image:
        raise Refusal(IMAGE_NOT_FOUND, "name an image or a session, or send the part 'file'")
    raise Refusal(IMAGE_NOT_FOUND, "there is no image of this id: send it first")
