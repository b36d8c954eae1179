-- Monitor new users: people who opened an auction in the window of 10 seconds in which they came.
CREATE MATERIALIZED VIEW q8 AS
SELECT p.id, p.name, p.starts
FROM (
  SELECT id, name, window(dateTime, '10 seconds').start AS starts
  FROM person
  GROUP BY id, name, window(dateTime, '10 seconds')
) p
JOIN (
  SELECT seller, window(dateTime, '10 seconds').start AS starts
  FROM auction
  GROUP BY seller, window(dateTime, '10 seconds')
) a ON p.id = a.seller AND p.starts = a.starts;
