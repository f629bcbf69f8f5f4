"""The command ``expost serve`` in a process of its own, for tests that kill it."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """The command ``expost serve`` in a process that can be killed."""

    def __init__(self, settings: Path, port: int) -> None:
        self._settings, self.port = settings, port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        code = "import sys; from expost.cli import main; sys.argv[0] = 'expost'; main()"
        command = [sys.executable, "-c", code, "serve", str(self._settings), "--port", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                if httpx2.get(f"http://127.0.0.1:{self.port}/ready", timeout=5).status_code == 200:
                    return
            except httpx2.TransportError:
                time.sleep(0.05)
        raise AssertionError("the service did not start")

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
