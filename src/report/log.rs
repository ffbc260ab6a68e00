//! jobrun's own messages on stderr: `jobrun: JOB MESSAGE [run ID]`, one line each.

use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;

/// Says how much is said: failures and warnings always, what happens on a terminal or in Kubernetes, whose people
/// read logs; a crontab mails whatever is printed.
pub fn install(verbose: u8, is_quiet: bool) {
    let is_watched =
        std::io::stderr().is_terminal() || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let level = match verbose {
        _ if is_quiet => LevelFilter::ERROR,
        0 if !is_watched => LevelFilter::WARN,
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let layer = tracing_subscriber::fmt::layer()
        .event_format(Line)
        .with_writer(std::io::stderr);
    let subscriber = tracing_subscriber::registry().with(level).with(layer);
    // The only error is that one is installed already, and then that one speaks.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Writes an event as one line.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
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
        writer.write_str("jobrun: ")?;
        if *event.metadata().level() == Level::WARN {
            writer.write_str("warning: ")?;
        }
        if let Some(job) = &fields.job {
            write!(writer, "{job} ")?;
        }
        writer.write_str(&fields.message)?;
        if let Some(run) = &fields.run {
            write!(writer, " [run {run}]")?;
        }
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
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }
}
