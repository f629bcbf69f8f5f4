"""A real PostgreSQL of the tests' own: fresh files, a free loopback port, gone at the end."""

from __future__ import annotations

import atexit
import functools
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid

import psycopg


def _binary(name: str) -> str | None:
    places = [shutil.which(name), *sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True)]
    return next((place for place in places if place), None)


def missing() -> str | None:
    """Why no server can be started, or nothing."""
    lost = [name for name in ("initdb", "postgres") if _binary(name) is None]
    if lost:
        return f"PostgreSQL is not installed: no {' and no '.join(lost)} in PATH or /usr/lib/postgresql/*/bin"
    if os.geteuid() == 0 and _other_user() is None:
        return "PostgreSQL refuses to run as root and neither user postgres nor user nobody exists"
    return None


def _other_user() -> str | None:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)


class Server:
    """One running server; ``options`` are settings such as fsync=off."""

    def __init__(self, **options: str) -> None:
        self.folder = tempfile.mkdtemp(prefix="expost-postgres-")
        self._as = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam(_other_user() or "")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        data = os.path.join(self.folder, "data")
        self._run([_binary("initdb"), "-D", data, "-U", "owner", "-A", "trust", "-E", "UTF8", "--no-sync"])
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        settings = {"listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": self.folder}
        settings |= {"max_connections": "200", "shared_buffers": "32MB"} | options
        arguments = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
        self._command = [_binary("postgres"), "-D", data, *arguments]
        self._log = open(os.path.join(self.folder, "log"), "wb")  # noqa: SIM115  (open as long as the server)
        self.start()
        atexit.register(self.stop)

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log, cwd=self.folder, **self._as)
        self._wait()

    def crash(self) -> None:
        """Stop without writing anything down; the next start recovers from the log."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(20)

    def _run(self, command: list[str | None]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, **self._as)
        assert done.returncode == 0, done.stdout + done.stderr

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None and time.monotonic() < deadline, "the server did not start"
                time.sleep(0.05)

    def url(self, database: str) -> str:
        return f"postgresql://owner@127.0.0.1:{self.port}/{database}"

    def new_place(self) -> str:
        """The URL of an empty schema of its own."""
        name = "ledger_" + uuid.uuid4().hex[:12]
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return self.url("postgres") + f"?options=-csearch_path%3D{name}"

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # fast shutdown
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@functools.cache
def shared_server() -> Server:
    """The server that all tests of one run share; each test has a schema of its own."""
    return Server()
