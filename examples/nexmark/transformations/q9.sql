-- Winning bids: of each auction the highest bid of its time, of equal ones the earliest.
CREATE MATERIALIZED VIEW q9 AS
SELECT id, itemName, category, reserve, seller, bidder, price, bidTime
FROM (
  SELECT
    a.id, a.itemName, a.category, a.reserve, a.seller, b.bidder, b.price, b.dateTime AS bidTime,
    row_number() OVER (
      PARTITION BY a.id ORDER BY b.price DESC, b.dateTime, b.bidder, b.extra
    ) AS place
  FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
)
WHERE place = 1;
