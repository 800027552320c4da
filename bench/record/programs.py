# SPDX-License-Identifier: MIT
"""Real programs with fixed work, for the measurements of the recorder and for the corpus.

Each is one process, started directly, so that every tool sees the same: no shell, no driver that starts another program. All that it
reads lies in the folder it runs in.
"""
import collections
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent

# command; environment; how many threads allocate; folder to run in
Program = collections.namedtuple("Program", "command env threads folder")


def quiet(*command, **options):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, **options).stdout.strip()


def history(folder, commits, files):
    """A git repository with so many commits, made without a clock or a user."""
    quiet("git", "init", "-q", "--bare", folder)
    lines = []
    for commit in range(commits):
        lines += ["commit refs/heads/main", f"mark :{commit + 1}", f"committer a <a@b> {1700000000 + commit} +0000", "data 1", "c"]
        if commit:
            lines.append(f"from :{commit}")
        for number in range(files):
            body = "\n".join(f"line {line} of {number} {commit * line * 7919 % 1009 if (line + commit) % 13 == 0 else line}" for line in range(150))
            lines += [f"M 100644 inline d{number % 7}/f{number}", f"data {len(body)}", body]
    quiet("git", "-C", folder, "fast-import", "--quiet", "--force", input="\n".join(lines) + "\n")


def rows(path, count):
    """SQL that fills a table of so many rows, indexes it, and asks for joins and groups."""
    path.write_text(f"""create table t(a integer primary key, b text, c integer);
with recursive n(x) as (select 1 union all select x + 1 from n where x < {count})
insert into t select x, 'row ' || (x * 7919 % 65537) || hex(x), x % 997 from n;
create index i on t(b);
select count(*), sum(length(b)) from t;
select c, count(*), group_concat(substr(b, 1, 6)) from t group by c order by 2 desc limit 3;
select count(*) from t x join t y on x.b = y.b where x.c < 50;
delete from t where c % 3 = 0;
select count(distinct c) from t;
""")


def programs(folder, scale=1.0):
    """{name: Program} of those that are installed. `scale`: of the work."""
    folder = pathlib.Path(folder)
    found = {}
    many = lambda n: max(1, round(n * scale))  # noqa: E731
    if shutil.which("g++"):
        source = folder / "tree.ii"
        quiet("g++", "-E", "-P", "-I", ROOT / "bench", "-D_GNU_SOURCE", ROOT / "bench/quick/tree.cpp", "-o", source)
        compiler = quiet("g++", "-print-prog-name=cc1plus")
        found["compiler"] = Program([compiler, "-quiet", "-O1" if scale >= 1 else "-fsyntax-only", source.name, "-o", "/dev/null"], {}, 1, folder)
    for script in ("channels.py", "objects.py", "words.pl"):
        shutil.copy(HERE / script, folder)
    found["python"] = Program([python(), "-S", "objects.py", str(many(8))], {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}, 1, folder)
    found["channels"] = Program([python(), "-S", "channels.py", str(many(150))], {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}, 4, folder)
    if perl := shutil.which("perl"):
        found["perl"] = Program([perl, "words.pl", str(many(4))], {"PERL_HASH_SEED": "0"}, 1, folder)
    if sqlite := shutil.which("sqlite3"):
        rows(folder / "load.sql", many(60000))
        found["sqlite"] = Program([sqlite, ":memory:", ".read load.sql"], {}, 1, folder)
    if git := shutil.which("git"):
        repository = folder / "repository"
        history(repository, many(40), 60)
        command = [git, "-C", repository.name, "pack-objects", "--all", "--threads=2", "--window=20", "--no-reuse-delta", "--stdout", "-q"]
        found["git"] = Program(command, {"GIT_CONFIG_NOSYSTEM": "1", "HOME": str(folder)}, 2, folder)
    if ffmpeg := shutil.which("ffmpeg"):
        command = [ffmpeg, "-v", "error", "-f", "lavfi", "-i", f"testsrc2=size=320x240:rate=25:duration={many(12)}", "-filter_threads", "2",
                   "-c:v", "mpeg4", "-threads", "2", "-f", "null", "-"]
        found["ffmpeg"] = Program(command, {}, 2, folder)
    return found


def python():
    """The program itself, not a script that chooses one."""
    return next((p for p in ("/usr/bin/python3",) if os.path.exists(p)), os.path.realpath(sys.executable))


def environment(program):
    kept = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "QUARRY_RECORD", "QUARRY_CONF")}
    return {**kept, **program.env}


def tool():
    """The quarry to use. A test without one is skipped."""
    given = os.environ.get("QUARRY_TOOL")
    path = pathlib.Path(given) if given else ROOT / "build/bin/quarry"
    if path.exists() and subprocess.run([path, "record", "--help"], capture_output=True).returncode == 0:
        return str(path)
    print(f"no {path} that records: run make, or name the tool with QUARRY_TOOL", file=sys.stderr)
    sys.exit(77 if "--smoke" in sys.argv else 1)
