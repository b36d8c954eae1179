//! Nexmark on the DBSP crate: incremental circuits in memory, over rows that are there when the clock starts.
//!
//!     nexmark-on-dbsp EVENTS QUERY RUNS [ROWS]
//!
//! EVENTS is a file of the generator's events, RUNS how many are timed, ROWS the file for the result's rows,
//! which cost one more run. Nothing is read from Kafka, decoded or kept on disk. The answer is a line of JSON.
//! A circuit has a worker for each core that the process may use: `taskset -c 0` gives it one.

mod events;
mod flow;
mod queries;

use std::io::Write;
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::{bail, Result};
use dbsp::mimalloc::MiMalloc;
use dbsp::Runtime;
use serde_json::json;

use events::Event;
use flow::Feed;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Events of a transaction.
const BATCH: usize = 40_000;

/// The whole backlog through a new circuit; seconds from the first batch to the end of the last.
fn run(query: &str, events: &[Event]) -> Result<f64> {
    let name = query.to_string();
    let workers = available_parallelism()?.get();
    let (mut circuit, mut feeds) = Runtime::init_circuit(workers, move |circuit| {
        let mut feeds: Vec<Box<dyn Feed>> = Vec::new();
        queries::build(&name, circuit, &mut feeds);
        Ok(feeds)
    })?;
    let batches = events.chunks(BATCH);
    let steps = batches.len();
    for batch in batches {
        for feed in &mut feeds {
            feed.prepare(batch);
        }
    }
    let started = Instant::now();
    for _ in 0..steps {
        for feed in &mut feeds {
            feed.push();
        }
        circuit.transaction()?;
    }
    let seconds = started.elapsed().as_secs_f64();
    circuit.kill().ok();
    Ok(seconds)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, query, runs, rows @ ..] = arguments.as_slice() else {
        bail!("expected: nexmark-on-dbsp EVENTS QUERY RUNS [ROWS]");
    };
    let Some(kinds) = queries::kinds(query) else {
        let refused = "no circuit is written for it";
        println!("ANSWER {}", json!({"seconds": [], "refused": refused, "failed": ""}));
        return Ok(());
    };
    let events = events::read(&PathBuf::from(path), kinds)?;
    let mut seconds = Vec::new();
    for number in 0..runs.parse()? {
        seconds.push(run(query, &events)?);
        eprintln!("{query}, run {number}: {} changes", flow::take_changes());
    }
    if let [rows] = rows {
        flow::keep_rows();
        run(query, &events)?;
        let mut file = std::io::BufWriter::new(std::fs::File::create(rows)?);
        for line in flow::kept_rows() {
            writeln!(file, "{line}")?;
        }
        file.flush()?;
    }
    println!("ANSWER {}", json!({"seconds": seconds, "refused": "", "failed": ""}));
    Ok(())
}
