-- Sets in place of distinct counts, which it does not take.
SELECT
  channel,
  date_format(dateTime, 'yyyy-MM-dd') AS day,
  max(date_format(dateTime, 'HH:mm')) AS minute,
  count(*) AS bids,
  count(*) FILTER (WHERE price < 10000) AS cheap,
  count(*) FILTER (WHERE price >= 1000000) AS dear,
  size(collect_set(bidder)) AS bidders,
  size(collect_set(auction)) AS auctions
FROM bid
GROUP BY channel, date_format(dateTime, 'yyyy-MM-dd')
