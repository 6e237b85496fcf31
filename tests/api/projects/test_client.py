"""Projects from Python, with `caps_med.client`."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from caps_med.client import Client, ServiceError
from caps_med.client_projects import PartlyAdded
from caps_med.images import encode_image, read_image
from tests.api.projects.conftest import discs
from tests.api.running import Running
from tests.archives.series import slices
from tests.images.dicom_files import SERIES


def test_a_project_from_python(server: Running, tmp_path: Path) -> None:
    pairs = discs(2)
    for i, (image, mask) in enumerate(pairs):
        (tmp_path / f"{i}.png").write_bytes(image)
        (tmp_path / f"{i}-mask.png").write_bytes(mask)
    with Client(server.address) as client:
        projects = client.projects
        project = projects.create("discs", "discs", labels={1: "disc"}, seed=3, ignore_label=2)[
            "id"
        ]
        assert projects.get(project)["ignore_label"] == 2
        added = projects.add(project, [tmp_path / "0.png", tmp_path / "1.png"])
        assert [image["name"] for image in added] == ["0.png", "1.png"]
        assert [image["id"] for image in projects.images(project)] == [i["id"] for i in added]
        assert projects.image(project, added[0]["id"]) == pairs[0][0]
        assert project in [each["id"] for each in projects.all()]

        found = projects.next(project, strategy="random", author="anna")
        assert found is not None
        image = found["id"]
        drawn = tmp_path / f"{found['name'][0]}-mask.png"
        assert projects.next(project, strategy="random", author="anna", skip=image) != found
        everything = [one["id"] for one in added]
        assert projects.next(project, author="anna", skip=everything) is None
        assert projects.predict(project, image)["version"] == 1
        labels = projects.labels(project, image)
        saved = projects.save_labels(project, image, drawn, labels.version, author="anna")
        assert (saved["version"], saved["author"]) == (2, "anna")
        with pytest.raises(ServiceError, match="412 precondition_failed") as raised:
            projects.save_labels(project, image, drawn, labels.version)
        assert raised.value.problem["version"] == 2
        now = projects.labels(project, image)
        assert now.version == 2
        truth = read_image(drawn, kind="labels").array
        assert (read_image(now.content, kind="labels").array == truth).all()
        kinds = [version["kind"] for version in projects.versions(project, image)]
        assert kinds == ["prediction", "correction"]
        assert [i["id"] for i in projects.images(project, state="corrected")] == [image]

        with pytest.raises(ServiceError, match="data_not_fit"):
            projects.learn(project, epochs=1)
        assert projects.rounds(project) == []
        assert projects.export(project, layout="pairs").startswith(b"PK")
        other = next(i["id"] for i in added if i["id"] != image)
        projects.save_labels(project, other, drawn.read_bytes(), None)
        assert projects.next(project) is None
        projects.delete_image(project, other)
        assert projects.get(project)["counts"]["corrected"] == 1
        projects.delete(project)
        with pytest.raises(ServiceError, match="project_not_found"):
            projects.get(project)


def test_a_name_of_a_label_that_the_service_would_split_is_refused(server: Running) -> None:
    with Client(server.address) as client:
        before = len(list(client.projects.all()))
        with pytest.raises(ValueError, match=r"^labels: 1 is called disc, left: use a name with"):
            client.projects.create("discs", "discs", labels={1: "disc, left"})
        assert len(list(client.projects.all())) == before


@pytest.mark.parametrize("text", ["schlüssel", "secret\n"])  # the latter as read from a file
def test_keys_and_tokens_that_no_header_can_hold_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^key: must consist of printable ASCII") as raised:
        Client("http://127.0.0.1:8000", key=text)
    assert text.strip() not in str(raised.value)
    with (
        Client("http://127.0.0.1:8000") as client,
        pytest.raises(ValueError, match=r"^token: must consist of printable ASCII"),
    ):
        client.train("segmentation", "discs", data="discs", token=text)


def test_a_series_and_a_header_with_its_voxels_are_an_image_each(
    server: Running, tmp_path: Path
) -> None:
    scans = tmp_path / "scans"
    for folder in ("head", "both"):
        (scans / folder).mkdir(parents=True)
    for number, content in enumerate(slices()):
        (scans / "head" / f"{number}.dcm").write_bytes(content)
        (scans / "both" / f"a{number}").write_bytes(content)
    for number, content in enumerate(slices(f"{SERIES}.5", SeriesNumber=5)):
        (scans / "both" / f"b{number}").write_bytes(content)
    image = read_image([*scans.glob("head/*")])
    header, voxels = encode_image(image, "metaimage").split(b"LOCAL\n")
    (scans / "x.mhd").write_bytes(header + b"x.raw\n")
    (scans / "x.raw").write_bytes(voxels)
    picture = tmp_path / "a.png"
    picture.write_bytes(discs(1)[0][0])
    with Client(server.address) as client:
        project = client.projects.create("scans", "discs")["id"]
        files = [picture, *scans.glob("head/*"), scans / "x.mhd"]
        added = client.projects.add(project, files)
        assert [one["name"] for one in added] == ["a.png", "head.dcm", "x.mhd"]
        for one in added[1:]:
            kept = read_image(client.projects.image(project, one["id"]))
            assert (kept.array == image.array).all() and np.allclose(kept.affine, image.affine)
        added = client.projects.add(project, [scans])
        names = ["both-series.dcm", "both-series5.dcm", "head.dcm", "x.mhd"]
        assert [one["name"] for one in added] == names
        (only,) = client.projects.add(project, [scans / "both" / "b1"])
        assert only["name"] == "b1"


def test_many_images_are_added_by_several_requests(server: Running, tmp_path: Path) -> None:
    pairs = discs(19)
    folder = tmp_path / "labels"
    folder.mkdir()
    for i, (image, mask) in enumerate(pairs):
        (tmp_path / f"{i}.png").write_bytes(image)
        (folder / f"{i}.png").write_bytes(mask)
    images = [tmp_path / f"{i}.png" for i in range(19)]
    with Client(server.address) as client:
        projects = client.projects
        project = projects.create("many", "discs")["id"]
        added = projects.add(project, images, [*folder.iterdir()], patient="p")
        assert [one["name"] for one in added] == [image.name for image in images]
        assert {(one["state"], one["patient"]) for one in added} == {("corrected", "p")}

        images[17].write_bytes(b"no image")
        with pytest.raises(
            PartlyAdded, match=r"^16 of 19 images were added, then: 415.*17\.png"
        ) as e:
            projects.add(project, images)
        assert [one["name"] for one in e.value.added] == [image.name for image in images[:16]]
        assert isinstance(e.value.__cause__, ServiceError)
        assert len([*projects.images(project)]) == 19 + 16
        with pytest.raises(ServiceError, match=r"415.*17\.png"):
            projects.add(project, images[16:])
        with pytest.raises(ServiceError, match="422"):
            projects.add(project, [])
        with pytest.raises(ValueError, match=r"labels: several images are called like 3\.png"):
            projects.add(project, [images[3], images[4], images[3]], [folder / "3.png"])
        with pytest.raises(ValueError, match=r"labels: no image is called like 4\.png"):
            projects.add(project, images[:3], [folder / "4.png"])
        with pytest.raises(ValueError, match=r"labels: 2\.png and 2\.png belong to one image"):
            projects.add(project, images[:3], [folder / "2.png", images[2]])
        assert len([*projects.images(project)]) == 19 + 16


def test_what_a_project_exports_is_added_to_another(server: Running, tmp_path: Path) -> None:
    for i, (image, mask) in enumerate(discs(2)):
        for folder, content in (("images", image), ("labels", mask)):
            (tmp_path / folder / f"{i}").mkdir(parents=True)
            (tmp_path / folder / f"{i}" / "a.png").write_bytes(content)
    with Client(server.address) as client:
        project = client.projects.create("one", "discs")["id"]
        added = client.projects.add(project, [tmp_path / "images"], [tmp_path / "labels"])
        assert [one["state"] for one in added] == ["corrected", "corrected"]
        packed = client.projects.export(project)
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            archive.extractall(tmp_path)
        other = client.projects.create("another", "discs")["id"]
        added = client.projects.add(other, [tmp_path / "imagesTr"], [tmp_path / "labelsTr"])
    assert [one["state"] for one in added] == ["corrected", "corrected"]
