"""A real S3 server on this machine: OpenStack Swift with its S3 API, all in one process.

    with s3_server() as environment:          # AWS_ENDPOINT_URL and credentials
        subprocess.run([...], env={**os.environ, **environment})

Swift is what runs public clouds' object stores; it is a Python package (``pip install swift``) and
starts in seconds. One disk and one copy of each object: for tests, not for data.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_KINDS = ("account", "container", "object")
_GREEN_THREADS = 200
#: The middleware of the proxy, in the order in which requests pass it.
_PIPELINE = ("catch_errors", "gatekeeper", "listing_formats", "bulk", "s3api", "tempauth", "slo")


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """The environment of its clients, until the block ends.

    Raises:
        RuntimeError: the server does not start; the message has the end of its log.
    """
    secret = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="caps-s3-") as folder:
        log = Path(folder, "log")
        with log.open("wb") as errors:
            server = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.cluster.s3", folder], cwd=_ROOT, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                env={**os.environ, "SWIFT_SECRET": secret},
            )  # fmt: skip
        try:
            port = server.stdout.readline().strip() if server.stdout else ""
            if not port:
                raise RuntimeError(f"Swift did not start: {log.read_text()[-2000:]}")
            yield {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "caps:med",
                "AWS_SECRET_ACCESS_KEY": secret,
                "AWS_DEFAULT_REGION": "us-east-1",
            }
        finally:
            server.kill()
            server.communicate()


def serve(folder: Path, secret: str) -> None:
    """Run Swift in this process; its port is printed once it answers."""
    import eventlet

    eventlet.monkey_patch()
    from eventlet import wsgi
    from swift.common import utils
    from swift.common.ring import RingBuilder
    from swift.common.wsgi import loadapp

    utils.HASH_PATH_SUFFIX = b"caps"
    (folder / "disk" / "d1").mkdir(parents=True)
    common = f"[DEFAULT]\nswift_dir = {folder}\ndevices = {folder}/disk\nmount_check = false\n"

    def start(name: str, configuration: str, listener: object) -> object:
        path = folder / f"{name}.conf"
        path.write_text(common + configuration)
        pool = eventlet.GreenPool(_GREEN_THREADS)
        app = loadapp(str(path))
        return eventlet.spawn(wsgi.server, listener, app, log_output=False, custom_pool=pool)

    for kind in _KINDS:
        listener = eventlet.listen(("127.0.0.1", 0))
        ring = RingBuilder(part_power=2, replicas=1, min_part_hours=0)
        address = {"ip": "127.0.0.1", "port": listener.getsockname()[1]}
        ring.add_dev({"region": 1, "zone": 1, "device": "d1", "weight": 1.0, **address})
        ring.rebalance()
        ring.get_ring().save(str(folder / f"{kind}.ring.gz"))
        start(kind, f"[pipeline:main]\npipeline = s\n[app:s]\nuse = egg:swift#{kind}\n", listener)
    filters = "".join(f"[filter:{name}]\nuse = egg:swift#{name}\n" for name in _PIPELINE)
    filters = filters.replace("#tempauth\n", f"#tempauth\nuser_caps_med = {secret} .admin\n")
    proxy = (
        f"[pipeline:main]\npipeline = {' '.join(_PIPELINE)} proxy-server\n{filters}"
        "[app:proxy-server]\nuse = egg:swift#proxy\n"
        "account_autocreate = true\nallow_account_management = true\n"
    )
    listener = eventlet.listen(("127.0.0.1", 0))
    start("proxy", proxy, listener)
    print(listener.getsockname()[1], flush=True)
    eventlet.tpool.execute(sys.stdin.read)  # ends with the process that has started this one


if __name__ == "__main__":
    serve(Path(sys.argv[1]), os.environ["SWIFT_SECRET"])
