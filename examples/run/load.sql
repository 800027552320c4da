-- A load for `make run`: about a second of an embedded database in memory. Rows of many sizes are made,
-- indexed, updated, sorted and dropped, so the allocator sees small and large blocks, short and long
-- lives, and growth by realloc. No randomness: the same lines come out on every run.
PRAGMA cache_size = -200000;
PRAGMA temp_store = MEMORY;

CREATE TABLE book (id INTEGER PRIMARY KEY, shelf INTEGER, title TEXT, body TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
INSERT INTO book
SELECT i, i * 7919 % 997, printf('title %06d', i * 104729 % 60000), substr(hex(zeroblob(400)), 1, 20 + i * 31 % 500)
FROM n;
CREATE INDEX book_title ON book(title);
CREATE INDEX book_shelf ON book(shelf, title);

-- Strings that grow: one long text for each shelf.
CREATE TABLE shelf AS
SELECT shelf AS id, count(*) AS books, group_concat(title, '; ') AS titles FROM book GROUP BY shelf;

-- Rows that change their size.
UPDATE book SET body = body || title || body WHERE id % 3 = 0;
DELETE FROM book WHERE id % 5 = 0;

-- Sorting and grouping with temporary results, JSON and text functions: many short-lived blocks.
CREATE TABLE summary AS
SELECT shelf, json_group_array(json_object('id', id, 'title', upper(title), 'bytes', length(body))) AS books
FROM (SELECT * FROM book ORDER BY body, title DESC) GROUP BY shelf;
SELECT 'books', count(*), sum(length(body)) FROM book;
SELECT 'shelves', count(*), sum(books), sum(length(titles)) FROM shelf;
SELECT 'json', count(*), sum(length(books)) FROM summary;
SELECT 'values', count(*), sum(json_extract(value, '$.bytes')) FROM summary, json_each(summary.books);
SELECT 'pairs', count(*) FROM book a JOIN book b ON b.title = replace(a.title, '1', '2') WHERE a.id <= 30000;
SELECT 'texts', count(*), sum(length(replace(upper(printf('%s, %s; shelf %d', title, substr(body, 1, 90), shelf)), 'TITLE', title || 'x')))
FROM book, (SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8);
SELECT 'words', count(DISTINCT word) FROM (SELECT substr(title, 7, 3) || '-' || lower(substr(body, 1, id % 40)) AS word FROM book);
