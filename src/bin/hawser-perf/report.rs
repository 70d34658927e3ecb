//! What a measurement has shown: a table for people, or one object for programs.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::bench::Figures;
use crate::plan::{Bench, Plan};

/// Writes a line to standard output, at once.
pub(crate) fn line(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    written.map_err(|error| format!("standard output: {error}"))
}

/// Figures, as they come.
pub(crate) struct Report {
    as_json: bool,
    bench: Bench,
    /// Of the object.
    head: Value,
    results: Vec<Value>,
}

/// Figures without more digits than they are worth: three behind the point, or the first three where those are further behind.
fn rounded(value: f64) -> f64 {
    let mut scale = 1000.0;
    while value > 0.0 && value * scale < 100.0 {
        scale *= 10.0;
    }
    (value * scale).round() / scale
}

/// Bytes of `figures` in a second, in units of a million.
fn megabytes(figures: &Figures) -> f64 {
    figures.case.bytes as f64 * f64::from(figures.case.iterations) * 1e3 / figures.whole.max(1) as f64
}

/// Messages in a second. A latency's are one way, of which each round has two.
fn messages(figures: &Figures) -> f64 {
    f64::from(figures.case.iterations) * 1e9 / figures.whole.max(1) as f64
}

impl Report {
    /// Begins, with what is measured.
    pub(crate) fn begin(plan: &Plan, device: &str, peer: &str, as_json: bool) -> Result<Self, String> {
        let head = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "transport": plan.transport,
            "device": device,
            "peer": peer,
            "bench": plan.bench.name(),
            "operation": plan.operation.name(),
            "window": plan.window,
        });
        if !as_json {
            let (bench, operation) = (plan.bench.name(), plan.operation.name());
            let window = match plan.bench {
                Bench::Latency => String::new(),
                _ => format!(", up to {} under way", plan.window),
            };
            line(&format!("# {} ({device}) with {peer}: {bench} of {operation}{window}", plan.transport))?;
            line(&match plan.bench {
                Bench::Latency => format!(
                    "{:>10} {:>10} {:>12} {:>12} {:>12}",
                    "bytes", "iterations", "least us", "median us", "p99 us"
                ),
                _ => format!("{:>10} {:>10} {:>12} {:>14}", "bytes", "iterations", "MB/s", "messages/s"),
            })?;
        }
        Ok(Self { as_json, bench: plan.bench, head, results: Vec::new() })
    }

    /// One line, or one element.
    pub(crate) fn add(&mut self, figures: &Figures) -> Result<(), String> {
        let (bytes, iterations) = (figures.case.bytes, figures.case.iterations);
        let single =
            figures.single.map(|single| [single.least, single.median, single.p99].map(|nanos| nanos / 1e3));
        if self.as_json {
            let mut value =
                json!({ "bytes": bytes, "iterations": iterations, "seconds": figures.whole as f64 / 1e9 });
            match single {
                Some([least, median, p99]) => {
                    value["least_us"] = json!(rounded(least));
                    value["median_us"] = json!(rounded(median));
                    value["p99_us"] = json!(rounded(p99));
                }
                None => {
                    value["mb_per_s"] = json!(rounded(megabytes(figures)));
                    value["messages_per_s"] = json!(rounded(messages(figures)));
                }
            }
            self.results.push(value);
            return Ok(());
        }
        let [least, median, p99] = single.unwrap_or_default();
        line(&match self.bench {
            Bench::Latency => {
                format!("{bytes:>10} {iterations:>10} {least:>12.2} {median:>12.2} {p99:>12.2}")
            }
            _ => format!(
                "{bytes:>10} {iterations:>10} {:>12.2} {:>14.0}",
                megabytes(figures),
                messages(figures)
            ),
        })
    }

    /// The end.
    pub(crate) fn end(mut self) -> Result<(), String> {
        if !self.as_json {
            return Ok(());
        }
        self.head["results"] = Value::Array(self.results);
        line(&format!("{:#}", self.head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Case;

    #[test]
    fn megabytes_and_messages_are_by_the_second() {
        let case = Case { bytes: 1000, iterations: 500, warm_up: 0 };
        let figures = Figures { case, whole: 250_000_000, single: None };
        assert_eq!((megabytes(&figures), messages(&figures)), (2.0, 2000.0));
    }

    #[test]
    fn what_is_little_is_not_nothing() {
        let figures = [612.191_234, 1.5, 0.25, 0.000_277_313, 1e-9, 0.0].map(rounded);
        assert_eq!(figures, [612.191, 1.5, 0.25, 0.000_277, 1e-9, 0.0]);
    }
}
