# SPDX-License-Identifier: MIT
"""Programs that turn files into files: archives, ciphers, pictures, pages, a repository, a database."""
from harness import program, text_file


def round_trip(box, pack, unpack, packed):
    """Packed by two threads and unpacked again: both files must be what they are on the system malloc."""
    text_file(box.dir / "text", 120_000)
    box.run(*pack, timeout=120)
    box.result(packed)
    (box.dir / "text").rename(box.dir / "original")
    box.run(*unpack, timeout=120)
    box.run("cmp", "original", "text")


@program({"xz": "xz-utils"})
def xz(box):
    round_trip(box, ["xz", "-k", "-T2", "-3", "--block-size=1MiB", "text"], ["xz", "-dk", "-T2", "text.xz"], "text.xz")


@program({"zstd": "zstd"})
def zstd(box):
    round_trip(box, ["zstd", "-q", "-T2", "-12", "text"], ["zstd", "-qd", "text.zst"], "text.zst")


@program({"openssl": "openssl"})
def openssl(box):
    text_file(box.dir / "text", 100_000)
    box.run("openssl", "dgst", "-sha256", "-sha3-512", "text")
    cipher = ["openssl", "enc", "-aes-256-cbc", "-pbkdf2", "-iter", "20000", "-pass", "pass:quarry"]
    box.run(*cipher, "-S", "0011223344556677", "-in", "text", "-out", "secret")
    box.result("secret")
    box.run(*cipher, "-S", "0011223344556677", "-d", "-in", "secret", "-out", "back")
    box.run("cmp", "text", "back")
    box.run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=quarry", "-keyout", "key", "-out", "cert")
    box.run("openssl", "verify", "-CAfile", "cert", "cert")
    box.run("openssl", "speed", "-seconds", "1", "-multi", "2", "ecdsap256", stdout=False)


SQL = """
pragma page_size = 1024;
create table t(a integer primary key, b text, c blob);
with recursive n(x) as (select 1 union all select x + 1 from n where x < 120000)
  insert into t select x, hex(x * 7919 % 65537) || x, zeroblob(x % 300) from n;
create index tb on t(b);
update t set b = b || b where a % 3 = 0;
delete from t where a % 5 = 0;
select count(*), count(distinct substr(b, 1, 4)), sum(length(c)) from t;
select group_concat(m, '-') from (select max(b) m from t group by a % 200 order by 1);
select json_group_array(json_object('a', a, 'b', b)) from t where a % 97 = 0;
with p as (select a, row_number() over (partition by a % 10 order by b) r from t) select sum(a * r) from p;
vacuum;
pragma integrity_check;
"""


@program({"sqlite3": "sqlite3"})
def sqlite(box):
    """It trusts malloc_usable_size: a wrong answer is a wrong database."""
    (box.dir / "load.sql").write_text(SQL)
    box.run("sqlite3", "-batch", "x.db", ".read load.sql")
    box.result("x.db")
    box.run("sqlite3", "-batch", ":memory:", ".restore x.db", "select count(*), sum(a) from t where b > '5';", ".dump t")


HISTORY = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000",
           "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


def history(path, commits):
    """A stream for git fast-import: files that grow, change and go."""
    lines = text_file(path.with_suffix(".words"), 4000).read_text().splitlines(keepends=True)
    with open(path, "w") as stream:
        for n in range(commits):
            stream.write(f"commit refs/heads/main\ncommitter a <a@b> {1600000000 + 60 * n} +0000\ndata 9\nchange {n % 10}\n\n")
            for k in range(3):
                number = (n * 7 + k * 131) % 90
                first = n * 11 % 3000
                body = "".join(lines[first:first + 20 + number * 4]) + f"{n}\n"
                if (n + k) % 13 == 12:
                    stream.write(f"D d{number % 9}/f{number}\n")
                else:
                    stream.write(f"M 644 inline d{number % 9}/f{number}\ndata {len(body)}\n{body}\n")


def git_life(box, commits, deep):
    history(box.dir / "stream", commits)
    box.run("git", "init", "-q", "-b", "main", "one", env=HISTORY)
    box.run("git", "-C", "one", "fast-import", "--quiet", stdin=box.dir / "stream", env=HISTORY, timeout=120)
    box.run("git", "clone", "-q", "--no-local", "one", "two", env=HISTORY, timeout=120)
    git = ["git", "-C", "two", "-c", "pack.threads=2"]
    box.run(*git, "repack", "-adfq", "--window=20", env=HISTORY, timeout=240)
    box.run(*git, "fsck", "--full", "--no-progress", env=HISTORY, timeout=120)
    box.run(*git, "log", "-p", "-M", "--stat", env=HISTORY, timeout=120)
    box.run(*git, "blame", "-s", "d1/f1", env=HISTORY, may_fail=True)
    box.run(*git, "grep", "-c", "-e", "a.*b.*c", env=HISTORY, may_fail=True)
    if deep:
        box.run(*git, "gc", "--aggressive", "--prune=now", "-q", env=HISTORY, timeout=600)
        box.run(*git, "checkout", "-q", "-b", "side", "HEAD~50", env=HISTORY)
        (box.dir / "two/d1/new").write_text("new\n")
        box.run(*git, "add", "-A", env=HISTORY)
        box.run(*git, "commit", "-qm", "side", env=HISTORY)
        box.run(*git, "rebase", "-q", "main", env=HISTORY, timeout=240)
        box.run(*git, "rev-parse", "HEAD", "HEAD^{tree}", env=HISTORY)
        box.run(*git, "fsck", "--full", "--no-progress", env=HISTORY, timeout=120)


@program({"git": "git"})
def git(box):
    git_life(box, 400, deep=False)


@program({"git": "git"}, torture=True)
def git_deep(box):
    git_life(box, 3000, deep=True)


@program({"ffmpeg": "ffmpeg"}, torture=True)
def ffmpeg(box):
    """Decoded frames, by their hashes."""
    make = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=d=6:s=640x360:r=25"]
    box.run(*make, "-c:v", "ffv1", "-threads", "2", "a.mkv", timeout=240)
    box.run("ffmpeg", "-v", "error", "-i", "a.mkv", "-f", "framemd5", "-", timeout=240)
    box.run(*make, "-threads", "1", "-c:v", "mpeg4", "-f", "framemd5", "-", timeout=240)
    box.run("ffmpeg", "-v", "error", "-i", "a.mkv", "-vf", "scale=320:-1,hqdn3d,unsharp", "-f", "framemd5", "-", timeout=240)


PAGES = r"""%!PS
/Times-Roman findfont 9 scalefont setfont
1 1 12 {
  /page exch def
  0 1 60 { /line exch def 40 780 line 12 mul sub moveto
    0 1 8 { page mul line add 7919 mul 9973 mod 20 string cvs show ( ) show } for } for
  1 1 300 { /i exch def newpath i 17 mul 500 mod 300 add i 29 mul 700 mod 40 add i 20 mod 2 add 0 360 arc
    i 10 mod 10 div 0.5 page 12 div setrgbcolor fill } for
  0 setgray showpage
} for
"""


@program({"gs": "ghostscript"}, torture=True)
def ghostscript(box):
    """Pages to pictures, and to a document and from there to pictures."""
    (box.dir / "in.ps").write_text(PAGES)
    gs = ["gs", "-q", "-dNOPAUSE", "-dBATCH", "-dSAFER"]
    box.run(*gs, "-sDEVICE=png16m", "-r100", "-sOutputFile=a%02d.png", "in.ps", timeout=240)
    box.run(*gs, "-sDEVICE=pdfwrite", "-sOutputFile=b.pdf", "in.ps", timeout=240)
    box.run(*gs, "-sDEVICE=pnggray", "-r72", "-dNumRenderingThreads=2", "-sOutputFile=c%02d.png", "b.pdf", timeout=240)
    box.result(*(f"{kind}{n:02}.png" for kind in "ac" for n in range(1, 13)))


NODE = r"""
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const zlib = require('zlib'), crypto = require('crypto');
if (isMainThread) {
  const kept = [];
  for (let i = 0; i < 200000; i++) { const b = Buffer.alloc(1 + i * 7919 % 3000, i); if (i % 10 == 0) kept.push(b); }
  console.log(kept.length, kept.reduce((a, b) => a + b.length, 0));
  const out = {};
  let left = 4;
  for (let w = 0; w < 4; w++) new Worker(__filename, { workerData: w }).on('message', m => {
    out[w] = m;
    if (--left == 0) { console.log(JSON.stringify(out, ['0', '1', '2', '3'])); process.exit(0); }
  });
} else {
  const h = crypto.createHash('sha256');
  for (let i = 0; i < 60; i++) h.update(zlib.gunzipSync(zlib.gzipSync(Buffer.alloc(50000, 'worker' + workerData + i))));
  parentPort.postMessage(h.digest('hex'));
  setInterval(() => {}, 1000);
}
"""


@program({"node": "nodejs"}, torture=True)
def node(box):
    """Ends with its threads still alive: destructors race with frees."""
    (box.dir / "x.js").write_text(NODE)
    for _ in range(5):
        box.run("node", "x.js")
