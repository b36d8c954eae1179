"""Queries over t, u and v as people write them, by what they show; Spark says what each means.

Where Spark may answer in several ways (the order of a list, ties), the query says which it wants.
"""

from __future__ import annotations

from forms import AROUND, FORMS, NESTED
from recursions import LEVELS, LEVELS_JUDGED_BY, RECURSION

TABLES = {
    "t": "a INT, b INT, c STRING, ts TIMESTAMP, x DOUBLE, arr ARRAY<INT>, m DECIMAL(8,2), ok BOOLEAN",
    "u": "a INT, d INT, e STRING",
    "v": "d INT, f INT",
}

JOINS = {
    "left": "SELECT t.a, t.b, u.d, u.e FROM t LEFT JOIN u ON t.a = u.a",
    "left with a condition": "SELECT t.a, t.b, u.d FROM t LEFT JOIN u ON t.a = u.a AND t.b < u.d",
    "left on one side": "SELECT t.a, u.d FROM t LEFT JOIN u ON t.a = u.a AND t.b > 1 AND u.d > 0",
    "left without equality": "SELECT t.a, u.d FROM t LEFT JOIN u ON t.a < u.a",
    "left, then where": "SELECT t.a, u.d FROM t LEFT JOIN u ON t.a = u.a WHERE u.d > 1",
    "left, where is null": "SELECT t.a, t.b FROM t LEFT JOIN u ON t.a = u.a WHERE u.a IS NULL",
    "right": "SELECT t.b, u.a, u.d FROM t RIGHT OUTER JOIN u ON t.a = u.a",
    "full": "SELECT t.a, t.b, u.a AS ua, u.d FROM t FULL OUTER JOIN u ON t.a = u.a",
    "full with a condition": "SELECT t.a, u.a AS ua FROM t FULL JOIN u ON t.a = u.a AND t.b <> u.d",
    "full using": "SELECT * FROM (SELECT a, b FROM t) p FULL JOIN (SELECT a, d FROM u) q USING (a)",
    "right using": "SELECT a, b, d FROM t RIGHT JOIN u USING (a)",
    "natural left": "SELECT * FROM u NATURAL LEFT JOIN v",
    "null safe": "SELECT t.a, u.d FROM t JOIN u ON t.a <=> u.a AND t.b <=> u.d",
    "semi": "SELECT a, b FROM t LEFT SEMI JOIN u ON t.a = u.a",
    "semi with a condition": "SELECT a, b FROM t LEFT SEMI JOIN u ON t.a = u.a AND t.b < u.d",
    "anti": "SELECT t.a, t.b FROM t LEFT ANTI JOIN u ON t.a = u.a",
    "three ways": "SELECT t.a, u.d, v.f FROM t LEFT JOIN u ON t.a = u.a LEFT JOIN v ON u.d = v.d",
    "self left": "SELECT p.a, q.b FROM t p LEFT JOIN t q ON p.a = q.b",
    "left of groups": "SELECT t.a, n FROM t LEFT JOIN (SELECT a, count(*) AS n FROM u GROUP BY a) q "
    "ON t.a = q.a",
    "full filtered": "SELECT t.a, u.a AS ua FROM t FULL JOIN u ON t.a = u.a WHERE u.d > 0",
    "on true": "SELECT t.a, v.f FROM t LEFT JOIN v ON true",
}

SUBQUERIES = {
    "exists": "SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a)",
    "not exists": "SELECT a, b FROM t WHERE NOT EXISTS (SELECT * FROM u WHERE u.a = t.a AND d > 1)",
    "exists with a condition": "SELECT a, b FROM t WHERE b > 0 AND EXISTS "
    "(SELECT 1 FROM u WHERE u.a = t.a AND u.d <> t.b)",
    "exists without correlation": "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM v WHERE f > 3)",
    "exists by less": "SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.d < t.b)",
    "exists of a group": "SELECT a FROM t WHERE EXISTS (SELECT d FROM u WHERE u.a = t.a GROUP BY d "
    "HAVING count(*) > 1)",
    "in": "SELECT a, b FROM t WHERE a IN (SELECT d FROM u)",
    "not in": "SELECT a, b FROM t WHERE a NOT IN (SELECT d FROM u WHERE d IS NOT NULL)",
    "not in with nulls": "SELECT a, b FROM t WHERE a NOT IN (SELECT f FROM v)",
    "not in of nothing": "SELECT a, b FROM t WHERE a NOT IN (SELECT f FROM v WHERE f > 100)",
    "in, correlated": "SELECT a, b FROM t WHERE b IN (SELECT d FROM u WHERE u.a = t.a)",
    "not in, correlated": "SELECT a, b FROM t WHERE b NOT IN (SELECT d FROM u WHERE u.a = t.a)",
    "in of two": "SELECT a, b FROM t WHERE (a, b) IN (SELECT a, d FROM u)",
    "in or": "SELECT a, b FROM t WHERE b > 2 OR a IN (SELECT d FROM u)",
    "in in the list": "SELECT a, b, a IN (SELECT d FROM u) AS there FROM t",
    "not in in the list": "SELECT a, b NOT IN (SELECT f FROM v) AS gone FROM t",
    "exists in the list": "SELECT a, EXISTS (SELECT 1 FROM u WHERE u.a = t.a) AS there FROM t",
    "scalar": "SELECT a, b FROM t WHERE b > (SELECT avg(d) FROM u)",
    "scalar in the list": "SELECT a, (SELECT max(d) FROM u) AS top FROM t",
    "scalar, correlated": "SELECT a, b FROM t WHERE b > (SELECT min(d) FROM u WHERE u.a = t.a)",
    "count, correlated": "SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a) AS n FROM t",
    "count having, correlated": "SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a "
    "HAVING count(*) <= 1) AS n FROM t",
    "coalesce, correlated": "SELECT a, (SELECT coalesce(sum(d), -1) FROM u WHERE u.a = t.a) AS n FROM t",
    "scalar by less": "SELECT a, (SELECT sum(d) FROM u WHERE u.d < t.b) AS n FROM t",
    "scalar of one row": "SELECT a, (SELECT d FROM (SELECT a AS k, max(d) AS d FROM u GROUP BY a) q "
    "WHERE q.k = t.a) AS d FROM t",
    "in having": "SELECT c, count(*) AS n FROM t GROUP BY c HAVING count(*) > (SELECT avg(f) FROM v)",
    "in an aggregate": "SELECT c, sum(CASE WHEN a IN (SELECT d FROM u) THEN 1 ELSE 0 END) AS n FROM t "
    "GROUP BY c",
    "nested": "SELECT a, b FROM t WHERE a IN (SELECT a FROM u WHERE d IN "
    "(SELECT d FROM v WHERE v.f > 0))",
    "nested, correlated": "SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND "
    "EXISTS (SELECT 1 FROM v WHERE v.d = u.d AND v.f <> t.b))",
    "two of them": "SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a) AND NOT EXISTS "
    "(SELECT 1 FROM v WHERE v.d = t.b)",
    "lateral": "SELECT t.a, q.n, q.top FROM t, LATERAL (SELECT count(*) AS n, max(d) AS top FROM u "
    "WHERE u.a = t.a) q",
    "lateral rows": "SELECT t.a, q.d FROM t JOIN LATERAL (SELECT d FROM u WHERE u.a = t.a AND d > 0) q",
    "lateral left": "SELECT t.a, q.d FROM t LEFT JOIN LATERAL (SELECT d FROM u WHERE u.a = t.a) q "
    "ON true",
    "lateral with a condition": "SELECT t.a, q.d FROM t JOIN LATERAL (SELECT d, e FROM u "
    "WHERE u.a = t.a) q ON q.d > t.b",
    "lateral star": "SELECT q.* FROM t, LATERAL (SELECT t.a, t.b + 1 AS more) q",
    "count inside, correlated": "SELECT a, (SELECT sum(n) FROM (SELECT count(*) AS n FROM u "
    "WHERE u.a = t.a)) AS s FROM t",
    "union inside, correlated": "SELECT a, (SELECT sum(x) FROM (SELECT d AS x FROM u WHERE u.a = t.a "
    "UNION ALL SELECT f FROM v WHERE v.d = t.b)) AS s FROM t",
    "join inside, correlated": "SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM (SELECT d FROM u "
    "WHERE u.a = t.a) q JOIN (SELECT d AS k FROM v WHERE v.f > t.b) r ON q.d = r.k)",
    "in on": "SELECT t.a, u.d FROM t JOIN u ON t.a = u.a AND t.b IN (SELECT f FROM v)",
    "in on of a left join": "SELECT t.a, u.d FROM t LEFT JOIN u ON t.a = u.a AND t.b IN "
    "(SELECT f FROM v)",
    "lateral left with a condition": "SELECT t.a, q.d FROM t LEFT JOIN LATERAL "
    "(SELECT d FROM u WHERE u.a = t.a) q ON q.d > t.b",
    "lateral count, left with a condition": "SELECT t.a, q.n FROM t LEFT JOIN LATERAL "
    "(SELECT count(*) AS n FROM u WHERE u.a = t.a) q ON q.n > t.b",
    "count of groups, correlated": "SELECT a, (SELECT count(*) FROM (SELECT d FROM u WHERE u.a = t.a "
    "GROUP BY d HAVING count(*) > 1)) AS n FROM t",
    "count of a count having, correlated": "SELECT a, (SELECT count(*) FROM (SELECT count(*) AS n "
    "FROM u WHERE u.a = t.a HAVING count(*) <= 1)) AS n FROM t",
    "with, correlated": "SELECT a, (WITH q AS (SELECT d FROM u WHERE u.a = t.a), "
    "r AS (SELECT max(d) AS m FROM q) SELECT m FROM r) AS top FROM t",
    "lateral with, correlated": "SELECT t.a, q.n FROM t, LATERAL (WITH r (n) AS (SELECT d + t.b FROM u "
    "WHERE u.a = t.a) SELECT n FROM r AS s WHERE n > 0) q",
    "exists as a key": "SELECT EXISTS (SELECT 1 FROM u WHERE u.a = t.a) AS e, count(*) AS n FROM t "
    "GROUP BY EXISTS (SELECT 1 FROM u WHERE u.a = t.a)",
    "correlated union": "SELECT a FROM t WHERE EXISTS (SELECT d FROM u WHERE u.a = t.a UNION ALL "
    "SELECT f FROM v WHERE v.d = t.a)",
}

SETS = {
    "intersect": "SELECT a, b FROM t INTERSECT SELECT a, d FROM u",
    "intersect all": "SELECT a FROM t INTERSECT ALL SELECT d FROM u",
    "except": "SELECT a FROM t EXCEPT SELECT d FROM u",
    "except all": "SELECT a FROM t EXCEPT ALL SELECT d FROM u",
    "minus": "SELECT a FROM t MINUS SELECT f FROM v",
    "chain": "SELECT a FROM t EXCEPT SELECT d FROM u UNION ALL SELECT f FROM v",
    "values": "SELECT * FROM VALUES (1, 'one'), (2, 'two'), (NULL, NULL) AS w (n, name)",
    "values joined": "SELECT t.b, name FROM t JOIN (VALUES (1, 'one'), (2, 'two')) AS w (n, name) "
    "ON t.a = w.n",
    "without from": "SELECT 1 AS one, 'x' AS x",
    "union with a constant": "SELECT a FROM t UNION SELECT 99",
    "range": "SELECT id FROM range(3)",
    "range joined": "SELECT t.a, r.n FROM t JOIN range(0, 6, 2) AS r (n) ON t.b > r.n",
    "range down": "SELECT id * 2 AS x FROM range(5, 0, -2) UNION ALL SELECT id FROM range(2, 2)",
    "group of values": "SELECT n % 2 AS odd, count(*) AS k FROM VALUES (1), (2), (3) AS w (n) "
    "GROUP BY n % 2",
}

CONSTANTS = {
    "whole number beside a decimal": "SELECT a, n * m AS x, typeof(n * m) AS product, "
    "typeof(m + big) AS sum, typeof(less * m) AS less FROM (SELECT a, m, 2 AS n, 3L AS big, -1 AS less "
    "FROM t) q",
    "whole number by its alias": "SELECT a, 2 AS n, n * m AS x, typeof(n * m) AS kind FROM t",
    "whole number by its alias, in groups": "SELECT c, 2 AS n, sum(m) AS s FROM t GROUP BY c "
    "HAVING typeof(n * sum(m)) = 'decimal(29,2)' AND n * count(*) > 2",
    "branches of two types": "SELECT n, i FROM (SELECT a * 500000000 AS n, b AS i FROM t UNION ALL "
    "SELECT CAST(d AS BIGINT), a FROM u) q WHERE n * i > -100000",
    "whole number above a decimal": "SELECT a, m FROM (SELECT a, m, 2 AS n FROM t) q WHERE m < n",
}

GROUPS = {
    "rollup": "SELECT a, c, count(*) AS n, sum(b) AS s FROM t GROUP BY ROLLUP (a, c)",
    "cube": "SELECT a, c, min(b) AS lo FROM t GROUP BY CUBE (a, c)",
    "sets of nothing": "SELECT a, count(*) AS n FROM t WHERE a > 100 GROUP BY ROLLUP (a)",
    "sets without aggregates": "SELECT a, c FROM t GROUP BY CUBE (a, c)",
    "grouping sets": "SELECT a, c, count(*) AS n FROM t GROUP BY GROUPING SETS ((a), (a, c), ())",
    "mixed sets": "SELECT a, b, c, count(*) AS n FROM t GROUP BY a, ROLLUP (b, c)",
    "with rollup": "SELECT a, count(*) AS n FROM t GROUP BY a WITH ROLLUP",
    "grouping": "SELECT a, c, grouping(a) AS ga, grouping_id() AS g, grouping_id(a, c) AS h, "
    "count(*) AS n FROM t GROUP BY CUBE (a, c)",
    "two distinct": "SELECT c, count(DISTINCT a) AS n, count(DISTINCT b) AS k, avg(b) AS mean FROM t "
    "GROUP BY c",
    "distinct pair": "SELECT c, count(DISTINCT a, b) AS n FROM t GROUP BY c",
    "two distinct, no key": "SELECT count(DISTINCT a) AS n, sum(DISTINCT b) AS k, count(*) AS m FROM t",
    "distinct filtered": "SELECT c, count(DISTINCT a) AS n, count(DISTINCT a) FILTER (WHERE b > 1) "
    "AS f, sum(DISTINCT a) FILTER (WHERE b IS NULL) AS s, avg(b) AS mean FROM t GROUP BY c",
    "distinct beside sums": "SELECT c, count(DISTINCT a) AS n, sum(m) AS s, sum(b) AS t, max(b) AS x, "
    "typeof(sum(m)) AS kind, count(*) AS k FROM t GROUP BY c",
    "spread beside distinct": "SELECT c, count(DISTINCT a) AS n, stddev_pop(b) AS p FROM t GROUP BY c",
    "distinct filtered, no key": "SELECT count(DISTINCT a) FILTER (WHERE b > 1) AS n, count(*) AS m, "
    "count(DISTINCT a) FILTER (WHERE b < 1) AS k FROM t",
    "booleans": "SELECT c, bool_and(ok) AS every_one, bool_or(ok) AS any_one, every(a > 0) AS e, "
    "some(a > 0) AS s FROM t GROUP BY c",
    "bits": "SELECT c, bit_and(a) AS x, bit_or(a) AS y, bit_xor(b) AS z FROM t GROUP BY c",
    "by": "SELECT c, max_by(a, struct(b, a)) AS x, min_by(a, struct(b, a)) AS y FROM t GROUP BY c",
    "lists": "SELECT c, array_sort(collect_list(a)) AS x, array_sort(collect_set(b)) AS y FROM t "
    "GROUP BY c",
    "lists of nothing": "SELECT collect_list(a) AS x, approx_count_distinct(a) AS n, median(a) AS m "
    "FROM t WHERE a > 100",
    "percentiles": "SELECT c, median(x) AS m, percentile(a, 0.25) AS q, percentile_approx(b, 0.5) AS p, "
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY a) AS w FROM t WHERE NOT isnan(x) GROUP BY c",
    "mode": "SELECT c, mode(b, true) AS m FROM t GROUP BY c",
    "spread": "SELECT c, var_pop(b) AS v, stddev(b) AS s, covar_samp(a, b) AS k, regr_slope(a, b) AS r "
    "FROM t GROUP BY c",
    "spread of doubles": "SELECT c, var_samp(x) AS v, std(m) AS s, covar_pop(x, b) AS k, "
    "regr_r2(x, b) AS r2, regr_slope(x, b) AS slope, regr_intercept(x, b) AS i, "
    "regr_sxx(x, b) AS xx, regr_syy(x, b) AS yy, "
    "regr_sxy(x, b) AS xy, regr_avgx(x, b) AS mx, regr_avgy(x, b) AS my, regr_count(x, b) AS n, "
    "sum(x) AS total FROM t WHERE abs(x) < 100 GROUP BY c",
    "spread of all": "SELECT var_pop(b) AS v, variance(x) FILTER (WHERE x < 1) AS w, max(a) AS top "
    "FROM t",
    "spread of distinct": "SELECT c, stddev_samp(DISTINCT b) AS s, stddev_pop(a) AS p, median(a) AS m "
    "FROM t GROUP BY c",
    "spread of sets": "SELECT a, c, stddev(b) AS s FROM t GROUP BY ROLLUP (a, c)",
    "strings": "SELECT a, listagg(c, ',') WITHIN GROUP (ORDER BY c) AS l FROM t GROUP BY a",
    "distinct strings": "SELECT a, listagg(DISTINCT c, ',') WITHIN GROUP (ORDER BY c) AS l FROM t "
    "GROUP BY a",
    "collected and plain": "SELECT c, median(a) AS m, sum(b) AS s, min(b) AS lo, count(*) AS n FROM t "
    "GROUP BY c",
    "collected filter": "SELECT c, median(a) FILTER (WHERE b > 0) AS m, "
    "array_sort(collect_list(a) FILTER (WHERE b > 1)) AS l FROM t GROUP BY c",
    "approximate": "SELECT c, approx_count_distinct(a) AS n FROM t GROUP BY c",
    "having collected": "SELECT c FROM t GROUP BY c HAVING median(a) > 1",
    "exact doubles": "SELECT c, sum(x) AS s, avg(x) AS m FROM t WHERE abs(x) < 100 GROUP BY c",
    "pivot": "SELECT * FROM (SELECT a, b, c FROM t) PIVOT (sum(a) FOR c IN ('x', 'y' AS why))",
    "pivot of two": "SELECT * FROM (SELECT a, b, c, ok FROM t) PIVOT (count(*) AS n, max(a) AS m "
    "FOR (c, ok) IN (('x', true) AS xt, ('y', false) AS yf))",
    "unpivot": "SELECT * FROM (SELECT a, b, c FROM t) UNPIVOT (v FOR name IN (a, b AS bee))",
    "unpivot of two": "SELECT * FROM (SELECT a, b, c FROM t) UNPIVOT INCLUDE NULLS "
    "((v, w) FOR name IN ((a, b) AS ab, (b, a) AS ba))",
    "exploded": "SELECT a, y FROM t LATERAL VIEW explode(arr) q AS y",
    "exploded outer": "SELECT a, p, y FROM t LATERAL VIEW OUTER posexplode(arr) q AS p, y",
    "exploded in the list": "SELECT a, explode(arr) AS y FROM t WHERE a > 0",
    "explode, then group": "SELECT y, count(*) AS n FROM t LATERAL VIEW explode(arr) q AS y GROUP BY y",
    "inline": "SELECT a, k, w FROM t LATERAL VIEW inline(array(struct(1 AS i, b AS j), "
    "struct(2 AS i, a AS j))) q AS k, w",
    "firsts": "SELECT c, first(k) FILTER (WHERE k > 0) AS f, any_value(k) IGNORE NULLS AS n FROM "
    "(SELECT c, max(a) AS k FROM t GROUP BY c) GROUP BY c",
    "hive's sets": "SELECT a, c, count(*) AS n FROM t GROUP BY a, c GROUPING SETS ((a), (c))",
    "by with a filter": "SELECT c, max_by(a, struct(b, a)) FILTER (WHERE b < 3) AS x, "
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FILTER (WHERE b > 0) AS p FROM t GROUP BY c",
    "stack": "SELECT a, stack(2, 'b', b, 'a', a) AS (name, value) FROM t",
    "generator in from": "SELECT col FROM explode(array(1, 2, 3))",
    "explode of a map": "SELECT a, key, value FROM t LATERAL VIEW explode(map('k', b)) q AS key, value",
}

WINDOWS = {
    "row_number": "SELECT a, b, c, row_number() OVER (PARTITION BY c ORDER BY a, b) AS r FROM "
    "(SELECT DISTINCT a, b, c FROM t)",
    "ranks": "SELECT a, c, rank() OVER w AS r, dense_rank() OVER w AS d, percent_rank() OVER w AS p, "
    "cume_dist() OVER w AS k FROM t WINDOW w AS (PARTITION BY c ORDER BY a DESC)",
    "ntile": "SELECT a, b, ntile(2) OVER (ORDER BY a, b) AS n FROM (SELECT DISTINCT a, b FROM t)",
    "lag and lead": "SELECT a, b, lag(b) OVER (PARTITION BY c ORDER BY a, b) AS p, "
    "lead(b, 2, -1) OVER (PARTITION BY c ORDER BY a, b) AS q FROM (SELECT DISTINCT a, b, c FROM t)",
    "first and last": "SELECT c, a, first_value(a) OVER w AS f, last_value(a) OVER w AS l, "
    "nth_value(a, 2) OVER w AS n FROM t WINDOW w AS (PARTITION BY c ORDER BY a "
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    "ignore nulls": "SELECT a, b, last_value(b) IGNORE NULLS OVER (ORDER BY a, b) AS l "
    "FROM (SELECT DISTINCT a, b FROM t)",
    "running sum": "SELECT c, a, sum(b) OVER (PARTITION BY c ORDER BY a) AS s FROM t",
    "sliding": "SELECT a, b, avg(b) OVER (ORDER BY a, b ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS m "
    "FROM (SELECT DISTINCT a, b FROM t)",
    "range": "SELECT c, a, count(*) OVER (PARTITION BY c ORDER BY a RANGE BETWEEN 1 PRECEDING AND "
    "CURRENT ROW) AS n FROM t",
    "range of time": "SELECT c, ts, count(*) OVER (PARTITION BY c ORDER BY ts RANGE BETWEEN "
    "INTERVAL 5 SECONDS PRECEDING AND CURRENT ROW) AS n FROM t",
    "whole partition": "SELECT a, b, sum(b) OVER (PARTITION BY a) AS s, max(b) OVER () AS top FROM t",
    "by expression": "SELECT a, b, count(*) OVER (PARTITION BY a % 2, upper(c)) AS n FROM t",
    "over groups": "SELECT c, sum(a) AS s, rank() OVER (ORDER BY sum(a) DESC) AS r FROM t GROUP BY c",
    "sum of sums": "SELECT c, sum(sum(a)) OVER (ORDER BY c) AS s FROM t GROUP BY c",
    "qualify": "SELECT c, a, b FROM t QUALIFY rank() OVER (PARTITION BY c ORDER BY a DESC, b) = 1",
    "qualify by alias": "SELECT c, a, dense_rank() OVER (PARTITION BY c ORDER BY a) AS r FROM t "
    "QUALIFY r <= 2",
    "windows with an offset": "SELECT window.start AS s, window.end AS e, count(*) AS n FROM t "
    "GROUP BY window(ts, '7 seconds', '7 seconds', '2 seconds')",
    "hopping with an offset": "SELECT a, window(ts, '6 seconds', '3 seconds', '-1 seconds') AS w FROM t",
    "sessions": "SELECT session_window.start AS s, session_window.end AS e, count(*) AS n FROM t "
    "GROUP BY session_window(ts, '3 seconds')",
    "sessions of keys": "SELECT c, a % 2 AS odd, session_window(ts, '4 seconds').end AS e, sum(b) AS s "
    "FROM t GROUP BY session_window(ts, '4 seconds'), c, a % 2",
    "newest": "SELECT c, a FROM (SELECT c, a, row_number() OVER (PARTITION BY c ORDER BY ts DESC, a, b) "
    "AS r FROM t) WHERE r = 1",
    "over doubles": "SELECT c, a, sum(round(x, 2)) OVER (PARTITION BY c ORDER BY a) AS s FROM t "
    "WHERE abs(x) < 100",
    "money over": "SELECT c, a, m, sum(m) OVER (PARTITION BY c ORDER BY a) AS s, avg(m) OVER (ORDER BY "
    "a, c, m ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS v FROM (SELECT DISTINCT a, c, m FROM t)",
    "ends over": "SELECT a, c, ts, min(ts) OVER w AS f, max(c) OVER w AS g, last_value(ok) OVER w AS l, "
    "max(m) OVER (PARTITION BY c) AS m FROM (SELECT DISTINCT a, c, ts, m, ok FROM t) WINDOW w AS "
    "(PARTITION BY a ORDER BY ts, c, m, ok ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING)",
    "list over": "SELECT c, a, array_sort(collect_list(b) OVER (PARTITION BY c ORDER BY a)) AS l FROM t",
    "limit": "SELECT a, b FROM t ORDER BY a DESC NULLS LAST, b LIMIT 5",
    "limit and offset": "SELECT a, b FROM (SELECT DISTINCT a, b FROM t) ORDER BY a, b LIMIT 3 OFFSET 2",
    "limit of groups": "SELECT c, count(*) AS n FROM t GROUP BY c ORDER BY count(*) DESC, c LIMIT 2",
    "limit by place": "SELECT c, sum(b) AS s FROM t GROUP BY c ORDER BY 2 DESC, 1 LIMIT 2",
    "limit by all": "SELECT a, b FROM t ORDER BY ALL DESC NULLS LAST LIMIT 4",
    "limit of groups by all": "SELECT c, count(*) AS n FROM t GROUP BY c ORDER BY ALL LIMIT 2",
    "limit of a union by all": "SELECT a, b FROM t UNION ALL SELECT a, d FROM u ORDER BY ALL LIMIT 4",
    "limit of a union": "SELECT a FROM t UNION ALL SELECT d FROM u ORDER BY a LIMIT 4",
    "limit of distinct": "SELECT DISTINCT c FROM t ORDER BY c LIMIT 2",
    "limit inside": "SELECT u.e, q.a FROM (SELECT a, b FROM t ORDER BY a, b LIMIT 4) q "
    "JOIN u ON q.a = u.a",
    "order without limit": "SELECT a, b FROM t ORDER BY b DESC, a",
    "limit, correlated": "SELECT t.a, q.d FROM t, LATERAL (SELECT d FROM u WHERE u.a = t.a "
    "ORDER BY d DESC LIMIT 1) q",
}

_TOTALS = ", ".join(f"(SELECT sum(d) FROM u WHERE a <> {n}) AS s{n}" for n in range(8))
MORE = {
    "many totals": f"SELECT a, {_TOTALS} FROM t WHERE b > (SELECT avg(b) FROM t)",
    "outer lateral range": "SELECT t.a, q.i FROM t LEFT JOIN LATERAL range(1, 4) AS q(i) ON i > t.a",
    "left lateral subquery of generated rows": "SELECT t.a, p, q, z FROM t "
    "LEFT JOIN LATERAL (SELECT explode(IF(a > 0, arr, array(b, a))) AS p) "
    "LEFT JOIN LATERAL (SELECT q FROM explode(arr) g(q)) ON true "
    "LEFT JOIN LATERAL (SELECT z FROM explode(arr) g(z) WHERE z > 1)",
    "an expression that nobody reads": "SELECT a, (WITH q AS (SELECT t.a AS i) SELECT 1) AS y FROM t",
}

ASOF = {
    "at or before": "SELECT t.a, t.b, q.d, q.e FROM t ASOF JOIN u q ON t.a = q.a AND t.b >= q.d",
    "before": "SELECT t.a, t.b, u.d, u.e FROM t ASOF JOIN u ON t.a = u.a AND u.d < t.b",
    "at or after": "SELECT t.a, t.b, u.d, u.e FROM t ASOF JOIN u ON t.a = u.a AND t.b <= u.d",
    "after": "SELECT t.a, t.b, u.d, u.e FROM t ASOF JOIN u ON t.a = u.a AND t.b < u.d",
    "left": "SELECT t.a, t.b, u.d, u.e FROM t ASOF LEFT JOIN u ON t.a = u.a AND t.b >= u.d",
    "without a key": "SELECT t.b, v.d FROM t ASOF JOIN v ON t.b >= v.d",
    "of expressions": "SELECT t.a, t.b, u.d FROM t ASOF JOIN u ON t.a = u.a + 1 AND t.b * 2 > u.d + 1",
    "with a match condition": "SELECT t.a, t.b, u.d, u.e FROM t ASOF LEFT JOIN u "
    "MATCH_CONDITION (t.b >= u.d) ON t.a = u.a",
    "with a match condition and columns": "SELECT a, t.b, u.d, u.e FROM t ASOF LEFT JOIN u "
    "MATCH_CONDITION (t.b >= u.d) USING (a)",
    "of columns": "SELECT a, b, d, e FROM t ASOF JOIN (SELECT a, d AS b, d, e FROM u) q USING (a, b)",
}


def _nearest(sign: str, nearer: str, rows: str = "t") -> str:
    """A left row beside the right rows for which there is no nearer one, ties as one."""
    return (
        "SELECT t.a, t.b, q.d, q.e "
        f"FROM {rows} JOIN (SELECT a, d, max(e) AS e FROM u GROUP BY a, d) q "
        f"ON t.a = q.a AND t.b {sign} q.d WHERE NOT EXISTS "
        f"(SELECT 1 FROM u n WHERE n.a = t.a AND t.b {sign} n.d AND n.d {nearer} q.d)"
    )


_NEAREST_LEFT = (
    "SELECT t.a, t.b, q.d, q.e FROM t LEFT JOIN "
    f"({_nearest('>=', '>', '(SELECT DISTINCT a, b FROM t) t')}) q ON t.a = q.a AND t.b = q.b"
)

TIME = {
    "younger than": "SELECT a, b FROM t WHERE ts > now() - INTERVAL 15 SECONDS",
    "until now, or not": "SELECT a, ts FROM t WHERE ts <= now() AND b > 0",
    "in the last seconds": "SELECT a, ts FROM t WHERE ts BETWEEN now() - INTERVAL 12 SECONDS AND now()",
    "now between": "SELECT a FROM t WHERE now() BETWEEN ts AND ts + INTERVAL 20 SECONDS",
    "groups of now": "SELECT c, count(*) AS n, max(b) AS top FROM t "
    "WHERE ts >= now() - INTERVAL 15 SECONDS GROUP BY c",
    "all of now": "SELECT count(*) AS n, sum(x) AS s FROM t WHERE ts > now() - INTERVAL 15 SECONDS",
    "join of now": "SELECT t.a, u.d FROM t JOIN u ON t.a = u.a AND t.ts > now() - INTERVAL 15 SECONDS",
    "left join of now": "SELECT u.a, t.b FROM u LEFT JOIN t "
    "ON t.a = u.a AND t.ts > now() - INTERVAL 15 SECONDS",
    "left side of now": "SELECT t.a, u.d FROM t LEFT JOIN u "
    "ON t.a = u.a AND t.ts + make_interval(0, 0, 0, 0, 0, 0, u.d) < now()",
    "having now": "SELECT c, max(ts) AS last FROM t GROUP BY c "
    "HAVING max(ts) < now() - INTERVAL 5 SECONDS",
    "window of now": "SELECT s, n FROM (SELECT window(ts, '10 seconds').start AS s, "
    "window(ts, '10 seconds').end AS e, count(*) AS n FROM t GROUP BY window(ts, '10 seconds')) "
    "WHERE e <= now()",
    "exists of now": "SELECT a, d FROM u WHERE NOT EXISTS "
    "(SELECT 1 FROM t WHERE t.a = u.a AND t.ts > now() - INTERVAL 15 SECONDS)",
    "rank of now": "SELECT a, ts FROM t WHERE ts > now() - INTERVAL 20 SECONDS "
    "QUALIFY row_number() OVER (PARTITION BY c ORDER BY ts DESC, a, b) = 1",
    "seconds of now": "SELECT a FROM t WHERE unix_seconds(ts) >= unix_seconds(now()) - 15",
    "minute of now": "SELECT a, ts FROM t WHERE ts < date_trunc('minute', now())",
    "no column": "SELECT count(*) AS n FROM t "
    "WHERE now() > TIMESTAMP '2024-01-01 00:00:00' - INTERVAL 15 SECONDS",
}

JUDGED_BY = {
    # Spark itself reads no further than one query around
    "subquery nested, correlated": "SELECT p.a, p.b FROM t p "
    "LEFT SEMI JOIN (SELECT u.a, v.f FROM u JOIN v ON v.d = u.d) q "
    "ON q.a = p.a AND q.f <> p.b",
    # and has no QUALIFY
    "window qualify": "SELECT c, a, b FROM (SELECT c, a, b, rank() OVER "
    "(PARTITION BY c ORDER BY a DESC, b) AS r FROM t) WHERE r = 1",
    "asof at or before": _nearest(">=", ">"),
    "asof before": _nearest(">", ">"),
    "asof at or after": _nearest("<=", "<"),
    "asof after": _nearest("<", "<"),
    "asof left": _NEAREST_LEFT,
    "asof with a match condition": _NEAREST_LEFT,
    "asof with a match condition and columns": _NEAREST_LEFT,
    "asof of columns": _nearest(">=", ">"),
    "asof without a key": "SELECT t.b, q.d FROM t JOIN (SELECT DISTINCT d FROM v) q ON t.b >= q.d "
    "WHERE NOT EXISTS (SELECT 1 FROM v n WHERE t.b >= n.d AND n.d > q.d)",
    "asof of expressions": "SELECT t.a, t.b, q.d FROM t JOIN (SELECT DISTINCT a, d FROM u) q "
    "ON t.a = q.a + 1 AND t.b * 2 > q.d + 1 WHERE NOT EXISTS "
    "(SELECT 1 FROM u n WHERE t.a = n.a + 1 AND t.b * 2 > n.d + 1 AND n.d > q.d)",
    "window qualify by alias": "SELECT * FROM (SELECT c, a, dense_rank() OVER "
    "(PARTITION BY c ORDER BY a) AS r FROM t) WHERE r <= 2",
    **{f"level {name}": query for name, query in LEVELS_JUDGED_BY.items()},
    "time rank of now": "SELECT a, ts FROM (SELECT a, ts, row_number() OVER "
    "(PARTITION BY c ORDER BY ts DESC, a, b) AS r FROM t WHERE ts > now() - INTERVAL 20 SECONDS) "
    "WHERE r = 1",
}
"""Another query of the same meaning, where Spark does not compute the one above."""

QUERIES = {
    f"{part} {name}": text
    for part, queries in (
        ("join", JOINS),
        ("subquery", SUBQUERIES),
        ("set", SETS),
        ("constant", CONSTANTS),
        ("group", GROUPS),
        ("window", WINDOWS),
        ("form", FORMS),
        ("around", AROUND),
        ("nested", NESTED),
        ("recursion", RECURSION),
        ("asof", ASOF),
        ("time", TIME),
        ("level", LEVELS),
        ("more", MORE),
    )
    for name, text in queries.items()
}
