#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A reader of traces that shares no code with the others: docs/trace-format.md, written down once more.

  qtr.py FILE    what is in it, in a few lines of JSON

In Python, so slow, and all in memory: it is there to judge the recorder and the other reader by.
"""
import collections
import json
import struct
import sys

HEAD, EVENTS, END, TEXT = 1, 2, 3, 4
SEALED, PACKED = 1, 2
MASK = (1 << 64) - 1
MOST = 16 << 20
BY = ["malloc", "calloc", "memalign", "new", "aligned new", "realloc", "pool", "other"]
FREE_BY = ["free", "delete", "sized", "null", "other"]

Block = collections.namedtuple("Block", "offset kind flags span used raw thread sequence events time address sum process payload")
Event = collections.namedtuple("Event", "time thread what by fields")


class Bad(Exception):
    """Bytes that are no record."""


def checksum(payload):
    h = 0xcbf29ce484222325
    padded = payload + bytes(-len(payload) % 8)
    for (word,) in struct.iter_unpack("<Q", padded):
        h = ((h ^ word) * 0x100000001b3) & MASK
        h ^= h >> 32
    return h


def unzigzag(n):
    return n >> 1 ^ -(n & 1)


class Fields:
    """The fields of one block's records, with what their differences refer to."""

    def __init__(self, block):
        self.bytes, self.at = block.payload, 0
        self.time, self.pc, self.stack = block.time, 0, 0
        self.previous = collections.defaultdict(lambda: block.address)

    def varint(self):
        n = shift = 0
        for _ in range(10):
            if self.at >= len(self.bytes):
                raise Bad("a number ends with the payload")
            byte = self.bytes[self.at]
            self.at += 1
            n |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return n & MASK
        raise Bad("a number of more than 10 bytes")

    def when(self):
        self.time += self.varint()
        return self.time

    def address(self, kind):
        n, last = self.varint(), self.previous[kind]
        d = unzigzag(n >> 1)
        a = (last + (d if n & 1 else d * 16)) & MASK
        self.previous[kind] = a & ~15
        return a

    def text(self):
        length = self.varint()
        if length > len(self.bytes) - self.at:
            raise Bad("a text ends behind the payload")
        self.at += length
        return self.bytes[self.at - length:self.at].decode()


def allocation_kind(size):
    return ((size + 15 & MASK) // 16) % 32


def alloc(f, v):
    time, size = f.when(), f.varint()
    fields = {"size": size, "address": f.address(allocation_kind(size))}
    if v & 7 in (2, 4):
        fields["align"] = f.varint()
    if v & 8:
        fields["stack"] = f.varint()
    return time, "alloc", BY[v & 7], fields


def free(f, v):
    time = f.when()
    return time, "free", FREE_BY[v & 7], {} if v & 7 == 3 else {"address": f.address("free")}


def realloc(f, v):
    time, took = f.when(), f.varint()
    old = f.address("free")
    size = f.varint()
    fields = {"took": took, "old": old, "size": size, "new": old if v & 1 else f.address(allocation_kind(size))}
    if v & 8:
        fields["stack"] = f.varint()
    return time, "realloc", "realloc", fields


def failed(f, v):
    return f.when(), "failed", BY[v & 7], {"size": f.varint()}


def stack(f, v):
    f.stack += 1 + unzigzag(f.varint())
    parent = f.varint()
    f.pc = (f.pc + unzigzag(f.varint())) & MASK
    return f.time, "stack", "return" if v & 1 else "exact", {"id": f.stack, "parent": parent, "pc": f.pc}


def module(f, v):
    time, base, text = f.when(), f.varint(), f.text()
    return time, "module", ["loaded", "unloaded"][v], {"base": base, "about": json.loads(text) if text else {}}


def thread(f, v):
    time = f.when()
    if v == 0:
        return time, "thread", "begins", {"tid": f.varint(), "creator": f.varint()}
    return time, "thread", ["", "ends", "name"][v], {"name": f.text()} if v == 2 else {}


def process(f, v):
    time = f.when()
    if v == 1:
        return time, "process", "exec", {"program": f.text()}
    return time, "process", ["fork", "", "exit"][v], {["child", "", "status"][v]: f.varint()}


def pool(f, v):
    time, number = f.when(), f.varint()
    fields = {"pool": number}
    if v == 0:
        fields.update(parent=f.varint(), kind=f.text(), name=f.text())
    elif v in (4, 5):
        fields["cookie"] = f.varint()
    elif v == 6:
        fields.update(size=f.varint(), address=f.address("pool"), align=f.varint(), stack=f.varint())
    elif v == 7:
        fields["address"] = f.address("pool free")
    elif v == 8:
        fields.update(old=f.address("pool free"), size=f.varint(), address=f.address("pool"), stack=f.varint())
    elif v == 10:
        fields.update(held=f.varint(), used=f.varint())
    names = ["created", "destroyed", "pushed", "popped", "sealed", "released", "alloc", "free", "resized", "emptied", "held"]
    return time, "pool", names[v], fields


def zeroed(f):
    time, size = f.when(), f.varint()
    return time, "zeroed", "calloc", {"size": size, "address": f.address(allocation_kind(size)), "bytes": f.varint()}


def extension(f, v):
    """An unknown kind is nothing, and so is what comes after the numbers of a known one."""
    kind, length = f.varint(), f.varint()
    names = {2: ["anonymous", "file", "shared", "peak", "own_anonymous", "own_file", "cpu_ns", "traits"], 3: ["address", "bytes"], 4: ["child", "status"], 6: ["address", "bytes"]}.get(kind, [])
    end = f.at + length
    if v or end > len(f.bytes):
        raise Bad("an extension ends behind the payload")
    dt = f.varint() if names else 0
    f.time += dt
    # Those that later versions added may be missing.
    fields = {name: f.varint() if f.at < end else 0 for name in names}
    f.at = end
    return f.time, "extension", {1: "gone", 2: "usage", 3: "resident", 4: "child", 6: "written"}.get(kind, str(kind)), fields


RECORDS = {
    1: alloc, 2: free, 3: realloc, 4: failed, 5: stack, 6: module, 7: thread, 8: process,
    9: lambda f, v: (f.when(), "memory", "", {"anonymous": f.varint(), "file": f.varint()}),
    10: lambda f, v: (f.when(), "clock", "", {"ns": f.varint()}),
    11: pool,
    12: lambda f, v: zeroed(f) if v == 1 else (f.time, "touched", "", {"bytes": f.varint()}),
    13: lambda f, v: (f.when(), "lost", "", {"count": f.varint(), "reason": f.varint()}),
    14: lambda f, v: (f.when(), "mark", "", {"text": f.text()}),
    15: extension,
}


def records(block):
    """The events of a block, up to the first that is none; and what was wrong with that."""
    f, found = Fields(block), []
    while f.at < len(f.bytes):
        begin, tag = f.at, f.bytes[f.at]
        if tag == 0:
            return found, f"a zero in place of a tag at {begin} of {block.used}"
        f.at += 1
        try:
            time, what, by, fields = RECORDS[tag & 15](f, tag >> 4)
        except (Bad, KeyError, IndexError, ValueError) as e:
            return found, f"record at {begin} (tag {tag:#x}): {e}"
        found.append(Event(time, block.thread, what, by, fields))
    return found, None


class Trace:
    """head, end, blocks; events by thread and all in order; problems: what is wrong or missing."""

    def __init__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        self.head, self.end, self.blocks, self.threads, self.problems = {}, None, [], {}, []
        self.unsealed = 0
        for block in self.find_blocks(data):
            self.take(block)
        for number, blocks in self.threads.items():
            sequences = sorted(b.sequence for b, _ in blocks)
            if sequences != list(range(len(sequences))):
                self.problems.append(f"thread {number} has blocks {sequences[:20]}")
        self.events = [e for blocks in self.threads.values() for _, events in sorted(blocks, key=lambda b: b[0].sequence) for e in events]
        last = collections.defaultdict(int)
        for e in self.events:
            if e.time < last[e.thread]:
                self.problems.append(f"times of thread {e.thread} go back")
            last[e.thread] = e.time

    def find_blocks(self, data):
        at = 0
        while at + 64 <= len(data):
            magic, kind, flags, version, *rest = struct.unpack_from("<4sBBH6I3Q2I", data, at)
            if magic != b"QTRB":
                if any(data[at:at + 4096]):
                    self.problems.append(f"at {at}: neither a block nor empty")
                at += 4096
                continue
            span, used, raw, number, sequence, events, time, address, total, process_id, zero = rest
            block = Block(at, kind, flags, span, used, raw, number, sequence, events, time, address, total, process_id, data[at + 64:at + 64 + used])
            if version != 1 or not 64 <= span <= MOST or span % 8 or used > span - 64 or zero or address % 16 or kind not in (1, 2, 3, 4):
                self.problems.append(f"at {at}: a bad head: {block._replace(payload=None)}")
                at += 4096
                continue
            if at + span > len(data):
                self.problems.append(f"at {at}: a block of {span} bytes is cut at {len(data) - at}")
            yield block
            at += span

    def take(self, block):
        self.blocks.append(block)
        if block.flags & SEALED:
            if checksum(block.payload) != block.sum:
                self.problems.append(f"at {block.offset}: wrong sum")
            if block.raw != block.used:
                self.problems.append(f"at {block.offset}: raw {block.raw}, used {block.used}")
        else:
            self.unsealed += 1
        if block.kind == HEAD:
            self.head = json.loads(block.payload)
            self.head["process id in the block"] = block.process
        elif block.kind == END:
            self.end = json.loads(block.payload)
        elif block.kind == EVENTS:
            events, problem = records(block)
            if problem:
                self.problems.append(f"at {block.offset}: {problem}")
            if block.flags & SEALED and len(events) != block.events:
                self.problems.append(f"at {block.offset}: {len(events)} records, the head says {block.events}")
            self.threads.setdefault(block.thread, []).append((block, events))

    def count(self):
        return collections.Counter((e.what, e.by) for e in self.events)

    def lost(self):
        return sum(e.fields["count"] for e in self.events if e.what == "lost")

    def in_order(self):
        """All events in the order of docs/trace-format.md; counts those that are impossible."""
        return sorted(self.events, key=lambda e: (e.time, e.thread))


def live(trace):
    """What is live at the end, address to size; and how many events were impossible in the order of time. Where times are
    equal, what is possible comes first."""
    blocks, impossible = {}, []
    moves = []
    for index, e in enumerate(trace.events):
        if e.what == "alloc":
            moves.append((e.time, e.thread, index, "+", e.fields["address"], e.fields["size"]))
        elif e.what == "free" and e.by != "null":
            moves.append((e.time, e.thread, index, "-", e.fields["address"], 0))
        elif e.what == "realloc":
            moves.append((e.time, e.thread, index, "-", e.fields["old"], 0))
            moves.append((e.time + e.fields["took"], e.thread, index, "+", e.fields["new"], e.fields["size"]))
    moves.sort(key=lambda m: m[:3])
    at = 0
    while at < len(moves):
        end = at
        while end < len(moves) and moves[end][0] == moves[at][0]:
            end += 1
        waiting = moves[at:end]
        while waiting:
            for i, (_, _, _, sign, address, size) in enumerate(waiting):
                if (sign == "+") != (address in blocks):
                    break
            else:
                i = 0
                _, _, _, sign, address, size = waiting[0]
                impossible.append(waiting[0])
            if sign == "+":
                blocks[address] = size
            else:
                blocks.pop(address, None)
            del waiting[i]
        at = end
    return blocks, impossible


def pools(trace):
    """What became of each pool: number to a dictionary; and the events of blocks and frames that were impossible."""
    found, impossible = {}, []

    def end_of(pool, frame):
        for address in [a for a, (_, f) in pool["live"].items() if f == frame]:
            del pool["live"][address]
            pool["ended"] += 1

    for e in trace.in_order():
        if e.what != "pool":
            continue
        f, by = e.fields, e.by
        p = found.setdefault(f["pool"], {"kind": "", "name": "", "parent": 0, "live": {}, "open": [], "sealed_frames": {}, "ended": 0, "destroyed": False,
                                         **dict.fromkeys(("allocs", "frees", "resizes", "pushed", "popped", "sealed", "released"), 0)})
        live, now = p["live"], p["open"][-1] if p["open"] else 0
        if by in ("pushed", "popped", "sealed", "released"):
            p[by] += 1
        if by == "created":
            p.update(kind=f["kind"], name=f["name"], parent=f["parent"])
        elif by == "alloc":
            p["allocs"] += 1
            if f["address"] in live:
                impossible.append(e)
            live[f["address"]] = (f["size"], now)
        elif by in ("free", "resized"):
            p["frees" if by == "free" else "resizes"] += 1
            old = live.pop(f["address" if by == "free" else "old"], None)
            if old is None or (by == "resized" and f["address"] in live):
                impossible.append(e)
            if by == "resized":
                live[f["address"]] = (f["size"], old[1] if old and f["old"] == f["address"] else now)
        elif by == "pushed":
            p["open"].append(p["pushed"])
        elif by in ("popped", "sealed") and not p["open"]:
            impossible.append(e)
        elif by == "popped":
            end_of(p, p["open"].pop())
        elif by == "sealed":
            p["sealed_frames"][f["cookie"]] = p["open"].pop()
        elif by == "released" and f["cookie"] not in p["sealed_frames"]:
            impossible.append(e)
        elif by == "released":
            end_of(p, p["sealed_frames"].pop(f["cookie"]))
        elif by in ("destroyed", "emptied"):
            live.clear()
            p["destroyed"] |= by == "destroyed"
    return found, impossible


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    trace = Trace(sys.argv[1])
    print(json.dumps({
        "head": trace.head, "end": trace.end, "blocks": len(trace.blocks), "unsealed": trace.unsealed,
        "threads": len(trace.threads), "records": len(trace.events), "lost": trace.lost(), "problems": trace.problems,
        "bytes in payloads": sum(b.used for b in trace.blocks if b.kind == EVENTS),
        "count": {" ".join(k).strip(): n for k, n in sorted(trace.count().items())},
    }, indent=1))
    return bool(trace.problems)


if __name__ == "__main__":
    sys.exit(main())
