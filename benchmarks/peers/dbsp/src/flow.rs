//! What goes into a circuit, and what comes out of it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

use dbsp::typed_batch::{BatchReader, IndexedZSetReader};
use dbsp::utils::Tup2;
use dbsp::{DBData, OrdZSet, RootCircuit, Stream, ZSetHandle, ZWeight};
use serde_json::Value;

use crate::events::Event;

pub type Rows<T> = Stream<RootCircuit, OrdZSet<T>>;

/// An input: rows are made of events before the clock starts, and handed over batch by batch.
pub trait Feed: Send {
    fn prepare(&mut self, events: &[Event]);
    fn push(&mut self);
}

struct Table<T: DBData> {
    handle: ZSetHandle<T>,
    row: fn(&Event) -> Option<T>,
    batches: VecDeque<Vec<Tup2<T, ZWeight>>>,
}

impl<T: DBData> Feed for Table<T> {
    fn prepare(&mut self, events: &[Event]) {
        let rows = events.iter().filter_map(self.row);
        self.batches.push_back(rows.map(|row| Tup2(row, 1)).collect());
    }

    fn push(&mut self) {
        if let Some(mut batch) = self.batches.pop_front() {
            self.handle.append(&mut batch);
        }
    }
}

/// A table of the columns that a query reads: a columnar file would hand over no others.
pub fn table<T: DBData>(
    circuit: &RootCircuit,
    feeds: &mut Vec<Box<dyn Feed>>,
    row: fn(&Event) -> Option<T>,
) -> Rows<T> {
    let (stream, handle) = circuit.add_input_zset::<T>();
    feeds.push(Box::new(Table { handle, row, batches: VecDeque::new() }));
    stream
}

static CHANGES: AtomicU64 = AtomicU64::new(0);
static KEPT: Mutex<Option<HashMap<String, ZWeight>>> = Mutex::new(None);

/// Count the changes of the result; keep its rows, as lines of JSON, where somebody asked for them.
pub fn result<T: DBData>(rows: &Rows<T>, text: fn(&T) -> Value) {
    rows.inspect(move |batch| {
        let mut changes = 0;
        let mut kept = KEPT.lock().expect("no thread fails while it holds the lock");
        match kept.as_mut() {
            None => changes += dbsp::trace::BatchReader::len(batch.inner()) as u64,
            Some(kept) => {
                for (row, (), weight) in batch.iter() {
                    *kept.entry(text(&row).to_string()).or_default() += weight;
                    changes += 1;
                }
            }
        }
        CHANGES.fetch_add(changes, Ordering::Relaxed);
    });
}

/// From now on rows are kept.
pub fn keep_rows() {
    *KEPT.lock().expect("no circuit runs") = Some(HashMap::new());
}

/// The lines of the rows that are left, each as often as its row.
pub fn kept_rows() -> Vec<String> {
    let kept = KEPT.lock().expect("no circuit runs").take().unwrap_or_default();
    kept.into_iter()
        .flat_map(|(line, weight)| std::iter::repeat_n(line, weight.max(0) as usize))
        .collect()
}

/// The changes of the result since the last call.
pub fn take_changes() -> u64 {
    CHANGES.swap(0, Ordering::Relaxed)
}
