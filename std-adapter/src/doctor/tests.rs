use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Check, Doctor, Finding, Verdict, doctor};
use crate::Cores;

/// A host made of files, gone when it is dropped.
struct Fake(PathBuf);

impl Fake {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nanoverbs-doctor-{}-{count}", std::process::id());
        let root = std::env::temp_dir().join(name);
        fs::create_dir(&root).unwrap();
        Self(root)
    }

    fn with(self, path: &str, text: &str) -> Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    fn process(self, cores: &str, capabilities: &str, locked: &str, priority: &str) -> Self {
        self.with(
            "proc/self/status",
            &format!("Name:\tx\nCapEff:\t{capabilities}\nCpus_allowed_list:\t{cores}"),
        )
        .with(
            "proc/self/limits",
            &format!(
                "Limit                     Soft Limit           Hard Limit           Units\n\
                 Max locked memory         {locked}              unlimited            bytes\n\
                 Max realtime priority     {priority}                    99"
            ),
        )
    }

    /// All that can be wished for, on cores 2 and 3 of four.
    fn healthy() -> Self {
        let mut host = Self::new()
            .process("0-3", "0000000000000000", "unlimited", "99")
            .with("sys/devices/system/cpu/isolated", "2-3")
            .with("sys/devices/system/cpu/nohz_full", "2-3")
            .with("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc")
            .with("sys/class/infiniband/mlx5_0/device/numa_node", "1")
            .with("sys/devices/system/node/node0/cpulist", "0-1")
            .with("sys/devices/system/node/node1/cpulist", "2-3")
            .with("proc/sys/kernel/numa_balancing", "0")
            .with("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
            .with("proc/sys/kernel/sched_rt_runtime_us", "-1");
        for core in 0..4 {
            let cpu = format!("sys/devices/system/cpu/cpu{core}");
            host = host
                .with(&format!("{cpu}/cpufreq/scaling_governor"), "performance")
                .with(&format!("{cpu}/topology/thread_siblings_list"), &core.to_string())
                .with(&format!("{cpu}/cpuidle/state0/latency"), "0")
                .with(&format!("{cpu}/cpuidle/state1/latency"), "1")
                .with(&format!("{cpu}/cpuidle/state2/latency"), "133")
                .with(&format!("{cpu}/cpuidle/state2/name"), "C6")
                .with(&format!("{cpu}/cpuidle/state2/disable"), "1");
        }
        host
    }

    fn doctor(&self) -> Doctor {
        Doctor::new().root(&self.0)
    }

    fn wanting(&self) -> Vec<Check> {
        wanting(&self.doctor().examine())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn wanting(findings: &[Finding]) -> Vec<Check> {
    let wanting = findings.iter().filter(|finding| finding.verdict == Verdict::Wanting);
    wanting.map(|finding| finding.check).collect()
}

fn of(findings: &[Finding], check: Check) -> &Finding {
    findings.iter().find(|finding| finding.check == check).unwrap()
}

#[test]
fn a_healthy_host_wants_nothing() {
    let host = Fake::healthy();
    let findings = host.doctor().examine();
    assert!(findings.iter().all(|finding| finding.verdict == Verdict::Fine), "{findings:#?}");
    assert_eq!(findings.len(), 13);
    let chosen = host.doctor().cores(Cores::from_iter([2, 3])).device("mlx5_0").examine();
    assert_eq!(wanting(&chosen), []);
}

#[test]
fn chosen_cores_must_each_have_what_is_wanted() {
    let host = Fake::healthy();
    let findings = host.doctor().cores(Cores::from_iter([1, 2])).examine();
    assert_eq!(wanting(&findings), [Check::Isolation, Check::Tick, Check::DeviceNode]);
    let findings = host.doctor().cores(Cores::from_iter([2, 9])).examine();
    assert!(wanting(&findings).contains(&Check::Cores));
    assert!(of(&findings, Check::Cores).read.contains("0-3; asked for 2,9"));
}

#[test]
fn each_thing_that_is_lacking_is_found_and_said() {
    let cpu = "sys/devices/system/cpu";
    let cases = [
        (Check::Isolation, format!("{cpu}/isolated"), "", "isolated: none"),
        (Check::Tick, format!("{cpu}/nohz_full"), "(null)", "nohz_full: none"),
        (
            Check::Governor,
            format!("{cpu}/cpu1/cpufreq/scaling_governor"),
            "powersave",
            "core 1: powersave",
        ),
        (
            Check::IdleStates,
            format!("{cpu}/cpu3/cpuidle/state2/disable"),
            "0",
            "C6 of core 3: 133 us",
        ),
        (
            Check::Clock,
            "sys/devices/system/clocksource/clocksource0/current_clocksource".to_owned(),
            "hpet",
            "current_clocksource: hpet",
        ),
        (
            Check::DeviceNode,
            "sys/devices/system/node/node1/cpulist".to_owned(),
            "4-7",
            "mlx5_0 is on node 1",
        ),
        (
            Check::NumaBalancing,
            "proc/sys/kernel/numa_balancing".to_owned(),
            "1",
            "numa_balancing: 1",
        ),
        (
            Check::HugePages,
            "sys/kernel/mm/transparent_hugepage/enabled".to_owned(),
            "[always] madvise never",
            "[always]",
        ),
        (Check::Throttling, "proc/sys/kernel/sched_rt_runtime_us".to_owned(), "950000", ": 950000"),
    ];
    for (check, path, text, said) in cases {
        let host = Fake::healthy().with(&path, text);
        let findings = host.doctor().examine();
        assert_eq!(wanting(&findings), [check], "{path}");
        let finding = of(&findings, check);
        assert!(finding.read.contains(said), "{finding}");
        let shown = finding.to_string();
        assert!(shown.starts_with("wanting") && shown.contains("why: "), "{shown}");
        assert!(shown.contains(finding.advice) && shown.contains(check.name()), "{shown}");
    }
}

#[test]
fn one_core_or_one_limit_too_low_is_found() {
    let process = |cores, caps, locked, priority| {
        Fake::healthy().process(cores, caps, locked, priority).wanting()
    };
    assert_eq!(process("2", "0", "unlimited", "1"), [Check::Cores]);
    assert_eq!(process("0-3", "0", "8388608", "1"), [Check::LockedMemory]);
    assert_eq!(process("0-3", "0", "unlimited", "0"), [Check::RealTime]);
    // With the capabilities the limits do not count.
    assert_eq!(process("0-3", "000001ffffffffff", "0", "0"), []);
}

#[test]
fn siblings_are_found_where_every_core_has_one() {
    let topology = |host: Fake, core: usize, text: &str| {
        host.with(&format!("sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"), text)
    };
    let host = topology(topology(Fake::healthy(), 0, "0,2"), 2, "0,2");
    // Cores 1 and 3 are alone.
    assert_eq!(host.wanting(), []);
    let findings = host.doctor().cores(Cores::from_iter([2])).examine();
    assert_eq!(wanting(&findings), [Check::Siblings]);
    assert!(of(&findings, Check::Siblings).read.contains("core 2: 0,2"));
}

#[test]
fn what_a_host_does_not_say_is_unknown_and_not_wanting() {
    let host = Fake::new();
    let findings = host.doctor().examine();
    // A kernel without these files ticks, and does not balance.
    assert_eq!(wanting(&findings), [Check::Tick]);
    assert_eq!(of(&findings, Check::NumaBalancing).verdict, Verdict::Fine);
    let unknown = findings.iter().filter(|finding| finding.verdict == Verdict::Unknown).count();
    assert_eq!(unknown, 11);
}

#[test]
fn rubbish_in_the_files_is_no_reason_to_panic() {
    for text in ["", "x", "-", "1-", "\u{0}", "99999999999999999999999"] {
        let mut host = Fake::healthy();
        let files = files_below(&host.0);
        for file in &files {
            host = host.with(file.to_str().unwrap(), text);
        }
        assert!(files.len() > 20);
        let _ = host.doctor().cores(Cores::from_iter([0, 8191])).examine();
    }
}

fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => left.push(entry.path()),
                false => found.push(entry.path().strip_prefix(root).unwrap().to_owned()),
            }
        }
    }
    found
}

#[test]
fn a_device_that_is_not_there_is_wanting_and_one_without_a_node_unknown() {
    let host = Fake::healthy().with("sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE");
    let findings = host.doctor().device("mlx5_7").examine();
    assert_eq!(wanting(&findings), [Check::DeviceNode]);
    assert!(of(&findings, Check::DeviceNode).read.contains("no mlx5_7; it has: mlx5_0 rxe0"));
    let findings = host.doctor().device("rxe0").examine();
    assert_eq!(of(&findings, Check::DeviceNode).verdict, Verdict::Unknown);
    assert_eq!(host.doctor().examine().len(), 14, "one finding for each device");
    let host = Fake::healthy().with("sys/class/infiniband/mlx5_0/device/numa_node", "-1");
    assert_eq!(of(&host.doctor().examine(), Check::DeviceNode).verdict, Verdict::Unknown);
}

#[test]
fn this_host_can_be_examined() {
    let findings = doctor();
    assert!(findings.len() >= 13);
    assert_ne!(of(&findings, Check::Cores).verdict, Verdict::Unknown);
    assert_ne!(of(&findings, Check::LockedMemory).verdict, Verdict::Unknown);
}
