//! The queries as circuits, in the words of the example's SQL.

use std::cmp::Ordering;

use dbsp::operator::{CmpFunc, Max, Min};
use dbsp::utils::{Tup2, Tup3, Tup4, Tup5, Tup6, Tup7, Tup8};
use dbsp::{OrdIndexedZSet, RootCircuit, Stream, ZWeight};
use serde_json::{json, Value};

use crate::events::{day, hour, minute, Auction, Bid, Event, Person};
use crate::flow::{result, table, Feed, Rows};

type Feeds = Vec<Box<dyn Feed>>;
type Indexed<K, V> = Stream<RootCircuit, OrdIndexedZSet<K, V>>;

const CHEAP: u64 = 10_000;
const DEAR: u64 = 1_000_000;
const WINDOW: u64 = 10_000;
const SLIDE: u64 = 2_000;

/// The kinds of events that a query reads; None where there is no circuit of it.
pub fn kinds(query: &str) -> Option<&'static [&'static str]> {
    match query {
        "q3" | "q8" => Some(&["person", "auction"]),
        "q4" | "q9" | "q20" => Some(&["auction", "bid"]),
        "q0" | "q1" | "q2" | "q5" | "q7" | "q10" | "q13" | "q14" | "q15" | "q16" | "q17"
        | "q18" | "q19" | "q21" | "q22" => Some(&["bid"]),
        _ => None,
    }
}

/// The circuit of a query that `kinds` knows.
pub fn build(query: &str, circuit: &RootCircuit, feeds: &mut Feeds) {
    match query {
        "q0" => q0(circuit, feeds),
        "q1" => q1(circuit, feeds),
        "q2" => q2(circuit, feeds),
        "q3" => q3(circuit, feeds),
        "q4" => q4(circuit, feeds),
        "q5" => q5(circuit, feeds),
        "q7" => q7(circuit, feeds),
        "q8" => q8(circuit, feeds),
        "q9" => q9(circuit, feeds),
        "q10" => q10(circuit, feeds),
        "q13" => q13(circuit, feeds),
        "q14" => q14(circuit, feeds),
        "q15" => q15(circuit, feeds),
        "q16" => q16(circuit, feeds),
        "q17" => q17(circuit, feeds),
        "q18" => q18(circuit, feeds),
        "q19" => q19(circuit, feeds),
        "q20" => q20(circuit, feeds),
        "q21" => q21(circuit, feeds),
        "q22" => q22(circuit, feeds),
        _ => unreachable!("`kinds` is asked first"),
    }
}

fn person(event: &Event) -> Option<&Person> {
    match event {
        Event::Person(person) => Some(person),
        _ => None,
    }
}

fn auction(event: &Event) -> Option<&Auction> {
    match event {
        Event::Auction(auction) => Some(auction),
        _ => None,
    }
}

fn bid(event: &Event) -> Option<&Bid> {
    match event {
        Event::Bid(bid) => Some(bid),
        _ => None,
    }
}

/// Auction, bidder, price, time, extra.
type PlainBid = Tup5<u64, u64, u64, u64, String>;

fn plain_bid(event: &Event) -> Option<PlainBid> {
    bid(event).map(|b| Tup5(b.auction, b.bidder, b.price, b.date_time, b.extra.clone()))
}

fn q0(circuit: &RootCircuit, feeds: &mut Feeds) {
    let bids = table(circuit, feeds, plain_bid);
    let rows = bids.map(|b| b.clone());
    result(&rows, |Tup5(auction, bidder, price, time, extra)| {
        json!([auction, bidder, price, time, extra])
    });
}

fn q1(circuit: &RootCircuit, feeds: &mut Feeds) {
    let bids = table(circuit, feeds, plain_bid);
    // Thousandths: a decimal of three places.
    let rows = bids.map(|Tup5(auction, bidder, price, time, extra)| {
        Tup5(*auction, *bidder, *price * 908, *time, extra.clone())
    });
    result(&rows, |Tup5(auction, bidder, price, time, extra)| {
        json!([auction, bidder, *price as f64 / 1000.0, time, extra])
    });
}

fn q2(circuit: &RootCircuit, feeds: &mut Feeds) {
    let bids = table(circuit, feeds, |e| bid(e).map(|b| Tup2(b.auction, b.price)));
    let rows = bids.filter(|Tup2(auction, _)| auction % 123 == 0);
    result(&rows, |Tup2(auction, price)| json!([auction, price]));
}

fn q3(circuit: &RootCircuit, feeds: &mut Feeds) {
    let auctions = table(circuit, feeds, |e| {
        auction(e).map(|a| Tup3(a.seller, a.id, a.category))
    });
    let people = table(circuit, feeds, |e| {
        person(e).map(|p| Tup4(p.id, p.name.clone(), p.city.clone(), p.state.clone()))
    });
    let sold = auctions.flat_map_index(|Tup3(seller, id, category)| {
        (*category == 10).then_some((*seller, *id))
    });
    let sellers = people.flat_map_index(|Tup4(id, name, city, state)| {
        ["OR", "ID", "CA"]
            .contains(&state.as_str())
            .then(|| (*id, Tup3(name.clone(), city.clone(), state.clone())))
    });
    let rows = sold.join(&sellers, |_, id, Tup3(name, city, state)| {
        Tup4(name.clone(), city.clone(), state.clone(), *id)
    });
    result(&rows, |Tup4(name, city, state, id)| json!([name, city, state, id]));
}

fn q4(circuit: &RootCircuit, feeds: &mut Feeds) {
    let auctions = table(circuit, feeds, |e| {
        auction(e).map(|a| Tup4(a.id, a.category, a.date_time, a.expires))
    });
    let bids = table(circuit, feeds, |e| {
        bid(e).map(|b| Tup3(b.auction, b.price, b.date_time))
    });
    let open = auctions
        .map_index(|Tup4(id, category, opens, expires)| (*id, Tup3(*category, *opens, *expires)));
    let offers = bids.map_index(|Tup3(auction, price, time)| (*auction, Tup2(*price, *time)));
    let in_time: Indexed<Tup2<u64, u64>, u64> =
        open.join_index(&offers, |id, Tup3(category, opens, expires), Tup2(price, time)| {
            (opens <= time && time <= expires).then_some((Tup2(*id, *category), *price))
        });
    let finals = in_time.aggregate(Max);
    let totals: Indexed<u64, Tup2<ZWeight, ZWeight>> = finals
        .map_index(|(Tup2(_, category), price)| (*category, *price))
        .aggregate_linear(|price| Tup2(*price as ZWeight, 1 as ZWeight));
    let rows = totals.map(|(category, Tup2(sum, count))| Tup3(*category, *sum, *count));
    result(&rows, |Tup3(category, sum, count)| json!([category, *sum as f64 / *count as f64]));
}

fn q5(circuit: &RootCircuit, feeds: &mut Feeds) {
    let bids = table(circuit, feeds, |e| bid(e).map(|b| Tup2(b.auction, b.date_time)));
    let in_windows = bids.flat_map(|Tup2(auction, time)| {
        let (auction, newest) = (*auction, time / SLIDE * SLIDE);
        (0..WINDOW / SLIDE).map(move |back| Tup2(newest - back * SLIDE, auction))
    });
    let counts: Indexed<Tup2<u64, u64>, ZWeight> = in_windows.weighted_count();
    let by_window = counts.map_index(|(Tup2(starts, auction), num)| (*starts, Tup2(*num, *auction)));
    let most = by_window
        .map_index(|(starts, Tup2(num, _))| (*starts, *num))
        .aggregate(Max)
        .map_index(|(starts, num)| (Tup2(*starts, *num), ()));
    let by_count = by_window
        .map_index(|(starts, Tup2(num, auction))| (Tup2(*starts, *num), *auction));
    let rows = by_count.join(&most, |Tup2(starts, num), auction, ()| Tup3(*starts, *auction, *num));
    result(&rows, |Tup3(starts, auction, num)| json!([starts, auction, num]));
}

fn q7(circuit: &RootCircuit, feeds: &mut Feeds) {
    let bids = table(circuit, feeds, plain_bid);
    let highest = bids
        .map_index(|Tup5(_, _, price, time, _)| (time / WINDOW, *price))
        .aggregate(Max)
        .map_index(|(window, price)| (Tup2(*window, *price), ()));
    // What came at the end of a window, on the dot, is compared with that window too.
    let by_price = bids.flat_map_index(|b| {
        let Tup5(auction, bidder, price, time, extra) = b.clone();
        let window = time / WINDOW;
        let first = if time % WINDOW == 0 { window - 1 } else { window };
        (first..=window).map(move |window| {
            (Tup2(window, price), Tup5(auction, price, bidder, time, extra.clone()))
        })
    });
    let rows = by_price.join(&highest, |_, bid, ()| bid.clone());
    result(&rows, |Tup5(auction, price, bidder, time, extra)| {
        json!([auction, price, bidder, time, extra])
    });
}

fn q8(circuit: &RootCircuit, feeds: &mut Feeds) {
    let people = table(circuit, feeds, |e| {
        person(e).map(|p| Tup3(p.id, p.name.clone(), p.date_time / WINDOW))
    });
    let auctions =
        table(circuit, feeds, |e| auction(e).map(|a| Tup2(a.seller, a.date_time / WINDOW)));
    let new = people
        .distinct()
        .map_index(|Tup3(id, name, window)| (Tup2(*id, *window), name.clone()));
    let sellers = auctions.distinct().map_index(|seller| (*seller, ()));
    let rows = new.join(&sellers, |Tup2(id, window), name, ()| Tup3(*id, name.clone(), *window));
    result(&rows, |Tup3(id, name, window)| json!([id, name, window * WINDOW]));
}

fn q9(circuit: &RootCircuit, feeds: &mut Feeds) {
    let auctions = table(circuit, feeds, |e| {
        auction(e).map(|a| {
            let name = a.item_name.clone();
            Tup7(a.id, name, a.category, a.reserve, a.seller, a.date_time, a.expires)
        })
    });
    let bids = table(circuit, feeds, |e| {
        bid(e).map(|b| Tup4(b.auction, b.price, b.date_time, b.bidder))
    });
    let open = auctions.map_index(|Tup7(id, .., opens, expires)| (*id, Tup2(*opens, *expires)));
    let offers = bids
        .map_index(|Tup4(auction, price, time, bidder)| (*auction, Tup3(*price, *time, *bidder)));
    // The greatest price, then the least time, then the least bidder.
    let in_time: Indexed<u64, Tup3<u64, u64, u64>> =
        open.join_index(&offers, |id, Tup2(opens, expires), Tup3(price, time, bidder)| {
            (opens <= time && time <= expires)
                .then_some((*id, Tup3(*price, u64::MAX - time, u64::MAX - bidder)))
        });
    let won = in_time.aggregate(Max);
    let items = auctions.map_index(|Tup7(id, name, category, reserve, seller, ..)| {
        (*id, Tup4(name.clone(), *category, *reserve, *seller))
    });
    let rows = items.join(&won, |id, Tup4(name, category, reserve, seller), won| {
        let Tup3(price, time, bidder) = won;
        let item = Tup5(*id, name.clone(), *category, *reserve, *seller);
        Tup2(item, Tup3(u64::MAX - bidder, *price, u64::MAX - time))
    });
    result(&rows, |Tup2(item, bid)| {
        let Tup5(id, name, category, reserve, seller) = item;
        let Tup3(bidder, price, time) = bid;
        json!([id, name, category, reserve, seller, bidder, price, time])
    });
}

fn q10(circuit: &RootCircuit, feeds: &mut Feeds) {
    let bids = table(circuit, feeds, plain_bid);
    let rows = bids.map(|b| Tup3(b.clone(), day(b.3), minute(b.3)));
    result(&rows, |Tup3(bid, day, minute)| {
        let Tup5(auction, bidder, price, time, extra) = bid;
        json!([auction, bidder, price, time, extra, day, minute])
    });
}

fn q13(circuit: &RootCircuit, feeds: &mut Feeds) {
    let bids = table(circuit, feeds, |e| {
        bid(e).map(|b| Tup4(b.auction, b.bidder, b.price, b.date_time))
    });
    let rows = bids.flat_map(|b| {
        let side = ["none", "one", "two", "three"];
        let b = b.clone();
        side.get((b.0 % 10) as usize).map(|name| Tup2(b, name.to_string()))
    });
    result(&rows, |Tup2(bid, name)| {
        let Tup4(auction, bidder, price, time) = bid;
        json!([auction, bidder, price, time, name])
    });
}

fn q14(circuit: &RootCircuit, feeds: &mut Feeds) {
    let bids = table(circuit, feeds, plain_bid);
    let rows = bids.flat_map(|b| {
        let Tup5(auction, bidder, price, time, extra) = b;
        let thousandths = price * 908;
        (1_000_000_000 < thousandths && thousandths < 50_000_000_000).then(|| {
            let kind = match hour(*time) {
                8..=18 => "dayTime",
                0..=6 | 20.. => "nightTime",
                _ => "otherTime",
            };
            let letters = extra.bytes().filter(|letter| *letter == b'c').count() as u64;
            let bid = Tup5(*auction, *bidder, thousandths, *time, extra.clone());
            Tup3(bid, kind.to_string(), letters)
        })
    });
    result(&rows, |Tup3(bid, kind, letters)| {
        let Tup5(auction, bidder, price, time, extra) = bid;
        json!([auction, bidder, *price as f64 / 1000.0, kind, time, extra, letters])
    });
}

/// Day, bidder, auction, price.
type RankedBid = Tup4<u64, u64, u64, u64>;

fn ranked_bid(event: &Event) -> Option<RankedBid> {
    bid(event).map(|b| Tup4(b.date_time / 86_400_000, b.bidder, b.auction, b.price))
}

fn one_if(holds: bool) -> ZWeight {
    ZWeight::from(holds)
}

/// Of each day the number of different values.
fn different(of_days: &Rows<Tup2<u64, u64>>) -> Rows<u64> {
    of_days.distinct().map(|Tup2(day, _)| *day)
}

fn q15(circuit: &RootCircuit, feeds: &mut Feeds) {
    type Counts = Tup8<ZWeight, ZWeight, ZWeight, ZWeight, ZWeight, ZWeight, ZWeight, ZWeight>;
    let bids = table(circuit, feeds, ranked_bid);
    let dear = bids.filter(|b| b.3 >= DEAR);
    let plain: Indexed<u64, Counts> = bids.map_index(|Tup4(day, _, _, price)| {
        let cheap = one_if(*price < CHEAP);
        let high = one_if(*price >= DEAR);
        (*day, Tup8(1, cheap, 1 - cheap - high, high, 0, 0, 0, 0))
    });
    let bidders = different(&bids.map(|b| Tup2(b.0, b.1)))
        .map_index(|day| (*day, Tup8(0, 0, 0, 0, 1, 0, 0, 0)));
    let dear_bidders = different(&dear.map(|b| Tup2(b.0, b.1)))
        .map_index(|day| (*day, Tup8(0, 0, 0, 0, 0, 1, 0, 0)));
    let auctions = different(&bids.map(|b| Tup2(b.0, b.2)))
        .map_index(|day| (*day, Tup8(0, 0, 0, 0, 0, 0, 1, 0)));
    let dear_auctions = different(&dear.map(|b| Tup2(b.0, b.2)))
        .map_index(|day| (*day, Tup8(0, 0, 0, 0, 0, 0, 0, 1)));
    let rows = plain
        .sum([&bidders, &dear_bidders, &auctions, &dear_auctions])
        .aggregate_linear(|counts| counts.clone())
        .map(|(day, counts)| Tup2(*day, counts.clone()));
    result(&rows, |Tup2(number, counts)| {
        let Tup8(bids, cheap, fair, dear, bidders, dear_bidders, auctions, dear_auctions) = counts;
        let day = day(number * 86_400_000);
        json!([day, bids, cheap, fair, dear, bidders, dear_bidders, auctions, dear_auctions])
    });
}

fn q16(circuit: &RootCircuit, feeds: &mut Feeds) {
    type Key = Tup2<String, u64>;
    type Counts = Tup5<ZWeight, ZWeight, ZWeight, ZWeight, ZWeight>;
    let bids = table(circuit, feeds, |e| {
        bid(e).map(|b| Tup5(b.channel.clone(), b.date_time, b.bidder, b.auction, b.price))
    });
    let key = |channel: &String, time: &u64| Tup2(channel.clone(), time / 86_400_000);
    let plain: Indexed<Key, Counts> = bids.map_index(move |Tup5(channel, time, _, _, price)| {
        let counts = Tup5(1, one_if(*price < CHEAP), one_if(*price >= DEAR), 0, 0);
        (key(channel, time), counts)
    });
    let bidders: Indexed<Key, Counts> = bids
        .map(move |Tup5(channel, time, bidder, _, _)| Tup2(key(channel, time), *bidder))
        .distinct()
        .map_index(|Tup2(key, _)| (key.clone(), Tup5(0, 0, 0, 1, 0)));
    let auctions: Indexed<Key, Counts> = bids
        .map(move |Tup5(channel, time, _, auction, _)| Tup2(key(channel, time), *auction))
        .distinct()
        .map_index(|Tup2(key, _)| (key.clone(), Tup5(0, 0, 0, 0, 1)));
    let counts = plain.sum([&bidders, &auctions]).aggregate_linear(|counts| counts.clone());
    // Within a day the greatest minute in numbers is the greatest in letters.
    let last = bids
        .map_index(move |Tup5(channel, time, ..)| (key(channel, time), time / 60_000))
        .aggregate(Max);
    let rows = counts.join(&last, |key, counts, last| Tup3(key.clone(), counts.clone(), *last));
    result(&rows, |Tup3(key, counts, last)| {
        let Tup2(channel, _) = key;
        let Tup5(bids, cheap, dear, bidders, auctions) = counts;
        let time = last * 60_000;
        json!([channel, day(time), minute(time), bids, cheap, dear, bidders, auctions])
    });
}

fn q17(circuit: &RootCircuit, feeds: &mut Feeds) {
    type Sums = Tup4<ZWeight, ZWeight, ZWeight, ZWeight>;
    let bids = table(circuit, feeds, |e| {
        bid(e).map(|b| Tup3(b.auction, b.date_time / 86_400_000, b.price))
    });
    let prices: Indexed<Tup2<u64, u64>, u64> =
        bids.map_index(|Tup3(auction, day, price)| (Tup2(*auction, *day), *price));
    let sums: Indexed<Tup2<u64, u64>, Sums> = prices.aggregate_linear(|price| {
        Tup4(1, one_if(*price < CHEAP), one_if(*price >= DEAR), *price as ZWeight)
    });
    let lowest = prices.aggregate(Min);
    let highest = prices.aggregate(Max);
    let with_lowest: Indexed<Tup2<u64, u64>, Tup2<Sums, u64>> =
        sums.join_index(&lowest, |key, sums, lowest| Some((*key, Tup2(sums.clone(), *lowest))));
    let rows = with_lowest.join(&highest, |key, Tup2(sums, lowest), highest| {
        Tup4(*key, sums.clone(), *lowest, *highest)
    });
    result(&rows, |Tup4(key, sums, lowest, highest)| {
        let Tup2(auction, number) = key;
        let Tup4(bids, cheap, dear, total) = sums;
        let average = *total as f64 / *bids as f64;
        json!([auction, day(number * 86_400_000), bids, cheap, dear, lowest, highest, average, total])
    });
}

fn q18(circuit: &RootCircuit, feeds: &mut Feeds) {
    let bids = table(circuit, feeds, |e| {
        bid(e).map(|b| Tup5(b.auction, b.bidder, b.price, b.channel.clone(), b.date_time))
    });
    let offers = bids.map_index(|Tup5(auction, bidder, price, channel, time)| {
        (Tup2(*bidder, *auction), Tup3(*time, *price, channel.clone()))
    });
    let rows = offers.topk_desc(1).map(|(Tup2(bidder, auction), Tup3(time, price, channel))| {
        Tup5(*auction, *bidder, *price, channel.clone(), *time)
    });
    result(&rows, |Tup5(auction, bidder, price, channel, time)| {
        json!([auction, bidder, price, channel, time])
    });
}

/// Price, time, bidder, channel, extra.
type Offer = Tup5<u64, u64, u64, String, String>;

/// The highest price first; of equal ones the earliest, then by the other columns.
struct BestFirst;

impl CmpFunc<Offer> for BestFirst {
    fn cmp(left: &Offer, right: &Offer) -> Ordering {
        right.0.cmp(&left.0).then_with(|| left.cmp(right))
    }
}

fn q19(circuit: &RootCircuit, feeds: &mut Feeds) {
    let bids = table(circuit, feeds, |e| {
        bid(e).map(|b| {
            let offer = Tup5(b.price, b.date_time, b.bidder, b.channel.clone(), b.extra.clone());
            Tup2(b.auction, offer)
        })
    });
    let offers = bids.map_index(|Tup2(auction, offer)| (*auction, offer.clone()));
    let rows = offers
        .topk_row_number_custom_order::<BestFirst, _, _>(10, |place, offer| {
            Tup4(offer.2, offer.0, offer.1, place)
        })
        .map(|(auction, Tup4(bidder, price, time, place))| {
            Tup5(*auction, *bidder, *price, *time, *place)
        });
    result(&rows, |Tup5(auction, bidder, price, time, place)| {
        json!([auction, bidder, price, time, place])
    });
}

fn q20(circuit: &RootCircuit, feeds: &mut Feeds) {
    let bids = table(circuit, feeds, |e| {
        bid(e).map(|b| Tup5(b.auction, b.bidder, b.price, b.channel.clone(), b.date_time))
    });
    let auctions = table(circuit, feeds, |e| {
        auction(e).map(|a| {
            let item = Tup2(a.item_name.clone(), a.initial_bid);
            Tup7(a.id, a.category, item, a.reserve, a.date_time, a.expires, a.seller)
        })
    });
    let offers = bids.map_index(|Tup5(auction, bidder, price, channel, time)| {
        (*auction, Tup4(*bidder, *price, channel.clone(), *time))
    });
    let chosen = auctions.flat_map_index(|a| {
        let Tup7(id, category, Tup2(name, first), reserve, opens, expires, seller) = a;
        (*category == 10)
            .then(|| (*id, Tup6(name.clone(), *first, *reserve, *opens, *expires, *seller)))
    });
    let rows = offers.join(&chosen, |id, bid, item| Tup3(*id, bid.clone(), item.clone()));
    result(&rows, |Tup3(id, bid, item)| {
        let Tup4(bidder, price, channel, time) = bid;
        let Tup6(name, first, reserve, opens, expires, seller) = item;
        json!([id, bidder, price, channel, time, name, first, reserve, opens, expires, seller])
    });
}

/// Auction, bidder, price, channel, address.
type AddressedBid = Tup5<u64, u64, u64, String, String>;

fn addressed_bid(event: &Event) -> Option<AddressedBid> {
    bid(event).map(|b| Tup5(b.auction, b.bidder, b.price, b.channel.clone(), b.url.clone()))
}

/// The digits after `channel_id=` in an address, of which one must be there.
fn channel_id(url: &str) -> Option<String> {
    const NAME: &str = "channel_id=";
    url.match_indices(NAME).find_map(|(place, _)| {
        let is_field = url[..place].ends_with(['?', '&']);
        let rest = &url[place + NAME.len()..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        (is_field && digits > 0).then(|| rest[..digits].to_string())
    })
}

fn q21(circuit: &RootCircuit, feeds: &mut Feeds) {
    let bids = table(circuit, feeds, addressed_bid);
    let rows = bids.flat_map(|Tup5(auction, bidder, price, channel, url)| {
        let id = match channel.to_lowercase().as_str() {
            "apple" => Some("0".to_string()),
            "google" => Some("1".to_string()),
            "facebook" => Some("2".to_string()),
            "baidu" => Some("3".to_string()),
            _ => channel_id(url),
        };
        id.map(|id| Tup5(*auction, *bidder, *price, channel.clone(), id))
    });
    result(&rows, |Tup5(auction, bidder, price, channel, id)| {
        json!([auction, bidder, price, channel, id])
    });
}

fn q22(circuit: &RootCircuit, feeds: &mut Feeds) {
    let bids = table(circuit, feeds, addressed_bid);
    let rows = bids.map(|Tup5(auction, bidder, price, channel, url)| {
        let mut folders = url.split('/').skip(3).map(str::to_string);
        let mut next = || folders.next().unwrap_or_default();
        let dirs = Tup3(next(), next(), next());
        Tup2(Tup4(*auction, *bidder, *price, channel.clone()), dirs)
    });
    result(&rows, |Tup2(bid, dirs)| -> Value {
        let Tup4(auction, bidder, price, channel) = bid;
        let Tup3(first, second, third) = dirs;
        json!([auction, bidder, price, channel, first, second, third])
    });
}
