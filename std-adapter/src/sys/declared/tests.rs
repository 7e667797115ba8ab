//! The declarations, and the core's structures, before the C compiler and the installed headers.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::{Part, rdma_cma, verbs};

mod elsewhere;

pub(super) struct Structure {
    pub(super) name: &'static str,
    pub(super) part: Part,
    pub(super) size: usize,
    pub(super) fields: &'static [Field],
}

pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) offset: usize,
    /// Empty when the type is not to be compared.
    pub(super) ty: &'static str,
}

pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) args: &'static [&'static str],
    pub(super) ret: &'static [&'static str],
}

/// What C calls it: the same, unless another name is given.
pub(super) const fn c_name(name: &'static str, other: &[&'static str]) -> &'static str {
    match other {
        [other, ..] => other,
        [] => name,
    }
}

/// A Rust type in C's words; `None` when C has none for it.
fn c_type(rust: &str) -> Option<String> {
    // The compiler gives long types back as a formatter would break them.
    let words: Vec<_> = rust.trim_end_matches(',').split_whitespace().collect();
    let rust = &*words.join(" ");
    if let Some(target) = rust.strip_prefix("*mut ") {
        return Some(format!("{} *", c_type(target)?));
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        return Some(format!("{} const *", c_type(target)?));
    }
    if let Some((of, len)) = rust.strip_prefix('[').and_then(|rest| rest.split_once("; ")) {
        return Some(format!("typeof({}[{len})", c_type(of)?));
    }
    if let Some(function) = rust.strip_prefix("Option<").and_then(|rest| rest.strip_suffix('>')) {
        let function = function.trim().strip_prefix("unsafe extern \"C\" fn(");
        let (args, ret) = function.and_then(|rest| rest.rsplit_once(')')).expect("a function");
        let args = args.split(',').filter(|arg| !arg.trim().is_empty());
        let args: Vec<_> = args.map(|arg| c_type(arg).expect("a type that C has")).collect();
        let ret = ret.trim_end_matches(',').strip_prefix(" -> ").unwrap_or("c_void");
        return Some(format!("typeof({} (*)({}))", c_type(ret)?, args.join(", ")));
    }
    Some(match rust {
        "c_char" => "char".into(),
        "c_int" => "int".into(),
        "c_uint" => "unsigned int".into(),
        "c_void" => "void".into(),
        "u8" | "u16" | "u32" | "u64" => format!("uint{}_t", &rust[1..]),
        "usize" => "size_t".into(),
        "__be16" | "__be32" | "__be64" => rust.into(),
        "pthread_mutex_t" | "pthread_cond_t" | "socklen_t" => rust.into(),
        "ibv_gid" => format!("union {rust}"),
        "" | "Uncalled" | "Unread<3>" => return None,
        _ if rust.ends_with("_t") => return None,
        _ => match rust.strip_suffix("::Type") {
            Some(name) => format!("enum {name}"),
            None => format!("struct {rust}"),
        },
    })
}

/// A C program that compiles when everything is as declared.
fn program() -> String {
    let mut c = String::from(
        "#include <stddef.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n",
    );
    let mut is = |what: &str, condition: &str| {
        writeln!(c, "_Static_assert({condition}, \"{what}\");").expect("a string");
    };
    for it in [elsewhere::STRUCTURES, verbs::STRUCTURES, rdma_cma::STRUCTURES].into_iter().flatten()
    {
        let (name, size) = (it.name, it.size);
        match it.part {
            Part::Whole => is(name, &format!("sizeof({name}) == {size}")),
            Part::Start | Part::End => is(name, &format!("sizeof({name}) >= {size}")),
        }
        for field in it.fields {
            let what = format!("{name}.{}", field.name);
            let place = it.part.place(size, field.offset);
            let theirs = match it.part {
                Part::Whole | Part::Start => format!("offsetof({name}, {})", field.name),
                Part::End => format!("sizeof({name}) - offsetof({name}, {})", field.name),
            };
            is(&what, &format!("{theirs} == {place}"));
            if let Some(ty) = c_type(field.ty) {
                let theirs = format!("typeof((({name} *)0)->{})", field.name);
                is(&what, &format!("__builtin_types_compatible_p({theirs}, {ty})"));
            }
        }
    }
    let numbers = [
        elsewhere::NUMBERS,
        verbs::ENUMERATIONS,
        verbs::FLAGS,
        rdma_cma::ENUMERATIONS,
        rdma_cma::FLAGS,
    ];
    for (name, number) in numbers.into_iter().flatten() {
        is(name, &format!("{name} == {number}"));
    }
    for it in [verbs::FUNCTIONS, rdma_cma::FUNCTIONS].into_iter().flatten() {
        let type_of = |rust| c_type(rust).expect("a type that C has");
        let args: Vec<_> = it.args.iter().map(|arg| type_of(arg)).collect();
        let args = if args.is_empty() { "void".into() } else { args.join(", ") };
        let ret = it.ret.first().map_or("void".into(), |ret| type_of(ret));
        // A second declaration of a function must agree with the first; some names are macros too.
        writeln!(c, "#undef {0}\n{ret} {0}({args});", it.name).expect("a string");
    }
    c
}

/// What the C compiler says of a program; `None` without a compiler.
fn compile(program: &str) -> Option<Result<(), String>> {
    let mut cc = Command::new("cc")
        .args(["-std=gnu11", "-Werror", "-fsyntax-only", "-xc", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let mut stdin = cc.stdin.take().expect("a pipe");
    stdin.write_all(program.as_bytes()).expect("the compiler reads all of it");
    drop(stdin);
    let output = cc.wait_with_output().expect("it was started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Some(if output.status.success() { Ok(()) } else { Err(said) })
}

#[test]
fn declarations_are_those_of_the_installed_headers() {
    match compile("#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n") {
        Some(Ok(())) => {}
        Some(Err(_)) => return println!("skipped: no headers of rdma-core"),
        None => return println!("skipped: no C compiler"),
    }
    let program = program();
    if let Some(Err(said)) = compile(&program) {
        panic!("{said}");
    }
    // It would say so: one byte more, one number less, another type.
    for (right, wrong) in [
        ("sizeof(struct rdma_cm_id) == ", "1 + sizeof(struct rdma_cm_id) == "),
        ("IBV_QPT_RC == 2", "IBV_QPT_RC == 1"),
        ("int rdma_listen(struct rdma_cm_id *, int)", "int rdma_listen(struct rdma_cm_id *, char)"),
    ] {
        let changed = program.replacen(right, wrong, 1);
        assert_ne!(changed, program, "{right} is there");
        assert!(matches!(compile(&changed), Some(Err(_))), "{wrong} compiles");
    }
}
