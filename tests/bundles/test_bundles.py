from __future__ import annotations

import codecs
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from safetensors.torch import load_file, save_file

from caps_med.bundles import ModelRepository, NetworkSpec, weights, write_bundle
from caps_med.bundles.manage import rename_model
from caps_med.bundles.repository import default_root
from caps_med.bundles.weights import sha256
from caps_med.errors import InvalidBundle, InvalidParameter, ModelNotFound
from caps_med.networks import ENSEMBLES, build_network
from tests.conftest import BUILT_IN_NAMES, LABELS, tiny_binary, tiny_card, write_tiny


@pytest.fixture
def copy(models: Path, tmp_path: Path) -> ModelRepository:
    """A repository that a test may damage."""
    return ModelRepository(shutil.copytree(models, tmp_path / "models"))


def damage(repository: ModelRepository, **changes: object) -> None:
    """Change tensors of the segmentation model, with a checksum that fits again."""
    bundle = repository.find("tiny-segmentation")
    state = load_file(bundle.weights)
    for name, value in changes.items():
        key = name.replace("__", ".")
        if value is None:
            del state[key]
        else:
            assert isinstance(value, torch.Tensor)
            state[key] = value
    save_file(state, bundle.weights)
    edit(repository, lambda m: m["weights"].update(sha256=sha256(bundle.weights)))


def edit(repository: ModelRepository, change) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    path = repository.find("tiny-segmentation").path / "configs" / "metadata.json"
    metadata = json.loads(path.read_text())
    change(metadata)
    path.write_text(json.dumps(metadata))


def test_round_trip_is_bit_identical(tmp_path: Path) -> None:
    card = tiny_card("segmentation")
    network = build_network(card.network.name, card.network.arguments)
    bundle = write_bundle(ModelRepository(tmp_path), "mine", network, card)
    again = bundle.load_network()
    assert not again.training
    for name, value in network.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
    assert bundle.card == card


@pytest.mark.parametrize("name", [*BUILT_IN_NAMES, "tiny-segmentation", "tiny-synthesis"])
def test_loading_draws_no_random_numbers(models: Path, name: str) -> None:
    """A seeded experiment goes the same way whether a model is loaded in it or not."""
    before = torch.random.get_rng_state()
    ModelRepository(models).find(name).load_network()
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(("outputs", "named"), [(1, ["axon"]), (3, [*LABELS.values()])])
def test_each_channel_of_the_network_has_one_name(
    tmp_path: Path, outputs: int, named: list[str]
) -> None:
    """A binary network has one output, that of the foreground."""
    card = tiny_binary("SegCaps", "axon") if outputs == 1 else tiny_card("segmentation")
    write_tiny(tmp_path, "tiny", card)
    path = ModelRepository(tmp_path).find("tiny").path / "configs" / "metadata.json"
    found = json.loads(path.read_text())["network_data_format"]["outputs"]["pred"]
    assert found["num_channels"] == outputs
    assert list(found["channel_def"].values()) == named


def test_half_weights_come_back_as_float32(tmp_path: Path) -> None:
    card = tiny_card("synthesis")
    network = build_network(card.network.name, card.network.arguments)
    bundle = write_bundle(ModelRepository(tmp_path), "mine", network, card, half=True)
    assert bundle.metadata.weights.dtype == "float16"
    for name, value in bundle.load_network().state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, network.state_dict()[name].half().float())


def test_versions_count_up_and_are_found(tmp_path: Path) -> None:
    for _ in range(3):
        write_tiny(tmp_path, "mine", tiny_card("segmentation"))
    repository = ModelRepository(tmp_path)
    assert repository.versions("mine") == [1, 2, 3]
    assert repository.find("mine").version == 3
    assert repository.find("mine@2").version == 2
    with pytest.raises(ModelNotFound, match="no version 9 of mine: available are 1, 2, 3"):
        repository.find("mine@9")


def test_a_candidate_answers_under_its_version_alone_until_it_is_promoted(tmp_path: Path) -> None:
    card, repository = tiny_card("segmentation"), ModelRepository(tmp_path)
    network = build_network(card.network.name, card.network.arguments)
    for candidate in (False, True, False, True):
        write_bundle(repository, "mine", network, card, candidate=candidate)
    assert repository.versions("mine") == [1, 2, 3, 4]
    assert repository.candidates("mine") == [2, 4]
    assert repository.find("mine").version == 3
    assert repository.find("mine@4").version == 4
    assert [bundle.version for bundle in repository.newest_first("mine")] == [3, 1]

    assert repository.promote("mine@4").version == 4
    assert repository.find("mine").version == 4
    assert repository.promote("mine@1").version == 1
    assert repository.find("mine").version == 1
    assert repository.candidates("mine") == [2, 3, 4]
    with pytest.raises(InvalidParameter, match="mine: a version is needed, such as mine@1"):
        repository.promote("mine")
    with pytest.raises(ModelNotFound, match="no version 5 of mine"):
        repository.promote("mine@5")


def test_while_a_version_is_promoted_no_other_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, repository = tiny_card("segmentation"), ModelRepository(tmp_path)
    network = build_network(card.network.name, card.network.arguments)
    for candidate in (False, True, False, False):
        write_bundle(repository, "mine", network, card, candidate=candidate)
    seen: set[int] = set()

    def watched(change: Callable[..., None]) -> Callable[..., None]:
        def changed(path: Path, *arguments: object, **named: object) -> None:
            change(path, *arguments, **named)
            seen.add(repository.find("mine").version)

        return changed

    with monkeypatch.context() as patched:
        for name in ("touch", "unlink"):
            patched.setattr(Path, name, watched(getattr(Path, name)))
        repository.promote("mine@2")
    assert seen == {2, 4}


def test_a_model_of_candidates_alone_has_no_bare_name(tmp_path: Path) -> None:
    card, repository = tiny_card("segmentation"), ModelRepository(tmp_path)
    network = build_network(card.network.name, card.network.arguments)
    write_bundle(repository, "mine", network, card, candidate=True)
    with pytest.raises(
        ModelNotFound,
        match="no version of mine is promoted yet: name one of its candidates, mine@1",
    ):
        repository.find("mine")
    assert "mine" not in [bundle.name for bundle in repository.list()]
    repository.promote("mine@1")
    assert repository.find("mine").version == 1


def test_built_in_models_are_always_there(tmp_path: Path) -> None:
    names = [bundle.name for bundle in ModelRepository(tmp_path / "none").list()]
    assert tuple(names) == BUILT_IN_NAMES


@pytest.mark.parametrize("name", ["../x", "a/b", "", "A", "x@", "x@0", "x@1@2", ".jobs", "x" * 300])
def test_a_name_is_no_path(models: Path, name: str) -> None:
    repository = ModelRepository(models)
    for find in (repository.find, repository.newest_first):
        with pytest.raises(ModelNotFound, match=r"available are .*tiny-segmentation"):
            find(name)


def test_a_repository_has_a_name_that_folders_can_have() -> None:
    with pytest.raises(InvalidParameter, match=r"--models aaa.*: File name too long"):
        ModelRepository("a" * 300)


def test_a_repository_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "models.zip").touch()
    with pytest.raises(InvalidParameter, match=r"models\.zip: this is a file; name a folder"):
        ModelRepository(tmp_path / "models.zip")
    assert ModelRepository(tmp_path / "new").list()  # a folder need not exist


def test_a_folder_that_is_not_named_as_a_model_has_no_versions(tmp_path: Path) -> None:
    write_tiny(tmp_path, "mine", tiny_card("segmentation"))
    (tmp_path / "mine").rename(tmp_path / ".jobs")
    (tmp_path / "models").mkdir()
    assert ModelRepository(tmp_path).versions(".jobs") == []
    assert ModelRepository(tmp_path / "models").versions("../.jobs") == []


@pytest.mark.parametrize("name", ["../x", "A", "-a", "a-", "x" * 65])
def test_a_bad_name_is_never_written(tmp_path: Path, name: str) -> None:
    card = tiny_card("segmentation")
    network = build_network(card.network.name, card.network.arguments)
    with pytest.raises(InvalidParameter, match=r"use 1 to 64 of a-z, 0-9 and -"):
        write_bundle(ModelRepository(tmp_path), name, network, card)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("caps_med.bundles.writer._write_texts", full_disk)
    card = tiny_card("segmentation")
    network = build_network(card.network.name, card.network.arguments)
    with pytest.raises(OSError, match="No space left"):
        write_bundle(ModelRepository(tmp_path), "mine", network, card)
    assert list((tmp_path / "mine").iterdir()) == []
    assert ModelRepository(tmp_path).versions("mine") == []


def test_changed_weights_are_refused(copy: ModelRepository) -> None:
    bundle = copy.find("tiny-segmentation")
    content = bytearray(bundle.weights.read_bytes())
    content[-1] ^= 1
    bundle.weights.write_bytes(content)
    with pytest.raises(InvalidBundle, match="the file was changed or damaged"):
        bundle.load_network()


def test_missing_extra_and_misshapen_tensors_are_listed(copy: ModelRepository) -> None:
    damage(copy, conv1__bias=None, seg_caps__bias=torch.zeros(2, 4), stray=torch.zeros(1))
    with pytest.raises(
        InvalidBundle,
        match=r"missing conv1.bias: needed \[4\], found none; extra stray: found \[1\], none is "
        r"needed; wrong shape seg_caps.bias: needed \[3, 4\], found \[2, 4\]",
    ):
        copy.find("tiny-segmentation").load_network()


def test_weights_that_are_not_finite_are_refused(copy: ModelRepository) -> None:
    damage(copy, conv1__bias=torch.full((4,), float("nan")))
    with pytest.raises(InvalidBundle, match="not finite"):
        copy.find("tiny-segmentation").load_network()


def test_a_truncated_file_is_refused(copy: ModelRepository) -> None:
    bundle = copy.find("tiny-segmentation")
    bundle.weights.write_bytes(bundle.weights.read_bytes()[:100])
    edit(copy, lambda m: m["weights"].update(sha256=sha256(bundle.weights)))
    with pytest.raises(InvalidBundle, match=r"the weights model.safetensors cannot be read"):
        copy.find("tiny-segmentation").load_network()


def test_weights_that_are_cut_while_they_are_loaded_are_the_ones_that_were_checked(
    copy: ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file mapped into memory would kill the process (SIGBUS)."""
    bundle = copy.find("tiny-segmentation")
    wanted = bundle.load_network().state_dict()
    parse = safetensors.torch.load

    def cut(content: bytes) -> dict[str, torch.Tensor]:
        os.truncate(bundle.weights, 100)
        return parse(content)

    monkeypatch.setattr(weights, "load", cut)
    found = bundle.load_network().state_dict()
    assert bundle.weights.stat().st_size == 100
    assert all(torch.equal(found[name], value) for name, value in wanted.items())


def test_no_memory_is_taken_for_a_network_without_weights(copy: ModelRepository) -> None:
    """2048 atoms would be 93 GB."""
    edit(copy, lambda m: m["caps_med"]["network"]["arguments"].update(atoms=2048))
    with pytest.raises(InvalidBundle, match=r"wrong shape .*2048"):
        copy.find("tiny-segmentation").load_network()


def test_a_file_that_is_larger_than_the_network_is_not_read_whole(copy: ModelRepository) -> None:
    os.truncate(copy.find("tiny-segmentation").weights, 2**40)  # holes take no room
    with pytest.raises(InvalidBundle, match="are larger than the network can be"):
        copy.find("tiny-segmentation").load_network()


def test_only_registered_networks_are_built(copy: ModelRepository) -> None:
    edit(copy, lambda m: m["caps_med"]["network"].update(name="os.system"))
    with pytest.raises(InvalidBundle, match=r"network='os.system': must be one of"):
        copy.find("tiny-segmentation").load_network()


def test_a_network_of_terabytes_is_not_built(copy: ModelRepository) -> None:
    edit(copy, lambda m: m["caps_med"]["network"]["arguments"].update(atoms=10**9))
    with pytest.raises(InvalidBundle, match="'atoms' is 1000000000: at most 4096"):
        copy.find("tiny-segmentation").load_network()


def test_broken_metadata_names_the_field(copy: ModelRepository) -> None:
    edit(copy, lambda m: m["caps_med"].update(plane="diagonal"))
    with pytest.raises(InvalidBundle, match=r"metadata.json, caps_med.plane: Input should be"):
        copy.find("tiny-segmentation").load_network()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "Invalid JSON: EOF while parsing"),
        (b"\xff{}", "Invalid JSON: expected value"),
        (b"[]", "Input should be an object"),
    ],
)
def test_broken_json_is_said_to_be(copy: ModelRepository, content: bytes, told: str) -> None:
    bundle = copy.find("tiny-segmentation")
    (bundle.path / "configs" / "metadata.json").write_bytes(content)
    with pytest.raises(InvalidBundle, match=rf"tiny-segmentation@1: metadata\.json: {told}"):
        copy.find("tiny-segmentation").load_network()


def test_metadata_may_begin_with_a_byte_order_mark(copy: ModelRepository) -> None:
    """Which editors on Windows add."""
    card = copy.find("tiny-segmentation").card
    path = copy.find("tiny-segmentation").path / "configs" / "metadata.json"
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert copy.find("tiny-segmentation").card == card
    assert rename_model(copy, "tiny-segmentation", "other")[0].card == card


def test_weights_outside_the_bundle_are_not_read(copy: ModelRepository) -> None:
    edit(copy, lambda m: m["weights"].update(file="../../secret"))
    with pytest.raises(InvalidBundle, match=r"metadata.json, weights.file"):
        copy.find("tiny-segmentation").load_network()


def test_default_folder_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPS_MED_MODELS", str(tmp_path))
    assert default_root() == tmp_path
    monkeypatch.delenv("CAPS_MED_MODELS")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_root() == Path("/data/caps-med/models")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": {"0": "background", "2": "nucleus"}}, "2 labels, the network has 3 classes"),
        ({"labels": {"0": "a", "1": "b", "70000": "c"}}, r"caps_med.labels.*less than or equal to"),
        ({"labels": {"-1": "a", "1": "b", "2": "c"}}, r"caps_med.labels.*greater than or equal to"),
        ({"labels": {"0": "a", "1": "b", "2": "b"}}, r"labels: give each its own name; .* 'b'"),
        ({"spacing_mm": [0, 1]}, r"caps_med.spacing_mm.0: Input should be greater than 0"),
        ({"colors": {"2": [300, 0, 0]}}, r"caps_med.colors.2.0: Input should be less than"),
    ],
)
def test_a_card_that_cannot_be_meant_is_refused(
    copy: ModelRepository, changes: dict[str, object], message: str
) -> None:
    edit(copy, lambda m: m["caps_med"].update(changes))
    with pytest.raises(InvalidBundle, match=message):
        copy.find("tiny-segmentation").load_network()


def test_labels_that_are_not_the_classes_are_never_written(tmp_path: Path) -> None:
    card = tiny_card("segmentation").model_copy(update={"labels": {0: "background", 1: "lung"}})
    network = build_network(card.network.name, card.network.arguments)
    with pytest.raises(InvalidParameter, match="2 labels, the network has 3 classes"):
        write_bundle(ModelRepository(tmp_path), "mine", network, card)
    assert list(tmp_path.iterdir()) == []


def test_ensembles_are_known_by_their_names() -> None:
    card = tiny_card("segmentation")
    for name in (*(kind.__name__ for kind in ENSEMBLES.values()), "AddedEnsemble", "SegCaps"):
        spec = NetworkSpec(name=name, arguments={})
        known = card.model_copy(update={"network": spec}).is_ensemble
        assert known == (name in ("Ensemble", "ClassificationEnsemble"))


def test_labels_are_in_rising_order(copy: ModelRepository) -> None:
    edit(copy, lambda m: m["caps_med"].update(labels={"7": "membrane", "0": "-", "2": "nucleus"}))
    assert list(copy.find("tiny-segmentation").card.labels) == [0, 2, 7]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
@pytest.mark.parametrize("closed", ["tiny-segmentation", "tiny-segmentation/1", "other"])
def test_a_folder_that_may_not_be_entered_does_not_hide_the_others(
    closed: str, models: Path, copy: ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    write_tiny(copy.root, "tiny-segmentation", tiny_card("segmentation"))
    (copy.root / closed).mkdir(exist_ok=True)
    (copy.root / closed).chmod(0)
    try:
        listed = [bundle.reference for bundle in copy.list()]
        assert "tiny-synthesis@1" in listed
        assert ("tiny-segmentation@2" in listed) == (closed != "tiny-segmentation")
        said = f"{copy.root / closed}: Permission denied"
        assert caplog.text.count(f"not listed: {said}") == 1
        with pytest.raises(ModelNotFound, match="no model 'absent': available are"):
            copy.find("absent")
        if closed != "other":
            with pytest.raises(InvalidBundle, match=rf"cannot be read: .*{said}: give this user"):
                copy.find("tiny-segmentation@1")
        assert caplog.text.count(f"not listed: {said}") == 1
    finally:
        (copy.root / closed).chmod(0o755)


def test_a_damaged_model_does_not_hide_the_others(
    copy: ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    edit(copy, lambda m: m.pop("caps_med"))
    names = [bundle.name for bundle in copy.list()]
    assert names == [*BUILT_IN_NAMES, "tiny-synthesis"]
    assert "not listed: tiny-segmentation@1: metadata.json has no section" in caplog.text
