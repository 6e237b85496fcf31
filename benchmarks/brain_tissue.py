"""Train a tissue segmenter for any contrast from label maps alone, on a GPU, for a given time.

    python -m benchmarks.brain_tissue --data LABELMAPS --network ConvCaps --minutes 8 --out RUN

The label maps are SynthSeg's (FreeSurfer ids with extra-cerebral classes). Images are drawn anew
for every step (`training.randomization`), as by `caps-med train segmentation --randomize`, but for
a given time instead of a number of steps, in batches of several sizes and under two normalizations
in turn. Two of the label maps are held out; on volumes drawn from them, normalized as images are in
use, the weights are scored.

A run may be continued: each ``--cycles`` is a cosine of the learning rate over ``--minutes``, a
later one from a lower peak. What has been finished is not repeated. With ``--start`` it begins with
the weights of another run, as ``model.safetensors`` in its folder.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.options import benchmark_parser
from caps_med.drafts import draft_of
from caps_med.images import Normalization, SliceStack, read_image
from caps_med.networks import SegmentationNetwork, build_network
from training.randomization import LabelMaps, LabelScheme, RandomImages, Randomization, scheme_of

SCHEME = "freesurfer-tissue"
NORMALIZATIONS = {"ranks": Normalization(ranks=True), "percentiles": Normalization()}
#: Share of axial, coronal and sagittal slices.
PLANES = (0.6, 0.2, 0.2)
#: Edge and number of the images of a step; one is chosen at random for each.
BATCHES = ((160, 32), (192, 24), (224, 16))
HELD_OUT = (3, 9)
PEAK, WARM_UP, LATER = 2e-3, 0.03, 0.5
#: Volumes of the validation, millimetres between their slices that are scored.
VOLUMES, EVERY = 12, 4
VOLUME = (160, 224, 192)


def load_maps(
    folder: Path, scheme: LabelScheme, held_out: bool, device: str, count: int | None = None
) -> LabelMaps:
    """Of the first `count` label maps those that are held out, or all others."""
    arrays, spacings = [], []
    files = sorted(folder.glob("*.nii.gz"))[:count]
    kept_back = HELD_OUT if len(files) > max(HELD_OUT) else (len(files) - 1,)
    for number, file in enumerate(files):
        if (number in kept_back) == held_out:
            stack = SliceStack.from_image(read_image(file, kind="labels"))
            assert stack.lengths is not None  # noqa: S101 - a volume
            arrays.append(stack.array[:, 0])
            spacings.append(stack.lengths)
    return LabelMaps.from_arrays(arrays, spacings, scheme).to(device)


def held_out_volumes(maps: LabelMaps, config: Randomization, count: int) -> list[Any]:
    """Raw volumes and their labels, ``[D, H, W]``, half of them without skull; always the same."""
    drawn = []
    calm = config.model_copy(
        update={"scaling": 0.1, "bias": 0.4, "resolution": (1.0, 3.0), "flip_columns": 0.0,
                "shift": 5.0, "related": 1.0}
    )  # fmt: skip
    for number in range(count):
        one = calm.model_copy(update={"masked": float(number % 2)})
        images = RandomImages(maps, one, VOLUME)
        generator = torch.Generator(maps.start.device).manual_seed(1000 + number)
        chosen = torch.tensor([number // 2 % len(maps)], device=maps.start.device)
        image, labels = images(generator, 1, chosen)
        drawn.append((image[0, 0].cpu().numpy(), labels[0, 0].cpu()))
    return drawn


def scores(
    network: SegmentationNetwork, volumes: Sequence[Any], scheme: LabelScheme, device: str
) -> dict[str, Any]:
    """Dice of each label with each normalization, with skull (on) and without (off)."""
    network.eval()
    found: dict[str, Any] = {}
    for name, normalization in NORMALIZATIONS.items():
        for skull in ("on", "off"):
            shown = volumes[0 if skull == "on" else 1 :: 2]
            each = [_dice(network, v, lab, normalization, device) for v, lab in shown]
            means = np.mean(each, axis=0).round(4).tolist()
            found[f"{name}, skull {skull}"] = dict(
                zip(list(scheme.names.values())[1:], means, strict=True)
            )
    network.train()
    return found


def _dice(
    network: SegmentationNetwork, volume: NDArray[Any], labels: Tensor,
    normalization: Normalization, device: str,
) -> list[float]:  # fmt: skip
    slices = torch.from_numpy(normalization.apply(volume))[::EVERY, None].to(device)
    truth = labels[::EVERY].to(device)
    with torch.no_grad():
        answer = torch.cat([network(part).argmax(1) for part in slices.split(16)])
    return [
        float(2 * ((answer == k) & (truth == k)).sum() / ((answer == k).sum() + (truth == k).sum()))
        for k in range(1, network.out_channels)
    ]


def loss_of(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy and soft Dice over the batch."""
    likely = probabilities.float().clamp(min=1e-6)
    classes = likely.shape[1]
    truth = F.one_hot(labels[:, 0].long(), classes).movedim(-1, 1).float()
    axes = (0, 2, 3)
    dice = (2 * (likely * truth).sum(axes) + 1) / ((likely + truth).sum(axes) + 1)
    return 1 - dice.mean() - (likely.log() * truth).sum(1).mean()


class Run:
    """A training that can be interrupted and continued."""

    def __init__(self, options: argparse.Namespace, device: str) -> None:
        self.options, self.device, self.out = options, device, options.out
        self.scheme = scheme_of(SCHEME)
        torch.manual_seed(options.seed)
        arguments: dict[str, Any] = {
            "spatial_dims": 2,
            "in_channels": 1,
            "out_channels": len(self.scheme.names),
            **json.loads(options.arguments),
        }
        self.spec = {"name": options.network, "arguments": arguments}
        network = build_network(options.network, arguments)
        assert isinstance(network, SegmentationNetwork)  # noqa: S101 - of this recipe
        if options.start:
            network.load_state_dict({k: v.float() for k, v in load_file(options.start).items()})
        self.network = network.to(device)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), PEAK, weight_decay=1e-4)
        self.state: dict[str, Any] = {"cycle": 0, "seconds": 0.0, "steps": 0, "history": []}
        self.stopped = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.stopped = True

    @property
    def checkpoint(self) -> Path:
        """Weights and optimizer, to continue from."""
        return Path(self.out) / "checkpoint.pt"

    def load(self) -> None:
        """Continue from the checkpoint, if there is one."""
        if self.checkpoint.exists():
            saved = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
            self.network.load_state_dict(saved["network"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.state = saved["state"]

    def save(self) -> None:
        """Write the checkpoint."""
        kept = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict(),
                "state": self.state}  # fmt: skip
        with draft_of(self.checkpoint) as draft:
            torch.save(kept, draft)
        self.save_weights()

    def save_weights(self) -> None:
        """The weights as they are now, as float16."""
        half = {k: v.half().cpu().contiguous() for k, v in self.network.state_dict().items()}
        save_file(half, self.out / "model.safetensors")

    def rate(self) -> float:
        """Learning rate at this time of this cycle."""
        progress = min(1.0, self.state["seconds"] / (60 * self.options.minutes))
        peak = PEAK * LATER ** self.state["cycle"]
        if progress < WARM_UP:
            return float(peak * (progress / WARM_UP + 0.01))
        return float(peak * (0.5 + 0.5 * math.cos(math.pi * progress)) + 1e-6)

    def step(self, generators: Sequence[RandomImages], rng: random.Random) -> Tensor:
        """One step on new images."""
        size, count = rng.choice(BATCHES)
        images = rng.choice(generators)
        images.size = (size, size)
        seed = rng.getrandbits(60)
        generator = torch.Generator(self.device).manual_seed(seed)
        with torch.no_grad():
            image, labels = images(generator, max(1, count // self.options.smaller))
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        amp = self.device == "cuda" and self.options.precision == "bfloat16"
        with torch.autocast(self.device, torch.bfloat16, enabled=amp):
            answer = self.network(image)
        loss = loss_of(answer, labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 5.0)
        self.optimizer.step()
        return loss.detach()

    def train(self, generators: Sequence[RandomImages], volumes: Sequence[Any], end: float) -> None:
        """Steps until the cycle or the time ends."""
        rng = random.Random(  # noqa: S311 - not a secret
            f"{self.options.seed} {self.state['cycle']} {self.state['steps']}"
            + (" further" if self.options.start else "")  # other images than those of that run
        )
        last = saved = time.monotonic()
        losses: list[Tensor] = []
        while self.state["seconds"] < 60 * self.options.minutes:
            if self.stopped or time.monotonic() > end:
                self.save()
                return
            losses.append(self.step(generators, rng))
            self.state["steps"] += 1
            if len(losses) % 20 == 0:
                loss = float(torch.stack(losses[-20:]).mean())  # waits for the GPU
                if not math.isfinite(loss):
                    raise SystemExit(f"the loss is {loss} at step {self.state['steps']}")
            now = time.monotonic()
            self.state["seconds"] += now - last
            last = now
            if now - saved > 60:
                loss = float(torch.stack(losses).mean())
                self.log({"loss": loss})
                self.save()
                losses, saved = [], time.monotonic()
                last = saved
        self.finish(volumes)

    def log(self, values: dict[str, Any]) -> None:
        """A line of the history."""
        line = {"cycle": self.state["cycle"], "steps": self.state["steps"],
                "seconds": round(self.state["seconds"], 1), **values}  # fmt: skip
        self.state["history"].append(line)
        print(json.dumps(line), flush=True)

    def finish(self, volumes: Sequence[Any]) -> None:
        """Weights and scores of a finished cycle."""
        half = {k: v.half() for k, v in self.network.state_dict().items()}
        live = {k: v.clone() for k, v in self.network.state_dict().items()}
        self.network.load_state_dict({k: v.float() for k, v in half.items()})
        found = scores(self.network, volumes, self.scheme, self.device)
        self.network.load_state_dict(live)
        self.log({"held_out": found})
        self.save_weights()
        self.state["cycle"] += 1
        self.state["seconds"] = 0.0
        record = {
            "network": self.spec,
            "command": "python -m benchmarks.brain_tissue "
            + " ".join(f"--{k} {v}" for k, v in vars(self.options).items()),
            "seed": self.options.seed,
            "device": torch.cuda.get_device_name() if self.device == "cuda" else "cpu",
            "held_out": found,
            **self.state,
        }
        (self.out / "record.json").write_text(json.dumps(record, indent=1) + "\n")
        if self.state["cycle"] < self.options.cycles:
            self.save()
        else:
            self.checkpoint.unlink(missing_ok=True)


def main() -> None:
    """Train for a while, or go on."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of label maps")
    parser.add_argument("--network", default="ConvCaps")
    parser.add_argument("--arguments", default="{}", help="of the network, as JSON")
    parser.add_argument("--minutes", type=float, default=8, help="of a cycle")
    parser.add_argument("--cycles", type=int, default=2)
    parser.add_argument("--now", type=float, default=8.5, help="minutes of this call at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--start", type=Path, help="weights to begin with")
    parser.add_argument("--smaller", type=int, default=1, help="divides the batch")
    parser.add_argument("--maps", type=int, help="the first label maps only, to try it out")
    parser.add_argument("--volumes", type=int, default=VOLUMES)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.now
    options.out.mkdir(parents=True, exist_ok=True)
    record = options.out / "record.json"
    if record.exists() and json.loads(record.read_text())["cycle"] >= options.cycles:
        print("finished before")
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    run = Run(options, device)
    run.load()
    config = Randomization()
    volumes = held_out_volumes(
        load_maps(options.data, run.scheme, True, device, options.maps), config, options.volumes
    )
    maps = load_maps(options.data, run.scheme, False, device, options.maps)
    print(f"ready after {time.monotonic() + 60 * options.now - end:.1f} s", flush=True)
    generators = [
        RandomImages(maps, config, (160, 160), normalization=one, planes=PLANES)
        for one in NORMALIZATIONS.values()
    ]
    while run.state["cycle"] < options.cycles and not run.stopped and time.monotonic() < end:
        run.train(generators, volumes, end)


if __name__ == "__main__":
    main()
