-- The greatest row as an aggregate, as it takes no row_number.
SELECT auction, bidder, last.price, last.channel, last.dateTime
FROM (
  SELECT
    auction, bidder,
    max_by(struct(price, channel, dateTime), struct(dateTime, price)) AS last
  FROM bid
  GROUP BY auction, bidder
)
