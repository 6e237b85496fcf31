"""Optional dependencies: what each extra installs, and the error if it is missing."""

from __future__ import annotations

from importlib.util import find_spec

from caps_med.errors import MissingExtra

#: The modules that each extra installs.
EXTRAS = {
    "api": (
        "fastapi",
        "fastapi_offline",
        "uvicorn",
        "python_multipart",
        "pydantic_settings",
        "prometheus_client",
    ),
    "train": ("ignite", "tensorboard", "scipy", "sklearn", "yaml", "jinja2", "matplotlib"),
    "data": ("nilearn",),
    "import": ("h5py",),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "triton": ("triton",),
    "client": ("httpx",),
    "dicomweb": ("dicomweb_client",),
    "mlflow": ("mlflow",),
    "scale": ("ray", "fsspec", "s3fs", "upath"),
    "otel": ("opentelemetry",),
}


def has_extra(extra: str) -> bool:
    """Whether all modules of `extra` are installed; none is imported."""
    return all(find_spec(module) is not None for module in EXTRAS[extra])


def install_command(extra: str) -> str:
    """The command that installs `extra`."""
    return f"pip install 'caps-med[{extra}]'"


def require_extra(extra: str, purpose: str) -> None:
    """Check that `extra` is installed.

    Args:
        purpose: what needs it, as the subject of the message: ``"export to ONNX"``.

    Raises:
        MissingExtra: one of its modules is missing; the message contains the install command.
    """
    if not has_extra(extra):
        raise MissingExtra(f"{purpose} needs more packages: {install_command(extra)}")
