"""The services of compose.yaml, started from their images as `docker compose up` starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.deploy.compose import ROOT, seconds
from tests.images.buildah import Buildah
from tests.images.network import Network

START_SECONDS = 60.0
# No container has processes of its own numbering here, so the service's own number can be told and signalled.
TELL_NUMBER = ["/bin/sh", "-c", 'echo "$$" >&2; exec "$@"', "sh"]


class Container:
    """One service: a container of its image with an address, a name and the volumes that the file names."""

    def __init__(
        self, buildah: Buildah, network: Network, name: str, service: Mapping[str, Any], folder: Path
    ) -> None:
        self.name, self.service = name, service
        self.address = network.join(name)
        self.image = buildah.config(self.service["image"])
        self.id = buildah("from", "--pull-never", self.service["image"])
        self.root = Path(buildah("mount", self.id))
        self._buildah, self._network, self._folder = buildah, network, folder
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [*self._entrypoint(), *self.service.get("command", self.image["Cmd"])]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._run([*TELL_NUMBER, *command]), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def execute(self, *command: str, limit: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Runs a command inside the service, as `docker compose exec` does. Raises TimeoutExpired.

        In the namespaces that are there: a second `buildah run` takes mounts of the first one away.
        """
        self.check_alive()
        process = Path(f"/proc/{self.number}")
        owner = process.stat()
        enter = ["nsenter", f"--target={self.number}", "--mount", "--net", "--uts", "--root", "--wd"]
        enter += [f"--setuid={owner.st_uid}", f"--setgid={owner.st_gid}", "env", "--ignore-environment"]
        environment = (process / "environ").read_text().rstrip("\0").split("\0")
        run = [*enter, *environment, *command]
        return subprocess.run(run, capture_output=True, text=True, timeout=limit, check=False)

    def call(self, *arguments: str, text: str = "") -> str:
        """What the image's program prints, as with `docker compose run --rm --no-TTY`."""
        run = self._run([*self._entrypoint(), *arguments])
        done = subprocess.run(run, capture_output=True, text=True, input=text, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def until_healthy(self) -> float:
        """Asks until the health check succeeds, at most until Docker would give up; the seconds that took."""
        check = self.service["healthcheck"]
        begun = time.monotonic()
        limit = seconds(check["start_period"]) + check["retries"] * seconds(check["interval"])
        while (trouble := self._trouble(check)) is not None:
            late = time.monotonic() - begun > limit
            assert not late, f"{self.name} is not healthy: {trouble}{self.said()}"
            time.sleep(0.2)
        return time.monotonic() - begun

    def _trouble(self, check: Mapping[str, Any]) -> str | None:
        """What the health check says of a service that is not healthy; one that takes too long has failed."""
        kind, *command = check["test"]
        assert kind == "CMD"
        try:
            asked = self.execute(*command, limit=seconds(check["timeout"]))
        except subprocess.TimeoutExpired as late:
            return f"{late}\n"
        return asked.stderr if asked.returncode else None

    def check_alive(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} ended: {self.said()}"

    def stop(self) -> int:
        """Stops it as Docker does; its exit code. Fails when it would have had to be killed."""
        assert self._process is not None
        os.kill(self.number, signal.Signals[self.image.get("StopSignal") or "SIGTERM"])
        return self._process.wait(timeout=seconds(self.service["stop_grace_period"]))

    def kill(self) -> None:
        """Ends it at once, if it runs; buildah kills what it has started."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    @property
    def number(self) -> int:
        """The number of its process on this machine, as soon as it has told it."""
        deadline = time.monotonic() + START_SECONDS
        while "\n" not in self.said():
            self.check_alive()
            assert time.monotonic() < deadline, f"{self.name} does not start"
            time.sleep(0.05)
        return int(self.said().split()[0])

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def _entrypoint(self) -> list[str]:
        found: list[str] = self.service.get("entrypoint", self.image["Entrypoint"])
        return found

    def _run(self, command: list[str]) -> list[str]:
        options = [f"--env={name}={value}" for name, value in self.service.get("environment", {}).items()]
        options += [f"--volume={each}" for each in [f"{self._network.hosts}:/etc/hosts:ro", *self._volumes()]]
        if folder := self.service.get("working_dir"):
            options.append(f"--workingdir={folder}")
        # Without --no-hosts buildah mounts a file of its own at /etc/hosts, at times on top of the network's.
        run = self._buildah.command(
            "run", "--isolation=chroot", "--no-hosts", *options, self.id, "--", *command
        )
        return [*self._network.inside(self.name), *run]

    def _volumes(self) -> list[str]:
        return [self._volume(*volume.split(":")) for volume in self.service.get("volumes", [])]

    def _volume(self, source: str, target: str, mode: str = "rw") -> str:
        """A folder of the repository, or a named volume: empty at first, and of whom the image says."""
        if source.startswith("."):
            return f"{(ROOT / source).resolve()}:{target}:{mode}"
        folder = self._folder / "volumes" / source
        if not folder.exists():
            folder.mkdir(parents=True)
            inside = self.root / target.removeprefix("/")
            owner = inside.stat() if inside.exists() else self.root.stat()
            os.chown(folder, owner.st_uid, owner.st_gid)
        return f"{folder}:{target}:{mode}"


class Stack:
    """Services by name; all that were started end with it."""

    def __init__(self, buildah: Buildah, network: Network, folder: Path) -> None:
        self._buildah, self._network, self._folder = buildah, network, folder
        self._containers: dict[str, Container] = {}

    def add(self, name: str, service: Mapping[str, Any]) -> Container:
        self._containers[name] = Container(self._buildah, self._network, name, service, self._folder)
        return self._containers[name]

    def __getitem__(self, name: str) -> Container:
        return self._containers[name]

    def kill(self) -> None:
        for container in self._containers.values():
            container.kill()
