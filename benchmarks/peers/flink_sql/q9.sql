-- With more than one column to order by, Flink 2.2.1 takes the first row of ROW_NUMBER() = 1 for final and
-- never takes it back. So the price and the time, in milliseconds of the run, are one number.
SELECT id, itemName, category, reserve, seller, bidder, price, bidTime
FROM (
  SELECT
    a.id, a.itemName, a.category, a.reserve, a.seller, b.bidder, b.price, b.`dateTime` AS bidTime,
    ROW_NUMBER() OVER (
      PARTITION BY a.id ORDER BY
        b.price * 1000000000
        - TIMESTAMPDIFF(SECOND, TIMESTAMP '2025-07-01 00:00:00', CAST(b.`dateTime` AS TIMESTAMP(3))) * 1000
        - EXTRACT(MILLISECOND FROM b.`dateTime`) DESC
    ) AS place
  FROM auction a JOIN bid b ON a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
)
WHERE place = 1
