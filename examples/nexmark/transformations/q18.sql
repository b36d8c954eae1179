-- Last bid of each bidder on each auction.
CREATE MATERIALIZED VIEW q18 AS
SELECT auction, bidder, price, channel, dateTime
FROM (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY bidder, auction ORDER BY dateTime DESC, price DESC, channel, url, extra
    ) AS place
  FROM bid
)
WHERE place = 1;
