# SPDX-License-Identifier: MIT
"""Programs that processes.py looks at: what a machine has running, each started the way its users would, with data of its own."""
import contextlib
import fcntl
import os
import pathlib
import pty
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))
import harness  # noqa: E402

SUBJECTS = {}
PATIENCE = 90  # seconds until a program must have started, on a machine that is busy


def subject(*needs):
    """Register a program; NEEDS are commands."""
    def register(function):
        SUBJECTS[function.__name__] = needs, function
        return function
    return register


class Stage(harness.Box):
    """A folder in which a program is started, and told when it has got somewhere."""

    def __init__(self, folder, tool, library):
        super().__init__(folder, None, None)
        self.tool, self.drop_in = tool, library
        self.keep = []

    def launch(self, *argv, ready=None, say=None, env=None, user=None, port=None):
        """Start it; it has started when READY is in what it prints, or when it listens on PORT, or else when it waits.
        SAY is typed into it, and its input stays open."""
        out, err = self.streams()
        process = self.start(argv, subprocess.PIPE if say is not None else subprocess.DEVNULL, env or {}, user, out, err)
        self.keep.append(process)
        if say is not None:
            process.stdin.write(say.encode())
            process.stdin.flush()
        done = harness.Done(out, err)
        if port:
            self.await_port(process, port, PATIENCE, argv, done)
        elif ready:
            self.until(process, argv, done, lambda: ready in done.text() or ready in done.errors())
        else:
            self.until(process, argv, done, lambda: waits(process.pid, pathlib.Path(argv[0]).name))
        return process.pid

    def until(self, process, argv, done, holds):
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if process.poll() is not None:
                self.wrong(argv, f"ends at once, status {process.returncode}", done)
            if time.monotonic() > deadline:
                self.wrong(argv, f"has not started after {PATIENCE} s", done)
            time.sleep(0.02)

    def write(self, name, text):
        (self.dir / name).write_text(text)
        return self.dir / name


def waits(pid, name):
    """Has it become that program, and does it wait for something?"""
    text = pathlib.Path("/proc", str(pid), "stat").read_text()
    return f"({name[:15]}) S" in text


def command(pid):
    """The words it was started with, or nothing."""
    with contextlib.suppress(OSError):
        return pathlib.Path("/proc", str(pid), "cmdline").read_bytes()
    return b""


# ---- small ones ---------------------------------------------------------------------------------

@subject("sleep")
def sleep(stage):
    return stage.launch("sleep", "1000")


@subject("dash")
def dash(stage):
    return stage.launch("dash", "-c", "echo ready; read line", say="", ready="ready")


@subject("bash")
def bash(stage):
    return stage.launch("bash", "-c", "words=({1..200000}); echo ready; read line", say="", ready="ready")


@subject("busybox")
def busybox(stage):
    return stage.launch("busybox", "sh", "-c", "echo ready; read line", say="", ready="ready")


@subject("gawk")
def gawk(stage):
    return stage.launch("gawk", '{ for (i = 0; i < 100000; i++) a[i] = $0 i; print "ready"; fflush() }', say="word\n", ready="ready")


@subject("make")
def make(stage):
    stage.write("Makefile", "all:\n\t@echo ready; sleep 1000\n")
    return stage.launch("make", ready="ready")


@subject("ssh-agent")
def ssh_agent(stage):
    return stage.launch("ssh-agent", "-D", "-a", stage.dir / "agent", ready="SSH_AUTH_SOCK")


@subject("dbus-daemon")
def dbus_daemon(stage):
    return stage.launch("dbus-daemon", "--session", "--nofork", "--print-address", f"--address=unix:path={stage.dir}/bus", ready="unix:path")


@subject("tmux")
def tmux(stage):
    stage.run("tmux", "-S", stage.dir / "socket", "-f", "/dev/null", "new-session", "-d", "sleep 1000", stdout=False)
    # Its server leaves us, and is ours again as an orphan.
    servers = [pid for pid in harness.descendants() if "tmux" in pathlib.Path("/proc", str(pid), "comm").read_text()]
    return servers[0]


@subject("socat")
def socat(stage):
    port = stage.port()
    return stage.launch("socat", f"TCP-LISTEN:{port},bind=127.0.0.1,fork", "EXEC:cat", port=port)


# ---- languages ----------------------------------------------------------------------------------

PYTHON = """
import mmap, os, threading
rows = [str(n) * 3 for n in range(300000)]
shared, private = mmap.mmap(-1, 32 << 20), mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, 32 << 20, 4096): shared[at] = 1
for at in range(0, 8 << 20, 8192): private[at] = 1
with open("file", "w+b") as file: file.write(b"x" * (4 << 20)); file.flush(); mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
for at in range(0, 2 << 20, 4096): mapped[at] = 2
sum(mapped[::4096])
for _ in range(8): threading.Thread(target=threading.Event().wait, daemon=True).start()
if not os.fork(): shared[:4096] = b"c" * 4096
else: print("ready", flush=True)
threading.Event().wait()
"""


@subject("python3")
def python(stage):
    return stage.launch("python3", "-c", PYTHON, ready="ready")


@subject("python3")
def python_on_quarry(stage):
    """The same on our malloc."""
    if not stage.drop_in.exists():
        raise harness.Skip(f"needs {stage.drop_in}")
    return stage.launch("python3", "-c", PYTHON, ready="ready", env={"LD_PRELOAD": str(stage.drop_in), "PYTHONMALLOC": "malloc"})


@subject("perl")
def perl(stage):
    return stage.launch("perl", "-e", '$| = 1; $a{$_} = "v$_" for 1 .. 200000; print "ready\n"; <STDIN>', say="", ready="ready")


@subject("ruby")
def ruby(stage):
    code = 'a = (1..200000).map(&:to_s); 4.times { Thread.new { sleep } }; puts "ready"; $stdout.flush; sleep'
    return stage.launch("ruby", "-e", code, ready="ready")


@subject("lua5.4")
def lua(stage):
    code = 't = {} for i = 1, 300000 do t[i] = "v" .. i end print("ready") io.flush() io.read()'
    return stage.launch("lua5.4", "-e", code, say="", ready="ready")


@subject("tclsh")
def tclsh(stage):
    return stage.launch("tclsh", say='for {set i 0} {$i < 100000} {incr i} {set a($i) x$i}; puts ready; flush stdout\n', ready="ready")


@subject("node")
def node(stage):
    stage.write("look.js", """
const { Worker, isMainThread, parentPort } = require('worker_threads');
if (!isMainThread) { const a = Array.from({ length: 1e5 }, (_, i) => 'w' + i); parentPort.postMessage(1); setInterval(() => a.length, 1e6); }
else {
  const all = Array.from({ length: 3e5 }, (_, i) => 'm' + i); const shared = new SharedArrayBuffer(8 << 20); let left = 2;
  new Uint8Array(shared).fill(1);
  for (let i = 0; i < 2; i++) new Worker(__filename).on('message', () => { if (!--left) console.log('ready'); });
  setInterval(() => all.length, 1e6);
}
""")
    return stage.launch("node", "look.js", ready="ready")


@subject("java")
def java(stage):
    source = stage.write("Look.java", """
import java.util.*;
public class Look {
  public static void main(String[] args) throws Exception {
    List<String> all = new ArrayList<>();
    for (int i = 0; i < 300000; i++) all.add("v" + i);
    for (int i = 0; i < 6; i++) new Thread(() -> { try { Thread.sleep(1000000); } catch (InterruptedException e) { } }, "look" + i).start();
    System.out.println("ready");
    Thread.sleep(1000000);
  }
}
""")
    return stage.launch("java", "-Xmx256m", source, ready="ready")


# ---- tools --------------------------------------------------------------------------------------

@subject("gs")
def ghostscript(stage):
    return stage.launch("gs", "-q", "-dNODISPLAY", "-dNOPROMPT", say="/a 200000 array def (ready) = flush\n", ready="ready")


@subject("sqlite3")
def sqlite(stage):
    code = ("pragma mmap_size = 16777216; create table t as with recursive c(n) as (select 1 union all select n + 1 from c where n < 100000)"
            " select n, hex(randomblob(20)) h from c; select 'ready', count(*), max(h) from t;\n")
    return stage.launch("sqlite3", "data", say=code, ready="ready")


@subject("git")
def git(stage):
    harness.text_file(stage.dir / "text", 3000)
    for words in (("init", "-q"), ("add", "text"), ("-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "m"), ("gc", "-q")):
        stage.run("git", *words, stdout=False)
    return stage.launch("git", "cat-file", "--batch", say="HEAD:text\nHEAD\n", ready="author")


@subject("vim")
def vim(stage):
    harness.text_file(stage.dir / "text", 20000)
    return on_terminal(stage, ["vim", "-n", "-u", "NONE", "text"], b"20000")


@subject("gdb")
def gdb(stage):
    return stage.launch("gdb", "-q", "-nx", say=f"file {harness.which('gdb')}\nbreak main\necho ready\\n\n", ready="ready")


@subject("valgrind", "sleep")
def valgrind(stage):
    return stage.launch("valgrind", "sleep", "1000", ready="Command:")


@subject("qemu-system-x86_64")
def qemu(stage):
    return stage.launch("qemu-system-x86_64", "-accel", "tcg", "-S", "-m", "128", "-nodefaults", "-display", "none", "-monitor", "stdio", "-smp", "2",
                        say="info status\n", ready="paused")


def on_terminal(stage, argv, ready):
    """Start it on a terminal of 150 columns and 40 lines; it has started when READY is there."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 150, 0, 0))
    env = {**stage.environment, "TERM": "xterm-256color"}
    path = harness.which(argv[0]) or argv[0]
    process = subprocess.Popen([path, *argv[1:]], stdin=slave, stdout=slave, stderr=slave, cwd=stage.dir, env=env, start_new_session=True)
    os.close(slave)
    stage.keep += [process, master]
    seen, deadline = b"", time.monotonic() + PATIENCE
    os.set_blocking(master, False)
    while ready not in seen:
        if time.monotonic() > deadline or process.poll() is not None:
            raise harness.Failure(f"{argv[0]} has not started: {seen[-500:]}")
        try:
            seen += os.read(master, 4096)
        except (BlockingIOError, OSError):
            time.sleep(0.02)
    return process.pid


@subject()
def quarry_top(stage):
    return on_terminal(stage, [str(stage.tool), "top"], b"COMMAND")


# ---- servers ------------------------------------------------------------------------------------

@subject("redis-server", "redis-cli")
def redis(stage):
    port = stage.port()
    pid = stage.launch("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", stage.dir, port=port)
    stage.run("redis-cli", "-p", port, "debug", "populate", "50000", "key", "100", stdout=False, may_fail=True)
    return pid


@subject("memcached")
def memcached(stage):
    port = stage.port()
    user = ["-u", "root"] if os.getuid() == 0 else []
    return stage.launch("memcached", "-l", "127.0.0.1", "-p", port, "-U", 0, "-m", 64, *user, port=port)


@subject("nginx")
def nginx(stage):
    port = stage.port()
    stage.write("n.conf", f"""daemon off; pid nginx.pid; error_log error.log; worker_processes 2; {"user root;" if os.getuid() == 0 else ""}
events {{ worker_connections 256; }}
http {{ access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
server {{ listen 127.0.0.1:{port}; root .; }} }}
""")
    return stage.launch("nginx", "-p", f"{stage.dir}/", "-c", "n.conf", "-e", "error.log", port=port)


def postgres_folder():
    """Where the programs of the newest server are."""
    folders = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    if not folders:
        raise harness.Skip("needs the package postgresql")
    return folders[-1].parent


@subject()
def postgres(stage):
    folder, user, port = postgres_folder(), None, stage.port()
    if os.getuid() == 0:  # which the server refuses to be
        user = "postgres"
        os.chmod(stage.dir, 0o777)
    stage.run(folder / "initdb", "-D", stage.dir / "pg", "-A", "trust", "-U", "postgres", "--no-sync", "--locale=C", user=user, timeout=180, stdout=False)
    return stage.launch(folder / "postgres", "-D", stage.dir / "pg", "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
                        "-c", f"unix_socket_directories={stage.dir}", user=user, ready="ready to accept connections")


@subject("mariadbd", "mariadb-install-db")
def mariadb(stage):
    port = stage.port()
    user = ["--user=root"] if os.getuid() == 0 else []
    data = stage.dir / "data"
    stage.run("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db", *user,
              timeout=180, stdout=False)
    return stage.launch("mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={stage.dir}/s", f"--port={port}", *user, "--bind-address=127.0.0.1",
                        "--skip-log-bin", "--innodb-buffer-pool-size=64M", f"--pid-file={stage.dir}/pid", port=port)


@subject("chromium")
def chromium(stage):
    page = stage.write("page.html", "<title>x</title><canvas></canvas><script>a = Array.from({length: 3e5}, (_, i) => 'v' + i)</script>")
    root = ["--no-sandbox"] if os.getuid() == 0 else []
    pid = stage.launch("chromium", "--headless=new", "--disable-gpu", *root, "--no-first-run", f"--user-data-dir={stage.dir}/profile",
                       "--remote-debugging-port=0", f"file://{page}", ready="DevTools listening")
    stage.until(stage.keep[-1], ["chromium"], None, lambda: any(b"--type=renderer" in command(child) for child in harness.descendants()))
    return pid
