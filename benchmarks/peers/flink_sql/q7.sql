SELECT b.auction, b.price, b.bidder, b.`dateTime`, b.extra
FROM bid b
JOIN (
  SELECT MAX(price) AS highest, window_end AS ends
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) top ON b.price = top.highest
WHERE CAST(b.`dateTime` AS TIMESTAMP(3)) BETWEEN top.ends - INTERVAL '10' SECOND AND top.ends
