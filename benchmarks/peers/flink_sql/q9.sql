SELECT id, itemName, category, reserve, seller, bidder, price, bidTime
FROM (
  SELECT
    a.id, a.itemName, a.category, a.reserve, a.seller, b.bidder, b.price, b.`dateTime` AS bidTime,
    ROW_NUMBER() OVER (
      PARTITION BY a.id ORDER BY b.price DESC, b.`dateTime`, b.bidder, b.extra
    ) AS place
  FROM auction a JOIN bid b ON a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
)
WHERE place = 1
