# SPDX-License-Identifier: MIT
# A threaded load for an interpreter: some threads write JSON, others read what those wrote and drop it, so that most objects end in
# another thread than the one that made them. How many documents: the argument.
import json
import queue
import sys
import threading

DOCUMENTS = int(sys.argv[1])
pairs = 2
totals = [0] * pairs


def write(to, seed):
    for n in range(DOCUMENTS):
        rows = [{"id": i, "name": f"row {i * seed % 997}", "values": [i * k % 61 for k in range(n % 7 + 1)]} for i in range(200)]
        to.put((json.dumps(rows), rows))
    to.put(None)


def read(source, number):
    while (item := source.get()) is not None:
        text, rows = item
        totals[number] += sum(len(r["values"]) for r in json.loads(text)) + len(rows)


threads = []
for pair in range(pairs):
    channel = queue.Queue(maxsize=32)
    threads += [threading.Thread(target=write, args=(channel, pair + 7)), threading.Thread(target=read, args=(channel, pair))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sum(totals))
