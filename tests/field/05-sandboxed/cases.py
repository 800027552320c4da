# SPDX-License-Identifier: MIT
"""Programs that put themselves under a filter after their start, as their packages do."""
import os
import pathlib
import re
import socket
import subprocess
import time

from field import PATH, Failure, Skip, case

CASES = []


def segments():
    return {line.split()[1] for line in pathlib.Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


def unchanged(f, work):
    before = segments(), set(os.listdir("/dev/shm"))
    work()
    left = segments() - before[0]
    # Others may make segments meanwhile; what is ours has nobody attached, and stays.
    time.sleep(0.05)
    rows = {line.split()[1]: line.split() for line in pathlib.Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}
    left = [i for i in left if i in rows and rows[i][6] == "0"]
    for i in left:
        subprocess.run(["ipcrm", "-m", i], check=False)
    if left:
        raise Failure(f"{len(left)} segments are left")


def manual(f, page):
    f.command("man", "man-db")
    environment = {"MANWIDTH": "80", "MANPAGER": "cat", "PAGER": "cat"}
    unchanged(f, lambda: f.same(["man", page], environment))


@case(CASES)
def manual_page(f):
    """man-db's filter has shmget in it and not the others: unknown calls answer ENOSYS."""
    manual(f, "man")


@case(CASES)
def manual_page_long(f):
    manual(f, "bash")


@case(CASES)
def manual_pages_found(f):
    f.command("man", "man-db")
    unchanged(f, lambda: f.good(["man", "-w", "ls"]))


@case(CASES)
def file_kinds(f):
    """file has a killing filter of its own where it is built with one."""
    f.same([f.command("file"), "-b", "/bin/ls", "/etc/passwd"])


@case(CASES)
def time_daemon(f):
    """chronyd's filters at both levels: it looks at its clock, and ends."""
    chronyd = f.command("chronyd", "chrony")
    (f.dir / "c.conf").write_text(f"port 0\ncmdport 0\nbindcmdaddress {f.dir}/s\npidfile {f.dir}/pid\nlocal stratum 8\ndriftfile {f.dir}/drift\n")
    for level in ("1", "1", "1", "2"):  # it has two processes: which is first is chance
        done = f.tried([chronyd, "-x", "-d", "-u", "root", "-F", level, "-f", f.dir / "c.conf", "-t", "1"])
        plain = f.run([chronyd, "-x", "-d", "-u", "root", "-F", level, "-f", f.dir / "c.conf", "-t", "1"])
        if plain.status != 0:
            raise Skip(f"needs a program that goes right without a preload: {plain.ending()}")
        if done.status != 0:
            raise Failure(f"-F {level}: {done.ending()}")


@case(CASES)
def ftp_server(f):
    """vsftpd limits its address space to 200 MiB."""
    vsftpd = f.command("vsftpd")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    (f.dir / "empty").mkdir()
    (f.dir / "v.conf").write_text(f"""listen=YES
listen_port={port}
listen_address=127.0.0.1
anonymous_enable=YES
local_enable=NO
background=NO
anon_root={f.dir}/empty
secure_chroot_dir={f.dir}/empty
seccomp_sandbox=NO
xferlog_enable=NO
""")
    server = subprocess.Popen([vsftpd, f.dir / "v.conf"], env={"PATH": PATH, **f.preload()}, start_new_session=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(3):
            talk(f, port)
    finally:
        server.kill()
        server.wait()


def talk(f, port):
    for _ in range(100 * f.patience):
        try:
            s = socket.create_connection(("127.0.0.1", port), 5 * f.patience)
            break
        except OSError:
            time.sleep(0.05)
    else:
        raise Skip("needs a vsftpd that listens")
    with s, s.makefile("rb") as lines:
        answers = [lines.readline()]
        for word in (b"USER anonymous", b"PASS x", b"PWD", b"TYPE I", b"QUIT"):
            s.sendall(word + b"\r\n")
            answers.append(lines.readline())
    codes = [a[:3].decode() for a in answers]
    if codes != ["220", "331", "230", "257", "200", "221"]:
        raise Failure(f"vsftpd answers {codes}: {answers[-1][:100]!r}")


@case(CASES)
def bubblewrap(f):
    """A sandbox without /proc, /sys and /tmp, with namespaces of its own."""
    bwrap = f.command("bwrap", "bubblewrap")
    library = f.library or "/etc/hostname"
    f.same([bwrap, "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/bin", "/bin",
            "--dev", "/dev", "--ro-bind", library, library, "--unshare-all", "perl", "-e", 'my @a = map { "x" x $_ } 1 .. 3000; print length join ",", @a'])


@case(CASES)
def statistics_of_others_stay(f):
    """What a process that was killed had is gone, while others run on."""
    processes = [subprocess.Popen(["perl", "-e", "my @a = map { 'x' x 1000 } 1 .. 5000; $| = 1; print 'x'; sleep 1000"],
                                  env={"PATH": PATH, **f.preload()}, start_new_session=True, stdout=subprocess.PIPE) for _ in range(8)]
    mine = {str(p.pid) for p in processes}
    for p in processes:
        p.stdout.read(1)
    for p in processes:
        p.kill()
        p.wait()
        p.stdout.close()
    rows = [line.split() for line in pathlib.Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    if left := [row for row in rows if row[4] in mine]:
        raise Failure(f"{len(left)} segments of killed processes are left")
    names = [n for n in os.listdir("/dev/shm") if mine & set(re.findall(r"\d+", n))]
    if names:
        raise Failure(f"/dev/shm has {names}")
