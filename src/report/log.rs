//! jobrun's own messages on stderr, one line each: `jobrun: JOB MESSAGE [run ID]`, or JSON.

use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;
use std::sync::OnceLock;

use chrono::{SecondsFormat, Utc};
use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;

use super::colour::{self, Tint};
use super::outlet::Outlet;

/// How lines on stderr are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for collectors of logs.
    Json,
}

/// The format of this process, once it is known.
static FORMAT: OnceLock<Format> = OnceLock::new();

/// The format that lines on stderr are to have.
pub fn format() -> Format {
    FORMAT.get().copied().unwrap_or_default()
}

/// Says how lines are written, and how much is said: failures and warnings always, what happens on a terminal or in
/// Kubernetes, whose people read logs; a crontab mails whatever is printed.
pub fn install(format: Format, verbose: u8, is_quiet: bool) {
    let is_watched =
        std::io::stderr().is_terminal() || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let level = match verbose {
        _ if is_quiet => LevelFilter::ERROR,
        0 if !is_watched => LevelFilter::WARN,
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let lines = Lines {
        format: *FORMAT.get_or_init(|| format),
        is_coloured: colour::is_on_stderr(),
    };
    let layer = tracing_subscriber::fmt::layer()
        .event_format(lines)
        .with_writer(|| Outlet::Stderr);
    let subscriber = tracing_subscriber::registry().with(level).with(layer);
    // The only error is that one is installed already, and then that one speaks.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// A line as JSON.
#[derive(Serialize)]
pub struct Record<'a> {
    /// When it was said, in UTC.
    time: String,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    level: &'static str,
    /// Whose it is.
    job: Option<&'a str>,
    /// Of which run.
    run: Option<&'a str>,
    /// What is said.
    message: &'a str,
}

impl<'a> Record<'a> {
    /// What is said now.
    pub fn now(level: Level, job: Option<&'a str>, run: Option<&'a str>, message: &'a str) -> Self {
        let level = match level {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        Self {
            time: Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true),
            level,
            job,
            run,
            message,
        }
    }
}

/// Writes an event as one line.
struct Lines {
    format: Format,
    is_coloured: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = *event.metadata().level();
        let line = match self.format {
            Format::Text => fields.text(level, self.is_coloured),
            Format::Json => fields.json(level),
        };
        writer.write_str(&line)?;
        writer.write_char('\n')
    }
}

/// What an event says, whose it is, and any detail.
#[derive(Default)]
struct Fields {
    message: String,
    job: Option<String>,
    run: Option<String>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message.insert_str(0, &value),
            "job" => self.job = Some(value),
            "run" => self.run = Some(value),
            name => {
                let _ = write!(self.message, " {name}={value}");
            }
        }
    }

    fn text(&self, level: Level, is_coloured: bool) -> String {
        let mut line = "jobrun: ".to_owned();
        if level == Level::WARN {
            line.push_str(&if is_coloured {
                Tint::Open.paint("warning:")
            } else {
                "warning:".to_owned()
            });
            line.push(' ');
        }
        if let Some(job) = &self.job {
            line.push_str(job);
            line.push(' ');
        }
        line.push_str(&self.message);
        if let Some(run) = &self.run {
            let _ = write!(line, " [run {run}]");
        }
        line
    }

    fn json(&self, level: Level) -> String {
        let (job, run) = (self.job.as_deref(), self.run.as_deref());
        let record = Record::now(level, job, run, &self.message);
        serde_json::to_string(&record).expect("its keys are strings and its values plain")
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        Fields {
            message: "says \"so\"\nin two lines".into(),
            job: Some("nightly".into()),
            run: Some("id".into()),
        }
    }

    #[test]
    fn a_line_of_text_names_job_and_run() {
        let mut fields = fields();
        fields.message = "failed: exit 3".into();
        assert_eq!(
            fields.text(Level::ERROR, true),
            "jobrun: nightly failed: exit 3 [run id]"
        );
        assert_eq!(
            fields.text(Level::WARN, false),
            "jobrun: warning: nightly failed: exit 3 [run id]"
        );
        assert!(
            fields
                .text(Level::WARN, true)
                .starts_with("jobrun: \x1b[33mwarning:\x1b[0m nightly")
        );
    }

    #[test]
    fn a_line_of_json_is_one_object_with_every_key() {
        let line = fields().json(Level::WARN);
        assert!(!line.contains('\n'));
        let read: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(read["message"], "says \"so\"\nin two lines");
        assert_eq!(
            (&read["level"], &read["job"], &read["run"]),
            (&"warn".into(), &"nightly".into(), &"id".into())
        );
        let time = read["time"].as_str().expect("a time");
        assert_eq!((time.len(), &time[23..]), (24, "Z"), "{time}");
        let bare = Fields::default().json(Level::INFO);
        assert!(bare.contains("\"job\":null,\"run\":null"), "{bare}");
    }
}
