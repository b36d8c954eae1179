-- All bids of an auction as one value, in order, as it takes no row_number.
SELECT auction, bid.bidder, -bid.descending AS price, bid.dateTime, place + 1 AS place
FROM (
  SELECT
    auction,
    slice(
      array_sort(collect_list(struct(-price AS descending, dateTime, bidder, channel, extra))), 1, 10
    ) AS best
  FROM bid
  GROUP BY auction
) LATERAL VIEW posexplode(best) bids AS place, bid
