SELECT auction, bidder, price, channel, `dateTime`
FROM (
  SELECT
    *,
    ROW_NUMBER() OVER (
      PARTITION BY bidder, auction ORDER BY `dateTime` DESC, price DESC, channel, url, extra
    ) AS place
  FROM bid
)
WHERE place = 1
