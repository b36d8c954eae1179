SELECT b.auction, b.bidder, b.price, b.`dateTime`, side.name
FROM bid b
JOIN (VALUES (0, 'none'), (1, 'one'), (2, 'two'), (3, 'three')) AS side (number, name)
  ON MOD(b.auction, 10) = side.number
