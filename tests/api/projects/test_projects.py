"""Projects over HTTP: create, add images, predict, correct, list, the next image, delete."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import nibabel as nib
import numpy as np
import pytest

from caps_med.images import MedicalImage, encode_image, one_slice, read_image
from tests.api.projects.conftest import Create, add, code, discs, png, upload
from tests.images.codecs.test_dicom_padding import ct
from tests.images.dicom_files import (
    ECHOES,
    PATIENT,
    SERIES,
    dataset,
    encoded,
    placed,
    zipped_study,
)
from tests.waiting import until
from tests.zips import zip_of


def test_a_label_is_not_called_as_another(client: httpx.Client) -> None:
    form = {"name": "x", "model": "discs", "labels": "1=background"}
    answer = client.post("/v1/projects", data=form)
    assert answer.status_code == 422
    assert "0 and 1 are both called background" in answer.json()["detail"]


@pytest.mark.parametrize("labels", ["1=noxa\u202e", "1=a\u200bxon", "1=axon\n", "1=a\u00adxon"])
def test_a_label_is_called_as_it_looks(client: httpx.Client, labels: str) -> None:
    answer = client.post("/v1/projects", data={"name": "x", "model": "discs", "labels": labels})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("labels: must be one line, without control")


def test_a_project_from_images_to_corrections(client: httpx.Client, create: Create) -> None:
    project = create(labels="1=bright disc")
    pairs = discs(3)
    first, second, _ = add(client, project, {f"{i}.png": p[0] for i, p in enumerate(pairs)})
    shown = client.get(project).json()
    assert shown["counts"] == {"unlabelled": 3, "predicted": 0, "corrected": 0}
    assert (shown["model"], shown["labels"]) == ("discs@1", {"1": "bright disc"})
    assert client.get(first).content == pairs[0][0]
    assert code(client.get(f"{first}/labels")) == (404, "labels_not_found")

    predicted = client.post(f"{first}/predict")
    assert (predicted.status_code, predicted.headers["ETag"]) == (201, '"1"')
    assert predicted.json()["model"] == "discs@1"
    assert client.post(f"{first}/predict").status_code == 200  # nothing new to say
    labels = client.get(f"{first}/labels")
    prediction = read_image(labels.content, kind="labels").array
    assert labels.headers["ETag"] == '"1"'

    truth = pairs[0][1]
    saved = client.put(
        f"{first}/labels?author=anna", content=truth, headers={"If-Match": labels.headers["ETag"]}
    )
    assert (saved.status_code, saved.headers["ETag"]) == (200, '"2"')
    changed = float(np.mean(prediction != read_image(truth, kind="labels").array))
    view = saved.json()
    assert (view["author"], view["parent"], view["kind"]) == ("anna", 1, "correction")
    assert view["changed"] == pytest.approx(changed)
    assert (read_image(client.get(f"{first}/labels").content, kind="labels").array
            == read_image(truth, kind="labels").array).all()  # fmt: skip
    assert code(client.post(f"{first}/predict")) == (409, "already_corrected")

    put = client.put(f"{second}/labels", content=pairs[1][1], headers={"If-None-Match": "*"})
    assert (put.status_code, put.json()["author"]) == (201, "anonymous")
    versions = client.get(f"{first}/labels/versions").json()["versions"]
    assert [(v["version"], v["kind"], v["parent"]) for v in versions] == [
        (1, "prediction", None),
        (2, "correction", 1),
    ]
    old = client.get(f"{first}/labels", params={"version": 1})
    assert (read_image(old.content, kind="labels").array == prediction).all()
    listed = client.get(f"{project}/images", params={"state": "corrected"}).json()["images"]
    assert [image["author"] for image in listed] == ["anna", "anonymous"]
    for tags in ('"2"', 'W/"2"', "*", ", ".join(f'"{i}"' for i in range(999))):
        known = client.get(f"{first}/labels", headers={"If-None-Match": tags})
        assert known.status_code == 304
    tag = client.get(first).headers["ETag"]
    for tags in (tag, f'"x", W/{tag}', "*"):
        known = client.get(first, headers={"If-None-Match": tags})
        assert (known.status_code, known.headers["ETag"], known.content) == (304, tag, b"")
    assert client.get(first, headers={"If-None-Match": '"x"'}).content == pairs[0][0]


def test_two_annotators_do_not_overwrite_each_other(client: httpx.Client, create: Create) -> None:
    (image,) = add(client, create(), {"a.png": discs(1)[0][0]})
    mine, theirs = discs(1)[0][1], discs(1, seed=5)[0][1]
    assert code(client.put(f"{image}/labels", content=mine)) == (428, "precondition_required")
    stale = client.put(f"{image}/labels", content=mine, headers={"If-Match": '"1"'})
    assert code(stale) == (412, "precondition_failed")
    first = {"If-None-Match": "*"}
    assert client.put(f"{image}/labels?author=a", content=mine, headers=first).status_code == 201
    again = client.put(f"{image}/labels?author=b", content=theirs, headers=first)
    assert code(again) == (412, "precondition_failed")
    assert (again.json()["version"], again.json()["author"]) == (1, "a")
    base = {"If-Match": '"1"'}
    assert client.put(f"{image}/labels?author=b", content=theirs, headers=base).status_code == 200
    none = {"If-Match": '"2"', **first}
    assert code(client.put(f"{image}/labels", content=mine, headers=none)) == (
        412,
        "precondition_failed",
    )
    late = client.put(f"{image}/labels?author=a", content=mine, headers=base)
    assert (code(late), late.json()["author"]) == ((412, "precondition_failed"), "b")
    assert code(client.put(f"{image}/labels", content=mine)) == (428, "precondition_required")
    compressed = {"If-Match": 'W/"2"'}  # by a proxy in between
    assert client.put(f"{image}/labels", content=mine, headers=compressed).status_code == 200


def test_a_volume_keeps_its_geometry(client: httpx.Client, create: Create, volume: bytes) -> None:
    """And a label map on another grid is refused."""
    (image,) = add(client, create(), {"scan.nii.gz": volume})
    view = client.get(image, params={"format": "json"}).json()
    assert (view["shape"], view["format"]) == ([20, 28, 3], "nifti")
    assert np.allclose(view["spacing"], [1, 1, 2.5])
    assert client.post(f"{image}/predict").status_code == 201
    labels = read_image(client.get(f"{image}/labels").content, kind="labels")
    source = read_image(volume)
    assert labels.spatial_shape == source.spatial_shape
    assert np.allclose(labels.affine, source.affine)
    moved = source.affine.copy()
    moved[0, 3] += 1
    array = np.zeros((1, 20, 28, 3), np.uint8)
    wrong = {
        "different affines": MedicalImage(array, moved, kind="labels"),
        "the size": MedicalImage(array[:, :10], source.affine, kind="labels"),
        "the ids 9": MedicalImage(array + 9, source.affine, kind="labels"),
    }
    for reason, bad in wrong.items():
        content = encode_image(bad, "nifti")
        answer = client.put(f"{image}/labels", content=content, headers={"If-Match": '"1"'})
        assert answer.status_code == 422 and reason in answer.json()["detail"]
    array[:, 2, 3, 1] = 1
    start = source.affine @ [19, 0, 0, 1]
    flipped = np.column_stack([source.affine[:, :3] * (-1, 1, 1), start])
    content = encode_image(MedicalImage(array[:, ::-1], flipped, kind="labels"), "nifti")
    assert client.put(f"{image}/labels", content=content, headers={"If-Match": '"1"'}).is_success
    kept = read_image(client.get(f"{image}/labels").content, kind="labels")
    assert (kept.array == array).all() and np.allclose(kept.affine, source.affine)
    slice_ = client.get(image, params={"format": "png", "slice": 1})
    assert slice_.headers["Caps-Med-Slices"] == "3"
    assert read_image(slice_.content).spatial_shape == (28, 20)


def test_a_segmentation_may_leave_out_slices_without_labels(
    client: httpx.Client, create: Create, volume: bytes
) -> None:
    """As most programs write DICOM SEG; what lies between the voxels of the image is refused."""
    project = create()
    (image,) = add(client, project, {"scan.nii.gz": volume})
    names = {int(label): name for label, name in client.get(project).json()["labels"].items()}
    source = read_image(volume)
    whole = np.zeros((1, 20, 28, 3), np.uint8)
    whole[:, 4:9, 4:9, 1] = 1
    affine = source.affine.copy()
    affine[:3, 3] += affine[:3, 2]  # of the slice with labels alone
    part = MedicalImage(whole[..., 1:2], affine, kind="labels", names=names)
    first = {"If-None-Match": "*"}
    content = encode_image(part, "nrrd")
    assert client.put(f"{image}/labels", content=content, headers=first).status_code == 201
    kept = read_image(client.get(f"{image}/labels").content, kind="labels")
    assert (kept.array == whole).all() and np.allclose(kept.affine, source.affine)
    affine[:3, 3] += affine[:3, 2] / 2
    between = encode_image(replace(part, affine=affine), "nrrd")
    refused = client.put(f"{image}/labels", content=between, headers={"If-Match": '"1"'})
    assert refused.status_code == 422 and "are not those of the image" in refused.json()["detail"]


def test_a_slice_without_a_format_is_one_of_the_file(
    client: httpx.Client, create: Create, volume: bytes
) -> None:
    scan, picture = add(client, create(), {"scan.nii.gz": volume, "disc.png": discs(1)[0][0]})
    own = client.get(scan, params={"slice": 1})
    assert own.headers["Caps-Med-Slices"] == "3"
    assert own.content == client.get(scan, params={"slice": 1, "format": "nifti"}).content
    assert read_image(own.content).spatial_shape == (20, 28, 1)
    whole = client.get(picture)
    assert client.get(picture, params={"slice": 0}).content == whole.content
    for path, count in ((scan, 3), (picture, 1)):
        refused = client.get(path, params={"slice": count})
        assert code(refused) == (422, "invalid_parameter")
        assert f"must be from 0 to {count - 1}" in refused.json()["detail"]


@pytest.mark.parametrize("form", [None, "nifti", "nrrd", "npy"])
def test_a_slice_of_a_label_map_has_its_place(
    client: httpx.Client, create: Create, volume: bytes, form: str | None
) -> None:
    (scan,) = add(client, create(), {"scan.nii.gz": volume})
    assert client.post(f"{scan}/predict").status_code == 201
    whole = read_image(client.get(f"{scan}/labels").content, kind="labels")
    asked = "" if form is None else f"&format={form}"
    found = read_image(client.get(f"{scan}/labels?slice=2{asked}").content, kind="labels")
    wanted = one_slice(whole, 2)
    assert (found.array.reshape(wanted.array.shape) == wanted.array).all()
    assert form == "npy" or np.allclose(found.affine, wanted.affine)
    refused = client.get(f"{scan}/labels?slice=3{asked}")
    assert code(refused) == (422, "invalid_parameter")


@pytest.mark.parametrize("geometry", [{}, placed(7.0)], ids=["picture", "slice"])
def test_dicom_is_kept_exactly_and_without_its_tags(
    client: httpx.Client, create: Create, geometry: dict[str, Any]
) -> None:
    values = np.arange(-300, 3796, dtype=np.int16).reshape(64, 64)
    content = encoded(dataset(values, **geometry))
    assert PATIENT.encode() in content
    (image,) = add(client, create(), {"Doe^Jane.dcm": content})
    file = client.get(image).content
    assert PATIENT.encode() not in file
    kept, given = read_image(file), read_image(content)
    assert (kept.array == given.array).all() and np.allclose(kept.affine, given.affine)


def test_a_picture_in_a_zip_is_kept_as_it_is(client: httpx.Client, create: Create) -> None:
    """As another format, its 16 bits would not say what white is."""
    content = png(np.random.default_rng(0).integers(0, 65535, (40, 40), np.uint16))
    (image,) = add(client, create(), {"a.zip": zip_of(("a.png", content))})
    assert client.get(image).content == content


def test_a_pair_in_a_zip_is_kept_as_one_file(client: httpx.Client, create: Create) -> None:
    """Of one gzip member, since browsers read no more."""
    voxels = np.random.default_rng(0).integers(0, 99, (20, 28, 3)).astype(np.int16)
    header = nib.Nifti1Pair(voxels, np.diag([2.0, 3, 4, 1])).header
    header.set_slope_inter(1, 0)
    data = zip_of(
        ("x.hdr", header.binaryblock), ("x.img.gz", gzip.compress(voxels.tobytes(order="F")))
    )
    (image,) = add(client, create(), {"x.zip": data})
    content = client.get(image).content
    stream = zlib.decompressobj(wbits=31)
    kept = read_image(stream.decompress(content))
    assert stream.eof and not stream.unused_data
    assert (kept.array[0] == voxels).all() and kept.spacing == (2.0, 3.0, 4.0)


def test_what_a_reader_doubts_stays_with_the_image(client: httpx.Client, create: Create) -> None:
    project = create()
    padded, plain = add(client, project, {"ct.dcm": ct(-2000), "a.png": discs(1)[0][0]})
    told = client.get(padded, params={"format": "json"}).json()["warnings"]
    assert "padding (Pixel Padding Value) was set to the background" in told[0]
    assert client.get(plain, params={"format": "json"}).json()["warnings"] == []
    listed = client.get(f"{project}/images").json()["images"]
    assert [one["warnings"] for one in listed] == [told, []]
    pixels = np.random.default_rng(0).integers(0, 255, (3, 64, 64)).astype(np.uint8)
    colour = encode_image(MedicalImage(pixels, format="png"), "png")
    (image,) = upload(client, project, {"colour.png": colour}).json()["images"]
    assert "grey" in image["warnings"][0]
    for form, wanted in ((None, (1, 64, 64)), ("nifti", (1, 64, 64, 1)), ("png", (1, 64, 64))):
        query = "?channel=1" + ("" if form is None else f"&format={form}")
        green = client.get(f"{project}/images/{image['id']}{query}")
        assert green.headers["Caps-Med-Colour"] == "yes"
        found = read_image(green.content).array
        assert found.shape == wanted
        assert form != "nifti" or (np.sort(found, None) == np.sort(pixels[1], None)).all()
    for status in (201, 200):  # as it was predicted, also to who asks later
        predicted = client.post(f"{project}/images/{image['id']}/predict")
        assert predicted.status_code == status
        assert predicted.json()["warnings"] == image["warnings"]


def test_of_a_study_and_of_echoes_one_is_chosen(client: httpx.Client, create: Create) -> None:
    project = create()
    refused = upload(client, project, {"study.zip": zipped_study()})
    assert code(refused) == (422, "several_series")
    assert refused.json()["detail"].startswith("study.zip: ")
    assert [one["uid"] for one in refused.json()["series"]] == [ECHOES, SERIES]
    part = [("images", ("study.zip", zipped_study()))]
    refused = client.post(f"{project}/images", files=part, params={"series": ECHOES})
    assert code(refused) == (422, "several_volumes") and refused.json()["volumes"] == 2
    chosen: dict[str, str | int] = {"series": ECHOES, "volume": 1}
    added = client.post(f"{project}/images", files=part, params=chosen)
    assert added.status_code == 201, added.text
    (image,) = added.json()["images"]
    kept = client.get(f"{project}/images/{image['id']}").content
    assert (
        read_image(kept).array == read_image(zipped_study(), series=ECHOES, index=1).array
    ).all()


def test_of_a_volume_with_channels_the_chosen_one_is_kept(
    client: httpx.Client, create: Create
) -> None:
    array = np.stack([np.full((20, 28, 3), value, np.int16) for value in (1, 2)])
    data = encode_image(MedicalImage(array, format="nifti"), "nifti")
    part = [("images", ("4d.nii.gz", data))]
    project = create()
    assert code(upload(client, project, {"4d.nii.gz": data})) == (422, "several_volumes")
    added = client.post(f"{project}/images", files=part, params={"volume": 1})
    assert added.status_code == 201, added.text
    kept = client.get(f"{project}/images/{added.json()['images'][0]['id']}").content
    assert read_image(kept).array.shape == (1, 20, 28, 3)
    assert (read_image(kept).array == 2).all()


def test_labels_that_come_with_their_images_are_corrections(
    client: httpx.Client, create: Create
) -> None:
    project, ((image, mask),) = create(), discs(1)
    refused = upload(client, project, {"a.png": image}, {"b.png": mask})
    assert code(refused) == (422, "invalid_parameter")
    assert client.get(f"{project}/images").json() == {"images": [], "next": None}
    (view,) = upload(client, project, {"a.png": image}, {"a.png": mask}).json()["images"]
    assert (view["state"], view["version"]) == ("corrected", 1)
    images = {"b_0000.png": image, "c.png": image, "c_0000.png": image}
    added = upload(client, project, images, {"b.png": mask, "c.png": mask}).json()["images"]
    assert [one["state"] for one in added] == ["corrected", "corrected", "unlabelled"]


@pytest.mark.parametrize("strategy", ["random", "uncertainty", "diversity"])
def test_every_image_is_given_to_one_annotator(
    client: httpx.Client, create: Create, strategy: str
) -> None:
    project = create()
    pairs = discs(3)
    add(client, project, {f"{i}.png": p[0] for i, p in enumerate(pairs)})
    if strategy != "random":
        until(lambda: client.get(project).json()["scoring"]["scored"] == 3)

    def given(author: str) -> str | None:
        chosen = {"strategy": strategy, "author": author}
        answer = client.get(f"{project}/next", params=chosen)
        if answer.status_code == 204:
            return None
        assert answer.json()["strategy"] == strategy
        return str(answer.json()["image"]["id"])

    found = {author: given(author) for author in ("a", "b", "c")}
    assert len(set(found.values())) == 3 and None not in found.values()
    assert given("d") is None
    assert given("a") == found["a"]  # nobody else has it, and a reload loses nothing
    image = f"{project}/images/{found['a']}"
    assert client.get(image, params={"format": "json"}).json()["held_by"] == "a"
    put = client.put(
        f"{image}/labels?author=a", content=pairs[0][1], headers={"If-None-Match": "*"}
    )
    assert put.status_code == 201
    assert given("a") is None


def test_head_of_the_next_image_gives_it_to_nobody(client: httpx.Client, create: Create) -> None:
    project = create()
    pair = discs(1)[0]
    add(client, project, {"0.png": pair[0]})

    def holders() -> list[str | None]:
        return [one["held_by"] for one in client.get(f"{project}/images").json()["images"]]

    assert client.head(f"{project}/next", params={"author": "a"}).status_code == 200
    assert holders() == [None]
    assert client.get(f"{project}/next", params={"author": "a"}).status_code == 200
    for author, status in (("a", 200), ("b", 204)):
        assert client.head(f"{project}/next", params={"author": author}).status_code == status
        assert holders() == ["a"]


def test_the_most_uncertain_image_comes_first(client: httpx.Client, create: Create) -> None:
    project = create()
    add(client, project, {f"{i}.png": p[0] for i, p in enumerate(discs(4))})
    until(lambda: client.get(project).json()["scoring"]["scored"] == 4)
    images = client.get(f"{project}/images").json()["images"]
    scores = {image["id"]: image["uncertainty"] for image in images}
    first = client.get(f"{project}/next").json()["image"]["id"]
    assert scores[first] == max(scores.values())
    other = client.get(f"{project}/next", params={"skip": first}).json()["image"]["id"]
    assert other != first
    last = {scores[image]: image for image in scores}[min(scores.values())]
    skipped = {"skip": [image for image in scores if image != last]}
    assert client.get(f"{project}/next", params=skipped).json()["image"]["id"] == last
    diverse = {**skipped, "strategy": "diversity"}
    assert client.get(f"{project}/next", params=diverse).json()["image"]["id"] == last
    assert client.get(f"{project}/next", params={"skip": list(scores)}).status_code == 204


def test_a_deleted_project_leaves_nothing(
    client: httpx.Client, create: Create, own_models: Path
) -> None:
    project = create()
    image, other = add(client, project, {f"{i}.png": p[0] for i, p in enumerate(discs(2))})
    assert client.post(f"{image}/predict").status_code == 201
    folder = own_models / ".projects" / project.rpartition("/")[2]
    assert len(list(folder.iterdir())) == 3
    assert client.delete(image).status_code == 204
    assert len(list(folder.iterdir())) == 1
    assert code(client.get(image)) == (404, "image_not_found")
    size = len(client.get(other).content)
    assert client.get(project).json()["bytes"] == size
    assert client.delete(project).status_code == 204
    assert code(client.get(project)) == (404, "project_not_found")
    assert not folder.exists()
    listed = [each["id"] for each in client.get("/v1/projects").json()["projects"]]
    assert project.rpartition("/")[2] not in listed


def test_a_picture_comes_back_as_nifti(client: httpx.Client, create: Create) -> None:
    """Editors of volumes send the label map of a picture as a volume of one slice."""
    project = create()
    wide = np.zeros((48, 64), np.uint8)
    wide[5:20, 30:60] = 255
    (image,) = add(client, project, {"wide.png": png(wide)})
    first = png((wide > 0).astype(np.uint8), "labels")
    put = client.put(f"{image}/labels", content=first, headers={"If-None-Match": "*"})
    assert put.status_code == 201
    nifti = client.get(f"{image}/labels", params={"format": "nifti"}).content
    again = client.put(f"{image}/labels", content=nifti, headers={"If-Match": put.headers["ETag"]})
    assert (again.status_code, again.json()["changed"]) == (200, 0)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (b"filename=\"=?utf-8?B?w6Ryei5wbmc=?=\"; filename*=utf-8''%C3%A4rz.png", "\u00e4rz.png"),
        (b"filename*=UTF-8'de'%C3%A4rz%20%22a%22.png", "\u00e4rz 'a'.png"),
        (b"filename*=utf-8''..%2F..%5Cx.png", "x.png"),
        (b"filename=\"\xc3\xa4.png\"; filename*=utf-8''%C3.png", "\ufffd.png"),
        (b'filename="\xc3\xa4.png"', "\u00e4.png"),
        (b"filename=\"a.png\"; filename*=koi8-r''%C3.png", "a.png"),
        (b'filename="a %22b%22%0a 100%25.png"', 'a "b" 100%25.png'),
        (b"filename*=utf-8''a%2522.png", "a%22.png"),
    ],
)
def test_names_of_files_are_as_their_senders_have_them(
    client: httpx.Client, create: Create, given: bytes, name: str
) -> None:
    """Some clients send them by RFC 5987, .NET beside one that is encoded for e-mail; browsers and
    httpx write %22 for a quotation mark.
    """
    head = b"--b\r\nContent-Disposition: form-data; name=images; " + given + b"\r\n\r\n"
    content = head + discs(1)[0][0] + b"\r\n--b--\r\n"
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = client.post(f"{create()}/images", content=content, headers=headers)
    assert [image["name"] for image in answer.json()["images"]] == [name]
