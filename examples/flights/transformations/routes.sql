-- Views on views: the totals of a route change with every flight, so what stands on top of them sees
-- rows taken back and put again, under a max and on both sides of a join.

CREATE MATERIALIZED VIEW routes AS
SELECT
  origin,
  dest,
  count(*) AS flights,
  count(dep_delay) AS departures,
  sum(dep_delay) AS delay_minutes
FROM flights
GROUP BY origin, dest;

-- From each airport, the route that has lost the most minutes (all of them, where several tie).
CREATE MATERIALIZED VIEW worst_routes AS
SELECT r.origin, r.dest, r.departures, r.delay_minutes
FROM routes r
JOIN (
  SELECT origin, max(delay_minutes) AS most_minutes
  FROM routes
  GROUP BY origin
) worst ON r.origin = worst.origin AND r.delay_minutes = worst.most_minutes;

CREATE SINK worst_routes_topic FROM worst_routes USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${lockstep.kafka}',
  'topic' = 'worst_routes',
  'format' = 'changelog'
);
