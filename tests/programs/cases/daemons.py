# SPDX-License-Identifier: MIT
"""Servers of many kinds, on the loopback interface: some put themselves under filters, limit themselves, or change their user."""
import hashlib
import os
import pathlib
import pwd
import re
import signal
import socket
import struct
import time

from harness import Failure, Skip, program, text_file

TERM = (0, -signal.SIGTERM)


def ask(port, *lines, until=b"", count=None):
    """Send lines, each after an answer; all answers. With `count`, so many lines of the last answer."""
    with socket.create_connection(("127.0.0.1", port), 20) as s, s.makefile("rb") as answers:
        got = []
        if until == b"":
            got.append(answers.readline())
        for line in lines:
            s.sendall(line.encode() + b"\r\n")
            got.append(answers.readline())
        return b"".join(got).decode(errors="replace")


def http(port, path="/", headers=""):
    """Status and hash of a page."""
    with socket.create_connection(("127.0.0.1", port), 20) as s:
        s.sendall(f"GET {path} HTTP/1.0\r\nHost: x\r\n{headers}\r\n".encode())
        data = b""
        while part := s.recv(65536):
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0].decode(errors="replace").split(" ", 1)[-1], len(body), hashlib.sha256(body).hexdigest()[:16]


def pages(box):
    (box.dir / "www").mkdir()
    box.dir.chmod(0o755)
    for n in range(12):
        text_file(box.dir / "www" / f"{n}.txt", 60 * n + 1, seed=n)


def get_all(box, port, times=3):
    for _ in range(times):
        for n in range(12):
            box.record(f"page {n}", http(port, f"/{n}.txt"))
    box.record("no page", http(port, "/none")[0])


def dns(port, name, kind=1):
    """The code and the answers of a query, by TCP; their order is the server's own."""
    query = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0" + struct.pack(">HH", kind, 1)
    with socket.create_connection(("127.0.0.1", port), 20) as s, s.makefile("rb") as answers:
        s.sendall(struct.pack(">H", len(query)) + query)
        data = answers.read(struct.unpack(">H", answers.read(2))[0])
    return data[3] & 15, struct.unpack(">H", data[6:8])[0], sorted(re.findall(rb"10\x00.{2}", data, re.S))


ZONE = "$TTL 300\n@ SOA ns.example. a.example. 1 3600 600 86400 300\n@ NS ns\nns A 127.0.0.1\n" + "".join(f"h{i} A 10.0.{i // 256}.{i % 256}\nh{i} TXT \"text {i}\"\n" for i in range(3000))


def await_names(port):
    """Some servers listen before they have read their zone."""
    deadline = time.monotonic() + 20
    while dns(port, "h1.example")[1] != 1 and time.monotonic() < deadline:
        time.sleep(0.1)


def ask_names(box, port):
    for i in range(0, 3000, 97):
        box.record(f"h{i}", dns(port, f"h{i}.example"))
        box.record(f"text of h{i}", dns(port, f"h{i}.example", 16)[:2])
    box.record("no name", dns(port, "none.example")[:2])


# ---- names --------------------------------------------------------------------------------------

@program({"named": "bind9"}, torture=True, modes=True)
def bind(box):
    port = box.port()
    (box.dir / "zone").write_text(ZONE)
    (box.dir / "n.conf").write_text(f'options {{ directory "{box.dir}"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; recursion no; pid-file none; session-keyfile none; }};\ncontrols {{ }};\nzone "example" {{ type primary; file "zone"; }};\n')
    with box.server("named", "-g", "-n", "2", "-c", box.dir / "n.conf", port=port, timeout=60):
        await_names(port)
        ask_names(box, port)


@program({"unbound": "unbound"}, torture=True, modes=True)
def unbound(box):
    port = box.port()
    data = "".join(f'local-data: "h{i}.example. 300 A 10.0.{i // 256}.{i % 256}"\n local-data: "h{i}.example. 300 TXT text{i}"\n ' for i in range(3000))
    (box.dir / "u.conf").write_text(f'server:\n interface: 127.0.0.1\n port: {port}\n do-daemonize: no\n chroot: ""\n username: ""\n directory: "{box.dir}"\n pidfile: ""\n num-threads: 2\n use-syslog: no\n do-ip6: no\n access-control: 127.0.0.0/8 allow\n auto-trust-anchor-file: ""\n local-zone: "example." static\n {data}\nremote-control:\n control-enable: no\n')
    with box.server("unbound", "-d", "-c", box.dir / "u.conf", port=port):
        ask_names(box, port)


@program({"nsd": "nsd"}, torture=True, modes=True)
def nsd(box):
    port = box.port()
    (box.dir / "zone").write_text(ZONE)
    (box.dir / "n.conf").write_text(f'server:\n ip-address: 127.0.0.1@{port}\n username: ""\n zonesdir: "{box.dir}"\n database: ""\n zonelistfile: "{box.dir}/l"\n xfrdfile: "{box.dir}/x"\n xfrdir: "{box.dir}"\n pidfile: "{box.dir}/p"\n logfile: "{box.dir}/log"\n server-count: 2\nremote-control:\n control-enable: no\nzone:\n name: "example"\n zonefile: "zone"\n')
    with box.server("nsd", "-d", "-c", box.dir / "n.conf", port=port):
        ask_names(box, port)


@program({"knotd": "knot"}, torture=True, modes=True)
def knot(box):
    port = box.port()
    (box.dir / "example.zone").write_text(ZONE)
    (box.dir / "k.conf").write_text(f"server:\n  listen: 127.0.0.1@{port}\n  rundir: {box.dir}\n  pidfile: {box.dir}/p\n  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\ndatabase:\n  storage: {box.dir}/db\nzone:\n  - domain: example\n    storage: {box.dir}\n    file: example.zone\n    zonefile-sync: -1\n    journal-content: none\n")
    with box.server("knotd", "-c", box.dir / "k.conf", port=port, timeout=60):
        await_names(port)
        ask_names(box, port)


@program({"dnsmasq": "dnsmasq-base"}, torture=True, modes=True)
def dnsmasq(box):
    port = box.port()
    (box.dir / "hosts").write_text("".join(f"10.0.{i // 256}.{i % 256} h{i}.example\n" for i in range(3000)))
    (box.dir / "d.conf").write_text(f"port={port}\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\naddn-hosts={box.dir}/hosts\nlocal=/example/\nuser=root\npid-file\n" + "".join(f"txt-record=h{i}.example,text{i}\n" for i in range(0, 3000, 97)))
    with box.server("dnsmasq", "-k", "-C", box.dir / "d.conf", port=port):
        ask_names(box, port)


# ---- pages --------------------------------------------------------------------------------------

@program({"lighttpd": "lighttpd"}, torture=True, modes=True)
def lighttpd(box):
    port = box.port()
    pages(box)
    (box.dir / "l.conf").write_text(f'server.document-root = "{box.dir}/www"\nserver.port = {port}\nserver.bind = "127.0.0.1"\nmimetype.assign = (".txt" => "text/plain")\n')
    with box.server("lighttpd", "-D", "-f", box.dir / "l.conf", port=port, stop=signal.SIGINT):
        get_all(box, port)


@program({"apache2": "apache2"}, torture=True, modes=True)
def apache(box):
    port = box.port()
    pages(box)
    modules = "/usr/lib/apache2/modules"
    (box.dir / "a.conf").write_text(f"""ServerRoot {box.dir}
Listen 127.0.0.1:{port}
ServerName x
PidFile {box.dir}/pid
ErrorLog {box.dir}/log
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule deflate_module {modules}/mod_deflate.so
LoadModule filter_module {modules}/mod_filter.so
LoadModule mime_module {modules}/mod_mime.so
LoadModule dir_module {modules}/mod_dir.so
TypesConfig /etc/mime.types
User www-data
Group www-data
DefaultRuntimeDir {box.dir}
Mutex file:{box.dir} default
StartServers 2
ThreadsPerChild 10
DocumentRoot {box.dir}/www
""")
    with box.server("apache2", "-DFOREGROUND", "-f", box.dir / "a.conf", port=port, statuses=TERM) as server:
        get_all(box, port)
        for _ in range(3):  # graceful: its modules are closed and opened again
            server.send_signal(signal.SIGUSR1)
            time.sleep(0.4)
            get_all(box, port, times=1)


@program({"haproxy": "haproxy", "lighttpd": "lighttpd"}, torture=True, modes=True)
def haproxy(box):
    """It has pools of its own, trims, and limits itself; behind it is another server."""
    behind, port = box.port(), box.port()
    pages(box)
    (box.dir / "l.conf").write_text(f'server.document-root = "{box.dir}/www"\nserver.port = {behind}\nserver.bind = "127.0.0.1"\nmimetype.assign = (".txt" => "text/plain")\n')
    (box.dir / "h.conf").write_text(f"global\n  maxconn 200\n  nbthread 2\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 5s\n  timeout server 5s\n  compression algo gzip\nfrontend f\n  bind 127.0.0.1:{port}\n  default_backend b\nbackend b\n  server s 127.0.0.1:{behind}\n")
    with box.server("lighttpd", "-D", "-f", box.dir / "l.conf", port=behind, stop=signal.SIGINT), box.server("haproxy", "-db", "-f", box.dir / "h.conf", port=port, statuses=(0, 143, -15)):
        get_all(box, port)


@program({"varnishd": "varnish", "lighttpd": "lighttpd", "gcc": "gcc"}, torture=True, modes=True)
def varnish(box):
    """It compiles its rules to a plug-in and opens it."""
    behind, port = box.port(), box.port()
    pages(box)
    (box.dir / "l.conf").write_text(f'server.document-root = "{box.dir}/www"\nserver.port = {behind}\nserver.bind = "127.0.0.1"\nmimetype.assign = (".txt" => "text/plain")\n')
    with box.server("lighttpd", "-D", "-f", box.dir / "l.conf", port=behind, stop=signal.SIGINT), \
            box.server("varnishd", "-F", "-n", box.dir / "v", "-a", f"127.0.0.1:{port}", "-b", f"127.0.0.1:{behind}", "-s", "malloc,32M", "-j", "none", "-T", "none", port=port, timeout=60, statuses=(0, 1, -15)):
        deadline = time.monotonic() + 15
        while http(port, "/1.txt")[0] != "200 OK" and time.monotonic() < deadline:
            time.sleep(0.2)
        get_all(box, port)


@program({"squid": "squid", "lighttpd": "lighttpd"}, torture=True, modes=True)
def squid(box):
    behind, port = box.port(), box.port()
    pages(box)
    (box.dir / "l.conf").write_text(f'server.document-root = "{box.dir}/www"\nserver.port = {behind}\nserver.bind = "127.0.0.1"\nmimetype.assign = (".txt" => "text/plain")\n')
    (box.dir / "s.conf").write_text(f"http_port 127.0.0.1:{port}\nhttp_access allow all\npid_filename {box.dir}/pid\naccess_log none\ncache_log /dev/null\ncache_store_log none\ncoredump_dir {box.dir}\ncache_mem 16 MB\npinger_enable off\nshutdown_lifetime 1 seconds\nvisible_hostname x\nmemory_cache_shared off\n")
    box.dir.chmod(0o777)
    with box.server("lighttpd", "-D", "-f", box.dir / "l.conf", port=behind, stop=signal.SIGINT), box.server("squid", "-N", "-n", f"t{port}", "-f", box.dir / "s.conf", port=port, timeout=60):
        for _ in range(3):
            for n in range(12):
                box.record(f"page {n}", http(port, f"http://127.0.0.1:{behind}/{n}.txt")[1:])


@program({"tinyproxy": "tinyproxy", "lighttpd": "lighttpd"}, torture=True, modes=True)
def tinyproxy(box):
    behind, port = box.port(), box.port()
    pages(box)
    (box.dir / "l.conf").write_text(f'server.document-root = "{box.dir}/www"\nserver.port = {behind}\nserver.bind = "127.0.0.1"\nmimetype.assign = (".txt" => "text/plain")\n')
    (box.dir / "t.conf").write_text(f"User root\nPort {port}\nListen 127.0.0.1\nTimeout 20\nMaxClients 20\nAllow 127.0.0.1\nLogFile \"{box.dir}/log\"\n")
    with box.server("lighttpd", "-D", "-f", box.dir / "l.conf", port=behind, stop=signal.SIGINT), box.server("tinyproxy", "-d", "-c", box.dir / "t.conf", port=port):
        for n in range(12):
            box.record(f"page {n}", http(port, f"http://127.0.0.1:{behind}/{n}.txt")[1:])


def fcgi(port, script):
    """One request of the protocol; the body."""
    def record(kind, data):
        return struct.pack(">BBHHBB", 1, kind, 1, len(data), 0, 0) + data

    def pair(k, v):
        return struct.pack(">II", len(k) | 1 << 31, len(v) | 1 << 31) + k + v

    environment = {"SCRIPT_FILENAME": script, "REQUEST_METHOD": "GET", "QUERY_STRING": "n=5", "SCRIPT_NAME": "/x", "SERVER_PROTOCOL": "HTTP/1.0"}
    data = b"".join(pair(k.encode(), str(v).encode()) for k, v in environment.items())
    with socket.create_connection(("127.0.0.1", port), 30) as s, s.makefile("rb") as answers:
        s.sendall(record(1, struct.pack(">HB5x", 1, 0)) + record(4, data) + record(4, b"") + record(5, b""))
        body = b""
        while head := answers.read(8):
            _, kind, _, length, padding, _ = struct.unpack(">BBHHBB", head)
            part = answers.read(length)
            answers.read(padding)
            if kind == 6:
                body += part
            if kind == 3:
                break
    return body.partition(b"\r\n\r\n")[2].decode(errors="replace")


@program({"php-fpm8.2": "php8.2-fpm"}, torture=True, modes=True)
def php_fpm(box):
    """Workers with Debian's shared extensions, which are opened with RTLD_DEEPBIND; each ends after ten requests."""
    port = box.port()
    (box.dir / "x.php").write_text("<?php $a = []; for ($i = 0; $i < 20000; $i++) $a[$i * 7919 % 503] = str_repeat('x', $i % 300); ksort($a); echo md5(serialize($a)), count(get_loaded_extensions()), preg_replace('/x{3}/', 'y', $a[7]);")
    (box.dir / "f.conf").write_text(f"[global]\nerror_log = {box.dir}/log\ndaemonize = no\n[www]\nuser = root\ngroup = root\nlisten = 127.0.0.1:{port}\npm = static\npm.max_children = 3\npm.max_requests = 10\n")
    with box.server("php-fpm8.2", "-R", "-F", "-y", box.dir / "f.conf", port=port):
        for n in range(40):
            box.record(f"answer {n % 10}", fcgi(port, box.dir / "x.php"))
    if died := [line for line in (box.dir / "log").read_text().splitlines() if "SIG" in line and "SIGTERM" not in line and "SIGQUIT" not in line]:
        raise Failure(died[0])


# ---- mail, files, shells ------------------------------------------------------------------------

@program({"sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client"}, torture=True, modes=True, reports=False)
def sshd(box):
    """What a stranger's connection reaches is a child under a filter that kills. No shell is started: it would read what is in root's home."""
    if os.getuid():
        raise Skip("needs root, for sshd")
    pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    port = box.port()
    for key in ("host", "mine"):
        box.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key, stdout=False)
    (box.dir / "keys").write_text((box.dir / "mine.pub").read_text())
    (box.dir / "s.conf").write_text(f"Port {port}\nListenAddress 127.0.0.1\nHostKey {box.dir}/host\nAuthorizedKeysFile {box.dir}/keys\nPidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPrintMotd no\nSubsystem sftp internal-sftp\nForceCommand internal-sftp\n")
    with box.server("sshd", "-D", "-e", "-f", box.dir / "s.conf", port=port, statuses=(0, 255)):
        ssh = ["-q", "-F", "none", "-i", box.dir / "mine", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes"]
        text_file(box.dir / "text", 5000)
        (box.dir / "b").write_text(f"cd {box.dir}\nput text copy\nls -1 copy\nrename copy copy1\nget copy1 copy2\n")
        for _ in range(3):
            box.run("sftp", *ssh, "-C", "-P", port, "-b", box.dir / "b", "root@127.0.0.1", stdout=False)
            box.run("cmp", "text", "copy2")
            (box.dir / "copy1").unlink()
        box.record("greeting", ask(port)[:8])
        box.run("ssh", "-q", "-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-p", port, "nobody@127.0.0.1", "true", may_fail=True)


@program({"dropbear": "dropbear-bin", "dropbearkey": "dropbear-bin", "dbclient": "dropbear-bin"}, torture=True, modes=True)
def dropbear(box):
    port = box.port()
    box.run("dropbearkey", "-t", "ed25519", "-f", "host", stdout=False)
    with box.server("dropbear", "-F", "-E", "-r", box.dir / "host", "-p", f"127.0.0.1:{port}", "-P", box.dir / "pid", port=port, statuses=(0, 1, -15)):
        for _ in range(3):
            box.record("greeting", ask(port)[:8])
            box.run("dbclient", "-y", "-y", "-p", port, "nobody@127.0.0.1", "true", may_fail=True)


@program({"vsftpd": "vsftpd"}, torture=True, modes=True, reports=False)
def vsftpd(box):
    """It limits its address space to 200 MiB, and each session is a child in an empty root. Its own filter kills it on any malloc: glibc changed a call."""
    port = box.port()
    for name in ("ftp", "empty"):
        (box.dir / name).mkdir(mode=0o755)
    text_file(box.dir / "ftp/text", 3000)
    (box.dir / "v.conf").write_text(f"listen=YES\nlisten_port={port}\nlisten_address=127.0.0.1\nanonymous_enable=YES\nlocal_enable=NO\nbackground=NO\nanon_root={box.dir}/ftp\nsecure_chroot_dir={box.dir}/empty\nnopriv_user=nobody\nxferlog_enable=NO\nseccomp_sandbox=NO\n")
    with box.server("vsftpd", box.dir / "v.conf", port=port, statuses=TERM):
        for _ in range(4):
            ftp_session(box, port)


def ftp_session(box, port):
    """Log in, list, and get a file by the passive mode."""
    with socket.create_connection(("127.0.0.1", port), 20) as s, s.makefile("rb") as lines:
        def command(text):
            if text:
                s.sendall(text.encode() + b"\r\n")
            while not re.match(rb"\d{3} ", line := lines.readline()):
                if not line:
                    raise EOFError(f"the server closes the connection at {text}")
            return line.decode(errors="replace").strip()

        box.record("greeting", command("")[:3])
        for text in ("USER anonymous", "PASS x", "TYPE I", "PWD", "SIZE text"):
            box.record(text, command(text))
        for text in ("NLST", "RETR text"):
            p = [int(n) for n in re.search(r"\(([\d,]+)\)", command("PASV"))[1].split(",")]
            with socket.create_connection(("127.0.0.1", p[4] * 256 + p[5]), 20) as data:
                box.record(text, command(text)[:3])
                got = b""
                while part := data.recv(65536):
                    got += part
            box.record(f"{text}: got", hashlib.sha256(got).hexdigest())
            box.record(f"{text}: end", command("")[:3])
        box.record("QUIT", command("QUIT")[:3])


@program({"dovecot": "dovecot-imapd"}, torture=True, modes=True)
def dovecot(box):
    """Processes that limit their address space by default_vsz_limit; the login process has an empty root."""
    port = box.port()
    (box.dir / "run").mkdir()
    mail = box.dir / "home/Maildir"
    for name in ("cur", "new", "tmp"):
        (mail / name).mkdir(parents=True)
    for n in range(150):
        (mail / "cur" / f"{1600000000 + n}.M{n}P1.x:2,S").write_text(f"From: a{n}@example\nTo: b@example\nSubject: mail {n}\nDate: Mon, 13 Sep 2020 12:26:40 +0000\nMessage-ID: <{n}@x>\n\n" + f"text of {n}\n" * (n * 7 % 90))
    user = pwd.getpwnam("nobody")
    for path in [box.dir / "home", *(box.dir / "home").rglob("*")]:
        os.chown(path, user.pw_uid, user.pw_gid)
    (box.dir / "d.conf").write_text(f"""base_dir = {box.dir}/run
log_path = {box.dir}/log
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
mail_location = maildir:~/Maildir
first_valid_uid = 1
first_valid_gid = 1
default_vsz_limit = 256M
import_environment = $import_environment LD_PRELOAD QUARRY_CONF FIELD_NEED FIELD_LIMIT
passdb {{
  driver = static
  args = password=x
}}
userdb {{
  driver = static
  args = uid={user.pw_uid} gid={user.pw_gid} home={box.dir}/home
}}
service imap-login {{
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
""")
    with box.server("dovecot", "-F", "-c", box.dir / "d.conf", port=port, timeout=60):
        for _ in range(3):
            imap_session(box, port)
    if died := re.findall(r".*(?:killed with signal (?!15|9)|Out of memory|Cannot allocate).*", (box.dir / "log").read_text()):
        raise Failure(f"dovecot: {died[0]}")


def imap_session(box, port):
    with socket.create_connection(("127.0.0.1", port), 30) as s, s.makefile("rb") as lines:
        lines.readline()

        def command(number, text):
            s.sendall(f"a{number} {text}\r\n".encode())
            got = []
            while True:
                line = lines.readline()
                if not line:
                    raise EOFError(f"the server closes the connection at {text}")
                got.append(line)
                if line.startswith(f"a{number} ".encode()):
                    return b"".join(got)

        box.record("login", command(1, "LOGIN b x").split()[0])
        for number, text in enumerate(("SELECT INBOX", "FETCH 1:150 (ENVELOPE RFC822.SIZE)", "FETCH 1:40 BODY.PEEK[TEXT]", "SEARCH BODY \"text of 13\"", "SORT (SUBJECT) UTF-8 ALL", "THREAD REFERENCES UTF-8 ALL"), 2):
            answer = command(number, text)
            box.record(text, hashlib.sha256(re.sub(rb"(?m)^(\* OK .*|a\d+ .*|\* \d+ RECENT)\r\n", b"", answer)).hexdigest())
        command(9, "LOGOUT")


@program({"exim4": "exim4-daemon-light"}, torture=True, modes=True)
def exim(box):
    """Its own pools over malloc; a test of addresses, and one of a session."""
    (box.dir / "e.conf").write_text("primary_hostname = x.example\ndomainlist local = x.example\nacl_smtp_rcpt = c\nhost_lookup =\nbegin acl\nc:\n accept domains = +local\n deny message = no\nbegin routers\nr:\n driver = accept\n domains = +local\n transport = t\nbegin transports\nt:\n driver = appendfile\n file = /dev/null\n user = nobody\n")
    exim = ["exim4", "-C", box.dir / "e.conf"]
    box.run(*exim, "-bt", *[f"user{n}@x.example" for n in range(60)])
    (box.dir / "text").write_text("${map{<, ${sg{" + ",".join(f"w{n}" for n in range(400)) + "}{w}{v}}}{${hash_8:$item}}}\n${sort{d:c:a:b}{<}{$item}}\n")
    box.run(*exim, "-be", stdin=box.dir / "text")
    (box.dir / "s").write_text("EHLO y\nMAIL FROM:<a@y>\n" + "".join(f"RCPT TO:<u{n}@x.example>\n" for n in range(50)) + "RCPT TO:<u@other.example>\nRSET\nQUIT\n")
    box.run(*exim, "-bh", "127.0.0.2", stdin=box.dir / "s", stdout=lambda text: "\n".join(line[:3] for line in text.splitlines() if re.match(r"\d{3}", line)))


@program({"stunnel4": "stunnel4", "openssl": "openssl", "beanstalkd": "beanstalkd"}, torture=True, modes=True)
def stunnel(box):
    """TLS in threads, before a queue that takes jobs."""
    behind, port = box.port(), box.port()
    box.run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", "key", "-out", "cert", stdout=False)
    (box.dir / "s.conf").write_text(f"foreground = yes\npid =\nsyslog = no\n[s]\naccept = 127.0.0.1:{port}\nconnect = 127.0.0.1:{behind}\ncert = {box.dir}/cert\nkey = {box.dir}/key\n")
    (box.dir / "jobs").write_text("".join(f"put 1 0 60 {len(str(n)) + 4}\r\nbody{n}\r\n" for n in range(300)) + "stats-job 7\r\nreserve\r\ndelete 1\r\nquit\r\n")
    with box.server("beanstalkd", "-l", "127.0.0.1", "-p", behind, port=behind, statuses=TERM), box.server("stunnel4", box.dir / "s.conf", port=port, statuses=TERM):
        for _ in range(2):
            box.run("openssl", "s_client", "-quiet", "-connect", f"127.0.0.1:{port}", stdin=box.dir / "jobs", may_fail=True, stdout=lambda text: len(re.findall(r"INSERTED", text)))


# ---- the rest -----------------------------------------------------------------------------------

@program({"slapd": "slapd", "ldapadd": "ldap-utils", "ldapsearch": "ldap-utils"}, torture=True, modes=True)
def slapd(box):
    """Threads over a database in a mapped file; modules are opened."""
    port = box.port()
    (box.dir / "db").mkdir()
    (box.dir / "s.conf").write_text(f"include /etc/ldap/schema/core.schema\ninclude /etc/ldap/schema/cosine.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\npidfile {box.dir}/pid\ndatabase mdb\nmaxsize 33554432\nsuffix dc=x\nrootdn cn=a,dc=x\nrootpw p\ndirectory {box.dir}/db\nindex cn eq,sub\n")
    (box.dir / "x.ldif").write_text("dn: dc=x\nobjectClass: dcObject\nobjectClass: organization\ndc: x\no: x\n\n" + "".join(f"dn: cn=n{i},dc=x\nobjectClass: person\ncn: n{i}\nsn: s{i * 7919 % 503}\ndescription: {'text ' * (i % 20 + 1)}\n\n" for i in range(600)))
    where = ["-x", "-H", f"ldap://127.0.0.1:{port}", "-D", "cn=a,dc=x", "-w", "p"]
    with box.server("slapd", "-d", "0", "-h", f"ldap://127.0.0.1:{port}", "-f", box.dir / "s.conf", port=port, timeout=60):
        box.run("ldapadd", *where, "-f", "x.ldif", stdout=False, timeout=120)
        box.run("ldapsearch", *where, "-LLL", "-o", "ldif-wrap=no", "-b", "dc=x", "(|(cn=*7*)(sn=s11))", "cn", "description", timeout=120)
        box.run("ldapsearch", *where, "-LLL", "-b", "dc=x", "-E", "pr=50/noprompt", "-S", "sn", "(cn=n1*)", "sn", timeout=120)


@program({"mosquitto": "mosquitto", "mosquitto_pub": "mosquitto-clients", "mosquitto_sub": "mosquitto-clients"}, torture=True, modes=True)
def mosquitto(box):
    port = box.port()
    (box.dir / "m.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\nmax_queued_messages 5000\n")
    (box.dir / "lines").write_text("".join(f"message {n} {'x' * (n * 7 % 300)}\n" for n in range(800)))
    where = ["-h", "127.0.0.1", "-p", port, "-q", "1"]
    with box.server("mosquitto", "-c", box.dir / "m.conf", port=port):
        box.run("mosquitto_sub", *where, "-i", "s", "-c", "-t", "a/#", "-E", stdout=False)
        box.run("mosquitto_pub", *where, "-t", "a/b", "-l", stdin=box.dir / "lines")
        box.run("mosquitto_sub", *where, "-i", "s", "-c", "-t", "a/#", "-C", "800", "-W", "20")


@program({"beanstalkd": "beanstalkd"}, torture=True, modes=True, reports=False)
def beanstalkd(box):
    port = box.port()
    with box.server("beanstalkd", "-l", "127.0.0.1", "-p", port, "-b", box.dir, port=port, statuses=TERM):
        with socket.create_connection(("127.0.0.1", port), 20) as s, s.makefile("rb") as lines:
            for n in range(2000):
                body = b"x" * (n * 37 % 3000)
                s.sendall(b"put %d 0 60 %d\r\n%s\r\n" % (n * 7919 % 503, len(body), body))
                lines.readline()
            total = 0
            for n in range(1500):
                s.sendall(b"reserve\r\n")
                _, number, length = lines.readline().split()
                total = (total * 31 + int(number) + len(lines.read(int(length) + 2))) % 2**32
                s.sendall(b"delete %s\r\n" % number)
                lines.readline()
            box.record("jobs", total)


@program({"snmpd": "snmpd", "snmpwalk": "snmp"}, torture=True, modes=True)
def snmpd(box):
    """It looks at the machine: what it says of the system's tables is its own."""
    port = box.port()
    (box.dir / "s.conf").write_text(f"agentaddress tcp:127.0.0.1:{port}\nrocommunity public 127.0.0.1\nsysLocation here\nsysContact me\n")
    with box.server("snmpd", "-f", "-Lf", box.dir / "log", "-C", "-c", box.dir / "s.conf", "-p", box.dir / "pid", port=port, env={"SNMP_PERSISTENT_DIR": str(box.dir)}):
        for oid in (".1.3.6.1.2.1.1.4", ".1.3.6.1.2.1.1.6", ".1.3.6.1.2.1.1.9.1.3"):
            box.run("snmpwalk", "-v2c", "-c", "public", "-On", f"tcp:127.0.0.1:{port}", oid, env={"MIBS": ""}, timeout=60)
        box.run("snmpwalk", "-v2c", "-c", "public", "-On", f"tcp:127.0.0.1:{port}", ".1.3.6.1.2.1", env={"MIBS": ""}, timeout=60, stdout=lambda text: len(text) > 2000)


@program({"rsyslogd": "rsyslog"}, torture=True, modes=True)
def rsyslog(box):
    """Queues, threads, and modules that are opened."""
    port = box.port()
    (box.dir / "r.conf").write_text(f'module(load="imtcp")\nmodule(load="impstats" interval="1" log.file="{box.dir}/stats" log.syslog="off")\ninput(type="imtcp" port="{port}" address="127.0.0.1")\ntemplate(name="t" type="string" string="%msg:R,ERE,1,BLANK:([0-9]+)--end% %msg%\\n")\naction(type="omfile" file="{box.dir}/out" template="t")\n')
    with box.server("rsyslogd", "-n", "-i", box.dir / "pid", "-f", box.dir / "r.conf", port=port):
        with socket.create_connection(("127.0.0.1", port), 20) as s:
            for n in range(5000):
                s.sendall(f"<13>Oct 11 22:14:15 host app: message {n} {'x' * (n * 7 % 200)}\n".encode())
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and (not (box.dir / "out").exists() or (box.dir / "out").read_bytes().count(b"\n") < 5000):
            time.sleep(0.05)
    box.result("out")


@program({"rsync": "rsync"}, torture=True, modes=True)
def rsyncd(box):
    port = box.port()
    pages(box)
    (box.dir / "r.conf").write_text(f"address = 127.0.0.1\nport = {port}\nuse chroot = no\nuid = root\ngid = root\nlog file = {box.dir}/log\n[m]\npath = {box.dir}/www\nread only = no\n")
    with box.server("rsync", "--daemon", "--no-detach", f"--config={box.dir}/r.conf", port=port, statuses=(0, 20)):
        box.run("rsync", "-rz", f"rsync://127.0.0.1:{port}/m/", "copy/")
        box.run("diff", "-r", "www", "copy")
        text_file(box.dir / "copy/3.txt", 900, seed=99)
        box.run("rsync", "-rzI", "copy/", f"rsync://127.0.0.1:{port}/m/")
        box.run("diff", "-r", "www", "copy")


@program({"tor": "tor"}, torture=True, modes=True, reports=False)
def tor(box):
    """Under a filter of its own that knows what tor and glibc call; without a network."""
    port = box.port()
    (box.dir / "d").mkdir(mode=0o700)
    (box.dir / "t.conf").write_text(f"DataDirectory {box.dir}/d\nSandbox 1\nDisableNetwork 1\nSocksPort 0\nControlPort 127.0.0.1:{port}\nLog err stderr\nGeoIPFile /dev/null\nGeoIPv6File /dev/null\n")
    with box.server("tor", "-f", box.dir / "t.conf", "--defaults-torrc", "/dev/null", port=port, stop=signal.SIGINT):
        box.record("control", ask(port, 'AUTHENTICATE ""', "GETINFO config/defaults", "SIGNAL RELOAD", "GETINFO net/listeners/control", "QUIT", until=b"-").count("250"))
    box.run("tor", "-f", box.dir / "t.conf", "--defaults-torrc", "/dev/null", "--verify-config", stdout=False)


@program({"chronyd": "chrony"}, torture=True, modes=True, reports=False)
def chrony(box):
    """Its filters at both levels; it sets no clock, and ends after a second."""
    (box.dir / "c.conf").write_text(f"port 0\ncmdport 0\nbindcmdaddress {box.dir}/s\npidfile {box.dir}/p\nlocal stratum 8\ndriftfile {box.dir}/drift\n")
    for level in ("1", "2"):
        box.run("chronyd", "-d", "-x", "-u", "root", "-F", level, "-t", "1", "-f", box.dir / "c.conf", stdout=False, may_fail=True)


@program({"privoxy": "privoxy"}, torture=True, modes=True)
def privoxy(box):
    port = box.port()
    (box.dir / "p.conf").write_text(f"confdir /etc/privoxy\nlogdir {box.dir}\nactionsfile default.action\nfilterfile default.filter\nlisten-address 127.0.0.1:{port}\ntoggle 1\n")
    with box.server("privoxy", "--no-daemon", "--pidfile", box.dir / "pid", box.dir / "p.conf", port=port, statuses=(0, 15, -15)):
        for _ in range(5):
            box.record("blocked", http(port, "http://ad.doubleclick.net/x")[0])
            box.record("settings", http(port, "http://config.privoxy.org/show-status")[0])


@program({"memcached": "memcached", "redis-server": "redis-server"}, torture=True, modes=True)
def caches(box):
    """Two that have their own tests, in the modes."""
    port = box.port()
    with box.server("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", box.dir, port=port):
        for n in range(400):
            box.record("set", ask(port, f"SET k{n} {'v' * (n * 7 % 500)}", f"STRLEN k{n}", until=b"-"))
    port = box.port()
    with box.server("memcached", "-l", "127.0.0.1", "-p", port, "-U", "0", "-u", "nobody", "-m", "32", port=port):
        for n in range(200):
            box.record("set", ask(port, f"set k{n} 0 0 5\r\nvalue", f"get k{n}", until=b"-"))
