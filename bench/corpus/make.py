#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Make the corpus: traces of real programs, recorded here and packed.

  make.py [--full] [-o FOLDER] [NAME...]     default: build/corpus; --full: longer ones
  make.py --list                             what there is, and how each is recorded

A compiler, an interpreter, a database, a server with threads under load, a tool for pictures, one for versions. Each trace is
recorded with call stacks left out, rewritten by `quarry convert` (complete blocks, compressed), and checked by `quarry info --strict`. What is
not installed is left out and said.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
sys.path.insert(0, str(ROOT / "bench/record"))
from measure import Fault  # noqa: E402
from programs import Program, environment, programs, quiet, tool  # noqa: E402

MOST_BYTES = 20 << 20  # of all traces together


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def redis(folder, scale):
    """A server with threads for its connections, under the load of its own benchmark."""
    server, client = shutil.which("redis-server"), shutil.which("redis-benchmark")
    if not server or not client:
        return None
    port = free_port()
    command = [server, "--port", str(port), "--save", "", "--io-threads", "2", "--io-threads-do-reads", "yes", "--dir", str(folder), "--bind", "127.0.0.1"]
    requests = str(round(20000 * scale))
    load = [client, "-h", "127.0.0.1", "-p", str(port), "-q", "-n", requests, "-r", "2000", "-d", "200", "-t", "set,get,lpush,lpop,sadd,hset,zadd,mset"]
    return Program(command, {}, 3, folder), load, port


def recipes(folder, scale):
    """{name: (program, load or None, port)}"""
    made = {name: (program, None, 0) for name, program in programs(folder, scale).items() if name != "perl"}
    if recipe := redis(folder, scale):
        made["redis"] = recipe
    return made


def wait_for(port, process):
    for _ in range(400):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise Fault(f"the server does not listen on port {port}")


def record(program, load, port, trace):
    command = [tool(), "record", "-q", "-o", str(trace), "--", *program.command]
    process = subprocess.Popen(command, env=environment(program), cwd=program.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        if load:
            wait_for(port, process)
            quiet(*load)
            process.send_signal(signal.SIGTERM)  # quarry hands it on
        if process.wait(timeout=600):
            raise Fault(f"{program.command[0]}: status {process.returncode}")
    finally:
        if process.poll() is None:
            process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=ROOT / "build/corpus")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        made = recipes(folder, 0.05 if args.smoke else 1.0 if args.full else 0.2)
        if args.list:
            for name, (program, load, _) in made.items():
                print(f"{name:10}{' '.join(program.command)}{'   load: ' + ' '.join(load) if load else ''}")
            return
        if unknown := set(args.names) - made.keys():
            sys.exit(f"make.py: cannot make {', '.join(sorted(unknown))}; there are {', '.join(made)}")
        if args.smoke:
            made = {name: made[name] for name in ("sqlite",) if name in made}
            args.output = folder / "corpus"
        args.output.mkdir(parents=True, exist_ok=True)
        total, about = 0, {}
        print(f"{'trace':16}{'threads':>8}{'events':>12}{'lost':>6}{'KiB':>8}{'bytes/event':>13}")
        for name, (program, load, port) in made.items():
            if args.names and name not in args.names:
                continue
            raw, packed = folder / "raw.qtr", args.output / f"{name}.qtr"
            try:
                record(program, load, port, raw)
                quiet(tool(), "convert", "-q", raw, "-o", packed)
                info = json.loads(quiet(tool(), "info", "--strict", "--json", packed))
            except (Fault, subprocess.CalledProcessError) as fault:
                sys.exit(f"make.py: {name}: {fault} {getattr(fault, 'stderr', '')}")
            size = packed.stat().st_size
            total += size
            lost = info["lost"]["events"]
            about[name] = {"command": info["trace"]["head"]["command"], "load": load, "events": info["events"], "lost": lost, "bytes": size,
                           "malloc": info["trace"]["head"]["malloc"], "peak_live_bytes": info["live"]["peak_bytes"]}
            print(f"{packed.name:16}{len(info['threads']):8}{info['events']:12}{lost:6}{size / 1024:8.0f}{size / info['events']:13.2f}", flush=True)
        (args.output / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    print(f"{total / 2**20:.2f} MiB in {args.output}")
    if total > MOST_BYTES:
        sys.exit(f"make.py: more than {MOST_BYTES >> 20} MiB")


if __name__ == "__main__":
    main()
