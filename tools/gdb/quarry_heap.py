# SPDX-License-Identifier: MIT
"""Blocks of the heap, for quarry-gdb.py: which one an address lies in, and what is known of it.

Each library of the process that has a heap is asked: libquarry-malloc, libquarry-check, or libquarry in a program. Symbols
are looked up in it alone, since two of these may be in one process. The structures are those of src/heap/types.h,
src/pages/types.h, src/check/records.h and src/guard/slots.h. Nothing is called, so all of it works on a core.
"""
import os
import re

import gdb

WORD = (1 << 64) - 1
UNIT, CHUNK, TAG_SHIFT, TAGS_OF_RECORD_SHIFT = 14, 21, 12, 9
ZERO_BYTES, ALIGN = 1 << 20, 16
TINY, TINY_WORDS = 8, 16
LEAF_SHIFT, LEAF_UNITS = 30, 1 << 16
LONGEST_BLOCK_UNITS = 5
SIZE = (1 << 48) - 1
TRACE_FRAMES = 12
PC_EXACT, NODE_THERE, NODE_GONE = 1 << 63, 1 << 31, WORD  # src/stacks/stacks_tree.h
RECORD_UNITS, SPAN_SLAB, SLOT_LIVE = 0, 1, 1
NONE, BUSY, LIVE, FREED, GONE = range(5)
STATES = {LIVE: "live", BUSY: "changing", FREED: "freed", GONE: "freed"}
LONGEST_LIST = 1 << 20  # a longer one is damaged


def counted(number, one):
    """"1 byte", "2 bytes"."""
    return f"{number} {one}{'' if number == 1 else 's'}"


def word_at(address):
    return int.from_bytes(gdb.selected_inferior().read_memory(address & WORD, 8).tobytes(), "little")


def in_type(value, name):
    """The structure of this type at an address."""
    return gdb.Value(int(value)).cast(gdb.lookup_type(name).pointer()).dereference()


def list_of(first, type_name, link):
    item, count = int(first), 0
    while item and count < LONGEST_LIST:
        value = in_type(item, type_name)
        yield value
        item, count = int(value[link]), count + 1


# ---- stacks -----------------------------------------------------------------------------------------

def frames_of(tree, stack):
    """The addresses of a stack, innermost first: nodes of a tree from a leaf to its root."""
    nodes = tree["nodes"]
    for _ in range(TRACE_FRAMES):
        if not stack or not int(nodes):
            break
        pc = int(nodes[stack]["pc"])
        if pc not in (0, NODE_GONE):
            yield pc & ~PC_EXACT
        stack = int(nodes[stack]["parent"]) & ~NODE_THERE


def trace(tree, stack):
    """A line for each frame."""
    lines = []
    for address in frames_of(tree, stack):
        place = gdb.find_pc_line(address - 1)
        function = gdb.block_for_pc(address - 1)
        while function and not function.function:
            function = function.superblock
        where = f" ({place.symtab.filename}:{place.line})" if place.symtab else ""
        name = function.function if function else symbol_at(address - 1)
        lines.append(f"    {address:#x} {name}{where}")
    return lines


def symbol_at(address):
    """The function without debugging information: `name + 12 in section .text of /lib/x.so`."""
    text = gdb.execute(f"info symbol {address:#x}", to_string=True)
    return "?" if text.startswith("No symbol") else text.split()[0]


def print_traces(tree, allocated, freed):
    for title, stack in (("allocated", allocated), ("freed", freed)):
        lines = trace(tree, stack)
        if lines:
            print(f"  {title} at:\n" + "\n".join(lines))


# ---- a library with a heap ----------------------------------------------------------------------------

class Heap:
    def __init__(self, objfile):
        self.objfile = objfile
        self.name = os.path.basename(objfile.filename)
        # The library's own addresses. Where the program has a Quarry library in itself, too, gdb takes a variable that both
        # have for a copy that the dynamic linker made, and shows the program's.
        lines = gdb.execute(f'maint print msymbols -objfile "{objfile.filename}"', to_string=True)
        self.addresses = {name: int(address, 16) for address, name in re.findall(r"^\[ *\d+\] [a-zA-Z] (0x[0-9a-f]+) (\w+)", lines, re.M)}
        self.is_checked = self.symbol("qy_check_leaves") is not None and int(self.value("qy_check_state")) == 2

    def symbol(self, name):
        return self.objfile.lookup_global_symbol(name) or self.objfile.lookup_static_symbol(name)

    def value(self, name):
        symbol = self.symbol(name)
        if symbol is None:
            raise gdb.GdbError(f"no {name} in {self.name} (quarry: is its debugging information of this version?)")
        if name not in self.addresses:
            return symbol.value()
        return gdb.Value(self.addresses[name]).cast(symbol.type.pointer()).dereference()

    def tree(self):
        return self.value("qy_tree")

    # -- what the heap knows: (kind, start, bytes of it, what more is known)

    def record(self, address):
        """What the map knows of the 2 MiB around an address."""
        tags, mask = int(self.value("qy_map_tags")), int(self.value("qy_map_mask"))
        index = (address >> TAG_SHIFT & mask) >> TAGS_OF_RECORD_SHIFT
        for record in list_of(word_at(tags - 8 * (index + 1)) if mask else 0, "qy_map_record_t", "alias"):
            if int(record["base"]) & WORD == address & ~((1 << CHUNK) - 1):
                return record
        return None

    def is_marked_free(self, block):
        """Has it the mark of a free block? src/heap/link.h."""
        keys, link, mark = self.value("qy_link"), word_at(block), word_at(block + 8)
        x = (((block + link) & WORD) * int(keys["mix"]) & WORD) ^ block
        product = x * int(keys["fold"])
        excess = mark ^ (product & WORD) ^ (product >> 64)
        return excess == 0 or (excess ^ int(keys["chosen"])) < 64

    def slab_block(self, slab, address):
        size = int(self.value("qy_class_size")[int(slab["cls"])])
        origin = int(slab["origin"])
        index = (address - origin) // size
        start = origin + index * size
        if address < origin or index >= int(slab["ncarved"]):
            return f"no block yet, in a slab of blocks of {size} bytes"

        if size == TINY:
            word = int(slab["tiny"]) + TINY_WORDS + index // 64 * 16  # src/heap/tiny.h: free, and freed by other threads
            freed = [word_at(word + at) >> index % 64 & 1 for at in (0, 8)]
            where = ", by another thread" if freed[1] else ""
            return f"{'free' if any(freed) else 'live'} block at {start:#x}, class of {size} bytes, offset {address - start}{where}"

        def has_bit(bits):
            return int(slab[bits]) != 0 and int(slab[bits][index // 64]) >> index % 64 & 1

        if has_bit("purged"):
            state, where = "free", ", its pages given back"
        elif has_bit("home"):
            state, where = "free", ", at home in its slab"
        elif self.is_marked_free(start):
            state, where = "free", ", in a thread's cache or on its way home"
        else:
            state, where = "live", ""
        return f"{state} block at {start:#x}, class of {size} bytes, offset {address - start}{where}"

    def huge_block(self, address):
        for huge in list_of(self.value("huge")["live"], "qy_huge_t", "next"):
            base, mapped = int(huge["record"]["base"]), int(huge["mapped"])
            if base <= address < base + mapped:
                return f"live block at {base:#x}, {counted(int(huge['size']), 'byte')} in a mapping of {mapped}, offset {address - base}"
        return None

    def zero_block(self, address):
        index = (address - int(self.value("qy_zero_base"))) // ALIGN
        used = int(self.value("zero")["used"][index // 64]) >> index % 64 & 1
        return f"{'live' if used else 'free'} address of malloc(0), without memory, offset {address % ALIGN}"

    def block(self, address):
        """What the heap has there, in words; None: nothing."""
        zero = int(self.value("qy_zero_base"))
        if zero and zero <= address < zero + ZERO_BYTES:
            return self.zero_block(address)
        record = self.record(address)
        if record is None:
            return self.huge_block(address)
        if int(record["kind"]) != RECORD_UNITS:
            return self.huge_block(address) or "free: a large block was there, or is about to be"
        chunk = in_type(record.address, "qy_chunk_t")
        span = int(chunk["span"][(address & ((1 << CHUNK) - 1)) >> UNIT])
        if not span:
            return "free: in units that hold no blocks"
        if span == int(self.value("qy_span_freed").address):
            return "free: a large block was there"
        slab = in_type(span, "qy_slab_t")
        if int(slab["kind"]) == SPAN_SLAB:
            return self.slab_block(slab, address)
        start = int(slab["origin"])
        room = (int(slab["units"]) << UNIT) - (start - int(slab["base"]))
        return f"live block at {start:#x}, {counted(int(slab['size']), 'byte')} in {room}, offset {address - start}"

    # -- what the checker knows

    def family(self, number):
        return self.value("family_names")[number].string()

    def thread(self, number):
        return int(self.value("thread_ids")[number]) if number else 0

    def sheet(self, address):
        leaf = int(self.value("qy_check_leaves")[address >> LEAF_SHIFT]) if address >> 48 == 0 else 0
        sheet = word_at(leaf + 8 * (address >> UNIT & LEAF_UNITS - 1)) if leaf else 0
        return in_type(sheet, "qy_check_sheet_t") if sheet else None

    def place(self, address):
        """(record, start, room) of the block that can be there; None: none can. See src/check/records.c."""
        sheet = self.sheet(address)
        if sheet is None:
            return None
        begin, size, count = int(sheet["begin"]), int(sheet["size"]), int(sheet["count"])
        if not size:
            return (sheet, 0, begin, int(sheet["extent"])) if 0 <= address - begin < int(sheet["extent"]) else None
        if address >= begin and count:
            index = (address - begin) // size
            return (sheet, index, begin + index * size, size) if index < count else None
        for units in range(1, LONGEST_BLOCK_UNITS + 1):  # it begins in a unit before
            before = self.sheet(address - (units << UNIT))
            if before is None or int(before["cls"]) != int(sheet["cls"]) or not int(before["size"]):
                break
            last = int(before["count"]) - 1
            if last >= 0:
                start = int(before["begin"]) + last * size
                return (before, last, start, size) if address - start < size else None
        return None

    def checked_block(self, address):
        """Prints what is known of the block there. False: nothing."""
        place = self.place(address)
        if place is None:
            return False
        sheet, index, start, room = place
        first = next(f.bitpos // 8 for f in gdb.lookup_type("qy_check_sheet_t").fields() if f.name == "record")
        record = in_type(int(sheet.address) + first + index * gdb.lookup_type("qy_check_record_t").sizeof, "qy_check_record_t")
        word = int(record["word"])
        state, size = word >> 48 & 15, word & SIZE
        if state == NONE:
            return False
        print(f"  {STATES.get(state, '?')} block at {start:#x}, {counted(size, 'byte')}, {where_in(address, start, size)}, {counted(room, 'byte')} with what lies behind"
              + {FREED: "; it waits in quarantine", GONE: "; its memory went back to the heap"}.get(state, ""))
        freed = state in (FREED, GONE)
        self.print_made(self.family(word >> 52 & 15), int(record["ordinal"]), self.thread(int(record["alloc_thread"])),
                        self.thread(int(record["free_thread"])) if freed else 0)
        print_traces(self.tree(), int(record["alloc_stack"]), int(record["free_stack"]) if freed else 0)
        return True

    def print_made(self, family, ordinal, born, died):
        words = [f"made by {family}" if family else "made", f"number {ordinal} of its place" if ordinal else "", f"by thread {born}" if born else ""]
        print("  " + ", ".join(filter(None, words)) + (f", freed by thread {died}" if died else ""))

    # -- guarded blocks, of the checker and of a sampling drop-in

    def is_guarded(self, address):
        base = int(self.value("qy_guard_base")) if self.symbol("qy_guard_base") else 0
        return base and base <= address < base + int(self.value("qy_guard_bytes"))

    def guarded_block(self, address):
        guard = self.value("guard")
        page = (address - int(self.value("qy_guard_base"))) // int(guard["page"])
        owners = guard["slots"]["owner"]
        # The page without access before a block is another's, or nobody's.
        numbers = [int(owners[at]) for at in (page, page + 1, page - 1) if 0 <= at < int(guard["pages"])]
        slots = [guard["slots"]["slot"][number] for number in numbers if number]
        near = [(distance(address, int(slot["address"]), int(slot["size"])), place) for place, slot in enumerate(slots)]
        if not near:
            print("  in the space of guarded blocks, near to none")
            return
        slot = slots[min(near)[1]]
        start, size = int(slot["address"]), int(slot["size"])
        is_live = int(slot["state"]) == SLOT_LIVE
        print(f"  {'live' if is_live else 'freed'} block at {start:#x}, {counted(size, 'byte')}, {where_in(address, start, size)}, guarded: beside a page without access")
        if self.is_checked:
            tag = int(slot["tag"])
            self.print_made(self.family(tag & 255), tag >> 16, int(slot["born"]["thread"]), 0 if is_live else int(slot["died"]["thread"]))
        print_traces(self.tree(), int(slot["born"]["stack"]), 0 if is_live else int(slot["died"]["stack"]))

    # -- all together

    def explain(self, address):
        """Prints what the address is. False: it is none of this heap's."""
        guarded = self.is_guarded(address)
        what = None if guarded else self.block(address)
        if not guarded and what is None:
            return False
        print(f"{address:#x}: heap of {self.name}{', checked' if self.is_checked else ''}")
        if guarded:
            self.guarded_block(address)
        elif not self.is_checked or not self.checked_block(address):
            print("  " + what)
        return True


def distance(address, start, size):
    return start - address if address < start else max(0, address - start - size + 1)


def where_in(address, start, size):
    if address < start:
        return f"{counted(start - address, 'byte')} before its start"
    return f"offset {address - start}" if address - start < size else f"{counted(address - start - size, 'byte')} behind its end"


def heaps():
    for objfile in gdb.objfiles():
        if objfile.is_valid() and (objfile.lookup_global_symbol("qy_map_tags") or objfile.lookup_static_symbol("qy_map_tags")):
            yield Heap(objfile)


def checked_tree():
    """The stacks of the checker, which has those of pools, too; None: nothing is checked."""
    return next((heap.tree() for heap in heaps() if heap.is_checked), None)
