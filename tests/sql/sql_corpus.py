"""Queries over t, u and v: one for each thing that a view may say."""

from __future__ import annotations

QUERIES = {
    "columns": "SELECT a, b + 1 AS x, upper(c) AS y FROM t",
    "star": "SELECT * FROM t",
    "qualified star": "SELECT u.*, t.b FROM t JOIN u ON t.a = u.a WHERE t.b > 0",
    "star except": "SELECT * EXCEPT (a, C) FROM t",
    "parentheses": "SELECT (a), (b) AS y, ((c)), sum((b)) OVER (PARTITION BY (a)) AS s FROM t "
    "WHERE (a > 0)",
    "distinct in parentheses": "SELECT DISTINCT(a), (c) AS k FROM t ORDER BY (k), ((a)) LIMIT 3",
    "group by in parentheses": "SELECT (a), upper(c) AS k, ((b + 1)) * 2 AS x, sum((b)) FROM t GROUP BY "
    "(a), ((k)), (b + 1) HAVING (count(*)) > 0",
    "order by in parentheses": "SELECT a, c FROM t ORDER BY (2), (a) LIMIT 2",
    "where": "SELECT a FROM t WHERE a > 0 AND (b < 3 OR c = 'x') AND c IS NOT NULL",
    "case of names": "SELECT T.A AS One, `b` AS Two FROM T WHERE T.`B` >= 1",
    "lateral alias": "SELECT a + b AS s, s * 2 AS twice, twice - s AS back FROM t",
    "strings": "SELECT concat(c, '`a` -- it\\'s', \"b.c\") AS x FROM t WHERE c <> 'it\\'s'",
    "signs": "SELECT a - - b AS x, -(-a) AS y, - -1 AS z FROM t",
    "case": "SELECT CASE WHEN a > 1 THEN 'big' WHEN a IS NULL THEN 'none' ELSE c END AS x FROM t",
    "cast": "SELECT CAST(a AS STRING) AS x, b::double AS y, a / 2 AS h, a div 2 AS q, a % 2 AS m FROM t",
    "join": "SELECT t.a, u.a AS ua, d FROM t JOIN u ON t.a = u.a",
    "join using": "SELECT * FROM t JOIN u USING (a)",
    "natural join": "SELECT * FROM u NATURAL JOIN v",
    "using, then bare name": "SELECT a, e FROM t JOIN u USING (a) WHERE a > 0",
    "comma join": "SELECT t.a, e, f FROM t, u, v WHERE t.a = u.a AND u.d = v.d AND b > 0",
    "comma join of far tables": "SELECT t.b, e, f FROM t, v, u WHERE t.a = u.a AND u.d = v.d",
    "comma join, one link": "SELECT t.b, e, f FROM t, v, u WHERE t.a = u.a",
    "cross join": "SELECT t.a, v.d FROM t CROSS JOIN v WHERE t.b = 1 AND v.f = 2",
    "theta join": "SELECT t.a, u.d FROM t JOIN u ON t.a < u.d AND t.b = 2",
    "join on expressions": "SELECT t.a, u.d FROM t JOIN u ON t.a + 1 = u.a * 2 AND t.b < u.d",
    "join on two": "SELECT e FROM t JOIN u ON t.a = u.a AND t.b = u.d",
    "self join": "SELECT x.a, y.b FROM t x JOIN t AS y ON x.a = y.b",
    "many joins": "SELECT t.c, v.f FROM t JOIN u ON t.a = u.a JOIN v ON u.d = v.d AND v.f > t.b",
    "join in parentheses": "SELECT t.c, v.f FROM t JOIN (u JOIN v ON u.d = v.d) ON t.a = u.a",
    "subquery": "SELECT s FROM (SELECT a + b AS s, c FROM t WHERE b > 0) q WHERE s > 1 AND c = 'x'",
    "subquery without alias": "SELECT s FROM (SELECT a + b AS s FROM t)",
    "cte": "WITH q AS (SELECT a, b FROM t WHERE a > 0), r (x) AS (SELECT a FROM q) SELECT x FROM r",
    "cte hides a table": "WITH u AS (SELECT a, 1 AS one FROM t) SELECT one, a FROM u",
    "union all": "SELECT a, c FROM t UNION ALL SELECT d, e FROM u UNION ALL SELECT f, 'v' FROM v",
    "union": "SELECT a FROM t UNION SELECT d AS other FROM u",
    "union then filter": "SELECT x FROM (SELECT a AS x FROM t UNION ALL SELECT d FROM u) q WHERE x > 1",
    "distinct": "SELECT DISTINCT a, c FROM t WHERE b > 0",
    "group by": "SELECT a, count(*) AS n, count(b) AS m, sum(b) AS s, min(b) AS lo, "
    "max(c) AS hi FROM t GROUP BY a",
    "avg": "SELECT a, avg(b) AS mean FROM t GROUP BY a",
    "group by expression": "SELECT a % 2 AS odd, sum(b * 2) AS s, a % 2 + 1 AS more FROM t GROUP BY "
    "a % 2",
    "group by ordinal": "SELECT upper(c) AS k, count(*) AS n FROM t GROUP BY 1",
    "group by alias": "SELECT upper(c) AS k, count(*) AS n FROM t GROUP BY k",
    "group by all": "SELECT c, a + 1 AS x, sum(b) AS s FROM t GROUP BY ALL",
    "having": "SELECT a, sum(b) AS s FROM t GROUP BY a HAVING count(*) > 2 AND a > 0 AND s > 1",
    "having without group": "SELECT sum(a) AS s FROM t HAVING count(*) > 3",
    "over aggregates": "SELECT c, sum(a) / count(*) + max(b) AS x, - sum(a) AS y FROM t GROUP BY c",
    "global": "SELECT count(*) AS n, sum(a) AS s FROM t WHERE a > 100",
    "count of one": "SELECT count(1) AS n FROM t CROSS JOIN v",
    "count of two": "SELECT count(a, b) AS n FROM t",
    "count_if": "SELECT c, count_if(a > 1) AS n FROM t GROUP BY c",
    "filter": "SELECT c, count(*) FILTER (WHERE a > 1) AS n, sum(b) FILTER (WHERE a > "
    "1) AS s FROM t GROUP BY c",
    "count distinct": "SELECT c, count(DISTINCT a) AS n FROM t GROUP BY c",
    "two distinct": "SELECT c, count(DISTINCT a) AS n, sum(DISTINCT a) AS s FROM t GROUP BY c",
    "distinct and plain": "SELECT c, count(DISTINCT a) AS n, count(*) AS m, sum(b) AS s, max(b) AS "
    "x FROM t GROUP BY c",
    "distinct global": "SELECT count(DISTINCT a) AS n, count(*) AS m, count(b) AS k FROM t "
    "WHERE a > 100",
    "distinct filtered": "SELECT c, count(DISTINCT a) AS n, sum(DISTINCT a) FILTER (WHERE b < 1) AS s, "
    "count(DISTINCT a) FILTER (WHERE b > 1) AS f FROM t GROUP BY c",
    "distinct filtered and plain": "SELECT c, count(*) AS m, count(DISTINCT a) AS n, "
    "count(DISTINCT a) FILTER (WHERE b > 1 AND b < 9) AS f FROM t GROUP BY c",
    "distinct filtered alike": "SELECT count(DISTINCT a) FILTER (WHERE b > 1) AS n, count(*) AS m, "
    "sum(DISTINCT a) FILTER (WHERE b > 1) AS s FROM t",
    "distinct filtered of expressions": "SELECT count(DISTINCT a + b) FILTER (WHERE b <> 0) AS n, "
    "count(DISTINCT a + b) FILTER (WHERE b > 1) AS k FROM t",
    "distinct filtered beside sums": "SELECT c, sum(a) AS s, count(DISTINCT a) AS n, min(b) AS x, "
    "count(DISTINCT a) FILTER (WHERE b > 1) AS f FROM t GROUP BY c",
    "distinct filtered by a condition": "SELECT CASE WHEN b > 1 THEN 1 END AS k, "
    "count(DISTINCT a) AS n, count(DISTINCT a) FILTER (WHERE b > 1) AS f FROM t "
    "GROUP BY CASE WHEN b > 1 THEN 1 END",
    "distinct filtered and counted": "SELECT c, count(DISTINCT a) FILTER (WHERE b > 1) AS n, count(*) "
    "FILTER (WHERE b > 1) AS m, count_if(b > 1) AS i FROM t GROUP BY c",
    "distinct filtered of two": "SELECT c, count(DISTINCT a) AS n, count(DISTINCT a, b) AS k, "
    "count(DISTINCT a) FILTER (WHERE b > 1) AS f FROM t GROUP BY c",
    "distinct filtered by a key": "SELECT a, count(DISTINCT a) FILTER (WHERE a > 1) AS n, "
    "count(DISTINCT b) AS k, count(DISTINCT a) AS m FROM t GROUP BY a",
    "sums beside distinct, alone": "SELECT c, s FROM (SELECT c, count(DISTINCT a) AS n, "
    "sum(b) AS s FROM t GROUP BY c) WHERE s > 0",
    "distinct beside sums, alone": "SELECT n, c AS k FROM (SELECT c, sum(b) AS s, "
    "count(DISTINCT a) AS n, count(DISTINCT b) AS m FROM t GROUP BY c)",
    "keys beside distinct, alone": "SELECT c FROM (SELECT c, sum(b) AS s, "
    "count(DISTINCT a) AS n FROM t GROUP BY c)",
    "sums beside distinct of some": "SELECT c, s FROM (SELECT c, a, count(DISTINCT b) AS n, "
    "sum(b) AS s FROM t GROUP BY c, a) WHERE c <> 'x' AND a > 0",
    "of all beside distinct, alone": "SELECT n FROM (SELECT sum(b) AS s, count(DISTINCT a) AS n FROM t)",
    "distinct of a key": "SELECT a, count(DISTINCT a) AS n FROM t GROUP BY a",
    "min distinct": "SELECT c, min(DISTINCT a) AS n, sum(b) AS s FROM t GROUP BY c",
    "underscores inside": "WITH q AS (SELECT a AS _step, b AS step, count(*) AS _weight FROM t GROUP BY "
    "a, b) SELECT _step AS x, q.step, _weight + _step AS s FROM q WHERE _weight > 0 AND step < 4",
    "aggregate of aggregate": "SELECT n, count(*) AS k FROM (SELECT a, count(*) AS n FROM t GROUP BY "
    "a) GROUP BY n",
    "tumbling": "SELECT window(ts, '10 seconds').start AS w, count(*) AS n FROM t GROUP "
    "BY window(ts, '10 seconds')",
    "hopping": "SELECT a, window.start AS s, window.end AS e, max(b) AS m FROM t GROUP "
    "BY a, window(ts, '10 seconds', '4 seconds')",
    "window in the list": "SELECT a, window(ts, '20 seconds', '10 seconds').end AS e FROM t",
    "window of an expression": "SELECT window(ts + INTERVAL 3 SECONDS, '5 seconds').start AS s FROM t "
    "WHERE a > 0",
    "window, filtered": "SELECT s, a FROM (SELECT a, b, window(ts, '10 seconds').start AS s FROM "
    "t) WHERE b > 1",
    "sessions": "SELECT session_window.start AS s, session_window.end AS e, count(*) AS n FROM t "
    "WHERE b > 0 GROUP BY session_window(ts, '4 seconds')",
    "sessions of keys": "SELECT x.a, upper(c) AS k, session_window(x.ts, '3 seconds').end AS e, sum(b) "
    "AS s FROM t AS x GROUP BY 1, session_window(x.ts, '3 seconds'), k HAVING sum(b) > 1",
    "session as a struct": "SELECT a, session_window, max(b) AS m FROM (SELECT a, b, ts FROM t) q "
    "GROUP BY a, session_window(ts, '2 seconds')",
    "window with an offset": "SELECT window.start AS s, count(*) AS n FROM t "
    "GROUP BY window(ts, '10 seconds', '5 seconds', '3 seconds')",
    "filter on a key": "SELECT * FROM (SELECT a, count(*) AS n FROM t GROUP BY a) WHERE a > 1 AND n > 1",
    "constant columns": "SELECT 'k' AS k, 1 AS one, a FROM t WHERE 1 = 1 AND true",
    "in and between": "SELECT a FROM t WHERE a IN (1, 2) AND b NOT BETWEEN 3 AND 9 AND c LIKE '%x%'",
    "join of aggregates": "SELECT x.a, x.n, y.m FROM (SELECT a, count(*) AS n FROM t GROUP BY a) x "
    "JOIN (SELECT a, max(d) AS m FROM u GROUP BY a) y ON x.a = y.a AND x.n > y.m",
    "quotes": "SELECT a, 'it''s' AS x, concat('a''''b', c, \"d\"\"e\") AS y FROM t",
    "recursion": "WITH RECURSIVE r (x, n) AS (SELECT a, 0 FROM t UNION ALL "
    "SELECT u.d, n + 1 FROM r JOIN u ON r.x = u.a WHERE n < 2) SELECT x, n FROM r WHERE x > 0",
    "recursion without its level": "WITH RECURSIVE r AS (SELECT a, c, 0 AS n FROM t WHERE b = 1 "
    "UNION ALL SELECT a + n, c, n + 1 FROM r WHERE n < 3) SELECT a, count(*) AS k FROM r GROUP BY a",
    "recursion with a limit": "WITH RECURSIVE q AS (SELECT d FROM v), r MAX RECURSION LEVEL 120 AS "
    "(SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 115) SELECT n, d FROM r JOIN q ON n = d",
    "same name twice": "SELECT q.a, q.n FROM (SELECT a, count(*) AS n FROM t GROUP BY a) q "
    "JOIN (SELECT max(n) AS top FROM (SELECT a, count(*) AS n FROM t GROUP BY a)) m ON q.n = m.top",
}

ONLY_SPARK = {
    "having alone": "SELECT 1 AS one, 'x' AS x FROM t HAVING count(*) > 0 OR true",
    "window over a global aggregate": "SELECT sum(count(a)) OVER () AS s FROM t WHERE b > 1",
    "a condition beside grouping sets": "SELECT c, count(DISTINCT a) AS n, count(DISTINCT a) "
    "FILTER (WHERE b > 1) AS f FROM t GROUP BY c, CASE WHEN b > 1 THEN 1 END GROUPING SETS ((c))",
    "what is counted beside grouping sets": "SELECT a, c, count(a) AS n, sum(a) AS s, "
    "count(DISTINCT a) AS k FROM t GROUP BY a, c GROUPING SETS ((c))",
    "keys beside grouping sets": "SELECT a, c, sum(b) AS s FROM t GROUP BY a, c GROUPING SETS (a)",
    "rollup in grouping sets": "SELECT a, c, count(*) AS n FROM t GROUP BY "
    "GROUPING SETS (ROLLUP(a, c), c)",
    "any and some": "SELECT c, any(a > 1) AS x, some(b > 1) FILTER (WHERE a > 0) AS y, "
    "every(a > 0) AS z FROM t GROUP BY c",
    "any over": "SELECT a, any(b > 1) OVER (PARTITION BY c) AS x FROM t",
    "like any": "SELECT a FROM t WHERE c LIKE ANY ('x%', 'y%') AND c NOT LIKE ALL ('z%')",
    "shifts": "SELECT a << 1 AS x, a >> 1 AS y, a >>> 1 AS z FROM t",
    "units": "SELECT timestampadd(HOUR, a, ts) AS x, datediff(DAY, ts, timestamp'2026-01-01') AS y, "
    "dateadd(MONTH, 1, ts) AS z, datediff(ts, ts) AS w FROM t",
    "struct of columns": "SELECT struct(x.a, y.d, x.a + y.d, x.b AS c) AS s, to_json(struct(y.*)) AS j "
    "FROM t x JOIN u y ON x.a = y.a",
    "struct of expressions": "SELECT struct(k, c) AS s FROM (SELECT a + 1 AS k, c FROM t)",
    "star as arguments": "SELECT coalesce(u.*) AS x, array(u.*, 3) AS n FROM "
    "(SELECT a, d FROM u) u",
    "count of a star": "SELECT count(u.*, u.a) AS x, count(DISTINCT *) AS y, count(*) AS z FROM u",
    "relations of one name": "SELECT count(*) AS n FROM u JOIN u",
    "alias of joined relations": "SELECT x, z FROM (t JOIN v ON t.a = v.d) AS q (x, y, w, ts, z, f)",
    "joins in many parentheses": "SELECT t.a, u.e, v.f FROM ((t CROSS JOIN v) JOIN u ON t.a = u.a)",
    "path into a variant": "SELECT CAST(parse_json(to_json(struct(a, c))):a AS INT) AS x, "
    "parse_json(to_json(struct(c AS `b c`))):`b c`::string AS y FROM t",
    "table": "TABLE u",
    "union of tables": "SELECT a FROM (TABLE u) UNION ALL SELECT d FROM (TABLE v)",
    "pipe": "FROM t |> WHERE b > 1 |> AGGREGATE sum(b) AS s, count(*) AS n GROUP BY a |> WHERE n > 0 "
    "|> EXTEND s + n AS m |> SET s = s * 2 |> DROP n |> ORDER BY a |> LIMIT 3",
    "pipe, filter behind limit": "TABLE t |> ORDER BY a, b, c, ts |> LIMIT 4 |> WHERE b > 1 |> SELECT a",
    "pipe of values": "VALUES (1, 'x'), (2, 'y') AS q (k, l) |> JOIN t ON k = a |> SELECT l, b",
    "pipe, union": "TABLE u |> UNION ALL TABLE u |> SELECT d, count(*) OVER w AS n WINDOW w AS "
    "(PARTITION BY d)",
    "alias in a key": "SELECT b % 2 AS k, a, max(a) AS m FROM t GROUP BY k + 1, a, b % 2",
    "alias of a literal in a key": "SELECT max(a) AS m, 3 AS abc FROM t GROUP BY b % abc",
    "alias in a rollup": "SELECT b AS k, count(*) AS n FROM t GROUP BY ROLLUP(k, k * 2)",
    "alias that is a column too, in a key": "SELECT a + 1 AS b, count(*) AS n FROM t GROUP BY b * 2, a",
    "having by an alias that hides a column": "SELECT a AS b, count(*) AS n FROM t GROUP BY a "
    "HAVING b > 1",
    "having by a key that an alias hides": "SELECT a AS b, b AS x FROM t GROUP BY a, b HAVING b > 1",
    "having by a literal that hides a column": "SELECT 2 AS b, c FROM t GROUP BY c HAVING b > 1",
    "having by an aggregate that hides a column": "SELECT c, sum(a) AS b FROM t GROUP BY c HAVING b > 2",
    "having over an alias inside an aggregate": "SELECT c, min(a) AS b FROM t GROUP BY c "
    "HAVING max(b) > 1 AND b IS NOT NULL",
    "lateral range": "SELECT t.a, q.id FROM t, LATERAL range(3) q WHERE q.id <= t.a",
    "left lateral without a condition": "SELECT t.a, x FROM t LEFT JOIN LATERAL "
    "explode(IF(b > 2, array(a, b), array())) q(x)",
    "left lateral of nulls": "SELECT t.a, x FROM t LEFT JOIN LATERAL "
    "explode_outer(IF(b > 2, array(a, b), array())) q(x)",
    "left lateral with a condition": "SELECT t.a, x FROM t LEFT JOIN LATERAL "
    "explode(IF(b > 2, array(a, b), array())) q(x) ON true",
    "interval of signed parts": "SELECT ts + INTERVAL 1 DAY -2 HOURS +3 MINUTES AS x, "
    "-INTERVAL -1 day 1 hour -1 minute AS y FROM t",
    "variants that are lists": "SELECT t.a, pos, key, CAST(value AS STRING) AS v FROM t, "
    "LATERAL variant_explode(parse_json(concat('[', a, ', {\"b\": 1}]'))) WHERE a IS NOT NULL",
    "variants that are objects": "SELECT t.a, q.k, q.n, CAST(q.v AS STRING) AS v FROM t LEFT "
    "JOIN LATERAL variant_explode(input => parse_json(concat('{\"y\": ', a, ', \"b\": [1]}'))) "
    "AS q(n, k, v) ON true",
    "variants that are neither": "SELECT t.a, pos, CAST(value AS STRING) AS v FROM t LEFT JOIN "
    "LATERAL variant_explode_outer(parse_json(CAST(a AS STRING)))",
    "alias beside a lambda's name": "SELECT b AS x, count(*) AS n FROM t "
    "GROUP BY b, transform(array(a), x -> x + 1)",
}
"""What DuckDB, or the translation for it, says in another way or not at all."""
