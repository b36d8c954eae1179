-- With more than one column to order by, Flink 2.2.1 takes the first row of ROW_NUMBER() = 1 for final and
-- never takes it back. So the time, in milliseconds of the run, and the price are one number.
SELECT auction, bidder, price, channel, `dateTime`
FROM (
  SELECT
    auction, bidder, price, channel, `dateTime`,
    ROW_NUMBER() OVER (
      PARTITION BY bidder, auction ORDER BY
        (
          TIMESTAMPDIFF(SECOND, TIMESTAMP '2025-07-01 00:00:00', CAST(`dateTime` AS TIMESTAMP(3))) * 1000
          + EXTRACT(MILLISECOND FROM `dateTime`)
        ) * 1000000000 + price DESC
    ) AS place
  FROM bid
)
WHERE place = 1
