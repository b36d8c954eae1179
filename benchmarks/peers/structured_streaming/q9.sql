-- The greatest bid as an aggregate: of each auction it comes out once the watermark has passed its end.
SELECT id, itemName, category, reserve, seller, won.bidder, won.price, won.bidTime
FROM (
  SELECT
    a.id, a.itemName, a.category, a.reserve, a.seller, a.expires,
    max_by(
      struct(b.bidder, b.price, b.dateTime AS bidTime),
      struct(b.price, -unix_millis(b.dateTime), -b.bidder)
    ) AS won
  FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
  GROUP BY a.id, a.itemName, a.category, a.reserve, a.seller, a.expires
)
