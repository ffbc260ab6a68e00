//! `--shard I/N`: which share of a job's keys a start works off.

use crate::domain::job::{Job, Runners};
use crate::error::Error;
use crate::store::work::Shard;

/// The variable in which Kubernetes tells the pods of an Indexed Job apart.
const INDEX: &str = "JOB_COMPLETION_INDEX";

/// The share that is asked for.
pub(super) fn read(text: &str, job: &Job) -> Result<Shard, Error> {
    if job.draining.runners == Runners::One {
        let message = format!("`--shard`: job `{}` is for one runner at a time", job.name);
        return Err(Error::usage(
            message,
            "`runners = \"many\"` lets several work off its tasks together",
        ));
    }
    let index = std::env::var(INDEX).ok();
    parse(text, index.as_deref()).map_err(|why| {
        Error::usage(
            format!("`--shard {text}`: {why}"),
            "for example `--shard 0/4` to `--shard 3/4`, or `--shard auto/4` in an Indexed Job",
        )
    })
}

fn parse(text: &str, index_of_pod: Option<&str>) -> Result<Shard, String> {
    let (index, count) = text.split_once('/').ok_or("it is not `I/N`")?;
    let number = |text: &str| {
        let number = text.trim().parse::<u32>();
        number.map_err(|_| format!("`{text}` is not a whole number"))
    };
    let count = number(count)?;
    let index = match index {
        "auto" => number(index_of_pod.ok_or(format!("`${INDEX}` is not set"))?)?,
        index => number(index)?,
    };
    if index >= count {
        return Err(format!(
            "the shares of {count} are 0 to {}",
            i64::from(count) - 1
        ));
    }
    Ok(Shard { index, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_one_of_so_many() {
        assert_eq!(parse("2/8", None), Ok(Shard { index: 2, count: 8 }));
        assert_eq!(parse("auto/8", Some("7")), Ok(Shard { index: 7, count: 8 }));
        for wrong in ["8/8", "0/0", "1", "x/2", "auto/8", "-1/2", "1/2/3"] {
            assert!(parse(wrong, None).is_err(), "{wrong}");
        }
    }
}
