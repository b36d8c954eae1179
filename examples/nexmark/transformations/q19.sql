-- The ten highest bids of each auction, with their places.
CREATE MATERIALIZED VIEW q19 AS
SELECT auction, bidder, price, dateTime, place
FROM (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY auction ORDER BY price DESC, dateTime, bidder, channel, extra
    ) AS place
  FROM bid
)
WHERE place <= 10;
