//! A command that the kernel kills for want of memory, in a control group that has little of it.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::{Scenario, is_root, skip};

/// Room for jobrun and a shell, but not for a hundred megabytes.
const LIMIT: &str = "64M";

/// A control group of its own with little memory; none where none can be made. Gone with the value.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let version_1 = own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_memory = controllers.split(',').any(|name| name == "memory");
            is_memory.then(|| format!("/sys/fs/cgroup/memory{path}"))
        });
        let (parent, limits) = match version_1 {
            Some(parent) => (
                parent,
                ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"],
            ),
            None => (
                "/sys/fs/cgroup".to_owned(),
                ["memory.max", "memory.swap.max"],
            ),
        };
        let path = Path::new(&parent).join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let group = Self(path);
        fs::write(group.0.join(limits[0]), LIMIT).ok()?;
        // Not every kernel counts swap.
        let _ = fs::write(group.0.join(limits[1]), LIMIT);
        Some(group)
    }

    /// Runs jobrun in it.
    fn run(&self, scenario: &Scenario, line: &str) -> support::Ended {
        let procs = self.0.join("cgroup.procs");
        let jobrun = env!("CARGO_BIN_EXE_jobrun");
        let script = format!("echo $$ > {} && exec {jobrun} {line}", procs.display());
        scenario
            .spawn(scenario.program("sh", ["-c", &script]))
            .wait()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_command_killed_for_want_of_memory_is_told_so() {
    let Some(group) = is_root().then(|| Group::new("jobrun-test")).flatten() else {
        skip("a control group with little memory cannot be made here");
        return;
    };
    // `tail` keeps the last line, which is all there is.
    let greedy = "head -c 200m /dev/zero | tail -n 1 > /dev/null";
    let scenario = Scenario::new(&format!(
        "[jobs.shell]\nshell = 'sleep 0.3; {greedy}; exit $?'\n\
         [jobs.itself]\ncommand = ['sh', '-c', 'sleep 0.3; exec tail -n 1 /dev/zero']\n\
         [jobs.killed]\nshell = 'sleep 0.3; kill -9 $$'\n"
    ));
    group
        .run(&scenario, "run shell --now")
        .exits(137)
        .says(&["failed: killed by the kernel: out of memory"]);
    group
        .run(&scenario, "run itself --now")
        .exits(137)
        .says(&["failed: killed by the kernel: out of memory"]);
    group
        .run(&scenario, "run killed --now")
        .exits(137)
        .says(&["failed: killed by SIGKILL"]);
    assert_eq!(
        scenario.query::<String>("SELECT reason FROM jobrun_run ORDER BY seq"),
        ["oom_killed", "oom_killed", "signal"]
    );
}
