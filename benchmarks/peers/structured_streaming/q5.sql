-- One aggregate on the other in place of the join: of each window all counts, of which the greatest are kept.
SELECT starts, hot.auction, hot.num
FROM (
  SELECT w.start AS starts, explode(filter(counts, one -> one.num = most)) AS hot
  FROM (
    SELECT w, max(num) AS most, collect_list(struct(auction, num)) AS counts
    FROM (
      SELECT auction, window(dateTime, '10 seconds', '2 seconds') AS w, count(*) AS num
      FROM bid
      GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')
    )
    GROUP BY w
  )
)
