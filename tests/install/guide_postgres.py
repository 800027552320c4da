#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The commands of docs/guides/containers.md and docs/profile.md that ask a server are what a PostgreSQL on Quarry answers.

A server of its own begins in a folder of its own, without a port, with what the guide's unit sets. A client keeps one backend at work.
The guide's three questions are asked of the server and of the backend, and the two commands of the profile's section of the backend.

  guide_postgres.py LIBRARY
"""
import contextlib
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("QUARRY_BUILD_DIR", ROOT / "build")) / "bin/quarry"
PATIENCE = 120  # seconds, which only end a hang
WORK = """select pg_backend_pid();
do $$ begin for i in 1..2000000000 loop perform regexp_replace(md5(i::text) || repeat('x', i % 2000), '(x+)', 'y'); end loop; end $$;"""


def programs():
    """The newest folder of the server's programs, or None."""
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: float(path.split("/")[4]))
    return next((pathlib.Path(path) for path in reversed(folders) if os.path.exists(path + "/initdb")), None)


def block(document, words):
    """The lines of the first indented block below these words."""
    text = (ROOT / document).read_text()
    return re.search(r"\n\n((?:    .*\n)+)", text[text.index(words):])[1].replace("    ", "").splitlines()


def wait_for(what):
    end = time.monotonic() + PATIENCE
    while not (found := what()):
        assert time.monotonic() < end, "nothing within the patience"
        time.sleep(0.2)
    return found


class Server:
    """A server in a folder that its user may read, and what runs as this user."""

    def __init__(self, folder, library):
        self.folder, self.data = folder, folder / "data"
        os.chmod(folder, 0o755)
        for source, name in ((library, "libquarry-malloc.so"), (TOOL, "quarry")):
            shutil.copy(source, folder / name)
            os.chmod(folder / name, 0o755)
        self.data.mkdir()
        self.user = []
        if os.geteuid() == 0:  # the server refuses root
            shutil.chown(self.data, "postgres", "postgres")
            self.user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups"]

    def run(self, command, environment=None, **more):
        given = {"PATH": f"{self.folder}:{os.environ['PATH']}", "QUARRY_LIB_DIR": str(self.folder), **(environment or {})}
        return subprocess.run([*self.user, *map(str, command)], env=given, cwd=self.data, capture_output=True, text=True, timeout=PATIENCE, **more)

    def begin(self, command, environment, **more):
        return subprocess.Popen([*self.user, *map(str, command)], env={"PATH": os.environ["PATH"], **environment}, cwd=self.data, **more)

    def ask(self, line):
        return self.run(["sh", "-c", line])


@contextlib.contextmanager
def started(folder, library):
    """A server on Quarry, its number, and that of a backend at work."""
    server, bin_ = Server(folder, library), programs()
    made = server.run([bin_ / "initdb", "-D", server.data, "-A", "trust"])
    assert made.returncode == 0, made.stderr
    unit = (ROOT / "docs/guides/containers.md").read_text()
    environment = {**dict(one.split("=", 1) for one in re.findall(r"^Environment=(.*)", unit, re.M)), "LD_PRELOAD": str(folder / "libquarry-malloc.so")}
    log = open(folder / "log", "w")
    main = server.begin([bin_ / "postgres", "-D", server.data, "-c", "listen_addresses=", "-c", f"unix_socket_directories={server.data}"], environment,
                        stdout=log, stderr=log)
    try:
        wait_for(lambda: "ready to accept" in (folder / "log").read_text())
        client = server.begin([bin_ / "psql", "-h", server.data, "-At", "postgres"], {}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        client.stdin.write(WORK)
        client.stdin.close()
        yield server, main.pid, int(client.stdout.readline())
        client.kill()
        client.wait()
    finally:
        main.send_signal(3)  # SIGQUIT: at once
        main.wait(PATIENCE)
        log.close()


def questions(server, pid, is_backend):
    """What containers.md tells to ask."""
    doctor, maps, stats = (line.replace("PID", str(pid)) for line in block("docs/guides/containers.md", "Did it get in?"))
    told = server.ask(doctor)
    assert re.search(r"ok +malloc +Quarry\n", told.stdout), told.stdout + told.stderr
    # A backend writes its title over its environment, as the guide says.
    assert bool(re.search(r"LD_PRELOAD +not set\n", told.stdout)) == is_backend, told.stdout
    assert int(server.ask(maps).stdout) > 0
    # A process that has hardly used its heap has no page yet: the backend is at work.
    told = wait_for(lambda: (answer := server.ask(stats)).returncode == 0 and answer)
    assert re.search(r"live +\d", told.stdout), told.stdout


def main():
    if not programs():
        print("SKIP: needs PostgreSQL, of the package postgresql")
        return 77
    if not TOOL.exists():
        print("SKIP: needs the tool (make tool)")
        return 77
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        print("SKIP: needs setpriv, since PostgreSQL refuses root")
        return 77
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, started(pathlib.Path(folder), sys.argv[1]) as (server, pid, backend):
        questions(server, pid, False)
        questions(server, backend, True)
        every, one = block("docs/profile.md", "and sample it:")
        listed = server.ask(every).stdout
        assert re.search(rf"^ *{backend} .* postgres$", listed, re.M), listed
        profile = server.ask(one.replace("4711", str(backend)).replace("--for 30", "--for 3"))
        # By symbols of the program, or of the library for a server without them; palloc and its kin are folded away.
        assert profile.returncode == 0 and re.search(r"\w+ in postgres\b", profile.stdout), profile.stdout + profile.stderr
        assert not re.search(r"  (palloc|MemoryContextAlloc|AllocSet\w+) in postgres", profile.stdout), profile.stdout
        all_at_once = block("docs/profile.md", "Or sample all children")[0].replace("4700", str(pid)).replace("--for 30", "--for 3")
        server.ask(all_at_once)
        assert (server.data / f"{backend}.qtr").stat().st_size > 0 and "<html" in (server.data / f"{backend}.html").read_text()
    print("a server and its backend answer as the guides say")
    return 0


if __name__ == "__main__":
    sys.exit(main())
