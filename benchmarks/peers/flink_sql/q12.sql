-- A window of processing time that is open at the end of the backlog would never come out.
SELECT bidder, COUNT(*) AS bids, starts, starts + 10 AS ends
FROM (
  SELECT bidder, UNIX_TIMESTAMP() / 10 * 10 AS starts
  FROM bid
)
GROUP BY bidder, starts
