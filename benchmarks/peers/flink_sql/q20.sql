SELECT
  b.auction, b.bidder, b.price, b.channel, b.`dateTime` AS bidTime,
  a.itemName, a.initialBid, a.reserve, a.`dateTime` AS auctionTime, a.expires, a.seller
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10
