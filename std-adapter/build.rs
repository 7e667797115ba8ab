//! Where the C libraries are, for programs whose binding is the project's own. rdma-sys tells for itself.

#[cfg(feature = "static")]
#[path = "build/archives.rs"]
mod archives;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "static")]
    archives::link();
    #[cfg(all(feature = "declared", not(any(feature = "verbs", feature = "static"))))]
    link_shared();
}

/// Shared libraries. For one that pkg-config does not know the linker looks where it always does: who
/// only checks or documents needs none.
#[cfg(all(feature = "declared", not(any(feature = "verbs", feature = "static"))))]
fn link_shared() {
    for name in ["rdmacm", "ibverbs"] {
        if pkg_config::probe_library(&format!("lib{name}")).is_err() {
            println!("cargo::rustc-link-lib={name}");
        }
    }
}
