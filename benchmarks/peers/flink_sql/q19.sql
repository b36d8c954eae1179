SELECT auction, bidder, price, `dateTime`, place
FROM (
  SELECT
    *,
    ROW_NUMBER() OVER (
      PARTITION BY auction ORDER BY price DESC, `dateTime`, bidder, channel, extra
    ) AS place
  FROM bid
)
WHERE place <= 10
