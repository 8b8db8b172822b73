"""Images without a container engine: built and run by buildah, in a storage of their own."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
# What the official image of Python has and Debian's smallest system lacks.
PACKAGES = "ca-certificates,netbase,python-is-python3,python3,python3-venv,tzdata"
CERTIFICATES = Path("/etc/ssl/certs")


class Buildah:
    """Needs root. `close` removes every container and image that was made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        self._program = ["buildah", "--root", str(folder / "storage"), "--runroot", str(folder / "run")]
        # Not every file system can be a layer of others; vfs copies, which takes minutes and gigabytes more.
        overlay = subprocess.run(
            self.command("--storage-driver=overlay", "info"), capture_output=True, check=False
        )
        self._program.append(f"--storage-driver={'vfs' if overlay.returncode else 'overlay'}")

    def command(self, *arguments: str | Path) -> list[str]:
        return [*self._program, *map(str, arguments)]

    def __call__(self, *arguments: str | Path) -> str:
        """What it prints. AssertionError with the end of all that it said when it fails."""
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
        assert done.returncode == 0, f"buildah {arguments}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout.strip()

    def base(self, image: str) -> str:
        """Has the image from its registry, or else makes one like it from Debian's packages; which it was."""
        pulled = subprocess.run(
            self.command("pull", f"docker.io/library/{image}"), capture_output=True, check=False
        )
        if pulled.returncode == 0:
            return "its registry"
        system, archive = self._folder / "system", self._folder / "system.tar"
        run = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(system), MIRROR]
        made = subprocess.run(run, capture_output=True, text=True, check=False)
        assert made.returncode == 0, f"debootstrap: {made.stdout[-2000:]}{made.stderr[-2000:]}"
        packed = [
            "tar",
            "--directory",
            str(system),
            "--exclude=./var/cache/apt/*",
            "--exclude=./var/lib/apt/lists/*",
        ]
        subprocess.run([*packed, "--create", "--file", str(archive), "."], check=True, capture_output=True)
        shutil.rmtree(system)
        container = self("from", "scratch")
        self("add", container, archive, "/")
        self(
            "config", "--env", "PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin", container
        )
        self("commit", "--quiet", "--rm", container, image)
        archive.unlink()
        return "debootstrap"

    def build(self, image: str, dockerfile: str, arguments: Mapping[str, str]) -> None:
        """Builds as `docker build` does, from packages where this machine's pip finds them."""
        settings = self._folder / "pip.conf"
        configuration, folders = pip_configuration()
        settings.write_text(configuration)
        volumes = {settings: "/etc/pip.conf"} | {folder: str(folder) for folder in folders}
        self(
            *("build", "--quiet", "--isolation", "chroot", "--format", "docker", "--pull-never"),
            *(f"--build-arg={name}={value}" for name, value in arguments.items()),
            *(f"--volume={source}:{target}:ro" for source, target in volumes.items()),
            *("--file", ROOT / dockerfile, "--tag", image, ROOT),
        )

    def config(self, image: str) -> dict[str, Any]:
        """The image's configuration: Entrypoint, Cmd, User, Healthcheck, ..."""
        found: dict[str, Any] = json.loads(self("inspect", "--type", "image", image))["Docker"]["config"]
        return found

    def size(self, image: str) -> str:
        found: str = json.loads(self("images", "--json", image))[0]["size"]
        return found

    def close(self) -> None:
        self("rm", "--all")
        self("rmi", "--all", "--force")
        shutil.rmtree(self._folder)


def pip_configuration() -> tuple[str, list[Path]]:
    """This machine's configuration of pip as a file, and the files and folders on its disk that it names."""
    listed = subprocess.run(["pip", "config", "list"], capture_output=True, text=True, check=True).stdout
    settings = {
        name.removeprefix(":env:.").removeprefix("global."): str(ast.literal_eval(value))
        for name, _, value in (line.partition("=") for line in listed.splitlines())
        if name.startswith((":env:.", "global."))
    }
    paths = [_place(word) for value in settings.values() for word in value.split()]
    folders = [path for path in paths if path.is_absolute() and path.exists()]
    lines = ["[global]", *(f"{name} = {value}" for name, value in settings.items())]
    return "\n".join(lines) + "\n", sorted({CERTIFICATES, *folders})


def _place(word: str) -> Path:
    """What a value names on the disk: of an index its folder's parent, because its files lie beside it."""
    url = urlsplit(word)
    return Path(url.path).parent if url.scheme == "file" else Path(word)
