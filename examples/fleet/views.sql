-- Tables and views of the documents that fleet-audit.yml keeps, for DuckDB 1.3 and later:
--   nginx-tune schema facts > fleet/facts.schema.json
--   duckdb -init views.sql      (in the directory that holds fleet/)

-- One row a document of the last two days of each host, fleet/DAY/HOST/NAME.json; the last day has
-- age 1. A file that is no JSON has no body.
SET VARIABLE kept = (
    SELECT list(file) FROM (
        SELECT file, dense_rank() OVER (
            PARTITION BY string_split(file, '/')[-2] ORDER BY string_split(file, '/')[-3] DESC) AS age
        FROM glob('fleet/*/*/*.json'))
    WHERE age <= 2);

CREATE OR REPLACE TABLE documents AS
SELECT part[-3] AS day, part[-2] AS host, part[-1][:-6] AS name,
       dense_rank() OVER (PARTITION BY part[-2] ORDER BY part[-3] DESC) AS age,
       filename AS file, TRY_CAST(content AS JSON) AS body
FROM (SELECT *, string_split(filename, '/') AS part FROM read_text(getvariable('kept')));

CREATE OR REPLACE VIEW unread AS SELECT day, host, file FROM documents WHERE body IS NULL;

-- Fields of the facts that change on a host that nobody changed.
CREATE OR REPLACE TABLE volatile AS
WITH RECURSIVE
root AS (SELECT CAST(content AS JSON) AS node FROM read_text('fleet/facts.schema.json')),
walk(path, node) AS (
    SELECT '', node FROM root
    UNION ALL
    SELECT walk.path || step.suffix, step.node
    FROM walk, root, LATERAL (
        SELECT '' AS suffix, value AS node FROM json_each(walk.node, '$.anyOf')
        UNION ALL
        SELECT '', (root.node -> '$."$defs"') -> string_split((walk.node ->> '$."$ref"'), '/')[-1]
        UNION ALL SELECT '[]', walk.node -> 'items'
        UNION ALL SELECT '.' || key, value FROM json_each(walk.node, '$.properties')) AS step
    WHERE step.node IS NOT NULL AND (walk.node -> 'x-volatile') IS NULL)
SELECT DISTINCT path[2:] AS path FROM walk WHERE (node -> 'x-volatile') IS NOT NULL;

-- Every other value of the facts, and the SHA-256 of each file of the configuration. A member of a
-- list goes by its name, path or address, so that one disk more is no other disk. A section of the
-- facts that many hosts have alike is read once.
CREATE OR REPLACE TABLE leaves AS
WITH sections AS MATERIALIZED (
    SELECT row_number() OVER () AS section, part.key, part.value, list({host: host, age: age}) AS owners
    FROM (SELECT host, age, unnest(map_entries(CAST(body AS MAP(VARCHAR, JSON)))) AS part
          FROM documents WHERE name = 'facts') GROUP BY ALL),
nodes AS MATERIALIZED (
    SELECT section, sections.key || replace(node.fullkey[2:], '"', '') AS path, node.atom ->> '$' AS value
    FROM sections, json_tree(sections.value) AS node WHERE (node.atom ->> '$') IS NOT NULL),
kinds AS MATERIALIZED (
    SELECT path, regexp_replace(path, '\[\d+\]', '[]', 'g') AS kind,
           regexp_extract(path, '^(.*?\[\d+\])\.', 1) AS member, path[len(member) + 2:] AS field
    FROM (SELECT DISTINCT path FROM nodes)
    WHERE NOT EXISTS (
        FROM volatile WHERE kind = volatile.path
            OR starts_with(kind, volatile.path || '.') OR starts_with(kind, volatile.path || '['))),
members AS (
    SELECT section, member, coalesce(
        max(value) FILTER (field = 'name'), max(value) FILTER (field = 'path'),
        max(value) FILTER (field = 'address') || ':' || max(value) FILTER (field = 'port')) AS label
    FROM nodes JOIN kinds USING (path)
    WHERE member <> '' AND field IN ('name', 'path', 'address', 'port') GROUP BY ALL),
named AS (
    SELECT section, value,
           CASE WHEN label IS NULL THEN path
                ELSE regexp_extract(member, '^(.*)\[', 1) || '[' || label || '].' || field END AS leaf
    FROM nodes JOIN kinds USING (path) LEFT JOIN members USING (section, member))
SELECT owner.host, owner.age, 'facts' AS name, named.value, leaf
FROM named JOIN (SELECT section, unnest(owners) AS owner FROM sections) USING (section)
UNION ALL
SELECT host, age, name, file.sha256, file.path
FROM documents, LATERAL (
    SELECT value ->> 'path' AS path, value ->> 'sha256_before' AS sha256 FROM json_each(body, '$.files')
    UNION ALL SELECT key, value ->> '$' FROM json_each(body, '$.reads')) AS file
WHERE name = 'plan';

-- Hosts of one hardware make a group: CPUs, memory in GiB, disks by class. A host is missed that has
-- no documents of the fleet's last day.
CREATE OR REPLACE TABLE hosts AS
SELECT host, day, day < (SELECT max(day) FROM documents) AS missed,
       concat((body ->> '$.cpu.effective'), ' CPUs, ',
              CAST(round(CAST((body ->> '$.memory.total_bytes') AS BIGINT) / 1073741824) AS INTEGER), ' GiB, ',
              (SELECT string_agg(count || ' ' || class, ', ' ORDER BY class)
               FROM (SELECT value ->> 'class' AS class, count(*) AS count
                     FROM json_each(body, '$.storage.disks') GROUP BY class))) AS "group",
       concat_ws(' ', (body ->> '$.nginx.product'), (body ->> '$.nginx.version')) AS nginx
FROM documents WHERE age = 1 AND name = 'facts' AND body IS NOT NULL;

CREATE OR REPLACE VIEW groups AS
SELECT "group", count(*) AS hosts, count(*) FILTER (missed) AS missed,
       count(DISTINCT nginx) AS nginx_versions, min(host) AS example
FROM hosts GROUP BY "group" ORDER BY hosts DESC;

-- What at most one host in twenty of a group has, or lacks (no value), where nine in ten agree.
CREATE OR REPLACE VIEW outliers AS
WITH
now AS (SELECT "group", host, name, leaf, value FROM leaves JOIN hosts USING (host) WHERE age = 1),
seen AS (SELECT DISTINCT "group", name, host FROM now),
sizes AS (SELECT "group", name, count(*) AS size FROM seen GROUP BY ALL),
counted AS (SELECT "group", name, leaf, value, count(*) AS alike FROM now GROUP BY ALL),
usual AS (
    SELECT "group", name, leaf, size, arg_max(value, alike) AS usual, CAST(sum(alike) AS BIGINT) AS have
    FROM counted JOIN sizes USING ("group", name) GROUP BY ALL HAVING max(alike) >= 0.9 * size),
odd AS (
    SELECT "group", leaf, value, usual, alike, host
    FROM counted JOIN usual USING ("group", name, leaf) JOIN now USING ("group", name, leaf, value)
    WHERE alike <= size / 20
    UNION ALL
    SELECT "group", leaf, NULL, usual, size - have, host
    FROM (FROM usual WHERE have < size AND size - have <= size / 20) JOIN seen USING ("group", name)
    ANTI JOIN now USING (host, name, leaf))
SELECT "group", leaf, value, usual, alike AS hosts, host FROM odd ORDER BY hosts, leaf, host;

-- What changed on a host from its last day but one to its last; few hosts first.
CREATE OR REPLACE VIEW drift AS
WITH
twice AS (SELECT host, name FROM documents WHERE body IS NOT NULL GROUP BY ALL HAVING count(*) = 2),
before AS (SELECT host, name, leaf, value AS before FROM leaves JOIN twice USING (host, name) WHERE age = 2),
after AS (SELECT host, name, leaf, value AS after FROM leaves JOIN twice USING (host, name) WHERE age = 1)
SELECT leaf, before, after, count(*) AS hosts, list(host ORDER BY host) AS which
FROM before FULL JOIN after USING (host, name, leaf)
WHERE before IS DISTINCT FROM after
GROUP BY leaf, before, after ORDER BY hosts, leaf;

CREATE OR REPLACE VIEW findings AS
SELECT host, age, value ->> 'severity' AS severity, value ->> 'rule' AS rule, value ->> 'file' AS file,
       CAST((value ->> 'line') AS INTEGER) AS line, value ->> 'message' AS message
FROM documents, json_each(body, '$.findings') WHERE name = 'findings';

-- came and went: hosts that have it since their last day, and those that have it no more.
CREATE OR REPLACE VIEW findings_by_rule AS
WITH
each_host AS (
    SELECT severity, rule, host, count(*) FILTER (age = 1) AS now, count(*) FILTER (age = 2) AS before
    FROM findings GROUP BY ALL),
judged AS (
    SELECT host, count(*) AS days FROM documents WHERE name = 'findings' AND body IS NOT NULL GROUP BY host)
SELECT severity, rule, count(*) FILTER (now > 0) AS hosts, CAST(sum(now) AS BIGINT) AS findings,
       count(*) FILTER (now > 0 AND before = 0 AND days = 2) AS came,
       count(*) FILTER (now = 0 AND before > 0 AND days = 2) AS went,
       min(host) FILTER (now > 0) AS example
FROM each_host JOIN judged USING (host) GROUP BY severity, rule
ORDER BY list_position(['error', 'warning', 'advice', 'info'], severity), hosts DESC, rule;

-- Plans that come to the same: hosts that got it, hosts of the group whose files are those that it
-- changes (apply takes it there, and refuses it elsewhere), and one of its documents.
CREATE OR REPLACE VIEW plans AS
WITH
files AS (
    SELECT document.host, document.file AS plan, document.body, file.path, file.before, file.after
    FROM documents AS document, LATERAL (
        SELECT value ->> 'path' AS path, value ->> 'sha256_before' AS before, value ->> 'sha256_after' AS after
        FROM json_each(document.body, '$.files')
        UNION ALL SELECT key, value ->> '$', value ->> '$' FROM json_each(document.body, '$.reads')) AS file
    WHERE name = 'plan' AND age = 1),
each_host AS (
    SELECT host, plan, md5(string_agg(path || before, ',' ORDER BY path)) AS tree,
           md5(string_agg(path || after, ',' ORDER BY path)) AS result,
           list_sort(list_distinct(json_extract_string(any_value(body), '$.files[*].hunks[*].decision'))) AS changes
    FROM files GROUP BY host, plan)
SELECT "group", changes, count(*) AS hosts,
       CAST(sum(count(*)) OVER (PARTITION BY "group", tree) AS BIGINT) AS fits, min(plan) AS plan
FROM each_host JOIN hosts USING (host)
GROUP BY "group", tree, result, changes ORDER BY hosts DESC, plan;

-- The same in Prometheus' text format, a line a row:
--   duckdb -noheader -list -c '.read views.sql' -c 'FROM metrics' > nginx-tune-fleet.prom
CREATE OR REPLACE MACRO label(name, text) AS
    name || '="' || replace(replace(replace(text, '\', '\\'), '"', '\"'), chr(10), '\n') || '"';

CREATE OR REPLACE VIEW metrics AS
WITH samples(family, help, labels, value) AS (
    SELECT 'hosts', 'Hosts by hardware.', label('group', "group"), hosts FROM groups
    UNION ALL SELECT 'missed_hosts', 'Hosts without documents of the last day.', NULL, count(*) FROM hosts WHERE missed
    UNION ALL SELECT 'unread_documents', 'Documents that are no JSON.', NULL, count(*) FROM unread
    UNION ALL SELECT 'rule_hosts', 'Hosts with findings of a rule.',
        label('rule', rule) || ',' || label('severity', severity), hosts FROM findings_by_rule
    UNION ALL SELECT 'outlier_hosts', 'Hosts that differ from their group.', NULL, count(DISTINCT host) FROM outliers
    UNION ALL SELECT 'drifted_hosts', 'Hosts that changed since the day before.', NULL,
        count(DISTINCT host) FROM (SELECT unnest(which) AS host FROM drift)
    UNION ALL SELECT 'planned_hosts', 'Hosts with a plan that changes something.', NULL,
        coalesce(CAST(sum(hosts) AS BIGINT), 0) FROM plans WHERE len(changes) > 0)
SELECT line FROM (
    SELECT DISTINCT family, 0 AS part, '# HELP nginx_tune_fleet_' || family || ' ' || help AS line FROM samples
    UNION ALL SELECT DISTINCT family, 1, '# TYPE nginx_tune_fleet_' || family || ' gauge' FROM samples
    UNION ALL SELECT family, 2, concat('nginx_tune_fleet_', family, '{' || labels || '}', ' ', value) FROM samples)
ORDER BY family, part, line;
