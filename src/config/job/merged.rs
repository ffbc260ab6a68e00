//! A job's own values, and the defaults where it has none.

use crate::config::raw::RawJob;

/// The job's own values, and the defaults where it has none.
pub fn merged(own: &RawJob, defaults: &RawJob) -> RawJob {
    let own = own.clone();
    let defaults = defaults.clone();
    // A job that says what it does is not also given the work of `[defaults]`.
    let has_work = own.command.is_some() || own.shell.is_some() || own.sql.is_some();
    let (command, shell, sql) = if has_work {
        (own.command, own.shell, own.sql)
    } else {
        (defaults.command, defaults.shell, defaults.sql)
    };
    // Nor one that says where its items come from the items of `[defaults]`.
    let (items, items_command) = if own.items.is_some() || own.items_command.is_some() {
        (own.items, own.items_command)
    } else {
        (defaults.items, defaults.items_command)
    };
    let has_items = items.is_some() || items_command.is_some();
    // Nor one that says when it runs their times; what an interval is counted from may be common to all.
    let (schedule, every) = if own.schedule.is_some() || own.every.is_some() {
        (own.schedule, own.every)
    } else {
        (defaults.schedule, defaults.every)
    };
    let anchor = own.anchor.or(defaults.anchor.filter(|_| every.is_some()));
    let mut env = defaults.env.unwrap_or_default();
    let own_env = own.env.unwrap_or_default();
    env.retain(|(name, _)| {
        own_env
            .iter()
            .all(|(own, _)| own.get_ref() != name.get_ref())
    });
    env.extend(own_env);
    RawJob {
        command,
        shell,
        items_scope: own
            .items_scope
            .or(defaults.items_scope.filter(|_| has_items)),
        expect_rows: own
            .expect_rows
            .or(defaults.expect_rows.filter(|_| sql.is_some())),
        sql,
        items,
        items_command,
        schedule,
        every,
        anchor,
        timezone: own.timezone.or(defaults.timezone),
        start_at: own.start_at.or(defaults.start_at),
        end_at: own.end_at.or(defaults.end_at),
        exclude: own.exclude.or(defaults.exclude),
        exclude_file: own.exclude_file.or(defaults.exclude_file),
        catch_up: own.catch_up.or(defaults.catch_up),
        catch_up_window: own.catch_up_window.or(defaults.catch_up_window),
        catch_up_limit: own.catch_up_limit.or(defaults.catch_up_limit),
        start_grace: own.start_grace.or(defaults.start_grace),
        early_wait: own.early_wait.or(defaults.early_wait),
        lock_wait: own.lock_wait.or(defaults.lock_wait),
        timeout: own.timeout.or(defaults.timeout),
        kill_after: own.kill_after.or(defaults.kill_after),
        leftovers: own.leftovers.or(defaults.leftovers),
        retry: own.retry.or(defaults.retry),
        retry_wait: own.retry_wait.or(defaults.retry_wait),
        success_codes: own.success_codes.or(defaults.success_codes),
        on_interrupted: own.on_interrupted.or(defaults.on_interrupted),
        interrupted_limit: own.interrupted_limit.or(defaults.interrupted_limit),
        env: Some(env),
        cwd: own.cwd.or(defaults.cwd),
        output_keep: own.output_keep.or(defaults.output_keep),
        enabled: own.enabled.or(defaults.enabled),
        period: own.period.or(defaults.period),
        jitter: own.jitter.or(defaults.jitter),
        after: own.after.or(defaults.after),
        depends_on_past: own.depends_on_past.or(defaults.depends_on_past),
        pause_after: own.pause_after.or(defaults.pause_after),
        lock: own.lock.or(defaults.lock),
        max_running: own.max_running,
        max_runtime: own.max_runtime.or(defaults.max_runtime),
        fatal_codes: own.fatal_codes.or(defaults.fatal_codes),
        snooze_codes: own.snooze_codes.or(defaults.snooze_codes),
        snooze: own.snooze.or(defaults.snooze),
        snooze_limit: own.snooze_limit.or(defaults.snooze_limit),
        env_file: own.env_file.or(defaults.env_file),
        umask: own.umask.or(defaults.umask),
        nice: own.nice.or(defaults.nice),
        ready: own.ready.or(defaults.ready),
        ready_timeout: own.ready_timeout.or(defaults.ready_timeout),
        ready_every: own.ready_every.or(defaults.ready_every),
        output: own.output.or(defaults.output),
        output_file: own.output_file.or(defaults.output_file),
        concurrency: own.concurrency.or(defaults.concurrency),
        batch: own.batch.or(defaults.batch),
        rate: own.rate.or(defaults.rate),
        runners: own.runners.or(defaults.runners),
    }
}
