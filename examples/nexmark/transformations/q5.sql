-- Hot items: the auctions with the most bids in each window of 10 seconds, a window every 2 seconds.
CREATE MATERIALIZED VIEW q5 AS
WITH counts AS (
  SELECT
    auction,
    window(dateTime, '10 seconds', '2 seconds').start AS starts,
    count(*) AS num
  FROM bid
  GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')
)
SELECT c.starts, c.auction, c.num
FROM counts c
JOIN (
  SELECT starts, max(num) AS most
  FROM counts
  GROUP BY starts
) top ON c.starts = top.starts AND c.num = top.most;
