-- Made from transformations/views.py when the project is deployed.

CREATE MATERIALIZED VIEW `chosen` AS
SELECT `t`.`a`, `t`.`b`, `t`.`c`
FROM `t`;

CREATE MATERIALIZED VIEW `everything` AS
SELECT `t`.`a`, `t`.`b`, `t`.`c`, `t`.`ts`, `t`.`x`, `t`.`arr`, `t`.`m`, `t`.`ok`, `t`.`a` + 1 AS `more`
FROM `t`;

CREATE MATERIALIZED VIEW `attributes` AS
SELECT `t`.`a`, `t`.`b`, `t`.`b` * 2 - `t`.`a` AS `z`
FROM `t`
WHERE `t`.`a` > 1;

CREATE MATERIALIZED VIEW `named_columns` AS
SELECT `t`.`a`, `t`.`b`, `t`.`c`, `t`.`ts`, `t`.`m`, `t`.`ok`
FROM `t`;

CREATE MATERIALIZED VIEW `with_columns` AS
SELECT q_1.`a`, q_1.`b`, q_1.`c`, q_1.`ts`, q_1.`m`, q_1.`ok`, q_1.`n`, q_1.`n` % 3 AS `p`, upper(q_1.`c`) AS `q`
FROM (SELECT q.`a`, q.`b`, q.`c`, q.`ts`, q.`x`, q.`arr`, q.`m`, q.`ok`, q.`a` + q.`b` AS `n`
FROM (SELECT `t`.`a` * 10 AS `a`, `t`.`b`, `t`.`c`, `t`.`ts`, `t`.`x`, `t`.`arr`, `t`.`m`, `t`.`ok`
FROM `t`) AS q) AS q_1;

CREATE MATERIALIZED VIEW `renamed` AS
SELECT `u`.`a` AS `k`, `u`.`d` AS `v`, `u`.`e` AS `w`
FROM `u`
WHERE (`u`.`a` > `u`.`d`);

CREATE MATERIALIZED VIEW `to_df` AS
SELECT `u`.`e` AS `z`, `u`.`a` AS `x`
FROM `u`;

CREATE MATERIALIZED VIEW `dropped_by_column` AS
SELECT `u`.`a`, `u`.`e`
FROM `u`;

CREATE MATERIALIZED VIEW `filters` AS
SELECT `t`.`a`, `t`.`b`, `t`.`c`
FROM `t`
WHERE `t`.`a` > 0 AND (`t`.`b` < 3 OR `t`.`c` IS NULL) AND NOT `t`.`ok` AND (`t`.`a` <> 3 OR `t`.`b` = 1);

CREATE MATERIALIZED VIEW `hidden_filter` AS
SELECT `t`.`b`
FROM `t`
WHERE `t`.`a` > 1 AND (`t`.`b` > 0);

CREATE MATERIALIZED VIEW `texts` AS
SELECT `t`.`a`, `t`.`b` + 1 AS `more`, upper(`t`.`c`) AS `u`, CAST(`t`.`a` AS string) AS `s`, get(`t`.`arr`, 0) AS `z`
FROM `t`;

CREATE MATERIALIZED VIEW `words` AS
SELECT q.`w`, q.`c`
FROM (SELECT CASE WHEN `t`.`a` > `t`.`b` THEN 'it''s' ELSE `t`.`c` END AS `w`, `t`.`c`
FROM `t`) AS q
WHERE (length(q.`w`) > 1 AND q.`c` IS NOT NULL);

CREATE MATERIALIZED VIEW `operators` AS
SELECT -(`t`.`a` + `t`.`b`) * 2 AS `m`, `t`.`a` - (`t`.`b` - 1) AS `n`, `t`.`a` / 4 AS `o`, 10 - `t`.`a` AS `p`, `t`.`a` = `t`.`b` AS `q`, `t`.`a` <> `t`.`b` AS `r`, `t`.`a` <=> `t`.`b` AS `s`, `t`.`a` IN (1, 2, NULL) AS `aa`, `t`.`a` NOT IN (1, 2) AS `ab`, `t`.`c` LIKE 'x%' AS `ac`, `t`.`c` NOT RLIKE '^x' AS `ad`, `t`.`a` >= 1 AND `t`.`a` <= `t`.`b` AS `ae`, startswith(`t`.`c`, 'x') AS `af`, contains(`t`.`c`, 's') AS `ag`, substr(`t`.`c`, 1, 2) AS `ah`, (`t`.`a` & 3) | `t`.`b` AS `ai`, `t`.`a` IS NULL OR `t`.`b` IS NOT NULL AS `aj`, NOT `t`.`a` > `t`.`b` AS `ak`, false AS `al`, (`t`.`a` > 1) = (`t`.`b` > 1) AS `am`, isnan(`t`.`x`) AS `an`
FROM `t`;

CREATE MATERIALIZED VIEW `cases` AS
SELECT CASE WHEN `t`.`a` > 2 THEN 'large' WHEN `t`.`a` > 0 THEN `t`.`c` ELSE 'none' END AS `k`, CASE WHEN `t`.`b` = 1 THEN 1 END AS `one`, coalesce(`t`.`b`, 0) AS `b0`, greatest(`t`.`a`, `t`.`b`) AS `g`
FROM `t`;

CREATE MATERIALIZED VIEW `literals` AS
SELECT 1 AS `i`, 1099511627776L AS `l`, 1.5D AS `d`, 'it\'s a \\ \'b\'' AS `s`, true AS `b`, CAST(NULL AS int) AS `n`, DATE'2024-02-29' AS `day`, TIMESTAMP'2024-02-29 01:02:03.000004Z' AS `moment`, CAST(1.50BD AS DECIMAL(10,2)) AS `dec`, INTERVAL '-0 23:59:57.000000' DAY TO SECOND AS `span`, array(1, 2) AS `many`, CAST('-Infinity' AS DOUBLE) AS `inf`, concat('$', '{least}') AS `text`, -1 AS `minus`, 'line\nbreak' AS `lines`
FROM `u`;

CREATE MATERIALIZED VIEW `casts` AS
SELECT CAST(`t`.`a` AS string) AS `a`, CAST(`t`.`a` AS bigint) AS `l`, CAST(`t`.`m` AS decimal(10,1)) AS `m1`, CAST(`t`.`ts` AS date) AS `day`, TRY_CAST(`t`.`c` AS int) AS `ci`
FROM `t`;

CREATE MATERIALIZED VIEW `nested` AS
SELECT q.`s`.`bee`, q.`s`['next'] AS `f`, q.`s`['a'] AS `g`, q.`l`[1] AS `h`, q.`m`['k'] AS `i`, q.`l`[0] AS `j`, q.`s`['bee'] AS `k`, struct(q.`s`.`bee`, q.`a`) AS `n`
FROM (SELECT `t`.`a`, struct(`t`.`a`, `t`.`b` AS `bee`, `t`.`a` + 1 AS `next`) AS `s`, array(`t`.`a`, `t`.`b`) AS `l`, map('k', `t`.`a`) AS `m`
FROM `t`) AS q;

CREATE MATERIALIZED VIEW `lambdas` AS
SELECT transform(`t`.`arr`, x -> x * 2 + `t`.`a`) AS `d`, filter(`t`.`arr`, x -> x > 1) AS `f`, aggregate(`t`.`arr`, 0, (x, y) -> x + coalesce(y, 0)) AS `s`, exists(`t`.`arr`, x -> x = 1) AS `e`, transform(`t`.`arr`, (x, y) -> struct(x AS `x`, y AS `i`)) AS `p`, transform(`t`.`arr`, x -> aggregate(`t`.`arr`, x, (x2, y) -> x2 + y)) AS `n`
FROM `t`;

CREATE MATERIALIZED VIEW `functions` AS
SELECT concat_ws('-', `t`.`c`, 'z') AS `c1`, date_trunc('minute', `t`.`ts`) AS `ts1`, round(`t`.`m`, 1) AS `m1`, regexp_replace(`t`.`c`, '[aeiou]', '_') AS `c2`, to_date(`t`.`ts`) AS `day`, size(`t`.`arr`) AS `n`, array_contains(`t`.`arr`, 1) AS `has`, split('a,b', ',', -1)[1] AS `second`, xxhash64(`t`.`a`, `t`.`b`) AS `h`, date_part('SECOND', `t`.`ts`) AS `sec`, trim('  x ') AS `tr`, `t`.`ts` + INTERVAL 1 DAY AS `tomorrow`, date_format(`t`.`ts`, 'yyyy-MM-dd') AS `ymd`, sequence(1, 3) AS `seq`, nvl(`t`.`a`, 9) AS `nv`, isnull(`t`.`a`) AS `isn`
FROM `t`;

CREATE MATERIALIZED VIEW `join_on` AS
SELECT `t`.`a`, `u`.`d`, `u`.`e`, `t`.`b`
FROM `t` JOIN `u` ON `t`.`a` = `u`.`a`;

CREATE MATERIALIZED VIEW `join_drop` AS
SELECT `t`.`a`, `t`.`b`, `u`.`d`, `u`.`e`
FROM `t` LEFT JOIN `u` ON `t`.`a` = `u`.`a`;

CREATE MATERIALIZED VIEW `join_using` AS
SELECT `t`.`a`, `t`.`b`, `u`.`a` AS `ua`, `u`.`d`
FROM `t` LEFT JOIN `u` ON `t`.`a` = `u`.`a`;

CREATE MATERIALIZED VIEW `join_using_right` AS
SELECT `u`.`a`, `t`.`b`, `u`.`d`, `u`.`e`
FROM `t` RIGHT JOIN `u` ON `t`.`a` = `u`.`a`;

CREATE MATERIALIZED VIEW `join_using_full` AS
SELECT q.`a`, q.`b`, q.`d`, q.`e`
FROM (SELECT coalesce(`t`.`a`, `u`.`a`) AS `a`, `t`.`b`, `u`.`d`, `u`.`e`
FROM `t` FULL JOIN `u` ON `t`.`a` = `u`.`a`) AS q
WHERE (q.`a` > 0);

CREATE MATERIALIZED VIEW `join_semi` AS
SELECT `t`.`a`, `t`.`b`
FROM `t` LEFT SEMI JOIN `u` ON `t`.`a` = `u`.`a` AND `t`.`b` < `u`.`d`;

CREATE MATERIALIZED VIEW `join_anti` AS
SELECT `t`.`a`, `t`.`b`
FROM `t` LEFT ANTI JOIN `u` ON `t`.`a` = `u`.`a`;

CREATE MATERIALIZED VIEW `join_cross` AS
SELECT `u`.`a`, `u`.`d`, `u`.`e`, `v`.`d` AS `vd`, `v`.`f`
FROM `u` CROSS JOIN `v`;

CREATE MATERIALIZED VIEW `join_less` AS
SELECT `t`.`a`, `t`.`b`, `u`.`d`
FROM `t` JOIN `u` ON `t`.`a` = `u`.`a` AND `t`.`b` > `u`.`d`;

CREATE MATERIALIZED VIEW `join_three` AS
SELECT `t`.`a`, `t`.`b`, `u`.`d`, `v`.`f`
FROM `t` JOIN `u` ON `t`.`a` = `u`.`a` LEFT JOIN `v` ON `u`.`d` = `v`.`d`;

CREATE MATERIALIZED VIEW `join_self_by_alias` AS
SELECT `t`.`a`, `t_1`.`c` AS `qc`, `t_1`.`b`
FROM `t` JOIN `t` AS `t_1` ON `t`.`a` = `t_1`.`b`;

CREATE MATERIALIZED VIEW `join_star_of_alias` AS
SELECT `u`.`a`, `u`.`d`, `u`.`e`, `v`.`f`
FROM `u` LEFT JOIN `v` ON `u`.`d` = `v`.`d`;

CREATE MATERIALIZED VIEW `join_self_of_filter` AS
SELECT `u`.`a`, `u`.`d`, `u`.`e`, q.`sa`, q.`sd`
FROM `u` JOIN (SELECT `u_1`.`a` AS `sa`, `u_1`.`d` AS `sd`
FROM `u` AS `u_1`
WHERE (`u_1`.`d` < 2)) AS q ON `u`.`a` = q.`sa`;

CREATE MATERIALIZED VIEW `join_of_groups` AS
SELECT coalesce(`t`.`a`, CAST(0L AS INT)) AS `a`, q.`n`
FROM `t` LEFT JOIN (SELECT `u`.`a`, count(*) AS `n`
FROM `u`
GROUP BY `u`.`a`) AS q ON `t`.`a` = q.`a`;

CREATE MATERIALIZED VIEW `join_same_names` AS
SELECT q.`a`, q.`ra`, q.`b`
FROM (SELECT `u`.`a`, `t`.`a` AS `ra`, `t`.`b`
FROM `u` JOIN `t` ON `u`.`a` = `t`.`a`
WHERE `u`.`d` > 0) AS q
WHERE q.`b` > 0;

CREATE MATERIALIZED VIEW `join_lateral` AS
SELECT `t`.`a`, q.`s`
FROM `t` JOIN LATERAL (SELECT `u`.`d` + `t`.`b` AS `s`
FROM `u`
WHERE `u`.`a` = `t`.`a`) AS q;

CREATE MATERIALIZED VIEW `unions` AS
SELECT q_1.`a`, q_1.`b`
FROM (SELECT `t`.`a`, `t`.`b`
FROM `t` UNION ALL SELECT `u`.`a`, `u`.`d` AS `b`
FROM `u` UNION ALL SELECT `v`.`d` AS `a`, `v`.`f` AS `b`
FROM `v`) AS q_1;

CREATE MATERIALIZED VIEW `union_distinct` AS
SELECT q_1.`a`
FROM (SELECT DISTINCT q.`a`
FROM (SELECT `t`.`a`
FROM `t` UNION ALL SELECT `u`.`d` AS `a`
FROM `u`) AS q) AS q_1
WHERE (q_1.`a` > 0);

CREATE MATERIALIZED VIEW `union_by_name` AS
SELECT q.`a`, q.`d`, q.`e`
FROM (SELECT `u`.`a`, `u`.`d`, `u`.`e`
FROM `u` UNION ALL SELECT `u_1`.`a`, `u_1`.`d`, `u_1`.`e`
FROM `u` AS `u_1`) AS q;

CREATE MATERIALIZED VIEW `union_missing` AS
SELECT q.`a`, q.`d`, q.`e`, q.`f`
FROM (SELECT `u`.`a`, `u`.`d`, `u`.`e`, NULL AS `f`
FROM `u` UNION ALL SELECT NULL AS `a`, `v`.`d`, NULL AS `e`, `v`.`f`
FROM `v`) AS q;

CREATE MATERIALIZED VIEW `union_then_more` AS
SELECT q.`a`, count(1) AS `count`
FROM (SELECT `t`.`a`, `t`.`b`
FROM `t` UNION ALL SELECT `u`.`a`, `u`.`d` AS `b`
FROM `u`
WHERE (`u`.`d` > 1)) AS q
WHERE (q.`a` > 0)
GROUP BY q.`a`;

CREATE MATERIALIZED VIEW `intersected` AS
SELECT q.`a`, q.`b`
FROM (SELECT `t`.`a`, `t`.`b`
FROM `t` INTERSECT SELECT `u`.`a`, `u`.`d` AS `b`
FROM `u`) AS q;

CREATE MATERIALIZED VIEW `intersected_all` AS
SELECT q.`a`
FROM (SELECT `t`.`a`
FROM `t` INTERSECT ALL SELECT `u`.`d` AS `a`
FROM `u`) AS q;

CREATE MATERIALIZED VIEW `subtracted` AS
SELECT q.`a`
FROM (SELECT `t`.`a`
FROM `t` EXCEPT SELECT `u`.`d` AS `a`
FROM `u`) AS q;

CREATE MATERIALIZED VIEW `except_all` AS
SELECT q.`a`
FROM (SELECT `t`.`a`
FROM `t` EXCEPT ALL SELECT `v`.`f` AS `a`
FROM `v`) AS q;

CREATE MATERIALIZED VIEW `local_rows` AS
SELECT `t`.`b`, q.`name`
FROM `t` JOIN (VALUES (1L, 'one'), (2L, 'two'), (3L, CAST(NULL AS STRING))) AS q (`n`, `name`) ON `t`.`a` = q.`n`;

CREATE MATERIALIZED VIEW `local_rows_of_types` AS
SELECT q.`i`, q.`day`, q.`m`
FROM (VALUES (1, DATE'2024-01-01', CAST(1.20BD AS DECIMAL(8,2))), (CAST(NULL AS INT), CAST(NULL AS DATE), CAST(NULL AS DECIMAL(8,2)))) AS q (`i`, `day`, `m`);

CREATE MATERIALIZED VIEW `numbers` AS
SELECT q.`id`, q.`id` * 2 AS `b`
FROM explode(sequence(1L, 5L, 2L)) AS q (`id`);

CREATE MATERIALIZED VIEW `grouped` AS
SELECT `t`.`c`, count(*) AS `n`, count(`t`.`a`) AS `na`, sum(`t`.`a`) AS `s`, avg(`t`.`m`) AS `mean`, min(`t`.`b`) AS `min(b)`, max(`t`.`b`) AS `hi`, count(DISTINCT `t`.`a`) AS `nd`, count(DISTINCT `t`.`a`, `t`.`b`) AS `nd2`, sum(CASE WHEN `t`.`a` > 1 THEN 1 ELSE 0 END) AS `large`
FROM `t`
GROUP BY `t`.`c`;

CREATE MATERIALIZED VIEW `grouped_by_expression` AS
SELECT q_1.`k` AS `odd`, q_1.`cc`, q_1.`s`
FROM (SELECT q.`k`, upper(q.`c`) AS `cc`, sum(q.`b`) + count(*) AS `s`
FROM (SELECT `t`.`a`, `t`.`b`, `t`.`c`, `t`.`ts`, `t`.`x`, `t`.`arr`, `t`.`m`, `t`.`ok`, `t`.`a` % 2 AS `k`
FROM `t`) AS q
GROUP BY q.`k`, upper(q.`c`)) AS q_1
WHERE (q_1.`s` > 1);

CREATE MATERIALIZED VIEW `group_shorthands` AS
SELECT q.`c`, q.`sum(a)` AS `sa`
FROM (SELECT `t`.`c`, sum(`t`.`a`) AS `sum(a)`, sum(`t`.`b`) AS `sum(b)`
FROM `t`
GROUP BY `t`.`c`) AS q;

CREATE MATERIALIZED VIEW `group_of_dict` AS
SELECT q.`c`, q.`max(a)` AS `top`
FROM (SELECT `t`.`c`, max(`t`.`a`) AS `max(a)`
FROM `t`
GROUP BY `t`.`c`) AS q;

CREATE MATERIALIZED VIEW `totals` AS
SELECT count(*) AS `n`, max(`t`.`a`) AS `top`
FROM `t`;

CREATE MATERIALIZED VIEW `total_by_select` AS
SELECT q.`one`, q.`s`
FROM (SELECT sum(`t`.`b`) AS `s`, 1 AS `one`
FROM `t`) AS q;

CREATE MATERIALIZED VIEW `rollups` AS
SELECT `t`.`a`, `t`.`c`, count(*) AS `n`, grouping_id() AS `g`
FROM `t`
GROUP BY ROLLUP (`t`.`a`, `t`.`c`);

CREATE MATERIALIZED VIEW `cubes` AS
SELECT `t`.`a`, `t`.`c`, grouping(`t`.`a`) AS `ga`, sum(`t`.`b`) AS `s`
FROM `t`
GROUP BY CUBE (`t`.`a`, `t`.`c`);

CREATE MATERIALIZED VIEW `grouping_sets` AS
SELECT `t`.`a`, `t`.`c`, count(*) AS `n`
FROM `t`
GROUP BY GROUPING SETS ((`t`.`a`), (`t`.`a`, `t`.`c`), ());

CREATE MATERIALIZED VIEW `pivoted` AS
SELECT q_1.`a`, q_1.`v0` AS `x`, q_1.`v1` AS `y`
FROM (SELECT * FROM (SELECT `t`.`a`, `t`.`c`, `t`.`b`
FROM `t`) AS q PIVOT (sum(`b`) AS `agg0` FOR `c` IN ('x' AS `v0`, 'y' AS `v1`))) AS q_1;

CREATE MATERIALIZED VIEW `pivoted_twice` AS
SELECT q_1.`b`, q_1.`v0_agg0` AS `true_m`, q_1.`v0_agg1` AS `true_s`
FROM (SELECT * FROM (SELECT `t`.`b`, `t`.`ok`, `t`.`a`, `t`.`b` AS `b_1`
FROM `t`) AS q PIVOT (max(`a`) AS `agg0`, sum(`b_1`) AS `agg1` FOR `ok` IN (true AS `v0`))) AS q_1;

CREATE MATERIALIZED VIEW `unpivoted` AS
SELECT q_1.`c`, q_1.`name`, q_1.`value`
FROM (SELECT `t`.`c`, `t`.`a`, `t`.`b`
FROM `t`) AS q UNPIVOT INCLUDE NULLS (`value` FOR `name` IN (`a` AS `a`, `b` AS `b`)) AS q_1;

CREATE MATERIALIZED VIEW `time_windows` AS
SELECT q.`window`.`start`, q.`window`.`end` AS `until`, q.`c`, q.`n`
FROM (SELECT window(`t`.`ts`, '10 seconds') AS `window`, `t`.`c`, count(*) AS `n`
FROM `t`
GROUP BY window(`t`.`ts`, '10 seconds'), `t`.`c`) AS q;

CREATE MATERIALIZED VIEW `deduplicated` AS
SELECT DISTINCT q.`a`, q.`c`
FROM (SELECT DISTINCT `t`.`a`, `t`.`c`
FROM `t`) AS q;

CREATE MATERIALIZED VIEW `deduplicated_by_name` AS
SELECT q_1.`a`, q_1.`next`, q_1.`b`
FROM (SELECT q.`a`, q.`next`, q.`b`, row_number() OVER (PARTITION BY q.`a`, q.`b` ORDER BY q.`a`, q.`b`) AS `place`
FROM (SELECT `t`.`a`, `t`.`a` + 1 AS `next`, `t`.`b`
FROM `t`) AS q) AS q_1
WHERE q_1.`place` = 1;

CREATE MATERIALIZED VIEW `exploded` AS
SELECT q.`a`, q.`y`
FROM (SELECT `t`.`a`, explode(`t`.`arr`) AS `y`
FROM `t`) AS q
WHERE (q.`y` > 1);

CREATE MATERIALIZED VIEW `exploded_with_column` AS
SELECT q.`y`, count(1) AS `count`
FROM (SELECT `t`.`a`, `t`.`arr`, explode_outer(`t`.`arr`) AS `y`
FROM `t`) AS q
GROUP BY q.`y`;

CREATE MATERIALIZED VIEW `exploded_places` AS
SELECT q.`a`, q.`col`
FROM (SELECT `t`.`a`, posexplode(`t`.`arr`) AS (`pos`, `col`)
FROM `t`) AS q
WHERE (q.`pos` = 0);

CREATE MATERIALIZED VIEW `exploded_map` AS
SELECT explode(map('k', `t`.`a`)) AS (`key`, `value`), `t`.`b`
FROM `t`;

CREATE MATERIALIZED VIEW `row_numbers` AS
SELECT q_1.`a`, q_1.`b`, q_1.`c`, q_1.`r`
FROM (SELECT q.`a`, q.`b`, q.`c`, row_number() OVER (PARTITION BY q.`c` ORDER BY q.`a` DESC, q.`b`) AS `r`
FROM (SELECT DISTINCT `t`.`a`, `t`.`b`, `t`.`c`
FROM `t`) AS q) AS q_1
WHERE q_1.`r` <= 2;

CREATE MATERIALIZED VIEW `window_frames` AS
SELECT q.`c`, sum(q.`b`) OVER (PARTITION BY q.`c` ORDER BY q.`a`, q.`b` ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS `s`, avg(q.`b`) OVER (PARTITION BY q.`c` ORDER BY q.`a`, q.`b` ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS `m`, count(*) OVER (PARTITION BY q.`c` ORDER BY q.`a` RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS `n`, lag(q.`b`, 1) OVER (PARTITION BY q.`c` ORDER BY q.`a`, q.`b`) AS `p`, lead(q.`b`, 2, -1) OVER (PARTITION BY q.`c` ORDER BY q.`a`, q.`b`) AS `q`, rank() OVER (PARTITION BY q.`c` ORDER BY q.`a` NULLS LAST) AS `k`, max(q.`a`) OVER (PARTITION BY q.`c`) AS `hi`
FROM (SELECT DISTINCT `t`.`a`, `t`.`b`, `t`.`c`
FROM `t`) AS q;

CREATE MATERIALIZED VIEW `windows_of_groups` AS
SELECT q.`c`, q.`s`, rank() OVER (ORDER BY q.`s` DESC) AS `r`
FROM (SELECT `t`.`c`, sum(`t`.`a`) AS `s`
FROM `t`
GROUP BY `t`.`c`) AS q;

CREATE MATERIALIZED VIEW `top` AS
SELECT q.`a`, q.`b`
FROM (SELECT DISTINCT `t`.`a`, `t`.`b`
FROM `t`) AS q
ORDER BY q.`a` DESC, q.`b` LIMIT 3;

CREATE MATERIALIZED VIEW `top_of_dropped` AS
SELECT q.`c`, q.`b`
FROM (SELECT DISTINCT `t`.`a`, `t`.`b`, `t`.`c`
FROM `t`) AS q
WHERE (q.`c` IS NOT NULL)
ORDER BY q.`a` + q.`b`, q.`c`, q.`a` LIMIT 4;

CREATE MATERIALIZED VIEW `paged` AS
SELECT q_2.`a`, q_2.`b`
FROM ((SELECT q.`a`, q.`b`
FROM (SELECT DISTINCT `t`.`a`, `t`.`b`
FROM `t`) AS q
ORDER BY q.`a`, q.`b` LIMIT 3 OFFSET 1) UNION ALL (SELECT q_1.`a`, q_1.`b`
FROM (SELECT DISTINCT `t_1`.`a`, `t_1`.`b`
FROM `t` AS `t_1`) AS q_1
ORDER BY q_1.`a`, q_1.`b` LIMIT 2 OFFSET 2)) AS q_2;

CREATE MATERIALIZED VIEW `top_then_more` AS
SELECT q_2.`a`, count(1) AS `count`
FROM (SELECT q_1.`a`, q_1.`b`
FROM (SELECT q.`a`, q.`b`
FROM (SELECT DISTINCT `t`.`a`, `t`.`b`
FROM `t`) AS q
ORDER BY q.`a`, q.`b` DESC LIMIT 5) AS q_1
ORDER BY q_1.`a`, q_1.`b` DESC LIMIT 4) AS q_2
WHERE (q_2.`a` > 0)
GROUP BY q_2.`a`;

CREATE MATERIALIZED VIEW `sorted_only` AS
SELECT `t`.`b`
FROM `t`;

CREATE MATERIALIZED VIEW `filled` AS
SELECT q_1.`a`, q_1.`b`, q_1.`c`, q_1.`x`, q_1.`m`, coalesce(q_1.`ok`, false) AS `ok`
FROM (SELECT q.`a`, q.`b`, coalesce(q.`c`, 'none') AS `c`, q.`x`, q.`m`, q.`ok`
FROM (SELECT coalesce(`t`.`a`, CAST(0L AS INT)) AS `a`, coalesce(`t`.`b`, CAST(0L AS INT)) AS `b`, `t`.`c`, coalesce(nanvl(`t`.`x`, CAST(NULL AS DOUBLE)), CAST(0L AS DOUBLE)) AS `x`, coalesce(`t`.`m`, CAST(0L AS DECIMAL(8, 2))) AS `m`, `t`.`ok`
FROM `t`) AS q) AS q_1;

CREATE MATERIALIZED VIEW `filled_typed` AS
SELECT coalesce(`t`.`a`, CAST(1.7D AS INT)) AS `a`, coalesce(nanvl(`t`.`x`, CAST(NULL AS DOUBLE)), CAST(1.7D AS DOUBLE)) AS `x`, coalesce(`t`.`m`, CAST(1.7D AS DECIMAL(8, 2))) AS `m`
FROM `t`;

CREATE MATERIALIZED VIEW `dropped` AS
SELECT `t`.`a`, `t`.`b`, `t`.`c`
FROM `t`
WHERE `t`.`a` IS NOT NULL AND `t`.`x` IS NOT NULL AND NOT isnan(`t`.`x`) AND CASE WHEN `t`.`b` IS NOT NULL THEN 1 ELSE 0 END + CASE WHEN `t`.`c` IS NOT NULL THEN 1 ELSE 0 END >= 1;

CREATE MATERIALIZED VIEW `dropped_thresh` AS
SELECT `t`.`a`, `t`.`b`, `t`.`x`
FROM `t`
WHERE CASE WHEN `t`.`a` IS NOT NULL THEN 1 ELSE 0 END + CASE WHEN `t`.`b` IS NOT NULL THEN 1 ELSE 0 END + CASE WHEN `t`.`x` IS NOT NULL AND NOT isnan(`t`.`x`) THEN 1 ELSE 0 END >= 2;

CREATE MATERIALIZED VIEW `replaced` AS
SELECT CASE q.`a` WHEN CAST(1.0D AS INT) THEN CAST(100.0D AS INT) ELSE q.`a` END AS `a`, q.`b`, q.`c`
FROM (SELECT `t`.`a`, `t`.`b`, CASE `t`.`c` WHEN CAST('x' AS STRING) THEN CAST('z' AS STRING) WHEN CAST('y' AS STRING) THEN CAST('w' AS STRING) ELSE `t`.`c` END AS `c`
FROM `t`) AS q;

CREATE MATERIALIZED VIEW `is_in_a_frame` AS
SELECT `t`.`a`, `t`.`b`
FROM `t`
WHERE `t`.`a` IN (SELECT `u`.`d`
FROM `u`);

CREATE MATERIALIZED VIEW `exists_frame` AS
SELECT `t`.`a`, `t`.`b`
FROM `t`
WHERE EXISTS (SELECT `u`.`a`, `u`.`d`, `u`.`e`
FROM `u`
WHERE `u`.`a` = `t`.`a` AND `u`.`d` > 0) AND NOT EXISTS (SELECT `v`.`d`, `v`.`f`
FROM `v`
WHERE `v`.`f` = `t`.`b`);

CREATE MATERIALIZED VIEW `scalar_frame` AS
SELECT `t`.`a`, `t`.`b` + (SELECT max(`u`.`d`) AS `max(d)`
FROM `u`) AS `z`
FROM `t`;

CREATE MATERIALIZED VIEW `by_sql` AS
SELECT `t`.`a`, `t`.`b`, q.`top`
FROM `t` JOIN (SELECT a, max(d) AS top FROM u WHERE d > 1 -- a comment
 GROUP BY a
) AS q (`a`, `top`) ON `t`.`a` = q.`a`;

CREATE MATERIALIZED VIEW `by_sql_over_frames` AS
SELECT q_1.`a`, q_1.`n`
FROM (WITH frame AS (SELECT `t`.`a`, `t`.`b`, `t`.`c`, `t`.`ts`, `t`.`x`, `t`.`arr`, `t`.`m`, `t`.`ok`
FROM `t`
WHERE (`t`.`b` > 0)) SELECT * FROM (SELECT a, count(*) AS n FROM frame GROUP BY a
) AS q
) AS q_1 (`a`, `n`);

CREATE TEMPORARY VIEW `some`
COMMENT 'read by the next one' AS
SELECT `t`.`a`, `t`.`b`, 's' AS `k`
FROM `t`
WHERE `t`.`a` > 1;

CREATE MATERIALIZED VIEW `over_a_view` AS
SELECT `some`.`a`, `some`.`k`, count(*) AS `n`
FROM `some` JOIN `u` ON `some`.`a` = `u`.`a`
GROUP BY `some`.`a`, `some`.`k`;
