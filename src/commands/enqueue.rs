//! `jobrun enqueue`: gives a job tasks to do, each known by a key.

use std::io::{self, BufRead, IsTerminal as _, Read as _};

use serde::Serialize;

use super::moment;
use super::pause::event;
use crate::cli;
use crate::config::Config;
use crate::domain::lifecycle::Status;
use crate::domain::schedule::Instant;
use crate::error::{Ending, Error};
use crate::report;
use crate::report::text;
use crate::store::work::{Item, check_key, check_payload};
use crate::store::{self, NewTask, Store};

/// Lines that become tasks in one transaction.
const BATCH: usize = 1000;
/// Fewer, once they have that many bytes.
const BATCH_BYTES: usize = 4 << 20;
/// Longest line.
const LONGEST_LINE_BYTES: usize = 1 << 20;

/// What is asked for of every task.
struct Order<'a> {
    job: &'a str,
    again: bool,
    due_at: Instant,
    now: Instant,
    note: Option<&'a String>,
}

/// What came of it.
#[derive(Debug, Default)]
struct Tally {
    /// Known ones that are running, and were to be done once more.
    busy: u64,
    enqueued: u64,
    known: u64,
    /// Where the task stands that was given last.
    last: Option<Status>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    job: &'a str,
    enqueued: u64,
    known: u64,
    status: Option<Status>,
}

/// Makes a task, or one for each line of standard input, unless there is one of that key.
pub fn enqueue(config: &Config, args: &cli::Enqueue) -> Result<Ending, Error> {
    let job = config.job(&args.job)?;
    let due_at = args
        .at
        .as_deref()
        .map(|typed| moment(job, typed))
        .transpose()?;
    let item = args.key.as_ref().map(|key| typed(key, args)).transpose()?;
    let mut store = store::open(&config.store)?;
    let now = store.now()?;
    let order = Order {
        job: &job.name,
        again: args.again,
        due_at: due_at.flatten().unwrap_or(now),
        now,
        note: args.note.as_ref(),
    };
    let mut tally = Tally::default();
    match item {
        Some(item) => order.enqueue(store.as_mut(), vec![item], &mut tally)?,
        None => of_input(&order, store.as_mut(), &mut tally)?,
    }
    answer(&order, args, &tally)?;
    if tally.busy > 0 {
        let busy = text::count(tally.busy, "task");
        let message = format!(
            "{busy} of job `{}` running, and not made once more",
            job.name
        );
        return Err(Error::no(message).hint("do that again when it is over: `jobrun status`"));
    }
    Ok(Ending::Done)
}

/// The one task of the command line.
fn typed(key: &str, args: &cli::Enqueue) -> Result<Item, Error> {
    check_key(key).map_err(|why| Error::usage(why, "a key is 1 to 512 bytes of text"))?;
    if let Some(payload) = &args.payload {
        check_payload(payload).map_err(|why| {
            let hint = "write JSON, such as `{\"to\": \"a@example.com\"}`, `\"text\"` or `42`";
            Error::usage(format!("`--payload`: {why}"), hint)
        })?;
    }
    Ok(Item {
        key: key.to_owned(),
        payload: args.payload.clone(),
    })
}

impl Order<'_> {
    /// Makes tasks of `items` in one transaction.
    fn enqueue(
        &self,
        store: &mut dyn Store,
        items: Vec<Item>,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        let Some(detail) = detail(&items) else {
            return Ok(());
        };
        let task = |item: Item| NewTask {
            key: item.key,
            payload: item.payload,
            due_at: self.due_at,
        };
        let tasks: Vec<NewTask> = items.into_iter().map(task).collect();
        let event = event(self.now, "enqueue", detail, self.note);
        for enqueued in store.enqueue(self.job, &tasks, self.again, &event)? {
            if enqueued.is_new {
                tally.enqueued += 1;
            } else {
                tally.known += 1;
                let is_busy = self.again && enqueued.status == Status::Running;
                tally.busy += u64::from(is_busy);
            }
            tally.last = Some(enqueued.status);
        }
        Ok(())
    }
}

/// For the record; none if there is nothing to be made.
fn detail(items: &[Item]) -> Option<String> {
    let count = text::count(items.len() as u64, "task");
    match items {
        [] => None,
        [item] => Some(format!("`{}`", item.key)),
        [first, ..] => Some(format!("{count}, `{}` first", first.key)),
    }
}

/// A task for each line of standard input; what was read before a line that is none is kept.
fn of_input(order: &Order<'_>, store: &mut dyn Store, tally: &mut Tally) -> Result<(), Error> {
    let input = io::stdin();
    if input.is_terminal() {
        report::note(None, "a task a line, of a key or JSON; Ctrl-D ends that");
    }
    let mut lines = Lines {
        input: input.lock(),
        number: 0,
    };
    loop {
        let (items, end) = lines.batch();
        let done = order.enqueue(store, items, tally);
        match (done, end) {
            (Ok(()), Ok(true)) => {}
            (Ok(()), Ok(false)) => return Ok(()),
            (done, end) => {
                let so_far = said(tally);
                let hint =
                    format!("{so_far} before that; lines may be given twice, a task is made once");
                done.inspect_err(|_| report::note(Some(order.job), &hint))?;
                let why = end.err().unwrap_or_default();
                return Err(Error::usage(format!("standard input, {why}"), hint));
            }
        }
    }
}

/// Lines of items.
struct Lines<R> {
    input: R,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// The next items, and whether there may be more; or what is wrong with the line after them.
    fn batch(&mut self) -> (Vec<Item>, Result<bool, String>) {
        let (mut items, mut bytes) = (Vec::new(), 0);
        while items.len() < BATCH && bytes < BATCH_BYTES {
            match self.next() {
                Ok(Some(item)) => {
                    bytes += item.key.len() + item.payload.as_ref().map_or(0, String::len);
                    items.push(item);
                }
                Ok(None) => return (items, Ok(false)),
                Err(why) => return (items, Err(format!("line {}: {why}", self.number))),
            }
        }
        (items, Ok(true))
    }

    /// The item of the next line that is not blank.
    fn next(&mut self) -> Result<Option<Item>, String> {
        loop {
            let mut line = Vec::new();
            self.number += 1;
            let most = LONGEST_LINE_BYTES as u64 + 1;
            let read = self.input.by_ref().take(most).read_until(b'\n', &mut line);
            if read.map_err(|error| error.to_string())? == 0 {
                return Ok(None);
            }
            if line.len() > LONGEST_LINE_BYTES {
                return Err(format!("it has more than {LONGEST_LINE_BYTES} bytes"));
            }
            let line = String::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
            if let Some(item) = Item::read(&line)? {
                return Ok(Some(item));
            }
        }
    }
}

fn said(tally: &Tally) -> String {
    let enqueued = format!("{} enqueued", text::count(tally.enqueued, "task"));
    if tally.known == 0 {
        return enqueued;
    }
    format!("{enqueued}, {} known already", tally.known)
}

fn answer(order: &Order<'_>, args: &cli::Enqueue, tally: &Tally) -> Result<(), Error> {
    let last = tally.last.filter(|_| args.key.is_some());
    if args.json {
        return report::json(&Document {
            schema: report::SCHEMA,
            job: order.job,
            enqueued: tally.enqueued,
            known: tally.known,
            status: last,
        });
    }
    let line = match (&args.key, last) {
        (Some(key), Some(status)) if tally.known > 0 => {
            let key = text::printable(key);
            format!("task `{key}` is known already: {status}\n")
        }
        (Some(_) | None, _) => format!("{}\n", said(tally)),
    };
    report::answer(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Lines<&[u8]> {
        Lines {
            input: text,
            number: 0,
        }
    }

    fn keys(items: &[Item]) -> Vec<&str> {
        items.iter().map(|item| item.key.as_str()).collect()
    }

    #[test]
    fn a_line_is_a_key_or_json_and_blank_ones_are_none() {
        let (items, end) = lines(b"a 1\r\n\n{\"key\": \"b\", \"payload\": [1]}\n \nc").batch();
        assert_eq!((keys(&items), end), (vec!["a 1", "b", "c"], Ok(false)));
        assert_eq!(items[1].payload.as_deref(), Some("[1]"));
    }

    #[test]
    fn a_line_that_is_none_is_named_and_those_before_it_are_kept() {
        let long = "x".repeat(LONGEST_LINE_BYTES + 1);
        for (line, why) in [
            (&b"{\"key\": 1}"[..], "line 3: not an item"),
            (b"{\"key\": \"\"}", "line 3: the key is empty"),
            (b"\xff", "line 3: it is not UTF-8"),
            (long.as_bytes(), "line 3: it has more than"),
            ("é".repeat(257).as_bytes(), "line 3: the key has 514 bytes"),
            (
                br#"{"key": "k", "payload": "\u0000"}"#,
                "line 3: the payload has a NUL",
            ),
        ] {
            let (items, end) = lines(&[b"a\nb\n", line, b"\nc\n"].concat()).batch();
            assert_eq!(keys(&items), ["a", "b"]);
            assert!(
                end.as_ref().is_err_and(|said| said.starts_with(why)),
                "{end:?}"
            );
        }
    }

    #[test]
    fn batches_are_bounded_in_lines_and_in_bytes() {
        let many = "k\n".repeat(BATCH + 1);
        let mut lines = lines(many.as_bytes());
        assert_eq!((lines.batch().0.len(), lines.batch().0.len()), (BATCH, 1));
        let large = format!(
            "{{\"key\": \"k\", \"payload\": \"{}\"}}\n",
            "x".repeat(1 << 19)
        );
        let many = large.repeat(20);
        let (items, end) = super::tests::lines(many.as_bytes()).batch();
        assert_eq!((items.len(), end), (8, Ok(true)));
    }
}
