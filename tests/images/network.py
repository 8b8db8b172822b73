"""A network of namespaces: each service has an address of its own, and no way out."""

from __future__ import annotations

import subprocess
from pathlib import Path

PREFIX = "dximg"  # names of devices have at most 15 characters
BRIDGE = f"{PREFIX}0"
SUBNET = "10.213.77"


class Network:
    """Needs root. The host reaches every member at its address; members know each other by name."""

    def __init__(self, hosts: Path) -> None:
        self.hosts = hosts
        self._members: dict[str, str] = {}
        self.remove_leftovers()
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("address", "add", f"{SUBNET}.1/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")

    def join(self, name: str) -> str:
        """Adds a member; its address."""
        number = len(self._members) + 2
        address, namespace, device = f"{SUBNET}.{number}", self._namespace(name), f"{PREFIX}v{number}"
        ip("netns", "add", namespace)
        ip("link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("link", "set", device, "master", BRIDGE, "up")
        ip("-netns", namespace, "address", "add", f"{address}/24", "dev", "eth0")
        ip("-netns", namespace, "link", "set", "eth0", "up")
        ip("-netns", namespace, "link", "set", "lo", "up")
        self._members[name] = address
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in self._members.items())]
        self.hosts.write_text("\n".join(lines) + "\n")
        return address

    def inside(self, name: str) -> list[str]:
        """What stands before a command that runs in the namespace of this member."""
        return ["ip", "netns", "exec", self._namespace(name)]

    def close(self) -> None:
        for name in self._members:
            ip("netns", "delete", self._namespace(name))
        ip("link", "delete", BRIDGE)

    def remove_leftovers(self) -> None:
        """Of a run that was killed."""
        for line in ip("netns", "list").splitlines():
            if line.startswith(f"{PREFIX}-"):
                ip("netns", "delete", line.split()[0])
        if BRIDGE in ip("-brief", "link"):
            ip("link", "delete", BRIDGE)

    @staticmethod
    def _namespace(name: str) -> str:
        return f"{PREFIX}-{name}"


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True).stdout
