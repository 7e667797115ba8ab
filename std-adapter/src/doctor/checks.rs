//! The checks, one function each.

use super::host::{CAP_IPC_LOCK, CAP_SYS_NICE, Host};
use super::{Check, Finding, Verdict};
use crate::Cores;

/// Everything, in the order of [`Check`].
pub(super) fn all(host: &Host, chosen: Option<&Cores>, device: Option<&str>) -> Vec<Finding> {
    let allowed = host.allowed().unwrap_or_default();
    let patient = Patient { host, chosen, allowed: &allowed };
    let mut findings = vec![
        patient.cores(),
        patient.isolation(),
        patient.tick(),
        patient.governor(),
        patient.idle_states(),
        patient.siblings(),
        patient.clock(),
    ];
    findings.extend(patient.device_nodes(device));
    findings.extend([
        patient.numa_balancing(),
        patient.huge_pages(),
        patient.locked_memory(),
        patient.real_time(),
        patient.throttling(),
    ]);
    findings
}

struct Patient<'p> {
    host: &'p Host,
    chosen: Option<&'p Cores>,
    allowed: &'p Cores,
}

impl Patient<'_> {
    /// The cores that matter.
    fn concerned(&self) -> &Cores {
        self.chosen.unwrap_or(self.allowed)
    }

    /// Whether the cores in `good` are enough: all that were chosen, or one of those that may be used.
    fn enough(&self, good: &Cores) -> bool {
        match self.chosen {
            Some(chosen) => chosen.iter().all(|core| good.contains(core)),
            None => self.allowed.iter().any(|core| good.contains(core)),
        }
    }

    /// What a file says about each core that matters, where it is there.
    fn of_cores<'a>(&'a self, file: &'a str) -> impl Iterator<Item = (usize, String)> + 'a {
        self.concerned().iter().filter_map(move |core| {
            let path = format!("/sys/devices/system/cpu/cpu{core}/{file}");
            self.host.read(&path).map(|text| (core, text))
        })
    }

    fn cores(&self) -> Finding {
        let path = "/proc/self/status: Cpus_allowed_list";
        let allowed = self.allowed;
        let read = match self.chosen {
            _ if allowed.is_empty() => format!("{path} is not there"),
            Some(chosen) => format!("{path}: {allowed}; asked for {chosen}"),
            None => format!("{path}: {allowed}"),
        };
        let is_fine = match self.chosen {
            Some(chosen) => chosen.iter().all(|core| allowed.contains(core)),
            None => allowed.len() > 1,
        };
        Finding {
            check: Check::Cores,
            verdict: verdict(!allowed.is_empty(), is_fine),
            read,
            why: "a poller that spins needs a core of its own, and the rest of the program \
                  another one; a poller can have no core outside of this set",
            advice: "give the process more cores: taskset, CPUAffinity= of its service, the \
                     cpuset of its control group",
        }
    }

    fn isolation(&self) -> Finding {
        let path = "/sys/devices/system/cpu/isolated";
        let isolated = self.host.cores(path);
        Finding {
            check: Check::Isolation,
            verdict: verdict(isolated.is_some(), isolated.iter().any(|set| self.enough(set))),
            read: set_read(path, isolated.as_ref()),
            why: "the scheduler puts other threads on a core that is not isolated, and each \
                  costs the poller milliseconds",
            advice: "boot with isolcpus=managed_irq,domain,CORES, or make an isolated cpuset \
                     partition, and put the poller there",
        }
    }

    fn tick(&self) -> Finding {
        let path = "/sys/devices/system/cpu/nohz_full";
        let silent = self.host.cores(path);
        Finding {
            check: Check::Tick,
            // A kernel without the file ticks on every core.
            verdict: verdict(true, silent.iter().any(|set| self.enough(set))),
            read: set_read(path, silent.as_ref()),
            why: "the timer interrupt takes the core away 100 to 1,000 times a second, for some \
                  microseconds each",
            advice: "boot with nohz_full=CORES rcu_nocbs=CORES, on a kernel that has \
                     CONFIG_NO_HZ_FULL",
        }
    }

    fn governor(&self) -> Finding {
        let file = "cpufreq/scaling_governor";
        let governors: Vec<_> = self.of_cores(file).collect();
        let others: Vec<_> =
            governors.iter().filter(|(_, governor)| governor != "performance").collect();
        let read = match others.first() {
            Some((_, governor)) => {
                let slow: Cores = others.iter().map(|(core, _)| *core).collect();
                format!("{file} of core {slow}: {governor}")
            }
            None if governors.is_empty() => {
                format!("no {file}: the frequency is not this system's to choose")
            }
            None => format!("{file}: performance"),
        };
        Finding {
            check: Check::Governor,
            verdict: verdict(!governors.is_empty(), others.is_empty()),
            read,
            why: "a core that was slowed down takes up to milliseconds to be fast again",
            advice: "cpupower frequency-set -g performance",
        }
    }

    fn idle_states(&self) -> Finding {
        let mut deepest: Option<(u64, usize, String)> = None;
        let mut is_known = false;
        for core in self.concerned().iter() {
            let folder = format!("/sys/devices/system/cpu/cpu{core}/cpuidle");
            for state in self.host.names(&folder) {
                let of = |file| self.host.read(&format!("{folder}/{state}/{file}"));
                let Some(latency) = of("latency").and_then(|text| text.parse::<u64>().ok()) else {
                    continue;
                };
                is_known = true;
                let is_on = of("disable").is_none_or(|text| text == "0");
                if is_on && deepest.as_ref().is_none_or(|(most, ..)| latency > *most) {
                    deepest = Some((latency, core, of("name").unwrap_or(state)));
                }
            }
        }
        let read = match &deepest {
            Some((latency, core, name)) => {
                format!("the deepest state in use is {name} of core {core}: {latency} us to wake")
            }
            None if is_known => "every state is disabled".to_owned(),
            None => "no cpuidle: idle states are not this system's to choose".to_owned(),
        };
        Finding {
            check: Check::IdleStates,
            verdict: verdict(is_known, deepest.is_none_or(|(latency, ..)| latency <= DEEP)),
            read,
            why: "a thread that sleeps is woken only when its core has left its idle state, and \
                  so is the core that handles the device's interrupt",
            advice: "boot with processor.max_cstate=1 intel_idle.max_cstate=1, or keep \
                     /dev/cpu_dma_latency open with a small number in it, or spin",
        }
    }

    fn siblings(&self) -> Finding {
        let file = "topology/thread_siblings_list";
        let sets: Vec<_> = self
            .of_cores(file)
            .filter_map(|(core, text)| Some((core, Cores::parse(&text)?)))
            .collect();
        let alone: Cores =
            sets.iter().filter(|(_, set)| set.len() < 2).map(|(core, _)| *core).collect();
        let read = match sets.iter().find(|(_, set)| set.len() > 1) {
            Some((core, set)) => format!("{file} of core {core}: {set}"),
            None if sets.is_empty() => format!("no {file}"),
            None => format!("{file}: each core is alone"),
        };
        Finding {
            check: Check::Siblings,
            verdict: verdict(!sets.is_empty(), self.enough(&alone)),
            read,
            why: "two hyperthreads share execution units and first-level cache: what runs on \
                  one slows down the other",
            advice: "leave the sibling of the poller's core idle (echo 0 > \
                     /sys/devices/system/cpu/cpuN/online), or boot with nosmt",
        }
    }

    fn clock(&self) -> Finding {
        let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let clock = self.host.read(path);
        let is_fast = clock.as_deref().is_some_and(|clock| FAST_CLOCKS.contains(&clock));
        Finding {
            check: Check::Clock,
            verdict: verdict(clock.is_some(), is_fast),
            read: text_read(path, clock.as_deref()),
            why: "with this clock every look at the time is a system call, of up to a \
                  microsecond; with the processor's counter it is some nanoseconds",
            advice: "boot with clocksource=tsc tsc=reliable, if the kernel log does not say that \
                     the counter is unstable",
        }
    }

    fn device_nodes(&self, device: Option<&str>) -> Vec<Finding> {
        let folder = "/sys/class/infiniband";
        let there = self.host.names(folder);
        let finding = |verdict, read| Finding {
            check: Check::DeviceNode,
            verdict,
            read,
            why: "a core on another memory node reaches the device over the link between the \
                  sockets: several 100 ns more each way",
            advice: "poll on a core of the device's node, and allocate there (numactl, or start \
                     the process with its cores restricted to the node)",
        };
        let names: Vec<&str> = match device {
            Some(name) if !there.iter().any(|other| other == name) => {
                let read = format!("{folder} has no {name}; it has: {}", there.join(" "));
                return vec![finding(Verdict::Wanting, read)];
            }
            Some(name) => vec![name],
            None => there.iter().map(String::as_str).collect(),
        };
        if names.is_empty() {
            return vec![finding(Verdict::Unknown, format!("{folder} has no device"))];
        }
        let look = |name: &str| {
            let path = format!("{folder}/{name}/device/numa_node");
            let node: Option<i64> = self.host.read(&path).and_then(|text| text.parse().ok());
            match node {
                None => finding(Verdict::Unknown, format!("{name} is on no bus ({path})")),
                Some(..0) => finding(Verdict::Unknown, format!("{path}: none is nearer")),
                Some(node) => {
                    let path = format!("/sys/devices/system/node/node{node}/cpulist");
                    let cores = self.host.cores(&path);
                    let verdict =
                        verdict(cores.is_some(), cores.iter().any(|set| self.enough(set)));
                    let near = set_read(&path, cores.as_ref());
                    finding(verdict, format!("{name} is on node {node}; {near}"))
                }
            }
        };
        names.into_iter().map(look).collect()
    }

    fn numa_balancing(&self) -> Finding {
        let path = "/proc/sys/kernel/numa_balancing";
        let value = self.host.read(path);
        Finding {
            check: Check::NumaBalancing,
            // A kernel without it does not balance.
            verdict: verdict(true, value.as_deref().is_none_or(|value| value == "0")),
            read: text_read(path, value.as_deref()),
            why: "the kernel unmaps pages from time to time to see who uses them: each costs a \
                  page fault on the hot path",
            advice: "sysctl kernel.numa_balancing=0",
        }
    }

    fn huge_pages(&self) -> Finding {
        let path = "/sys/kernel/mm/transparent_hugepage/enabled";
        let value = self.host.read(path);
        Finding {
            check: Check::HugePages,
            verdict: verdict(
                value.is_some(),
                value.as_deref().is_some_and(|value| !value.contains("[always]")),
            ),
            read: text_read(path, value.as_deref()),
            why: "the kernel moves pages around to make huge ones, and stops the threads that \
                  touch them meanwhile",
            advice: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, and ask for \
                     huge pages where they are wanted",
        }
    }

    fn locked_memory(&self) -> Finding {
        let limit = self.host.limit("Max locked memory");
        let may = self.host.may(CAP_IPC_LOCK);
        let read = match limit {
            None => "/proc/self/limits: no word of locked memory".to_owned(),
            Some(_) if may => "CAP_IPC_LOCK: any amount".to_owned(),
            Some(u64::MAX) => "/proc/self/limits: Max locked memory: unlimited".to_owned(),
            Some(bytes) => format!("/proc/self/limits: Max locked memory: {bytes} bytes"),
        };
        Finding {
            check: Check::LockedMemory,
            verdict: verdict(limit.is_some() || may, may || limit == Some(u64::MAX)),
            read,
            why: "registered memory counts as locked, and memory that is not locked may be on a \
                  disk when it is needed",
            advice: "ulimit -l unlimited, memlock in limits.conf, or LimitMEMLOCK=infinity of \
                     the service",
        }
    }

    fn real_time(&self) -> Finding {
        let limit = self.host.limit("Max realtime priority");
        let may = self.host.may(CAP_SYS_NICE);
        let read = match limit {
            None => "/proc/self/limits: no word of real-time priorities".to_owned(),
            Some(_) if may => "CAP_SYS_NICE: any priority".to_owned(),
            Some(u64::MAX) => "/proc/self/limits: Max realtime priority: unlimited".to_owned(),
            Some(most) => format!("/proc/self/limits: Max realtime priority: {most}"),
        };
        Finding {
            check: Check::RealTime,
            verdict: verdict(limit.is_some() || may, may || limit.is_some_and(|most| most > 0)),
            read,
            why: "without SCHED_FIFO any thread that wakes on the poller's core can take it \
                  away, where the core is not isolated",
            advice: "ulimit -r 99, rtprio in limits.conf, LimitRTPRIO=99 of the service, or \
                     CAP_SYS_NICE",
        }
    }

    fn throttling(&self) -> Finding {
        let path = "/proc/sys/kernel/sched_rt_runtime_us";
        let value = self.host.read(path);
        Finding {
            check: Check::Throttling,
            verdict: verdict(value.is_some(), value.as_deref() == Some("-1")),
            read: text_read(path, value.as_deref()),
            why: "a SCHED_FIFO thread that never sleeps is stopped for the rest of each second \
                  when it has had this many microseconds of it",
            advice: "sysctl kernel.sched_rt_runtime_us=-1, if pollers under SCHED_FIFO spin on \
                     cores of their own; it is what saves a machine from one that does not",
        }
    }
}

/// The verdict on something that is known, or is not, and is fine, or is not.
const fn verdict(is_known: bool, is_fine: bool) -> Verdict {
    match (is_known, is_fine) {
        (false, _) => Verdict::Unknown,
        (true, true) => Verdict::Fine,
        (true, false) => Verdict::Wanting,
    }
}

fn text_read(path: &str, text: Option<&str>) -> String {
    match text {
        None => format!("{path} is not there"),
        Some(text) => format!("{path}: {text}"),
    }
}

fn set_read(path: &str, set: Option<&Cores>) -> String {
    match set {
        None => format!("{path} is not there"),
        Some(set) if set.is_empty() => format!("{path}: none"),
        Some(set) => format!("{path}: {set}"),
    }
}

/// Microseconds that an idle state may take to leave.
const DEEP: u64 = 10;

/// Clocks that are read without a system call.
const FAST_CLOCKS: [&str; 4] =
    ["tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page"];
