//! The generator's events, one a line: its kind, a tab, its JSON.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Deserializer};

/// Milliseconds since 1970.
pub type Time = u64;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Person {
    pub id: u64,
    pub name: String,
    pub city: String,
    pub state: String,
    #[serde(deserialize_with = "time")]
    pub date_time: Time,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Auction {
    pub id: u64,
    pub item_name: String,
    pub initial_bid: u64,
    pub reserve: u64,
    #[serde(deserialize_with = "time")]
    pub date_time: Time,
    #[serde(deserialize_with = "time")]
    pub expires: Time,
    pub seller: u64,
    pub category: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bid {
    pub auction: u64,
    pub bidder: u64,
    pub price: u64,
    pub channel: String,
    pub url: String,
    #[serde(deserialize_with = "time")]
    pub date_time: Time,
    pub extra: String,
}

pub enum Event {
    Person(Person),
    Auction(Auction),
    Bid(Bid),
}

/// The events of the kinds that are asked for, in order.
pub fn read(path: &Path, kinds: &[&str]) -> Result<Vec<Event>> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut events = Vec::new();
    for line in BufReader::new(file).lines() {
        let line = line?;
        let Some((kind, json)) = line.split_once('\t') else {
            bail!("expected a kind and a tab, found {line}");
        };
        if kinds.contains(&kind) {
            events.push(match kind {
                "person" => Event::Person(serde_json::from_str(json)?),
                "auction" => Event::Auction(serde_json::from_str(json)?),
                _ => Event::Bid(serde_json::from_str(json)?),
            });
        }
    }
    Ok(events)
}

/// `2025-07-01T00:00:00.000Z`.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let text = <&str>::deserialize(deserializer)?;
    let number = |from: usize, to: usize| -> Result<i64, D::Error> {
        text.get(from..to)
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| serde::de::Error::custom(format!("{text} is not a time")))
    };
    let days = days_since_1970(number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let seconds = (days * 24 + number(11, 13)?) * 3600 + number(14, 16)? * 60 + number(17, 19)?;
    Ok((seconds * 1000 + number(20, 23)?) as Time)
}

/// Of a date of the Gregorian calendar: whole years up to it with their leap days, and the days of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap_days = |last: i64| last / 4 - last / 100 + last / 400;
    let is_leap = leap_days(year) > leap_days(year - 1);
    let of_year = BEFORE[month as usize - 1] + i64::from(is_leap && month > 2) + day - 1;
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969) + of_year
}

/// `yyyy-MM-dd`, in UTC.
pub fn day(time: Time) -> String {
    let mut days = (time / 86_400_000) as i64;
    let mut year = 1970;
    while days_since_1970(year + 1, 1, 1) <= days {
        year += 1;
    }
    let month = (1..=12)
        .rev()
        .find(|&month| days_since_1970(year, month, 1) <= days)
        .unwrap_or(1);
    days -= days_since_1970(year, month, 1);
    format!("{year:04}-{month:02}-{:02}", days + 1)
}

/// `HH:mm`, in UTC.
pub fn minute(time: Time) -> String {
    format!("{:02}:{:02}", hour(time), time / 60_000 % 60)
}

pub fn hour(time: Time) -> u64 {
    time / 3_600_000 % 24
}
