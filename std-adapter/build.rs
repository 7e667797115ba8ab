//! Where the C libraries are, for programs whose binding is the project's own. rdma-sys tells for itself.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(all(feature = "declared", not(feature = "verbs")))]
    shared();
}

/// Shared libraries. One that pkg-config does not know has the linker look where it always does:
/// checking and documenting need none.
#[cfg(all(feature = "declared", not(feature = "verbs")))]
fn shared() {
    for name in ["rdmacm", "ibverbs"] {
        if pkg_config::probe_library(&format!("lib{name}")).is_err() {
            println!("cargo::rustc-link-lib={name}");
        }
    }
}
