//! Shared objects: the provider, and the contenders of each compiler.

use core::ffi::{CStr, c_void};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;

use nanoverbs_benches::ffi::{Contender, Contenders};
use rdma_sys::{ibv_context, ibv_cq, ibv_qp};

/// What posting and polling do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub(crate) enum Mode {
    Null,
    Mlx5,
    BlueFlame,
    Check,
    Empty,
    Recv,
    RecvCheck,
}

/// What a contender does a round.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Posts, and takes what has ended.
    Post,
    /// The same with receives.
    Recv,
    /// The same with each request on the next queue pair, so that all are signaled.
    Group,
    /// Only its polling counts.
    Poll,
}

/// The calls of `c/provider.c`.
pub(crate) struct Provider {
    pub(crate) open: extern "C" fn(Mode) -> *mut ibv_context,
    pub(crate) create_cq: extern "C" fn(*mut ibv_context, u32) -> *mut ibv_cq,
    pub(crate) create_qp: extern "C" fn(*mut ibv_context, *mut ibv_cq, u32) -> *mut ibv_qp,
    pub(crate) null_offset: extern "C" fn(*mut ibv_cq, u32),
    pub(crate) digest: extern "C" fn(*mut ibv_context, *mut u64) -> u64,
    pub(crate) close: extern "C" fn(*mut ibv_context),
    pub(crate) section: extern "C" fn(),
    pub(crate) dump: extern "C" fn(*const core::ffi::c_char),
}

impl Provider {
    pub(crate) fn load(path: &Path) -> Self {
        let object = Object::load(path);
        // SAFETY: the signatures are those of `c/bench.h`.
        unsafe {
            Self {
                open: object.function(c"fp_open"),
                create_cq: object.function(c"fp_create_cq"),
                create_qp: object.function(c"fp_create_qp"),
                null_offset: object.function(c"fp_null_offset"),
                digest: object.function(c"fp_digest"),
                close: object.function(c"fp_close"),
                section: object.function(c"fp_section"),
                dump: object.function(c"fp_dump"),
            }
        }
    }
}

struct Object(*mut c_void);

impl Object {
    /// Stays loaded for ever.
    fn load(path: &Path) -> Self {
        let name = CString::new(path.to_str().expect("a path in UTF-8")).expect("no NUL");
        // SAFETY: a shared object that this run has built.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{} does not load", path.display());
        Self(handle)
    }

    /// The function with that name.
    ///
    /// # Safety
    ///
    /// `F` is the type of a pointer to it.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is open.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!symbol.is_null(), "{name:?} is missing");
        // SAFETY: not null, and the caller promises the type.
        unsafe { core::mem::transmute_copy(&symbol) }
    }
}

/// A contender and who compiled it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) compiler: &'static str,
    pub(crate) name: String,
    pub(crate) contender: Contender,
}

impl Entry {
    pub(crate) fn label(&self) -> String {
        format!("{} ({})", self.name, self.compiler)
    }

    pub(crate) fn is_c(&self) -> bool {
        self.compiler.contains(" -O")
    }

    /// Whether it is another crate's.
    pub(crate) fn is_of_a_crate(&self) -> bool {
        CRATES.iter().any(|name| self.name.starts_with(name))
    }

    pub(crate) fn kind(&self) -> Kind {
        if self.name.ends_with("poll") {
            Kind::Poll
        } else if self.name.starts_with("group") {
            Kind::Group
        } else if self.name.starts_with("recv") {
            Kind::Recv
        } else {
            Kind::Post
        }
    }

    /// Whether it signals each request, whatever it is told to.
    pub(crate) fn signals_all(&self) -> bool {
        self.name.starts_with("ibverbs")
    }

    /// Whether it keeps one context a completion: that of the last request.
    pub(crate) fn keeps_last(&self) -> bool {
        let name = self.name.as_str();
        matches!(name, "post_send" | "chain_bare" | "sys_single") || name.starts_with("sideway")
    }

    /// Whether it sends from memory of its own.
    pub(crate) fn owns_memory(&self) -> bool {
        self.name.starts_with("block") || self.name.starts_with("ibverbs")
    }

    /// Whether it posts chains, and not one request a call.
    pub(crate) fn is_chain(&self) -> bool {
        self.name.contains("chain") || self.kind() == Kind::Poll
    }
}

/// Everything that is measured.
pub(crate) struct Objects {
    pub(crate) provider: Provider,
    pub(crate) entries: Vec<Entry>,
    pub(crate) skipped: Vec<String>,
}

const COMPILERS: [(&str, &str, &str); 3] =
    [("gcc -O2", "gcc", "-O2"), ("gcc -O3", "gcc", "-O3"), ("clang -O3", "clang", "-O3")];

/// Other crates on the same provider, each a contender of `benches/crates`.
const CRATES: [&str; 2] = ["ibverbs", "sideway"];

/// Where everything that is built and written goes.
pub(crate) fn out_dir() -> PathBuf {
    target_dir().join("bench")
}

pub(crate) fn target_dir() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    program.parent().and_then(Path::parent).expect("target/measured/bench").to_path_buf()
}

/// Compiles the C side. Once a run, not under callgrind.
pub(crate) fn compile() {
    let (from, to) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("c"), out_dir());
    std::fs::create_dir_all(&to).expect("target is writable");
    // Under the name of libibverbs, so that other crates find it where they look for that.
    let provider = [from.join("provider.c"), from.join("verbs.c")];
    cc("gcc", "-O2", &provider, &["-Wl,-soname,libibverbs.so.1"], &to.join("libprovider.so"));
    for (label, compiler, level) in COMPILERS {
        let object = object_path(label);
        let _ = std::fs::remove_file(&object);
        if installed(compiler) {
            cc(compiler, level, &[from.join("contenders.c")], &[], &object);
        }
    }
}

pub(crate) fn object_path(label: &str) -> PathBuf {
    out_dir().join(format!("lib{}.so", label.replace(' ', "")))
}

fn installed(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok()
}

fn cc(compiler: &str, level: &str, sources: &[PathBuf], more: &[&str], object: &Path) {
    let status = Command::new(compiler)
        .args(if compiler == "gcc" { &["-Wno-maybe-uninitialized"][..] } else { &[] })
        .args([level, "-std=gnu11", "-shared", "-fPIC", "-Wall"])
        .args(more)
        .arg("-o")
        .arg(object)
        .args(sources)
        .status();
    assert!(status.is_ok_and(|s| s.success()), "{compiler} could not compile {sources:?}");
}

pub(crate) fn load() -> Objects {
    let mut objects = Objects {
        provider: Provider::load(&out_dir().join("libprovider.so")),
        entries: Vec::new(),
        skipped: Vec::new(),
    };
    for (label, _, _) in COMPILERS {
        add(&mut objects, label, &object_path(label));
    }
    for (label, profile) in [("rustc", "measured"), ("rustc, LTO", "measured-lto")] {
        add(&mut objects, label, &target_dir().join(profile).join("examples/libcontenders.so"));
    }
    let crates = out_dir().join("crates/release/examples");
    for name in CRATES {
        add(&mut objects, version_of(name), &crates.join(format!("libcrate_{name}.so")));
    }
    objects
}

/// A crate and its version, as the lock file of `benches/crates` has it.
fn version_of(name: &'static str) -> &'static str {
    let lock = include_str!("../crates/Cargo.lock");
    let mut lines = lock.lines().skip_while(|line| *line != format!("name = \"{name}\""));
    let version = lines.nth(1).and_then(|line| line.split('"').nth(1)).unwrap_or("?");
    Box::leak(format!("{name} {version}").into_boxed_str())
}

fn add(objects: &mut Objects, compiler: &'static str, path: &Path) {
    if !path.exists() {
        objects.skipped.push(format!("contenders by {compiler}: not built"));
        return;
    }
    // SAFETY: every object with contenders exports this.
    let all: Contenders = unsafe { Object::load(path).function(c"contenders") };
    let mut count = 0;
    let first = all(&raw mut count);
    // SAFETY: a static array of that many.
    for contender in unsafe { core::slice::from_raw_parts(first, count) } {
        // SAFETY: a literal.
        let name = unsafe { CStr::from_ptr(contender.name) }.to_string_lossy().into_owned();
        objects.entries.push(Entry { compiler, name, contender: *contender });
    }
}
