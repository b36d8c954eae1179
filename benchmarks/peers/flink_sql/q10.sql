SELECT
  auction, bidder, price, `dateTime`, extra,
  DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`,
  DATE_FORMAT(`dateTime`, 'HH:mm') AS `minute`
FROM bid
