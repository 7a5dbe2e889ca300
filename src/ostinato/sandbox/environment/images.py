"""Images from files: a rootfs archive, an OCI layout or a `docker save` file, unpacked once by its digest.

    archive or layout ──skopeo──► OCI layout ──umoci──► store/DIGEST/rootfs, image.json ──► Image
    rootfs archive ──────────────checked, unpacked here──┘

An archive comes from strangers: paths and links that lead out of it, and more than fits, are refused by name.
Devices, sockets and pipes are left out, since a sandbox has its own.
"""

import hashlib
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

import zstandard

from ostinato.sandbox.base import Image, SandboxError
from ostinato.sandbox.environment.tools import run_tool

ABOUT = "image.json"
MOST_BYTES = 16 << 30
"""The most bytes that an image may have when it is unpacked."""
MOST_FILES = 2_000_000
_CHUNK = 1 << 20
Kind = Literal["rootfs", "docker-archive", "oci-archive", "oci"]


def unpack(source: Path, store: Path, *, most_bytes: int = MOST_BYTES) -> Image:
    """Return the image of an archive or OCI layout; an equal one in the store is used again.

    Raises SandboxError, and leaves the store as it was.
    """
    kind = kind_of(source)
    digest = layout_digest(source) if kind == "oci" else file_digest(source)

    def write(place: Path) -> None:
        if kind == "rootfs":
            _unpack_rootfs(source, place / "rootfs", most_bytes)
            return
        layout = source
        if kind != "oci":
            layout = place / "layout"
            run_tool("skopeo", "--insecure-policy", "copy", "--quiet", f"{kind}:{source}", f"oci:{layout}:x")
        write_layout(layout, place, most_bytes)

    return cached(store, digest, write)


def cached(store: Path, digest: str, write: Callable[[Path], None]) -> Image:
    """Return the image with this digest; `write` makes `rootfs` and, if it knows them, the settings.

    Raises SandboxError.
    """
    target = store / digest
    if not target.is_dir():
        store.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=store, prefix=".part-") as scratch:
            write(Path(scratch))
            draft = Path(scratch, "done")
            draft.mkdir()
            Path(scratch, "rootfs").rename(draft / "rootfs")
            about = Path(scratch, ABOUT)
            about.rename(draft / ABOUT) if about.exists() else (draft / ABOUT).write_text("{}\n")
            publish(draft, target)
    return load(target)


def publish(draft: Path, target: Path) -> None:
    """Move a draft into the store atomically; an equal one that is there already stays."""
    try:
        draft.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def load(place: Path) -> Image:
    """Return an image of the store. Raises SandboxError."""
    try:
        about = json.loads((place / ABOUT).read_text())
    except (OSError, ValueError) as error:
        raise SandboxError(f"{place} is no unpacked image ({error}): build it again") from error
    return Image(
        root=place / "rootfs",
        workdir=about.get("workdir", "/repo"),
        environment=about.get("environment", {}),
    )


def kind_of(source: Path) -> Kind:
    """Return what a file or directory is. Raises SandboxError for one that is no image."""
    if source.is_dir():
        if (source / "oci-layout").is_file():
            return "oci"
        raise SandboxError(f"{source} is a directory without `oci-layout`: give an OCI layout or an archive")
    try:
        with tarfile.open(source) as archive:
            names = {member.name.removeprefix("./") for _, member in zip(range(5000), archive, strict=False)}
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise SandboxError(f"{source} cannot be read as a tar archive ({error}): give an image") from error
    if "oci-layout" in names:
        return "oci-archive"
    return "docker-archive" if "manifest.json" in names else "rootfs"


def write_layout(layout: Path, place: Path, most_bytes: int) -> None:
    """Unpack the only image of an OCI layout to `place/rootfs`, and write its settings beside it."""
    manifest = _blob(layout, _manifest(layout)["digest"])
    _check_layers(layout, manifest, most_bytes)
    tag = _manifest(layout).get("annotations", {}).get("org.opencontainers.image.ref.name", "x")
    bundle = place / "bundle"
    rootless = [] if os.geteuid() == 0 else ["--rootless"]
    run_tool("umoci", "unpack", *rootless, "--image", f"{layout}:{tag}", str(bundle))
    (bundle / "rootfs").rename(place / "rootfs")
    config = _blob(layout, manifest["config"]["digest"]).get("config", {})
    variables = dict(line.split("=", 1) for line in config.get("Env") or () if "=" in line)
    about = {"workdir": config.get("WorkingDir") or "/repo", "environment": variables}
    (place / ABOUT).write_text(json.dumps(about, indent=1, sort_keys=True) + "\n")


def layout_digest(layout: Path) -> str:
    return str(_manifest(layout)["digest"]).removeprefix("sha256:")[:32]


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def _manifest(layout: Path) -> dict[str, Any]:
    """Return the entry of the image in the index of a layout. Raises SandboxError unless there is one."""
    try:
        entries = json.loads((layout / "index.json").read_text())["manifests"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SandboxError(f"{layout} is no OCI layout: index.json cannot be read ({error})") from error
    if len(entries) != 1:
        raise SandboxError(f"{layout} holds {len(entries)} images: give a layout of one (`skopeo copy`)")
    entry: dict[str, Any] = entries[0]
    return entry


def _blob_path(layout: Path, digest: str) -> Path:
    algorithm, _, name = digest.partition(":")
    if algorithm != "sha256" or len(name) != 64 or not name.isalnum():
        raise SandboxError(f"{layout} names the digest {digest[:80]!r}: only sha256 is read")
    return layout / "blobs" / "sha256" / name


def _blob(layout: Path, digest: str) -> dict[str, Any]:
    path = _blob_path(layout, digest)
    try:
        data = path.read_bytes()
        value: dict[str, Any] = json.loads(data)
    except (OSError, ValueError) as error:
        raise SandboxError(f"{layout}: the blob {digest} cannot be read ({error})") from error
    if hashlib.sha256(data).hexdigest() != path.name:
        raise SandboxError(f"{layout}: the blob {digest} has other bytes than its digest says")
    return value


def _check_layers(layout: Path, manifest: Mapping[str, Any], most_bytes: int) -> None:
    """Raise SandboxError when the layers together unpack to more than `most_bytes`."""
    total = 0
    for layer in manifest.get("layers", ()):
        path = _blob_path(layout, layer["digest"])
        try:
            with path.open("rb") as file:
                for size in _unpacked_sizes(file, str(layer.get("mediaType", ""))):
                    total += size
                    if total > most_bytes:
                        raise SandboxError(f"{layout} unpacks to more than {most_bytes} bytes: a bomb?")
        except (OSError, zlib.error, zstandard.ZstdError) as error:
            raise SandboxError(f"{layout}: the layer {layer['digest']} cannot be read ({error})") from error


def _unpacked_sizes(file: BinaryIO, media_type: str) -> Iterator[int]:
    """Yield the sizes of the pieces of a layer as they are unpacked."""
    if media_type.endswith("zstd"):
        for piece in zstandard.ZstdDecompressor().read_to_iter(file, write_size=_CHUNK):
            yield len(piece)
    elif media_type.endswith("gzip"):
        unzip = zlib.decompressobj(wbits=31)
        while data := unzip.unconsumed_tail or file.read(_CHUNK):
            yield len(unzip.decompress(data, _CHUNK))
    else:
        yield os.fstat(file.fileno()).st_size


def _unpack_rootfs(source: Path, target: Path, most_bytes: int) -> None:
    target.mkdir()
    root, total = os.path.realpath(target), 0
    try:
        with tarfile.open(source) as archive:
            for count, member in enumerate(archive):
                total += member.size
                if total > most_bytes or count >= MOST_FILES:
                    raise SandboxError(
                        f"{source} unpacks to more than {most_bytes} bytes or {MOST_FILES} files: a bomb?"
                    )
                if member.isdev():
                    continue
                _check_place(source, root, member)
                archive.extract(member, target, filter="tar")
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise SandboxError(f"{source} cannot be unpacked: {error}") from error


def _check_place(source: Path, root: str, member: tarfile.TarInfo) -> None:
    """Raise SandboxError for a member, or the target of a hard link, that lies outside of the root."""
    names = [member.name, *([member.linkname] if member.islnk() else [])]
    for name in names:
        place = os.path.realpath(os.path.join(root, os.path.dirname(name)))  # noqa: PTH118, PTH120
        outside = place != root and not place.startswith(f"{root}{os.sep}")
        if outside or ".." in name.split("/") or name.startswith("/"):
            raise SandboxError(f"{source}: {name[:200]!r} leads out of the archive: it is not unpacked")
