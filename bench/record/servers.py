#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What it costs a server under load that quarry profile -p looks at it: PostgreSQL, Redis, and http.server of CPython.

  servers.py [-n ROUNDS] [--slice SECONDS] [--json FILE] [SERVER...]
  servers.py --smoke      each once, short: a test, not a measurement

Each server is what is installed, preloaded with Quarry, in a folder of its own that is removed, and reached through this machine alone. In a
round it is started anew and loaded, and three slices of time are measured: before a profile, while the sampler is on and read, and after. A
round of control has the same three slices without a profile, so it shows the noise. What is measured is requests per second, and the processor time
of the server's process for each request. docs/notes/recording.md says how to read it.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import BUILD, Fault, progress  # noqa: E402
from programs import python, tool  # noqa: E402

PATIENCE = 120  # seconds for what takes one on an idle machine
SLACK = 64 << 10  # bytes; a server at rest does a little
ROUNDING = 1.25  # of sizes to classes, at most
HTTP = """import http.server, json, sys
served = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global served
        served += 1
        rows = [{"id": i, "name": "row %d" % (i * 7919 % 65537), "list": [i, i + 1]} for i in range(100)]
        body = json.dumps({"served": served, "rows": json.loads(json.dumps(rows))}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""
GROUPS = "select abalance % 97, count(*), string_agg(filler, '') from pgbench_accounts where aid <= 3000 group by 1 order by 2 desc limit 1;\n"

Slice = collections.namedtuple("Slice", "requests cpu reader")  # requests per second, seconds for each, share of a processor that quarry took


def wait_for(what, condition):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise Fault(f"waited for {what} in vain")
        time.sleep(0.02)
    return found


def cpu_of(pid):
    """Seconds of processor time of all threads of a process, also of those that have ended."""
    return time.clock_gettime(~pid << 3 | 2)


def quarry(*words):
    return json.loads(subprocess.run([tool(), *words, "--json"], check=True, capture_output=True, text=True).stdout)


class Server:
    """A server and its load. `pid` is the process to profile."""
    needs, user, forks = (), None, False

    def __init__(self, folder, library, conf):
        self.folder, self.pid, self.children = pathlib.Path(folder), None, []
        kept = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "QUARRY_RECORD", "QUARRY_CONF") and not k.startswith("PG")}
        self.plain = {**kept, "HOME": str(folder), "LC_ALL": "C"}
        self.env = {**self.plain, "LD_PRELOAD": str(library), **({"QUARRY_CONF": conf} if conf else {})}

    def run(self, *command, env=None, **options):
        """Start something that is ended at the end."""
        who = {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []} if self.user else {}
        with open(self.folder / "log", "ab") as log:
            child = subprocess.Popen([str(c) for c in command], env=env or self.plain, cwd=self.folder, stdin=subprocess.DEVNULL,
                                     **{"stdout": log, "stderr": log, **who, **options})
        self.children.append(child)
        return child

    def done(self, *command, **options):
        child = self.run(*command, **options)
        if child.wait():
            raise Fault(f"{command[0]}: status {child.returncode}: {(self.folder / 'log').read_text(errors='replace')[-500:]}")

    def rest(self):
        """From now on it does nothing."""
        self.end(self.children.pop())

    @staticmethod
    def end(child):
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            child.send_signal(signal.SIGCONT)
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
        child.wait()

    def stop(self):
        while self.children:
            self.end(self.children.pop())


class Redis(Server):
    needs = ("redis-server", "redis-benchmark")

    def start(self):
        self.path = self.folder / "socket"
        self.pid = self.run("redis-server", "--port", "0", "--unixsocket", self.path, "--save", "", "--appendonly", "no", env=self.env).pid
        wait_for("redis-server", self.path.exists)
        self.talk = socket.socket(socket.AF_UNIX)
        self.talk.connect(str(self.path))

    def load(self):
        self.run("redis-benchmark", "-s", self.path, "-l", "-q", "-t", "set", "-r", "20000", "-d", "200", "-c", "8", "-n", "2000000", "-P", "4",
                 stdout=subprocess.DEVNULL)

    def served(self):
        self.talk.sendall(b"INFO stats\r\n")
        answer = b""
        while not answer.endswith(b"\r\n") or answer.count(b"\r\n") < 4:
            answer += self.talk.recv(65536)
        return int(answer.split(b"total_commands_processed:")[1].split()[0])

    def stop(self):
        self.talk.close()
        super().stop()


class Python(Server):
    """A thread for each request. All that Python allocates goes through malloc."""
    needs = ("wrk",)

    def start(self):
        (self.folder / "server.py").write_text(HTTP)
        server = self.run(python(), "server.py", env={**self.env, "PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}, stdout=subprocess.PIPE)
        self.pid = server.pid
        if not (line := server.stdout.readline()).strip():
            raise Fault(f"no http.server: {(self.folder / 'log').read_text(errors='replace')[-500:]}")
        self.port = int(line)

    def load(self):
        self.run("wrk", "-t1", "-c2", "-d10h", f"http://127.0.0.1:{self.port}/", stdout=subprocess.DEVNULL)

    def served(self):
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as talk:
            talk.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: talk.recv(65536), b""))
        return json.loads(answer.split(b"\r\n\r\n", 1)[1])["served"]


class Postgres(Server):
    """The process to profile is that of pgbench's connection. Its requests are in the log of pgbench."""
    needs, forks = ("postgres", "initdb", "pgbench", "psql"), True

    def __init__(self, *words):
        super().__init__(*words)
        self.user = next(u for u in ("postgres", "nobody") if any(p.pw_name == u for p in pwd.getpwall())) if os.getuid() == 0 else None
        self.count, self.place = 0, 0

    def start(self):
        if self.user:
            shutil.chown(self.folder, self.user)
        self.data = self.folder / "data"
        self.done(binary("initdb"), "-A", "trust", "-U", "postgres", "-N", "-D", self.data)
        self.parent = self.run(binary("postgres"), "-D", self.data, "-k", self.folder, "-h", "", "-F", "-c", "shared_buffers=32MB", env=self.env).pid
        ask = ["psql", "-h", str(self.folder), "-U", "postgres", "-c", "select 1"]
        wait_for("postgres", lambda: subprocess.run(ask, env=self.plain, capture_output=True).returncode == 0)
        (self.folder / "groups.sql").write_text(GROUPS)
        self.bench("-i", "-q", "-s", "1")

    def bench(self, *words):
        self.done(*self.command(*words))

    def command(self, *words):
        return ["pgbench", "-h", self.folder, "-U", "postgres", *words, "postgres"]

    def load(self):
        """Nine look-ups by key for each query that sorts and groups."""
        self.run(*self.command("-n", "-c", "1", "-T", "100000", "-l", "--log-prefix", "requests", "-b", "select-only@9", "-f", "groups.sql@1"))
        self.log = wait_for("the log of pgbench", lambda: next(iter(self.folder.glob("requests.*")), None))
        self.pid = wait_for("a process of a connection", self.backend)

    def rest(self):
        """The process would end with its connection."""
        self.children[-1].send_signal(signal.SIGSTOP)

    def backend(self):
        """Of the processes with a page of statistics, the one that serves a connection."""
        for process in quarry("stats")["processes"]:
            with contextlib.suppress(OSError, IndexError, ValueError):
                folder = pathlib.Path("/proc") / str(process["pid"])
                parent = int((folder / "stat").read_text().rsplit(") ", 1)[1].split()[1])
                if parent == self.parent and b"[local]" in (folder / "cmdline").read_bytes():
                    return process["pid"]
        return None

    def served(self):
        """Exact at this moment: what the log has of later comes into the next count."""
        now = time.time()

        def is_told():
            with open(self.log, "rb") as log:
                log.seek(self.place)
                for line in log:
                    words = line.split()
                    if not line.endswith(b"\n"):
                        return False
                    if int(words[4]) + int(words[5]) / 1e6 > now:
                        return True
                    self.count, self.place = self.count + 1, self.place + len(line)
            return False

        wait_for("requests of pgbench", is_told)
        return self.count


SERVERS = {"postgres": Postgres, "redis": Redis, "python": Python}


def binary(name):
    """Debian has some of PostgreSQL's programs where nobody finds them."""
    found = shutil.which(name) or next((str(p) for p in sorted(pathlib.Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)), None)
    return found


@contextlib.contextmanager
def started(kind, conf=""):
    """One of these servers under load. Another user can read all it needs."""
    with tempfile.TemporaryDirectory(prefix="qy", dir="/tmp") as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        library = folder / "libquarry-malloc.so"
        shutil.copy((pathlib.Path(os.environ.get("QUARRY_LIB_DIR") or BUILD / "lib") / library.name).resolve(), library)
        library.chmod(0o755)
        (folder / "run").mkdir()
        server = kind(folder / "run", library, conf)
        try:
            server.start()
            server.load()
            yield server
        finally:
            server.stop()


def part(server, seconds, reader=None):
    """Measure a slice."""
    def now():
        return time.monotonic(), server.served(), cpu_of(server.pid), cpu_of(reader.pid) if reader else 0.0
    begin = now()
    time.sleep(seconds)
    wait_for("a request that is served", lambda: server.served() > begin[1])
    elapsed, requests, cpu, read = (b - a for a, b in zip(begin, now()))
    return Slice(requests / elapsed, cpu / requests, read / elapsed)


def profiled(server, seconds, folder, check):
    """A slice while it is on. The profile covers more than the slice: quarry takes time to begin."""
    out = folder / "profile.json"
    reader = subprocess.Popen([tool(), "profile", "-p", str(server.pid), "--for", str(seconds + 2 * check.margin), "-q", "-n", "10000", "--json", "-o", out],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(check.margin)
        measured = part(server, seconds, reader)
        said = reader.communicate(timeout=PATIENCE)
    finally:
        if reader.poll() is None:
            reader.terminate()
        reader.wait()
    if reader.returncode:
        raise Fault(f"quarry profile: status {reader.returncode}: {said[1]}")
    return measured, check.profile(json.loads(out.read_text()))


class Check:
    """What has to be true of a profile."""

    def __init__(self, margin):
        self.margin = margin  # seconds in which anything that was begun goes on

    @staticmethod
    def profile(json_):
        """It has samples with names, lost none, and adds up. What is worth a column."""
        totals, counted = json_["totals"], json_["counted"]
        if json_["trace"]["lost"] or not totals["allocated_bytes"] or not json_["groups"]:
            raise Fault(f"{json_['trace']['lost']} samples lost, {totals['allocated_bytes']} bytes, {len(json_['groups'])} sites")
        low, high = totals["allocated_bytes_interval"]
        if not low <= sum(g["allocated_bytes"] for g in json_["groups"]) <= high:
            raise Fault(f"sites have {sum(g['allocated_bytes'] for g in json_['groups'])} bytes, and all together {low} to {high}")
        if not counted:
            raise Fault("the process has counted nothing")
        parts = [*counted["groups"], *counted["not_sampled"], counted["before"]]
        whole = sum(p["bytes"] for p in parts) + counted["other_bytes"] + counted["changed_bytes"]
        if whole != counted["total_bytes"]:
            raise Fault(f"parts have {whole} bytes of {counted['total_bytes']}")
        return {"events": json_["trace"]["events"], "sites": json_["group_count"], "mib": totals["allocated_bytes"] / 2**20,
                "live": counted["total_bytes"]}

    @staticmethod
    def is_off(server):
        """A sampler that was off takes the rate it is given, and says nothing of another."""
        said = subprocess.run([tool(), "profile", "-p", str(server.pid), "--for", "0.1", "--sample", "4m", "--json", "-o", "/dev/null"],
                              capture_output=True, text=True)
        if said.returncode or "is on already" in said.stderr:
            raise Fault(f"the sampler is not off: {said.stderr}")

    def sums(self, kind, seconds):
        """Sampled from its start, then at rest, it has what its page of statistics says. Bounds are twice as far away as those of 95 %."""
        with started(kind, "sample:16k") as server:
            time.sleep(seconds)
            server.rest()
            time.sleep(self.margin)
            profile = quarry("profile", "-p", str(server.pid), "--for", "0.2", "-q")
            page = quarry("stats", "-p", str(server.pid))["processes"][0]["estimate"]["live_bytes"]
        counted, end = profile["counted"]["total_bytes"], profile["end"]
        if abs(counted - page) > SLACK + page / 100:
            raise Fault(f"the profile counts {counted} live bytes, and the statistics page has {page}")
        low, high = (end["bytes"] + 2 * (bound - end["bytes"]) for bound in end["bytes_interval"])
        # The estimate is of what was asked for. What a child of a fork has from its parent was not sampled.
        if not (low <= page and (kind.forks or page <= high * ROUNDING + SLACK)):
            raise Fault(f"live bytes are estimated as {end}, and the statistics page has {page}")
        return {"live": page, "counted": counted, "estimate": end["bytes"], "interval": end["bytes_interval"]}


def session(kind, seconds, check, folder, profile):
    """Three slices of a server, and what the profile of the second one says."""
    with started(kind) as server:
        time.sleep(check.margin)
        before = part(server, seconds)
        during, said = profiled(server, seconds, folder, check) if profile else (part(server, seconds), None)
        after = part(server, seconds)
        if profile:
            check.is_off(server)
    return {"before": before, "during": during, "after": after, "profile": said}


def ratios(sessions):
    """{name: of each session} of requests per second and of processor time for a request."""
    found = collections.defaultdict(list)
    for s in sessions:
        for field in ("requests", "cpu"):
            before, during, after = (getattr(s[part], field) for part in ("before", "during", "after"))
            found[f"on {field}"].append(during / ((before + after) / 2))
            found[f"after {field}"].append(after / before)
    return found


def middle(values):
    """Median, and half of the range that has the middle half of them."""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return statistics.median(values), (high - low) / 2


def show(name, sessions, control):
    """Rows of a server, and its numbers."""
    first = sessions[0]
    print(f"\n{name}: {middle([s['before'].requests for s in sessions])[0]:.0f} requests/s, {middle([s['before'].cpu for s in sessions])[0] * 1e6:.1f} µs of "
          f"processor time for each; samples of {middle([s['profile']['mib'] for s in sessions])[0]:.0f} MiB, {first['profile']['sites']} sites, "
          f"reader {middle([s['during'].reader for s in sessions])[0] * 100:.1f} % of a processor")
    print(f"{'':34}{'with a profile':>20}{'control':>20}")
    rows = {}
    measured, quiet = ratios(sessions), ratios(control) if control else {}
    for key, title in [("on cpu", "time for a request, on ÷ off"), ("on requests", "requests/s, on ÷ off"),
                       ("after cpu", "time for a request, after ÷ before"), ("after requests", "requests/s, after ÷ before")]:
        cells = [middle(values[key]) if values else None for values in (measured, quiet)]
        print(f"{title:34}" + "".join(f"{f'{c[0]:.3f} ± {c[1]:.3f}' if c else '-':>20}" for c in cells))
        rows[key] = {"profile": cells[0], "control": cells[1]}
    return rows


def chosen(names):
    """Those that are installed. A test without any is skipped."""
    if unknown := set(names) - SERVERS.keys():
        sys.exit(f"servers.py: no server {', '.join(sorted(unknown))}; there are {', '.join(SERVERS)}")
    found = {}
    for name, kind in SERVERS.items():
        if names and name not in names:
            continue
        if missing := [need for need in kind.needs if not binary(need)]:
            print(f"without {name}: no {', '.join(missing)}")
        else:
            found[name] = kind
    if not found:
        sys.exit(77 if "--smoke" in sys.argv else "servers.py: no server is installed")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=7)
    parser.add_argument("--slice", type=float, default=4)
    parser.add_argument("--json")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("servers", nargs="*")
    args = parser.parse_args()
    rounds, seconds, check = (1, 0.5, Check(0.5)) if args.smoke else (args.n, args.slice, Check(1))
    print(f"load average {os.getloadavg()[0]:.2f}, {os.cpu_count()} processors; {rounds} rounds, slices of {seconds} s")
    sessions, control, sums = collections.defaultdict(list), collections.defaultdict(list), {}
    kinds = chosen(args.servers)
    name = ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(rounds):
                for name, kind in kinds.items():
                    progress(f"round {number + 1} of {rounds}: {name}")
                    sessions[name].append(session(kind, seconds, check, pathlib.Path(folder), True))
                    if not args.smoke:
                        control[name].append(session(kind, seconds, check, pathlib.Path(folder), False))
            for name, kind in kinds.items():
                progress(f"sums: {name}")
                sums[name] = check.sums(kind, seconds)
    except (Fault, OSError, subprocess.SubprocessError) as fault:
        sys.exit(f"servers.py: {name}: {fault}")
    progress("")
    rows = {name: show(name, sessions[name], control[name]) for name in kinds}
    print("\nlive bytes of a server that was sampled from its start, at rest")
    for name, told in sums.items():
        low, high = told["interval"]
        print(f"{name:12}statistics page {told['live']}, profile {told['counted']}, estimate {told['estimate']} ({low} to {high})")
    print(f"load average {os.getloadavg()[0]:.2f}")
    if args.json:
        plain = lambda kept: {n: [{k: v._asdict() if isinstance(v, Slice) else v for k, v in s.items()} for s in v] for n, v in kept.items()}  # noqa: E731
        whole = {"rows": rows, "sessions": plain(sessions), "control": plain(control), "sums": sums}
        pathlib.Path(args.json).write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
