-- Highest bid: the bids of the highest price in each window of 10 seconds.
CREATE MATERIALIZED VIEW q7 AS
SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra
FROM bid b
JOIN (
  SELECT
    max(price) AS highest,
    window(dateTime, '10 seconds').end AS ends
  FROM bid
  GROUP BY window(dateTime, '10 seconds')
) top ON b.price = top.highest
WHERE b.dateTime BETWEEN top.ends - INTERVAL 10 SECONDS AND top.ends;
