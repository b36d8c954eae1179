-- Statistics of the auctions: for each auction and day.
CREATE MATERIALIZED VIEW q17 AS
SELECT
  auction,
  date_format(dateTime, 'yyyy-MM-dd') AS day,
  count(*) AS bids,
  count(*) FILTER (WHERE price < 10000) AS cheap,
  count(*) FILTER (WHERE price >= 1000000) AS dear,
  min(price) AS lowest,
  max(price) AS highest,
  avg(price) AS average,
  sum(price) AS total
FROM bid
GROUP BY auction, date_format(dateTime, 'yyyy-MM-dd');
