"""Queries in forms that few engines take: steps, names of structs, subqueries that read far around."""

from __future__ import annotations

__all__ = ["AROUND", "FORMS", "NESTED"]

FORMS = {
    "table": "TABLE u",
    "steps": "FROM t |> WHERE b > 0 |> AGGREGATE sum(b) AS s, count(*) AS n GROUP BY a |> WHERE n > 1 "
    "|> EXTEND s + n AS m |> SET s = s * 2 |> DROP n",
    "filter behind a limit": "TABLE t |> SELECT a, b, c |> ORDER BY a, b, c |> LIMIT 6 |> WHERE b > 1 "
    "|> SELECT a, c",
    "filter before a full join": "FROM t |> WHERE b > 1 |> AS q |> FULL JOIN u ON q.a = u.a "
    "|> SELECT q.b, u.d",
    "union of steps": "TABLE u |> UNION ALL TABLE u |> SELECT d, count(*) OVER w AS n "
    "WINDOW w AS (PARTITION BY d)",
    "struct of columns": "SELECT t.a, struct(t.b, u.d, t.b + u.d) AS s, to_json(struct(u.*)) AS j "
    "FROM t JOIN u ON t.a = u.a",
    "struct as a key": "SELECT to_json(s) AS j, count(*) AS n FROM (SELECT struct(k, C) AS s FROM "
    "(SELECT b + 1 AS k, c FROM t)) GROUP BY s",
    "star as arguments": "SELECT coalesce(*) AS x, array(u.a, u.d) AS y FROM (SELECT a, d FROM u) u",
    "path into a variant": "SELECT a, CAST(parse_json(to_json(struct(b, c))):b AS INT) AS x FROM t",
    "units": "SELECT a, timestampadd(HOUR, b, ts) AS x, "
    "datediff(DAY, ts, TIMESTAMP '2026-01-01 00:00:00') AS y, date_add(MONTH, a, ts) AS z FROM t",
    "shifts": "SELECT a << 1 AS x, a >> 1 AS y, a >>> 1 AS z FROM t",
    "any": "SELECT c, any(ok) AS x, any(b > 1) FILTER (WHERE a > 0) AS y FROM t GROUP BY c",
    "row as a struct": "SELECT t.b, to_json((k, t.a, t.b + 1)) AS j FROM t JOIN "
    "(SELECT a + 1 AS k, d FROM u) q ON t.a = q.d",
    "struct of groups": "SELECT to_json(struct(max(a), b, b + 1)) AS j FROM t GROUP BY b",
    "struct of a name with a space": "SELECT to_json(struct(`x y`)) AS j FROM "
    "(SELECT a + 1 AS `x y` FROM t)",
    "one set of nothing": "SELECT max(a) AS m FROM v JOIN t ON a > 100 GROUP BY GROUPING SETS (())",
    "grouping of one set": "SELECT a, grouping(a) AS g, grouping_id() AS i FROM t "
    "GROUP BY GROUPING SETS ((a))",
    "keys in no set": "SELECT a, c, sum(b) AS s FROM t GROUP BY a, c GROUPING SETS (a)",
    "rollup in sets": "SELECT a, c, count(*) AS n FROM t GROUP BY GROUPING SETS (ROLLUP (a, c), c)",
    "having alone": "SELECT 'many' AS what FROM t HAVING count(*) > 9",
    "window over all": "SELECT sum(count(a)) OVER () AS s FROM t",
    "alias of a join": "SELECT x, z FROM (u JOIN v ON u.d = v.d) AS q (x, y, w, k, z)",
    "relations of one name": "SELECT count(*) AS n FROM v JOIN v",
    "parentheses": "SELECT DISTINCT (a), ((c)) AS k FROM t ORDER BY (k), (a) LIMIT 4",
    "numbers as keys of a step": "FROM t |> SELECT c, b, a "
    "|> AGGREGATE sum(b) AS s GROUP BY 1, 3, 9 AS nine",
    "order of places": "FROM t |> SORT BY a |> DISTRIBUTE BY b |> SELECT a, b",
    "sort by": "SELECT a, b FROM t DISTRIBUTE BY a SORT BY b",
    "number of a grouping set": "SELECT a, c, grouping__id AS g, count(*) AS n FROM t "
    "GROUP BY CUBE (a, c) HAVING grouping__id < 3",
    "a key the other way": "SELECT 1 + a AS k, count(*) AS n FROM t GROUP BY a + 1 HAVING 1 + a > 2",
    "pivot of expressions": "SELECT * FROM (SELECT a, b, c FROM t) PIVOT "
    "(max(b) + 1 AS m, sum(b) * count(b) AS p FOR c IN ('x', 'y' AS why))",
    "pivot of structs": "SELECT * FROM (SELECT b, struct(a, c) AS s FROM t) PIVOT "
    "(sum(b) FOR s IN ((1, 'x') AS one, (2, 'y') AS two))",
    "natural of two alike": "SELECT a, f, count(*) AS n FROM (SELECT p.d, q.d, q.a FROM u p JOIN u q "
    "ON p.a = q.a) NATURAL JOIN v GROUP BY a, f",
    "names as texts": "SELECT IDENTIFIER('t.a') AS x, sum(IDENTIFIER('b')) AS s FROM IDENTIFIER('t') "
    "GROUP BY IDENTIFIER('a')",
    "any column": "SELECT d, 2 IN (*) AS two FROM v WHERE 3 IN (v.*)",
}

NESTED = {
    "fields of a struct": "SELECT s.* FROM (SELECT struct(a, b AS Z) AS s FROM t)",
    "fields of fields": "SELECT s.q.*, a FROM (SELECT a, struct(struct(b, c) AS q) AS s FROM t)",
    "fields of a key": "SELECT s.*, count(*) AS n FROM (SELECT struct(a, c) AS s FROM t) GROUP BY s",
    "fields of an aggregate": "SELECT c, m.* FROM (SELECT c, max(struct(b, a)) AS m FROM t GROUP BY c)",
    "fields in a struct": "SELECT a, to_json(struct(s.*, a AS e)) AS j FROM "
    "(SELECT a, named_struct('x y', b, 'z', c) AS s FROM t)",
    "all but some": "SELECT s.* EXCEPT (b) FROM (SELECT struct(a, b, c) AS s FROM t)",
    "all but a field": "SELECT * EXCEPT (s.b), s.b AS was FROM "
    "(SELECT a, CASE WHEN a > 1 THEN struct(a AS A, b, c) END AS s FROM t)",
    "all but fields of fields": "SELECT * EXCEPT (k, p.s.q.b, p.s.a) FROM "
    "(SELECT a AS k, struct(a, struct(b, c) AS q) AS s FROM t) p",
    "inline": "SELECT inline(array(struct(a, b AS z), struct(b AS a, a + 1 AS z))) FROM t",
    "inline of groups": "SELECT c, inline(collect_list(struct(a, b))) FROM t GROUP BY c",
    "inline beside": "SELECT t.a, q.* FROM t, LATERAL inline(array(struct(a AS k, b AS v))) q",
    "inline, all rows": "SELECT t.a, v FROM t LATERAL VIEW OUTER "
    "inline(CASE WHEN a > 1 THEN array(struct(b AS v)) END) q",
    "a map": "SELECT explode(map(a, c, a + 10, 'm')) FROM t WHERE a IS NOT NULL",
    "names of what is zipped": "SELECT to_json(arrays_zip(arr, xs, array(1))) AS j FROM "
    "(SELECT arr, array(a, b) AS xs FROM t)",
}

AROUND = {
    "in ON": "SELECT a, (SELECT sum(u.d) FROM u JOIN v ON u.a = t.a AND u.d = v.d) AS s FROM t",
    "in ON by less": "SELECT a, b FROM t WHERE b < (SELECT count(*) FROM u JOIN v "
    "ON u.d < t.b AND v.d >= u.d)",
    "in ON of an outer join": "SELECT a, (SELECT count(v.f) FROM u LEFT JOIN v "
    "ON u.a = t.a AND v.d = u.d) AS n FROM t",
    "in ON, exists": "SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u JOIN v "
    "ON u.d = v.d AND u.a = t.a)",
    "in ON of three": "SELECT a, (SELECT max(q.d) FROM u JOIN v ON u.d = v.d JOIN u q "
    "ON q.a = v.f AND q.d < t.b) AS m FROM t",
    "rows of an array": "SELECT t.a, q.z FROM t, LATERAL (SELECT z FROM explode(t.arr) g(z) "
    "WHERE z > t.b) q",
    "rows of two arrays": "SELECT t.a, q.z FROM t, LATERAL (SELECT l.z FROM explode(arr) l(z) "
    "JOIN explode(array(a, b)) r(y) ON z = y) q",
    "rows of an array under a condition": "SELECT t.a, t.b, g.z FROM t "
    "LEFT JOIN LATERAL explode(arr) g(z) ON z > t.b",
    "places under a condition": "SELECT t.a, g.p, g.z FROM t "
    "LEFT JOIN LATERAL posexplode(arr) g(p, z) ON g.p = t.b",
    "an aggregate in exists": "SELECT a, count(*) AS n FROM t GROUP BY a "
    "HAVING EXISTS (SELECT 1 FROM u WHERE u.d > min(t.b))",
    "aggregates in a scalar": "SELECT a, max(b) AS m FROM t GROUP BY a "
    "HAVING max(b) >= (SELECT min(d) FROM u WHERE u.a = count(t.b))",
    "an aggregate, further in": "SELECT d FROM v WHERE EXISTS (SELECT a, count(*) FROM t "
    "WHERE t.b = v.f GROUP BY a HAVING EXISTS (SELECT 1 FROM u WHERE u.d < min(t.b)))",
    "a count beside a subquery": "SELECT a, (SELECT count(*) + (SELECT max(d) FROM v) FROM u "
    "WHERE u.a = t.a) AS z FROM t",
    "a subquery in ON, right": "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u RIGHT JOIN v "
    "ON u.d = v.d AND v.f IN (SELECT b FROM t AS q))",
    "an aggregate in IN": "SELECT a FROM t GROUP BY a HAVING max(b) IN (SELECT d FROM u)",
}
