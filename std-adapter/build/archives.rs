//! The C libraries as archives, which become part of the crate's own: `librdmacm.a`, `libibverbs.a`, those
//! of the providers, and libnl's.
//!
//! An archive refers to others, and they to it, so that no order on a linker's command line is right.
//! Bundled into one, in the crate, they need none.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Which providers go in: names with commas between, or `all`; rdma-core's name for the same choice.
const CHOICE: &str = "RDMA_STATIC_PROVIDERS";

/// Where pkg-config knows an archive's folder from, and Debian's package for it.
const PACKAGES: [(&str, &str, &str); 4] = [
    ("rdmacm", "librdmacm", "librdmacm-dev"),
    ("ibverbs", "libibverbs", "libibverbs-dev"),
    ("nl-3", "libnl-3.0", "libnl-3-dev"),
    ("nl-route-3", "libnl-route-3.0", "libnl-route-3-dev"),
];

/// What belongs to the C library, which a program is linked with anyway.
const OF_LIBC: [&str; 5] = ["c", "dl", "m", "pthread", "rt"];

pub(super) fn link() {
    println!("cargo::rerun-if-changed=build/archives.rs");
    println!("cargo::rerun-if-env-changed={CHOICE}");
    let providers = match find() {
        Ok(providers) => providers,
        Err(message) => {
            println!("cargo::error={message}");
            Vec::new()
        }
    };
    let symbols: Vec<_> = providers.iter().map(|name| format!("verbs_provider_{name}")).collect();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where"));
    fs::write(out.join("providers.rs"), format!("providers! {{ {} }}\n", symbols.join(" ")))
        .expect("the folder can be written to");
}

/// Tells cargo what to link, and gives the names of the providers.
fn find() -> Result<Vec<String>, String> {
    let libraries = libraries()?;
    let known: Vec<_> = libraries.iter().filter_map(|library| provider(library)).collect();
    let choice = env::var(CHOICE).unwrap_or_else(|_| "all".into());
    let chosen: Vec<_> = match choice.as_str() {
        "all" => known.clone(),
        names => names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect(),
    };
    if let Some(unknown) = chosen.iter().find(|name| !known.contains(name)) {
        let known = known.join(", ");
        return Err(format!(
            "{CHOICE}: no provider is called {unknown}; there are {known}, and all"
        ));
    }
    let mut folders = Vec::new();
    for library in &libraries {
        if provider(library).is_some_and(|name| !chosen.contains(&name)) {
            continue;
        }
        let folder = folder_of(library)?;
        if !folders.contains(&folder) {
            println!("cargo::rustc-link-search=native={}", folder.display());
            folders.push(folder);
        }
        println!("cargo::rustc-link-lib=static={library}");
    }
    Ok(chosen.into_iter().map(Into::into).collect())
}

/// What librdmacm consists of when it is linked statically, by pkg-config.
fn libraries() -> Result<Vec<String>, String> {
    let mut config = pkg_config::Config::new();
    config.statik(true).cargo_metadata(false).env_metadata(true);
    let found = config.probe("librdmacm").map_err(|error| {
        let error = error.to_string();
        let error = error.lines().find(|line| !line.is_empty()).unwrap_or_default();
        format!("the feature `static` needs pkg-config to know librdmacm (Debian: librdmacm-dev): {error}")
    })?;
    let mut libraries = found.libs;
    libraries.retain(|name| !OF_LIBC.contains(&name.as_str()));
    libraries.sort_unstable();
    libraries.dedup();
    Ok(libraries)
}

/// The provider in a library: `rxe` in `rxe-rdmav34`, `mlx5` in `mlx5`.
fn provider(library: &str) -> Option<&str> {
    let is_other = PACKAGES.iter().any(|(name, ..)| *name == library);
    (!is_other).then(|| library.split_once("-rdmav").map_or(library, |(name, _)| name))
}

/// The folder that has an archive.
fn folder_of(library: &str) -> Result<PathBuf, String> {
    let entry = PACKAGES.iter().find(|(name, ..)| *name == library);
    let (_, config, package) = entry.copied().unwrap_or(PACKAGES[1]);
    let folder = pkg_config::get_variable(config, "libdir").map_err(|error| error.to_string())?;
    let archive = format!("lib{library}.a");
    // Some archives lie in /lib where the libraries are said to be in /usr/lib.
    let folders = [Some(Path::new(&folder)), folder.strip_prefix("/usr").map(Path::new)];
    let found = folders.into_iter().flatten().find(|folder| folder.join(&archive).exists());
    found.map(Into::into).ok_or_else(|| {
        format!(
            "the feature `static` needs {archive}, which is not in {folder} (Debian: {package})"
        )
    })
}
