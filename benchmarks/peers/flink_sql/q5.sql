-- Both sides are windows of one kind, so that Flink joins window by window.
WITH counts AS (
  SELECT window_start, window_end, auction, COUNT(*) AS num
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY window_start, window_end, auction
)
SELECT c.window_start AS starts, c.auction, c.num
FROM counts c
JOIN (
  SELECT window_start, window_end, MAX(num) AS most
  FROM counts
  GROUP BY window_start, window_end
) top
ON c.window_start = top.window_start AND c.window_end = top.window_end AND c.num = top.most
