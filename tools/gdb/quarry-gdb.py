# SPDX-License-Identifier: MIT
"""GDB commands for pools and the heap, in a live process or a core file.

  (gdb) source quarry-gdb.py
  (gdb) quarry pools            every pool: kind, name, what it holds
  (gdb) quarry pool EXPR        one pool: its counters and chunks
  (gdb) quarry block EXPR       whose memory an address is, and which block
  (gdb) quarry watch EXPR [N]   stop when the N bytes (8) at an address change (a hardware watchpoint)

Needs the debugging information of the Quarry library, and quarry_heap.py beside this file. Runs no code of the program,
so it works on a core. Of a block of the heap its state and class are shown. Under quarry check these are its state and size,
and where it was allocated and freed. Pools that are
checked (QUARRY_CONF=pools:guard or pass) have a record of each block, with the places where it
was allocated and freed; of others the chunk is found and, where the kind keeps sizes, the block.
A core has what a persistent pool's file had only if the file is still there. What lies in damaged memory is not
believed: a list that does not end, or leads to nothing, is said to be damaged, and the rest is shown.
"""
import os
import sys

import gdb

sys.path.insert(0, os.path.dirname(os.path.abspath(os.path.expanduser(__file__))))
import quarry_heap  # noqa: E402
from quarry_heap import counted, word_at  # noqa: E402

MODES = ((0x1, "guard"), (0x2, "poison"), (0x4, "valgrind"), (0x8, "pass"), (0x10, "counted"))
ALIVE, DYING = 0x504F4F4C, 0x44594E47
WORD = (1 << 64) - 1
LONGEST = 1 << 20  # lists with more members are damaged


def evaluate(text):
    try:
        return gdb.parse_and_eval(text)
    except gdb.error as error:
        raise gdb.GdbError(f"{error} (quarry: is the debugging information of libquarry there?)")


def as_type(value, name):
    return value.cast(gdb.lookup_type(name).pointer()).dereference()


def text_of(array):
    return array.string(errors="replace") if array.type.code == gdb.TYPE_CODE_ARRAY else str(array)


def whole(items, what):
    """All of them, as far as memory can be read and the list ends."""
    count = 0
    try:
        for item in items:
            yield item
            count += 1
            if count == LONGEST:
                print(f"  ... {what}: no end after {count}; damaged?")
                return
    except gdb.MemoryError as error:
        print(f"  ... {what}: {error}; damaged, or not in this core")


def chain(item, link):
    """A list by a member; each is read here, where what cannot be read is noticed."""
    while item:
        item.dereference().fetch_lazy()
        yield item
        item = item[link]


def pools():
    first = evaluate("'pool/core.c'::pools")["first"]
    for info in whole(chain(first, "next"), "list of pools"):
        yield info["pool"]


def kind_of(pool):
    return pool["ops"]["kind"].string(errors="replace")


def name_of(pool):
    return text_of(pool["info"]["name"])


def mode_of(pool):
    words = [word for bit, word in MODES if int(pool["mode"]) & bit]
    return "+".join(words) or "-"


# ---- chunks of each kind: (start, end, what it is) ------------------------------------------------

def ring_of_list(head, type_name, member):
    """The members of a list of src/base/list.h."""
    kind = gdb.lookup_type(type_name)
    offset = next(f.bitpos // 8 for f in kind.fields() if f.name == member)
    end, link = int(head.address), head["next"]
    while int(link) != end:
        item = (link.cast(gdb.lookup_type("char").pointer()) - offset).cast(kind.pointer()).dereference()
        item.fetch_lazy()
        yield item
        link = link["next"]


def fifo_chunks(pool):
    fifo = as_type(pool, "qy_fifo_t")
    for list_name, state in (("pages", "left, with live blocks"), ("spares", "spare"), ("waiting", "empty, to be given back")):
        for page in ring_of_list(fifo[list_name], "qy_fifo_page_t", "link"):
            yield int(page["chunk"]), int(page["chunk"]) + int(page["chunk_bytes"]), state
    for member, state in (("current", "current"), ("big_spare", "spare")):
        if fifo[member]:
            page = fifo[member].dereference()
            yield int(page["chunk"]), int(page["chunk"]) + int(page["chunk_bytes"]), state


def ring_chunks(pool):
    ring = as_type(pool, "qy_ring_t")
    for list_name, state in (("left", "with frames"), ("free", "free")):
        for chunk in ring_of_list(ring[list_name], "qy_ring_chunk_t", "link"):
            yield int(chunk["base"]), int(chunk["base"]) + int(chunk["bytes"]), state
    if ring["current"]:
        chunk = ring["current"].dereference()
        yield int(chunk["base"]), int(chunk["base"]) + int(chunk["bytes"]), "current"


def tlsf_chunks(pool):
    for region in chain(as_type(pool, "tlsf_t")["regions"], "next"):
        state = "from the parent" if int(region["grown"]) else "of the caller"
        yield int(region["base"]), int(region["base"]) + int(region["given"]), state


def stack_chunks(pool):
    stack = as_type(pool, "qy_stack_t")
    current, passed = stack["current"], False
    for chunk in chain(stack["first"], "next"):
        here = chunk == current
        passed = passed or here
        yield int(chunk["base"]), int(chunk["end"]), "current" if here else "idle" if passed else "filled"


def pow2_regions(pow2):
    for i in range(int(pow2["partition_count"])):
        yield from chain(pow2["partitions"][i]["regions"], "next")


def pow2_mapped(pow2):
    if pow2["buckets"]:
        for i in range(int(pow2["bucket_mask"]) + 1):
            yield from chain(pow2["buckets"][i], "next")


def pow2_chunks(pool):
    pow2 = as_type(pool, "pow2_t")
    for region in pow2_regions(pow2):
        yield int(region["base"]), int(region["base"]) + (1 << int(region["order"])), f"region of partition {int(region['partition'])}"
    for block in pow2_mapped(pow2):
        yield int(block["base"]), int(block["base"]) + int(block["bytes"]), "mapped block"


def pages_regions(pages):
    for i in range(int(pages["region_room"])):
        if pages["region"][i]:
            yield pages["region"][i].dereference()


def pages_chunks(pool):
    pages = as_type(pool, "qy_pages_t")
    for region in pages_regions(pages):
        start, count = int(region["base"]), int(region["pages"])
        yield start, start + (count << int(pages["shift"])), f"region, {int(region['used'])} of {count} pages used"


def persist_chunks(pool):
    store = as_type(pool, "struct quarry_persist")
    yield int(store["base"]), int(store["base"]) + int(store["mapped"]), "the file" + (", private" if store["private_map"] else "")


CHUNKS = {"fifo": fifo_chunks, "ring": ring_chunks, "tlsf": tlsf_chunks, "stack": stack_chunks, "pow2": pow2_chunks, "pages": pages_chunks, "persist": persist_chunks}


def chunks(pool):
    kind = kind_of(pool)
    return whole(CHUNKS[kind](pool), f"chunks of {name_of(pool)}") if kind in CHUNKS else iter(())


def frames(pool):
    """Of a stack, the innermost first: (record, where its blocks begin, sealed)."""
    hot = as_type(pool, "quarry_stack_t")["hot"].dereference()
    top = int(hot["top"])
    while top & ~7:
        record = gdb.Value(top & ~7).cast(gdb.lookup_type("quarry_stack_frame_t").pointer())
        record.dereference().fetch_lazy()
        yield top & ~7, int(record["pos"]), bool(top & 4)
        top = int(record["prev"])


# ---- blocks ---------------------------------------------------------------------------------------

def nodes(pool, which):
    """The observer's records of blocks; addresses in them are stored inverted."""
    observer = pool["info"]["observer"]
    if observer:
        first = as_type(observer, "struct qy_observer")[which]["newest"]
        for node in whole(chain(first, "older"), f"{which} blocks of {name_of(pool)}"):
            yield ~int(node["ptr"]) & WORD, int(node["size"]), node.dereference()


def origins():
    """The tree that stacks of pools' blocks are in."""
    checked = quarry_heap.checked_tree()
    return checked if checked is not None else evaluate("'pool/origin.c'::origins")["tree"]


def described(state, start, size, address):
    return f"{state} block at {start:#x}, {counted(size, 'byte')}, offset {address - start}"


def tlsf_block(pool, address):
    """Walks the region's blocks; see src/pool/tlsf.h for the head's bits."""
    for region in chain(as_type(pool, "tlsf_t")["regions"], "next"):
        block = int(region) + gdb.lookup_type("tlsf_region_t").sizeof
        end = int(region) + int(region["bytes"])
        while int(region) <= address < end and block < end:
            head = word_at(block + 8)
            size = head & 0x0000FFFFFFFFFFF0
            if head & 0x8 or not size:
                break
            if block + 16 <= address < block + 16 + size:
                return described("free" if head & 1 else "used", block + 16, size - 8, address)
            block += size
        last = (int(region["base"]) + int(region["given"])) & ~15
        if end <= address < last:  # fresh memory behind the end mark
            return described("free", end, last - end - 8, address)
    return None


def pow2_block(pool, address):
    """The map's byte for each 32 bytes says what begins there: the order, 0x20 used, 0x40 free. Other bytes are no block's."""
    pow2 = as_type(pool, "pow2_t")
    for region in pow2_regions(pow2):
        base, order = int(region["base"]), int(region["order"])
        if base <= address < base + (1 << order):
            index = (address - base) >> 5
            for o in range(5, order + 1):
                start = index >> (o - 5) << (o - 5)
                what = int(region["map"][start])
                if what & 0x60 and index - start < 1 << (what & 0x1F) - 5:
                    return described("used" if what & 0x20 else "free", base + (start << 5), 1 << (what & 0x1F), address)
    for block in pow2_mapped(pow2):
        if int(block["base"]) <= address < int(block["base"]) + int(block["bytes"]):
            return described("mapped", int(block["base"]), int(block["bytes"]), address)
    return None


def pages_block(pool, address):
    pages = as_type(pool, "qy_pages_t")
    shift = int(pages["shift"])
    for region in pages_regions(pages):
        base, count = int(region["base"]), int(region["pages"])
        page = (address - base) >> shift
        if not 0 <= page < count:
            continue

        def bit(bits, i):
            return int(region[bits][i // 64]) >> i % 64 & 1

        used, first, last = bit("bits_used", page), page, page + 1
        while first > 0 and not (used and bit("bits_start", first)) and bit("bits_used", first - 1) == used:
            first -= 1
        while last < count and bit("bits_used", last) == used and not (used and bit("bits_start", last)):
            last += 1
        return described("used" if used else "free", base + (first << shift), (last - first) << shift, address)
    return None


def persist_block(pool, address):
    """Headers are in the word before a block; see src/pool/persist_format.h."""
    store = as_type(pool, "struct quarry_persist")
    base, at, end = int(store["base"]), int(store["first"]), int(store["words"]["end"])
    while at < end:
        header = word_at(base + at - 8)
        size = header & 0x0000FFFFFFFFFFF0
        if size < 16:
            break
        if base + at <= address < base + at + size:
            return described("free" if header & 1 else "used", base + at, size - 8, address) + f", at {at} of the file"
        at += size
    return None


def place(pos):
    return f"{pos:#x}" if pos else "the bottom"


def stack_block(pool, address):
    """No blocks, but frames: the innermost that began at or before the address, in its chunk."""
    stack = as_type(pool, "qy_stack_t")
    hot = stack["open"]["hot"].dereference()
    of_address, bounds = None, []
    for number, (start, end, what) in enumerate(stack_chunks(pool)):
        bounds.append((start, end))
        if start <= address < end:
            of_address = number
            if what == "idle" or what == "current" and address >= int(hot["pos"]):
                return "not in use"
    for record, pos, sealed in frames(pool):
        # 0: pushed in a thread that had no stack yet.
        number = next((n for n, (start, end) in enumerate(bounds) if start <= pos <= end), None) if pos else 0
        if number is not None and of_address is not None and (number, pos) <= (of_address, address):
            return f"in the frame of {record:#x}{' (sealed)' if sealed else ''}, which began at {place(pos)}"
    return "below all frames"


BLOCKS = {"tlsf": tlsf_block, "pow2": pow2_block, "pages": pages_block, "persist": persist_block, "stack": stack_block}


def explain_block(pool, address):
    for which, state in (("live", "live"), ("quarantine", "freed")):
        for start, size, node in nodes(pool, which):
            if start - 16 <= address < start + size + 16:
                offset = address - start
                where = "before its start" if offset < 0 else "behind its end" if offset >= size else f"offset {offset}"
                print(f"  {state} block at {start:#x}, {counted(size, 'byte')}, {where}, group {int(node['group'])}")
                quarry_heap.print_traces(origins(), int(node["born"]), int(node["died"]))
                return True
    if kind_of(pool) in BLOCKS:
        found = BLOCKS[kind_of(pool)](pool, address)
        if found:
            print("  " + found)
            return True
    return False


# ---- commands ---------------------------------------------------------------------------------------

class Quarry(gdb.Command):
    """Pools and heap of the Quarry toolkit: quarry pools | pool EXPR | block EXPR | watch EXPR [BYTES]."""

    def __init__(self):
        super().__init__("quarry", gdb.COMMAND_DATA, prefix=True)


class Pools(gdb.Command):
    """quarry pools: a line for each pool of the process."""

    def __init__(self):
        super().__init__("quarry pools", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        print(f"{'address':18} {'kind':9}{'name':33}{'held':>14}{'peak held':>14}{'chunks':>9} mode")
        total = count = 0
        for pool in pools():
            info = pool["info"]
            held = int(info["held"])
            total, count = total + held, count + 1
            chunks = int(info["chunk_gets"]) - int(info["chunk_puts"])
            print(f"{int(pool):#018x} {kind_of(pool):9}{name_of(pool):33}{held:14}{int(info['peak_held']):14}{chunks:9} {mode_of(pool)}")
        print(f"{counted(count, 'pool')}, {counted(total, 'byte')} held")


class Pool(gdb.Command):
    """quarry pool EXPR: one pool (an expression that is a pool's address)."""

    def __init__(self):
        super().__init__("quarry pool", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        if not argument:
            raise gdb.GdbError("quarry pool EXPR: which pool?")
        address = int(evaluate(argument))
        pool = next((p for p in pools() if int(p) == address), None)
        if pool is None:
            raise gdb.GdbError(f"{address:#x} is no tracked pool; `quarry pools` lists them")
        info, alive = pool["info"], int(pool["alive"])
        state = "alive" if alive == ALIVE else "waiting for its last blocks" if alive == DYING else "destroyed"
        print(f"{kind_of(pool)} \"{name_of(pool)}\" at {address:#x}, {state}, mode {mode_of(pool)}")
        parent = info["parent"]
        print(f"  parent: {kind_of(parent) + ' ' + name_of(parent) if parent else 'the kernel'}")
        for title in ("held", "peak_held", "limit", "requested", "allocs", "frees", "resizes", "slow_calls", "chunk_gets", "chunk_puts", "slow_ns"):
            print(f"  {title:11}{int(info[title]):16}")
        for start, end, what in chunks(pool):
            print(f"  chunk {start:#x}-{end:#x} {end - start:10} bytes, {what}")
        if kind_of(pool) == "stack":
            for record, pos, sealed in whole(frames(pool), "frames"):
                print(f"  frame {record:#x} begins at {place(pos)}{', sealed' if sealed else ''}")
        live = list(nodes(pool, "live"))
        if live:
            print(f"  {counted(len(live), 'live block')}, {counted(sum(size for _, size, _ in live), 'byte')}; the newest:")
            for start, size, node in live[:10]:
                print(f"    {start:#x} {size:10} bytes, group {int(node['group'])}")


def explained_by_pools(address):
    """Prints what pools have at an address. False: nothing."""
    for pool in pools():
        for start, end, what in chunks(pool):
            if start <= address < end:
                print(f"{address:#x}: {kind_of(pool)} \"{name_of(pool)}\" at {int(pool):#x}, chunk {start:#x}-{end:#x} ({what})")
                if not explain_block(pool, address):
                    print(f"  offset {address - start} in the chunk; the kind keeps no record of single blocks (QUARRY_CONF=pools:guard does)")
                return True
        if pool["info"]["observer"] and any(start - 16 <= address < start + size + 16 for which in ("live", "quarantine") for start, size, _ in nodes(pool, which)):
            print(f"{address:#x}: {kind_of(pool)} \"{name_of(pool)}\" at {int(pool):#x}")
            explain_block(pool, address)
            return True
    return False


def has_pools():
    try:
        gdb.parse_and_eval("'pool/core.c'::pools")
        return True
    except gdb.error:
        return False


class Block(gdb.Command):
    """quarry block EXPR: the block that an address lies in, of a pool or of the heap."""

    def __init__(self):
        super().__init__("quarry block", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        if not argument:
            raise gdb.GdbError("quarry block EXPR: which address?")
        address, heaps = int(evaluate(argument)) & WORD, list(quarry_heap.heaps())
        with_pools = has_pools()
        if with_pools and explained_by_pools(address):
            return
        try:
            if any(heap.explain(address) for heap in heaps):
                return
        except gdb.MemoryError as error:
            print(f"{address:#x}: {error}; the heap's own records are damaged, or not in this core")
            return
        if not with_pools and not heaps:
            raise gdb.GdbError("quarry block: no Quarry library with debugging information is in this process")
        print(f"{address:#x}: of no {' and no '.join(['pool'] * with_pools + ['heap'] * bool(heaps))}")


class Watch(gdb.Command):
    """quarry watch EXPR [BYTES]: stop when memory changes. A hardware watchpoint: it costs almost nothing."""

    def __init__(self):
        super().__init__("quarry watch", gdb.COMMAND_BREAKPOINTS)

    def invoke(self, argument, from_tty):
        words = gdb.string_to_argv(argument)
        if not 1 <= len(words) <= 2:
            raise gdb.GdbError("quarry watch EXPR [1|2|4|8]")
        size = words[1] if len(words) == 2 else "8"
        types = {"1": "char", "2": "short", "4": "int", "8": "long"}
        if size not in types:
            raise gdb.GdbError(f"quarry watch: {size} bytes? The processor watches 1, 2, 4 or 8")
        gdb.Breakpoint(f"*({types[size]} *) {int(evaluate(words[0])):#x}", gdb.BP_WATCHPOINT)


for command in (Quarry, Pools, Pool, Block, Watch):
    command()
