# SPDX-License-Identifier: MIT
"""Servers under load, on the loopback interface: many connections, threads, forks and reloads."""
import hashlib
import os
import re
import signal
import socket
import threading
import time

from harness import PATIENCE, Failure, Skip, program


class Line:
    """A connection that is read line by line, or by count."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.file = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data)

    def line(self):
        line = self.file.readline()
        if not line:
            raise Failure("the server closed the connection")
        return line.rstrip(b"\r\n")

    def close(self):
        self.file.close()
        self.socket.close()


def in_threads(count, work):
    """work(0) ... work(count - 1) at once; the first exception is raised here."""
    problems = []

    def guarded(number):
        try:
            work(number)
        except Exception as e:  # whatever it is, the thread that started us must learn of it
            problems.append(e)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0] if isinstance(problems[0], (Failure, Skip)) else Failure(f"client: {problems[0]!r}")


# ---- memcached ----------------------------------------------------------------------------------

def value_of(key, number):
    return (f"{key}:{number};" * (1 + (number * 37) % 60)).encode()


def memcached_client(port, client):
    """Set, read back and delete in batches, on a new connection each time; every value is checked."""
    for batch in range(25):
        line = Line(port)
        keys = [f"c{client}b{batch}k{n}" for n in range(60)]
        for n, key in enumerate(keys):
            value = value_of(key, n)
            line.send(b"set %s 0 0 %d noreply\r\n%s\r\n" % (key.encode(), len(value), value))
        line.send(("get " + " ".join(keys) + "\r\n").encode())
        for n, key in enumerate(keys):
            _, name, _, length = line.line().split()
            data = line.file.read(int(length) + 2)[:-2]
            if name != key.encode() or data != value_of(key, n):
                raise Failure(f"memcached: a wrong value of {key}")
        if line.line() != b"END":
            raise Failure("memcached: END expected")
        for key in keys[::3]:
            line.send(f"delete {key} noreply\r\n".encode())
        line.send(b"version\r\n")
        line.line()
        line.close()


@program({"memcached": "memcached"}, modes=True)
def memcached(box):
    port = box.port()
    user = ["-u", "nobody"] if os.getuid() == 0 else []
    command = ["memcached", "-U", "0", "-l", "127.0.0.1", "-p", port, "-m", "64", "-t", "4", *user]
    with box.server(*command, port=port):
        in_threads(8, lambda client: memcached_client(port, client))
        line = Line(port)
        line.send(b"stats\r\n")
        stats = dict(entry.split(b" ")[1:3] for entry in iter(line.line, b"END"))
        line.close()
        box.record("statistics", [stats[k] for k in (b"curr_items", b"cmd_get", b"cmd_set", b"get_misses", b"delete_hits")])


# ---- redis --------------------------------------------------------------------------------------

def redis_call(line, *words):
    """One command, one answer, whose payload is returned."""
    line.send(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in (str(w).encode() for w in words)))
    return redis_answer(line)


def redis_answer(line):
    head = line.line()
    kind, rest = head[:1], head[1:]
    if kind == b"-":
        raise Failure(f"redis: {rest.decode()}")
    if kind == b"$":
        return line.file.read(int(rest) + 2)[:-2] if rest != b"-1" else None
    if kind == b"*":
        return [redis_answer(line) for _ in range(int(rest))]
    return rest


FILL = """
local n = tonumber(ARGV[1])
for i = 1, n do
  local k = i * 7919 % 10007
  redis.call('set', 's' .. k, string.rep('v' .. i, k % 60 + 1))
  redis.call('hset', 'h' .. k % 97, 'f' .. k, i)
  redis.call('zadd', 'z' .. k % 31, i, 'm' .. k)
  redis.call('rpush', 'l' .. k % 13, i)
  if i % 5 == 0 then redis.call('del', 's' .. (k * 3 % 10007)) end
  if i % 11 == 0 then redis.call('append', 's' .. k, string.rep('long', 300)) end
end
return n
"""


def redis_saved(line):
    """Wait for the fork that writes the dump; it must have succeeded."""
    deadline = time.monotonic() + 60 * PATIENCE
    while time.monotonic() < deadline:
        info = redis_call(line, "info", "persistence").decode()
        if "rdb_bgsave_in_progress:0" in info and "aof_rewrite_in_progress:0" in info:
            if "rdb_last_bgsave_status:ok" not in info:
                raise Failure("redis: the background save failed")
            return
        time.sleep(0.05)
    raise Failure("redis: the background save does not end")


def redis_life(box, entries, requests, rounds):
    """Debian's redis calls malloc of a shared jemalloc, which the preload comes before."""
    port = box.port()
    command = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", box.dir,
               "--enable-debug-command", "local", "--io-threads", "2"]
    with box.server(*command, port=port):
        line = Line(port)
        for number in range(rounds):
            redis_call(line, "eval", FILL, 0, entries)
            box.record("digest", redis_call(line, "debug", "digest"))
            redis_call(line, "bgsave")
            box.run("redis-benchmark", "-p", port, "-n", requests, "-P", 16, "-c", 30, "-r", 5000, "-q",
                    "-t", "set,get,lpush,lrange_100,hset,zadd,mset", stdout=False)
            redis_saved(line)
            redis_call(line, "flushall")
        redis_call(line, "eval", FILL, 0, entries)
        redis_call(line, "debug", "reload")
        box.record("digest after reload", redis_call(line, "debug", "digest"))
        redis_call(line, "bgsave")
        redis_saved(line)
        line.close()
    with box.server(*command, port=port):
        line = Line(port)
        box.record("digest after restart", redis_call(line, "debug", "digest"))
        line.close()


@program({"redis-server": "redis-server", "redis-benchmark": "redis-tools"})
def redis(box):
    redis_life(box, 30_000, 6_000, 1)


@program({"redis-server": "redis-server", "redis-benchmark": "redis-tools"}, torture=True)
def redis_long(box):
    redis_life(box, 150_000, 100_000, 3)


# ---- nginx --------------------------------------------------------------------------------------

NGINX = """
daemon off; pid nginx.pid; error_log error.log; worker_processes 2; {user}
events {{ worker_connections 256; }}
http {{
  access_log off; gzip on; gzip_min_length 100; gzip_types text/plain; types {{ text/plain txt; }}
  client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
  server {{ listen 127.0.0.1:{port}; root www; location /again/ {{ proxy_pass http://127.0.0.1:{port}/; }} }}
}}
"""


@program({"nginx": "nginx-light", "wrk": "wrk"}, torture=True, modes=True)
def nginx(box):
    """Twenty reloads under load: each starts new workers by fork and lets the old ones finish."""
    port = box.port()
    (box.dir / "www").mkdir()
    for n in range(20):
        (box.dir / "www" / f"{n}.txt").write_text("".join(f"{i * n}\n" for i in range(200 * n)))
    (box.dir / "n.conf").write_text(NGINX.format(port=port, user="user root;" if os.getuid() == 0 else ""))
    (box.dir / "load.lua").write_text("""local n = 0
        request = function()
          n = n + 1
          return wrk.format("GET", (n % 3 == 0 and "/again/" or "/") .. n % 20 .. ".txt", {["Accept-Encoding"] = "gzip"})
        end""")
    command = ["nginx", "-p", f"{box.dir}/", "-c", "n.conf", "-e", "error.log"]
    with box.server(*command, port=port) as server:
        def reload():
            for _ in range(20):
                time.sleep(0.5)
                server.send_signal(signal.SIGHUP)

        reloads = threading.Thread(target=reload, daemon=True)
        reloads.start()
        box.run("wrk", "-t2", "-c32", "-d12s", "-s", "load.lua", f"http://127.0.0.1:{port}", stdout=non_2xx)
        reloads.join()
        for n in range(0, 20, 7):
            line = Line(port)
            line.send(f"GET /again/{n}.txt HTTP/1.0\r\n\r\n".encode())
            body = line.file.read().partition(b"\r\n\r\n")[2]
            box.record(f"page {n}", hashlib.sha256(body).hexdigest())
            line.close()
    alerts = [text for text in (box.dir / "error.log").read_text().splitlines() if "exited on signal" in text]
    if alerts:
        raise Failure(f"nginx: {alerts[0]}")


def non_2xx(text):
    return "\n".join(re.findall(r"Non-2xx.*", text))


# ---- databases ----------------------------------------------------------------------------------

POSTGRES = "/usr/lib/postgresql/15/bin"


@program({f"{POSTGRES}/postgres": "postgresql-15"}, torture=True, modes=True)
def postgres(box):
    """A process for each connection. The sums of all balances must agree at the end."""
    user = None
    if os.getuid() == 0:  # which the server refuses to be
        user = "postgres"
        os.chmod(box.dir, 0o777)
    port = box.port()
    box.run(f"{POSTGRES}/initdb", "-D", box.dir / "pg", "-A", "trust", "-U", "postgres", "--no-sync", "--locale=C",
            user=user, timeout=180, stdout=False)
    command = [f"{POSTGRES}/postgres", "-D", box.dir / "pg", "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
               "-c", f"unix_socket_directories={box.dir}"]
    where = ["-h", "127.0.0.1", "-p", port, "-U", "postgres"]
    # SIGINT: the fast shutdown, which does not wait for clients.
    with box.server(*command, port=port, user=user, stop=signal.SIGINT):
        # It listens before it takes connections.
        box.run("bash", "-c", f"for i in $(seq 600); do {POSTGRES}/pg_isready -q {' '.join(map(str, where))} && break; sleep 0.1; done", user=user, timeout=120)
        box.run(f"{POSTGRES}/pgbench", *where, "-i", "-q", "-s", 2, "postgres", user=user, timeout=120, stdout=False)
        for extra in ([], ["-C"]):  # -C: a new connection for each transaction
            box.run(f"{POSTGRES}/pgbench", *where, "-n", "-c", 8, "-j", 2, "-t", 100 if extra else 1000, *extra, "postgres",
                    user=user, timeout=240, stdout=False)
        box.run(f"{POSTGRES}/psql", *where, "-Atc", """
            select count(*) from pgbench_history;
            select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history),
                   (select sum(bbalance) from pgbench_branches) = (select sum(tbalance) from pgbench_tellers);
            create table x as select g, md5(g::text) h, array_agg(i) a from generate_series(1, 20000) g, generate_series(1, 5) i group by g;
            select count(distinct h), sum(a[1]), md5(string_agg(h, '' order by g)) from x;
            select md5(string_agg(s, ',')) from (select regexp_replace(h, '[a-f]+', upper(h), 'g') s from x order by h) y;
            """, "postgres", user=user, timeout=120)


@program({"mariadbd": "mariadb-server", "mysqlslap": "mariadb-client"}, torture=True, modes=True)
def mariadb(box):
    """A thread for each connection."""
    port = box.port()
    user = ["--user=root"] if os.getuid() == 0 else []
    data = box.dir / "data"
    box.run("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal",
            "--skip-test-db", *user, timeout=180, stdout=False)
    command = ["mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={box.dir}/s", f"--port={port}", *user,
               "--bind-address=127.0.0.1", "--skip-log-bin", "--innodb-buffer-pool-size=64M", f"--pid-file={box.dir}/pid",
               "--innodb-flush-log-at-trx-commit=0"]
    where = ["--no-defaults", "-h", "127.0.0.1", "-P", port, "-u", "root"]
    with box.server(*command, port=port, timeout=60):
        box.run("mysqlslap", *where, "--concurrency=8", "--iterations=2", "--auto-generate-sql",
                "--auto-generate-sql-load-type=mixed", "--number-of-queries=2000", timeout=240, stdout=False)
        box.run("mariadb", *where, "-N", "-e", """
            create database d; use d;
            create table t(a int primary key, b varchar(200), c text);
            insert into t select seq, sha2(seq, 256), repeat(md5(seq), seq % 20) from seq_1_to_20000;
            update t set b = concat(b, a) where a % 3 = 0;
            select count(*), sum(length(c)), sha2(group_concat(left(b, 3) order by a), 256) from t where a < 3000;
            select a % 7 m, json_arrayagg(b) is not null, max(c) from t where a % 11 = 0 group by m order by m;
            check table t;
            """, timeout=120)


# ---- stress-ng ----------------------------------------------------------------------------------

def stressors(box, *options, timeout=120):
    box.run("stress-ng", "--verify", "--no-rand-seed", "--temp-path", box.dir, *options, timeout=timeout, stdout=False)


@program({"stress-ng": "stress-ng"})
def stress_ng(box):
    stressors(box, "--malloc", 2, "--malloc-pthreads", 3, "--malloc-bytes", "64K", "--malloc-max", 2000,
              "--malloc-touch", "--malloc-ops", 250_000)


@program({"stress-ng": "stress-ng"}, torture=True)
def stress_ng_more(box):
    stressors(box, "--malloc", 2, "--malloc-pthreads", 8, "--malloc-max", 20000, "--malloc-bytes", "64K", "--malloc-touch",
              "--malloc-zerofree", "-t", "20s")
    stressors(box, "--pthread", 2, "--pthread-max", 100, "-t", "6s")
    for stressor in ("fork", "tree", "tsearch", "hsearch", "skiplist", "mremap", "sigsegv", "qsort"):
        stressors(box, f"--{stressor}", 2, "-t", "4s")
